"""Results that others have published, cell by cell: what is printed, what it means in numbers, whose it is.

As frames, one row a cell:

    from jestlab.analysis import published
    published.frame(published.paper())                # the paper's tables, as they come with jestlab
    published.read("sqlite:///lab/results.db")        # what has been imported into a store

Modules:
    cell         one cell, what it can say, and in which units
    files        CSV files of cells, the paper's among them
    reading      cells of a store, as a frame
    rounding     what a printed number can stand for
    derivation   how cells follow from others
    lint         which printed numbers cannot be right
"""

from jestlab.analysis.published.cell import QUANTITIES, CellKey, PublishedCell
from jestlab.analysis.published.files import COLUMNS, PAPER, paper, parse, render
from jestlab.analysis.published.reading import cells_of, frame, read, stored
from jestlab.analysis.published.rounding import interval

__all__ = [
    "COLUMNS",
    "PAPER",
    "QUANTITIES",
    "CellKey",
    "PublishedCell",
    "cells_of",
    "frame",
    "interval",
    "paper",
    "parse",
    "read",
    "render",
    "stored",
]
