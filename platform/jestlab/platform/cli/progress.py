"""Progress bars of slow verbs, on standard error if it is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def reporting(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar; the yielded function takes the completed and the total amount."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def counting(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar; the yielded function takes the amount that was completed since its last call."""
    done = 0
    with reporting(title) as report:
        report(done, total)

        def advance(count: int) -> None:
            nonlocal done
            done += count
            report(done, total)

        yield advance
