"""Display a launch: progress bars on a terminal, otherwise one line per change."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING

from jestlab.analysis import units
from jestlab.platform.launch import detached
from jestlab.platform.launch.reconcile import Target, title
from jestlab.platform.logs import one_line
from jestlab.platform.programs.failures import headline
from jestlab.platform.render import has_styles, in_state, render, styled
from jestlab.platform.store.records import RunProgress, RunState

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from rich.text import Text

EXAMPLES = "examples_seen"
"""Name of the metric that counts training examples. Its increase per second is shown as the speed."""

MAX_CHARACTERS = 2_000
"""Maximum number of characters of a message."""

_MIN_WIDE_COLUMNS = 100  # width in characters from which loss and rate are shown as well


class Listener:
    """Receives the events of a launch. This base class displays nothing, and only collects the messages.

    Attributes:
        notes: The messages so far.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []

    def begin(self, count: int) -> None:
        """Handle the start of a launch, or of a further round, with `count` runs to complete."""

    def state(self, run: Target, state: RunState, reason: str | None = None) -> None:
        """Handle a new state of a run, or a new reason for its state. Terminal states are final."""

    def note(self, message: str) -> None:
        """Handle a message about the launch as a whole."""
        self.notes.append(one_line(message, MAX_CHARACTERS))

    def progress(self, by_run: Mapping[str, RunProgress]) -> None:
        """Handle the progress of all running runs: fingerprint → progress. Called about once a second."""

    def end(self) -> None:
        """Handle the end of the launch."""


def display(experiment: str, stream: IO[str] | None = None, task: str = "to run") -> Listener:
    """Return a listener that displays a launch of an experiment, by default on stdout."""
    stream = stream or sys.stdout
    return ProgressBars(experiment, stream) if stream.isatty() else Lines(experiment, stream, task)


class Lines(Listener):
    """Prints one plain line per change of state."""

    def __init__(self, experiment: str, stream: IO[str], task: str = "to run") -> None:
        """Create a display on a stream. `task` follows the number of runs, as in "3 to run"."""
        super().__init__()
        self._experiment = experiment
        self._stream = stream
        self._task = task
        self._total = 0
        self._ended = 0
        self._started: dict[str, float] = {}

    def begin(self, count: int) -> None:
        """Print the number of runs; in the background, also signal the start to the waiting command."""
        detached.signal_start()
        self._total += count  # of all rounds
        self._print(styled(f"{count} {self._task}"))

    def state(self, run: Target, state: RunState, reason: str | None = None) -> None:
        """Print the state of a run; a terminal state also counts the run as ended."""
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
            line += f", {units.duration((time.monotonic() - self._started.pop(run.fingerprint)) / 3600)}"
        if state.is_terminal:
            line = styled(f"[{self._ended}/{self._total}] ") + line
        reason = headline(reason) if reason and state == RunState.FAILED else reason
        return line + f": {one_line(reason, MAX_CHARACTERS)}" if reason else line

    def _print(self, line: Text) -> None:
        print(render(line, styles=has_styles(self._stream)), file=self._stream, flush=True)


class ProgressBars(Lines):
    """Prints a line for each finished run, and below the lines a bar per running run and one for all runs."""

    def __init__(self, experiment: str, stream: IO[str]) -> None:
        """Create a display on a terminal."""
        super().__init__(experiment, stream)
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}  # fingerprint → bar; "" → bar of all runs

    def begin(self, count: int) -> None:
        """Start the display with a bar for all runs."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._total += count  # of all rounds
        console = Console(file=self._stream)
        fields = ["done", *(["loss", "rate"] if console.width >= _MIN_WIDE_COLUMNS else []), "left"]
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            *(TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in fields),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._add("", "all runs", done="")
        self._update_all()
        self._bars.start()

    def state(self, run: Target, state: RunState, reason: str | None = None) -> None:
        """Add a bar if the run is running; else print a line and remove the bar."""
        if self._bars is None:
            return
        if state == RunState.RUNNING:
            self._line(run, state, reason)  # stores the start time
            self._add(run.fingerprint, one_line(title(run)), done="starting")
            return
        if run.fingerprint in self._tasks:
            self._bars.remove_task(self._tasks.pop(run.fingerprint))
        super().state(run, state, reason)
        self._update_all()

    def progress(self, by_run: Mapping[str, RunProgress]) -> None:
        """Update the bars of the running runs."""
        for fingerprint, progress in by_run.items():
            if self._bars is None or fingerprint not in self._tasks or not progress.total_steps:
                continue
            loss, rate = progress.latest.get("loss"), progress.per_second(EXAMPLES)
            left = progress.seconds_left
            self._bars.update(
                self._tasks[fingerprint],
                completed=progress.step,
                total=progress.total_steps,
                done=f"{progress.step}/{progress.total_steps} steps",
                loss="" if loss is None else f"loss {loss:.4g}",
                rate=f"{rate:,.0f} examples/s" if rate else "",
                left="" if left is None else f"{units.duration(left / 3600)} left",
                refresh=True,
            )

    def end(self) -> None:
        """Remove the bars from the terminal."""
        if self._bars is not None:
            self._bars.stop()

    def _add(self, key: str, description: str, done: str) -> None:
        assert self._bars is not None
        task = self._bars.add_task(description, total=None, done=done, loss="", rate="", left="")
        self._tasks[key] = task

    def _update_all(self) -> None:
        assert self._bars is not None
        done = f"{self._ended}/{self._total} runs"
        self._bars.update(self._tasks[""], completed=self._ended, total=self._total, done=done)

    def _print(self, line: Text) -> None:
        if self._bars is None:
            super()._print(line)
        else:
            self._bars.console.print(line)
