"""`jestlab launch` and `jestlab retry`: run a study, or what failed of it, and write its reports."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from jestlab.models.data.files import write_whole
from jestlab.platform import reports
from jestlab.platform.cli.naming import stored_study
from jestlab.platform.cli.options import examples, how_options, json_option, lab_options, spec_options
from jestlab.platform.cli.outcome import listener_for, outcome_data, show_outcome
from jestlab.platform.cli.output import counted, print_json, show
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch import controller, executors, logs
from jestlab.platform.launch.executor import Executor
from jestlab.platform.launch.wakeup import Wakeup
from jestlab.platform.planning import plan as planning
from jestlab.platform.planning.cost import budgeted, refuse_above
from jestlab.platform.planning.plan import Alias, Plan, PlannedRun
from jestlab.platform.spec.resources import ExecutorName
from jestlab.platform.spec.schema import Study
from jestlab.platform.spec.yaml import dump
from jestlab.platform.store import leases
from jestlab.platform.store.address import parse_url, sqlite_file
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

_NO_STORE = "0" * 8
"""Stands for the store's id in manifests that are only looked at: there may be no store yet."""

_no_reports = click.option("--no-reports", is_flag=True, help="Write no tables and figures.")
_json = json_option("Print one JSON object at the end, and progress to standard error.")


@click.command(
    epilog=examples(
        "launch quickstart",
        "launch quickstart --set seeds=1 --parallel 4",
        "launch my_study.yaml --on kubernetes --max-chip-hours 500",
        "launch my_study.yaml --root /data/lab --json > outcome.json",
    )
)
@spec_options
@how_options
@click.option(
    "--max-chip-hours",
    type=click.FloatRange(min=0),
    metavar="H",
    help="Launch nothing if the estimate exceeds H or is unknown; for runs on this machine, H is in hours.",
)
@click.option(
    "--render",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the manifests to DIR, without credentials, and launch nothing.",
)
@_no_reports
@_json
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

    Completed runs are skipped, interrupted runs resume from their last checkpoint, and runs that are still
    running are found again. Ctrl-C stops all runs, each at a checkpoint. Exit code: 0 all runs are completed,
    1 not all are, 130 interrupted.
    """
    plan = planning.plan(study)  # raises all there is to raise before anything is written
    if render is not None:
        written = _render(lab, study, plan.runs, how, render)
        show(as_json, [str(path) for path in written], f"{counted(len(written), 'manifest')} in {render}")
        return

    listener = listener_for(as_json)
    plan = _compared(lab, plan, how, max_chip_hours)
    target = _Target.of(lab, study, plan.runs, how)
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
                f"no longer part of {name}: {counted(count, 'run')} of the last launch; results stay in the "
                f"store.{keep}"
            )
    outcome = target.launch(lab, store, study, plan.runs, listener)
    if not outcome.launched:
        listener.note(f"nothing to run: all {len(plan.runs)} runs are COMPLETED")
    made = reports.Made()
    if not no_reports and not outcome.interrupted:
        made = reports.bring_up_to_date(lab, store, study, listener.note)
    if as_json:
        print_json(outcome_data(plan, plan.runs, outcome, made))
    else:
        show_outcome(plan, plan.runs, outcome, made)
    context.exit(outcome.exit_code or bool(made.failed))


@click.command(epilog=examples("retry quickstart", "retry quickstart joint --retries 5"))
@click.argument("experiment")
@click.argument("run", required=False)
@how_options
@_no_reports
@_json
@lab_options
@click.pass_context
def retry(
    context: click.Context,
    experiment: str,
    run: str | None,
    *,
    how: dict[str, Any],
    no_reports: bool,
    as_json: bool,
    lab: Lab,
) -> None:
    """Retry the FAILED runs of EXPERIMENT, or one RUN of it, then the runs that were SKIPPED because of them.

    The study is taken as it was last launched. Nothing else is started: cancelled runs stay cancelled. Exit
    code: as for `launch`.
    """
    store = Store.open(lab.store_url, create=False)
    study = stored_study(store, experiment)
    plan = planning.plan(study)
    plan = plan.with_states(store.states(plan.fingerprints))
    again = _failed_and_waiting(plan, run)
    listener = listener_for(as_json)
    target = _Target.of(lab, study, again, how)
    leases.reopen(store, [planned.fingerprint for planned in again])
    outcome = target.launch(lab, store, study, again, listener)
    if not again:
        listener.note("nothing to retry: no run has failed")
    made = reports.Made()
    if again and not no_reports and not outcome.interrupted:
        made = reports.bring_up_to_date(lab, store, study, listener.note)
    if as_json:
        print_json(outcome_data(plan, again, outcome, made))
    else:
        show_outcome(plan, again, outcome, made)
    context.exit(outcome.exit_code or bool(made.failed))


def _failed_and_waiting(plan: Plan, name: str | None) -> list[PlannedRun]:
    """Find the runs that failed, all or those of one name, and the skipped ones that need them.

    Args:
        plan: Compared with the store.
        name: Of a run, or its label; None for all.

    Returns:
        Runs, each after those that it needs.
    """
    again: dict[str, PlannedRun] = {}
    for run in plan.runs:
        named: list[PlannedRun | Alias] = [run, *run.aliases]
        is_meant = name is None or any(name in (each.name, each.label) for each in named)
        failed = run.state == RunState.FAILED and is_meant
        waits = run.state == RunState.SKIPPED and any(needed in again for needed in run.needs.values())
        if failed or waits:
            again[run.fingerprint] = run
    return list(again.values())


def _compared(lab: Lab, plan: Plan, how: dict[str, Any], max_chip_hours: float | None) -> Plan:
    """Compare a plan with the store and estimate what its runs will occupy. Writes nothing.

    Raises:
        UserError: The estimate exceeds the limit or is unknown; the settings are wrong; nothing says where
            the runs go.
    """
    store = Store.open_readonly(lab.store_url)
    try:
        if store is not None:
            plan = plan.with_states(store.states(plan.fingerprints))
        if not _is_complete(plan.runs):
            place = executors.choose(how["on"], plan.study.resources, Settings.find())
            plan = budgeted(plan, store, local=place == "local")
            if max_chip_hours is not None:
                refuse_above(plan, max_chip_hours)
    finally:
        if store is not None:
            store.close()
    return plan


def _is_complete(runs: Sequence[PlannedRun]) -> bool:
    return all(run.state == RunState.COMPLETED for run in runs)


@dataclass(frozen=True)
class _Target:
    """Where runs are launched, and how.

    Attributes:
        place: Name of the executor.
        executor: The executor itself.
        settings: Whose accounts find executors of earlier launches.
        options: For the controller.
        wakeup: Rung when a job of this machine has ended.
    """

    place: ExecutorName
    executor: Executor
    settings: Settings
    options: controller.Options
    wakeup: Wakeup

    @classmethod
    def of(cls, lab: Lab, study: Study, runs: Sequence[PlannedRun], how: dict[str, Any]) -> _Target:
        """Choose the executor of a study's runs. Writes nothing.

        Args:
            lab: Whose store the runs have to reach.
            study: Its resources count where `how` says nothing.
            runs: What is to run, with the states in the store.
            how: As `how_options` gives it.

        Raises:
            UserError: Runs would go where they cannot reach the store, or something that the executor needs
                is not named anywhere.
        """
        resources, settings, wakeup = study.resources, Settings.find(), Wakeup()
        # Nothing will be launched for a finished study, so it needs no executor.
        place = "local" if _is_complete(runs) else executors.choose(how["on"], resources, settings)
        executor = executors.get(place, resources, settings, lab, wakeup.set)
        file = sqlite_file(parse_url(lab.store_url))
        if place != "local" and file is not None:
            raise UserError(
                f"jobs on {place} cannot reach the SQLite file {file}: "
                "give --store postgresql://user@host/database, or --on local"
            )
        options = controller.Options(
            executor=place,
            parallel=how["parallel"] or resources.parallel,
            retries=resources.retries if how["retries"] is None else how["retries"],
            lease_seconds=resources.lease_seconds,
            fail_fast=how["fail_fast"],
        )
        return cls(place, executor, settings, options, wakeup)

    def launch(
        self, lab: Lab, store: Store, study: Study, runs: Sequence[PlannedRun], listener: Any
    ) -> controller.Outcome:
        """Bring recorded runs to their end; runs that others need come first."""

        @functools.cache
        def by_name(name: ExecutorName) -> Executor:
            return self.executor if name == self.place else executors.find(name, self.settings, lab)

        try:
            return controller.launch(
                lab,
                store,
                study.name,
                runs,
                by_name,
                options=self.options,
                listener=listener,
                wakeup=self.wakeup,
            )
        finally:
            self.executor.close()


def _render(
    lab: Lab, study: Study, runs: Sequence[PlannedRun], how: dict[str, Any], folder: Path
) -> list[Path]:
    """Write what would be sent for the first attempt at each run; nothing is sent.

    Raises:
        UserError: Runs would go to processes of this machine, which have no manifests.
    """
    resources, settings = study.resources, Settings.find()
    place = executors.choose(how["on"], resources, settings)
    if place == "local":
        raise UserError("local runs have no manifests: give --on kubernetes or --on vertex")
    executor = executors.get(place, resources, settings, lab)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for run in runs:
        job = executors.job_of(lab, study.name, run, 1, f"{run.directory}/{logs.NAME}", place, _NO_STORE)
        path = folder / f"{job.name}.yaml"
        write_whole(path, dump(executor.render(job) or {}).encode())
        written.append(path)
    return written
