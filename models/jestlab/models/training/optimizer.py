"""The paper's optimiser as an optax chain (appendix, "Training configuration")."""

from __future__ import annotations

import re

import jax
import optax

from jestlab.models.config import Optimizer
from jestlab.models.two_towers import Parameters


def learning_rate(config: Optimizer, total_steps: int) -> optax.Schedule:
    """Return the schedule: linear warm-up from 0, then cosine to 0 at the last step, or constant."""
    warmup = min(round(total_steps * config.warmup_percent / 100.0), total_steps - 1)
    after: optax.Schedule = (
        optax.cosine_decay_schedule(config.learning_rate, max(total_steps - warmup, 1))
        if config.decay == "cosine"
        else optax.constant_schedule(config.learning_rate)
    )
    if warmup == 0:
        return after
    return optax.join_schedules(
        [optax.linear_schedule(0.0, config.learning_rate, warmup), after], boundaries=[warmup]
    )


def build_optimizer(config: Optimizer, total_steps: int) -> optax.GradientTransformation:
    """Build the optimiser: clipping, Adam, decoupled decay of the chosen parameters, schedule.

    As in big_vision the decay is not multiplied by the peak learning rate, only by the schedule's shape: its
    learning rate 1e-3 with decay 1e-4 is `optax.adamw(weight_decay=0.1)`.

    Returns:
        The transformation. Its `init` raises ValueError where there is weight decay and
        `config.decay_parameters` fits no parameter.
    """
    return optax.chain(
        optax.identity() if config.clip_norm is None else optax.clip_by_global_norm(config.clip_norm),
        optax.scale_by_adam(b1=config.beta1, b2=config.beta2),
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
    """Mark the parameters whose whole name, such as `img/embedding/kernel`, fits a regular expression.

    Raises:
        ValueError: It fits no name.
    """
    mask: Parameters = jax.tree_util.tree_map_with_path(
        lambda path, _: re.fullmatch(pattern, "/".join(str(part.key) for part in path)) is not None,
        parameters,
    )
    if not any(jax.tree.leaves(mask)):
        raise ValueError(f"optimizer.decay_parameters {pattern!r} matches no parameter's name")
    return mask


def _scale_temperature(multiplier: float) -> optax.GradientTransformation:
    """Multiply the updates of t and b: in runs of a few hundred steps Adam would hardly move them."""

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.OptState]:
        scaled = {
            name: value * multiplier if name in ("t", "b") else value for name, value in updates.items()
        }
        return scaled, state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)
