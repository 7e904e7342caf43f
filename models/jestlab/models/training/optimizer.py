"""The paper's optimizer and learning-rate schedule in optax (appendix, "Training configuration").

To add a schedule, add its name to `config.train.Optimizer.decay` and its branch to `learning_rate`.
"""

import re

import jax
import jax.numpy as jnp
import optax

from jestlab.models.config import Optimizer
from jestlab.models.two_towers import Parameters


def learning_rate(config: Optimizer, total_steps: int | jax.Array) -> optax.Schedule:
    """Return the schedule: linear warm-up from 0, then cosine decay to 0 at the last step, or constant."""
    total = jnp.asarray(total_steps, jnp.float32)
    warmup = jnp.minimum(jnp.round(total * (config.warmup_percent / 100.0)), total - 1)
    peak = config.learning_rate

    def rate(count: jax.typing.ArrayLike) -> jax.Array:
        step = jnp.asarray(count, jnp.float32)
        rising = peak * step / jnp.maximum(warmup, 1)
        after: jax.Array | float = peak
        if config.decay == "cosine":
            share = jnp.minimum((step - warmup) / jnp.maximum(total - warmup, 1), 1.0)
            after = peak * 0.5 * (1 + jnp.cos(jnp.pi * share))
        return jnp.where(step < warmup, rising, after)

    return rate


def build_optimizer(config: Optimizer, total_steps: int | jax.Array) -> optax.GradientTransformation:
    """Build the optimizer: clipping, Adam, decoupled weight decay of the chosen parameters, schedule.

    As in big_vision, weight decay is multiplied by the shape of the schedule, without the peak learning rate:
    a learning rate of 1e-3 with decay 1e-4 is `optax.adamw(weight_decay=0.1)`.

    Returns:
        The transformation. Its `init` raises ValueError if there is weight decay and
        `config.decay_parameters` matches no parameter.
    """
    return optax.chain(
        optax.identity() if config.clip_norm is None else optax.clip_by_global_norm(config.clip_norm),
        _small_as_one(optax.scale_by_adam(b1=config.beta1, b2=config.beta2)),
        optax.add_decayed_weights(
            config.weight_decay / config.learning_rate,
            mask=lambda parameters: decayed(parameters, config.decay_parameters),
        )
        if config.weight_decay
        else optax.identity(),
        optax.scale_by_learning_rate(learning_rate(config, total_steps)),
        _scale_temperature(config.temperature_multiplier),
    )


def decayed(parameters: Parameters, pattern: str) -> Parameters:
    """Mark the parameters whose full name, such as `img/embedding/kernel`, matches a regular expression.

    Raises:
        ValueError: It matches no name.
    """
    mask: Parameters = jax.tree_util.tree_map_with_path(
        lambda path, _: re.fullmatch(pattern, "/".join(str(part.key) for part in path)) is not None,
        parameters,
    )
    if not any(jax.tree.leaves(mask)):
        raise ValueError(f"optimizer.decay_parameters {pattern!r} matches no parameter's name")
    return mask


_SMALL = 2**20  # parameters


def _small_as_one(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Apply an elementwise transformation to all parameters of a small model as one array.

    This is faster: for arrays of a few hundred numbers, starting the computation costs more than the
    computation. It copies the gradients, for which a large model has no memory.
    """
    as_one = optax.flatten(inner)

    def chosen(tree: optax.Params) -> optax.GradientTransformation:
        return as_one if sum(leaf.size for leaf in jax.tree.leaves(tree)) <= _SMALL else inner

    return optax.GradientTransformation(
        lambda parameters: chosen(parameters).init(parameters),
        lambda updates, state, parameters=None: chosen(updates).update(updates, state, parameters),
    )


def _scale_temperature(multiplier: float) -> optax.GradientTransformation:
    """Multiply the updates of t and b: in runs of a few hundred steps, Adam would hardly change them."""
    return optax.stateless(
        lambda updates, _: updates | {name: updates[name] * multiplier for name in ("t", "b")}
    )
