"""What a user's own script reports through, when jestlab runs it as a command (`program: command`).

    from jestlab.platform import client

    run = client.run()
    model = load(run.resume / "model.npz") if run.resume else new(run.seed, run.config["width"])
    for step in range(steps):
        run.log(step, loss=loss)
        if run.stop_requested():
            break                             # save first; the next attempt finds it in run.resume
    run.evaluation(step, scores={"digits/accuracy": 0.97})

Run by hand, without jestlab, the same script prints what it reports. This module needs the standard library
alone: where jestlab is not installed, a copy of this file does.

The protocol, for any other language: one message a line, JSON, in UTF-8, at most 1 MiB, written to the path
in JESTLAB_REPORTS (`echo '{"type": "progress", …}' > "$JESTLAB_REPORTS"`). Several processes may write at
once: lines up to 4,096 bytes stay whole. A line that is none of these fails the run:

    {"type": "log", "step": 10, "metrics": {"loss": 0.5}}         null or NaN: not a number
    {"type": "evaluation", "step": 10, "scores": {"toy/top1": 0.9}}
        and, if known, what was spent by then: "examples_seen": 640, "flops_total": 1e9, "seconds": 12.5
    {"type": "artifact", "name": "model", "path": "model.npz"}    from the run's folder; inside the lab
    {"type": "progress", "step": 10, "total_steps": 100}
    {"type": "phase", "name": "checkpoint", "seconds": 1.5}       what the seconds before it went to; else
        training: "startup", "compilation", "evaluation", or "checkpoint", which is then complete
    {"type": "flush", "id": 7}                                    when all is durable, answers "flushed"

Answers are lines of JSON, too, read from the path in JESTLAB_REPLIES, by one process: {"type": "flushed",
"id": 7}, and {"type": "stop"} when the run is asked to stop, just before SIGTERM. A writer that is faster
than the store waits; what was written before the command ends is never lost. The same step again replaces
a value. A further attempt replaces what earlier attempts reported after the step from which it goes on: that
of its first progress, if values at a later step follow. Else it goes on just before its first values, or
starts over if the next values come at twice that step or later and the run's folder was empty.
"""

from __future__ import annotations

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
from pathlib import Path
from types import FrameType
from typing import Any

_COUNT = f"a whole number from 0 to {2**63 - 1}"
_NAME = re.compile(r"[^\x00-\x1f\ud800-\udfff]{1,300}")
_SCORE = re.compile(r".+/[^/]+", re.DOTALL)
_PHASES = ("startup", "compilation", "evaluation", "checkpoint")


def as_count(name: str, value: Any) -> int:
    """Return a step or a count as an integer: whole numbers of any kind, such as 2.0 or a scalar of NumPy.

    Raises:
        ValueError: It isn't a whole number, or the store can't hold it; the error gives its name.
    """
    number = _number(value)
    if number is None or number % 1 != 0 or not 0 <= number < 2**63:
        raise _refused(name, value, _COUNT)
    return int(number)


def as_amount(name: str, value: Any) -> float:
    """Return FLOPs or seconds as a float; ValueError unless it's finite and not negative."""
    number = _number(value)
    if number is None or not 0 <= number < math.inf:
        raise _refused(name, value, "a finite number that isn't negative")
    return float(number)


def as_name(name: Any) -> str:
    """Return a name that every database takes; ValueError for others."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _refused("name", name, "1 to 300 characters without control characters")
    return name


def as_metrics(values: Any) -> dict[str, float]:
    """Return metrics by name as floats, None as NaN; ValueError if one isn't a number, or for its name."""
    if not isinstance(values, Mapping):
        raise _refused("metrics", values, "a mapping of names to numbers")
    metrics = {}
    for name, value in values.items():
        number = math.nan if value is None else _number(value)
        if number is None:
            raise _refused(f"value of {as_name(name)!r}", value, "a number")
        metrics[as_name(name)] = float(number)
    return metrics


def as_scores(values: Any) -> dict[str, float]:
    """Return scores as `as_metrics` does; ValueError for a name that isn't `dataset/metric`."""
    scores = as_metrics(values)
    for name in scores:
        if not _SCORE.fullmatch(name):
            raise _refused("name of a score", name, "dataset/metric")
    return scores


def as_phase(name: Any) -> str:
    """Return the name of a phase that a program may report; ValueError for others."""
    if name not in _PHASES:
        raise _refused("phase", name, f"{', '.join(_PHASES[:-1])}, or {_PHASES[-1]}")
    return str(name)


def _number(value: Any) -> int | float | None:
    """Return a number of any kind, also in an array of one, as Python's; None if it isn't a number."""
    try:
        plain = value.item() if hasattr(value, "item") else value
        number = None if isinstance(plain, (bool, str, bytes)) else float(plain)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    return plain if isinstance(plain, int) and number is not None else number


def _refused(name: str, value: Any, expected: str) -> ValueError:
    try:
        shown = " ".join(repr(value).split())
    except ValueError:  # Python writes no integer of thousands of digits
        shown = "of thousands of digits"
    return ValueError(
        f"invalid {name} {shown if len(shown) <= 60 else shown[:57] + '…'}: expected {expected}"
    )


class Reporter:
    """What a run can report: the methods of a script's `run` and of a function's `context`.

    Numbers may be of any kind, also NumPy's, JAX's, and PyTorch's, or arrays of one number. What the store
    can't hold is a ValueError of one line.
    """

    def log(self, step: int, metrics: Mapping[str, float] | None = None, **named: float) -> None:
        """Report metrics at a step: `log(10, loss=0.5)`, `log(10, {"grad/norm": 2.0})`.

        The same step again replaces a value.
        """
        values = as_metrics({} if metrics is None else metrics)
        self._send({"type": "log", "step": as_count("step", step), "metrics": values | as_metrics(named)})

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
            step: Steps done.
            examples_seen: Examples trained on until then; None if unknown. A mapping here is the scores.
            flops_total: FLOPs spent until then; None if unknown.
            scores: Name → score.
            seconds: Seconds of training until then; None for those since the program began, and before that
                of earlier attempts until their last evaluation.
        """
        if isinstance(examples_seen, Mapping) and scores is None:
            examples_seen, scores = None, examples_seen
        message: dict[str, Any] = {"type": "evaluation", "step": as_count("step", step)}
        if examples_seen is not None:
            message["examples_seen"] = as_count("examples_seen", examples_seen)
        if flops_total is not None:
            message["flops_total"] = as_amount("flops_total", flops_total)
        if seconds is not None:
            message["seconds"] = as_amount("seconds", seconds)
        self._send(message | {"scores": as_scores({} if scores is None else scores)})

    def artifact(self, name: str, path: str | Path) -> None:
        """Report a file or folder inside the lab, best in `directory`; its size and digest are recorded."""
        self._send({"type": "artifact", "name": as_name(name), "path": str(Path(path).absolute())})

    def progress(self, step: int, total_steps: int) -> None:
        """Report how far the run is."""
        counts = {"step": as_count("step", step), "total_steps": as_count("total_steps", total_steps)}
        self._send({"type": "progress", **counts})

    def _send(self, message: dict[str, Any]) -> None:
        """Report a message of the protocol."""
        raise NotImplementedError


class Run(Reporter):
    """The run that a script is.

    Attributes:
        seed: Replicate.
        directory: Where to keep what it makes; it exists.
        resume: The same folder if an earlier attempt left anything in it, else None. It may have been killed
            before it saved: look for what you need.
        config: The whole config, `seed` included.
        needs: Role → folder of each run that it needs.
    """

    def __init__(
        self, seed: int, directory: Path, resume: Path | None, config: dict[str, Any], needs: dict[str, Path]
    ) -> None:
        """Made by `run`."""
        self.seed = seed
        self.directory = directory
        self.resume = resume
        self.config = config
        self.needs = needs
        self._inner_seconds = 0.0  # of phases within the present one

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Context whose time does not count as training: `with run.phase("checkpoint"): save(model)`.

        Args:
            name: "startup", "compilation", "evaluation" or "checkpoint". A checkpoint holds the step that was
                reported last, and is complete when the context ends; what came after it is lost if the run
                is killed.
        """
        name = as_phase(name)
        began, outer, self._inner_seconds = time.perf_counter(), self._inner_seconds, 0.0
        try:
            yield
            seconds = max(0.0, time.perf_counter() - began - self._inner_seconds)
            self._send({"type": "phase", "name": name, "seconds": round(seconds, 3)})
        finally:
            self._inner_seconds = outer + time.perf_counter() - began

    def flush(self) -> None:
        """Return when all that was reported is durable. Before a checkpoint, so that none is ahead of it."""

    def stop_requested(self) -> bool:
        """Whether to save and end. From the first call on, SIGTERM does not end the script by itself."""
        return False

    def _send(self, message: dict[str, Any]) -> None:
        values = {key: value for key, value in message.items() if key not in ("type", "metrics", "scores")}
        values |= message.get("metrics", {}) | message.get("scores", {})
        said = ", ".join(f"{name} {value}" for name, value in values.items())
        sys.stdout.write(f"{message['type']}: {said}\n")


class _Reporting(Run):
    """A run below jestlab."""

    def __init__(self, reports: str, replies: str, **about: Any) -> None:
        super().__init__(**about)
        self._reports = os.open(reports, os.O_WRONLY | os.O_CLOEXEC)
        self._replies = os.open(replies, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""
        self._flushed = 0  # the last id that was answered
        self._asked = 0
        self._stop = False
        self._listens = False
        self._writing = threading.Lock()
        self._reading = threading.RLock()  # a signal's handler may read while its thread does

    def flush(self) -> None:
        with self._reading:
            self._asked += 1
            asked = self._asked
            self._send({"type": "flush", "id": asked})
            os.set_blocking(self._replies, True)
            try:
                while self._flushed < asked:
                    if not self._read():
                        raise ConnectionError("jestlab's worker has ended: what was reported may be lost")
            finally:
                os.set_blocking(self._replies, False)

    def stop_requested(self) -> bool:
        if not self._listens:
            self._listens = True
            main = threading.current_thread() is threading.main_thread()
            if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self._on_signal)
        with self._reading, contextlib.suppress(BlockingIOError):
            self._read()
        return self._stop

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop = True

    def _read(self) -> bool:
        """Take in answers; whether there may be more."""
        block = os.read(self._replies, 1 << 16)
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self._stop |= message["type"] == "stop"
            if message["type"] == "flushed":
                self._flushed = max(self._flushed, message["id"])
        return bool(block)

    def _send(self, message: dict[str, Any]) -> None:
        left = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        with self._writing:
            while left:
                left = left[os.write(self._reports, left) :]


def run() -> Run:
    """The run that this process works at; without jestlab, one that prints, in the working directory.

    Raises:
        ConnectionError: The worker that started this has ended.
    """
    found = os.environ
    if "JESTLAB_REPORTS" not in found:
        return Run(0, Path.cwd(), None, {}, {})
    needs = json.loads(found["JESTLAB_NEEDS"])
    try:
        return _Reporting(
            found["JESTLAB_REPORTS"],
            found["JESTLAB_REPLIES"],
            seed=int(found["JESTLAB_SEED"]),
            directory=Path(found["JESTLAB_RUN_DIR"]),
            resume=Path(found["JESTLAB_RESUME"]) if found["JESTLAB_RESUME"] else None,
            config=json.loads(Path(found["JESTLAB_RUN_CONFIG"]).read_text(encoding="utf-8")),
            needs={role: Path(folder) for role, folder in needs.items()},
        )
    except FileNotFoundError as error:
        raise ConnectionError(f"jestlab's worker has ended: {error}") from None
