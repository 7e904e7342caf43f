"""Simulate studies, and print or draw what came of them.

python -m tests.simulation                # prints all figures as JSON
python -m tests.simulation --figure docs/pictures/until_decided.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests.simulation import best_of_axis, studies

from jestlab.analysis.figures.style import applied


def main() -> None:
    """Simulate, and print or draw."""
    parser = argparse.ArgumentParser(description="Simulate studies with peeking after every seed.")
    parser.add_argument("--studies", type=int, default=20_000)
    parser.add_argument("--figure", type=Path, help="draw the figure of the documentation")
    options = parser.parse_args()
    rows = studies.table(options.studies)
    print(json.dumps({"studies": rows, "best_of_axis": best_of_axis.table(options.studies)}, indent=1))
    if options.figure:
        with applied():
            studies.figure(rows, options.figure)


if __name__ == "__main__":
    main()
