"""The state of a training run."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jestlab.models.config import TrainConfig
from jestlab.models.training.optimizer import build_optimizer
from jestlab.models.two_towers import Parameters

RECENT_STEPS = 16
"""Number of steps whose sub-batches are in a state: that of step s is in row s mod this number."""

NO_EXAMPLE = 2**32 - 1
"""Value in rows that no step has filled yet."""


class TrainState(NamedTuple):
    """Everything that a step changes, and the run's key."""

    step: jax.Array  # int32 [], steps done
    parameters: Parameters
    optimizer: Any
    key: jax.Array  # uint32, the data of the run's PRNG key; the same at every step
    recent: jax.Array | None = None
    """With selection: uint32 [RECENT_STEPS, b], the examples of the last sub-batches."""


def initial_state(config: TrainConfig, parameters: Parameters, key: jax.Array) -> TrainState:
    """Create the state at step 0 from fresh parameters and the run's key."""

    def create(parameters: Parameters, key: jax.Array) -> TrainState:
        optimizer = build_optimizer(config.optimizer, config.total_steps).init(parameters)
        recent = None
        if config.selects:
            recent = jnp.full((RECENT_STEPS, config.batch_size), NO_EXAMPLE, jnp.uint32)
        return TrainState(jnp.int32(0), parameters, optimizer, jax.random.key_data(key), recent)

    # Without jit, JAX would compile a function for each shape.
    state: TrainState = jax.jit(create)(parameters, key)
    return state
