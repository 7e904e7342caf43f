"""Methods beside JEST in plans: what they wait for, what identifies them, what they cost, what is wrong."""

from pathlib import Path
from typing import Any

import pytest
from tiny_support import TOWERS

from jestlab.analysis.costs import compared_loss_flops, loss_flops
from jestlab.models.config import TrainConfig
from jestlab.models.extensions import content, digest
from jestlab.platform.planning.plan import Plan, PlannedRun, plan
from jestlab.platform.programs import Price
from jestlab.platform.programs.pricing import forward
from jestlab.platform.spec import StudySpec

BASE = {
    "model": TOWERS,
    "data": {"train": {"examples": 512, "image_size": 16}, "benchmark.image_size": 16},
    "schedule": {"batch_size": 16, "examples_seen": 160},
}
WIDER = {"vision.width": 32, "text.width": 32, "embedding_dim": 32}
BALANCED = {"rule": "concept_diversity", "concepts": ["label"]}
JOINT = {"rule": "joint", "chunks": 4, "reference": "reference"}


def planned(**runs: Any) -> Plan:
    """With a reference that is wider than the learner, and its cache."""
    guides = {
        "reference": {"initialization": 1, "model": WIDER},
        "cache": {"program": "embed", "reference": "reference"},
    }
    return plan(StudySpec.model_validate({"name": "methods", "base": BASE, "runs": {**guides, **runs}}))


def of(changes: dict[str, Any]) -> PlannedRun:
    return planned(run=changes).runs[-1]


def price_of(changes: dict[str, Any]) -> Price:
    price = of(changes).price
    assert price is not None
    return price


def test_a_run_waits_for_a_reference_that_it_looks_at():
    role = "selection.reference"
    for changes, needs in (
        ({"loss": "distilled", role: "reference"}, {role}),
        ({"loss": "drrho", "selection": JOINT}, {role}),
        ({"loss": "softmax", role: "reference"}, set()),
        ({"selection": BALANCED | {"reference": "reference"}}, set()),
        ({"loss": "drrho", "selection": BALANCED | {"reference": "cache"}}, {role}),
        ({"selection": {"rule": "highest", "reference": "cache"}}, {role}),
        ({"selection": {"rule": "highest", "criterion": "hard_learner"}}, set()),
    ):
        assert set(of(changes).needs) == needs, changes


def test_what_a_method_does_not_look_at_does_not_identify_it():
    first = of({"selection": BALANCED}).fingerprint
    for more in ({"gain": 3.0}, {"criterion": "hard_learner"}, {"reference": "cache"}):
        assert of({"selection": BALANCED | more}).fingerprint == first, more
    assert of({"selection": BALANCED | {"concepts": ["size"]}}).fingerprint != first
    joint = of({"selection": JOINT}).fingerprint
    assert of({"selection": JOINT | {"concepts": ["size"]}}).fingerprint == joint
    assert of({"selection": JOINT | {"until": 0.5}}).fingerprint != joint


def test_the_source_of_a_method_identifies_it_and_the_rest_of_jestlab_does_not(monkeypatch):
    """Otherwise every version of jestlab would run all of them again."""
    hashed: list[Path] = []
    real = content._hashed

    def noted(file: Path) -> str:
        hashed.append(file)
        return real(file)

    monkeypatch.setattr(content, "_hashed", noted)
    digest("jestlab.models.methods.drrho:drrho")
    assert {file.parent.name for file in hashed} == {"methods"}
    assert "drrho.py" in {file.name for file in hashed}


def test_a_loss_that_compares_is_priced_by_both_widths():
    b, E = 16, 16
    plain = price_of({"selection.reference": "reference"})
    online = price_of({"loss": "drrho", "selection.reference": "reference"})
    cached = price_of({"loss": "drrho", "selection.reference": "cache"})
    per_example = loss_flops(batch_size=b, embedding_dim=E) / b
    compared = compared_loss_flops(batch_size=b, embedding_dim=E, reference_dim=32) / b
    assert plain.cost.loss == pytest.approx(160 * per_example)
    assert online.cost.loss == cached.cost.loss == pytest.approx(160 * compared)
    assert cached.cost.reference_scoring == 0.0
    towers = TrainConfig.model_validate(planned().runs[0].config).model
    assert online.cost.reference_scoring == pytest.approx(160 * forward(towers).total)


def test_selection_of_a_part_of_the_steps_is_priced_by_its_share():
    whole, half = (price_of({"selection": JOINT | until}) for until in ({}, {"until": 0.5}))
    none = price_of({})
    for part in ("scoring", "selection", "reference_scoring"):
        assert getattr(half.cost, part) == pytest.approx(0.5 * getattr(whole.cost, part))
    assert half.cost.learner == pytest.approx(none.cost.learner)
    assert half.by_paper == pytest.approx(0.5 * (whole.by_paper + none.by_paper))
    assert price_of({"selection": BALANCED}).total == pytest.approx(none.total)  # which scores nothing
