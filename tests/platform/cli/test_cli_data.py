"""`jestlab data`: make, inspect, fetch, and pack."""

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


def run(*arguments, cwd):
    with chdir(cwd):
        return labs.here("data", *arguments)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("place")
    made = run("make", "shapes", "web", "--examples", "400", "--seed", "3", "--image-size", "16", cwd=place)
    assert made.returncode == 0, made.stderr
    assert "web: 400 examples in 1 tar shard, " in made.stdout
    return place


def test_make_writes_shards_and_nothing_else_and_refuses_an_existing_folder(place):
    names = {path.name for path in (place / "web").glob("0*")}
    assert names == {"00000.tar", "00000.parquet", "00000_stats.json"}
    assert not list(place.glob(".*"))
    before = (place / "web" / "00000.tar").read_bytes()
    again = run("make", "shapes", "web", cwd=place)
    assert again.returncode == 1
    assert again.stderr == "jestlab: web already exists: name a new folder, or remove this one\n"
    assert (place / "web" / "00000.tar").read_bytes() == before


def photo(color="red"):
    file = io.BytesIO()
    Image.new("RGB", (16, 16), color).save(file, "JPEG")
    return file.getvalue()


def test_inspect_counts_every_member_and_names_images_that_cannot_be_decoded(tmp_path):
    (tmp_path / "web").mkdir()
    with TarWriter(tmp_path / "web" / "0.tar") as tar:
        for key in range(6):
            tar.add(f"{key}.jpg", photo() if key != 4 else b"no image")
            tar.add(f"{key}.txt", b"red")
            tar.add(f"{key}.json", json.dumps({"noise": "clean", "n": key}).encode())
        for name in ("a.v1.jpg", "a.v1.txt", "0.txt", "labels.npy", "7.jpg"):
            tar.add(name, b"x")
    (tmp_path / "web" / "1.tar.gz").write_bytes(b"x")
    about = json.loads(run("inspect", "web", "--filter", "n > 2", "--json", cwd=tmp_path).stdout)
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
    shown = run("inspect", "web", cwd=tmp_path).stdout
    assert "web: 5 examples in 1 tar shard, 5 skipped, " in shown
    assert f"  skipped: 1 × {dot}\n" in shown and "  skipped: 1 × undecodable image\n" in shown
    assert "\n    web/0.tar, example '4'\n" in shown
    assert "\n  members: 18 of examples, 4 damaged, 1 other file\n" in shown
    above = run("inspect", ".", cwd=tmp_path).stdout
    assert "5 examples in 1 tar shard, 5 skipped" in above


def test_inspect_shows_folders_of_data_at_any_depth(place, tmp_path):
    shutil.copytree(place / "web", tmp_path / "a")
    shutil.copytree(place / "web", tmp_path / "b" / "deep")
    lines = run("inspect", ".", cwd=tmp_path).stdout.splitlines()
    assert lines[0].startswith(".: 2 folders of data")
    assert any(line.startswith("b  1 folder of data") for line in lines)


def test_inspect_counts_all_examples_and_those_that_a_filter_keeps(place):
    shown = run("inspect", "web", cwd=place)
    assert shown.returncode == 0, shown.stderr
    assert "400 examples in 1 tar shard, " in shown.stdout and "mismatched" in shown.stdout
    counts = json.loads(run("inspect", "web", "--filter", "noise == 'vague'", "--json", cwd=place).stdout)
    assert counts["examples"] == 400 == sum(kind["examples"] for kind in counts["noise"].values())
    assert counts["kept"] == counts["noise"]["vague"]["kept"] == counts["noise"]["vague"]["examples"]
    assert counts["noise"]["clean"]["kept"] == 0
    assert 0 < len(counts["captions"]) <= 8


def test_errors_are_one_line(place):
    (place / "empty").mkdir()
    for arguments, code, message in (
        (("inspect", "web", "--filter", "similarty > 0.3"), 1, "did you mean 'similarity'?"),
        (("inspect", "web", "--filter", "__import__('os')"), 1, "expected `and`, `or` or the end"),
        (("inspect", "nowhere"), 1, "nowhere: no such folder"),
        (("inspect", "empty"), 1, "empty"),
        (("make", "shapes", "new", "--examples", "0"), 2, "--examples"),
        (("make", "shapes", "new", "--exampels", "5"), 2, "--exampels"),
    ):
        failed = run(*arguments, cwd=place)
        assert failed.returncode == code, arguments
        assert message in failed.stderr and failed.stderr.count("\n") == 1
    assert not (place / "new").exists()


def test_icons_are_fetched_once_and_shown(tmp_path, monkeypatch):
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
    fetched = run("fetch", "icons", cwd=tmp_path)
    assert fetched.returncode == 0, fetched.stderr
    assert fetched.stdout.startswith("icons: 4 folders of data, ")
    assert "80 examples in 1 tar shard" in fetched.stdout
    assert "benchmark of 2 datasets" in fetched.stdout
    again = run("fetch", "icons", "--json", cwd=tmp_path)
    assert again.returncode == 0 and again.stderr == "icons: the icons already exist\n"
    assert len(fetches) == 1
    parts = {Path(part["folder"]).name: part for part in json.loads(again.stdout)["parts"]}
    assert set(parts) == {"curated", "web", "validation", "benchmark"}
    assert parts["web"]["license"] == {"MIT": {"examples": 80}}


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "photos").mkdir()
    for i in range(4):
        file = io.BytesIO()
        Image.new("RGB", (8, 8), (60 * i, 0, 0)).save(file, "JPEG")
        (tmp_path / "photos" / f"{i}.jpg").write_bytes(file.getvalue())
    (tmp_path / "captions.csv").write_text(
        "file,caption,year\n" + "".join(f"{i}.jpg,no {i},19{i}0\n" for i in range(4))
    )
    (tmp_path / "labels.csv").write_text(
        "file,label\n" + "".join(f"{i}.jpg,{'ab'[i % 2]}\n" for i in range(4))
    )
    return tmp_path


def test_packed_images_can_be_filtered_by_their_columns(photos):
    packed = run("pack", "photos", "web", "--captions", "captions.csv", cwd=photos)
    assert packed.returncode == 0, packed.stderr
    assert packed.stdout.startswith("web: 4 examples in 1 tar shard, ")
    assert "metadata: key, caption, file, year" in packed.stdout
    shown = run("inspect", "web", "--filter", "year >= 1920", "--json", cwd=photos)
    assert json.loads(shown.stdout)["kept"] == 2
    again = run("pack", "photos", "web", "--captions", "captions.csv", cwd=photos)
    assert again.returncode == 1 and "web already exists" in again.stderr


def test_inspect_shows_packed_benchmarks(photos):
    for name, kind, captions in (("mine", "retrieval", "captions.csv"), ("two", "zero_shot", "labels.csv")):
        packed = run(
            "pack", "photos", f"bench/{name}", "--captions", captions, "--benchmark", kind, cwd=photos
        )
        assert packed.returncode == 0, packed.stderr
    summary = json.loads(run("inspect", "bench", "--json", cwd=photos).stdout)
    assert [(one["name"], one["kind"], one["images"]) for one in summary["datasets"]] == [
        ("mine", "retrieval", 4),
        ("two", "classification", 4),
    ]
    alone = run("inspect", "bench/two", cwd=photos)
    assert "4 images, 0 train images, 2 classes" in alone.stdout


def test_a_damaged_image_is_an_error_or_skipped(photos):
    (photos / "photos" / "2.jpg").write_bytes(b"no image")
    failed = run("pack", "photos", "web", "--captions", "captions.csv", cwd=photos)
    assert failed.returncode == 1 and failed.stderr.count("\n") == 1
    assert "captions.csv, row 4: photos/2.jpg is not a readable image" in failed.stderr
    assert not (photos / "web").exists()
    packed = run("pack", "photos", "web", "--captions", "captions.csv", "--skip-damaged", cwd=photos)
    assert packed.stderr.startswith("skipped: captions.csv, row 4: ")
    assert packed.stdout.startswith("web: 3 examples")
