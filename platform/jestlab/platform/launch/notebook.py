"""Show the progress of a launch in a notebook, in one output that is updated."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from html import escape
from typing import Any

from jestlab.platform.launch.display import LONGEST, Listener, display
from jestlab.platform.launch.reconcile import Target
from jestlab.platform.logs import one_line
from jestlab.platform.store.records import RunProgress, RunState

_MAX_RUNS = 8
_MAX_MESSAGES = 20
_UPDATE_SECONDS = 0.5


def in_notebook() -> bool:
    """Return whether this process is a notebook's kernel, without importing IPython."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def display_here(experiment: str) -> Listener:
    """Return a display for the runs of an experiment in a script or in the kernel of a notebook."""
    return Notebook() if in_notebook() else display(experiment)


class Notebook(Listener):
    """Shows the number of ended runs, the progress of active ones, and failures."""

    def __init__(self) -> None:
        """Create a display, which shows nothing until the launch."""
        super().__init__()
        self._lock = threading.Lock()  # progress comes from another thread
        self._output: Any = None
        self._shown_at = 0.0
        self._total = 0
        self._ended: dict[RunState, int] = {}
        self._running: dict[str, str] = {}
        self._progress: Mapping[str, RunProgress] = {}
        self._messages: list[str] = []

    def begin(self, count: int) -> None:
        """Add the runs of a round."""
        with self._lock:
            self._total += count
            self._show(now=True)

    def state(self, run: Target, state: RunState, reason: str | None = None) -> None:
        """Update the state of a run."""
        title = one_line(f"{run.label}/{run.seed}")
        with self._lock:
            self._running.pop(run.fingerprint, None)
            if state == RunState.RUNNING:
                self._running[run.fingerprint] = title
            elif state.is_terminal:
                self._ended[state] = self._ended.get(state, 0) + 1
                if state != RunState.COMPLETED:
                    because = f": {one_line(reason, LONGEST)}" if reason else ""
                    self._messages.append(f"{state}: {title}{because}")
            self._show()

    def note(self, message: str) -> None:
        """Add a message."""
        with self._lock:
            super().note(message)
            self._messages.append(self.notes[-1])
            self._show(now=True)

    def progress(self, found: Mapping[str, RunProgress]) -> None:
        """Update the progress of active runs."""
        with self._lock:
            self._progress = found
            self._show()

    def end(self) -> None:
        """Show the final state."""
        with self._lock:
            self._running = {}
            self._show(now=True)

    def _show(self, now: bool = False) -> None:
        if not now and time.monotonic() - self._shown_at < _UPDATE_SECONDS:
            return
        self._shown_at = time.monotonic()
        content = self._content()
        if self._output is None:
            from IPython import display

            show: Any = display.display  # untyped
            self._output = show(content, raw=True, display_id=True)
        else:
            self._output.update(content, raw=True)

    def _content(self) -> dict[str, str]:
        """Return the output as text and as HTML."""
        ended = sum(self._ended.values())
        lines, bar = [], ""
        if self._total:
            bad = [f"{count} {state}" for state, count in self._ended.items() if state != RunState.COMPLETED]
            lines.append(f"{ended} of {self._total} runs have ended" + (f": {', '.join(bad)}" if bad else ""))
            bar = (
                f'<progress value="{ended}" max="{self._total}" aria-label="runs that have ended"></progress>'
            )
        running = list(self._running.items())
        lines += [
            f"{title}  {_steps(self._progress.get(run))}".rstrip() for run, title in running[:_MAX_RUNS]
        ]
        if len(running) > _MAX_RUNS:
            lines.append(f"and {len(running) - _MAX_RUNS} more")
        lines += self._messages[-_MAX_MESSAGES:]
        html = "".join(f"<div>{escape(line)}</div>" for line in lines)
        return {"text/plain": "\n".join(lines), "text/html": bar + html}


def _steps(progress: RunProgress | None) -> str:
    if progress is None or not progress.total_steps:
        return ""
    loss = f", loss {progress.latest['loss']:.4g}" if "loss" in progress.latest else ""
    return f"{progress.step} of {progress.total_steps} steps{loss}"
