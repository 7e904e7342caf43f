"""Published results, cell by cell: the printed text, its value, and its source.

As frames, with one row per cell:

    from jestlab.analysis import published
    published.frame(published.paper())                # the paper's tables, which are part of jestlab
    published.read("sqlite:///lab/results.db")        # the cells that were imported into a store

Modules:
    cell         one cell: quantity, unit, printed number, and the interval that rounds to this number
    files        cells in CSV files (the paper's among them), frames, and stores
    lint         find printed numbers that contradict others
"""

from jestlab.analysis.published.cell import CellKey, PublishedCell
from jestlab.analysis.published.files import (
    COLUMNS,
    PAPER,
    cells_of,
    frame,
    paper,
    parse,
    read,
    render,
    stored,
)

__all__ = [
    "COLUMNS",
    "PAPER",
    "CellKey",
    "PublishedCell",
    "cells_of",
    "frame",
    "paper",
    "parse",
    "read",
    "render",
    "stored",
]
