"""The TPU kernel without a TPU: its interpreted sums, and that it lowers for TPU."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from jestlab.models.config.train import Runtime
from jestlab.models.devices import AXIS, Devices
from jestlab.models.selection import fused, select
from jestlab.models.selection.fused import FUSED, best_sums, disagreement
from jestlab.models.selection.scores import BLOCKS, CRITERIA, Sums

INTERPRETED = Sums(
    functools.partial(fused.sigmoid_sums, interpret=True),
    functools.partial(fused.softmax_sums, interpret=True),
)
LEARNABILITY, HARD_LEARNER = CRITERIA["learnability"], CRITERIA["hard_learner"]
SIGNS = {"learner": 1.0, "reference": -1.0}


@pytest.fixture(scope="module")
def pairs(embeddings):
    """Two models' embeddings of R candidates and c others, more than a block of both; and t."""
    R, c, t = 140, 523, 100.0
    widths = {"learner": 24, "reference": 40}
    of_models = {name: embeddings(R + c, width, width, t, -t / 2) for name, width in widths.items()}
    cut, rest = (
        {name: z._replace(image=z.image[i:j], text=z.text[i:j]) for name, z in of_models.items()}
        for i, j in ((0, R), (R, R + c))
    )
    return cut, rest, t


def oracle(z, chunk):
    """Logits in float64 without b, of the rows' images with the chunk's texts and the other way round."""
    image, text, *_ = (np.asarray(x, np.float64) for x in z)
    images, texts, *_ = (np.asarray(x, np.float64) for x in chunk)
    return [float(z.temperature) * s for s in (image @ texts.T, text @ images.T)]


def test_sigmoid_sums_are_those_of_float64(pairs):
    models, chunk, t = pairs
    ours = INTERPRETED.sigmoid(LEARNABILITY, models, chunk)
    expected = sum(
        sign * np.logaddexp(0.0, s + float(models[name].bias)).sum(axis=1)
        for name, sign in SIGNS.items()
        for s in oracle(models[name], chunk[name])
    )
    # A logit near t is rounded to some 1e-7 t, and c of them are summed up.
    tolerance = 1e-6 * max(np.abs(expected).max(), t * np.sqrt(len(chunk["learner"].image)))
    assert ours.shape == expected.shape
    np.testing.assert_allclose(ours, expected, rtol=0, atol=tolerance)


def test_softmax_sums_are_those_of_float64(pairs):
    models, chunk, _ = pairs
    for name, z in models.items():
        for ours, s in zip(INTERPRETED.softmax(z, chunk[name]), oracle(z, chunk[name]), strict=True):
            expected = np.logaddexp.reduce(s, axis=1)
            np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_extreme_logits_of_less_than_a_block_neither_overflow_nor_vanish(embeddings):
    z, chunk = embeddings(5, 8, 0, 1_000.0), embeddings(3, 8, 1, 1_000.0)
    for bias in (-1_000.0, 0.0, 1_000.0):
        z, chunk = (x._replace(bias=jnp.float32(bias)) for x in (z, chunk))
        expected = [np.logaddexp(0.0, s + bias).sum(axis=1) for s in oracle(z, chunk)]
        sums = INTERPRETED.sigmoid(HARD_LEARNER, {"learner": z}, {"learner": chunk})
        np.testing.assert_allclose(sums, sum(expected), rtol=0, atol=1e-6 * 1_000.0)
    for ours, s in zip(INTERPRETED.softmax(z, chunk), oracle(z, chunk), strict=True):
        np.testing.assert_allclose(ours, np.logaddexp.reduce(s, axis=1), rtol=0, atol=1e-6 * 1_000.0)


@pytest.mark.parametrize("loss, size, widths", [("sigmoid", 641, (1152, 1152)), ("softmax", 37, (24, 40))])
def test_selection_lowers_for_tpu_under_shard_map(embeddings, loss, size, widths):
    devices = Devices(jax.devices()[:1])
    by_rows, whole = PartitionSpec(AXIS), PartitionSpec()

    def chosen(key, *models):
        key = jax.random.wrap_key_data(key)
        return select(key, *models, batch_size=30, chunks=4, loss=loss, axis=AXIS, sums=FUSED).indices

    models = [embeddings(size, width) for width in widths]
    specs = jax.tree.map(lambda x: by_rows if x.ndim else whole, models[0])
    split = jax.shard_map(chosen, mesh=devices.mesh, in_specs=(whole, specs, specs), out_specs=by_rows)
    key = jax.random.key_data(jax.random.key(0))
    module = jax.export.export(jax.jit(split), platforms=["tpu"])(key, *models).mlir_module()
    assert module.count("@tpu_custom_call") >= 2  # a direction each


def test_a_block_fits_and_covers_the_chunk_evenly():
    for width, chunk in itertools.product([64, 1_536, 2_304, 5_120], [1, 500, 640, 2_047, 2_048]):
        r, k = fused.block(640, chunk, width)
        assert r == 128
        assert 2 * 4 * width * (r + k) <= fused.WINDOWS
        assert k == chunk or k % 8 == 0
        assert -(-chunk // k) * k - chunk < 8 * -(-chunk // k)
    assert fused.block(5, 2_048, 64) == (5, 512)
    assert fused.block(640, 2_048, 2_304) == (128, 256)


def test_embeddings_too_wide_for_a_block_are_summed_by_blocks(embeddings):
    z, chunk = embeddings(3, 6_000, 0), embeddings(2, 6_000, 1)
    models = {"learner": z}, {"learner": chunk}
    np.testing.assert_array_equal(FUSED.sigmoid(HARD_LEARNER, *models), BLOCKS.sigmoid(HARD_LEARNER, *models))
    np.testing.assert_array_equal(FUSED.softmax(z, chunk), BLOCKS.softmax(z, chunk))


def test_a_comparison_with_blocks_finds_wrong_sums():
    def rounded(z):
        image, text = (jax.lax.reduce_precision(x, 8, 7) for x in (z.image, z.text))  # bfloat16
        return z._replace(image=image, text=text)

    def sigmoid(criterion, *models):
        return BLOCKS.sigmoid(criterion, *({k: rounded(z) for k, z in each.items()} for each in models))

    def softmax(z, chunk):
        return BLOCKS.softmax(z, chunk._replace(text=chunk.text * jnp.nan))

    assert disagreement(INTERPRETED) is None
    assert "off by" in str(disagreement(BLOCKS._replace(sigmoid=sigmoid)))
    assert "off by nan" in str(disagreement(BLOCKS._replace(softmax=softmax)))
    assert "it fails (ValueError: Only interpret mode" in str(disagreement(FUSED))


def test_blocks_are_used_on_this_backend(monkeypatch):
    monkeypatch.setattr("jestlab.models.selection.fused.disagreement", None)  # the kernel isn't even tried
    best_sums.cache_clear()
    assert best_sums() is best_sums("blocks") is BLOCKS
    assert best_sums(Runtime().selection_kernel) is BLOCKS
    with pytest.raises(ValueError, match="selection_kernel: fused runs on TPU only, and this is cpu"):
        best_sums("fused")


def test_falls_back_to_blocks_with_a_warning_where_the_kernel_fails(monkeypatch, caplog):
    """The backend claims to be a TPU, and the kernel really fails on it."""
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert best_sums.__wrapped__("fused") is FUSED
    assert best_sums.__wrapped__("auto") is BLOCKS
    assert "Selection sums in blocks" in caplog.text
