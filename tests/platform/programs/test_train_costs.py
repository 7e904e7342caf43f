"""Prices of training runs: whatever a config says is in its price, and nothing else."""

import pytest

from jestlab.analysis import flops as formulas
from jestlab.models.config import TrainConfig
from jestlab.platform.programs.pricing import price_train as price
from jestlab.platform.programs.pricing import step_of

FLEXI = {"score": True, "share": 0.5}
JOINT = {"rule": "joint", "reference": "r", "filtering_ratio": 0.8}


def config(**sections):
    return TrainConfig.model_validate(sections)


def cost(cfg, reference, examples):
    return step_of(cfg, reference).cost() * examples


def flops(*, patch_size=4, keep=1.0):
    """Of the default towers, by the formulas."""
    vision = formulas.vision_forward(
        image_size=16, patch_size=patch_size, width=64, depth=2, mlp_dim=256, pooling="map", embedding_dim=48,
        keep=keep,
    )  # fmt: skip
    return vision + formulas.text_forward(length=12, width=48, depth=1, mlp_dim=192, embedding_dim=48)


F, COARSE, DROPPED = flops(), flops(patch_size=8), flops(keep=0.25)


def one(**sections):
    """Cost of one example seen: the learner's towers, scoring, the reference's scoring."""
    cfg = config(**sections)
    found = cost(cfg, cfg.model, examples=1.0)
    return found.image_tower + found.text_tower, found.scoring, found.reference_scoring


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({}, (3 * F, 0, 0)),
        ({"selection": JOINT}, (3 * F, 5 * F, 5 * F)),
        ({"selection": {**JOINT, "criterion": "hard_learner"}}, (3 * F, 5 * F, 0)),
        ({"selection": {**JOINT, "rule": "independent", "filtering_ratio": 0.5}}, (3 * F, 2 * F, 2 * F)),
        ({"selection": JOINT, "approximation": {"score": True}}, (3 * F, 5 * COARSE, 5 * F)),
        ({"selection": JOINT, "approximation": FLEXI}, (1.5 * (F + COARSE), 5 * COARSE, 5 * F)),
        ({"approximation": FLEXI}, (1.5 * (F + COARSE), 0, 0)),  # multi-resolution training alone
        ({"selection": JOINT, "approximation": {**FLEXI, "method": "patch_drop"}},
         (1.5 * (F + DROPPED), 5 * DROPPED, 5 * F)),
        ({"selection": JOINT, "approximation": {**FLEXI, "patch_size": 16}},
         (1.5 * (F + flops(patch_size=16)), 5 * flops(patch_size=16), 5 * F)),
        ({"selection": {**JOINT, "criterion": "easy_reference"}, "approximation": {"score": True}},
         (3 * F, 0, 5 * F)),
        ({"selection": {**JOINT, "filtering_ratio": 0.0}}, (3 * F, 0, 0)),  # nothing to choose from
        ({"selection": {**JOINT, "filtering_ratio": 0.5}, "schedule": {"super_batch_size": 320}},
         (3 * F, 2 * F, 2 * F)),
        ({"selection": {**JOINT, "filtering_ratio": 0.7}, "schedule": {"super_batch_size": 101}},
         (3 * F, 101 / 30 * F, 101 / 30 * F)),  # b is a whole number
        ({"approximation": {"share": 0.3}, "schedule": {"batch_size": 7}},
         (3 * (5 / 7 * F + 2 / 7 * COARSE), 0, 0)),  # and so is what is trained on approximately
        ({"approximation": {"share": 0.0, "score": True, "patch_size": 5}}, (3 * F, 0, 0)),  # without effect
    ],
)  # fmt: skip
def test_the_cost_of_one_example(sections, expected):
    assert one(**sections) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("sections", "meetings", "models"),
    [
        ({}, 0, 0),
        ({"selection": {**JOINT, "filtering_ratio": 0.0}}, 0, 0),  # nothing to choose from
        ({"selection": JOINT}, 64 - 4, 2),  # 16 chunks of 4, of which the last meets nobody
        ({"selection": {**JOINT, "chunks": 3}}, 64 - 21, 2),
        ({"selection": {**JOINT, "criterion": "easy_reference"}}, 60, 1),
        ({"selection": {**JOINT, "criterion": "hard_learner"}}, 60, 1),
        ({"selection": {**JOINT, "rule": "independent"}}, 0, 2),
        ({"selection": {**JOINT, "rule": "greedy"}}, 63, 2),
        ({"selection": {**JOINT, "rule": "gibbs", "sweeps": 2}}, 2 * 64 * 63, 2),
    ],
)
def test_choosing_is_priced_by_rule_and_criterion(sections, meetings, models):
    cfg = config(**sections)
    found = cost(cfg, cfg.model, examples=64.0)
    assert found.selection == pytest.approx(320 * models * 48 * (2 + 4 * meetings))
    assert cost(cfg, None, examples=64.0).selection == found.selection  # by cached embeddings too
    assert config().batch_size == 64


def test_a_reference_of_another_size_counts_at_its_own():
    deep = config(model={"text": {"depth": 3}}).model
    extra = 2 * formulas.encoder_forward(length=12, width=48, depth=1, mlp_dim=192)
    found = cost(config(selection=JOINT), deep, examples=1.0)
    assert (found.scoring, found.reference_scoring) == pytest.approx((5 * F, 5 * (F + extra)))
    wide = config(model={"embedding_dim": 100}).model
    assert cost(config(selection=JOINT), wide, 64.0).selection == 320 * 148 * (2 + 4 * 60)


def test_the_loss_is_of_all_pairs_forward_and_backward():
    for loss in ("sigmoid", "softmax"):
        assert cost(config(loss=loss), None, examples=64.0).loss == 6 * 64 * 64 * 48


def test_an_unknown_reference_is_taken_for_the_learner_s_like():
    joint = config(selection=JOINT)
    for reference in ({"some": "mapping"}, {"model": "of a user's program"}):
        assert price(joint, {"selection.reference": reference}) == price(joint, {})
    assert price(joint, {}).cost.reference_scoring == pytest.approx(5 * F * price(joint, {}).examples)
