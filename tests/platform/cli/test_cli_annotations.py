"""`jestlab note` and `jestlab tag`."""

import json
import subprocess

import plans_support as plans
import pytest
import stores_support as stores

from jestlab.analysis import query
from jestlab.platform.store.annotations import Subject, add_tags
from jestlab.platform.store.store import Store

RUNS = [plans.run("uniform", seed=0), plans.run("uniform", seed=1)]


@pytest.fixture
def lab(root):
    lab = stores.empty_lab(root)
    plans.record(Store.open(lab.store_url), plans.plan(*RUNS))
    return lab


def test_notes(lab, jestlab):
    assert "no notes yet" in jestlab("note", "toy")
    jestlab("note", "toy", "first\nof all | 'quoted'", "--author", "Ada")
    jestlab("note", "toy/uniform/1", "diverged late", "--author", "Bo")
    jestlab("note", "toy", "second", "--author", "Ada")
    notes = [note["text"] for note in json.loads(jestlab("note", "toy", "--json"))]
    assert notes == ["first\nof all | 'quoted'", "second"]
    lines = jestlab("note", RUNS[1].fingerprint[:8]).splitlines()
    assert len(lines) == 2 and lines[1].endswith("Bo  diverged late")
    found = query.frame(lab.store_url, view="notes", where="author = 'Bo'")
    assert list(found["label"]) == ["uniform"] and list(found["experiment"]) == ["toy"]
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
    assert jestlab("tag", "toy/uniform/0", "keep", "best", "keep") == "best keep\n"
    assert jestlab("tag", "toy/uniform/0", "best") == "best keep\n"
    assert json.loads(jestlab("tag", "toy", "--json")) == []
    assert jestlab("tag", "toy", "keep") == "keep\n"
    assert jestlab("tag", "toy/uniform/0", "keep", "--remove") == "best\n"
    unknown = jestlab("tag", "toy/uniform/0", "best", "worst", "--remove", code=1)
    assert "no tag 'worst' to remove" in unknown
    assert jestlab("tag", "toy/uniform/0") == "best\n"
    found = query.select(lab.store_url, "notes", "kind = 'tag' and run is null", ["experiment", "text"])
    assert found.rows == [("toy", "keep")]
    for tag in ("two words", "a,b", "a/b", "", "x" * 65, "new\nline"):
        assert "invalid tag" in jestlab("tag", "toy", "fine", tag, code=1)
    assert json.loads(jestlab("tag", "toy", "--json")) == ["keep"]


@pytest.fixture
def tagged(root):
    """Two experiments with tags: of three runs, and of one run."""
    lab = stores.empty_lab(root)
    names = ("reference", "uniform", "joint")
    runs = [plans.run(name, config={"steps": steps}) for steps, name in enumerate(names)]
    store = Store.open(lab.store_url)
    plans.record(store, plans.plan(*runs, name="quickstart"))
    plans.record(store, plans.plan(plans.run("alone", config={"steps": 9}), name="other"))
    add_tags(store, Subject(fingerprint=runs[1].fingerprint), ["best", "keep"])
    add_tags(store, Subject(fingerprint=runs[2].fingerprint), ["keep"])
    add_tags(store, Subject(experiment="other"), ["old"])
    store.close_whole()
    return lab


def test_conditions_on_tags(tagged):
    conditions = {
        "tag = 'keep'": {"uniform", "joint"},
        "tag = 'best' and tag = 'keep'": {"uniform"},
        "tag in ('best', 'old')": {"alone", "uniform"},
        "tag like 'ke%'": {"uniform", "joint"},
        "tag != 'keep'": {"alone", "reference"},
        "not tag = 'keep'": {"alone", "reference"},
        "tag is null": {"reference"},
        "tag is not null and seed = 0": {"alone", "uniform", "joint"},
        "tag = 'unknown'": set(),
    }
    for where, labels in conditions.items():
        found = query.select(tagged.store_url, where=where, columns=["label"])
        assert {label for (label,) in found.rows} == labels, where


def test_tags_are_columns_of_views(tagged):
    url = tagged.store_url
    found = query.select(url, columns=["label", "tags"], order_by=["-tags"])
    assert found.rows[:3] == [("alone", "old"), ("joint", "keep"), ("uniform", "best, keep")]
    assert found.rows[3] == ("reference", None)
    found = query.select(url, view="experiments", where="tag = 'old'", columns=["experiment"])
    assert found.rows == [("other",)]
    with pytest.raises(ValueError, match="'tag' holds text, not number: put it in quotes"):
        query.select(url, where="tag = 3")
    with pytest.raises(ValueError, match="no column or config key 'tag' in v_published"):
        query.select(url, view="published", where="tag = 'x'")


def test_status_shows_tags(tagged, jestlab):
    lines = jestlab("status").splitlines()
    assert lines[0].split()[-1] == "tags"
    assert [line.split()[-1] for line in lines[1:] if "other" in line] == ["old"]
    lines = jestlab("status", "quickstart").splitlines()
    assert "tags" in lines[0] and any("best, keep" in line for line in lines)
    tags = {run["label"]: run["tags"] for run in json.loads(jestlab("status", "quickstart", "--json"))}
    assert tags == {"reference": [], "uniform": ["best", "keep"], "joint": ["keep"]}
    experiments = {row["experiment"]: row["tags"] for row in json.loads(jestlab("status", "--json"))}
    assert experiments == {"quickstart": [], "other": ["old"]}


@pytest.mark.parametrize(
    "words", ["note toy", "tag toy", "accept toy", "retract", "trust toy --dry-run", "gc"]
)
def test_what_only_lists_takes_no_permission_to_write(lab, jestlab, monkeypatch, words):
    monkeypatch.setattr(Store, "open", None)
    assert jestlab(*words.split())
