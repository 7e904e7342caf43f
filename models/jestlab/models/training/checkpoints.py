"""Checkpoints of a run: training state and position in the data; the only module that uses orbax.

A step takes one batch, so the step is also the position in the data, whatever the number of processes.

The parameters are a separate part, so that a learner loads its reference without the optimiser's state.
A checkpoint is written while training goes on. Once it is complete, its files are hashed: orbax notices a
file that is missing or truncated, but not a flipped bit (seen with orbax 0.12.8).

Every process holds the whole state, so only the first one writes and reads checkpoints, and it sends the
others what it has read, so that the processes need no shared folder.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from orbax import checkpoint as orbax
from orbax.checkpoint import v1 as ocp

from jestlab.models.config import TwoTowers
from jestlab.models.data.files import file_sha256, write_whole
from jestlab.models.processes import first_gives, first_says, is_first
from jestlab.models.training.distinct import REGISTERS, Distinct
from jestlab.models.training.step import TrainState
from jestlab.models.two_towers import Parameters, initialize

_LOG = logging.getLogger(__name__)

# Files beside a checkpoint, by its step.
_DIGESTS = "sha256-{}.json"  # of its files
_SCORE = "score-{}.json"  # how good its parameters are, if they were evaluated
_SECONDS = "seconds-{}.json"  # of training until then
_DISTINCT = "distinct-{}.bin"  # the examples trained on until then, as far as they can be counted


class Checkpoints:
    """The checkpoints of one run: the newest few, and the best by score."""

    def __init__(self, directory: Path, keep: int, saved: Callable[[int], None] = lambda _: None) -> None:
        """Open the folder, or make it.

        Args:
            directory: The folder of the checkpoints.
            keep: How many of the newest are kept.
            saved: Called in the first process, from another thread, with the step of one more checkpoint when
                it is whole.
        """
        self._directory = directory.absolute()
        self._saved = saved
        self._keep = keep
        if is_first():
            _clear(self._directory)
        self._finisher = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._pending: Future[None] | None = None

    def save(
        self,
        state: TrainState,
        iterator: Any,
        score: float | None = None,
        seconds: float = math.nan,
        distinct: Distinct | None = None,
    ) -> None:
        """Start saving after `state.step` steps; the state may be donated as soon as this returns.

        Saving a step again changes nothing. An earlier save is waited for.

        Args:
            state: The training state.
            iterator: The Grain iterator that yields the next batch.
            score: How good the parameters are, where they were just evaluated: the best are kept.
            seconds: Of training until here; NaN if unknown.
            distinct: The examples that were trained on until here; None if unknown.
        """
        self.wait()
        step = int(state.step)
        if iterator.get_state() != _place(step):
            raise ValueError(f"after {step} steps the data are at {iterator.get_state()}, a step is a batch")
        if not is_first() or step in _steps(self._directory):
            return
        if score is not None:
            write_whole(self._directory / _SCORE.format(step), json.dumps(score).encode())
        if not math.isnan(seconds):
            write_whole(self._directory / _SECONDS.format(step), json.dumps(seconds).encode())
        if distinct is not None:
            write_whole(self._directory / _DISTINCT.format(step), distinct.registers.tobytes())
        parts, folder = _own(_parts(state)), self._directory / str(step)
        if jax.process_count() == 1:
            with _large_in_slices():
                write = ocp.save_checkpointables_async(folder, parts).result
        else:
            write = functools.partial(_write_alone, folder, parts)
        self._pending = self._finisher.submit(self._finish, step, write)

    def _finish(self, step: int, write: Callable[[], object]) -> None:
        """Complete a save while training goes on."""
        write()
        _write_digests(self._directory, step)
        _delete_all_but(self._directory, self._keep)
        self._saved(step)

    def wait(self) -> None:
        """Return when the last save is on disk, and wherever else it has to be kept."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def restore(self, state: TrainState, iterator: Any) -> TrainState:
        """Restore the newest complete checkpoint's state, and move the iterator to its batch.

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

    def seconds(self, step: int) -> float:
        """Return the seconds of training until a checkpoint's step, 0 before the first; NaN if unknown."""
        seconds = 0.0 if step == 0 else _number(self._directory / _SECONDS.format(step))
        return math.nan if seconds is None else seconds

    def distinct(self, step: int) -> Distinct | None:
        """Return the examples that were trained on until a checkpoint's step, in every process; None if
        unknown."""
        if step == 0:
            return Distinct()
        path = self._directory / _DISTINCT.format(step)
        content = path.read_bytes() if is_first() and path.exists() else b""
        if not first_says(len(content) == REGISTERS):
            return None
        registers = np.frombuffer(content or bytes(REGISTERS), np.uint8)
        return Distinct(registers if jax.process_count() == 1 else first_gives(registers))

    def _load(self, step: int, wanted: dict[str, Any]) -> dict[str, Any] | None:
        """Return what a checkpoint holds, in every process; None if it is damaged."""
        found = self._read(step, wanted) if is_first() else None
        if not first_says(found is not None):
            return None
        if jax.process_count() == 1:
            return found
        given = first_gives(found or jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), wanted))
        return dict(jax.tree.map(_placed_as, given, wanted))

    def _read(self, step: int, wanted: dict[str, Any]) -> dict[str, Any] | None:
        """Read a checkpoint; None if it is damaged."""
        damage = _damage(self._directory, step)
        if damage is None:
            try:
                with _alone():
                    return dict(ocp.load_checkpointables(self._directory / str(step), _own(wanted)))
            except Exception as error:  # orbax raises many kinds for a damaged file
                for path in _files(self._directory / str(step)):
                    path.open("rb").close()  # a lack of permission is no damage
                if (self._directory / _DIGESTS.format(step)).exists():
                    if isinstance(error, OSError | MemoryError):
                        raise
                    raise ValueError(
                        f"checkpoint {self._directory / str(step)} is whole, but holds another state than "
                        f"this run's, as those of earlier versions may ({type(error).__name__}): remove "
                        f"{self._directory} to train from the beginning"
                    ) from error
                damage = f"{type(error).__name__} on reading it"
        _LOG.warning("checkpoint %d is damaged (%s): going on from the one before it", step, damage)
        return None

    def _set_aside(self, step: int) -> None:
        """Rename a damaged checkpoint's folder, for inspection; its step can then be saved again."""
        if is_first():
            folder = self._directory / str(step)
            folder.rename(folder.with_name(f"damaged-{step}-{time.time_ns()}"))
            for path in _beside(self._directory, step):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Wait for the last save, and release the thread."""
        try:
            self.wait()
        finally:
            self._finisher.shutdown()


def _alone() -> Any:
    """Return a context in which orbax waits for no other process."""
    context, this = ocp.Context(), jax.process_index()
    context.multiprocessing_options.primary_host = this
    context.multiprocessing_options.active_processes = {this}
    return context


def _large_in_slices() -> Any:
    """Return a context in which each device writes a slice of an array that all hold, if the array is large.

    A small one takes longer to slice than to write.
    """
    context = ocp.Context()
    context.array_options.saving.min_slice_bytes_for_replica_parallel = 2**20
    return context


def _write_alone(folder: Path, parts: dict[str, Any]) -> None:
    """Write a checkpoint from one of several processes.

    Uses orbax's older interface: the new one compares the folder over all processes, even those not involved.
    """
    this = jax.process_index()
    options = orbax.options.MultiprocessingOptions(primary_host=this, active_processes={this})
    handler = orbax.CompositeCheckpointHandler(
        **{name: orbax.PyTreeCheckpointHandler(multiprocessing_options=options) for name in parts},
        composite_options=orbax.CompositeOptions(multiprocessing_options=options),
    )
    with orbax.Checkpointer(handler, multiprocessing_options=options) as checkpointer:
        checkpointer.save(
            folder,
            orbax.args.Composite(**{name: orbax.args.PyTreeSave(part) for name, part in parts.items()}),
        )


def _own(tree: dict[str, Any]) -> dict[str, Any]:
    """Copy replicated arrays to the host, as one of several processes may save them."""
    if jax.process_count() == 1:
        return tree
    own: dict[str, Any] = jax.tree.map(lambda x: np.array(x.addressable_data(0)), tree)
    return own


def _placed_as(value: np.ndarray, like: jax.Array) -> jax.Array:
    """Put an array that every process holds on the devices of another array."""
    return jax.make_array_from_callback(value.shape, like.sharding, lambda index: value[index])


def load_parameters(directory: Path, config: TwoTowers) -> Parameters:
    """Load the newest parameters from a finished run's checkpoint folder, onto one device.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The newest is damaged.
    """
    steps = _steps(directory)
    if not steps:
        raise FileNotFoundError(f"no checkpoint in {directory}")
    if damage := _damage(directory, steps[-1]):
        raise ValueError(
            f"checkpoint {directory / str(steps[-1])} is damaged ({damage}): train the run again"
        )
    abstract = jax.eval_shape(lambda: initialize(config, jax.random.key(0)))
    device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    abstract = jax.tree.map(lambda leaf: leaf.update(sharding=device), abstract)
    with _alone():
        loaded = ocp.load_checkpointables(directory.absolute() / str(steps[-1]), {"parameters": abstract})
    parameters: Parameters = loaded["parameters"]
    return parameters


def save_parameters(directory: Path, parameters: Parameters) -> None:
    """Write parameters alone, as step 0, where `load_parameters` finds them."""
    with _alone():
        ocp.save_checkpointables(directory.absolute() / "0", {"parameters": parameters}, overwrite=True)
    _write_digests(directory, 0)


def _parts(state: TrainState) -> dict[str, Any]:
    """Split a state into the parts of a checkpoint."""
    progress = {"step": state.step, "key": state.key}
    if state.recent is not None:
        progress["recent"] = state.recent
    return {"parameters": state.parameters, "optimizer": state.optimizer, "progress": progress}


def _place(step: int) -> dict[str, int]:
    """Return the state of a Grain iterator after a number of batches."""
    return {"next_index": step}


def _steps(directory: Path) -> list[int]:
    """Return the steps of the checkpoints in a folder, ascending."""
    # NOTE: `glob` would pass over a folder that may not be read.
    entries = directory.iterdir() if directory.is_dir() else ()
    return sorted(int(entry.name) for entry in entries if entry.name.isdigit())


def _clear(directory: Path) -> None:
    """Make the folder, and remove what a killed run left half-written in it."""
    directory.mkdir(parents=True, exist_ok=True)
    for partial in directory.glob("*.orbax-checkpoint-tmp*"):
        shutil.rmtree(partial)


def _delete_all_but(directory: Path, keep: int) -> None:
    """Delete all checkpoints except the newest few and the best; among equally good ones the newest is
    kept."""
    steps = _steps(directory)
    scores = {
        step: score for step in steps if (score := _number(directory / _SCORE.format(step))) is not None
    }
    best = max(scores, key=lambda step: (scores[step], step), default=None)
    for step in steps[:-keep]:
        if step != best:
            for path in _beside(directory, step):
                path.unlink(missing_ok=True)
            shutil.rmtree(directory / str(step))


def _number(path: Path) -> float | None:
    """Read a number that lies beside a checkpoint; None if there is none."""
    try:
        return float(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None


def _beside(directory: Path, step: int) -> tuple[Path, ...]:
    """Files that lie beside a checkpoint."""
    return tuple(directory / name.format(step) for name in (_DIGESTS, _SCORE, _SECONDS, _DISTINCT))


def _files(place: Path) -> Iterator[Path]:
    """Yield all files below a place; PermissionError where one may not look, which `rglob` passes over."""
    if place.is_dir():
        for path in sorted(place.iterdir()):
            yield from _files(path)
    elif place.is_file():
        yield place


def _write_digests(directory: Path, step: int) -> None:
    """Hash the files of a complete checkpoint."""
    folder = directory / str(step)
    digests = {path.relative_to(folder).as_posix(): file_sha256(path) for path in _files(folder)}
    write_whole(directory / _DIGESTS.format(step), json.dumps(digests, indent=1).encode())


def _damage(directory: Path, step: int) -> str | None:
    """Describe the damage to a checkpoint's files, if they were hashed: a run may be killed before that."""
    try:
        digests = json.loads((directory / _DIGESTS.format(step)).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return "its list of hashes is not readable"
    for name, digest in digests.items():
        try:
            if file_sha256(directory / str(step) / name) != digest:
                return f"{name} has changed"
        except (FileNotFoundError, NotADirectoryError):
            return f"{name} is missing"
    return None
