"""Tags in lists, and in conditions."""

from __future__ import annotations

import json

import plans_support as plans
import pytest

from jestlab.analysis import query
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.annotations import Subject, add_tags
from jestlab.platform.store.store import Store

RUNS = [plans.run(name, config={"steps": i + 3}) for i, name in enumerate(("reference", "uniform", "joint"))]


@pytest.fixture
def root(tmp_path):
    store = Store.open(Lab.find(tmp_path / "lab").store_url)
    store.record(plans.plan(*RUNS, name="quickstart"))
    store.record(plans.plan(plans.run("alone", config={"steps": 9}), name="other"))
    add_tags(store, Subject(fingerprint=RUNS[1].fingerprint), ["best", "keep"])
    add_tags(store, Subject(fingerprint=RUNS[2].fingerprint), ["keep"])
    add_tags(store, Subject(experiment="other"), ["old"])
    store.close_whole()
    return tmp_path / "lab"


@pytest.mark.parametrize(
    "where, labels",
    [
        ("tag = 'keep'", ["uniform", "joint"]),
        ("tags = 'keep'", ["uniform", "joint"]),
        ("tag = 'best' and tag = 'keep'", ["uniform"]),
        ("tag in ('best', 'old')", ["alone", "uniform"]),
        ("tag like 'ke%'", ["uniform", "joint"]),
        ("tag != 'keep'", ["alone", "reference"]),
        ("not tag = 'keep'", ["alone", "reference"]),
        ("tag is null", ["reference"]),
        ("tag is not null and seed = 0", ["alone", "uniform", "joint"]),
        ("tag = 'nobody has it'", []),
    ],
)
def test_conditions(root, where, labels):
    url = Lab.find(root).store_url
    found = query.select(url, where=where, columns=["label"])
    assert sorted(label for (label,) in found.rows) == sorted(labels)


def test_columns_order_and_other_views(root):
    url = Lab.find(root).store_url
    found = query.select(url, columns=["label", "tags"], order_by=["-tags"])
    assert found.rows[:3] == [("alone", "old"), ("joint", "keep"), ("uniform", "best, keep")]
    assert found.rows[3] == ("reference", None)
    found = query.select(url, view="experiments", where="tag = 'old'", columns=["experiment"])
    assert found.rows == [("other",)]
    with pytest.raises(ValueError, match="'tag' holds text, not number: put it in quotes"):
        query.select(url, where="tag = 3")
    with pytest.raises(ValueError, match="no column or config key 'tag' in v_published"):
        query.select(url, view="published", where="tag = 'x'")


def test_lists(root, jestlab):
    lines = jestlab("status").splitlines()
    assert lines[0].split()[-1] == "tags" and [line.split()[-1] for line in lines[1:] if "other" in line] == [
        "old"
    ]
    lines = jestlab("status", "quickstart").splitlines()
    assert "tags" in lines[0] and any("best, keep" in line for line in lines)
    tags = {run["label"]: run["tags"] for run in json.loads(jestlab("status", "quickstart", "--json"))}
    assert tags == {"reference": [], "uniform": ["best", "keep"], "joint": ["keep"]}
    assert {row["experiment"]: row["tags"] for row in json.loads(jestlab("status", "--json"))} == {
        "quickstart": [],
        "other": ["old"],
    }


def test_studies_are_listed_with_the_tags_of_their_experiments(root, jestlab):
    assert "TAGS" in jestlab("list").splitlines()[0]  # of any experiment
    add_tags(Store.open(Lab.find(root).store_url), Subject(experiment="quickstart"), ["mine"])
    listed = {study["name"]: study["tags"] for study in json.loads(jestlab("list", "--json"))}
    assert listed["quickstart"] == ["mine"] and listed["paper"] == []
