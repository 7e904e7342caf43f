"""Contract tests for rules, criteria, losses, evaluations, readers and towers of one's own."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jestlab.models.config import TextTower, VisionTower
from jestlab.models.evaluated import EvaluatedModel, scores_of
from jestlab.models.losses import takes_reference
from jestlab.models.selection import Criterion, by_concepts, select
from jestlab.models.two_towers import Embeddings

_PAIRS = 48  # of the super-batches that rules are tried on
_SUB_BATCHES = (1, 12, 47, 48)


def check_criterion(criterion: Callable[..., Any], **options: Any) -> None:
    """Check a selection criterion: a function of `learner`, `reference` or both, element by element.

    Checked: it takes the losses by these names; it keeps their shape and dtype; each score depends on the
    losses in its own place alone; it is finite for losses between 0 and 100; it compiles.

    Args:
        criterion: The function.
        options: Its keyword arguments.

    Raises:
        AssertionError: It is no criterion; the message says why.
    """
    bound = functools.partial(criterion, **options)
    try:
        models = Criterion.of(bound).models
    except ValueError as error:
        raise AssertionError(str(error)) from None
    random = np.random.default_rng(0)
    losses = {name: random.gamma(1.0, 2.0, (6, 8)).astype(np.float32) for name in models}
    scores = _called(jax.jit(bound), "criterion", **losses)
    assert getattr(scores, "shape", None) == (6, 8), (
        f"a criterion must keep the shape of the losses: [6, 8] became {_kind(scores)}"
    )
    assert scores.dtype == jnp.float32, f"a criterion must keep float32, not return {scores.dtype}"
    order = random.permutation(8)[:5]
    moved = bound(**{name: loss[:, order] for name, loss in losses.items()})
    assert np.allclose(moved, np.asarray(scores)[:, order], rtol=1e-5, atol=1e-6), (
        "a criterion must score each pair by the losses in its own place alone: selection computes blocks of "
        "them, and here the scores changed with the other pairs"
    )
    extremes = np.array(list(itertools.product((0.0, 1e-6, 1.0, 100.0), repeat=2)), np.float32).T
    found = np.asarray(bound(**dict(zip(models, extremes, strict=False))))
    bad = np.flatnonzero(~np.isfinite(found))
    assert not len(bad), "a criterion must be finite for losses from 0 to 100, but is not for " + ", ".join(
        f"{name} = {extremes[i][bad[0]]:g}" for i, name in enumerate(models)
    )


def check_rule(rule: Callable[..., Any], **options: Any) -> None:
    """Check a selection rule: `rule(key, batch, *, batch_size, gain, …)` → b distinct indices.

    One that takes `concepts` gets them, of up to four a candidate; one that does not take `batch` gets no
    scores. Checked: for sub-batches of 1, 12, 47 and all of 48 pairs, by either loss, it returns that many
    distinct indices of the super-batch, and the same ones for the same key. Its `flops`, if it has them, are
    a number.

    Args:
        rule: The function.
        options: Its keyword arguments.

    Raises:
        AssertionError: It is no rule; the message says why.
    """
    bound = functools.partial(rule, **options)
    learner, reference = _pairs(_PAIRS, 16, 0), _pairs(_PAIRS, 8, 1)
    takes = inspect.signature(rule).parameters
    tags = np.sort(np.random.default_rng(1).integers(-1, 12, (_PAIRS, 4)), axis=1)[:, ::-1]
    concepts = jnp.asarray(tags, jnp.int32)
    chosen_by = functools.partial(select, jax.random.key(3), learner, reference, rule=bound, gain=10.0)
    if "concepts" in takes:
        chosen_by = functools.partial(chosen_by, concepts=concepts)
    for loss, b in itertools.product(("sigmoid", "softmax"), _SUB_BATCHES):
        if "batch" in takes:
            choose = functools.partial(chosen_by, batch_size=b, loss=loss)
        else:
            choose = functools.partial(by_concepts, jax.random.key(3), concepts, bound, batch_size=b)
        chosen = [np.asarray(_called(choose, "rule").indices) for _ in range(2)]
        first, again = chosen
        assert len(set(first.tolist())) == b, (
            f"a rule must choose {b} distinct examples: this one chose {len(set(first.tolist()))}"
        )
        assert ((first >= 0) & (first < _PAIRS)).all(), (
            f"a rule must choose among 0 … {_PAIRS - 1}, the indices of the super-batch: {first.tolist()}"
        )
        assert (first == again).all(), "a rule must choose the same by the same key: draw by `key` alone"
    flops = getattr(rule, "flops", None)
    if flops is not None:
        _check_number(
            flops(batch_size=12, super_batch_size=_PAIRS, embedding_dims=(16, 8), **options), "a rule's flops"
        )


def check_loss(loss: Callable[..., Any], /, **options: Any) -> None:
    """Check a contrastive loss: a function of the `Embeddings` of a batch → float32 [].

    One that takes `reference` gets the embeddings of a reference by which the pairs match. Checked: it is one
    finite number with finite gradients that are not all zero; the order of the pairs does not matter; it is
    lower where pairs match than where they are shuffled.

    Args:
        loss: The function.
        options: Its keyword arguments.

    Raises:
        AssertionError: It is no such loss; the message says why.
    """
    theirs = _pairs(32, 8, 3)
    compares = takes_reference(loss)

    def bound(z: Embeddings, order: Any = slice(None)) -> Any:
        if not compares:
            return loss(z, **options)
        reference = theirs._replace(image=theirs.image[order], text=theirs.image[order])
        return loss(z, reference=reference, **options)

    z = _pairs(32, 16, 2)
    value, gradient = _called(jax.jit(jax.value_and_grad(bound)), "loss", z)
    assert value.dtype == jnp.float32, f"a loss must be float32, not {value.dtype}"
    assert math.isfinite(float(value)), f"a loss must be finite: it is {float(value)} for 32 random pairs"
    leaves = jax.tree.leaves(gradient)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in leaves), "the gradient of a loss must be finite"
    assert any(bool((leaf != 0).any()) for leaf in leaves), "the gradient of the loss is zero: nothing trains"
    order = np.random.default_rng(0).permutation(32)
    moved = float(bound(z._replace(image=z.image[order], text=z.text[order]), order))
    assert np.isclose(moved, float(value), rtol=1e-4), (
        f"a loss must not depend on the order of the pairs: {float(value):g} became {moved:g}"
    )
    matching = float(bound(z._replace(text=z.image)))
    shuffled = float(bound(z._replace(text=z.image[np.roll(np.arange(32), 1)])))
    assert matching < shuffled, (
        f"a loss must be lower where pairs match: it is {matching:g} for equal pairs, {shuffled:g} for others"
    )


def check_evaluation(evaluation: Callable[..., Any], **options: Any) -> None:
    """Check an evaluation: `evaluation(model, **options)` → numbers by name.

    Checked, with a model that knows nothing: it returns finite numbers by names without a slash, and the same
    ones when it is called again.

    Args:
        evaluation: The function.
        options: Its keyword arguments.

    Raises:
        AssertionError: It is no evaluation; the message says why.
    """
    bound = functools.partial(evaluation, **options)
    try:
        first, again = (scores_of(bound, _ignorant_model(), "it") for _ in range(2))
    except ValueError as error:
        raise AssertionError(str(error)) from error
    assert first == again, f"an evaluation must not be random: {first} became {again}"


def check_reader(reader: Callable[..., Iterable[Mapping[str, Any]]], **options: Any) -> None:
    """Check a reader of data: a function that yields `image`, `caption` and metadata.

    Checked: what it yields can be written as shards, and read again; the first thousand examples are the same
    when it is called again.

    Args:
        reader: The function.
        options: Its keyword arguments, `path` among them if it takes one.

    Raises:
        AssertionError: It is no reader; the message says why.
    """
    from jestlab.models.data.packing import write_shards
    from jestlab.models.data.shards import ShardIndex

    with tempfile.TemporaryDirectory(prefix="jestlab-") as folder:
        first, again = (Path(folder) / name for name in ("first", "again"))
        for place in (first, again):
            try:
                write_shards(place, itertools.islice(reader(**options), 1_000), "the reader")
            except ValueError as error:
                raise AssertionError(str(error)) from error
        index = ShardIndex.load(first)
        assert len(index) > 0, "a reader must yield at least one example"
        for tar in sorted(first.glob("*.tar")):
            assert tar.read_bytes() == (again / tar.name).read_bytes(), (
                "a reader must yield the same examples in the same order every time: seed what is random, "
                "sort what is listed"
            )


def check_tower(architecture: Callable[..., Any], modality: str = "image", **options: Any) -> None:
    """Check a tower: `architecture(config, **options)` → a Flax module, with its FLOPs.

    Checked: it maps images float32 [n, h, h, 3], or tokens int32 [n, L], to finite features [n, width] at two
    sizes; features of one example do not depend on the others; its `flops` are within a tenth of those that
    XLA counts, but for 1%.

    Args:
        architecture: The module's class, or a function that returns one.
        modality: "image" or "text".
        options: Its keyword arguments.

    Raises:
        AssertionError: It is no tower; the message says why.
    """
    for width in (16, 48):
        config: Any = VisionTower(width=width) if modality == "image" else TextTower(width=width)
        inputs = _inputs(config)
        tower = _called(architecture, "tower", config, **options)
        parameters = _called(tower.init, "tower", jax.random.key(0), inputs)
        function = jax.jit(tower.apply)
        features = np.asarray(_called(function, "tower", parameters, inputs))
        assert features.shape == (4, width), (
            f"a tower must return features [n, width], here [4, {width}], not {list(features.shape)}"
        )
        assert np.isfinite(features).all(), "a tower must return finite features"
        alone = np.asarray(function(parameters, inputs[:1]))
        assert np.allclose(alone, features[:1], rtol=1e-3, atol=1e-4), (
            "features of one example must not depend on the others in its batch: scoring and training batch "
            "them differently"
        )
        count = getattr(architecture, "flops", None)
        assert callable(count), (
            "a tower needs `flops(config, **options)`, those of one example's forward pass"
        )
        told = _check_number(count(config, **options), "a tower's flops")
        compiled: Any = function.lower(parameters, inputs[:1]).compile()
        counted = compiled.cost_analysis()["flops"]
        assert 0.9 * told - 0.01 * counted <= counted <= 1.25 * told, (
            f"a tower's flops are {told:,.0f} an example, but XLA counts {counted:,.0f} at width {width}"
        )


def _pairs(count: int, width: int, seed: int) -> Embeddings:
    """Make random pairs on the unit sphere, half of them alike."""
    random = np.random.default_rng(seed)
    image = random.normal(size=(count, width))
    text = np.where(np.arange(count)[:, None] % 2, image, 0) + random.normal(size=(count, width))
    image, text = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (image, text))
    scalars = (jnp.float32(10.0), jnp.float32(-10.0))
    return Embeddings(jnp.asarray(image, jnp.float32), jnp.asarray(text, jnp.float32), *scalars)


def _inputs(config: Any) -> jax.Array:
    random = np.random.default_rng(0)
    if isinstance(config, VisionTower):
        size = config.image_size
        return jnp.asarray(random.uniform(-1, 1, (4, size, size, 3)), jnp.float32)
    return jnp.asarray(random.integers(0, config.vocabulary_size, (4, config.length)), jnp.int32)


def _ignorant_model() -> EvaluatedModel:
    """Make a model whose embeddings are a fixed random projection of pixels and of letters."""
    random = np.random.default_rng(0)
    of_pixels, of_letters = random.normal(size=(16 * 16 * 3, 32)), random.normal(size=(12, 32))

    def unit(z: np.ndarray) -> np.ndarray:
        normalized: np.ndarray = (z / (np.linalg.norm(z, axis=1, keepdims=True) + 1e-8)).astype(np.float32)
        return normalized

    def images(batches: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        features = np.concatenate([x.reshape(len(x), -1) / 127.5 - 1.0 for x in batches]) @ of_pixels
        return unit(features), features.astype(np.float32)

    def letters(texts: Sequence[str], length: int) -> np.ndarray:
        return np.array([list(text.encode()[:length].ljust(length)) for text in texts], np.int32)

    def texts(tokens: np.ndarray) -> np.ndarray:
        return unit((tokens / 127.5 - 1.0) @ of_letters)

    return EvaluatedModel((images, texts), letters, 16, 12, 8)


def _called(function: Callable[..., Any], what: str, *args: Any, **kwargs: Any) -> Any:
    """Call a function; what it raises becomes the reason that it is refused for."""
    try:
        return function(*args, **kwargs)
    except AssertionError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise AssertionError(f"the {what} fails: {type(error).__name__}: {error}") from error


def _check_number(value: Any, what: str) -> float:
    assert isinstance(value, int | float | np.number) and math.isfinite(float(value)) and value >= 0, (
        f"{what} must be a number from 0 on, not {value!r}"
    )
    return float(value)


def _kind(value: Any) -> str:
    return str(list(value.shape)) if hasattr(value, "shape") else type(value).__name__
