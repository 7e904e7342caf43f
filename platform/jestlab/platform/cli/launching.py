"""What the verbs share that make runs run, or stop."""

from __future__ import annotations

import functools
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jestlab.platform.cli.claim_lines import REPORT as CLAIMS
from jestlab.platform.cli.claim_lines import show_claims
from jestlab.platform.cli.common import same_lab_options
from jestlab.platform.cli.text import table
from jestlab.platform.lab import Lab
from jestlab.platform.store.states import RunState

if TYPE_CHECKING:
    from jestlab.platform.launch.controller import Outcome
    from jestlab.platform.launch.executor import Executor
    from jestlab.platform.launch.listener import Listener
    from jestlab.platform.plan import Plan, PlannedRun
    from jestlab.platform.reports import Made
    from jestlab.platform.spec.resources import Place
    from jestlab.platform.spec.schema import Study
    from jestlab.platform.store.store import Store

_NO_STORE = "0" * 8
"""Stands for the store's id in manifests that are only looked at: there may be no store yet."""


def how_options(function: Any) -> Any:
    """Add the options that say how runs are launched; the command receives them as `how: dict`."""

    @click.option(
        "--on",
        type=click.Choice(["local", "vertex", "kubernetes"]),
        help="Where runs go [the study's, else your settings', else local].",
    )
    @click.option("--parallel", type=click.IntRange(min=1), metavar="N", help="Runs at a time [the study's].")
    @click.option(
        "--retries",
        type=click.IntRange(min=0),
        metavar="N",
        help="Attempts at a run after it failed [the study's].",
    )
    @click.option("--fail-fast", is_flag=True, help="Stop all runs as soon as one has failed for good.")
    @functools.wraps(function)
    def wrapped(
        *args: Any,
        on: Place | None,
        parallel: int | None,
        retries: int | None,
        fail_fast: bool,
        **kwargs: Any,
    ) -> Any:
        how = {"on": on, "parallel": parallel, "retries": retries, "fail_fast": fail_fast}
        return function(*args, how=how, **kwargs)

    return wrapped


def stored_study(store: Store, experiment: str) -> Study:
    """A study as it was last launched.

    Raises:
        UserError: No such experiment, or its programs are not what they were.
    """
    from jestlab.platform.errors import UserError
    from jestlab.platform.spec.errors import SpecError
    from jestlab.platform.spec.schema import Study

    try:
        return Study.parse(store.spec(experiment))
    except SpecError as error:
        raise UserError(f"{experiment} as it was launched: {error}; launch its spec again") from None


def listener_for(as_json: bool) -> Listener:
    """Who tells the user what happens: on standard error where standard output is for a program."""
    from jestlab.platform.launch.display import display

    return display(sys.stderr if as_json else sys.stdout)


def with_budgets(lab: Lab, plan: Plan, how: dict[str, Any], max_chip_hours: float | None) -> Plan:
    """A plan with what its runs will occupy where they are to be launched. Writes nothing.

    Args:
        lab: Whose store, if there is one, knows earlier runs.
        plan: Priced.
        how: As `how_options` gives it.
        max_chip_hours: What the runs that are still to do may take; None for anything.

    Raises:
        UserError: They take more, or nobody knows; nothing says where the runs go; the settings are wrong.
    """
    from jestlab.platform.budgets import budgeted, refuse_above
    from jestlab.platform.launch import executors
    from jestlab.platform.settings import Settings
    from jestlab.platform.store.store import Store

    place = executors.choose(how["on"], plan.study.resources, Settings.find())
    store = Store.open_readonly(lab.store_url)
    try:
        plan = budgeted(plan, store, local=place == "local")
        if max_chip_hours is not None:
            states = store.states(plan.fingerprints) if store is not None else {}
            refuse_above(plan.with_states(states), max_chip_hours)
    finally:
        if store is not None:
            store.close()
    return plan


def bring_to_end(
    lab: Lab,
    store: Store,
    study: Study,
    runs: Sequence[PlannedRun],
    listener: Listener,
    how: dict[str, Any],
) -> Outcome:
    """Launch recorded runs of a study.

    Args:
        lab: Where.
        store: Its store.
        study: Whose resources count where `how` is silent.
        runs: Needed ones first.
        listener: Told what happens.
        how: As `how_options` gives it.

    Raises:
        UserError: Runs would go where they cannot reach the store, or something that the executor needs is
            not named anywhere.
    """
    from jestlab.platform.launch import executors
    from jestlab.platform.launch.bell import Bell
    from jestlab.platform.launch.controller import Options, launch
    from jestlab.platform.settings import Settings

    resources, settings, bell = study.resources, Settings.find(), Bell()
    place = executors.choose(how["on"], resources, settings)
    retries = resources.retries if how["retries"] is None else how["retries"]
    options = Options(
        executor=place,
        parallel=how["parallel"] or resources.parallel,
        retries=retries,
        lease_seconds=resources.lease_seconds,
        fail_fast=how["fail_fast"],
    )
    if all(run.state == RunState.COMPLETED for run in runs):
        place = "local"  # nothing will be launched
    chosen = executors.get(place, resources, settings, lab, bell.ring)
    if place != "local":
        _refuse_a_file(lab, place)

    @functools.cache
    def by_name(name: Place) -> Executor:
        return chosen if name == place else executors.find(name, settings, lab)

    return launch(lab, store, study.name, runs, by_name, options=options, listener=listener, bell=bell)


def _refuse_a_file(lab: Lab, place: Place) -> None:
    """UserError where the store is a file: workers on other machines would write into another one."""
    from jestlab.platform.errors import UserError
    from jestlab.platform.store import address

    if (path := address.file(address.parse(lab.store_url))) is not None:
        raise UserError(
            f"jobs on {place} cannot reach the SQLite file {path}: "
            "give --store postgresql://user@host/database, or --on local"
        )


def render_jobs(
    lab: Lab, study: Study, runs: Sequence[PlannedRun], how: dict[str, Any], folder: Path
) -> list[Path]:
    """Write what would be sent for the first attempt at each run; nothing is sent.

    Raises:
        UserError: Runs would go to processes of this machine, which have no manifests.
    """
    from jestlab.models.data.files import write_whole
    from jestlab.platform.errors import UserError
    from jestlab.platform.launch import executors, logs
    from jestlab.platform.launch.controller import job_of
    from jestlab.platform.settings import Settings
    from jestlab.platform.spec import yaml_io

    resources, settings = study.resources, Settings.find()
    place = executors.choose(how["on"], resources, settings)
    if place == "local":
        raise UserError("processes of this machine have no manifests: --on kubernetes or --on vertex has")
    executor = executors.get(place, resources, settings, lab)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for run in runs:
        job = job_of(lab, study.name, run, 1, f"{run.directory}/{logs.NAME}", place, _NO_STORE)
        path = folder / f"{job.name}.yaml"
        write_whole(path, yaml_io.dump(executor.render(job) or {}).encode())
        written.append(path)
    return written


def show_outcome(plan: Plan, runs: Sequence[PlannedRun], outcome: Outcome, made: Made) -> None:
    """Tables, paths, and what went wrong.

    Args:
        plan: The whole one.
        runs: Those that were launched.
        outcome: Of these.
        made: Reports.
    """
    study = plan.study
    if plan.parts:
        _show_parts(plan, outcome, made)
    else:
        _show_reports(study.name, made.files.get(study.name, []))
    counts = Counter(outcome.states.values())
    if counts[RunState.COMPLETED] < len(runs):
        click.echo(", ".join(f"{count} {state}" for state, count in sorted(counts.items())))
    if outcome.interrupted:
        click.echo("stopped: the same command goes on from the last checkpoints")
    failed = next((run for run in runs if outcome.states[run.fingerprint] == RunState.FAILED), None)
    if failed is not None:
        same = same_lab_options()
        click.echo(f"see: jestlab logs {study.name} {shlex.quote(failed.label)} --seed {failed.seed}{same}")
        click.echo(f"then: jestlab retry {study.name}{same}")


def _show_reports(study: str, written: Sequence[Path]) -> None:
    """The tables of one study, and where its other reports lie."""
    show_claims(written, study)
    for path in written:
        if path.suffix == ".md" and path.stem != CLAIMS:
            click.echo("\n" + path.read_text(encoding="utf-8"))
    if written:
        click.echo(f"reports: {written[0].parent}")
    for path in written:
        if path.suffix == ".png" and path.parent == written[0].parent:
            click.echo(f"plot:    {path}")
    if (page := _page(written)) is not None:
        click.echo(f"page:    {page}")


def _show_parts(plan: Plan, outcome: Outcome, made: Made) -> None:
    """A line for each part of a union, the verdicts on their claims, and where the union's own page lies."""
    rows = []
    for part in plan.parts:
        counts = _counts(part, outcome)
        states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        rows.append((part.study.name, states, str(_page(made.files.get(part.study.name, [])) or "–")))
    click.echo(table(("STUDY", "RUNS", "PAGE"), rows))
    own = made.files.get(plan.study.name, [])
    told = show_claims(own, plan.study.name, by_study=True)
    if (page := _page(own)) is not None:
        click.echo(("" if told else "\n") + f"page:    {page}")


def _page(written: Sequence[Path]) -> Path | None:
    return next((path for path in written if path.name == "report.html"), None)


def _counts(plan: Plan, outcome: Outcome) -> dict[str, int]:
    """How many runs of a plan are in which state; of what was not launched, in that of before."""
    states = (outcome.states.get(run.fingerprint, run.state) for run in plan.runs)
    return dict(Counter(str(state) for state in states if state is not None))


def outcome_data(plan: Plan, runs: Sequence[PlannedRun], outcome: Outcome, made: Made) -> dict[str, Any]:
    """The same for a program."""
    data: dict[str, Any] = {
        "experiment": plan.study.name,
        "exit_code": outcome.exit_code or int(bool(made.failed)),
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
            for run in runs
        ],
        "reports": list(map(str, made.files.get(plan.study.name, []))),
    }
    if plan.parts:
        data["studies"] = [
            {
                "experiment": part.study.name,
                "counts": _counts(part, outcome),
                "reports": list(map(str, made.files.get(part.study.name, []))),
            }
            for part in plan.parts
        ]
    return data
