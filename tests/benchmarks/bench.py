"""Speeds that users feel: whole commands, and making the synthetic web.

python tests/benchmarks/bench.py
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.support import JESTLAB, command, median_seconds, parse_options, print_table, seconds_of

from jestlab.models.config import Data, DataConfig, ShapesWeb
from jestlab.models.data.datasets import ensure_web

GRID = """
runs:
  reference: {data.filter: similarity > 0.25}
  uniform: {}
  joint: {selection.rule: joint, selection.reference: reference}
axes:
  - runs: [joint]
    grid:
      selection.filtering_ratio: [0.5, 0.6, 0.7, 0.8, 0.9, 0.95]
      selection.chunks: [1, 2, 4, 8, 16]
      selection.gain: [1, 10, 100, 1000]
      optimizer.learning_rate: [5e-4, 1e-3, 2e-3, 4e-3]
seeds: 4
"""
HELP_ROUNDS, PLAN_ROUNDS = 9, 5
EXAMPLES = 8_192


def main() -> None:
    """Measure and print."""
    parse_options(__doc__)
    os.environ.pop("JESTLAB_ROOT", None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "grid.yaml").write_text(GRID)
        planned = json.loads(subprocess.check_output([JESTLAB, "plan", "grid.yaml", "--json"], cwd=folder))
        help_seconds = median_seconds(command("--help", folder=folder), HELP_ROUNDS)
        plan_seconds = median_seconds(command("plan", "grid.yaml", folder=folder), PLAN_ROUNDS)
        web = DataConfig(data=Data(train=ShapesWeb(examples=EXAMPLES)))
        web_seconds = seconds_of(lambda: ensure_web(web, folder))
    plan = f"`jestlab plan` of {len(planned['runs']):,} runs, no store, whole process"
    rows = [
        ("`jestlab --help`, whole process", f"{help_seconds:.3g} s", "< 0.2 s", HELP_ROUNDS),
        (plan, f"{plan_seconds:.3g} s", "< 2 s", PLAN_ROUNDS),
        ("synthetic web made", f"{EXAMPLES / web_seconds:,.0f} examples/s", "", 1),
    ]
    print_table("medians", ("what", "seen", "goal", "runs"), rows)


if __name__ == "__main__":
    main()
