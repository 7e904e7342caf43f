"""`jestlab data fetch icons` and `data pack` as a user types them; npm is real, and its registry is here."""

from __future__ import annotations

import io
import json
import shutil
from contextlib import chdir
from pathlib import Path

import labs_support as labs
import pytest
from PIL import Image
from tests.models.support.icon_packages import icon_set, of_names, serving

NAMES = [f"dish-{i}" for i in range(40)]
GROUPS = {"Food & Drink": NAMES}


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A registry that has a small package of each part, and a jestlab that wants these."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm")
    contents = {
        "core": ("curated", of_names("core", NAMES)),
        "logo": ("web", of_names("logo", NAMES)),
        "valid": ("validation", of_names("valid", NAMES, GROUPS)),
        "tested": ("benchmark", of_names("tested", NAMES, GROUPS)),
    }
    sets = {name: icon_set(name, content, part) for name, (part, content) in contents.items()}
    with serving() as here:
        for name, (_, content) in contents.items():
            here.publish(sets[name], content)
        monkeypatch.setenv("npm_config_registry", here.url)
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
        monkeypatch.setenv("npm_config_fetch_retries", "0")
        monkeypatch.setattr("jestlab.platform.cli.data.icon_sets", lambda: tuple(sets.values()))
        yield here


def run(*arguments, cwd):
    with chdir(cwd):
        return labs.here("data", *arguments)


def test_icons_are_fetched_and_shown_and_not_fetched_again(registry, tmp_path):
    fetched = run("fetch", "icons", cwd=tmp_path)
    assert fetched.returncode == 0, fetched.stderr
    assert fetched.stdout.startswith("icons: 4 folders of data, ")
    assert "80 pairs in 1 tar shard" in fetched.stdout
    assert "tested_groups 24 images of 1 classes, 16 to learn from" in fetched.stdout
    asked = len(registry.asked)
    again = run("fetch", "icons", "--json", cwd=tmp_path)
    assert again.returncode == 0 and again.stderr == "icons: the icons are there already\n"
    assert len(registry.asked) == asked
    parts = {Path(part["folder"]).name: part for part in json.loads(again.stdout)["parts"]}
    assert set(parts) == {"curated", "web", "validation", "benchmark"}
    assert parts["web"]["license"] == {"MIT": {"examples": 80}}


def test_what_fails_is_one_line_and_calling_again_goes_on(registry, tmp_path):
    whole = registry.served["logo.tgz"]
    registry.served["logo.tgz"] = whole[: len(whole) // 2]
    failed = run("fetch", "icons", cwd=tmp_path)
    assert failed.returncode == 1 and failed.stdout == ""
    assert failed.stderr.startswith("jestlab: @iconify-json/logo@1.0.0: npm could not fetch it: ")
    assert failed.stderr.count("\n") == 1
    assert {path.name for path in (tmp_path / "icons").iterdir()} == {"packages"}
    registry.served["logo.tgz"] = whole
    before = registry.tarballs
    assert run("fetch", "icons", cwd=tmp_path).returncode == 0
    assert registry.tarballs < before + 4, "what came through was kept"


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "icons").mkdir()
    (tmp_path / "icons" / "thesis.tex").write_text("mine")
    refused = run("fetch", "icons", cwd=tmp_path)
    assert refused.returncode == 1
    assert refused.stderr == "jestlab: icons: holds 'thesis.tex' already: name a new or an empty folder\n"


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


def test_images_are_packed_to_train_on_and_filtered_by_their_columns(photos):
    packed = run("pack", "photos", "web", "--captions", "captions.csv", cwd=photos)
    assert packed.returncode == 0, packed.stderr
    assert packed.stdout.startswith("web: 4 examples in 1 tar shard, ")
    assert "metadata: key, caption, file, year" in packed.stdout
    shown = run("inspect", "web", "--filter", "year >= 1920", "--json", cwd=photos)
    assert json.loads(shown.stdout)["kept"] == 2
    again = run("pack", "photos", "web", "--captions", "captions.csv", cwd=photos)
    assert again.returncode == 1 and "web exists already" in again.stderr


def test_benchmarks_are_packed_and_inspect_knows_them(photos):
    for name, kind, captions in (("mine", "retrieval", "captions.csv"), ("two", "zero_shot", "labels.csv")):
        packed = run(
            "pack", "photos", f"bench/{name}", "--captions", captions, "--benchmark", kind, cwd=photos
        )
        assert packed.returncode == 0, packed.stderr
    told = json.loads(run("inspect", "bench", "--json", cwd=photos).stdout)
    assert [(one["name"], one["kind"], one["images"]) for one in told["datasets"]] == [
        ("mine", "retrieval", 4),
        ("two", "classification", 4),
    ]
    alone = run("inspect", "bench/two", cwd=photos)
    assert "4 images of 2 classes, 0 to learn from" in alone.stdout


def test_mistakes_in_what_is_packed_are_one_line_and_leave_nothing(photos):
    (photos / "photos" / "2.jpg").write_bytes(b"no image")
    failed = run("pack", "photos", "web", "--captions", "captions.csv", cwd=photos)
    assert failed.returncode == 1 and failed.stderr.count("\n") == 1
    assert "captions.csv, row 4: photos/2.jpg is not a readable image" in failed.stderr
    assert not (photos / "web").exists()
    packed = run("pack", "photos", "web", "--captions", "captions.csv", "--skip-damaged", cwd=photos)
    assert packed.returncode == 0
    assert packed.stderr.startswith("left out: captions.csv, row 4: ")
    assert packed.stdout.startswith("web: 3 examples")


def test_inspect_of_nothing_says_what_it_looked_for(tmp_path):
    (tmp_path / "empty").mkdir()
    shown = run("inspect", "empty", cwd=tmp_path)
    assert shown.returncode == 1 and shown.stderr.count("\n") == 1
    assert "empty" in shown.stderr
