"""Checkpoints of a run: training state and data iterator together; the one module that knows orbax.

The parameters are a part of their own, so that a learner loads its reference without the optimiser's state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from orbax.checkpoint import v1 as ocp

from ..config import TwoTowers
from ..two_towers import Parameters, initialize
from .step import TrainState


class Checkpoints:
    """The checkpoints of one run, newest last; a save replaces nothing before it is whole."""

    def __init__(self, directory: Path, keep: int) -> None:
        """Open (or make) the folder.

        Args:
            directory: Where the checkpoints lie.
            keep: How many of the newest are kept.
        """
        self._checkpointer = ocp.training.Checkpointer(
            directory.absolute(),
            preservation_policy=ocp.training.preservation_policies.LatestN(keep),
            cleanup_tmp_directories=True,  # what a killed run left half-written
        )

    @property
    def latest_step(self) -> int | None:
        """Step of the newest checkpoint."""
        latest = self._checkpointer.latest
        return None if latest is None else int(latest.step)

    def save(self, state: TrainState, iterator: Any) -> None:
        """Save after `state.step` steps; returns when it is on disk. Saving a step again changes nothing.

        Args:
            state: The training state.
            iterator: The Grain iterator that yields the next batch.
        """
        step = int(state.step)
        if step != self.latest_step:
            parts = {"parameters": state.parameters, "optimizer": state.optimizer, "iterator": iterator}
            self._checkpointer.save_checkpointables(step, parts)

    def restore(self, state: TrainState, iterator: Any) -> TrainState:
        """The newest checkpoint's state; moves the iterator to its batch.

        Args:
            state: A state of the same structure, for shapes.
            iterator: A fresh iterator over the same data.

        Returns:
            The state after `latest_step` steps; the given one when there is no checkpoint.
        """
        step = self.latest_step
        if step is None:
            return state
        parts = self._checkpointer.load_checkpointables(
            step, {"parameters": state.parameters, "optimizer": state.optimizer, "iterator": iterator}
        )
        return TrainState(jnp.int32(step), parts["parameters"], parts["optimizer"])

    def close(self) -> None:
        """Release the folder."""
        self._checkpointer.close()


def load_parameters(directory: Path, config: TwoTowers) -> Parameters:
    """The newest parameters of a finished run.

    Args:
        directory: Its checkpoint folder.
        config: Its architecture.

    Raises:
        FileNotFoundError: There is no checkpoint.
    """
    steps = sorted(int(entry.name) for entry in directory.glob("*") if entry.name.isdigit())
    if not steps:
        raise FileNotFoundError(f"no checkpoint in {directory}")
    abstract = jax.eval_shape(lambda: initialize(config, jax.random.key(0)))
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    abstract = jax.tree.map(lambda leaf: leaf.update(sharding=device), abstract)
    loaded = ocp.load_checkpointables(directory.absolute() / str(steps[-1]), {"parameters": abstract})
    parameters: Parameters = loaded["parameters"]
    return parameters


def save_parameters(directory: Path, parameters: Parameters) -> None:
    """Write parameters alone, as step 0, where `load_parameters` finds them.

    Args:
        directory: The checkpoint folder; made anew.
        parameters: The model's.
    """
    ocp.save_checkpointables(directory.absolute() / "0", {"parameters": parameters}, overwrite=True)
