"""Report from a script that jestlab runs as a command (`program: command`).

    from jestlab.platform import client

    run = client.run()
    model = load(run.resume / "model.npz") if run.resume else new(run.seed, run.config["width"])
    for step in range(steps):
        run.log(step, loss=loss)
        if run.stop_requested():
            break                             # save first; the next attempt finds the files in run.resume
    run.evaluation(step, scores={"digits/accuracy": 0.97})

Started by hand, without jestlab, the same script prints its reports instead. If several processes run the
script (`resources: {nodes: 2, tasks_per_node: 4}`, torchrun), only the one with RANK 0 reports. In the
others, reports have no effect, and everything else works the same. Ranks may notice at different steps that
they must stop: agree on it, for example by an all-reduce of `run.stop_requested()`. This module uses only the
standard library and runs on Python 3.9 and later. The environment of a command doesn't need jestlab: jestlab
puts a folder with this file at the end of the command's PYTHONPATH.

The protocol, for other languages: one JSON message per line, in UTF-8, at most 1 MiB, written to the path in
JESTLAB_REPORTS (`echo '{"type": "progress", …}' > "$JESTLAB_REPORTS"`). Several processes can write at the
same time: lines up to 4,096 bytes are written atomically. Any other line fails the run. If the environment
contains RANK and it isn't 0, write nothing. The messages are:

    {"type": "log", "step": 10, "metrics": {"loss": 0.5}}         null or NaN: not a number
    {"type": "evaluation", "step": 10, "scores": {"toy/top1": 0.9}}
        and, if known, the totals so far: "examples_seen": 640, "flops_total": 1e9, "seconds": 12.5
    {"type": "artifact", "name": "model", "path": "model.npz"}    relative to the run's folder; inside the lab
    {"type": "progress", "step": 10, "total_steps": 100}
    {"type": "phase", "name": "checkpoint", "seconds": 1.5}       the last 1.5 seconds were not training but
        this phase, which has just ended: "startup", "compilation", "evaluation", or "checkpoint"
    {"type": "flush", "id": 7}                                    answered by "flushed" when all is durable

Answers are JSON lines as well. One process reads them from the path in JESTLAB_REPLIES: {"type": "flushed",
"id": 7}, and {"type": "stop"} just before SIGTERM, when the run must stop. Other processes only get SIGTERM.
A writer that is faster than the store blocks. Messages written before the command ends are never lost. A
second report at the same step replaces the first. A later attempt replaces the reports of earlier attempts
after the step from which it resumed. Its first message states that step if it is progress. If values come
first, the attempt started from the beginning if earlier attempts left no files in the run's folder, and
otherwise one step before the values.
"""

import contextlib
import json
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

PHASES = ("startup", "compilation", "evaluation", "checkpoint")
_COUNT = f"a whole number from 0 to {2**63 - 1}"
_NAME = re.compile(r"[^\x00-\x1f\ud800-\udfff]{1,300}")
_SCORE = re.compile(r".+/[^/]+", re.DOTALL)


def as_count(name: str, value: Any) -> int:
    """Return a step or a count as an int; any whole number is accepted, such as 2.0 or a NumPy scalar.

    Raises:
        ValueError: The value isn't a whole number from 0 to 2**63 - 1; the message contains `name`.
    """
    number = _number(value)
    if number is None or number % 1 != 0 or not 0 <= number < 2**63:
        raise _invalid(name, value, _COUNT)
    return int(number)


def as_amount(name: str, value: Any) -> float:
    """Return FLOPs or seconds as a float; ValueError unless finite and nonnegative."""
    number = _number(value)
    if number is None or not 0 <= number < math.inf:
        raise _invalid(name, value, "a finite number that isn't negative")
    return float(number)


def as_name(name: Any) -> str:
    """Return a name that every database accepts; ValueError for others."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _invalid("name", name, "1 to 300 characters without control characters")
    return name


def as_phase(name: Any) -> str:
    """Return the name of a phase other than training; ValueError for others."""
    if not isinstance(name, str) or name not in PHASES:
        raise _invalid("phase", name, f"one of {', '.join(PHASES)}")
    return name


def as_metrics(values: Any) -> dict[str, float]:
    """Return metrics by name as floats, None as NaN.

    Raises:
        ValueError: A value isn't a number, or a name is invalid.
    """
    if not isinstance(values, Mapping):
        raise _invalid("metrics", values, "a mapping of names to numbers")
    metrics = {}
    for name, value in values.items():
        number = math.nan if value is None else _number(value)
        if number is None:
            raise _invalid(f"value of {as_name(name)!r}", value, "a number")
        metrics[as_name(name)] = float(number)
    return metrics


def as_scores(values: Any) -> dict[str, float]:
    """Return scores as `as_metrics` does; ValueError for a name that isn't `dataset/metric`."""
    scores = as_metrics(values)
    for name in scores:
        if not _SCORE.fullmatch(name):
            raise _invalid("name of a score", name, "dataset/metric")
    return scores


def _number(value: Any) -> int | float | None:
    """Convert a number of any type, or an array of one number, to Python's; None if it isn't a number."""
    try:
        plain = value.item() if hasattr(value, "item") else value
        number = None if isinstance(plain, (bool, str, bytes)) else float(plain)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    return plain if isinstance(plain, int) and number is not None else number


def _invalid(name: str, value: Any, expected: str) -> ValueError:
    try:
        shown = " ".join(repr(value).split())
    except ValueError:  # Python refuses to print very long integers
        shown = "with thousands of digits"
    return ValueError(
        f"invalid {name} {shown if len(shown) <= 60 else shown[:57] + '…'}: expected {expected}"
    )


class Totals(NamedTuple):
    """Totals of a run at an evaluation; None if unknown."""

    examples_seen: int | None
    flops_total: float | None
    seconds: float | None


class Reporter:
    """Reporting methods of a script's `run`, of a function's `context`, and of the worker's attempt.

    Numbers of NumPy, JAX, and PyTorch, and arrays of one number, are accepted. Values that the store can't
    hold raise a ValueError.
    """

    def log(self, step: int, metrics: Mapping[str, float] | None = None, **named: float) -> None:
        """Report metrics at a step: `log(10, loss=0.5)`, `log(10, {"grad/norm": 2.0})`.

        A second value at the same step replaces the first.
        """
        values = as_metrics({} if metrics is None else metrics)
        self._log(as_count("step", step), values | as_metrics(named))

    def evaluation(
        self,
        step: int,
        examples_seen: int | Mapping[str, float] | None = None,
        flops_total: float | None = None,
        scores: Mapping[str, float] | None = None,
        *,
        seconds: float | None = None,
    ) -> None:
        """Report scores named `dataset/metric`: `evaluation(step, {"digits/accuracy": 0.97})`.

        Args:
            step: Completed steps.
            examples_seen: Examples trained on so far; None if unknown. A mapping here is the scores.
            flops_total: FLOPs so far; None if unknown.
            scores: Name → score.
            seconds: Seconds of training so far; None for the time since the program started, plus that of
                earlier attempts until their last evaluation.
        """
        if isinstance(examples_seen, Mapping) and scores is None:
            examples_seen, scores = None, examples_seen
        totals = Totals(
            None if examples_seen is None else as_count("examples_seen", examples_seen),
            None if flops_total is None else as_amount("flops_total", flops_total),
            None if seconds is None else as_amount("seconds", seconds),
        )
        self._evaluation(as_count("step", step), as_scores({} if scores is None else scores), totals)

    def artifact(self, name: str, path: str | Path) -> None:
        """Report a file or folder inside the lab, preferably in `directory`; record its size and digest."""
        self._artifact(as_name(name), Path(path).absolute())

    def progress(self, step: int, total_steps: int) -> None:
        """Report the number of completed steps."""
        self._progress(as_count("step", step), as_count("total_steps", total_steps))

    def flush(self) -> None:
        """Block until all reports are durable. Call it before a checkpoint, so that none is ahead of the
        store."""

    # Subclasses implement these; their arguments have been checked.

    def _log(self, step: int, metrics: dict[str, float]) -> None:
        raise NotImplementedError

    def _evaluation(self, step: int, scores: dict[str, float], totals: Totals) -> None:
        raise NotImplementedError

    def _artifact(self, name: str, path: Path) -> None:
        raise NotImplementedError

    def _progress(self, step: int, total_steps: int) -> None:
        raise NotImplementedError


@dataclass
class ScriptRun(Reporter):
    """The run of a script.

    Attributes:
        seed: Seed of this replicate.
        directory: Folder for the run's files; it exists.
        resume: The same folder if an earlier attempt left files in it, else None. The attempt may have been
            killed before it saved a checkpoint: check that the files exist.
        config: The whole config, including `seed`.
        needs: Role → folder of the dependency.
        is_first: Whether this process reports: the only one, or that with RANK 0.
    """

    seed: int
    directory: Path
    resume: Path | None
    config: dict[str, Any]
    needs: dict[str, Path]
    is_first: bool = True
    _inner_seconds: float = field(default=0.0, init=False)  # of phases nested in the current one

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Context whose time doesn't count as training: `with run.phase("checkpoint"): save(model)`.

        Args:
            name: "startup", "compilation", "evaluation", or "checkpoint". A checkpoint contains the last
                reported step, and is complete when the context ends.
        """
        name = as_phase(name)
        began, outer, self._inner_seconds = time.perf_counter(), self._inner_seconds, 0.0
        try:
            yield
            seconds = max(0.0, time.perf_counter() - began - self._inner_seconds)
            self._send({"type": "phase", "name": name, "seconds": round(seconds, 3)})
        finally:
            self._inner_seconds = outer + time.perf_counter() - began

    def stop_requested(self) -> bool:
        """Whether to save a checkpoint and exit. After the first call, SIGTERM no longer ends the script."""
        return False

    def _log(self, step: int, metrics: dict[str, float]) -> None:
        self._send({"type": "log", "step": step, "metrics": metrics})

    def _evaluation(self, step: int, scores: dict[str, float], totals: Totals) -> None:
        known = {name: total for name, total in totals._asdict().items() if total is not None}
        self._send({"type": "evaluation", "step": step, **known, "scores": scores})

    def _artifact(self, name: str, path: Path) -> None:
        self._send({"type": "artifact", "name": name, "path": str(path)})

    def _progress(self, step: int, total_steps: int) -> None:
        self._send({"type": "progress", "step": step, "total_steps": total_steps})

    def _send(self, message: dict[str, Any]) -> None:
        """Print a message of the protocol."""
        if not self.is_first:
            return
        values = {key: value for key, value in message.items() if key not in ("type", "metrics", "scores")}
        values |= message.get("metrics", {}) | message.get("scores", {})
        text = ", ".join(f"{name} {value}" for name, value in values.items())
        try:
            sys.stdout.write(f"{message['type']}: {text}\n")
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has ended, as in `python script.py | head`; the script continues
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Reporting(ScriptRun):
    """A run that reports to jestlab's worker."""

    def __init__(self, reports: str, replies: str, **about: Any) -> None:
        super().__init__(**about)
        self._reports = os.open(reports, os.O_WRONLY | os.O_CLOEXEC)
        self._replies = os.open(replies, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""
        self._flush_id = 0
        self._flushed = 0  # id of the last answer
        self._stop = False
        self._listens = False
        self._writing = threading.Lock()
        self._reading = threading.RLock()  # reentrant for signal handlers

    def flush(self) -> None:
        if not self.is_first:
            return
        with self._reading:
            self._flush_id += 1
            flush_id = self._flush_id
            self._send({"type": "flush", "id": flush_id})
            os.set_blocking(self._replies, True)
            try:
                while self._flushed < flush_id:
                    if not self._read():
                        raise ConnectionError("jestlab's worker has ended: reports may be lost")
            finally:
                os.set_blocking(self._replies, False)

    def stop_requested(self) -> bool:
        if not self._listens:
            self._listens = True
            main = threading.current_thread() is threading.main_thread()
            if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self._on_signal)
        if self.is_first:  # an answer is read by one process only; the others get SIGTERM
            with self._reading, contextlib.suppress(BlockingIOError):
                self._read()
        return self._stop

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop = True

    def _read(self) -> bool:
        """Read answers; return whether there may be more."""
        block = os.read(self._replies, 1 << 16)
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self._stop |= message["type"] == "stop"
            if message["type"] == "flushed":
                self._flushed = max(self._flushed, message["id"])
        return bool(block)

    def _send(self, message: dict[str, Any]) -> None:
        if not self.is_first:
            return
        left = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        with self._writing:
            while left:
                left = left[os.write(self._reports, left) :]


def run() -> ScriptRun:
    """Return the run of this process; without jestlab, one that prints its reports.

    In a process with another RANK than 0, reports have no effect.

    Raises:
        ConnectionError: The worker that started this has ended.
    """
    environ = os.environ
    is_first = environ.get("RANK", "0") == "0"
    if "JESTLAB_REPORTS" not in environ:
        return ScriptRun(0, Path.cwd(), None, {}, {}, is_first)
    needs = json.loads(environ["JESTLAB_NEEDS"])
    try:
        return _Reporting(
            environ["JESTLAB_REPORTS"],
            environ["JESTLAB_REPLIES"],
            seed=int(environ["JESTLAB_SEED"]),
            directory=Path(environ["JESTLAB_RUN_DIR"]),
            resume=Path(environ["JESTLAB_RESUME"]) if environ["JESTLAB_RESUME"] else None,
            config=json.loads(Path(environ["JESTLAB_RUN_CONFIG"]).read_text(encoding="utf-8")),
            needs={role: Path(folder) for role, folder in needs.items()},
            is_first=is_first,
        )
    except FileNotFoundError as error:
        raise ConnectionError(f"jestlab's worker has ended: {error}") from None
