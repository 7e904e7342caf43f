"""Tables and the report of very many runs, on SQLite.

python tests/benchmarks/bench_analysis.py [--runs 10000]

The experiment has ten seeds of each label. Each run has ten evaluations of four metrics and 100 points of a
loss. Commands are timed as whole processes. A table is timed with reading the store and writing Markdown.
"""

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.large_store import NAME, fill, labels
from tests.benchmarks.support import command, median_seconds, parse_options, print_table

from jestlab.analysis import published, tables
from jestlab.analysis.report import gather
from jestlab.analysis.results import read as read_frames
from jestlab.analysis.tables.core import Table

STEPS = 100
SCORES = (
    ("shapes", "10_shot"),
    ("shapes", "zero_shot"),
    ("shapes_retrieval", "i2t_r1"),
    ("shapes_retrieval", "t2i_r1"),
)
ROUNDS, COMMAND_ROUNDS = 3, 1


def main() -> None:
    """Measure and print."""
    runs = parse_options(__doc__, runs=10_000).runs
    paper = published.frame(published.paper())

    def render(make: Callable[[tables.Finals], Table]) -> str:
        return make(tables.finals(read_frames(url, NAME))).markdown()

    def of_paper(name: str, found: tables.Finals) -> Table:
        return tables.paper_table(name, paper, [found])

    with tempfile.TemporaryDirectory() as name:
        folder, steps = Path(name), range(10, STEPS + 1, 10)
        url = fill(
            folder / "results.db", runs, STEPS, metrics=["loss"], scores=SCORES, evaluation_steps=steps
        )
        functions: dict[str, Callable[[], object]] = {
            "reading the experiment": lambda: read_frames(url, NAME),
            "`summary`": lambda: render(tables.summary),
            "`speedups`": lambda: render(tables.speedup_table),
            "contents of the report": lambda: gather(url, NAME),
        }
        for layout in tables.LAYOUTS:
            functions[f"`{layout}`"] = partial(render, partial(of_paper, layout))
        commands: dict[str, list[str | Path]] = {
            f"`jestlab table {NAME}`": ["table", NAME],
            f"`jestlab table {NAME} --explain …`": ["table", NAME, "--explain", labels(runs)[1], "score"],
            f"`jestlab report {NAME}`": ["report", NAME, "--output", folder / "report"],
        }
        seconds = {what: median_seconds(function, ROUNDS) for what, function in functions.items()}
        for what, words in commands.items():
            seconds[what] = median_seconds(command(*words, "--store", url), COMMAND_ROUNDS)
    rows = [(what, f"{took:.2f}") for what, took in seconds.items()]
    print_table(f"{runs:,} runs, medians", ("what", "s"), rows)


if __name__ == "__main__":
    main()
