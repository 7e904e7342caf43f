"""`jestlab retry`: run again what failed, and what waited for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from jestlab.platform.cli.common import lab_options
from jestlab.platform.cli.launching import (
    bring_to_end,
    how_options,
    listener_for,
    outcome_data,
    show_outcome,
    stored_study,
)
from jestlab.platform.lab import Lab
from jestlab.platform.store.states import RunState

if TYPE_CHECKING:
    from jestlab.platform.plan import Alias, Plan, PlannedRun

_EPILOG = """\b
Example:
  jestlab retry quickstart
  jestlab retry quickstart joint --retries 5
"""


@click.command(epilog=_EPILOG)
@click.argument("experiment")
@click.argument("run", required=False)
@how_options
@click.option("--no-reports", is_flag=True, help="Write no tables and figures.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
@lab_options
@click.pass_context
def command(
    context: click.Context,
    experiment: str,
    run: str | None,
    *,
    how: dict[str, Any],
    no_reports: bool,
    as_json: bool,
    lab: Lab,
) -> None:
    """Run again what FAILED of EXPERIMENT, or one RUN of it, and then what was SKIPPED for that.

    The study is taken as it was last launched; nothing else is started, what was cancelled stays so. Exit
    code as of `launch`.
    """
    from jestlab.platform import reports
    from jestlab.platform.plan import plan as make_plan
    from jestlab.platform.store import leases
    from jestlab.platform.store.store import Store

    store = Store.open(lab.store_url, create=False)
    study = stored_study(store, experiment)
    plan = make_plan(study)
    plan = plan.with_states(store.states(plan.fingerprints))
    again = failed_and_waiting(plan, run)
    listener = listener_for(as_json)
    leases.reopen(store, [planned.fingerprint for planned in again])
    outcome = bring_to_end(lab, store, study, again, listener, how)
    if not again:
        listener.note("nothing failed")
    made = reports.Made()
    if again and not no_reports and not outcome.interrupted:
        made = reports.bring_up_to_date(lab, store, study, listener.note)
    if as_json:
        click.echo(json.dumps(outcome_data(plan, again, outcome, made), ensure_ascii=False))
    else:
        show_outcome(plan, again, outcome, made)
    context.exit(outcome.exit_code or bool(made.failed))


def failed_and_waiting(plan: Plan, name: str | None) -> list[PlannedRun]:
    """The runs that failed, all or those of one name, and the skipped ones that need them; needed runs first.

    Args:
        plan: Compared with the store.
        name: Of a run, or its label; None for all.
    """
    again: dict[str, PlannedRun] = {}
    for run in plan.runs:
        places: list[PlannedRun | Alias] = [run, *run.aliases]
        meant = name is None or any(name in (place.name, place.label) for place in places)
        failed = run.state == RunState.FAILED and meant
        waits = run.state == RunState.SKIPPED and any(needed in again for needed in run.needs.values())
        if failed or waits:
            again[run.fingerprint] = run
    return list(again.values())
