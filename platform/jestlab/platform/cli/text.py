"""Text for people: aligned tables."""

from __future__ import annotations

from collections.abc import Sequence


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
