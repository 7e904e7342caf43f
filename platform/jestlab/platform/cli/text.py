"""Text for people: aligned tables, and lines that several verbs print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jestlab.platform.plan import Plan


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns aligned by spaces, as wide as their widest cell; nothing is cut, so that pipes get it all.

    Args:
        headers: One a column.
        rows: Cells.
        right: Columns that are aligned to the right.

    Returns:
        Lines without trailing spaces.
    """
    lines = [tuple(headers), *map(tuple, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    aligned = (
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
    return "\n".join(line.rstrip() for line in aligned)


def missing(plan: Plan) -> Iterator[str]:
    """The line that says which data and weights of a plan are not there, if any."""
    if not plan.absent:
        return
    here = Path.cwd()
    names = [
        str(path.relative_to(here) if path.is_relative_to(here) else path) + ("/" if what == "folder" else "")
        for path, what in plan.absent.items()
    ]
    counts = Counter(plan.absent.values())
    counted = ", ".join(f"{count} {what}{'s' if count > 1 else ''}" for what, count in counts.items())
    yield (
        f"not here yet: {', '.join(names)} ({counted}): runs are identified by their paths until they are; "
        "launch refuses"
    )
