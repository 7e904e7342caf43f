"""`jestlab status` and `jestlab watch`: states, progress and costs of runs, once or live."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

import click
from rich.live import Live
from rich.text import Text

from jestlab.analysis import units
from jestlab.analysis.costs.goodput import Goodput, by_run, summary, total
from jestlab.platform.cli import naming
from jestlab.platform.cli.options import examples, json_option, lab_options, wide_option
from jestlab.platform.cli.output import counted, show
from jestlab.platform.errors import StoreUnreachable
from jestlab.platform.lab.lab import Lab
from jestlab.platform.logs import one_line
from jestlab.platform.planning.changes import changes_of
from jestlab.platform.render import Block, has_styles, in_state, render, table, width
from jestlab.platform.store.annotations import tags_of_experiments, tags_of_runs
from jestlab.platform.store.identity import lab_places
from jestlab.platform.store.records import ExperimentRow, RunRow, RunState, Spending
from jestlab.platform.store.spending import attempt_times, spending
from jestlab.platform.store.store import Store
from jestlab.platform.watching.standing import Stands, as_data, run_data, standing, why_they_wait
from jestlab.platform.watching.watch import Line, Watch


@click.command(
    epilog=examples("status", "status quickstart", "status quickstart/joint", "status quickstart --json")
)
@click.argument("name", metavar="[SUBJECT]", required=False)
@wide_option
@json_option()
@lab_options
def status_command(name: str | None, *, as_json: bool, lab: Lab) -> None:
    """Show the runs of SUBJECT with their states and costs; without SUBJECT, show all experiments.

    SUBJECT is an experiment, or some of its runs: EXPERIMENT/RUN, or EXPERIMENT/RUN/SEED.

    Below the table is why runs wait, with the place in line and the estimated start where the engine tells,
    and what would let them begin.

    Costs are shown beside the planned ones. Drift is the actual over the planned cost of a run that is
    completed or over its plan. FLOPs count useful work only; chip-hours count all attempts, so that work
    repeated after a failure or a preemption shows as drift. Goodput is the share of the machines' time that
    was useful; `jestlab costs --goodput` shows it by run.
    """
    if name is None:
        store = Store.open_readonly(lab.store_url)
        experiments = store.experiments() if store else []
        marked = tags_of_experiments(store) if store else {}
        data = [_experiment_data(row) | {"tags": marked.get(row.name, [])} for row in experiments]
        show(as_json, data, _experiments_table(experiments, marked))
        return
    store = naming.existing_store(lab)
    named = naming.several(store, name)
    experiment, meant = named.experiment, {(row.label, row.seed) for row in named.runs}
    costs = spending(store, experiment)
    stand = [each for each in standing(store, experiment, costs) if (each.run.label, each.run.seed) in meant]
    runs = [each.run for each in stand]
    marked = tags_of_runs(store, [run.fingerprint for run in runs])
    goodputs = by_run(attempt_times(store, experiment))
    found = changes_of(store, experiment)
    where = lab_places(store.engine)
    details = [
        _run_details(each, costs, where)
        | {
            "changed": list(found.changed.get(each.run.fingerprint, ())),
            "retracted": found.retracted.get(each.run.fingerprint),
            "tags": marked.get(each.run.fingerprint, []),
            "goodput": goodputs.get(each.run.fingerprint, Goodput()).as_data(),
        }
        for each in stand
    ]
    shown = {run.fingerprint for run in runs}
    told = summary(total(goodputs[each] for each in shown if each in goodputs))
    runs = [
        replace(run, reason=f"retracted: {found.retracted[run.fingerprint]}")
        if run.fingerprint in found.retracted
        else run
        for run in runs
    ]
    costs = {run.fingerprint: costs[run.fingerprint] for run in runs if run.fingerprint in costs}
    why = list(why_they_wait(stand))
    lines = [*_runs_table(runs, costs, marked), *([told] if told else []), *_lab_lines(details)]
    show(as_json, details, [*lines, *(["", *why] if why else []), *found.lines(experiment)])


def _lab_lines(details: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say in which labs the runs are, where that is more than one."""
    counts = Counter(str(run["lab"]) for run in details if run["lab"] is not None)
    if len(counts) < 2:
        return []
    return [f"{counted(count, 'run')} in the lab at {place}" for place, count in sorted(counts.items())]


def _experiments_table(experiments: Sequence[ExperimentRow], marked: Mapping[str, list[str]]) -> Block:
    if not experiments:
        return "no experiments yet: jestlab launch quickstart"
    states = [state for state in RunState if any(state in row.counts for row in experiments)]
    imported = any(row.imported_from is not None for row in experiments)
    headers = [
        "experiment",
        "scale",
        "runs",
        *states,
        "launched (UTC)",
        *(["tags"] if marked else []),
        *(["imported from"] if imported else []),
    ]
    rows: list[list[str | Text]] = [
        [
            row.name,
            row.scale or "",
            str(sum(row.counts.values())),
            *(_count(row.counts.get(state, 0), state) for state in states),
            f"{row.updated_at:%Y-%m-%d %H:%M}",
            *([", ".join(marked.get(row.name, []))] if marked else []),
            *([one_line(row.imported_from or "")] if imported else []),
        ]
        for row in experiments
    ]
    importance = {"scale": 40, "launched (UTC)": 50, "imported from": 20, "tags": 60}
    return table(headers, rows, range(2, 3 + len(states)), importance)


def _count(count: int, state: RunState) -> Text:
    return in_state(count, state if count else "-")


def _runs_table(
    runs: Sequence[RunRow], costs: Mapping[str, Spending], marked: Mapping[str, list[str]]
) -> Iterator[Block]:
    kinds = _known(costs.values())
    of_kinds = [header for kind in kinds for header in (kind.title, "planned", "drift")]
    has_reasons = any(run.reason for run in runs)
    headers = ["run", "seed", "state", "step", "attempts", *of_kinds]
    headers += [*(["tags"] if marked else []), *(["reason"] if has_reasons else [])]
    rows: list[list[str | Text]] = [
        [
            one_line(run.label),
            str(run.seed),
            in_state(run.state),
            f"{run.step}/{run.total_steps}" if run.total_steps is not None else "",
            str(run.attempts),
            *_cells(kinds, costs.get(run.fingerprint, Spending()), run.state),
            *([", ".join(marked.get(run.fingerprint, []))] if marked else []),
            *([one_line(run.reason or "")] if has_reasons else []),
        ]
        for run in runs
    ]
    yield table(headers, rows, (1, *range(3, 5 + len(of_kinds))), _IMPORTANCE)
    completed = {run.fingerprint for run in runs if run.state == RunState.COMPLETED}
    line = _summary([cost for fingerprint, cost in costs.items() if fingerprint in completed])
    if line:
        yield ""
        yield line


_IMPORTANCE = {
    "tags": 80,
    "reason": 70,
    "step": 60,
    "drift": 30,
    "planned": 20,
    "attempts": 40,
    **dict.fromkeys(("FLOPs", "chip-hours", "hours", "$"), 50),
    "loss": 55,
    "examples/s": 45,
    "ETA": 65,
    "FLOPs so far": 35,
}
"""Columns that a narrow terminal leaves out, the least first."""


def _experiment_data(row: ExperimentRow) -> dict[str, Any]:
    return {
        "experiment": row.name,
        "question": row.question,
        "scale": row.scale,
        "launched_at": row.updated_at.isoformat(),
        "counts": dict(row.counts),
        "imported_from": row.imported_from,
    }


def _run_data(run: RunRow) -> dict[str, Any]:
    """Describe a run, its state and how far it is, for a program."""
    return run_data(run) | {"step": run.step, "total_steps": run.total_steps}


def _run_details(stands: Stands, costs: Mapping[str, Spending], where: Mapping[str, str]) -> dict[str, Any]:
    run, lease = stands.run, stands.standing.lease
    lab_id = None if lease is None else lease.lab
    return {
        **_run_data(run),
        "waits": as_data(stands.waits),
        "attempts": run.attempts,
        "executor": lease.executor if lease else None,
        "handle": lease.handle if lease else None,
        "lab": None if lab_id is None else where.get(lab_id),
        "directory": run.directory,
        "started_at": run.started_at.isoformat() if run.started_at else None,
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
        "cost": _cost_data(costs.get(run.fingerprint, Spending())),
    }


@dataclass(frozen=True)
class _Kind:
    """A kind of cost: what was planned for a run, what was spent on it, and how an amount is written."""

    title: str
    planned: Callable[[Spending], float | None]
    actual: Callable[[Spending], float | None]
    shown: Callable[[float], str]


_KINDS = (
    _Kind("FLOPs", lambda cost: cost.total_flops, lambda cost: cost.actual_flops, units.flops),
    _Kind(
        "chip-hours",
        lambda cost: None if cost.is_local else cost.planned_chip_hours,
        lambda cost: cost.actual_chip_hours,
        units.hours,
    ),
    _Kind(
        "hours",
        lambda cost: cost.planned_chip_hours if cost.is_local else None,
        lambda cost: cost.actual_hours,
        units.hours,
    ),
    _Kind("$", lambda cost: cost.planned_dollars, lambda cost: cost.actual_dollars, units.dollars),
)


def _known(costs: Iterable[Spending]) -> list[_Kind]:
    """Choose the kinds of cost of which both sides are known for some run."""
    there = list(costs)
    return [kind for kind in _KINDS if any(_both(kind, cost) for cost in there)]


def _cells(kinds: Sequence[_Kind], cost: Spending, state: RunState) -> list[str]:
    """Write actual cost, planned cost and drift of a run for each kind of cost."""
    found = []
    for kind in kinds:
        actual, planned = kind.actual(cost), kind.planned(cost)
        found += [
            kind.shown(actual) if actual is not None else "",
            kind.shown(planned) if planned is not None else "",
            _ratio(actual, planned, state == RunState.COMPLETED),
        ]
    return found


def _summary(costs: Sequence[Spending]) -> str:
    """Write one line on completed runs: "3 runs completed, …: 1.2 EFLOP of 1.2 EFLOP (× 1.00), …"."""
    parts = []
    for kind in _known(costs):
        pairs = [pair for cost in costs if (pair := _both(kind, cost)) is not None]
        actual, planned = (sum(side) for side in zip(*pairs, strict=True))
        parts.append(f"{_amounts(kind, actual, planned)} ({_ratio(actual, planned, True)})")
    count = counted(len(costs), "run")
    return f"{count} completed, actual of planned cost: {', '.join(parts)}" if parts else ""


def _so_far(costs: Sequence[Spending]) -> str:
    """Write one line on runs in any state: "1.20 EFLOP of 4.8 EFLOP, 25%; 3.1 of 12.4 chip-hours, 25%"."""
    parts = []
    for kind in _KINDS:
        known = [cost for cost in costs if kind.planned(cost)]
        planned = sum(kind.planned(cost) or 0.0 for cost in known)
        actual = sum(kind.actual(cost) or 0.0 for cost in known)
        if planned:
            parts.append(f"{_amounts(kind, actual, planned)}, {actual / planned:.0%}")
    return "; ".join(parts)


def _amounts(kind: _Kind, actual: float, planned: float) -> str:
    unit = f" {kind.title}" if kind.title.endswith("hours") else ""
    return f"{kind.shown(actual)} of {kind.shown(planned)}{unit}"


def _cost_data(cost: Spending) -> dict[str, Any]:
    """Describe what a run has cost, for a program."""
    return {**asdict(cost), "actual_dollars": cost.actual_dollars}


def _both(kind: _Kind, cost: Spending) -> tuple[float, float] | None:
    actual, planned = kind.actual(cost), kind.planned(cost)
    return (actual, planned) if actual is not None and planned else None


def _ratio(actual: float | None, planned: float | None, is_over: bool) -> str:
    """Write actual over planned cost; nothing while the run continues within its plan."""
    if actual is None or not planned or (actual <= planned and not is_over):
        return ""
    return f"× {actual / planned:.2f}"


# ---- watch

_QUIET_LOOKS = 4
_HEADERS = ("run", "seed", "state", "step", "loss", "examples/s", "ETA", "FLOPs so far", "planned", "reason")


@click.command(epilog=examples("watch quickstart", "watch quickstart --once --json"))
@click.argument("experiment")
@click.option(
    "--every", type=click.FloatRange(min=0.2), default=1.0, show_default=True, help="Interval in seconds."
)
@click.option("--once", is_flag=True, help="Print one table; the default without a terminal.")
@wide_option
@json_option("Print the table once, as JSON.")
@lab_options
@click.pass_context
def watch_command(
    context: click.Context, experiment: str, *, every: float, once: bool, as_json: bool, lab: Lab
) -> None:
    """Show the progress of EXPERIMENT's runs: step, loss, speed, time left, FLOPs so far and planned, and
    what runs wait for; and the total cost, actual of planned, also in chip-hours and dollars where known.

    The speed is that between the last reports of a run, or since its attempt began.

    Ends when no run is running or waiting; Ctrl-C ends the display and leaves the runs alone. Exit code: 0
    all runs are completed or have not ended yet, 1 a run has failed or was stopped.
    """
    watch = Watch(naming.existing_store(lab), experiment)
    lines = watch.look().lines
    if once or as_json or not sys.stdout.isatty():
        show(as_json, [_line_data(line) for line in lines], text(lines))
    else:
        lines = _live(watch, lines, every)
    failed = {RunState.FAILED, RunState.CANCELLED, RunState.SKIPPED, RunState.PREEMPTED}
    context.exit(1 if any(line.run.state in failed for line in lines) else 0)


def _live(watch: Watch, lines: Sequence[Line], every: float) -> Sequence[Line]:
    with Live(_drawn(text(lines)), refresh_per_second=4, screen=False) as live:
        quiet = 0
        while quiet < _QUIET_LOOKS and not all(line.run.state == RunState.COMPLETED for line in lines):
            time.sleep(every)
            try:
                lines = watch.look().lines
            except StoreUnreachable as error:
                live.update(_drawn([*_shown(lines, live.console.height), one_line(str(error))]))
                continue
            # What failed, or was stopped from outside, may be tried again in a moment.
            quiet = quiet + 1 if all(line.run.state.is_terminal for line in lines) else 0
            live.update(_drawn(_shown(lines, live.console.height)))
    return lines


def _drawn(blocks: Iterable[Block]) -> Text:
    """Draw blocks as `say` prints them."""
    return Text.from_ansi(render(blocks, width(), has_styles()), no_wrap=True)


def _shown(lines: Sequence[Line], height: int) -> list[Block]:
    """Write the table; if the terminal is too small, only the runs in progress. The last line counts all."""
    if len(lines) + 5 <= height:
        return text(lines)
    quiet = {RunState.PENDING, RunState.BLOCKED, RunState.COMPLETED, RunState.SKIPPED}
    busy = [line for line in lines if line.run.state not in quiet]
    return text(lines, busy[: max(height - 5, 1)])


def text(lines: Sequence[Line], shown: Sequence[Line] | None = None) -> list[Block]:
    """Write a table of the runs, or of those that are shown, and a line on all of them."""
    rows = [
        (
            one_line(line.run.label),
            str(line.run.seed),
            in_state(line.run.state),
            f"{line.run.step}/{line.run.total_steps}" if line.run.total_steps is not None else "",
            f"{line.loss:.4g}" if line.loss is not None else "",
            f"{line.rate:,.0f}" if line.rate is not None else "",
            str(timedelta(seconds=round(line.eta_seconds))) if line.eta_seconds is not None else "",
            units.flops(line.cost.actual_flops) if line.cost.actual_flops else "",
            units.flops(line.cost.total_flops) if line.cost.total_flops else "",
            one_line(line.run.reason or ""),
        )
        for line in (lines if shown is None else shown)
    ]
    counts = Counter(line.run.state for line in lines)
    summary = ", ".join(f"{counts[state]} {state}" for state in RunState if counts[state])
    cost = _so_far(list({line.run.fingerprint: line.cost for line in lines}.values()))
    return [
        table(_HEADERS, rows, (1, 3, 4, 5, 6, 7, 8), _IMPORTANCE),
        "",
        f"{summary}{cost and f'; {cost}'}",
    ]


def _line_data(line: Line) -> dict[str, Any]:
    """Describe a line of the table for a program."""
    return {
        **_run_data(line.run),
        "loss": line.loss,
        "examples_per_second": line.rate,
        "eta_seconds": line.eta_seconds,
        "flops": line.cost.actual_flops,
        "planned_flops": line.cost.total_flops,
        "cost": _cost_data(line.cost),
    }
