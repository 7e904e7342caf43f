"""The TPU kernel without a TPU: its interpreted sums, and that it lowers for TPU."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.sharding import PartitionSpec

from jestlab.models.config.train import Runtime
from jestlab.models.devices import AXIS, Devices
from jestlab.models.selection import CRITERIA, fused, scores, select
from jestlab.models.selection.fused import best_sums, disagreement

SIGNS = {
    "learnability": {"learner": 1.0, "reference": -1.0},
    "easy_reference": {"reference": -1.0},
    "hard_learner": {"learner": 1.0},
}


@pytest.fixture
def interpreted(monkeypatch):
    monkeypatch.setattr(pl, "pallas_call", functools.partial(pl.pallas_call, interpret=True))


def exact_sums(criterion, models, chunk):
    """Sums in float64 over both directions; and the largest logit."""
    total, largest = 0.0, 0.0
    for name, sign in SIGNS[criterion].items():
        image, text, t, b = (np.asarray(x, np.float64) for x in models[name])
        for s in (image @ np.asarray(chunk[name].text).T, text @ np.asarray(chunk[name].image).T):
            total = total + sign * np.logaddexp(0.0, t * s + b).sum(axis=1)
            largest = max(largest, np.abs(t * s + b).max())
    return total, largest


@pytest.mark.parametrize("criterion", SIGNS)
def test_sums_are_those_of_float64(interpreted, embeddings, criterion):
    """Of more than a block of candidates and examples."""
    R, c = 140, 523
    both = {
        name: embeddings(R + c, width, width, 100.0, -50.0)
        for name, width in {"learner": 24, "reference": 40}.items()
        if name in SIGNS[criterion]
    }
    models, chunk = (
        {name: z._replace(image=z.image[rows], text=z.text[rows]) for name, z in both.items()}
        for rows in (slice(R), slice(R, None))
    )
    expected, largest = exact_sums(criterion, models, chunk)
    # A logit is rounded to some 1e-7 of its size, and c of them are summed.
    tolerance = 1e-6 * max(np.abs(expected).max(), largest * np.sqrt(c))
    sums = fused.sigmoid_sums(CRITERIA[criterion], models, chunk)
    assert sums.shape == (R,)
    np.testing.assert_allclose(sums, expected, rtol=0, atol=tolerance)


def test_extreme_logits_of_less_than_a_block_neither_overflow_nor_vanish(interpreted, embeddings):
    for bias in (-1_000.0, 0.0, 1_000.0):
        models, chunk = ({"learner": embeddings(n, 8, n, 1_000.0, bias)} for n in (5, 3))
        expected, _ = exact_sums("hard_learner", models, chunk)
        sums = fused.sigmoid_sums(CRITERIA["hard_learner"], models, chunk)
        np.testing.assert_allclose(sums, expected, rtol=0, atol=1e-3)


def test_selection_lowers_for_tpu_under_shard_map(embeddings):
    devices = Devices(jax.devices()[:1])
    by_rows, whole = PartitionSpec(AXIS), PartitionSpec()

    def chosen(key, *models):
        key = jax.random.wrap_key_data(key)
        return select(key, *models, batch_size=30, chunks=4, axis=AXIS, sums=fused.sigmoid_sums).indices

    models = [embeddings(641, 1_152) for _ in range(2)]
    specs = jax.tree.map(lambda x: by_rows if x.ndim else whole, models[0])
    split = jax.shard_map(chosen, mesh=devices.mesh, in_specs=(whole, specs, specs), out_specs=by_rows)
    key = jax.random.key_data(jax.random.key(0))
    module = jax.export.export(jax.jit(split), platforms=["tpu"])(key, *models).mlir_module()
    assert module.count("@tpu_custom_call") >= 2  # one per direction


def test_a_block_fits_and_covers_the_chunk_evenly():
    for width, chunk in itertools.product([64, 1_536, 2_304, 5_120], [1, 500, 640, 2_047, 2_048]):
        r, k = fused.block(640, chunk, width)
        assert r == 128
        assert 2 * 4 * width * (r + k) <= fused.WINDOWS
        assert k == chunk or k % 8 == 0
        assert -(-chunk // k) * k - chunk < 8 * -(-chunk // k)
    assert fused.block(5, 2_048, 64) == (5, 512)
    assert fused.block(640, 2_048, 2_304) == (128, 256)


def test_wide_embeddings_and_custom_criteria_are_summed_in_blocks(embeddings):
    for width, criterion in ((6_000, CRITERIA["hard_learner"]), (8, lambda learner: learner**2)):
        models, chunk = ({"learner": embeddings(n, width, n)} for n in (3, 2))
        expected = scores.sigmoid_sums(criterion, models, chunk)
        np.testing.assert_array_equal(fused.sigmoid_sums(criterion, models, chunk), expected)


def test_a_comparison_with_blocks_finds_wrong_sums():
    def changed(change):
        def sums(criterion, *both):
            models = [
                {k: z._replace(image=change(z.image), text=change(z.text)) for k, z in each.items()}
                for each in both
            ]
            return scores.sigmoid_sums(criterion, *models)

        return str(disagreement(sums))

    assert "off by" in changed(lambda x: jax.lax.reduce_precision(x, 8, 7))  # bfloat16
    assert "off by nan" in changed(lambda x: x * jnp.nan)
    assert "it fails (ValueError: Only interpret mode" in str(disagreement())


def test_the_interpreted_kernel_agrees_with_blocks(interpreted):
    jax.clear_caches()  # `jax.jit` keeps traces, interpreted or not
    assert disagreement() is None
    jax.clear_caches()


def test_blocks_are_used_on_this_backend(monkeypatch):
    monkeypatch.setattr(fused, "disagreement", None)  # the kernel isn't even tried
    best_sums.cache_clear()
    for kind in ("auto", "blocks", Runtime().selection_kernel):
        assert best_sums(kind) is scores.sigmoid_sums
    with pytest.raises(ValueError, match="selection_kernel: fused runs on TPU only, and this is cpu"):
        best_sums("fused")


def test_falls_back_to_blocks_with_a_warning_if_the_kernel_fails(monkeypatch, caplog):
    """The backend claims to be a TPU, and the kernel really fails on it."""
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert best_sums.__wrapped__("fused") is fused.sigmoid_sums
    assert best_sums.__wrapped__("auto") is scores.sigmoid_sums
    assert "Selection sums in blocks" in caplog.text
