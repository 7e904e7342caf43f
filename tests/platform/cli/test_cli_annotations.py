"""`jestlab note` and `jestlab tag`, and how runs are named."""

from __future__ import annotations

import json
import subprocess

import plans_support as plans
import pytest
from click.testing import CliRunner

from jestlab.analysis import query
from jestlab.platform.cli import cli, naming
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.store import Store

RUNS = [
    plans.run("uniform", seed=0),
    plans.run("uniform", seed=1),
    plans.run("joint", point={"ratio": 0.8}),
    plans.run("joint", point={"path": "a/b"}),
]


@pytest.fixture
def lab(tmp_path):
    lab = Lab.find(tmp_path / "lab")
    Store.open(lab.store_url).record(plans.plan(*RUNS))
    return lab


def called(lab, *arguments):
    return (
        CliRunner()
        .invoke(cli, [*arguments, "--root", str(lab.root)], catch_exceptions=False, standalone_mode=False)
        .output
    )


@pytest.mark.parametrize(
    "name, run",
    [
        ("toy/uniform/1", 1),
        ("toy/joint ratio=0.8", 2),
        ("toy/joint ratio=0.8/0", 2),
        ("toy/joint path=a/b", 3),
        ("toy/joint path=a/b/0", 3),
        (f"toy/{RUNS[0].fingerprint[:8]}", 0),
        (RUNS[1].fingerprint[:6].upper(), 1),
        (RUNS[2].fingerprint, 2),
        ("uniform/0", 0),
        ("joint path=a/b", 3),
    ],
)
def test_a_run_has_several_names(lab, name, run):
    assert naming.run(Store.open(lab.store_url), name).fingerprint == RUNS[run].fingerprint


@pytest.mark.parametrize(
    "name, message",
    [
        ("toy/uniform", "toy/uniform stands for 2 runs: choose one: toy/uniform/0, toy/uniform/1"),
        ("toy/uniform/7", "toy/uniform has no seed 7: 0, 1"),
        ("toy/joint", "stands for 2 runs: choose one: 'toy/joint ratio=0.8/0', 'toy/joint path=a/b/0'"),
        ("toy/unifrom/1", "did you mean 'uniform'"),
        ("toi/uniform", "did you mean 'toy'"),
        ("uniform", "uniform stands for 2 runs: choose one: toy/uniform/0"),
        ("abcdef0123", "no run has a fingerprint that begins with 'abcdef0123'"),
        ("abc", "no experiment 'abc' in the store"),
    ],
)
def test_a_name_that_means_no_run_or_several(lab, name, message):
    with pytest.raises(UserError, match=message):
        naming.run(Store.open(lab.store_url), name)


def test_notes(lab, monkeypatch, tmp_path):
    assert "no notes yet" in called(lab, "note", "toy")
    called(lab, "note", "toy", "first\nof all | 'quoted'", "--author", "Ada")
    called(lab, "note", "toy/uniform/1", "diverged late", "--author", "Bo")
    called(lab, "note", "toy", "second", "--author", "Ada")
    assert [note["text"] for note in json.loads(called(lab, "note", "toy", "--json"))] == [
        "first\nof all | 'quoted'",
        "second",
    ]
    lines = called(lab, "note", RUNS[1].fingerprint[:8]).splitlines()
    assert len(lines) == 2 and lines[1].endswith("Bo  diverged late")
    found = query.frame(lab.store_url, view="notes", where="author = 'Bo'")
    assert list(found["label"]) == ["uniform"] and list(found["experiment"]) == ["toy"]
    with pytest.raises(UserError, match="the note is empty"):
        called(lab, "note", "toy", "  ")
    with pytest.raises(UserError, match="no experiment 'tyo' in the store: did you mean 'toy'"):
        called(lab, "note", "tyo", "x")


def test_the_author_is_gits_user_or_the_systems(lab, monkeypatch, tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "none"))
    monkeypatch.setenv("LOGNAME", "login")
    called(lab, "note", "toy", "by the system's")
    subprocess.run(["git", "config", "user.name", "Grace Hopper"], check=True)
    called(lab, "note", "toy", "by git's")
    authors = [note["author"] for note in json.loads(called(lab, "note", "toy", "--json"))]
    assert authors == ["login", "Grace Hopper"]


def test_tags(lab):
    assert called(lab, "tag", "toy/uniform/0", "keep", "best", "keep") == "best keep\n"
    assert called(lab, "tag", "toy/uniform/0", "best") == "best keep\n"
    assert json.loads(called(lab, "tag", "toy", "--json")) == []
    assert called(lab, "tag", "toy", "keep") == "keep\n"
    assert called(lab, "tag", "toy/uniform/0", "keep", "--remove") == "best\n"
    with pytest.raises(UserError, match="no tag 'worst' to remove: it has best"):
        called(lab, "tag", "toy/uniform/0", "best", "worst", "--remove")
    assert called(lab, "tag", "toy/uniform/0") == "best\n"
    found = query.select(lab.store_url, "notes", "kind = 'tag' and run is null", ["experiment", "text"])
    assert found.rows == [("toy", "keep")]


@pytest.mark.parametrize("tag", ["two words", "a,b", "a/b", "", "x" * 65, "new\nline"])
def test_what_is_no_tag(lab, tag):
    with pytest.raises(UserError, match="invalid tag"):
        called(lab, "tag", "toy", "fine", tag)
    assert json.loads(called(lab, "tag", "toy", "--json")) == []


@pytest.mark.parametrize("verb", ["note", "tag", "diff"])
def test_help_has_an_example(verb):
    shown = CliRunner().invoke(cli, [verb, "--help"]).output
    assert "Examples:" in shown and "--json" in shown
