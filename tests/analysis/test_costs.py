"""FLOPs: published towers, the paper's factors, and what the counted convention adds."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis import costs
from jestlab.analysis.costs import Cost, Forward, Step

BASE: dict[str, Any] = {"width": 768, "depth": 12, "mlp_dim": 3072}
F = Forward(image=0.75, text=0.25)


@pytest.mark.parametrize(("patch", "gflop"), [(16, 46.82), (32, 11.49)])
def test_siglip_image_tower(patch, gflop):
    flops = costs.vision_forward(image_size=256, patch_size=patch, pooling="map", embedding_dim=None, **BASE)
    assert flops / 1e9 == pytest.approx(gflop, abs=0.005)


def test_siglip_text_tower():
    assert costs.text_forward(length=64, embedding_dim=768, **BASE) / 1e9 == pytest.approx(11.02, abs=0.005)


def test_the_paper_s_image_tower_is_224_pixels_with_a_class_token():
    without_pooling = costs.vision_forward(
        image_size=224, patch_size=16, pooling="mean", embedding_dim=None, **BASE
    )
    class_token = costs.encoder_forward(length=197, **BASE) - costs.encoder_forward(length=196, **BASE)
    assert (without_pooling + class_token) / 1e9 == pytest.approx(35.1, abs=0.05)


def test_a_small_tower_by_hand():
    # 4 patches of 2×2×3, D = 4, M = 8, one block.
    patches = 4 * 12 * 4
    block = 4 * (4 * 4 * 4) + 2 * (4 * 4 * 4) + 2 * (4 * 4 * 8)
    head = 4 * 5
    small: dict[str, Any] = {"image_size": 4, "patch_size": 2, "width": 4, "depth": 1, "mlp_dim": 8}
    mean = costs.vision_forward(**small, pooling="mean", embedding_dim=5)
    assert mean == 2 * (patches + block + head)
    probe = (2 * 4 * 4 * 4) + (2 * 4 * 4) + (2 * 4 * 4) + (2 * 4 * 8)
    assert costs.vision_forward(**small, pooling="map", embedding_dim=5) == mean + 2 * probe
    assert costs.vision_forward(**small, pooling="mean", embedding_dim=None) == mean - 2 * head


def step(**changes: Any) -> Step:
    """F = 1 in towers of unlike cost, b = 2; of B/b = 5 as the learner alone scores it."""
    sizes: dict[str, Any] = {"full": F, "batch_size": 2, "super_batch_size": 10, "scoring": "full"}
    return Step(**(sizes | changes))


def flexi(A: float, share: float = 0.5, **changes: Any) -> Step:
    return step(approximate=F * A, approximate_share=share, scoring="approximate", **changes)


def mixed(share: float, A: float = 0.25) -> Step:
    """Uniform sampling, a part trained on approximately."""
    return step(super_batch_size=2, scoring=None, approximate=F * A, approximate_share=share)


@pytest.mark.parametrize(
    ("of", "alpha"),
    [
        (step().iid, 1),
        (step(), 7 / 3),  # the paper's 2.33
        (step(reference=F), 4),
        (flexi(0.25), 3.125 / 3),  # 1.04
        (flexi(0.28), 3.32 / 3),  # 1.1067, which the paper cuts to 1.10
        (mixed(0.5, A=0.28), 0.64),
        (flexi(0.25, share=0.0), 4.25 / 3),
        (flexi(1.0, share=0.3), 8 / 3),  # the pass of an approximate model is not reused, be it as dear
        (step(scoring=None, reference=F), 8 / 3),  # easy-reference
        (step(approximate=F * 0.25, approximate_share=0.5), (0.625 * 3 + 5 - 0.5) / 3),
    ],
)
def test_the_paper_s_factors(of, alpha):
    assert of.relative("paper") == pytest.approx(alpha, rel=1e-12)
    cost = of.cost("paper")
    assert (cost.loss, cost.selection) == (0, 0)


@given(
    ratio=st.integers(1, 50),
    A=st.floats(0.01, 1),
    share=st.floats(0, 1),
    image=st.floats(1, 1e12),
    text=st.floats(1, 1e12),
)
def test_the_paper_s_formulas_hold_for_any_ratio_and_approximation(ratio, A, share, image, text):
    full = Forward(image, text)
    f = image + text
    sizes: dict[str, Any] = {"full": full, "batch_size": 3, "super_batch_size": 3 * ratio}

    def total(**changes: Any) -> float:
        return Step(**sizes, **changes).cost("paper").total("reference_scoring")

    approximate: dict[str, Any] = {"approximate": full * A, "approximate_share": share}
    assert total() == pytest.approx(3 * f) == pytest.approx(costs.paper_iid(f))
    assert total(scoring="full") == pytest.approx(f * (2 + ratio))
    assert total(scoring="full") == pytest.approx(costs.paper_jest(f, ratio))
    assert total(scoring="full", reference=full) == pytest.approx(f * (2 + 2 * ratio))
    assert total(scoring="full", reference=full) == pytest.approx(costs.paper_jest(f, ratio, cached=False))
    flexi_jest = 3 * f * ((1 - share) + share * A) + A * f * ratio
    assert total(scoring="approximate", **approximate) == pytest.approx(flexi_jest)
    assert costs.paper_flexi(f, ratio, A, share) == pytest.approx(flexi_jest)


def test_scoring_adds_133_percent_and_flexi_jest_10_in_all():
    """Introduction: "we reduce the overhead of scoring from 133% to 10% additional FLOPs"."""
    cost = step().cost("paper")
    assert cost.scoring / cost.learner == pytest.approx(4 / 3)
    assert flexi(0.28).relative("paper") - 1 == pytest.approx(0.10, abs=0.01)


@pytest.mark.parametrize("convention", costs.CONVENTIONS)
def test_the_paper_s_training_budgets(convention):
    """Appendix, "Comparing approximation methods": equal FLOPs of the learner, billions of examples."""
    iid = step().iid.cost(convention)
    budgets = []
    for share in (0.0, 0.25, 0.5, 0.75, 0.95):
        cost = mixed(share).cost(convention)
        budgets.append(costs.matching_examples(3e9, iid, cost, "learner"))
        assert budgets[-1] * cost.total("learner") == pytest.approx(3e9 * iid.total("learner"))
    assert [round(budget / 1e9, 2) for budget in budgets] == [3, 3.69, 4.8, 6.86, 10.43]


def test_budgets_by_scope_and_with_a_fixed_part():
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


def test_a_lone_run_pays_all_of_its_reference():
    cost = step(reference=F).cost("paper")
    assert costs.amortised(cost, 90, 1).total("reference_training") == cost.total("reference_scoring") + 90
    shared = costs.amortised(cost, 90, 9)
    assert shared.total("reference_training") - shared.total("reference_scoring") == 10
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        costs.amortised(cost, 90, 0)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_break_even_is_the_fewest_runs_that_cost_less_together(reference, run, baseline):
    n = costs.break_even_runs(reference, run, baseline)
    if n is None:
        assert run >= baseline  # no number of runs pays
        return
    assert reference + n * run < n * baseline
    assert n == 1 or reference + (n - 1) * run >= (n - 1) * baseline


def test_break_even_by_hand():
    assert costs.break_even_runs(100, run=20, baseline=70) == 3  # two of each cost the same
    assert costs.break_even_runs(0, run=20, baseline=70) == 1
    assert costs.break_even_runs(100, run=70, baseline=70) is None
    with pytest.raises(ValueError, match="run must be finite and not negative, got -1 FLOPs"):
        costs.break_even_runs(100, run=-1, baseline=70)
    with pytest.raises(ValueError, match="baseline must be finite and not negative, got inf"):
        costs.break_even_runs(100, run=1, baseline=math.inf)


def test_the_bars_of_the_paper_s_figure():
    """Figure 4, left, with the paper's A: 1, 4, 2.33 and 1.1 times IID."""
    flexi_jest = costs.paper_step()
    bars = costs.step_bars(replace(flexi_jest, approximate=flexi_jest.full * 0.28))
    heights: dict[tuple[str, str], float] = defaultdict(float)
    for bar in bars:
        heights[bar.convention, bar.method] += bar.relative
    paper = [height for (convention, _), height in heights.items() if convention == "paper"]
    assert paper == pytest.approx([1, 4, 7 / 3, 3.32 / 3])
    counted = [height for (convention, _), height in heights.items() if convention == "counted"]
    assert counted == pytest.approx([1, 13 / 3, 8 / 3, 3.32 / 3], rel=0.01)  # loss and selection: below 1%
    assert [method for convention, method in heights if convention == "paper"] == [
        "IID", "JEST", "JEST, cached reference", "Flexi-JEST, cached reference",
    ]  # fmt: skip
    flops = {(bar.convention, bar.method, bar.component): bar.flops for bar in bars}
    assert flops["counted", "IID", "loss"] == 6 * 32_768**2 * 768
    assert flops["paper", "JEST", "reference_scoring"] == 163_840 * flexi_jest.full.total
    assert flops["counted", "JEST", "selection"] == 2 * 163_840 * 1536 * (1 + 2 * 30_720)
    assert len(bars) == 2 * 4 * 6


def test_at_the_paper_s_scale_choosing_and_the_loss_are_less_than_a_hundredth():
    """4 · 5 · 30,720 · 1,536 FLOPs an example, beside 8 · 57.8 GFLOP; 6 · 32,768 · 768 beside 3 · 57.8."""
    flexi_jest = costs.paper_step()
    jest = replace(flexi_jest, scoring="full", approximate_share=0.0).cost()
    assert jest.selection / jest.total() == pytest.approx(0.0020, abs=0.0001)
    assert jest.loss / jest.learner == pytest.approx(0.00087, abs=0.00001)
    cost = flexi_jest.cost()
    assert cost.selection / cost.total() == pytest.approx(0.0040, abs=0.0001)


@pytest.mark.parametrize(("text_length", "A"), [(64, 0.389), (16, 0.287)])
def test_the_cost_of_an_approximate_pass_over_a_full_one(text_length, A):
    """At twice the patch size. The paper's .28 is that of captions of 16 tokens."""
    images = [
        costs.vision_forward(image_size=256, patch_size=patch, pooling="map", embedding_dim=None, **BASE)
        for patch in (16, 32)
    ]
    full, approximate = (
        i + costs.text_forward(length=text_length, embedding_dim=768, **BASE) for i in images
    )
    assert approximate / full == pytest.approx(A, abs=5e-4)


def test_dropped_patches_are_embedded_and_no_more():
    tower: dict[str, Any] = {"image_size": 256, "patch_size": 16, "pooling": "map", "embedding_dim": None}
    kept = costs.vision_forward(**tower, keep=0.25, **BASE)
    as_small = costs.vision_forward(**(tower | {"image_size": 128}), **BASE)  # a quarter of the patches
    assert kept == as_small + 2 * (256 - 64) * (3 * 16 * 16) * 768
    assert costs.vision_forward(**tower, keep=1.0, **BASE) == costs.vision_forward(**tower, **BASE)
    one = costs.vision_forward(**tower, keep=1e-6, **BASE)
    assert one > 2 * 256 * (3 * 16 * 16) * 768


def test_counted_cost_adds_the_pass_that_the_paper_reuses():
    jest = step(full=Forward(8, 2), reference=Forward(3, 1))
    assert jest.cost() == costs.Cost(image_tower=24, text_tower=6, scoring=50, reference_scoring=20)
    cost = jest.cost() * 100
    assert cost.total("learner") == cost.learner == 3000
    assert cost.total() == cost.total("scoring") == 8000
    assert cost.total("reference_scoring") == cost.total("reference_training") == 10_000
    assert cost.total() == 100 * (jest.cost("paper").total() + 10)
    assert cost + cost == jest.cost() * 200


def test_each_scope_adds_its_components():
    cost = costs.Cost(1, 10, 100, 1000, 10_000, 100_000, 1_000_000)
    assert [cost.total(scope) for scope in costs.SCOPES] == [111, 11_111, 111_111, 1_111_111]
    assert {name for names in costs.COMPONENTS.values() for name in names} == set(Cost.__dataclass_fields__)
    assert tuple(Cost.__dataclass_fields__)[:-1] == costs.EXECUTED


def test_an_approximation_is_counted_where_it_is_used():
    approximate: dict[str, Any] = {"full": Forward(8, 2), "approximate": Forward(1, 2)}
    both = step(**approximate, approximate_share=0.5, scoring="approximate").cost()
    assert both == costs.Cost(image_tower=13.5, text_tower=6, scoring=15)
    trains_alone = step(**approximate, approximate_share=0.25).cost()
    assert trains_alone == costs.Cost(image_tower=18.75, text_tower=6, scoring=50)
    assert step(**approximate).cost() == step(full=Forward(8, 2)).cost()


def test_loss_and_selection_are_counted_by_the_example():
    cost = step(embedding_dim=7, rule="joint", chunks=2, scored_dims=(7, 5)).cost()
    assert cost.loss * 2 == 6 * 2**2 * 7
    assert cost.selection * 2 == 2 * 10 * 12 * (1 + 2 * 1)
    assert step().iid.cost().selection == 0


def test_chip_hours_of_the_paper_s_uniform_baseline():
    """B/16 with 64 tokens: 46.82 + 11.02 GFLOP forward, three times that to train, 3B examples, 256 v5e."""
    F = costs.vision_forward(
        image_size=256, patch_size=16, pooling="map", embedding_dim=None, **BASE
    ) + costs.text_forward(length=64, embedding_dim=768, **BASE)
    flops = (Step(Forward(F, 0), 32_768, 32_768).cost() * 3e9).total("reference_scoring")
    chip_hours = costs.chip_hours(flops, peak_flops=197e12, utilisation=0.4)
    seconds_on_256 = 3 * (46.82e9 + 11.02e9) * 3e9 / (256 * 197e12 * 0.4)
    assert chip_hours / 256 == pytest.approx(seconds_on_256 / 3600, rel=1e-4)
    assert chip_hours == pytest.approx(1835, abs=1)
    assert chip_hours * 1.2 == pytest.approx(2202, abs=1)


def test_chip_hours_by_hand():
    assert costs.chip_hours(7.2e15, peak_flops=1e12, utilisation=0.5) == 4
    assert costs.chip_hours(3.6e15, peak_flops=1e12) == 1 / costs.ASSUMED_UTILISATION
    assert costs.chip_hours(0, peak_flops=1e12) == 0


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"utilisation must be in \(0, 1\], got 40"):
        costs.chip_hours(1, peak_flops=1e12, utilisation=40)
    with pytest.raises(ValueError, match=r"utilisation must be in .0, 1., got 0"):
        costs.chip_hours(1, peak_flops=1e12, utilisation=0)
    with pytest.raises(ValueError, match=r"peak FLOP/s must be positive, got 0"):
        costs.chip_hours(1, peak_flops=0)
    with pytest.raises(ValueError, match="unknown cost scope 'total': choose one of learner, scoring"):
        costs.Cost(1).total("total")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="patch_size 5 does not divide image_size 16"):
        costs.vision_forward(image_size=16, patch_size=5, pooling="mean", embedding_dim=None, **BASE)
    with pytest.raises(ValueError, match=r"B/b must be at least 1, got 0\.5"):
        step(super_batch_size=1)
    with pytest.raises(ValueError, match=r"B/b must be at least 1, got 0\.5"):
        costs.paper_jest(1.0, 0.5)
    with pytest.raises(ValueError, match=r"λ must be in .0, 1., got 1\.5"):
        step(approximate=F, approximate_share=1.5)
    with pytest.raises(ValueError, match="missing cost of the approximate pass: set `approximate`"):
        step(scoring="approximate")
    with pytest.raises(ValueError, match="the step trains on its whole super-batch"):
        costs.step_bars(replace(costs.paper_step(), super_batch_size=32_768))
    with pytest.raises(ValueError, match="unknown convention 'jest': choose one of counted, paper"):
        step().cost("jest")  # type: ignore[arg-type]
    sizes: dict[str, Any] = {"batch_size": 4, "super_batch_size": 8, "embedding_dims": (3,)}
    with pytest.raises(ValueError, match="unknown selection rule 'best': choose one of uniform, independent"):
        costs.selection_flops("best", **sizes)
    with pytest.raises(ValueError, match="4 cannot be drawn in 5 chunks"):
        costs.selection_flops("joint", chunks=5, **sizes)


def test_nothing_heavy_is_imported():
    code = "import sys, jestlab.analysis.costs; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "pandas", "matplotlib", "sqlalchemy", "jax"} & set(modules)
