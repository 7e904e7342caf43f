"""Simulate studies, and print or draw what came of them.

    python -m tests.simulation             # prints what came of all of them as JSON lines
    python -m tests.simulation families    # only one kind
    python -m tests.simulation by_seeds --figure docs/pictures/by_seeds.png

All random draws have fixed seeds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests.simulation import best_of_axis, equal_seconds, families, scaling, studies

from jestlab.analysis.figures.style import applied

TABLES = {
    "until_decided": studies.table,
    "families": families.table,
    "by_seeds": families.by_seeds,
    "equal_seconds": equal_seconds.table,
    "best_of_axis": best_of_axis.table,
    "scaling": scaling.table,
}
"""Kind of simulation → function that simulates a number of studies."""

FIGURES = {"until_decided": studies.figure, "by_seeds": families.figure}
"""Kind of simulation → function that draws its rows."""


def main() -> None:
    """Simulate, and print or draw."""
    parser = argparse.ArgumentParser(description="Simulate whole studies: wrong verdicts, power, and bands.")
    parser.add_argument("kinds", nargs="*", help=f"kinds of simulations: {', '.join(TABLES)}; all by default")
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--figure", type=Path, help="draw the figure of the documentation")
    options = parser.parse_args()
    if unknown := set(options.kinds) - TABLES.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; write {', '.join(TABLES)}")
    for kind in options.kinds or TABLES:
        rows = TABLES[kind](options.studies)
        for row in rows:
            print(json.dumps({"kind": kind} | row), flush=True)
        if options.figure and kind in FIGURES:
            with applied():
                FIGURES[kind](rows, options.figure)


if __name__ == "__main__":
    main()
