"""Published results, cell by cell: the printed text, its value, and its source.

As frames, one row a cell:

    from jestlab.analysis import published
    published.frame(published.paper())                # the paper's tables, as they come with jestlab
    published.read("sqlite:///lab/results.db")        # what has been imported into a store

Modules:
    cell         one cell: what it can say, in which units, and what its print can stand for
    files        cells as CSV files (the paper's among them), as frames, and from a store
    lint         how cells follow from others, and which printed numbers cannot be right
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
