"""How long an attempt (one start of a run's process) spends on start-up, compilation, training, and so on.

The clock is notified when a phase starts and ends, a few times a minute. All other time is training, so a
step has no overhead. Importing this module is cheap: it doesn't import JAX.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

Phase = Literal["startup", "compilation", "training", "evaluation", "checkpoint", "winddown"]
PHASES: tuple[Phase, ...] = get_args(Phase)


@dataclass(frozen=True)
class Spent:
    """How the time of an attempt was spent so far. The store has a column for each attribute."""

    startup_seconds: float  # from the start of the process until the first step, without compilation
    compilation_seconds: float  # tracing, lowering, compiling, and loading compiled programs
    training_seconds: float  # steps, and all other time
    evaluation_seconds: float
    checkpoint_seconds: float  # time that training waited for checkpoints
    winddown_seconds: float | None  # after the end of the program; None while it runs
    resumed_step: int | None  # completed steps when the attempt resumed; None before its first report
    reached_step: int | None  # completed steps at the last report
    saved_step: int | None  # steps in the last complete checkpoint; None before the first
    saved_seconds: float | None  # seconds of training and evaluation until that checkpoint

    @property
    def whole_seconds(self) -> float:
        """Seconds of all phases."""
        return sum(getattr(self, f"{name}_seconds") or 0.0 for name in PHASES)


@dataclass
class ResumePoint:
    """The step from which an attempt resumed, according to its first report.

    Attributes:
        step: Completed steps; None before the first report.
        is_first: Whether this is the first attempt of the run, which starts at step 0.
        is_empty: Whether earlier attempts left no files in the run's folder.
        has_reported: Whether there was any report.
    """

    step: int | None = None
    is_first: bool = False
    is_empty: bool = False
    has_reported: bool = False

    def reports(self, step: int, is_value: bool) -> None:
        """Process a report: of values at this step, or else of progress.

        The first progress states the resumed step, also of checkpoints outside the folder. If values come
        first, the attempt started over if the folder is empty, and otherwise resumed one step before. Values
        at step 0 describe the whole run.
        """
        self.has_reported = True
        if self.step is None and (self.is_first or step > 0 or not is_value):
            starts_over = self.is_first or (self.is_empty and is_value)
            self.step = 0 if starts_over else step - is_value

    def completes(self) -> None:
        """Process the end of the program: values at step 0 alone are a new start in an empty folder."""
        if self.step is None and self.is_empty and self.has_reported:
            self.step = 0


class PhaseClock:
    """Divides the time since the start of a process among phases; each moment belongs to one phase.

    Phases belong to the thread that created the clock. `saved` and `spent` can be called from any thread.

    Attributes:
        resumed: The step from which the attempt resumed.
    """

    def __init__(self, already: float = 0.0) -> None:
        """Start the clock in start-up; the process has been running for `already` seconds."""
        self.resumed = ResumePoint()
        self._seconds: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)
        self._seconds["startup"] = already
        self._phases: list[Phase] = ["startup"]  # nested, the current one last
        self._since = time.perf_counter()
        self._compiled: list[tuple[float, float]] = []  # start and end, disjoint, ascending
        self._reached: int | None = None
        self._saving: dict[int, float] = {}  # step → seconds of training and evaluation until then
        self._saved: tuple[int | None, float | None] = None, None
        self._thread = threading.get_ident()
        self._lock = threading.RLock()

    def reports(self, step: int, is_value: bool = False, trained: bool = False) -> None:
        """Process a report of completed steps. The first one ends start-up.

        Args:
            step: Completed steps.
            is_value: Whether values are reported, or else progress.
            trained: Whether the time before a first report was mostly training.
        """
        with self._lock:
            if self._reached is None:
                self._begin_training(trained)
            self.resumed.reports(step, is_value)
            self._reached = step

    @contextlib.contextmanager
    def phase(self, name: Phase, step: int | None = None) -> Iterator[None]:
        """Context whose time counts as a phase.

        Args:
            name: The phase.
            step: Completed steps at its start; `saved(step)` refers to this moment.
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
        """Count up to so many seconds of the current phase, training, and start-up as another phase."""
        with self._lock:
            self._advance()
            sources: tuple[Phase, ...] = (self._phases[-1], "training", "startup")
            for source in sources:
                moved = max(0.0, min(seconds, self._seconds[source]))
                self._seconds[source] -= moved
                self._seconds[name] += moved
                seconds -= moved
            if name == "checkpoint":
                self._note_saving()

    def compiled(self, seconds: float) -> None:
        """Count the last seconds as compilation, except for nested compilations that are already counted.

        Other threads compile while training continues, so their time is not counted.
        """
        if threading.get_ident() != self._thread:
            return
        end = time.perf_counter()
        start, counted = end - seconds, 0.0
        with self._lock:
            while self._compiled and self._compiled[-1][1] > start:
                inner_start, inner_end = self._compiled.pop()
                counted += inner_end - inner_start
                start = min(start, inner_start)
            self._compiled.append((start, end))
            self.move("compilation", end - start - counted)

    def saved(self, step: int | None = None) -> None:
        """Process a complete checkpoint of a step; None for the last one that was started."""
        with self._lock:
            if step is None and not self._saving:
                self._advance()
                self._note_saving()
            step = max(self._saving, default=None) if step is None else step
            if step is not None and step in self._saving:
                self._saved = step, self._saving[step]
                self._saving = {later: at for later, at in self._saving.items() if later > step}

    def wind_down(self) -> None:
        """Process the end of the program."""
        with self._lock:
            if self._reached is None:  # without reports, the end of start-up is unknown
                self._begin_training(trained=True)
            self._advance()
            self._phases = ["winddown"]

    def spent(self) -> Spent:
        """Return how the time was spent so far."""
        with self._lock:
            self._advance()
            spent: dict[str, Any] = {f"{name}_seconds": self._seconds[name] for name in PHASES}
            if self._phases[0] != "winddown":
                spent["winddown_seconds"] = None
            spent |= {"resumed_step": self.resumed.step, "reached_step": self._reached}
            return Spent(**spent, saved_step=self._saved[0], saved_seconds=self._saved[1])

    def _begin_training(self, trained: bool) -> None:
        """End start-up, and count it as training if most of it was."""
        self._advance()
        if self._phases[0] == "startup":
            self._phases[0] = "training"
            if trained:
                self._seconds["training"] += self._seconds["startup"]
                self._seconds["startup"] = 0.0

    def _advance(self) -> None:
        """Count the time since the last call as the current phase."""
        now = time.perf_counter()
        self._seconds[self._phases[-1]] += now - self._since
        self._since = now

    def _note_saving(self) -> None:
        """Remember the seconds until the last reported step, for `saved`."""
        if self._reached is not None:
            self._saving[self._reached] = self._seconds["training"] + self._seconds["evaluation"]


def count_compilation(clock: PhaseClock) -> None:
    """Count JAX's tracing, lowering, and compiling as compilation, if this process has imported JAX."""
    if "jax" not in sys.modules:
        return
    from jax import monitoring

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event.startswith("/jax/core/compile/") or event.endswith("/cache_retrieval_time_sec"):
            clock.compiled(duration_secs)

    monitoring.register_event_duration_secs_listener(listen)
