"""FLOPs: published towers, the paper's factors, and what the counted convention adds."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from jestlab.analysis import costs

BASE: dict[str, Any] = {"width": 768, "depth": 12, "mlp_dim": 3072}


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


def test_the_paper_s_factors():
    iid = costs.paper_iid(1.0)
    assert costs.paper_jest(1.0, 5) / iid == pytest.approx(7 / 3)
    assert costs.paper_jest(1.0, 5, cached=False) / iid == pytest.approx(4)
    assert costs.paper_flexi(1.0, 5, A=0.25) / iid == pytest.approx(1.0417, abs=5e-5)
    assert costs.paper_flexi(1.0, 5, A=0.28) / iid == pytest.approx(1.1067, abs=5e-5)
    assert (
        costs.paper_flexi(1.0, 1, A=1.0, approximate_share=0.0) == 4
    )  # a pass that is not reused costs F more
    assert costs.paper_multi_resolution(1.0, A=0.28) / iid == pytest.approx(0.64)


def test_the_paper_s_training_budgets():
    """Appendix, "Comparing approximation methods": equal FLOPs of the learner, billions of examples."""
    shares = (0.0, 0.25, 0.5, 0.75, 0.95)
    budgets = [costs.paper_training_budget(3, share) for share in shares]
    assert [round(budget, 2) for budget in budgets] == [3, 3.69, 4.8, 6.86, 10.43]
    for share, budget in zip(shares, budgets, strict=True):
        spent = budget * costs.paper_multi_resolution(1.0, A=0.25, approximate_share=share)
        assert spent == pytest.approx(3 * costs.paper_iid(1.0))


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
    cost = costs.training_cost(F=10, examples=100, super_batch_ratio=5, F_scoring=10, F_reference=4)
    assert cost == costs.Cost(learner=3000, scoring=5000, reference_scoring=2000)
    assert cost.total("learner") == 3000
    assert cost.total() == cost.total("scoring") == 8000
    assert cost.total("reference_scoring") == 10_000
    assert cost.total() == 100 * (costs.paper_jest(10, 5) + 10)


def test_an_approximation_is_counted_where_it_is_used():
    scores_and_trains = costs.training_cost(
        F=10, examples=100, super_batch_ratio=5, F_scoring=3, F_approximate=3, approximate_share=0.5
    )
    assert scores_and_trains == costs.Cost(learner=1950, scoring=1500)
    assert scores_and_trains.total() == pytest.approx(100 * costs.paper_flexi(10, 5, A=0.3))
    trains_alone = costs.training_cost(F=10, examples=100, F_approximate=3, approximate_share=0.25)
    assert trains_alone.total() == pytest.approx(
        100 * costs.paper_multi_resolution(10, A=0.3, approximate_share=0.25)
    )


def test_no_scoring_no_cost():
    assert costs.training_cost(F=10, examples=100) == costs.Cost(3000, 0, 0)
    by_reference_alone = costs.training_cost(F=10, examples=100, super_batch_ratio=5, F_reference=10)
    assert by_reference_alone == costs.Cost(3000, 0, 5000)


def test_chip_hours_of_the_paper_s_uniform_baseline():
    """B/16 with 64 tokens: 46.82 + 11.02 GFLOP forward, three times that to train, 3B examples, 256 v5e."""
    F = costs.vision_forward(
        image_size=256, patch_size=16, pooling="map", embedding_dim=None, **BASE
    ) + costs.text_forward(length=64, embedding_dim=768, **BASE)
    flops = costs.training_cost(F=F, examples=3e9).total("reference_scoring")
    chip_hours = costs.chip_hours(flops, peak_flops=197e12, utilisation=0.4)
    seconds_on_256 = 3 * (46.82e9 + 11.02e9) * 3e9 / (256 * 197e12 * 0.4)
    assert chip_hours / 256 == pytest.approx(seconds_on_256 / 3600, rel=1e-4)
    assert chip_hours == pytest.approx(1835, abs=1)
    assert costs.dollars(chip_hours, 1.2) == pytest.approx(2202, abs=1)


def test_chip_hours_by_hand():
    assert costs.chip_hours(7.2e15, peak_flops=1e12, utilisation=0.5) == 4
    assert costs.chip_hours(3.6e15, peak_flops=1e12) == 1 / costs.ASSUMED_UTILISATION
    assert costs.chip_hours(0, peak_flops=1e12) == 0
    assert costs.dollars(4, 2.5) == 10


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"utilisation is 40: it is a share"):
        costs.chip_hours(1, peak_flops=1e12, utilisation=40)
    with pytest.raises(ValueError, match=r"utilisation is 0:"):
        costs.chip_hours(1, peak_flops=1e12, utilisation=0)
    with pytest.raises(ValueError, match=r"peak FLOP/s are 0"):
        costs.chip_hours(1, peak_flops=0)
    with pytest.raises(
        ValueError, match="'total' is unknown: choose one of learner, scoring, reference_scoring"
    ):
        costs.Cost(1).total("total")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="patch_size 5 does not divide image_size 16"):
        costs.vision_forward(image_size=16, patch_size=5, pooling="mean", embedding_dim=None, **BASE)
    with pytest.raises(ValueError, match=r"B/b is 0\.5"):
        costs.training_cost(F=1, examples=1, super_batch_ratio=0.5)


def test_nothing_heavy_is_imported():
    code = "import sys, jestlab.analysis.costs; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "pandas", "matplotlib", "sqlalchemy", "jax"} & set(modules)
