"""What was registered of a study, compared with what it is now."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis.claims.registration import Changes, compare, content_of, digest_of

SPEC: dict[str, Any] = {
    "claims": [
        {"statement": "A", "of": "joint", "above": "uniform", "source": "Fig. 3"},
        {"statement": "B", "of": "joint", "near": "other", "within": 0.05},
    ],
    "seeds": {"until": "decided"},
    "score": ["toy/score"],
    "metrics": {"toy/score": {"goal": "max"}},
}
RUNS = {("study", "joint"): "a" * 64, ("study", "uniform"): "b" * 64, ("study", "other"): "c" * 64}


def content(spec=None, runs=None):
    return content_of("study", spec or SPEC, runs or RUNS)


def changed(path, value):
    """The spec with another value at a place."""
    spec = copy.deepcopy(SPEC)
    place = spec
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return spec


def test_what_is_as_it_was_registered_is_not_exploratory():
    found = compare(content(), content())
    assert found == Changes()
    assert found.of("study", "A", ["joint", "uniform"]) == ""
    assert list(found.lines()) == []


@pytest.mark.parametrize(
    ("spec", "of_a", "of_b"),
    [
        (changed(("seeds", "at_most"), 40), "seeds: ", "seeds: "),
        (changed(("family",), {"error": 0.1}), 'family: nothing → {"error": 0.1}', "family: "),
        (changed(("score",), []), 'score: ["toy/score"] → nothing', "score: "),
        (changed(("claims", 1, "within"), 0.1), "", "within 0.05 → 0.1"),
        (changed(("claims", 0, "of"), "other"), 'of "joint" → "other"', ""),
        (changed(("claims", 0, "statement"), "C"), "", ""),
        (changed(("claims", 0, "source"), "Fig. 4"), "", ""),  # it decides nothing
        (changed(("claims", 0, "unless"), "it rains"), "", ""),
        (changed(("question",), "Why?"), "", ""),
        (changed(("metrics", "toy/score", "name"), "Score"), "", ""),
        (changed(("metrics", "toy/score", "goal"), "min"), "metrics: ", "metrics: "),
    ],
)
def test_what_has_changed_is_said_of_the_claims_that_it_decides(spec, of_a, of_b):
    found = compare(content(), content(spec))
    for statement, told in (("A", of_a), ("B", of_b)):
        said = found.of("study", statement, ["joint"])
        assert said.startswith(told) if told else said == ""


def test_a_claim_that_was_not_registered_is_exploratory():
    found = compare(content(), content(changed(("claims", 0, "statement"), "C")))
    assert found.of("study", "C", []) == "not registered"
    assert list(found.lines()) == ["study: C: not registered"]


def test_a_run_with_another_config_makes_its_claims_exploratory():
    found = compare(content(), content(runs=RUNS | {("study", "other"): "d" * 64}))
    assert found.of("study", "A", ["joint", "uniform"]) == ""
    assert found.of("study", "B", ["joint", "other"]) == "other config: other"


def test_a_run_that_was_not_registered_changes_nothing_by_itself():
    assert compare(content(), content(runs=RUNS | {("study", "new"): "d" * 64})) == Changes()


def test_a_union_registers_its_parts():
    parts = {"one": SPEC, "two": changed(("claims", 0, "of"), "other")}
    runs = {("one", "joint"): "a" * 64, ("two", "joint"): "a" * 64}
    before = content_of("all", {"studies": parts}, runs)
    now = content_of("all", {"studies": parts | {"two": SPEC}}, runs | {("two", "joint"): "e" * 64})
    found = compare(before, now)
    assert found.of("one", "A", ["joint"]) == ""
    assert found.of("two", "A", ["joint"]) == 'of "other" → "joint"; other config: joint'


def test_code_that_judges_is_told_apart():
    assert compare(content(), content() | {"code": "other"}).code


@given(st.permutations(list(SPEC.items())))
def test_the_digest_is_of_the_content_alone(items):
    assert digest_of(content(dict(items))) == digest_of(json.loads(json.dumps(content())))
    assert digest_of(content(changed(("seeds", "at_most"), 40))) != digest_of(content())
