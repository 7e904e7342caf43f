"""Where a number comes from: runs, attempts, commits and configs, for `--explain`, pages and files.

`Origins` explains any cell of a table. `History` is what the store knows of an experiment besides results;
`recipe` tells how to reproduce it. `Sources` records beside every table and figure what it was made from.
"""

from .explain import Attempt, Origins
from .history import History, Recipe, load, recipe
from .pages import SUFFIX, Sources, of_runs, of_table

__all__ = [
    "SUFFIX",
    "Attempt",
    "History",
    "Origins",
    "Recipe",
    "Sources",
    "load",
    "of_runs",
    "of_table",
    "recipe",
]
