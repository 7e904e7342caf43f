"""FLOPs: published towers, the paper's factors, and what the counted convention adds to them."""

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jestlab.analysis import costs, flops
from jestlab.analysis.costs import Cost, Step
from jestlab.analysis.flops import Forward

BASE: dict[str, Any] = {"width": 768, "depth": 12, "mlp_dim": 3072}
F = Forward(image=0.75, text=0.25)


def image_tower(size=256, patch=16, **changes):
    plain = {"image_size": size, "patch_size": patch, "pooling": "map", "embedding_dim": None, **BASE}
    return flops.vision_forward(**plain | changes)


def text_tower(length=64):
    return flops.text_forward(length=length, embedding_dim=768, **BASE)


def test_published_towers():
    assert image_tower(patch=16) / 1e9 == pytest.approx(46.82, abs=0.005)
    assert image_tower(patch=32) / 1e9 == pytest.approx(11.49, abs=0.005)
    assert text_tower() / 1e9 == pytest.approx(11.02, abs=0.005)
    # The paper's image tower has 224 pixels and a class token.
    without_pooling = image_tower(size=224, pooling="mean")
    class_token = flops.encoder_forward(length=197, **BASE) - flops.encoder_forward(length=196, **BASE)
    assert (without_pooling + class_token) / 1e9 == pytest.approx(35.1, abs=0.05)
    # A at twice the patch size. The paper's .28 is that of captions of 16 tokens.
    for length, A in ((64, 0.389), (16, 0.287)):
        full, approximate = (image_tower(patch=patch) + text_tower(length) for patch in (16, 32))
        assert approximate / full == pytest.approx(A, abs=5e-4)


def test_a_small_tower_by_hand():
    # 4 patches of 2×2×3, D = 4, M = 8, one block.
    patches = 4 * 12 * 4
    block = 4 * (4 * 4 * 4) + 2 * (4 * 4 * 4) + 2 * (4 * 4 * 8)
    head = 4 * 5
    small: dict[str, Any] = {"image_size": 4, "patch_size": 2, "width": 4, "depth": 1, "mlp_dim": 8}
    mean = flops.vision_forward(**small, pooling="mean", embedding_dim=5)
    assert mean == 2 * (patches + block + head)
    probe = (2 * 4 * 4 * 4) + (2 * 4 * 4) + (2 * 4 * 4) + (2 * 4 * 8)
    assert flops.vision_forward(**small, pooling="map", embedding_dim=5) == mean + 2 * probe
    assert flops.vision_forward(**small, pooling="mean", embedding_dim=None) == mean - 2 * head


def step(**changes: Any) -> Step:
    """F = 1 in two towers of different cost, b = 2, and B/b = 5, scored by the learner alone."""
    sizes: dict[str, Any] = {"full": F, "batch_size": 2, "super_batch_size": 10, "scoring": "full"}
    return Step(**(sizes | changes))


def flexi(A: float, share: float = 0.5, **changes: Any) -> Step:
    return step(approximate=F * A, approximate_share=share, scoring="approximate", **changes)


def mixed(share: float, A: float = 0.25) -> Step:
    return step(super_batch_size=2, scoring=None, approximate=F * A, approximate_share=share)


def test_the_paper_s_factors():
    for of, alpha in (
        (step().iid, 1),
        (step(), 7 / 3),  # the paper's 2.33
        (step(reference=F), 4),
        (flexi(0.25), 3.125 / 3),  # 1.04
        (flexi(0.28), 3.32 / 3),  # 1.1067, which the paper cuts to 1.10
        (mixed(0.5, A=0.28), 0.64),
        (flexi(0.25, share=0.0), 4.25 / 3),
        (flexi(1.0, share=0.3), 8 / 3),  # an approximate pass isn't reused, even at full cost
        (step(scoring=None, reference=F), 8 / 3),  # easy-reference
        (step(approximate=F * 0.25, approximate_share=0.5), (0.625 * 3 + 5 - 0.5) / 3),
    ):
        assert of.relative("paper") == pytest.approx(alpha, rel=1e-12)
        cost = of.cost("paper")
        assert (cost.loss, cost.selection) == (0, 0)


def test_budgets_by_scope_and_with_a_fixed_part():
    # The appendix, "Comparing approximation methods": equal FLOPs of the learner, billions of examples.
    of_shares = [mixed(share).cost("paper") for share in (0.0, 0.25, 0.5, 0.75, 0.95)]
    budgets = [costs.matching_examples(3, step().iid.cost("paper"), each, "learner") for each in of_shares]
    assert budgets == pytest.approx([3, 3.69, 4.8, 6.86, 10.43], abs=0.005)
    iid, jest = step().iid.cost("paper"), step(reference=F).cost("paper")
    assert costs.matching_examples(7, iid, jest) == pytest.approx(7 * 3 / 7)
    assert costs.matching_examples(7, iid, jest, "learner") == pytest.approx(7)
    assert costs.matching_examples(8, iid, jest, "reference_scoring") == pytest.approx(2)
    assert costs.matching_examples(8, iid, jest, "reference_scoring", fixed=12) == pytest.approx(1)
    assert costs.matching_examples(8, iid, jest, fixed=24) == 0
    with pytest.raises(ValueError, match=r"25 FLOPs are spent before the first example, of a budget of 24"):
        costs.matching_examples(8, iid, jest, fixed=25)
    with pytest.raises(ValueError, match="costs nothing in scope 'scoring'"):
        costs.matching_examples(8, iid, costs.Cost(reference_scoring=1.0))


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
@example(100, 20, 70)  # two of each cost the same
@example(100, 70, 70)
def test_break_even_is_the_fewest_runs_that_cost_less_together(reference, run, baseline):
    n = costs.break_even_runs(reference, run, baseline)
    if n == math.inf:
        assert run >= baseline  # no number of runs pays
        return
    assert reference + n * run < n * baseline
    assert n == 1 or reference + (n - 1) * run >= (n - 1) * baseline


def test_a_run_that_needs_nothing_or_has_unknown_costs_has_no_break_even():
    assert costs.break_even_runs(100, run=math.inf, baseline=70) == math.inf  # it doesn't reach the score
    for unknown in ((0, 20, 70), (math.nan, 20, 70), (100, math.nan, 70), (100, math.inf, math.nan)):
        assert math.isnan(costs.break_even_runs(*unknown))


def test_dropped_patches_are_only_embedded():
    a_quarter = image_tower(size=128)  # of the patches
    assert image_tower(keep=0.25) == a_quarter + 2 * (256 - 64) * (3 * 16 * 16) * 768
    assert image_tower(keep=1.0) == image_tower()
    assert image_tower(keep=1e-6) > 2 * 256 * (3 * 16 * 16) * 768


def test_costs_as_counted():
    """They add the pass that the paper reuses, the loss, and the selection."""
    jest = step(full=Forward(8, 2), reference=Forward(3, 1))
    assert jest.cost() == costs.Cost(image_tower=24, text_tower=6, scoring=50, reference_scoring=20)
    cost = jest.cost() * 100
    assert cost.total("learner") == cost.learner == 3000
    assert cost.total() == cost.total("scoring") == 8000
    assert cost.total("reference_scoring") == cost.total("reference_training") == 10_000
    assert cost.total() == 100 * (jest.cost("paper").total() + 10)
    assert cost + cost == jest.cost() * 200
    # An approximation counts where it is used.
    approximate: dict[str, Any] = {"full": Forward(8, 2), "approximate": Forward(1, 2)}
    both = step(**approximate, approximate_share=0.5, scoring="approximate").cost()
    assert both == costs.Cost(image_tower=13.5, text_tower=6, scoring=15)
    trains_alone = step(**approximate, approximate_share=0.25).cost()
    assert trains_alone == costs.Cost(image_tower=18.75, text_tower=6, scoring=50)
    assert step(**approximate).cost() == step(full=Forward(8, 2)).cost()
    choosing = flops.selection_flops(
        "joint", batch_size=2, super_batch_size=10, embedding_dims=(7, 5), chunks=2
    )
    assert choosing == 2 * 10 * 12 * (1 + 2 * 1)
    cost = step(embedding_dim=7, selection=choosing).cost()
    assert (cost.loss * 2, cost.selection * 2) == (6 * 2**2 * 7, choosing)
    assert step().iid.cost().selection == 0


def test_each_scope_adds_its_components():
    cost = costs.Cost(1, 10, 100, 1000, 10_000, 100_000, 1_000_000)
    assert [cost.total(scope) for scope in costs.SCOPES] == [111, 11_111, 111_111, 1_111_111]
    planned = {"learner_flops": 1, "total_flops": 10, "reference_scoring_flops": 100}
    assert [costs.planned_flops(planned, scope) for scope in costs.SCOPES] == [1, 10, 110, 110]
    assert tuple(Cost.__dataclass_fields__)[:-1] == costs.EXECUTED


def test_chip_hours_by_hand():
    assert costs.chip_hours(7.2e15, peak_flops=1e12, utilization=0.5) == 4
    assert costs.chip_hours(3.6e15, peak_flops=1e12) == 1 / costs.ASSUMED_UTILIZATION
    assert costs.chip_hours(0, peak_flops=1e12) == 0


UNKNOWN: Any = "none"
SIZES: dict[str, Any] = {"batch_size": 4, "super_batch_size": 8, "embedding_dims": (3,)}


def test_rejects_invalid_arguments():
    for call, message in (
        (lambda: costs.Cost(1).total(UNKNOWN), "unknown cost scope 'none': choose one of learner, scoring"),
        (lambda: step(super_batch_size=1), "a super-batch of 1 is below its sub-batch of 2"),
        (lambda: step(approximate=F, approximate_share=1.5), r"λ must be in .0, 1., got 1\.5"),
        (lambda: step(scoring="approximate"), "missing cost of the approximate pass: set `approximate`"),
        (lambda: step().cost(UNKNOWN), "unknown convention 'none': choose one of counted, paper"),
        (lambda: flops.selection_flops("joint", chunks=5, **SIZES), "4 cannot be drawn in 5 chunks"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
