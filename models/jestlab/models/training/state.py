"""`TrainState`: what a step changes, with the run's random key; and its value at step 0."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jestlab.models.config import TrainConfig
from jestlab.models.training.optimizer import build_optimizer
from jestlab.models.two_towers import Parameters


class TrainState(NamedTuple):
    """Everything that a step changes, and the run's key."""

    step: jax.Array  # int32 [], steps done
    parameters: Parameters
    optimizer: Any
    key: jax.Array  # uint32, the data of the run's PRNG key; the same at every step


def initial_state(config: TrainConfig, parameters: Parameters, key: jax.Array) -> TrainState:
    """Create the state at step 0 from fresh parameters and the run's key."""

    def create(parameters: Parameters, key: jax.Array) -> TrainState:
        optimizer = build_optimizer(config.optimizer, config.total_steps).init(parameters)
        return TrainState(jnp.int32(0), parameters, optimizer, jax.random.key_data(key))

    # Without jit, JAX would compile a function for each shape.
    state: TrainState = jax.jit(create)(parameters, key)
    return state
