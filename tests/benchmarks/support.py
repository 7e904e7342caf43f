"""Options, timing, and tables that the benchmarks share.

Benchmarks measure; they don't pass or fail. Their tables go into BENCHMARKS.md with the device and the date.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

JESTLAB = str(Path(sys.executable).with_name("jestlab"))


def parse_options(doc: str | None, *, peers: Sequence[str] = (), **counts: int) -> argparse.Namespace:
    """Parse a benchmark's command line.

    Args:
        doc: The script's docstring, which `--help` shows.
        peers: Tools to compare with; each is an option for the path of a Python that has the tool.
        counts: Options with an integer, and their defaults.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for peer in peers:
        parser.add_argument(f"--{peer}", type=Path, metavar="PYTHON", help=f"a Python that has {peer}")
    for name, default in counts.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default:,}")
    return parser.parse_args()


def seconds_of(call: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def median_seconds(call: Callable[[], object], rounds: int) -> float:
    """Return the median wall time of a call, after one call that isn't counted."""
    call()
    return statistics.median(seconds_of(call) for _ in range(rounds))


def interleave(measures: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Measure in rounds that take turns, so that other load on the machine affects all measures.

    Args:
        measures: Name → a function that returns one measured figure.
        rounds: How many rounds are kept; one more, the first, isn't counted.
    """
    found: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds + 1):
        for name, measure in measures.items():
            figure = measure()
            if number:
                found[name].append(figure)
    return found


def command(*words: object, folder: Path | None = None) -> Callable[[], object]:
    """Return a call that runs a `jestlab` command as a process and discards its output."""
    line = [JESTLAB, *map(str, words)]
    return lambda: subprocess.run(line, cwd=folder, check=True, stdout=subprocess.DEVNULL)


class Peer:
    """A process that answers each line it reads with a line."""

    def __init__(self, line: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        variables = {**os.environ, **(environment or {})}
        self._process = subprocess.Popen(
            line, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._line = line
        self.greeting = self._answer()
        """The line that the process printed once it was ready."""

    def ask(self, request: str = "") -> str:
        """Send a request and return the answer."""
        assert self._process.stdin is not None
        print(request, file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        if not (answer := self._process.stdout.readline()):
            raise SystemExit(f"{self._line[0]} ended: see its message above")
        return answer.strip()


def print_table(about: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a Markdown table, below a line with the machine, the date, and what was measured."""
    load = os.getloadavg()[0]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{machine}, load {load:.1f}, {time.strftime('%Y-%m-%d')}; {about}\n")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")
