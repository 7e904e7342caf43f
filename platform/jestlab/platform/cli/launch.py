"""`jestlab launch`: run a study and write its reports."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jestlab.platform.cli.common import lab_options
from jestlab.platform.cli.spec_options import spec_options
from jestlab.platform.lab import Lab
from jestlab.platform.store.states import RunState

if TYPE_CHECKING:
    from jestlab.platform.launch.controller import Outcome
    from jestlab.platform.plan import Plan
    from jestlab.platform.spec.schema import Study

_EPILOG = """\b
Example:
  jestlab launch quickstart
  jestlab launch quickstart --set seeds=1 --parallel 4
  jestlab launch my_study.yaml --root /data/lab --json > outcome.json
"""


@click.command(epilog=_EPILOG)
@spec_options
@click.option("--parallel", type=click.IntRange(min=1), metavar="N", help="Runs at a time [the study's].")
@click.option("--no-reports", is_flag=True, help="Write no tables and figures.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object at the end; progress on standard error."
)
@lab_options
@click.pass_context
def command(
    context: click.Context,
    *,
    study: Study,
    parallel: int | None,
    no_reports: bool,
    as_json: bool,
    lab: Lab,
) -> None:
    """Run SPEC (a name from `jestlab list`, or a .py or .yaml file) and write its tables and plots.

    What is done already is not run again, what was interrupted goes on from its last checkpoint. Ctrl-C
    stops all runs, each at a checkpoint. Exit code: 0 all runs are completed, 1 not all are, 130 interrupted.
    """
    from jestlab.platform.plan import plan as make_plan

    plan = make_plan(study)  # raises all there is to raise before anything is written

    from jestlab.platform import reports
    from jestlab.platform.launch.controller import launch
    from jestlab.platform.launch.display import display
    from jestlab.platform.store.store import Store

    listener = display(sys.stderr if as_json else sys.stdout)
    store = Store.open(lab.store_url)
    gone = set(store.members(study.name)) - set(plan.fingerprints)
    store.record(plan)
    if gone:
        listener.note(
            f"{len(gone)} runs of the last launch are no longer part of {study.name}; their results stay in "
            "the store. To keep both studies: --set name=NAME"
        )
    outcome = launch(
        lab,
        store,
        plan,
        parallel=parallel or study.resources.parallel,
        threads=study.resources.threads,
        listener=listener,
    )
    if not outcome.launched:
        listener.note(f"nothing to run: all {len(plan.runs)} runs are COMPLETED")
    written: list[Path] = []
    if not no_reports and not outcome.interrupted:
        written = reports.write(lab, study, listener.note)
    if as_json:
        click.echo(json.dumps(_as_data(plan, outcome, written), ensure_ascii=False))
    else:
        _show(plan, outcome, written)
    context.exit(outcome.exit_code)


def _show(plan: Plan, outcome: Outcome, written: list[Path]) -> None:
    """Tables, paths, and what went wrong."""
    for path in written:
        if path.suffix == ".md":
            click.echo("\n" + path.read_text(encoding="utf-8"))
    figures = [path for path in written if path.suffix == ".png"]
    if written:
        click.echo(f"reports: {written[0].parent}")
    for path in figures:
        click.echo(f"plot:    {path}")
    counts = Counter(outcome.states.values())
    if counts[RunState.COMPLETED] < len(plan.runs):
        click.echo(", ".join(f"{count} {state}" for state, count in sorted(counts.items())))
    if outcome.interrupted:
        click.echo("stopped: the same command goes on from the last checkpoints")
    failed = next((run for run in plan.runs if outcome.states[run.fingerprint] == RunState.FAILED), None)
    if failed is not None:
        click.echo(f"see: jestlab logs {plan.study.name} {failed.name} --seed {failed.seed}")


def _as_data(plan: Plan, outcome: Outcome, written: list[Path]) -> dict[str, Any]:
    return {
        "experiment": plan.study.name,
        "exit_code": outcome.exit_code,
        "counts": dict(Counter(outcome.states.values())),
        "runs": [
            {
                "run": run.name,
                "label": run.label,
                "seed": run.seed,
                "fingerprint": run.fingerprint,
                "state": outcome.states[run.fingerprint],
                "reason": outcome.reasons.get(run.fingerprint),
            }
            for run in plan.runs
        ],
        "reports": [str(path) for path in written],
    }
