"""`jestlab data`: make, inspect, fetch, and pack."""

import functools
import io
import json
import shutil
from contextlib import chdir
from pathlib import Path

import labs_support as labs
import pytest
from PIL import Image
from tests.models.support.icon_packages import icon_set, of_names

from jestlab.models.data.tars import TarWriter
from jestlab.platform.cli import data


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A folder with 400 examples of the synthetic web."""
    template = tmp_path_factory.mktemp("template")
    with chdir(template):
        words = ("make", "shapes", "web", "--examples", "400", "--seed", "3", "--image-size", "16")
        assert "web: 400 examples in 1 tar shard, " in labs.here("data", *words).stdout
    return template


@pytest.fixture
def call(checked):
    return functools.partial(checked, "data")


@pytest.fixture
def web(template, tmp_path):
    return shutil.copytree(template / "web", tmp_path / "web")


def test_make_writes_shards_and_nothing_else_and_refuses_an_existing_folder(template, web, call):
    names = {path.name for path in web.glob("0*")}
    assert names == {"00000.tar", "00000.parquet", "00000_stats.json"}
    assert not list(template.glob(".*"))
    before = (web / "00000.tar").read_bytes()
    refused = call("make", "shapes", "web", code=1)
    assert refused == "jestlab: web already exists: name a new folder, or remove this one\n"
    assert (web / "00000.tar").read_bytes() == before


def photo(color="red"):
    file = io.BytesIO()
    Image.new("RGB", (16, 16), color).save(file, "JPEG")
    return file.getvalue()


def test_inspect_counts_every_member_and_names_images_that_cannot_be_decoded(tmp_path, call):
    (tmp_path / "web").mkdir()
    with TarWriter(tmp_path / "web" / "0.tar") as tar:
        for key in range(6):
            tar.add(f"{key}.jpg", photo() if key != 4 else b"no image")
            tar.add(f"{key}.txt", b"red")
            tar.add(f"{key}.json", json.dumps({"noise": "clean", "n": key}).encode())
        for name in ("a.v1.jpg", "a.v1.txt", "0.txt", "labels.npy", "7.jpg"):
            tar.add(name, b"x")
    (tmp_path / "web" / "1.tar.gz").write_bytes(b"x")
    about = json.loads(call("inspect", "web", "--filter", "n > 2", "--json"))
    assert about["examples"] == 5 == about["noise"]["clean"]["examples"] and about["kept"] == 2
    dot = "dot in the name (a pair if split at its last dot, not the first as in webdataset: rename it)"
    assert about["damaged"] == {
        "compressed shard (decompress it)": 1,
        "repeated name": 1,
        "no caption": 1,
        dot: 1,
        "undecodable image": 1,
    }
    assert about["members"] == {"of examples": 18, "damaged": 4, "other file": 1}
    shown = call("inspect", "web")
    assert "web: 5 examples in 1 tar shard, 5 skipped, " in shown
    assert f"  skipped: 1 × {dot}\n" in shown and "  skipped: 1 × undecodable image\n" in shown
    assert "\n    web/0.tar, example '4'\n" in shown
    assert "\n  members: 18 of examples, 4 damaged, 1 other file\n" in shown
    above = call("inspect", ".")
    assert "5 examples in 1 tar shard, 5 skipped" in above


def test_inspect_shows_folders_of_data_at_any_depth(web, tmp_path, call):
    shutil.copytree(web, tmp_path / "b" / "deep")
    lines = call("inspect", ".").splitlines()
    assert lines[0].startswith(".: 2 folders of data")
    assert any(line.startswith("b    1 folder of data") for line in lines)


def test_inspect_counts_all_examples_and_those_that_a_filter_keeps(web, call):
    assert "mismatched" in call("inspect", "web")
    counts = json.loads(call("inspect", "web", "--filter", "noise == 'vague'", "--json"))
    assert counts["examples"] == 400 == sum(kind["examples"] for kind in counts["noise"].values())
    assert counts["kept"] == counts["noise"]["vague"]["kept"] == counts["noise"]["vague"]["examples"]
    assert counts["noise"]["clean"]["kept"] == 0
    assert 0 < len(counts["captions"]) <= 8


def test_errors_are_one_line(web, tmp_path, call, check_errors):
    (tmp_path / "empty").mkdir()
    cases = {
        "inspect web --filter 'similarty > 0.3'": "did you mean 'similarity'?",
        "inspect web --filter '__import__(1)'": "expected `and`, `or` or the end",
        "inspect nowhere": "nowhere: no such folder",
        "inspect empty": "empty",
        "make shapes new --examples 0": "2 --examples",
    }
    check_errors(call, cases.items())
    assert not (tmp_path / "new").exists()


def test_icons_are_fetched_once_and_shown(call, in_folder, monkeypatch):
    names = [f"dish-{i}" for i in range(40)]
    groups = {"Food & Drink": names}
    contents = {
        "core": ("curated", of_names("core", names)),
        "logo": ("web", of_names("logo", names)),
        "valid": ("validation", of_names("valid", names, groups)),
        "tested": ("benchmark", of_names("tested", names, groups)),
    }
    sets = [icon_set(name, content, part) for name, (part, content) in contents.items()]
    fetches = []

    def download(sets, folder, done):
        folder.mkdir(parents=True)
        for one in sets:
            (folder / one.file_name).write_bytes(contents[one.name][1])
            done(one)
        fetches.append(folder)

    monkeypatch.setattr(data, "icon_sets", lambda: sets)
    monkeypatch.setattr(data, "download", download)
    fetched = call("fetch", "icons")
    assert fetched.startswith("icons: 4 folders of data, ")
    assert "80 examples in 1 tar shard" in fetched and "benchmark of 2 datasets" in fetched
    code, out, err = in_folder("data", "fetch", "icons", "--json")
    assert code == 0 and err == "icons: the icons already exist\n"
    assert len(fetches) == 1
    parts = {Path(part["folder"]).name: part for part in json.loads(out)["parts"]}
    assert set(parts) == {"curated", "web", "validation", "benchmark"}
    assert parts["web"]["license"] == {"MIT": {"examples": 80}}


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "photos").mkdir()
    rows = {"captions.csv": ["file,caption,year"], "labels.csv": ["file,label"]}
    for i in range(4):
        (tmp_path / "photos" / f"{i}.jpg").write_bytes(photo((60 * i, 0, 0)))
        rows["captions.csv"].append(f"{i}.jpg,no {i},19{i}0")
        rows["labels.csv"].append(f"{i}.jpg,{'ab'[i % 2]}")
    for name, lines in rows.items():
        (tmp_path / name).write_text("\n".join(lines))
    return tmp_path / "photos"


def test_packed_images_can_be_filtered_by_their_columns(photos, call):
    words = ("pack", "photos", "web", "--captions", "captions.csv")
    packed = call(*words)
    assert packed.startswith("web: 4 examples in 1 tar shard, ")
    assert "metadata: key, caption, file, year" in packed
    shown = call("inspect", "web", "--filter", "year >= 1920", "--json")
    assert json.loads(shown)["kept"] == 2
    assert "web already exists" in call(*words, code=1)


def test_inspect_shows_packed_benchmarks(photos, call):
    call("pack", "photos", "bench/mine", "--captions", "captions.csv", "--benchmark", "retrieval")
    call("pack", "photos", "bench/two", "--captions", "labels.csv", "--benchmark", "zero_shot")
    summary = json.loads(call("inspect", "bench", "--json"))
    assert [(one["name"], one["kind"], one["images"]) for one in summary["datasets"]] == [
        ("mine", "retrieval", 4),
        ("two", "classification", 4),
    ]
    assert "4 images, 0 train images, 2 classes" in call("inspect", "bench/two")


def test_a_damaged_image_is_an_error_or_skipped(photos, call, in_folder):
    (photos / "2.jpg").write_bytes(b"no image")
    words = ("pack", "photos", "web", "--captions", "captions.csv")
    assert "captions.csv, row 4: photos/2.jpg is not a readable image" in call(*words, code=1)
    assert not Path("web").exists()
    _, out, err = in_folder("data", *words, "--skip-damaged")
    assert err.startswith("skipped: captions.csv, row 4: ") and out.startswith("web: 3 examples")
