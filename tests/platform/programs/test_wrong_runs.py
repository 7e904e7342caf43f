"""Mistakes in runs of jestlab's own programs are one line each, and found when the study is planned."""

from typing import Any

import plans_support as plans
import pytest
from tiny_support import TOWERS

from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import StudySpec

BASE = {
    "model": TOWERS,
    "data.train": {"examples": 2_048, "image_size": 16},
    "schedule": {"batch_size": 16, "examples_seen": 160},
}
RUNS = {
    "reference": {"initialization": 1},
    "cache": {"program": "embed", "reference": "reference"},
    "scores": {"program": "score", "embeddings": "cache"},
    "mine": {"program": "toy_programs:loop", "steps": 1},
}
FLIP = {"augmentation": {"flip": 0.5}}


def planned(run):
    return plan(StudySpec.model_validate({"name": "s", "base": BASE, "runs": {**RUNS, "it": run}}))


def selecting(rule="joint", **selection: Any) -> dict[str, Any]:
    return {"selection": {"rule": rule, "chunks": 4, **selection}}


def scoring(**config: Any) -> dict[str, Any]:
    return {"program": "score", "embeddings": "cache", **config}


def diagnosing(**config: Any) -> dict[str, Any]:
    return plans.TINY_DIAGNOSIS | {"learner": "reference", "reference": "cache"} | config


def filtering(scores: str | None, **data: str) -> dict[str, Any]:
    return {"data": {"scores": scores, **data}}


NO_TOWERS = "expected the name of a run of train"
MISTAKES = [
    # Another run that cannot serve.
    (selecting(reference="scores"), f"selection.reference: {NO_TOWERS} or weights or embed"),
    (selecting(reference="cache") | FLIP, "augmentation: cached embeddings don't match"),
    ({"program": "embed", "reference": "cache"}, f"reference: {NO_TOWERS} or weights"),
    (scoring(embeddings="reference"), "embeddings: expected the name of a run of embed"),
    (scoring(target="mine"), "target: expected the name of a run of embed"),
    (filtering("cache", filter="semdedup < 0.9"), "data.scores: expected the name of a run of score"),
    (diagnosing(learner="mine"), f"learner: {NO_TOWERS} or weights"),
    (diagnosing(reference="scores"), f"reference: {NO_TOWERS} or weights or embed"),
    (diagnosing(learner="referense"), "learner: no run 'referense'"),
    # Selection and losses.
    ({"loss": "distilled"}, "loss: distilled uses the reference"),
    (selecting("highest"), "criterion 'learnability' needs a reference: set selection.reference"),
    (selecting("concept_diversity"), "set selection.concepts to"),
    (selecting("concept_diversity", concepts=["lable"]),
     "the synthetic web has no metadata column 'lable': did you mean 'label'"),
    (selecting(reference="reference", until=0.01), "selection.until 0.01 of 10 steps is less than one step"),
    # Columns of scores.
    (filtering("scores", filter="negclip > 0.5"), "column 'negclip': did you mean 'negcliploss'"),
    (filtering(None, filter="negcliploss > 0.5"), "no column 'negcliploss'"),
    (filtering("scores", repeat="soft_cup"), "'soft_cup': did you mean"),
    (scoring(soft_cap={"of": "normsim"}), "soft_cap.of: no column 'normsim'"),
    # Diagnoses.
    (diagnosing(reference=None), "criterion 'learnability' needs a reference: set reference"),
    (diagnosing(chunks=[4, 17]), "chunks 17 is above batch_size 16"),
    (diagnosing(matrix_size=81), "matrix_size 81 is above the largest super-batch, 80"),
    (diagnosing(filtering_ratios=[0.999]), "the super-batch of 16,000 examples is larger than data.train"),
]  # fmt: skip


@pytest.mark.parametrize(("run", "message"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_one_line(run, message):
    with pytest.raises(UserError) as error:
        planned(run)
    assert str(error.value).startswith("runs.it")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "run",
    [
        selecting(reference="reference") | FLIP,
        selecting(reference="cache"),
        selecting("uniform", reference="cache") | FLIP,
        diagnosing(),
        filtering("cache"),  # which nothing reads
    ],
)
def test_a_run_that_can_serve_or_is_not_needed_is_accepted(run):
    names = {alias.name for each in planned(run).runs for alias in (each, *each.aliases)}
    assert names == {*RUNS, "it"}
