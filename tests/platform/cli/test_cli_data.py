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


@pytest.fixture
def call(checked):
    return functools.partial(checked, "data")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """400 examples of the synthetic web."""
    folder = tmp_path_factory.mktemp("shapes")
    with chdir(folder):
        words = ("make", "shapes", "web", "--examples", "400", "--seed", "3", "--image-size", "16")
        assert "web: 400 examples in 1 tar shard, " in labs.here("data", *words).stdout
    assert [path.name for path in folder.iterdir()] == ["web"]
    return folder / "web"


@pytest.fixture
def web(shapes, tmp_path):
    return shutil.copytree(shapes, tmp_path / "web")


def test_make_writes_shards_and_refuses_an_existing_folder(web, call):
    before = {path.name: path.read_bytes() for path in web.glob("0*")}
    assert before.keys() == {"00000.tar", "00000.parquet"}
    assert "web already exists: name a new folder" in call("make", "shapes", "web", code=1)
    assert {path.name: path.read_bytes() for path in web.glob("0*")} == before


def test_inspect_counts_all_examples_and_those_that_a_filter_keeps(web, tmp_path, call):
    assert "mismatched" in call("inspect", "web")
    counts = json.loads(call("inspect", "web", "--filter", "noise == 'vague'", "--json"))
    assert counts["examples"] == 400 == sum(kind["examples"] for kind in counts["noise"].values())
    assert counts["kept"] == counts["noise"]["vague"]["kept"] == counts["noise"]["vague"]["examples"]
    assert counts["noise"]["clean"]["kept"] == 0 and 0 < len(counts["captions"]) <= 8
    shutil.copytree(web, tmp_path / "b" / "deep")
    lines = call("inspect", ".").splitlines()
    assert lines[0].startswith(".: 2 folders of data")
    assert any(line.startswith("b    1 folder of data") for line in lines)


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
    assert sorted((reason.partition(" (")[0], count) for reason, count in about["damaged"].items()) == [
        *(("dot in the name", 1), ("no caption", 1), ("repeated name", 1)),
        *(("shard in another form than .tar", 1), ("undecodable image", 1)),
    ]
    assert about["members"] == {"of examples": 18, "damaged": 4, "other file": 1}
    assert "5 examples in 1 tar shard, 5 skipped" in call("inspect", ".")
    shown = call("inspect", "web")
    for text in (
        "web: 5 examples in 1 tar shard, 5 skipped, ",
        "\n  skipped: 1 × undecodable image\n",
        "\n    web/0.tar, example '4'\n",
        "\n  members: 18 of examples, 4 damaged, 1 other file\n",
    ):
        assert text in shown


def test_errors_are_one_line(web, tmp_path, call, check_errors):
    (tmp_path / "empty").mkdir()
    cases = {
        "inspect web --filter 'similarty > 0.3'": "did you mean 'similarity'?",
        "inspect web --filter '__import__(1)'": "no arithmetic",
        "inspect nowhere": "nowhere: no such folder",
        "inspect empty": "empty",
        "make shapes new --examples 0": "2 --examples",
    }
    check_errors(call, cases.items())
    assert not (tmp_path / "new").exists()


def test_icons_are_fetched_once_and_shown(call, monkeypatch):
    names = [f"dish-{i}" for i in range(40)]
    groups = {"Food & Drink": names}
    contents = {
        "core": ("curated", of_names("core", names)),
        "logo": ("web", of_names("logo", names)),
        "valid": ("validation", of_names("valid", names, groups)),
        "tested": ("benchmark", of_names("tested", names, groups)),
    }
    sets = [icon_set(name, content, part) for name, (part, content) in contents.items()]

    def download(sets, folder, progress):
        folder.mkdir(parents=True)
        for one in sets:
            (folder / one.file_name).write_bytes(contents[one.name][1])
            progress(1)

    monkeypatch.setattr("jestlab.models.data.icons.make.icon_sets", lambda: sets)
    monkeypatch.setattr("jestlab.models.data.icons.make.download", download)
    fetched = call("fetch", "icons")
    assert fetched.startswith("icons: 4 folders of data, ")
    assert "80 examples in 1 tar shard" in fetched and "benchmark of 2 datasets" in fetched
    monkeypatch.delattr("jestlab.models.data.icons.make.download")
    parts = {
        Path(part["folder"]).name: part for part in json.loads(call("fetch", "icons", "--json"))["parts"]
    }
    assert parts.keys() == {"curated", "web", "validation", "benchmark"}
    assert parts["web"]["license"] == {"MIT": {"examples": 80}}


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "photos").mkdir()
    captions, labels = ["file,caption,year"], ["file,label"]
    for i in range(4):
        (tmp_path / "photos" / f"{i}.jpg").write_bytes(photo((60 * i, 0, 0)))
        captions.append(f"{i}.jpg,no {i},19{i}0")
        labels.append(f"{i}.jpg,{'ab'[i % 2]}")
    (tmp_path / "captions.csv").write_text("\n".join(captions))
    (tmp_path / "labels.csv").write_text("\n".join(labels))
    return tmp_path / "photos"


PACK = ("pack", "photos", "web", "--captions", "captions.csv")


def test_packed_images_can_be_filtered_by_their_columns(photos, call):
    packed = call(*PACK)
    assert packed.startswith("web: 4 examples in 1 tar shard, ")
    assert "metadata: key, caption, file, year" in packed
    assert json.loads(call("inspect", "web", "--filter", "year >= 1920", "--json"))["kept"] == 2
    assert "web already exists" in call(*PACK, code=1)


def test_inspect_shows_packed_benchmarks(photos, call):
    call("pack", "photos", "bench/mine", "--captions", "captions.csv", "--benchmark", "retrieval")
    call("pack", "photos", "bench/two", "--captions", "labels.csv", "--benchmark", "zero_shot")
    summary = json.loads(call("inspect", "bench", "--json"))
    found = [(one["name"], one["kind"], one["images"]) for one in summary["datasets"]]
    assert found == [("mine", "retrieval", 4), ("two", "classification", 4)]
    call("pack", "photos", "bench/wds_two", "--captions", "labels.csv", "--benchmark", "zero_shot")
    assert "4 images, 0 train images, 2 classes" in call("inspect", "bench/two")
    assert "second dataset named 'two'" in call("inspect", "bench", code=1)


def test_a_damaged_image_is_an_error_or_skipped(photos, call):
    (photos / "2.jpg").write_bytes(b"no image")
    assert "captions.csv, line 4: photos/2.jpg: not a readable image" in call(*PACK, code=1)
    assert not Path("web").exists()
    packed = labs.here("data", *PACK, "--skip-damaged")
    assert packed.stderr.startswith("skipped: captions.csv, line 4: ")
    assert packed.stdout.startswith("web: 3 examples")
