"""`jestlab status`: how experiments and their runs stand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from jestlab.platform.cli import drift
from jestlab.platform.cli.common import lab_options
from jestlab.platform.cli.text import table
from jestlab.platform.lab import Lab
from jestlab.platform.launch.logs import one_line
from jestlab.platform.store.records import Spending
from jestlab.platform.store.states import RunState

if TYPE_CHECKING:
    from jestlab.platform.store.records import ExperimentRow, RunRow, Standing
    from jestlab.platform.store.store import Store

_EPILOG = """\b
Example:
  jestlab status
  jestlab status quickstart
  jestlab status quickstart --json
"""


@click.command(epilog=_EPILOG)
@click.argument("experiment", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@lab_options
def command(experiment: str | None, *, as_json: bool, lab: Lab) -> None:
    """Show the runs of an experiment with their states and costs; without a name, all experiments.

    Costs are shown beside what was planned. Drift is the actual cost over the planned one, of a run that is
    completed or over its plan. FLOPs are of what is useful; chip-hours are of all attempts, so that what was
    done again after a failure or a preemption shows as drift.
    """
    from jestlab.platform.store.spending import spending
    from jestlab.platform.store.store import Store

    store = Store.open_readonly(lab.store_url)
    if experiment is None:
        experiments = store.experiments() if store else []
        click.echo(_experiments_json(experiments) if as_json else _experiments_table(experiments))
        return
    if store is None:
        store = Store.open(lab.store_url, create=False)  # says what to do
    runs, standings = honest_runs(store, experiment)
    costs = spending(store, experiment)
    click.echo(_runs_json(runs, standings, costs) if as_json else _runs_table(runs, costs))


def honest_runs(store: Store, experiment: str) -> tuple[list[RunRow], dict[str, Standing]]:
    """The runs of an experiment, with what speaks against those that are RUNNING, and how they stand."""
    from jestlab.platform.launch import truth
    from jestlab.platform.store import leases
    from jestlab.platform.store.sql import now

    runs = store.runs(experiment)
    standings = leases.standings(store, [run.fingerprint for run in runs])
    honest = []
    for run in runs:
        doubts = truth.doubts(standings[run.fingerprint].lease, now())
        honest.append(run if doubts is None else replace(run, reason=doubts))
    return honest, standings


def _experiments_table(experiments: Sequence[ExperimentRow]) -> str:
    if not experiments:
        return "no experiments yet: jestlab launch quickstart"
    states = [state for state in RunState if any(state in row.counts for row in experiments)]
    headers = ["experiment", "scale", "runs", *states, "launched (UTC)"]
    rows = [
        [
            row.name,
            row.scale or "",
            str(sum(row.counts.values())),
            *(str(row.counts.get(state, 0)) for state in states),
            f"{row.updated_at:%Y-%m-%d %H:%M}",
        ]
        for row in experiments
    ]
    return table(headers, rows, right=range(2, 3 + len(states)))


def _runs_table(runs: Sequence[RunRow], costs: Mapping[str, Spending]) -> str:
    columns = drift.columns(list(costs.values()))
    headers = ["run", "seed", "state", "step", "attempts", *drift.headers(columns), "reason"]
    rows = [
        [
            one_line(run.label),
            str(run.seed),
            run.state,
            f"{run.step}/{run.total_steps}" if run.total_steps is not None else "",
            str(run.attempts),
            *drift.cells(columns, costs.get(run.fingerprint, Spending()), run.state),
            one_line(run.reason or ""),
        ]
        for run in runs
    ]
    shown = table(headers, rows, right=(1, *range(3, len(headers) - 1)))
    completed = {run.fingerprint for run in runs if run.state == RunState.COMPLETED}
    line = drift.summary([cost for fingerprint, cost in costs.items() if fingerprint in completed])
    return f"{shown}\n\n{line}" if line else shown


def _experiments_json(experiments: Sequence[ExperimentRow]) -> str:
    rows = [
        {
            "experiment": row.name,
            "question": row.question,
            "scale": row.scale,
            "launched_at": row.updated_at.isoformat(),
            "counts": dict(row.counts),
        }
        for row in experiments
    ]
    return json.dumps(rows, ensure_ascii=False)


def run_data(run: RunRow) -> dict[str, Any]:
    """Which run it is and how it stands, for a program."""
    return {
        "run": run.name,
        "label": run.label,
        "seed": run.seed,
        "fingerprint": run.fingerprint,
        "state": run.state,
        "reason": run.reason,
        "step": run.step,
        "total_steps": run.total_steps,
    }


def _runs_json(
    runs: Sequence[RunRow], standings: Mapping[str, Standing], costs: Mapping[str, Spending]
) -> str:
    rows: list[dict[str, Any]] = []
    for run in runs:
        lease = standings[run.fingerprint].lease
        rows.append(
            {
                **run_data(run),
                "attempts": run.attempts,
                "executor": lease.executor if lease else None,
                "handle": lease.handle if lease else None,
                "directory": run.directory,
                "started_at": run.started_at.isoformat() if run.started_at else None,
                "ended_at": run.ended_at.isoformat() if run.ended_at else None,
                "cost": drift.as_data(costs.get(run.fingerprint, Spending())),
            }
        )
    return json.dumps(rows, ensure_ascii=False)
