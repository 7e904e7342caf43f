"""Save, restore, and delete checkpoints by Orbax: the newest `runtime.keep_checkpoints`, and the best one.

    checkpoints/150/        the state after 150 steps, as Orbax writes it
    checkpoints/150.json    its score and the hashes of its files

The JSON file is written last, so a checkpoint without it is incomplete. Hashes are needed because Orbax
detects missing and truncated files, but not a flipped bit (seen with Orbax 0.12.8). A step trains on one
batch, so the step is also the position in the data. The parameters are a separate part: a learner loads its
reference without the optimizer's state.

Every process has the whole state. Only the first one writes and reads checkpoints. It sends the state to the
others, so processes don't need a shared folder.
"""

import contextlib
import json
import logging
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from orbax import checkpoint as orbax
from orbax.checkpoint import v1 as ocp

from jestlab.models.config import TwoTowers
from jestlab.models.data.files import file_sha256, write_whole
from jestlab.models.devices import broadcast, broadcast_number, is_first
from jestlab.models.training.distinct import Distinct
from jestlab.models.training.state import TrainState
from jestlab.models.two_towers import Parameters, initialize

_LOG = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one run: the newest ones, and the one with the best score."""

    def __init__(self, directory: Path, keep: int, saved: Callable[[int], None]) -> None:
        """Open the folder; create it if it doesn't exist.

        Args:
            directory: Folder of the checkpoints.
            keep: Number of newest checkpoints to keep.
            saved: Called with the step of each complete checkpoint, in the first process and from another
                thread.
        """
        self._directory = directory.absolute()
        self._keep = keep
        self._saved = saved
        if is_first():
            self._directory.mkdir(parents=True, exist_ok=True)
            whole = {str(step) for step in _steps(self._directory)}
            for path in [*self._directory.iterdir()]:  # incomplete ones of a killed run
                if ".orbax-checkpoint-tmp" in path.name or (path.name.isdigit() and path.name not in whole):
                    shutil.rmtree(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._pending: Future[None] | None = None

    def save(self, state: TrainState, seconds: float, distinct: Distinct, score: float | None = None) -> None:
        """Start saving a checkpoint after `state.step` steps; the state can be donated after the return.

        Waits for the previous save. Does nothing if this step is already saved.

        Args:
            seconds: Seconds of training so far.
            distinct: Counter of the examples trained on so far.
            score: Score of the parameters, for keeping the best; None if they weren't evaluated.
        """
        self.wait()
        step = int(state.step)
        if is_first() and step not in _steps(self._directory):
            parts = jax.tree.map(np.array, _parts(state, seconds, distinct))
            self._pending = self._thread.submit(self._write, step, parts, score)

    def _write(self, step: int, parts: dict[str, Any], score: float | None) -> None:
        """Write a checkpoint while training continues, and delete old ones."""
        _write(self._directory, step, parts, score)
        steps = _steps(self._directory)
        scores = [(_about(self._directory, at).get("score"), at) for at in steps]
        _, best = max((each for each in scores if each[0] is not None), default=(None, None))
        for old in {*steps[: -self._keep]} - {best}:
            (self._directory / f"{old}.json").unlink()
            shutil.rmtree(self._directory / str(old))
        self._saved(step)

    def wait(self) -> None:
        """Return when the last save is complete, including `saved`; raise its error if it failed."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def restore(self, state: TrainState) -> tuple[TrainState, float, Distinct]:
        """Load the newest checkpoint. Damaged ones are renamed, and the one before is loaded instead.

        Args:
            state: The state at step 0, for shapes and placement on devices.

        Returns:
            The state, the seconds of training, and the counter of examples; without a checkpoint, the given
            state and zeros.

        Raises:
            ValueError: A checkpoint that isn't damaged has a different structure.
        """
        like = _parts(state, 0.0, Distinct())
        while (step := broadcast_number(max(_steps(self._directory), default=-1))) >= 0:
            if (loaded := self._load(step, like)) is not None:
                rest = loaded["training"]
                seconds, registers = float(rest.pop("seconds")), rest.pop("distinct")
                return TrainState(parameters=loaded["parameters"], **rest), seconds, Distinct(registers)
            if is_first():
                (self._directory / f"{step}.json").unlink()
                with contextlib.suppress(FileNotFoundError):  # the folder itself may be missing
                    (self._directory / str(step)).rename(self._directory / f"damaged-{step}-{time.time_ns()}")
        return state, 0.0, Distinct()

    def _load(self, step: int, like: dict[str, Any]) -> dict[str, Any] | None:
        """Load a checkpoint in every process; return None if it is damaged."""
        damage = _damage(self._directory, step) if is_first() else ""
        if not broadcast_number(not damage):
            if is_first():
                _LOG.warning("checkpoint %d is damaged (%s): trying the one before it", step, damage)
            return None
        loaded = _empty(like)
        if is_first():
            try:
                loaded = _read(self._directory, step, like)
            except (OSError, MemoryError):
                raise
            except Exception as error:  # Orbax raises many types
                raise ValueError(
                    f"checkpoint {self._directory / str(step)} doesn't have this run's structure "
                    f"({type(error).__name__}): remove {self._directory} to train from the beginning"
                ) from error
        return dict(jax.tree.map(_placed_as, broadcast(loaded), like))

    def close(self) -> None:
        """Wait for the last save and end the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()


def load_parameters(directory: Path, config: TwoTowers) -> Parameters:
    """Load the newest parameters from a finished run's checkpoint folder, onto one device.

    Raises:
        FileNotFoundError: The folder has no complete checkpoint.
        ValueError: The newest one is damaged.
    """
    steps = _steps(directory)
    if not steps:
        raise FileNotFoundError(f"no checkpoint in {directory}")
    if damage := _damage(directory, steps[-1]):
        raise ValueError(
            f"checkpoint {directory / str(steps[-1])} is damaged ({damage}): train the run again"
        )
    like = jax.eval_shape(lambda: initialize(config, jax.random.key(0)))
    loaded = _read(directory, steps[-1], {"parameters": like})
    parameters: Parameters = jax.device_put(loaded["parameters"], jax.local_devices()[0])
    return parameters


def save_parameters(directory: Path, parameters: Parameters) -> None:
    """Write only parameters, as step 0, for `load_parameters`."""
    _write(directory, 0, {"parameters": jax.tree.map(np.asarray, parameters)})


def _parts(state: TrainState, seconds: float, distinct: Distinct) -> dict[str, Any]:
    """Return the parts of a checkpoint."""
    rest = state._asdict()
    totals = {"seconds": np.float64(seconds), "distinct": distinct.registers}
    return {"parameters": rest.pop("parameters"), "training": rest | totals}


def _empty(tree: dict[str, Any]) -> dict[str, Any]:
    """Return uninitialized NumPy arrays of the same shapes and dtypes."""
    empty: dict[str, Any] = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), tree)
    return empty


def _placed_as(value: np.ndarray, like: Any) -> Any:
    """Put a NumPy array of every process on the devices of another array, if that is on devices."""
    if not isinstance(like, jax.Array):
        return value
    return jax.make_array_from_callback(value.shape, like.sharding, lambda index: value[index])


def _write(directory: Path, step: int, parts: dict[str, Any], score: float | None = None) -> None:
    """Write NumPy arrays from this process alone, then the JSON file.

    NOTE: uses Orbax's older interface. The new one compares the folder among all processes.
    """
    this, folder = jax.process_index(), directory.absolute() / str(step)
    options = orbax.options.MultiprocessingOptions(primary_host=this, active_processes={this})
    handler = orbax.CompositeCheckpointHandler(
        **{name: orbax.PyTreeCheckpointHandler(multiprocessing_options=options) for name in parts},
        composite_options=orbax.CompositeOptions(multiprocessing_options=options),
    )
    content = orbax.args.Composite(**{name: orbax.args.PyTreeSave(part) for name, part in parts.items()})
    with orbax.Checkpointer(handler, multiprocessing_options=options) as checkpointer:
        checkpointer.save(folder, content, force=True)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    digests = {path.relative_to(folder).as_posix(): file_sha256(path) for path in files}
    about = json.dumps({"score": score, "sha256": digests}, indent=1)
    write_whole(directory / f"{step}.json", about.encode())


def _read(directory: Path, step: int, like: dict[str, Any]) -> dict[str, Any]:
    """Read NumPy arrays of the given shapes in this process alone."""
    context, this = ocp.Context(), jax.process_index()
    context.multiprocessing_options.primary_host = this
    context.multiprocessing_options.active_processes = {this}
    with context:
        return dict(ocp.load_checkpointables(directory.absolute() / str(step), _empty(like)))


def _steps(directory: Path) -> list[int]:
    """Return the steps of the complete checkpoints in a folder, ascending."""
    # NOTE: `glob` would find nothing in a folder without read permission.
    files = directory.iterdir() if directory.is_dir() else ()
    return sorted(int(file.stem) for file in files if file.suffix == ".json" and file.stem.isdigit())


def _about(directory: Path, step: int) -> dict[str, Any]:
    """Read the JSON file of a checkpoint; return an empty mapping if it is damaged."""
    try:
        return dict(json.loads((directory / f"{step}.json").read_bytes()))
    except (ValueError, TypeError):
        return {}


def _damage(directory: Path, step: int) -> str:
    """Describe the damage to a checkpoint's files; an empty string if they are whole."""
    digests = _about(directory, step).get("sha256")
    if not digests:
        return "its list of hashes is not readable"
    for name, digest in digests.items():
        try:
            if file_sha256(directory / str(step) / name) != digest:
                return f"{name} has changed"
        except (FileNotFoundError, NotADirectoryError):
            return f"{name} is missing"
    return ""
