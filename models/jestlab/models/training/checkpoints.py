"""Checkpoints of a run: training state and place in the data; the one module that knows orbax.

A step takes one batch, so the step is the data iterator's place too, in however many processes a run goes on.

The parameters are a part of their own, so that a learner loads its reference without the optimiser's state.
A checkpoint is written while training goes on. Once it is whole, its files are hashed: orbax notices a file
that is missing or cut short, but not a flipped bit (seen with orbax 0.12.8).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from ..config import TwoTowers
from ..data.files import file_sha256, write_whole
from ..processes import all_say, any_says, first_says, is_first
from ..two_towers import Parameters, initialize
from .step import TrainState

_LOG = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one run: the newest few, and the best by score."""

    def __init__(self, directory: Path, keep: int) -> None:
        """Open (or make) the folder.

        Args:
            directory: Where the checkpoints lie.
            keep: How many of the newest are kept.
        """
        policies = ocp.training.preservation_policies
        self._directory = directory.absolute()
        self._checkpointer = ocp.training.Checkpointer(
            self._directory,
            preservation_policy=policies.AnyPreservationPolicy(
                [
                    policies.LatestN(keep),
                    policies.BestN(
                        get_metric_fn=lambda metrics: float(metrics["score"]),
                        n=1,
                        keep_checkpoints_without_metrics=False,
                    ),
                ]
            ),
            cleanup_tmp_directories=True,  # what a killed run left half-written
        )
        self._pending: tuple[int, Any] | None = None  # step, and what orbax will say of its save

    def save(self, state: TrainState, iterator: Any, score: float | None = None) -> None:
        """Begin to save after `state.step` steps; the state may be donated as soon as this returns.

        Saving a step again changes nothing. An earlier save is waited for.

        Args:
            state: The training state.
            iterator: The Grain iterator that yields the next batch.
            score: How good the parameters are, where they were just evaluated: the best are kept.
        """
        self.wait()
        step = int(state.step)
        if iterator.get_state() != _place(step):
            raise ValueError(f"after {step} steps the data are at {iterator.get_state()}, a step is a batch")
        if any_says(step in _steps(self._directory)):
            return
        metrics = None if score is None else {"score": score}
        response = self._checkpointer.save_checkpointables_async(step, _parts(state), metrics=metrics)
        self._pending = (step, response)

    def wait(self) -> None:
        """Return when what was saved is on disk."""
        if self._pending is not None:
            step, response = self._pending
            self._pending = None
            response.result()
            if is_first():
                _write_digests(self._directory, step)

    def restore(self, state: TrainState, iterator: Any) -> TrainState:
        """The newest whole checkpoint's state; moves the iterator to its batch.

        Damaged checkpoints are set aside, so that training goes on from the one before.

        Args:
            state: A state of the same structure, for shapes and placement.
            iterator: A fresh iterator over the same data.

        Returns:
            The state that was saved; the given one when there is no checkpoint.
        """
        while (step := first_says(max(_steps(self._directory), default=-1))) >= 0:
            loaded = self._load(step, _parts(state))
            if loaded is not None:
                iterator.set_state(_place(step))
                progress = loaded["progress"]
                return TrainState(
                    progress["step"],
                    loaded["parameters"],
                    loaded["optimizer"],
                    progress["key"],
                    progress.get("recent"),
                )
            self._set_aside(step)
        return state

    def _load(self, step: int, wanted: dict[str, Any]) -> dict[str, Any] | None:
        """What a checkpoint holds; None if it is damaged."""
        damage = _damage(self._directory, step) if is_first() else None
        if all_say(damage is None):
            try:
                return dict(self._checkpointer.load_checkpointables(step, wanted))
            except Exception as error:  # orbax raises many kinds for a damaged file
                if _digests_path(self._directory, step).exists():
                    raise
                damage = f"{type(error).__name__} on reading it"
        _LOG.warning("checkpoint %d is damaged (%s): going on from the one before it", step, damage)
        return None

    def _set_aside(self, step: int) -> None:
        """Rename a damaged checkpoint's folder, for whoever wants to look; its step can be saved again."""
        if is_first():
            folder = self._directory / str(step)
            folder.rename(folder.with_name(f"damaged-{step}-{time.time_ns()}"))
            _digests_path(self._directory, step).unlink(missing_ok=True)
        all_say(True)
        self._checkpointer.reload()

    def close(self) -> None:
        """Wait for the last save and release the folder."""
        try:
            self.wait()
        finally:
            self._checkpointer.close()


def load_parameters(directory: Path, config: TwoTowers) -> Parameters:
    """The newest parameters of a finished run.

    Args:
        directory: Its checkpoint folder.
        config: Its architecture.

    Returns:
        The tree, on one device.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The newest is damaged.
    """
    steps = _steps(directory)
    if not steps:
        raise FileNotFoundError(f"no checkpoint in {directory}")
    if damage := _damage(directory, steps[-1]):
        raise ValueError(f"checkpoint {directory / str(steps[-1])} is damaged ({damage}): train the run anew")
    abstract = jax.eval_shape(lambda: initialize(config, jax.random.key(0)))
    device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    abstract = jax.tree.map(lambda leaf: leaf.update(sharding=device), abstract)
    loaded = ocp.load_checkpointables(directory.absolute() / str(steps[-1]), {"parameters": abstract})
    parameters: Parameters = loaded["parameters"]
    return parameters


def save_parameters(directory: Path, parameters: Parameters) -> None:
    """Write parameters alone, as step 0, where `load_parameters` finds them.

    Args:
        directory: The checkpoint folder.
        parameters: The model's.
    """
    ocp.save_checkpointables(directory.absolute() / "0", {"parameters": parameters}, overwrite=True)
    _write_digests(directory, 0)


def _parts(state: TrainState) -> dict[str, Any]:
    """A state as a checkpoint's parts."""
    progress = {"step": state.step, "key": state.key}
    if state.recent is not None:
        progress["recent"] = state.recent
    return {
        "parameters": state.parameters,
        "optimizer": state.optimizer,
        "progress": progress,
    }


def _place(step: int) -> dict[str, int]:
    """The state of a Grain iterator after as many batches."""
    return {"next_index": step}


def _steps(directory: Path) -> list[int]:
    """Steps of the checkpoints in a folder, ascending."""
    return sorted(int(entry.name) for entry in directory.glob("*") if entry.name.isdigit())


def _digests_path(directory: Path, step: int) -> Path:
    return directory / f"sha256-{step}.json"


def _files(directory: Path, step: int) -> Iterator[tuple[str, Path]]:
    folder = directory / str(step)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path


def _write_digests(directory: Path, step: int) -> None:
    """Hash a checkpoint that is whole, and forget the hashes of those that are gone."""
    digests = {name: file_sha256(path) for name, path in _files(directory, step)}
    write_whole(_digests_path(directory, step), json.dumps(digests, indent=1).encode())
    kept = {_digests_path(directory, known) for known in _steps(directory)}
    for path in directory.glob("sha256-*.json"):
        if path not in kept:
            path.unlink()


def _damage(directory: Path, step: int) -> str | None:
    """What is wrong with a checkpoint's files, where they were hashed: a run may be killed before that."""
    try:
        digests = json.loads(_digests_path(directory, step).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return "its list of hashes is not readable"
    found = dict(_files(directory, step))
    for name, digest in digests.items():
        if name not in found:
            return f"{name} is missing"
        if file_sha256(found[name]) != digest:
            return f"{name} has changed"
    return None
