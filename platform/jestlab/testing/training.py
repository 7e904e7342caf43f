"""Contract tests for custom criteria, rules, losses, evaluations, readers, and towers."""

import functools
import inspect
import itertools
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jestlab.models.config import TextTower, VisionTower
from jestlab.models.custom_evaluation import EvaluatedModel, scores_of
from jestlab.models.losses import takes_reference
from jestlab.models.selection import Embeddings, select
from jestlab.models.selection.criteria import losses_of

_CANDIDATES = 48
_BATCH_SIZES = (1, 12, 47, 48)


def check_criterion(criterion: Callable[..., Any], **options: Any) -> None:
    """Check a selection criterion: an elementwise function of the losses `learner`, `reference`, or both.

    It must keep the shape and dtype of the losses, score pairs independently, be finite for losses from 0 to
    100, and compile with `jax.jit`.
    """
    bound = functools.partial(criterion, **options)
    with _failures("criterion"):
        models = losses_of(bound)
    random = np.random.default_rng(0)
    losses = {name: random.gamma(1.0, 2.0, (6, 8)).astype(np.float32) for name in models}
    with _failures("criterion"):
        scores = jax.jit(bound)(**losses)
    shape = getattr(scores, "shape", type(scores).__name__)
    assert shape == (6, 8), f"a criterion must keep the shape of the losses: (6, 8) became {shape}"
    assert scores.dtype == jnp.float32, f"a criterion must keep float32, not return {scores.dtype}"
    order = random.permutation(8)[:5]
    permuted = bound(**{name: loss[:, order] for name, loss in losses.items()})
    assert np.allclose(permuted, np.asarray(scores)[:, order], rtol=1e-5, atol=1e-6), (
        "a criterion must score pairs independently: the scores changed with the other pairs"
    )
    grid = np.array(list(itertools.product((0.0, 1e-6, 1.0, 100.0), repeat=2)), np.float32).T
    extremes = dict(zip(models, grid, strict=False))
    bad = np.flatnonzero(~np.isfinite(np.asarray(bound(**extremes))))
    assert not len(bad), "a criterion must be finite for losses from 0 to 100, but isn't for " + ", ".join(
        f"{name} = {loss[bad[0]]:g}" for name, loss in extremes.items()
    )


def check_rule(rule: Callable[..., Any], **options: Any) -> None:
    """Check a selection rule: `rule(key, batch, *, batch_size, gain, ...)` returns b distinct indices.

    For each batch size b and both losses, the rule must return b distinct indices of candidates, and the same
    indices for the same key. If it takes `concepts`, it gets up to four per candidate; if it doesn't take
    `batch`, it gets no scores. Its `flops`, if any, must return a number.
    """
    bound = functools.partial(rule, **options)
    learner, reference = _random_pairs(_CANDIDATES, 16, 0), _random_pairs(_CANDIDATES, 8, 1)
    parameters = inspect.signature(rule).parameters
    tags = np.sort(np.random.default_rng(1).integers(-1, 12, (_CANDIDATES, 4)), axis=1)[:, ::-1]
    concepts = jnp.asarray(tags, jnp.int32)
    key = jax.random.key(3)
    for loss, b in itertools.product(("sigmoid", "softmax"), _BATCH_SIZES):
        models = (learner, reference) if "batch" in parameters else (None, None)
        choose = functools.partial(
            select, key, *models, rule=bound, gain=10.0, batch_size=b, loss=loss,
            concepts=concepts if "concepts" in parameters else None,
        )  # fmt: skip
        with _failures("rule"):
            first, again = (np.asarray(choose().indices) for _ in range(2))
        distinct = len(set(first.tolist()))
        assert distinct == b, f"a rule must choose {b} distinct examples, not {distinct}"
        assert ((first >= 0) & (first < _CANDIDATES)).all(), (
            f"a rule must choose indices from 0 to {_CANDIDATES - 1}, not {first.tolist()}"
        )
        assert (first == again).all(), "a rule must choose the same examples for the same `key`"
    if (count := getattr(rule, "flops", None)) is not None:
        with _failures("rule's flops"):
            flops = count(batch_size=12, super_batch_size=_CANDIDATES, embedding_dims=(16, 8), **options)
        _check_number(flops, "a rule's flops")


def check_loss(loss: Callable[..., Any], /, **options: Any) -> None:
    """Check a contrastive loss: a function of the `Embeddings` of a batch that returns float32 [].

    If it takes `reference`, it gets the embeddings of a reference model. The loss must be finite, independent
    of the order of the pairs, and lower for matching pairs than for shuffled ones. Its gradients must be
    finite, and not all zero.
    """
    reference = _random_pairs(32, 8, 3)
    uses_reference = takes_reference(loss)

    def bound(z: Embeddings, order: Any = slice(None)) -> Any:
        if not uses_reference:
            return loss(z, **options)
        ordered = reference._replace(image=reference.image[order], text=reference.image[order])
        return loss(z, reference=ordered, **options)

    z = _random_pairs(32, 16, 2)
    with _failures("loss"):
        value, gradient = jax.jit(jax.value_and_grad(bound))(z)
    assert value.dtype == jnp.float32, f"a loss must be float32, not {value.dtype}"
    assert math.isfinite(float(value)), f"a loss must be finite, not {float(value)}"
    leaves = jax.tree.leaves(gradient)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in leaves), "the gradient of a loss must be finite"
    assert any(bool((leaf != 0).any()) for leaf in leaves), "the gradient of the loss is zero"
    order = np.random.default_rng(0).permutation(32)
    permuted = float(bound(z._replace(image=z.image[order], text=z.text[order]), order))
    assert np.isclose(permuted, float(value), rtol=1e-4), (
        f"a loss must not depend on the order of the pairs: {float(value):g} became {permuted:g}"
    )
    matching = float(bound(z._replace(text=z.image)))
    shuffled = float(bound(z._replace(text=z.image[np.roll(np.arange(32), 1)])))
    assert matching < shuffled, (
        f"a loss must be lower for matching pairs ({matching:g}) than for shuffled ones ({shuffled:g})"
    )


def check_evaluation(evaluation: Callable[..., Any], **options: Any) -> None:
    """Check an evaluation: `evaluation(model, **options)` returns finite numbers by name.

    The function gets an untrained model, and must return the same numbers each time.
    """
    bound = functools.partial(evaluation, **options)
    with _failures("evaluation"):
        first, again = (scores_of(bound, _untrained_model(), "the evaluation") for _ in range(2))
    assert first == again, f"an evaluation must not be random: {first} became {again}"


def check_reader(reader: Callable[..., Iterable[Mapping[str, Any]]], **options: Any) -> None:
    """Check a reader of data: a function that yields `image`, `caption`, and metadata.

    The first thousand examples are read. They must be valid, and the same each time.
    """
    from jestlab.models.data.packing import write_shards
    from jestlab.models.data.shards import ShardIndex

    with tempfile.TemporaryDirectory(prefix="jestlab-") as folder:
        first, again = (Path(folder) / name for name in ("first", "again"))
        for place in (first, again):
            with _failures("reader"):
                write_shards(place, itertools.islice(reader(**options), 1_000), "the reader")
        assert len(ShardIndex.load(first)) > 0, "a reader must yield at least one example"
        for tar in sorted(first.glob("*.tar")):
            assert tar.read_bytes() == (again / tar.name).read_bytes(), (
                "a reader must yield the same examples in the same order: seed random numbers, sort files"
            )


def check_tower(architecture: Callable[..., Any], modality: str = "image", **options: Any) -> None:
    """Check a tower: `architecture(config, **options)` returns a Flax module.

    The module must map images float32 [n, h, h, 3], or tokens int32 [n, L], to finite features [n, width];
    those of an example must not depend on other examples. `architecture.flops` must return the FLOPs of
    one example; XLA may count from 10% less to 25% more.

    Args:
        architecture: Class of the module, or a function that returns a module.
        modality: "image" or "text".
        options: Keyword arguments of `architecture`.
    """
    for width in (16, 48):
        config: Any = VisionTower(width=width) if modality == "image" else TextTower(width=width)
        inputs = _random_inputs(config)
        with _failures("tower"):
            tower = architecture(config, **options)
            parameters = tower.init(jax.random.key(0), inputs)
            function = jax.jit(tower.apply)
            features = np.asarray(function(parameters, inputs))
        assert features.shape == (4, width), f"a tower must return [n, width], not {list(features.shape)}"
        assert np.isfinite(features).all(), "a tower must return finite features"
        single = np.asarray(function(parameters, inputs[:1]))
        assert np.allclose(single, features[:1], rtol=1e-3, atol=1e-4), (
            "the features of an example must not depend on the others in its batch"
        )
        count = getattr(architecture, "flops", None)
        assert callable(count), "a tower needs `flops(config, **options)`, the FLOPs of one forward pass"
        flops = _check_number(count(config, **options), "a tower's flops")
        compiled: Any = function.lower(parameters, inputs[:1]).compile()
        counted = compiled.cost_analysis()["flops"]
        assert 0.9 * flops - 0.01 * counted <= counted <= 1.25 * flops, (
            f"a tower's flops are {flops:,.0f} per example, but XLA counts {counted:,.0f} at width {width}"
        )


def _random_pairs(count: int, width: int, seed: int) -> Embeddings:
    """Make random pairs of unit vectors; image and text are similar in pairs with odd indices."""
    random = np.random.default_rng(seed)
    image = random.normal(size=(count, width))
    text = np.where(np.arange(count)[:, None] % 2, image, 0) + random.normal(size=(count, width))
    image, text = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (image, text))
    scalars = (jnp.float32(10.0), jnp.float32(-10.0))
    return Embeddings(jnp.asarray(image, jnp.float32), jnp.asarray(text, jnp.float32), *scalars)


def _random_inputs(config: Any) -> jax.Array:
    random = np.random.default_rng(0)
    if isinstance(config, VisionTower):
        size = config.image_size
        return jnp.asarray(random.uniform(-1, 1, (4, size, size, 3)), jnp.float32)
    return jnp.asarray(random.integers(0, config.vocabulary_size, (4, config.length)), jnp.int32)


def _untrained_model() -> EvaluatedModel:
    """Make a model whose embeddings are fixed random projections of pixels and bytes."""
    random = np.random.default_rng(0)
    of_pixels, of_bytes = random.normal(size=(16 * 16 * 3, 32)), random.normal(size=(12, 32))

    def unit(z: np.ndarray) -> np.ndarray:
        normalized: np.ndarray = (z / (np.linalg.norm(z, axis=1, keepdims=True) + 1e-8)).astype(np.float32)
        return normalized

    def images(batches: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        features = np.concatenate([x.reshape(len(x), -1) / 127.5 - 1.0 for x in batches]) @ of_pixels
        return unit(features), features.astype(np.float32)

    def texts(texts: list[str]) -> np.ndarray:
        tokens = np.array([list(text.encode()[:12].ljust(12)) for text in texts], np.int32)
        return unit((tokens / 127.5 - 1.0) @ of_bytes)

    return EvaluatedModel(16, 8, images, texts)


@contextmanager
def _failures(what: str) -> Iterator[None]:
    """Convert any exception of the custom code to an AssertionError with the reason."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"the {what} fails: {type(error).__name__}: {error}") from error


def _check_number(value: Any, what: str) -> float:
    assert isinstance(value, int | float | np.number) and math.isfinite(float(value)) and value >= 0, (
        f"{what} must be a number from 0, not {value!r}"
    )
    return float(value)
