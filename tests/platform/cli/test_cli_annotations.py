"""`jestlab note` and `jestlab tag`."""

import json
import subprocess

import plans_support as plans
import pytest
import stores_support as stores

from jestlab.analysis import query
from jestlab.platform.store.annotations import Subject, add_tags
from jestlab.platform.store.store import Store

PLAN = plans.reference_and_two()
_, JOINT, UNIFORM = PLAN.runs


@pytest.fixture
def lab(root):
    """An experiment of three runs, and one of a single run."""
    lab = stores.empty_lab(root)
    store = Store.open(lab.store_url)
    plans.record(store, PLAN)
    plans.record(store, plans.plan(plans.run("alone"), name="other"))
    store.close_whole()
    return lab


def test_notes(lab, jestlab):
    assert "no notes yet" in jestlab("note", "toy")
    jestlab("note", "toy", "first\nof all | 'quoted'", "--author", "Ada")
    jestlab("note", "toy/uniform", "diverged late", "--author", "Bo")
    jestlab("note", "toy", "second", "--author", "Ada")
    notes = [note["text"] for note in json.loads(jestlab("note", "toy", "--json"))]
    assert notes == ["first\nof all | 'quoted'", "second"]
    lines = jestlab("note", UNIFORM.fingerprint[:8]).splitlines()
    assert len(lines) == 2 and lines[1].endswith("Bo  diverged late")
    found = query.select(lab.store_url, "notes", "author = 'Bo'", ["label", "experiment"])
    assert found.rows == [("uniform ratio=0.5", "toy")]
    assert "the note is empty" in jestlab("note", "toy", "  ", code=1)
    assert "no experiment or run 'tyo'" in jestlab("note", "tyo", "x", code=1)


def test_the_author_is_the_user_of_git_or_of_the_system(lab, jestlab, monkeypatch, tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "none"))
    monkeypatch.setenv("LOGNAME", "login")
    jestlab("note", "toy", "by the system's")
    subprocess.run(["git", "config", "user.name", "Grace Hopper"], check=True)
    jestlab("note", "toy", "by git's")
    authors = [note["author"] for note in json.loads(jestlab("note", "toy", "--json"))]
    assert authors == ["login", "Grace Hopper"]


def test_tags(lab, jestlab):
    for words, printed in (
        ("toy/uniform keep best keep", "best keep\n"),
        ("toy/uniform best", "best keep\n"),
        ("toy --json", "[]\n"),
        ("toy keep", "keep\n"),
        ("toy/uniform keep --remove", "best\n"),
        ("toy/uniform", "best\n"),
    ):
        assert jestlab("tag", *words.split()) == printed
    assert "no tag 'worst' to remove" in jestlab("tag", "toy/uniform", "best", "worst", "--remove", code=1)
    for tag in ("two words", "a,b", "a/b", "", "x" * 65, "new\nline"):
        assert "invalid tag" in jestlab("tag", "toy", "fine", tag, code=1)
    assert (jestlab("tag", "toy"), jestlab("tag", "toy/uniform")) == ("keep\n", "best\n")
    found = query.select(lab.store_url, "notes", "kind = 'tag' and run is null", ["experiment", "text"])
    assert found.rows == [("toy", "keep")]


@pytest.fixture
def tagged(lab):
    """The lab, with tags of two runs and of the experiment of the single run."""
    store = Store.open(lab.store_url)
    add_tags(store, Subject(fingerprint=UNIFORM.fingerprint), ["best", "keep"])
    add_tags(store, Subject(fingerprint=JOINT.fingerprint), ["keep"])
    add_tags(store, Subject(experiment="other"), ["old"])
    store.close_whole()
    return lab


def test_conditions_on_tags(tagged):
    for where, labels in {
        "tag = 'keep'": ["joint", "uniform ratio=0.5"],
        "tag = 'best' and tag = 'keep'": ["uniform ratio=0.5"],
        "tag in ('best', 'old')": ["alone", "uniform ratio=0.5"],
        "tag like 'ke%'": ["joint", "uniform ratio=0.5"],
        "tag != 'keep'": ["alone", "reference"],
        "not tag = 'keep'": ["alone", "reference"],
        "tag is null": ["reference"],
        "tag is not null and seed = 0": ["alone", "joint", "uniform ratio=0.5"],
        "tag = 'unknown'": [],
    }.items():
        found = query.select(tagged.store_url, where=where, columns=["label"])
        assert sorted(label for (label,) in found.rows) == labels, where


def test_tags_are_columns_of_views(tagged):
    url = tagged.store_url
    found = query.select(url, columns=["run", "tags"], order_by=["-tags"])
    tags = {"alone": "old", "joint": "keep", "uniform": "best, keep", "reference": None}
    assert found.rows == [*tags.items()]
    found = query.select(url, view="experiments", where="tag = 'old'", columns=["experiment"])
    assert found.rows == [("other",)]
    with pytest.raises(ValueError, match="'tag' holds text, not number: write text in quotes"):
        query.select(url, where="tag = 3")
    with pytest.raises(ValueError, match="no column or config key 'tag' in v_published"):
        query.select(url, view="published", where="tag = 'x'")


def test_status_shows_tags(tagged, jestlab):
    header, *lines = jestlab("status").splitlines()
    assert header.endswith("tags") and [line.split()[-1] for line in lines if "other" in line] == ["old"]
    header, *lines = jestlab("status", "toy").splitlines()
    assert "tags" in header and any("best, keep" in line for line in lines)
    tags = {run["run"]: run["tags"] for run in json.loads(jestlab("status", "toy", "--json"))}
    assert tags == {"reference": [], "uniform": ["best", "keep"], "joint": ["keep"]}
    experiments = {row["experiment"]: row["tags"] for row in json.loads(jestlab("status", "--json"))}
    assert experiments == {"toy": [], "other": ["old"]}


@pytest.mark.parametrize(
    "words", ["note toy", "tag toy", "accept toy", "retract", "trust toy --dry-run", "gc"]
)
def test_what_only_lists_takes_no_permission_to_write(lab, jestlab, monkeypatch, words):
    monkeypatch.setattr(Store, "open", None)
    assert jestlab(*words.split())
