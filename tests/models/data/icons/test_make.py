"""The icons' data, made of small packages."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.models.support.icon_packages import icon_set, of_names

from jestlab.models.data import datasets
from jestlab.models.data.benchmarks import load_benchmark
from jestlab.models.data.icons import captions
from jestlab.models.data.icons.make import Icons, is_made, packages_folder
from jestlab.models.data.icons.sets import IconSet
from jestlab.models.data.images import decode
from jestlab.models.data.metadata import load_metadata
from jestlab.models.data.shards import ShardSource

FOOD = [f"dish-{i}" for i in range(40)]
TONES = ["artist", "artist-dark-skin-tone", "artist-light-skin-tone"]


def written(folder: Path) -> list[IconSet]:
    """Write packages of each part."""
    groups = {"Food & Drink": FOOD, "People & Body": TONES, "Flags": ["flag-x"]}
    parts = {
        "core": (of_names("core", ["red-apple", *TONES]), "curated", "emoji"),
        "other": (of_names("other", ["red-apple", *TONES, *FOOD]), "web", "emoji"),
        "firm": (of_names("firm", [f"firm-{i}" for i in range(9)]), "web", "logos"),
        "valid": (of_names("valid", [*FOOD, *TONES, "flag-x"], groups), "validation", "emoji"),
        "tested": (of_names("tested", [*FOOD, *TONES, "flag-x"], groups), "benchmark", "emoji"),
    }
    packages_folder(folder).mkdir(parents=True)
    sets = []
    for name, (content, part, kind) in parts.items():
        sets.append(icon_set(name, content, part, kind))
        (packages_folder(folder) / sets[-1].file_name).write_bytes(content)
    return sets


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("icons") / "icons"
    sets = written(folder)
    assert not is_made(folder, sets)
    icons = Icons(folder, sets)
    drawn: list[int] = []
    total = len(icons)
    icons.make(drawn.append)
    assert sum(drawn) == total > 0
    assert is_made(folder, sets)
    assert len(icons) == 0
    return folder


def test_shards_hold_pairs_with_metadata(made: Path) -> None:
    web = ShardSource(made / "web")
    rows = load_metadata(made / "web", ["set", "kind", "name", "skin_tone", "name_quality", "license"])
    assert set(rows["set"]) == {"core", "other", "firm"}, "what is curated is on the web, too"
    toned = {str(name) for name, tone in zip(rows["name"], rows["skin_tone"], strict=True) if tone}
    assert toned == {"artist-dark-skin-tone", "artist-light-skin-tone"}, "near-duplicates are in the web"
    assert "white" not in rows["name"], "what nobody sees is left out"
    assert "old" not in rows["name"], "what its authors hid is left out"
    by_name = dict(zip(map(str, rows["name"]), rows["name_quality"], strict=True))
    found = dict(zip(map(str, rows["name"]), web.captions(np.arange(len(web))), strict=True))
    words = captions.words(found["red-apple"])
    assert by_name["red-apple"] == pytest.approx(
        sum(w in ("red", "apple") for w in words) / len(words), abs=1e-3
    )
    assert by_name["firm-3"] < 0.5


def test_curated_pairs_have_clean_captions_and_one_of_each_idea(made: Path) -> None:
    curated = ShardSource(made / "curated")
    assert sorted(curated.captions(np.arange(len(curated)))) == ["artist", "red apple"]
    pixels = decode(next(iter(curated.images(np.array([0])))), 16)
    assert (pixels[0, 0] == 255).all(), "on white"
    assert (pixels < 200).any(), "something is drawn"


def test_a_style_nobody_trains_on_is_the_benchmark(made: Path) -> None:
    benchmark = load_benchmark(made / "benchmark", 16)
    assert set(benchmark.retrieval) == {"tested_retrieval"}
    retrieved = benchmark.retrieval["tested_retrieval"]
    assert set(retrieved.captions) == {captions.clean(name) for name in (*FOOD, "artist")}, (
        "no flags, no tones"
    )
    groups = benchmark.classification["tested_groups"]
    assert groups.class_names == ("food and drink",)
    assert (len(groups.train_images), len(groups.images)) == (16, len(FOOD) - 16)


def test_licenses_are_kept_beside_the_data(made: Path) -> None:
    sets = json.loads((made / "licenses.json").read_text())["sets"]
    assert [one["name"] for one in sets] == ["core", "other", "firm", "valid", "tested"]
    assert all(one["license"] == {"title": "MIT", "spdx": "MIT"} for one in sets)


def test_several_processes_give_the_same_bytes_and_make_only_what_is_missing(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jestlab.models.data.icons.drawing._PART", 10)
    sets = written(tmp_path)
    Icons(tmp_path, sets).make()
    for part in ("curated", "web", "validation", "benchmark"):
        assert datasets.digest(tmp_path / part) == datasets.digest(made / part)
    stays = (tmp_path / "web" / "00000.tar").stat()
    (tmp_path / "benchmark").rename(tmp_path / "packages" / "elsewhere")
    assert not is_made(tmp_path, sets)
    again = Icons(tmp_path, sets)
    assert len(again) == len(FOOD) + 3  # artist, flag-x, and the white one
    again.make()
    assert is_made(tmp_path, sets)
    after = (tmp_path / "web" / "00000.tar").stat()
    assert (after.st_ino, after.st_mtime_ns) == (stays.st_ino, stays.st_mtime_ns)


def test_a_folder_of_something_else_or_of_other_packages_is_not_touched(tmp_path: Path, made: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match=r"holds 'thesis\.tex' already: name a new or an empty folder"):
        is_made(tmp_path, [])
    with pytest.raises(ValueError, match="made from other versions of the packages"):
        is_made(made, [])


def test_skin_tones_are_removed_from_names() -> None:
    plain = {
        "artist-dark-skin-tone": "artist",
        "artist-medium-light": "artist",
        "kiss-woman-man-dark-skin-tone-light-skin-tone": "kiss-woman-man",
        "light-bulb": "light-bulb",
        "dark-chocolate": "dark-chocolate",
    }
    known = {"artist", "kiss-woman-man", "light-bulb"}
    assert {name: captions.without_tones(name, known) for name in plain} == plain


def test_captions_of_the_web_are_written_in_a_few_ways_always_the_same() -> None:
    found, again = ([captions.as_on_the_web(f"red-apple-{i}", "A Set") for i in range(400)] for _ in "12")
    assert found == again
    kinds = [
        sum(text.endswith(".svg") for text in found),
        sum(text.endswith(" icon") for text in found),
        sum(text.startswith("A Set ") for text in found),
    ]
    assert all(50 < count < 110 for count in kinds)
