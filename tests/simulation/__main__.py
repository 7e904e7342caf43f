"""Simulate studies, and print or draw what came of them.

python -m tests.simulation                # prints all figures as JSON lines
python -m tests.simulation families       # only those of one module
python -m tests.simulation until_decided --figure docs/pictures/until_decided.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests.simulation import equal_seconds, families, scaling, studies

from jestlab.analysis.figures.style import applied

TABLES = {
    "until_decided": studies.table,
    "families": families.table,
    "equal_seconds": equal_seconds.table,
    "scaling": scaling.table,
}
"""Kind of simulation → function that simulates a number of studies."""


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
        if options.figure and kind == "until_decided":
            with applied():
                studies.figure(rows, options.figure)


if __name__ == "__main__":
    main()
