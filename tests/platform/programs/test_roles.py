"""Which runs can serve a run that needs them: a plan knows before the first of them starts."""

from __future__ import annotations

import pytest
from tiny_support import BENCHMARK, TOWERS

from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import Study

BASE = {
    "model": TOWERS,
    "data": {"train": {"examples": 2_048, "image_size": 16, "shard_size": 256}, "benchmark": BENCHMARK},
    "schedule": {"batch_size": 16, "examples_seen": 64},
}
RUNS = {
    "reference": {"initialization": 1},
    "cache": {"program": "embed", "reference": "reference"},
    "scores": {"program": "score", "embeddings": "cache"},
    "mine": {"program": "toy_programs:loop", "steps": 1},
}
JOINT = {"selection": {"rule": "joint", "chunks": 4}}


def joint(reference, **parts):
    return {"selection": {**JOINT["selection"], "reference": reference}, **parts}


def planned(run):
    return plan(Study.model_validate({"name": "roles", "base": BASE, "runs": {**RUNS, "it": run}}))


@pytest.mark.parametrize(
    "run, said",
    [
        (
            joint("scores"),
            "selection.reference: its run makes no towers: name a run of train, weights or embed",
        ),
        (joint("mine"), "selection.reference: its run makes no towers"),
        (
            joint("cache", augmentation={"flip": 0.5}),
            "augmentation: the reference's cached embeddings are of",
        ),
        (
            {"program": "embed", "reference": "cache"},
            "reference: its run makes no towers: name a run of train or",
        ),
        ({"program": "embed", "reference": "mine"}, "reference: its run makes no towers"),
        ({"program": "score", "embeddings": "reference"}, "embeddings: is no run of embed: name one"),
        (
            {"program": "score", "embeddings": "cache", "target": "mine"},
            "target: is no run of embed: name one",
        ),
        (
            {"data": {"scores": "cache", "filter": "semdedup < 0.9"}},
            "data.scores: is no run of score: name one",
        ),
        (
            {"program": "diagnose", "learner": "mine", "criterion": "hard_learner"},
            "learner: its run makes no towers: name a run of train or weights",
        ),
        (
            {"program": "diagnose", "learner": "reference", "reference": "scores"},
            "reference: its run makes no towers: name a run of train, weights or embed",
        ),
    ],
)
def test_a_run_that_cannot_serve_is_one_line(run, said):
    with pytest.raises(UserError) as error:
        planned(run)
    assert str(error.value).startswith(f"runs.it.{said}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "run",
    [
        joint("reference", augmentation={"flip": 0.5}),
        joint("cache"),
        {"program": "diagnose", "learner": "reference", "reference": "cache"},
        {"selection": {"rule": "uniform", "reference": "cache"}, "augmentation": {"flip": 0.5}},
        {"data": {"scores": "cache"}},  # which nothing reads
    ],
)
def test_a_run_that_can_serve_or_is_not_asked_is_let_be(run):
    names = {alias.name for each in planned(run).runs for alias in (each, *each.aliases)}
    assert names == {*RUNS, "it"}
