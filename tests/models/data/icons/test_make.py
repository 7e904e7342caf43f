"""The icons' data, made of small packages."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.models.support.icon_packages import icon_set, of_names

from jestlab.models.data import datasets
from jestlab.models.data.benchmarks import load_benchmark
from jestlab.models.data.icons.make import PACKAGES, IconSet, caption_on_web, has_skin_tone, is_made, make
from jestlab.models.data.images import decode
from jestlab.models.data.metadata import load_metadata
from jestlab.models.data.shards import ShardIndex

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
    (folder / PACKAGES).mkdir(parents=True)
    sets = [icon_set(name, *part) for name, part in parts.items()]
    for one in sets:
        (folder / PACKAGES / one.file_name).write_bytes(parts[one.name][0])
    return sets


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("icons") / "icons"
    sets = written(folder)
    assert not is_made(folder, sets)
    reports: list[tuple[int, int]] = []
    make(folder, sets, lambda *report: reports.append(report))
    assert reports == [(i, len(reports)) for i in range(1, len(reports) + 1)]
    assert is_made(folder, sets)
    return folder


def test_the_web_has_pairs_with_metadata(made: Path) -> None:
    web = ShardIndex.load(made / "web")
    rows = load_metadata(made / "web", ["set", "kind", "name", "skin_tone", "name_quality", "license"])
    captions = web.captions(np.arange(len(web)))
    by_name = {name: values for name, *values in zip(rows["name"], *rows.values(), captions, strict=True)}
    assert set(rows["set"]) == {"core", "other", "firm"}
    assert {name for name, values in by_name.items() if values[3]} == {*TONES[1:]}
    assert not {"white", "old"} & by_name.keys(), "icons invisible or hidden by their authors are left out"
    assert by_name["red-apple"][4:] == [0.5, "MIT", "other Set red apple"]  # two of its words are curated
    assert by_name["firm-3"][4:] == [0.0, "MIT", "firm 3"]


def test_curated_pairs_have_clean_captions_without_skin_tones(made: Path) -> None:
    curated = ShardIndex.load(made / "curated")
    assert sorted(curated.captions(np.arange(len(curated)))) == ["artist", "red apple"]
    pixels = decode(next(iter(curated.images(np.array([0])))), 16)
    assert (pixels[0, 0] == 255).all(), "on white"
    assert (pixels < 200).any(), "something is drawn"


def test_the_benchmark_is_another_style(made: Path) -> None:
    benchmark = load_benchmark(made / "benchmark", 16)
    assert set(benchmark.retrieval) == {"tested_retrieval"}
    expected = {name.replace("-", " ") for name in (*FOOD, "artist")}  # without flags and tones
    assert set(benchmark.retrieval["tested_retrieval"].captions) == expected
    groups = benchmark.classification["tested_groups"]
    assert groups.class_names == ("food and drink",)
    assert (len(groups.train_images), len(groups.images)) == (16, len(FOOD) - 16)


def test_licenses_are_next_to_the_data(made: Path) -> None:
    sets = json.loads((made / "licenses.json").read_text())["sets"]
    assert [one["name"] for one in sets] == ["core", "other", "firm", "valid", "tested"]
    assert all(one["license"] == {"title": "MIT", "spdx": "MIT"} for one in sets)


def test_several_processes_give_the_same_bytes_and_make_only_missing_parts(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jestlab.models.data.icons.make._DRAWN_AT_ONCE", 10)
    sets = written(tmp_path)
    make(tmp_path, sets)
    for part in ("curated", "web", "validation", "benchmark"):
        assert datasets.digest(tmp_path / part) == datasets.digest(made / part)
    before = (tmp_path / "web" / "00000.tar").stat()
    (tmp_path / "benchmark").rename(tmp_path / PACKAGES / "elsewhere")
    assert not is_made(tmp_path, sets)
    totals: set[int] = set()
    make(tmp_path, sets, lambda done, total: totals.add(total))
    assert totals == {len(FOOD) + 3}  # artist, flag-x, and the white one
    assert is_made(tmp_path, sets)
    after = (tmp_path / "web" / "00000.tar").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_folder_with_other_packages_is_not_touched(made: Path) -> None:
    with pytest.raises(ValueError, match="made from other versions of the packages"):
        is_made(made, [])


def test_skin_tones_are_found_in_names() -> None:
    names = {"artist", "kiss-woman-man", "light-bulb"}
    toned = ["artist-dark-skin-tone", "artist-medium-light", "kiss-man-dark-skin-tone-light-skin-tone"]
    assert all(has_skin_tone(name, names) for name in toned)
    assert not any(has_skin_tone(name, names) for name in (*names, "dark-chocolate"))


def test_captions_of_the_web_are_written_in_a_few_ways_always_the_same() -> None:
    found, again = ([caption_on_web(f"red-apple-{i}", "A Set") for i in range(400)] for _ in "12")
    assert found == again
    for style in (r".*\.svg", ".* icon", "A Set .*"):
        assert 50 < sum(bool(re.fullmatch(style, text)) for text in found) < 110
