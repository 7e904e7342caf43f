"""Show a launch: progress bars on a terminal, one line per change in a pipe."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING

from jestlab.platform.launch.reconcile import Target, title
from jestlab.platform.logs import one_line
from jestlab.platform.render import has_styles, in_state, render, styled
from jestlab.platform.store.records import RunProgress, RunState

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID
    from rich.text import Text

EXAMPLES = "examples_seen"
"""The metric whose growth is a run's speed."""

LONGEST = 2_000
"""Maximum number of characters of a message."""

_WIDE = 100  # columns from which loss and rate fit next to label, bar, and time


class Listener:
    """Receives all changes during a launch; this one only keeps the messages.

    Attributes:
        notes: The messages so far.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []

    def begin(self, count: int) -> None:
        """Handle the start of a launch or of a further round with a number of runs to complete."""

    def state(self, run: Target, state: RunState, reason: str | None = None) -> None:
        """Handle a new state of a run, or a new reason of its state. Terminal states are final."""

    def note(self, message: str) -> None:
        """Handle a message about the launch as a whole."""
        self.notes.append(one_line(message, LONGEST))

    def progress(self, found: Mapping[str, RunProgress]) -> None:
        """Handle the progress of the running runs, by fingerprint; called about once a second."""

    def end(self) -> None:
        """Handle the end of the launch."""


def display(experiment: str, stream: IO[str] | None = None, task: str = "to run") -> Listener:
    """Return a display for the runs of an experiment on a stream, by default standard output."""
    stream = stream or sys.stdout
    return ProgressBars(experiment, stream) if stream.isatty() else Lines(experiment, stream, task)


class Lines(Listener):
    """Prints one plain line per change of state."""

    def __init__(self, experiment: str, stream: IO[str], task: str = "to run") -> None:
        """Create it for an experiment and a stream; `task` describes what happens to the runs."""
        super().__init__()
        self._experiment = experiment
        self._stream = stream
        self._task = task
        self._total = 0
        self._ended = 0
        self._started: dict[str, float] = {}

    def begin(self, count: int) -> None:
        """Print the number of runs."""
        self._total += count  # of all rounds
        self._print(styled(f"{count} {self._task}"))

    def state(self, run: Target, state: RunState, reason: str | None = None) -> None:
        """Print the new state of a run."""
        self._ended += state.is_terminal
        self._print(self._line(run, state, reason))

    def note(self, message: str) -> None:
        """Print a message."""
        super().note(message)
        self._print(styled(self.notes[-1]))

    def _line(self, run: Target, state: RunState, reason: str | None) -> Text:
        name = shlex.quote(one_line(f"{self._experiment}/{title(run)}"))
        line = in_state(f"{state:<9}", state) + f"  {name}"
        if state == RunState.RUNNING:
            self._started[run.fingerprint] = time.monotonic()
        elif run.fingerprint in self._started:
            line += f", {time.monotonic() - self._started.pop(run.fingerprint):.0f} s"
        if state.is_terminal:
            line = styled(f"[{self._ended}/{self._total}] ") + line
        return line + f": {one_line(reason, LONGEST)}" if reason else line

    def _print(self, line: Text) -> None:
        print(render(line, styles=has_styles(self._stream)), file=self._stream, flush=True)


class ProgressBars(Lines):
    """Prints lines for finished runs and, below them, a bar for each running run and one for all runs."""

    def __init__(self, experiment: str, stream: IO[str]) -> None:
        """Create it for an experiment and a terminal."""
        super().__init__(experiment, stream)
        self._bars: Bars | None = None
        self._all: TaskID | None = None
        self._tasks: dict[str, TaskID] = {}

    def begin(self, count: int) -> None:
        """Draw the bar for all runs."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, Task, TextColumn, TimeRemainingColumn
        from rich.text import Text

        class _Remaining(TimeRemainingColumn):
            """Shows the remaining time of one run; not of all runs, whose lengths differ."""

            def render(self, task: Task) -> Text:
                return Text("") if task.id == 0 else super().render(task)

        self._total += count  # of all rounds
        console = Console(file=self._stream)
        fields = ["done", *(["loss", "rate"] if console.width >= _WIDE else [])]
        first, *others = (TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in fields)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            first,
            *others,
            _Remaining(),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._all = self._add("all runs", total=self._total, completed=self._ended, done=self._count())
        self._bars.start()

    def state(self, run: Target, state: RunState, reason: str | None = None) -> None:
        """Add or remove the bar of a run."""
        if self._bars is None or self._all is None:
            return
        if state == RunState.RUNNING:
            self._line(run, state, reason)  # starts the clock
            self._tasks[run.fingerprint] = self._add(one_line(title(run)), total=None, done="starting")
            return
        if run.fingerprint in self._tasks:
            self._bars.remove_task(self._tasks.pop(run.fingerprint))
        super().state(run, state, reason)
        self._bars.update(self._all, completed=self._ended, done=self._count())

    def progress(self, found: Mapping[str, RunProgress]) -> None:
        """Update the bars of the running runs."""
        for fingerprint, progress in found.items():
            if self._bars is None or fingerprint not in self._tasks or not progress.total_steps:
                continue
            loss = progress.latest.get("loss")
            rate = progress.per_second(EXAMPLES)
            self._bars.update(
                self._tasks[fingerprint],
                completed=progress.step,
                total=progress.total_steps,
                done=f"{progress.step}/{progress.total_steps} steps",
                loss="" if loss is None else f"loss {loss:.4g}",
                rate=f"{rate:,.0f} examples/s" if rate else "",
                refresh=True,
            )

    def end(self) -> None:
        """Remove the bars from the terminal."""
        if self._bars is not None:
            self._bars.stop()

    def _add(self, description: str, *, total: int | None, done: str, completed: int = 0) -> TaskID:
        assert self._bars is not None
        return self._bars.add_task(description, total=total, completed=completed, done=done, loss="", rate="")

    def _count(self) -> str:
        return f"{self._ended}/{self._total} runs"

    def _print(self, line: Text) -> None:
        if self._bars is None:
            super()._print(line)
        else:
            self._bars.console.print(line)
