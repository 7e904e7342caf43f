"""Code as a user might write it: one of each kind that a training run can name."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jestlab.models.selection import Embeddings, SuperBatch

MODULE = __name__


def clipped(learner: jax.Array, reference: jax.Array, *, floor: float = 0.0) -> jax.Array:
    """Learnability, but never below a floor: what was learned and forgotten is not avoided."""
    return jnp.maximum(learner - reference, floor)


def halves(
    key: jax.Array, batch: SuperBatch, *, batch_size: int, gain: float, second_gain: float = 1.0
) -> jax.Array:
    """Draw half of the sub-batch, and the other half by the scores given the first, at another gain."""
    first_key, second_key = jax.random.split(key)
    state = batch.unconditioned()
    first = batch.draw(state, first_key, batch_size // 2, gain)
    state = batch.condition(state, first.indices)
    second = batch.draw(state, second_key, batch_size - batch_size // 2, gain * second_gain)
    return jnp.concatenate([first.indices, second.indices])


def most_named(
    key: jax.Array, batch: SuperBatch, concepts: jax.Array, *, batch_size: int, gain: float
) -> jax.Array:
    """Draw by scores, but half of the candidates, with the fewest concepts, only if need be."""
    counts = jnp.sum(concepts >= 0, axis=1)
    fewest = counts < jnp.median(counts)
    state = batch.unconditioned()
    scores = jnp.where(batch.candidates.local(fewest), -1e3, state.scores)
    return batch.draw(state._replace(scores=scores), key, batch_size, gain).indices


def _flops_of_halves(*, batch_size: int, super_batch_size: int, embedding_dims: Any, **_: Any) -> float:
    return float(4 * super_batch_size * (batch_size // 2) * sum(embedding_dims))


halves.flops = _flops_of_halves  # type: ignore[attr-defined]


def decoupled(z: Embeddings) -> jax.Array:
    """The softmax loss without the matching pair among the negatives (Yeh et al., 2022)."""
    s = z.temperature * jnp.dot(z.image, z.text.T, precision="highest")
    negatives = jnp.where(jnp.eye(len(s), dtype=bool), -jnp.inf, s)
    both = jax.nn.logsumexp(negatives, axis=1) + jax.nn.logsumexp(negatives, axis=0)
    return jnp.mean(0.5 * both - jnp.diagonal(s))


def colours(model: Any, *, names: tuple[str, ...] = ("red", "green", "blue")) -> dict[str, float]:
    """Tell squares of a few colours by their names."""
    pixels = np.zeros((3, 12, 12, 3), np.uint8)
    pixels[[0, 1, 2], :, :, [0, 1, 2]] = 255
    similar = model.images(pixels) @ model.texts([f"a {name} square" for name in names]).T
    return {"accuracy": float((similar.argmax(axis=1) == np.arange(3)).mean())}


def squares(path: str | None = None, *, count: int = 512, seed: int = 0) -> Iterator[Mapping[str, Any]]:
    """Coloured squares with honest captions; a file may hold the names of the colours."""
    rgb = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}
    if path is not None:
        rgb = {name: rgb[name] for name in Path(path).read_text().split()}
    random = np.random.default_rng(seed)
    for _ in range(count):
        name = list(rgb)[random.integers(len(rgb))]
        image = np.zeros((16, 16, 3), np.uint8)
        image[4:12, 4:12] = rgb[name]
        yield {"image": image, "caption": f"a {name} square", "colour": name, "brightness": image.mean()}


class Layer(nn.Module):
    """A tower of one hidden layer, for either modality."""

    config: Any
    hidden: int = 32

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        x = inputs if inputs.ndim > 2 else jax.nn.one_hot(inputs, self.config.vocabulary_size)
        x = nn.relu(nn.Dense(self.hidden)(x.reshape(len(x), -1)))
        return nn.Dense(self.config.width)(x)

    @staticmethod
    def flops(config: Any, *, hidden: int = 32) -> float:
        is_image = hasattr(config, "image_size")
        size = 3 * config.image_size**2 if is_image else config.length * config.vocabulary_size
        return float(2 * hidden * (size + config.width))
