"""Show what happens during a launch in a notebook: one output that changes in its place."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from html import escape
from typing import Any

from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.reconcile import Target
from jestlab.platform.logs import one_line
from jestlab.platform.store.records import Progress, RunState

_MOST_RUNS = 8  # that are shown while they run
_MOST_LINES = 20  # of messages
_LONG = 2_000  # letters of a message
_SECONDS = 0.5  # between two changes of the output


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook; IPython is not imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class Notebook(Listener):
    """Shows how many runs have ended, how far the running ones are, and what has failed."""

    def __init__(self) -> None:
        """Create a display; its output begins with the launch."""
        super().__init__()
        self._lock = threading.Lock()  # runs are looked at in another thread than this launch was begun in
        self._output: Any = None
        self._shown_at = 0.0
        self._total = 0
        self._ended: dict[RunState, int] = {}
        self._running: dict[str, str] = {}
        self._progress: Mapping[str, Progress] = {}
        self._lines: list[str] = []

    def begin(self, count: int) -> None:
        """Show how many runs there are."""
        with self._lock:
            self._total += count  # of another round
            self._show(now=True)

    def state(self, run: Target, state: RunState, reason: str | None = None) -> None:
        """Count the run; name it if it runs or has failed."""
        title = one_line(f"{run.label}/{run.seed}")
        with self._lock:
            self._running.pop(run.fingerprint, None)
            if state == RunState.RUNNING:
                self._running[run.fingerprint] = title
            elif state.is_terminal:
                self._ended[state] = self._ended.get(state, 0) + 1
                if state != RunState.COMPLETED:
                    self._lines.append(
                        f"{state}: {title}" + (f": {one_line(reason, _LONG)}" if reason else "")
                    )
            self._show()

    def note(self, message: str) -> None:
        """Show a message below the runs."""
        with self._lock:
            super().note(message)
            self._lines.append(one_line(message, _LONG))
            self._show(now=True)

    def progress(self, found: Mapping[str, Progress]) -> None:
        """Show how far the running runs are."""
        with self._lock:
            self._progress = found
            self._show()

    def end(self) -> None:
        """Show how the runs have ended."""
        with self._lock:
            self._running = {}
            self._show(now=True)

    def _show(self, now: bool = False) -> None:
        """Change the output, but not more often than anybody can read it."""
        if not now and time.monotonic() - self._shown_at < _SECONDS:
            return
        self._shown_at = time.monotonic()
        content = {"text/plain": "\n".join(self._text()), "text/html": self._html()}
        if self._output is None:
            from IPython import display

            show: Any = display.display  # it has no types
            self._output = show(content, raw=True, display_id=True)
        else:
            self._output.update(content, raw=True)

    def _text(self) -> list[str]:
        return [*([self._counts()] if self._total else []), *self._runs(), *self._messages()]

    def _counts(self) -> str:
        ended = sum(self._ended.values())
        bad = ", ".join(
            f"{count} {state}" for state, count in self._ended.items() if state != RunState.COMPLETED
        )
        return f"{ended} of {self._total} runs have ended" + (f": {bad}" if bad else "")

    def _runs(self) -> list[str]:
        lines = [
            f"{title}  {_far(self._progress.get(fingerprint))}".rstrip()
            for fingerprint, title in self._running.items()
        ]
        more = len(lines) - _MOST_RUNS
        return [*lines[:_MOST_RUNS], *([f"and {more} more"] if more > 0 else [])]

    def _messages(self) -> list[str]:
        return self._lines[-_MOST_LINES:]

    def _html(self) -> str:
        parts = []
        if self._total:
            ended = sum(self._ended.values())
            bar = (
                f'<progress value="{ended}" max="{self._total}" style="vertical-align:middle" '
                'aria-label="runs that have ended"></progress>'
            )
            parts.append(f"<div>{bar} {escape(self._counts())}</div>")
        parts += [f'<div style="opacity:.7">{escape(line)}</div>' for line in self._runs()]
        parts += [f"<div>{escape(line)}</div>" for line in self._messages()]
        return f'<div style="font-variant-numeric:tabular-nums">{"".join(parts)}</div>'


def _far(progress: Progress | None) -> str:
    if progress is None or not progress.total_steps:
        return ""
    loss = f", loss {progress.latest['loss']:.4g}" if "loss" in progress.latest else ""
    return f"{progress.step} of {progress.total_steps} steps{loss}"
