"""Show what happens during a launch: progress bars on a terminal, one line per change elsewhere."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING

from jestlab.platform.launch.pace import Pace
from jestlab.platform.launch.reconcile import Target
from jestlab.platform.logs import one_line
from jestlab.platform.render import has_styles, in_state, render, styled
from jestlab.platform.store.records import Progress, RunState

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID
    from rich.text import Text

_WIDE = 100  # columns from which loss and rate find room beside label, bar and time
_LONG = 2_000  # letters of a message; what a terminal would obey is none of them


class Listener:
    """Receives every change during a launch; this one ignores all of it."""

    def begin(self, count: int) -> None:
        """So many runs of the study are not COMPLETED, and so are launched."""

    def state(self, run: Target, state: RunState, reason: str | None = None) -> None:
        """A run has a new state, or another reason for it. It stays in one that is terminal."""

    def note(self, message: str) -> None:
        """Something happened that concerns no single run."""

    def submitted(self, done: int, total: int) -> None:
        """So many of the runs that can start now are launched; called where they are too many for one go."""

    def progress(self, found: Mapping[str, Progress]) -> None:
        """The running runs are this far, by fingerprint; called about once a second."""

    def end(self) -> None:
        """The launch is over; no further calls follow."""


def display(experiment: str, stream: IO[str] | None = None, task: str = "to run") -> Listener:
    """Return the display of an experiment's runs that suits a stream, by default standard output."""
    stream = stream or sys.stdout
    return Moving(experiment, stream) if stream.isatty() else Lines(experiment, stream, task)


def display_here(experiment: str) -> Listener:
    """Return the display of an experiment's runs that suits a script, or the kernel of a notebook."""
    from jestlab.platform.launch.notebook import Notebook, in_notebook

    return Notebook() if in_notebook() else display(experiment)


class Passing(Listener):
    """Passes on everything: the base of those that do something besides."""

    def __init__(self, listener: Listener) -> None:
        """Create one in front of another listener."""
        self._listener = listener

    def begin(self, count: int) -> None:
        """Pass it on."""
        self._listener.begin(count)

    def state(self, run: Target, state: RunState, reason: str | None = None) -> None:
        """Pass it on."""
        self._listener.state(run, state, reason)

    def note(self, message: str) -> None:
        """Pass it on."""
        self._listener.note(message)

    def submitted(self, done: int, total: int) -> None:
        """Pass it on."""
        self._listener.submitted(done, total)

    def progress(self, found: Mapping[str, Progress]) -> None:
        """Pass it on."""
        self._listener.progress(found)

    def end(self) -> None:
        """Pass it on."""
        self._listener.end()


class Noting(Passing):
    """Passes on everything, and keeps what is noted.

    Attributes:
        notes: The messages so far.
    """

    def __init__(self, listener: Listener) -> None:
        """Create one in front of another listener."""
        super().__init__(listener)
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        """Keep a message, and pass it on."""
        self.notes.append(one_line(message, _LONG))
        super().note(message)


class Lines(Listener):
    """Prints one plain line per change of state."""

    def __init__(self, experiment: str, stream: IO[str], task: str = "to run") -> None:
        """Create a display of an experiment's runs on a stream; `task` is what is done with them."""
        self._experiment = experiment
        self._stream = stream
        self._task = task
        self._total = 0
        self._ended = 0
        self._started: dict[str, float] = {}

    def begin(self, count: int) -> None:
        """Print how many runs there are."""
        self._total += count  # of another round
        self._print(styled(f"{count} {self._task}"))

    def state(self, run: Target, state: RunState, reason: str | None = None) -> None:
        """Print which run is in what state."""
        self._ended += state.is_terminal
        self._print(self._line(run, state, reason))

    def note(self, message: str) -> None:
        """Print a message as a line of its own."""
        self._print(styled(one_line(message, _LONG)))

    def submitted(self, done: int, total: int) -> None:
        """Print how many runs are launched."""
        self._print(styled(f"submitted {done} of {total}"))

    def _line(self, run: Target, state: RunState, reason: str | None) -> Text:
        line = in_state(f"{state:<9}", state) + f"  {self._name(run)}"
        if state == RunState.RUNNING:
            self._started[run.fingerprint] = time.monotonic()
        elif run.fingerprint in self._started:
            line += f", {time.monotonic() - self._started.pop(run.fingerprint):.0f} s"
        if state.is_terminal:
            line = styled(f"[{self._ended}/{self._total}] ") + line
        return line + f": {one_line(reason, _LONG)}" if reason else line

    def _name(self, run: Target) -> str:
        """Name a run so that a shell takes it."""
        return shlex.quote(one_line(f"{self._experiment}/{run.label}/{run.seed}"))

    def _print(self, line: Text) -> None:
        print(render(line, styles=has_styles(self._stream)), file=self._stream, flush=True)


class Moving(Lines):
    """Prints lines for ended runs and, below them, a bar for each running run and one for all."""

    def __init__(self, experiment: str, stream: IO[str]) -> None:
        """Create a display of an experiment's runs on a terminal."""
        super().__init__(experiment, stream)
        self._bars: Bars | None = None
        self._all: TaskID | None = None
        self._tasks: dict[str, TaskID] = {}
        self._paces: dict[str, Pace] = {}

    def begin(self, count: int) -> None:
        """Draw the bar for all runs."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, Task, TextColumn, TimeRemainingColumn
        from rich.text import Text

        class _Remaining(TimeRemainingColumn):
            """Shows the time left of a run; none for all of them, whose lengths differ."""

            def render(self, task: Task) -> Text:
                return Text("") if task.fields.get("of_all") else super().render(task)

        self._total += count  # of another round
        console = Console(file=self._stream)
        wide = console.width >= _WIDE
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[done]}", markup=False),
            *(TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in ("loss", "rate") if wide),
            _Remaining(),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._all = self._bars.add_task(
            "all runs", total=self._total, completed=self._ended,
            done=f"{self._ended}/{self._total} runs", loss="", rate="", of_all=True,
        )  # fmt: skip
        self._bars.start()

    def state(self, run: Target, state: RunState, reason: str | None = None) -> None:
        """Add or remove the run's bar."""
        if self._bars is None or self._all is None:
            return
        if state == RunState.RUNNING:
            self._line(run, state, reason)  # starts its clock
            title = one_line(f"{run.label}/{run.seed}")
            self._tasks[run.fingerprint] = self._bars.add_task(
                title, total=None, done="starting", loss="", rate=""
            )
            return
        if run.fingerprint in self._tasks:
            self._bars.remove_task(self._tasks.pop(run.fingerprint))
        super().state(run, state, reason)
        self._bars.update(self._all, completed=self._ended, done=f"{self._ended}/{self._total} runs")

    def submitted(self, done: int, total: int) -> None:
        """Say beside the bar for all runs how many are launched."""
        if self._bars is not None and self._all is not None:
            said = f"all runs, submitted {done} of {total}" if done < total else "all runs"
            self._bars.update(self._all, description=said, refresh=True)

    def progress(self, found: Mapping[str, Progress]) -> None:
        """Update the bars of the running runs."""
        for fingerprint, progress in found.items():
            if self._bars is None or fingerprint not in self._tasks or not progress.total_steps:
                continue
            latest = progress.latest
            rate = self._paces.setdefault(fingerprint, Pace()).add(progress).examples
            self._bars.update(
                self._tasks[fingerprint],
                completed=progress.step,
                total=progress.total_steps,
                done=f"{progress.step}/{progress.total_steps} steps",
                loss=f"loss {latest['loss']:.4g}" if "loss" in latest else "",
                rate=f"{rate:,.0f} examples/s" if rate else "",
                refresh=True,
            )

    def end(self) -> None:
        """Remove the bars from the terminal."""
        if self._bars is not None:
            self._bars.stop()

    def _print(self, line: Text) -> None:
        if self._bars is None:
            super()._print(line)
            return
        self._bars.console.print(line)
