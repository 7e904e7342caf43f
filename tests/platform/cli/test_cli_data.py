"""`jestlab data` as a user types it."""

from __future__ import annotations

import json
import shutil
from contextlib import chdir

import labs_support as labs
import pytest

from jestlab.models.data.tars import TarWriter


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


def test_make_leaves_the_shards_and_nothing_beside_them(place):
    assert {path.name for path in (place / "web").glob("0*")} == {
        "00000.tar",
        "00000.parquet",
        "00000_stats.json",
    }
    assert not list(place.glob(".*"))


def test_make_does_not_touch_what_exists(place):
    before = (place / "web" / "00000.tar").read_bytes()
    again = run("make", "shapes", "web", cwd=place)
    assert again.returncode == 1
    assert again.stderr == "jestlab: web exists already: name a new folder, or remove this one\n"
    assert (place / "web" / "00000.tar").read_bytes() == before


def test_make_fills_an_empty_folder(tmp_path):
    (tmp_path / "bench").mkdir()
    made = run("make", "benchmark", "bench", "--json", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["files"] == 9


def test_inspect(place):
    shown = run("inspect", "web", cwd=place)
    assert shown.returncode == 0, shown.stderr
    assert "400 examples in 1 tar shard, " in shown.stdout and "mismatched" in shown.stdout


def test_inspect_counts_what_is_damaged(place):
    shutil.copytree(place / "web", place / "worn")
    with TarWriter(place / "worn" / "00001.tar") as tar:
        for name, content in (
            ("0.jpg", b"x"),
            ("1.jpg", b"x"),
            ("1.txt", b" "),
            ("2.txt", b"a"),
            ("3.txt", b"a"),
        ):
            tar.add(name, content)
    shown = run("inspect", "worn", cwd=place)
    assert shown.returncode == 0, shown.stderr
    assert " MB\n  left out: 2 × no image\n  left out: 1 × no caption" in shown.stdout
    counts = json.loads(run("inspect", "worn", "--json", cwd=place).stdout)
    assert counts["damaged"] == {"no image": 2, "no caption": 1, "blank caption": 1}


def test_inspect_what_a_filter_keeps(place):
    counts = json.loads(run("inspect", "web", "--filter", "noise == 'vague'", "--json", cwd=place).stdout)
    assert counts["examples"] == 400 == sum(kind["examples"] for kind in counts["noise"].values())
    assert counts["kept"] == counts["noise"]["vague"]["kept"] == counts["noise"]["vague"]["examples"]
    assert counts["noise"]["clean"]["kept"] == 0
    assert 0 < len(counts["captions"]) <= 8


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (("inspect", "web", "--filter", "similarty > 0.3"), 1, "did you mean 'similarity'?"),
        (("inspect", "web", "--filter", "__import__('os')"), 1, "expected `and`, `or` or the end"),
        (("inspect", "nowhere"), 1, "nowhere: no such folder"),
        (("make", "shapes", "new", "--examples", "0"), 2, "--examples"),
        (("make", "shapes", "new", "--exampels", "5"), 2, "--exampels"),
    ],
)
def test_errors_are_one_line(place, arguments, code, message):
    failed = run(*arguments, cwd=place)
    assert failed.returncode == code
    assert message in failed.stderr and failed.stderr.count("\n") == 1
    assert not (place / "new").exists()


def test_help_shows_examples(tmp_path):
    assert "jestlab data make shapes web/" in run("make", "shapes", "--help", cwd=tmp_path).stdout
