"""`jestlab launch`: run a study and write its reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jestlab.platform.cli.common import lab_options
from jestlab.platform.cli.launching import (
    bring_to_end,
    how_options,
    listener_for,
    outcome_data,
    render_jobs,
    show_outcome,
    with_budgets,
)
from jestlab.platform.cli.spec_options import spec_options
from jestlab.platform.lab import Lab

if TYPE_CHECKING:
    from jestlab.platform.spec.schema import Study

_EPILOG = """\b
Example:
  jestlab launch quickstart
  jestlab launch quickstart --set seeds=1 --parallel 4
  jestlab launch my_study.yaml --on kubernetes --max-chip-hours 500
  jestlab launch my_study.yaml --root /data/lab --json > outcome.json
"""


@click.command(epilog=_EPILOG)
@spec_options
@how_options
@click.option(
    "--max-chip-hours",
    type=click.FloatRange(min=0),
    metavar="H",
    help="Launch nothing if the runs to do take more, or nobody knows; of a run on this machine, hours.",
)
@click.option(
    "--render",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the manifests that would be sent to DIR, without credentials, and launch nothing.",
)
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
    how: dict[str, Any],
    max_chip_hours: float | None,
    render: Path | None,
    no_reports: bool,
    as_json: bool,
    lab: Lab,
) -> None:
    """Run SPEC (a name from `jestlab list`, or a .py or .yaml file) and write its tables and plots.

    What is done already is not run again, what was interrupted goes on from its last checkpoint, what still
    runs is found again. Ctrl-C stops all runs, each at a checkpoint. Exit code: 0 all runs are completed, 1
    not all are, 130 interrupted.
    """
    from jestlab.platform.plan import plan as make_plan

    plan = make_plan(study)  # raises all there is to raise before anything is written

    if render is not None:
        written = render_jobs(lab, study, plan.runs, how, render)
        click.echo(
            json.dumps(list(map(str, written))) if as_json else f"{len(written)} manifests in {render}"
        )
        return

    from jestlab.platform import reports
    from jestlab.platform.store.store import Store

    listener = listener_for(as_json)
    plan = with_budgets(lab, plan, how, max_chip_hours)
    store = Store.open(lab.store_url)
    gone = {
        each.study.name: len(set(store.members(each.study.name)) - set(each.fingerprints))
        for each in (plan, *plan.parts)
    }
    store.record(plan)
    for name, count in gone.items():
        if count:
            keep = " To keep both studies: --set name=NAME" if name == study.name else ""
            listener.note(
                f"{count} runs of the last launch are no longer part of {name}; their results stay in the "
                f"store.{keep}"
            )
    outcome = bring_to_end(lab, store, study, plan.runs, listener, how)
    if not outcome.launched:
        listener.note(f"nothing to run: all {len(plan.runs)} runs are COMPLETED")
    made = reports.Made()
    if not no_reports and not outcome.interrupted:
        made = reports.bring_up_to_date(lab, store, study, listener.note)
    if as_json:
        click.echo(json.dumps(outcome_data(plan, plan.runs, outcome, made), ensure_ascii=False))
    else:
        show_outcome(plan, plan.runs, outcome, made)
    context.exit(outcome.exit_code or bool(made.failed))
