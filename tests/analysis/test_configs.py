"""Config values by label, and the reference that a learner selects with."""

from typing import Any

import pytest
from tests.analysis.conftest import UNIFORM

from jestlab.analysis.configs import BATCH_SIZE, Configs

JOINT = UNIFORM | {"selection.rule": "joint", "selection.reference": "reference"}


@pytest.fixture
def configs(new_store, stored_run):
    """A function that returns the configs of runs, each a label and its config."""

    def make(points=(), **runs):
        store = new_store().add(
            *(stored_run(name, [0.1], config=config) for name, config in runs.items()),
            *(
                stored_run(run, [0.1], label=label, config=config, point=point)
                for run, label, point, config in points
            ),
        )
        return Configs(store.read())

    return make


def test_a_key_without_effect_has_no_value(configs):
    found = configs(
        uniform=UNIFORM,
        joint=JOINT,
        independent=JOINT | {"selection.rule": "independent"},
        hard=JOINT | {"selection.criterion": "hard_learner"},
        flexi=JOINT | {"approximation.score": True},
        half=UNIFORM | {"approximation.share": 0.5, "approximation.score": True},
    )
    expected: dict[str, dict[str, Any]] = {
        "uniform": {"selection.rule": "uniform", "selection.filtering_ratio": None, "approximation.share": 0},
        "joint": {"selection.filtering_ratio": 0.8, "selection.chunks": 16, "selection.sweeps": None,
                  "no.such.key": None, "approximation.method": None},
        "independent": {"selection.chunks": None},
        "flexi": {"approximation.method": "flexi"},
        "half": {"approximation.method": "flexi", "approximation.score": None},
    }  # fmt: skip
    for label, values in expected.items():
        assert {key: found.get(label, key) for key in values} == values
    assert found.reference("hard") is None


def test_the_batch_size_may_follow_from_the_super_batch(configs):
    found = configs(
        given=JOINT,
        follows=JOINT | {"schedule.super_batch_size": 320, "selection.filtering_ratio": 0.9},
        own={"width": 8},
    )
    assert found.get("given", BATCH_SIZE) == 64
    assert found.get("follows", BATCH_SIZE) == 32
    assert found.get("own", BATCH_SIZE) is None
    assert found.get("own", "width") == 8


def test_references_are_found_at_their_point_and_through_caches(configs):
    filters = [
        ("reference", f"reference {name}", {"data.filter": name}, UNIFORM) for name in ("weak", "strong")
    ]
    learners = [("joint", f"joint {name}", {"data.filter": name}, JOINT) for name in ("weak", "strong")]
    cached: tuple[Any, ...] = ("flexi", "flexi", {}, JOINT | {"selection.reference": "cache"})
    runs = {"cache": {"reference": "base"}, "base": UNIFORM, "joint": JOINT}
    found = configs([*filters, *learners, cached], **runs)
    assert found.reference("joint weak") == "reference weak"
    assert found.reference("joint strong") == "reference strong"
    assert found.reference("flexi") == "base"
    assert found.reference("base") is None
    assert found.runs["joint weak"] == "joint"
    for ambiguous_or_missing, message in ((found, "several labels"), (configs(joint=JOINT), "no label")):
        with pytest.raises(ValueError, match=f"'joint' of 'study' needs 'reference', which is {message}"):
            ambiguous_or_missing.reference("joint")


def test_a_shared_run_is_read_by_the_names_of_this_study(new_store, stored_run):
    """The store has the config of the other study, with the names of that study."""
    theirs = JOINT | {"selection.reference": "cache"}
    store = new_store().add(
        stored_run("strong", [0.1], config=UNIFORM),
        stored_run("strong-cache", [], config={"reference": "reference"}),
        stored_run("jest-strong", [0.1], config=theirs),
        spec={
            "runs": {
                "strong": {},
                "strong-cache": {"program": "embed", "reference": "strong"},
                "jest-strong": {"selection": {"rule": "joint", "reference": "strong-cache"}},
            }
        },
    )
    found = Configs(store.read())
    assert found.reference("jest-strong") == "strong"
    assert found.reference("strong") is None


def test_a_reference_in_a_union_has_the_name_of_its_study(new_store, stored_run):
    store = new_store().add(
        stored_run("base/teacher", [0.1], config=UNIFORM),
        stored_run("base/joint", [0.1], config=JOINT | {"selection.reference": "teacher"}),
        spec={"studies": {"base": {"runs": {"teacher": {}, "joint": {}}}}},
    )
    assert Configs(store.read()).reference("base/joint") == "base/teacher"
