"""Where the time of an attempt goes: start-up, compilation, training, evaluation, checkpoints, wind-down.

The clock is told when a phase begins and ends, which happens a few times a minute at most; training is what
goes on otherwise, so a step costs nothing. Importing this module is cheap: it needs no JAX.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Phase = Literal["startup", "compilation", "training", "evaluation", "checkpoint", "winddown"]
"""What the time of an attempt goes to."""

PHASES: tuple[Phase, ...] = ("startup", "compilation", "training", "evaluation", "checkpoint", "winddown")

_USEFUL: tuple[Phase, ...] = ("training", "evaluation")
_USUAL: tuple[Phase, ...] = ("training", "startup")
_NO_STEP = 2**63  # what no store can hold
_REMEMBERED = 8  # saves under way
_COMPILES = "/jax/core/compile/"
_FROM_CACHE = "/jax/compilation_cache/cache_retrieval_time_sec"


@dataclass(frozen=True)
class Spent:
    """Where the time of an attempt went until now. The store has a column of each name.

    Attributes:
        startup_seconds: From the start of the process until the first step, without compilation.
        compilation_seconds: Tracing, lowering and compiling, and loading compiled programs.
        training_seconds: Steps, with all that belongs to none of the others.
        evaluation_seconds: Evaluations.
        checkpoint_seconds: Time in which training waited for a checkpoint.
        winddown_seconds: After the program's end; None while it runs.
        resumed_step: Steps that were done when the attempt went on; None before it reported any.
        reached_step: Steps that were done at the last report.
        saved_step: Steps that its last complete checkpoint holds; None before the first.
        saved_seconds: Seconds of training and evaluation until that checkpoint.
    """

    startup_seconds: float
    compilation_seconds: float
    training_seconds: float
    evaluation_seconds: float
    checkpoint_seconds: float
    winddown_seconds: float | None
    resumed_step: int | None
    reached_step: int | None
    saved_step: int | None
    saved_seconds: float | None

    @property
    def whole_seconds(self) -> float:
        """Seconds of all phases."""
        return sum(getattr(self, f"{name}_seconds") or 0.0 for name in PHASES)


class ResumePoint:
    """How many steps were done when an attempt went on, inferred from what it reports.

    A first report of progress gives it, if the first values come at a later step. Else progress is reported
    after a step is done, or not at all, and the attempt went on just before its first values, at step s. It
    started over if earlier attempts left nothing in the run's folder and the next values come at step 2s or
    later: values come at regular steps, so an attempt with values at 100 and 200 started over, and one with
    values at 600 and 700 resumed. It also started over if it then completes with values at step 0 only.

    Attributes:
        step: Steps done; None before any report.
        is_final: Whether no further report changes that.
    """

    def __init__(self) -> None:
        self.step: int | None = None
        self.is_final = False
        self._may_resume = True
        self._first_value: int | None = None

    def finds_nothing(self) -> None:
        """Take note, before the first report, that earlier attempts left nothing in the run's folder."""
        self._may_resume = False

    def reports(self, step: int, is_value: bool) -> None:
        """Take note of a report.

        Args:
            step: Steps done.
            is_value: Whether it is of values at this step; else of progress.
        """
        if self.is_final or (self._first_value and step == self._first_value):
            return
        if not is_value:
            self.step = step if self.step is None else self.step
        elif self._first_value:  # the next values decide
            self.step = 0 if step >= 2 * self._first_value else self.step
            self.is_final = True
        else:
            self._first_value = step
            if step > 0 and self.step is not None and self.step < step:
                self.is_final = True
            elif step > 0:
                self.step = step - 1
                self.is_final = self._may_resume

    def completes(self) -> None:
        """Take note that the program has completed."""
        if self.step is None and self._first_value == 0 and not self._may_resume:
            self.step = 0


class PhaseClock:
    """Divides the time since a process began among phases; each moment is in exactly one of them.

    Phases belong to the thread that made the clock. `saved` and `spent` may be called from any thread.

    Attributes:
        resumed: Where the attempt goes on.
    """

    def __init__(self, already: float = 0.0) -> None:
        """Start it, in start-up.

        Args:
            already: Seconds for which the process has been running.
        """
        self._seconds: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)
        self._seconds["startup"] = already
        self._phases: list[Phase] = ["startup"]  # each within the one before it
        self._since = time.perf_counter()
        self._compiled: list[tuple[float, float]] = []  # begin and end, disjoint, ascending
        self.resumed = ResumePoint()
        self._reached: int | None = None
        self._saved: tuple[int, float] | None = None
        self._saving: dict[int, float] = {}  # steps → seconds of training and evaluation until then
        self._ended = False
        self._thread = threading.get_ident()
        self._lock = threading.Lock()

    def reports(self, step: int, is_value: bool = False, trained: bool = False) -> None:
        """Take note that so many steps are done: the first report ends start-up.

        Args:
            step: Steps done.
            is_value: Whether values at this step are reported; else progress.
            trained: Whether the time before a first report was mostly training, not start-up.
        """
        step = int(step)
        if not 0 <= step < _NO_STEP:  # whoever records it says so
            return
        with self._lock:
            if self._reached is None:
                self._advance()
                self._begin_training(trained)
            self.resumed.reports(step, is_value)
            self._reached = step

    @contextlib.contextmanager
    def phase(self, name: Phase, step: int | None = None) -> Iterator[None]:
        """Context whose time counts as a phase.

        Args:
            name: The phase.
            step: Steps done when it begins. `saved` with this number refers to this moment.
        """
        if step is not None:
            self.reports(step)
        with self._lock:
            self._advance()
            if name == "checkpoint":
                self._note_saving()
            self._phases.append(name)
            depth = len(self._phases)
        try:
            yield
        finally:
            with self._lock:
                self._advance()
                del self._phases[depth - 1 :]

    def move(self, name: Phase, seconds: float) -> None:
        """Count seconds that have just passed as another phase.

        They are taken from the present one, and what it lacks from training and start-up: a report may have
        come late.
        """
        with self._lock:
            self._move(name, seconds)
            if name == "checkpoint":
                self._note_saving()

    def compiled(self, seconds: float) -> None:
        """Count seconds that have just passed as compilation, unless they are counted already.

        Other threads compile while training goes on, so their time is not counted.
        """
        if threading.get_ident() != self._thread:
            return
        end = time.perf_counter()
        begin, counted = end - seconds, 0.0
        with self._lock:
            while self._compiled and self._compiled[-1][1] > begin:  # within this one: counted before
                earlier, until = self._compiled.pop()
                counted += until - earlier
                begin = min(begin, earlier)
            del self._compiled[:-_REMEMBERED]
            self._compiled.append((begin, end))
            self._move("compilation", end - begin - counted)

    def saved(self, step: int | None = None) -> None:
        """Take note that a checkpoint is complete: of a step, or else the last one that was begun."""
        with self._lock:
            if step is None:
                if not self._saving:
                    self._advance()
                    self._note_saving()
                step = max(self._saving, default=None)
            if step is not None and step in self._saving:
                self._saved = (step, self._saving[step])
                self._saving = {later: at for later, at in self._saving.items() if later > step}

    def wind_down(self) -> None:
        """Take note that the program has ended."""
        with self._lock:
            self._advance()
            if self._reached is None:  # it reported no step: nobody knows how long it took to start
                self._begin_training(trained=True)
            self._phases, self._ended = ["winddown"], True

    def spent(self) -> Spent:
        """Return where the time has gone until now."""
        with self._lock:
            self._advance()
            at = {name: max(0.0, seconds) for name, seconds in self._seconds.items()}
            saved_step, saved_seconds = self._saved or (None, None)
            return Spent(
                startup_seconds=at["startup"],
                compilation_seconds=at["compilation"],
                training_seconds=at["training"],
                evaluation_seconds=at["evaluation"],
                checkpoint_seconds=at["checkpoint"],
                winddown_seconds=at["winddown"] if self._ended else None,
                resumed_step=self.resumed.step,
                reached_step=self._reached,
                saved_step=saved_step,
                saved_seconds=saved_seconds,
            )

    def _begin_training(self, trained: bool) -> None:
        if self._phases[0] == "startup":
            self._phases[0] = "training"
            if trained:
                self._seconds["training"] += self._seconds["startup"]
                self._seconds["startup"] = 0.0

    def _advance(self) -> None:
        """Count the time since the last call as the present phase."""
        now = time.perf_counter()
        self._seconds[self._phases[-1]] += now - self._since
        self._since = now

    def _move(self, name: Phase, seconds: float) -> None:
        self._advance()
        left = max(0.0, seconds)
        for phase in dict.fromkeys((self._phases[-1], *_USUAL)):
            moved = min(left, max(0.0, self._seconds[phase]))
            self._seconds[phase] -= moved
            self._seconds[name] += moved
            left -= moved

    def _note_saving(self) -> None:
        """Remember the seconds until the last reported step, for when its checkpoint is complete."""
        if self._reached is not None:
            self._saving[self._reached] = sum(self._seconds[name] for name in _USEFUL)
            while len(self._saving) > _REMEMBERED:
                del self._saving[min(self._saving)]


def count_compilation(clock: PhaseClock) -> None:
    """Let JAX tell a clock what it traces, lowers and compiles, if this process has imported JAX."""
    if "jax" not in sys.modules:
        return
    from jax import monitoring

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event.startswith(_COMPILES) or event == _FROM_CACHE:
            clock.compiled(duration_secs)

    monitoring.register_event_duration_secs_listener(listen)
