"""`jestlab watch`: progress of runs, live: loss, speed, time left, cost."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import click
from rich.live import Live
from rich.text import Text

from jestlab.analysis import units
from jestlab.platform.cli.naming import existing_store
from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.output import show, table
from jestlab.platform.cli.status import cost_data, honest_runs, run_data, so_far
from jestlab.platform.errors import StoreUnreachable
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.display import Rate
from jestlab.platform.launch.logs import one_line
from jestlab.platform.store.records import Progress, RunRow, RunState, Spending
from jestlab.platform.store.spending import spending
from jestlab.platform.store.store import Store

_EPILOG = examples("watch quickstart", "watch quickstart --once --json")
_QUIET_LOOKS = 4
_METRICS = ("loss", "examples_seen")
_HEADERS = ("run", "seed", "state", "step", "loss", "examples/s", "ETA", "FLOPs so far", "planned", "")


@dataclass(frozen=True)
class Line:
    """What is shown of a run.

    Attributes:
        run: The run.
        loss: The last one.
        rate: Examples a second, over the last seconds.
        eta_seconds: Until its end, at this rate.
        cost: So far, and planned for the whole run.
    """

    run: RunRow
    loss: float | None
    rate: float | None
    eta_seconds: float | None
    cost: Spending


class Watch:
    """Reads an experiment repeatedly, and so knows how fast its runs are."""

    def __init__(self, store: Store, experiment: str) -> None:
        """Watch an experiment; nothing is read yet."""
        self._store = store
        self._experiment = experiment
        self._examples: dict[str, Rate] = {}
        self._steps: dict[str, Rate] = {}

    def look(self) -> list[Line]:
        """Read the current state of all runs."""
        runs, _ = honest_runs(self._store, self._experiment)
        shown = [run.fingerprint for run in runs if run.state not in (RunState.PENDING, RunState.BLOCKED)]
        progress = self._store.progress(shown, _METRICS)
        costs = spending(self._store, self._experiment)
        return [self._line(run, progress.get(run.fingerprint), costs.get(run.fingerprint)) for run in runs]

    def _line(self, run: RunRow, progress: Progress | None, cost: Spending | None) -> Line:
        latest = progress.latest if progress is not None else {}
        rate = eta = None
        if run.state == RunState.RUNNING:
            rate = self._examples.setdefault(run.fingerprint, Rate()).add(latest.get("examples_seen"))
            steps = self._steps.setdefault(run.fingerprint, Rate()).add(float(run.step))
            if steps and run.total_steps is not None:
                eta = (run.total_steps - run.step) / steps
        return Line(run, latest.get("loss"), rate, eta, cost or Spending())


@click.command(epilog=_EPILOG)
@click.argument("experiment")
@click.option(
    "--every", type=click.FloatRange(min=0.2), default=1.0, show_default=True, help="Interval in seconds."
)
@click.option("--once", is_flag=True, help="Print one table; the default without a terminal.")
@json_option("Print the table once, as JSON.")
@lab_options
@click.pass_context
def command(
    context: click.Context, experiment: str, *, every: float, once: bool, as_json: bool, lab: Lab
) -> None:
    """Show the progress of EXPERIMENT's runs: step, loss, speed, time left, FLOPs so far and planned; and the
    total cost, actual of planned, also in chip-hours and dollars where they are known.

    Ends when no run is running or waiting; Ctrl-C ends the display and leaves the runs alone. Exit code: 0
    all runs are completed or have not ended yet, 1 a run has failed or was stopped.
    """
    watch = Watch(existing_store(lab), experiment)
    lines: Sequence[Line] = watch.look()
    if once or as_json or not sys.stdout.isatty():
        if any(line.run.state == RunState.RUNNING for line in lines):
            time.sleep(every)  # a speed takes two looks
            lines = watch.look()
        show(as_json, [as_data(line) for line in lines], text(lines))
    else:
        lines = _live(watch, lines, every)
    failed = {RunState.FAILED, RunState.CANCELLED, RunState.SKIPPED, RunState.PREEMPTED}
    context.exit(1 if any(line.run.state in failed for line in lines) else 0)


def _live(watch: Watch, lines: Sequence[Line], every: float) -> Sequence[Line]:
    with Live(Text(text(lines)), refresh_per_second=4, screen=False) as live:
        quiet = 0
        while quiet < _QUIET_LOOKS and not all(line.run.state == RunState.COMPLETED for line in lines):
            time.sleep(every)
            try:
                lines = watch.look()
            except StoreUnreachable as error:
                live.update(Text(f"{_shown(lines, live.console.height)}\n{error}", no_wrap=True))
                continue
            # What failed, or was stopped from outside, may be tried again in a moment.
            quiet = quiet + 1 if all(line.run.state.is_terminal for line in lines) else 0
            live.update(Text(_shown(lines, live.console.height), no_wrap=True))
    return lines


def _shown(lines: Sequence[Line], height: int) -> str:
    """Write the table; if the terminal is too small, only the runs in progress. The last line counts all."""
    if len(lines) + 4 <= height:
        return text(lines)
    quiet = {RunState.PENDING, RunState.BLOCKED, RunState.COMPLETED, RunState.SKIPPED}
    busy = [line for line in lines if line.run.state not in quiet]
    return text(lines, busy[: max(height - 4, 1)])


def text(lines: Sequence[Line], shown: Sequence[Line] | None = None) -> str:
    """Write a table, and a line on all runs.

    Args:
        lines: All runs.
        shown: Those that get a row of the table; all by default.
    """
    rows = [
        (
            one_line(line.run.label, 60),
            str(line.run.seed),
            str(line.run.state),
            f"{line.run.step}/{line.run.total_steps}" if line.run.total_steps is not None else "",
            f"{line.loss:.4g}" if line.loss is not None else "",
            f"{line.rate:,.0f}" if line.rate is not None else "",
            _duration(line.eta_seconds),
            units.flops(line.cost.actual_flops) if line.cost.actual_flops else "",
            units.flops(line.cost.total_flops) if line.cost.total_flops else "",
            one_line(line.run.reason or "", 80),
        )
        for line in (lines if shown is None else shown)
    ]
    counts = Counter(line.run.state for line in lines)
    summary = ", ".join(f"{counts[state]} {state}" for state in RunState if counts[state])
    cost = so_far(list({line.run.fingerprint: line.cost for line in lines}.values()))
    return f"{table(_HEADERS, rows, right=(1, 3, 4, 5, 6, 7, 8))}\n\n{summary}{cost and f'; {cost}'}"


def as_data(line: Line) -> dict[str, Any]:
    """Describe a line of the table for a program."""
    return {
        **run_data(line.run),
        "loss": line.loss,
        "examples_per_second": line.rate,
        "eta_seconds": line.eta_seconds,
        "flops": line.cost.actual_flops,
        "planned_flops": line.cost.total_flops,
        "cost": cost_data(line.cost),
    }


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else str(timedelta(seconds=round(seconds)))
