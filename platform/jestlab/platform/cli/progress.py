"""Progress bars of verbs that take long: on standard error, if it is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def reporting(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar; the function is called with how much is done, and how much there is in all."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def counting(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar; the function is called with how much more is done."""
    done = 0
    with reporting(title) as report:
        report(done, total)

        def advance(count: int) -> None:
            nonlocal done
            done += count
            report(done, total)

        yield advance
