"""What `jestlab launch`, `retry` and `cancel` do."""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jestlab.analysis.mixing import OWN_PROGRAMS
from jestlab.models.data.files import write_whole
from jestlab.platform import reports
from jestlab.platform.cli import naming
from jestlab.platform.cli.outcome import outcome_data, show_outcome
from jestlab.platform.cli.output import counted, print_json, say, show
from jestlab.platform.cli.plan import waiting_lines
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.lab.settings import path as config_path
from jestlab.platform.launch import controller, executors, logs
from jestlab.platform.launch.controller import Outcome
from jestlab.platform.launch.display import Listener, display
from jestlab.platform.launch.executor import Executor, Marks
from jestlab.platform.launch.wakeup import Wakeup
from jestlab.platform.planning import plan as planning
from jestlab.platform.planning.changes import Changes, changes
from jestlab.platform.planning.cost import budgeted, refuse_above
from jestlab.platform.planning.names import check as check_names
from jestlab.platform.planning.plan import Alias, Plan, PlannedRun
from jestlab.platform.planning.timings import Timings, matches_seconds
from jestlab.platform.spec.load import load_stored
from jestlab.platform.spec.resources import ExecutorName
from jestlab.platform.spec.schema import Study
from jestlab.platform.spec.yaml import dump
from jestlab.platform.store import leases, provenance
from jestlab.platform.store.address import parse_url, sqlite_file
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rerun import start_over, with_dependents
from jestlab.platform.store.store import Store
from jestlab.platform.store.taken import refuse_taken
from jestlab.platform.store.trust import refuse_untrusted
from jestlab.platform.whoami import host_name, user_name

_NO_STORE = _NO_TOKEN = "0" * 32
"""Stand for the store's id and a secret in manifests that are only looked at: there may be no store yet."""

_CODE = Path(__file__).parents[1]


def launch(
    lab: Lab,
    study: Study,
    how: dict[str, Any],
    *,
    max_chip_hours: float | None,
    render: Path | None,
    no_reports: bool,
    as_json: bool,
    runs: Sequence[str] = (),
    rerun_changed: bool = False,
    rerun_retracted: bool = False,
    replace: bool = False,
) -> int:
    """Launch a study, write its reports, and return the exit code; arguments as of `jestlab launch`."""
    plan = _planned(lab, study, how)  # raises all there is to raise before anything is written
    check_names(plan, functools.partial(_recorded, lab))
    if render is not None:
        written = _render(lab, study, plan.runs, how, render)
        show(as_json, [str(path) for path in written], f"{counted(len(written), 'manifest')} in {render}")
        return 0

    listener = _listener(as_json, study.name)
    plan, again, remarks = _compared(
        lab, plan, how, max_chip_hours, _Rerun(rerun_changed, rerun_retracted, runs)
    )
    if not replace:
        _refuse_taken(lab, plan)
    for line in remarks:
        listener.note(line)
    target = _Target.of(lab, study, plan.runs, how)
    store = Store.open(lab.store_url)
    gone = {
        each.study.name: len(set(store.members(each.study.name)) - set(each.fingerprints))
        for each in (plan, *plan.parts)
    }
    store.record(plan)
    if again:
        count = len(start_over(store, again))
        listener.note(f"{counted(count, 'run')} to run again: what they measured is replaced")
    for name, count in gone.items():
        if count:
            keep = " To keep both studies: --set name=NAME" if name == study.name else ""
            listener.note(
                f"no longer part of {name}: {counted(count, 'run')} of the last launch; results stay in the "
                f"store.{keep}"
            )
    outcome = target.launch(lab, store, study.name, plan.runs, listener)
    if plan.waiting and outcome.exit_code == 0:
        if len(_planned(lab, study, how).waiting) < len(plan.waiting):
            store.close_whole()
            return launch(
                lab, study, how,
                max_chip_hours=max_chip_hours, render=None, no_reports=no_reports, as_json=as_json,
            )  # fmt: skip
        for line in waiting_lines(plan):
            listener.note(line)
    if not outcome.launched:
        listener.note(f"nothing to run: all {len(plan.runs)} runs are COMPLETED")
    return _end(lab, store, plan, plan.runs, outcome, listener, not no_reports, as_json)


def _refuse_taken(lab: Lab, plan: Plan) -> None:
    """Raise UserError if a study of a plan would replace another one, or somebody else's."""
    with _looking(lab) as store:
        if store is not None:
            refuse_taken(store, plan.by_study)


def _recorded(lab: Lab) -> set[str]:
    """Return the names of all metrics in the lab's store; none if there is no store yet."""
    with _looking(lab) as store:
        return set() if store is None else store.measured()


@contextmanager
def _looking(lab: Lab) -> Iterator[Store | None]:
    """Open a lab's store to look at; None if there is none yet."""
    store = Store.open_readonly(lab.store_url)
    with nullcontext() if store is None else closing(store):
        yield store


def retry(lab: Lab, name: str, how: dict[str, Any], *, no_reports: bool, as_json: bool) -> int:
    """Launch the runs that are named and failed, and those that waited for them; return the exit code."""
    store = Store.open(lab.store_url, create=False)
    named = naming.several(store, name)
    experiment = named.experiment
    refuse_untrusted(store, experiment)
    study = load_stored(experiment, store.spec(experiment))
    plan = _planned(lab, study, how)
    plan = plan.with_states(store.states(plan.fingerprints))
    again = _failed_and_waiting(plan, {row.fingerprint for row in named.runs})
    listener = _listener(as_json, experiment)
    target = _Target.of(lab, study, again, how)
    leases.reopen(store, [planned.fingerprint for planned in again])
    outcome = target.launch(lab, store, study.name, again, listener)
    if not again:
        listener.note("nothing to retry: no run has failed")
    return _end(lab, store, plan, again, outcome, listener, bool(again) and not no_reports, as_json)


def _planned(lab: Lab, study: Study, how: dict[str, Any]) -> Plan:
    """Plan a study for where it is to run; UserError if something is wrong with it."""
    is_here = study.resources.executor(how["on"], Settings.find().on) == "local"
    timings = Timings()
    if matches_seconds(study):  # else the store is not asked: manifests are rendered where it is out of reach
        with _looking(lab) as store:
            timings = Timings.read(store, study)
    return planning.plan(study, where="here" if is_here else "elsewhere", timings=timings)


def _end(
    lab: Lab,
    store: Store,
    plan: Plan,
    runs: Sequence[PlannedRun],
    outcome: Outcome,
    listener: Listener,
    reported: bool,
    as_json: bool,
) -> int:
    """Bring reports up to date, print the outcome of the launched runs, and return the exit code."""
    made = reports.Made()
    if reported and not outcome.interrupted:
        made = reports.bring_up_to_date(lab, store, plan.study, listener.note)
    store.close_whole()
    exit_code = outcome.exit_code or int(bool(made.failed or plan.waiting))
    if as_json:
        print_json(outcome_data(plan, runs, outcome, made, exit_code))
    else:
        show_outcome(lab, plan, runs, outcome, made)
    return exit_code


@dataclass(frozen=True)
class _Stopped:
    """A run to stop; what it needs and executes does not matter any more."""

    fingerprint: str
    name: str
    label: str
    seed: int
    needs: Mapping[str, str] = field(default_factory=dict)
    program: str = ""


def cancel(lab: Lab, name: str, *, now: bool, as_json: bool) -> int:
    """Stop the runs that are named, and return the exit code."""
    store = Store.open(lab.store_url, create=False)
    named = naming.several(store, name)
    experiment = named.experiment
    wanted = {row.fingerprint: row for row in named.runs if row.state != RunState.COMPLETED}
    leases.request_stop(store, list(wanted), f"cancelled by {user_name()} on {host_name()}")
    settings = Settings.find()
    outcome = controller.launch(
        lab,
        store,
        experiment,
        [_Stopped(row.fingerprint, row.name, row.label, row.seed) for row in wanted.values()],
        functools.cache(lambda name: executors.find(name, settings, lab)),
        options=controller.Options(at_once=now, launches=False),
        listener=_listener(as_json, experiment),
    )
    stopped = [wanted[f] for f, state in outcome.states.items() if state == RunState.CANCELLED]
    if as_json:
        print_json([{"run": row.name, "label": row.label, "seed": row.seed} for row in stopped])
    else:
        say(f"{counted(len(stopped), 'run')} cancelled" if stopped else "nothing to cancel")
        shared = store.shared(experiment, [row.fingerprint for row in stopped])
        for other, count in sorted(shared.items()):
            say(
                f"{count} of them also {'belongs' if count == 1 else 'belong'} to {other} and "
                f"{'stays' if count == 1 else 'stay'} CANCELLED there until {other} is launched again"
            )
    over = (RunState.CANCELLED, RunState.COMPLETED)
    return 0 if all(state in over for state in outcome.states.values()) else 1


def _listener(as_json: bool, experiment: str) -> Listener:
    """Show progress on standard error where standard output is for a program."""
    return display(experiment, sys.stderr if as_json else sys.stdout)


def _failed_and_waiting(plan: Plan, meant: Collection[str]) -> list[PlannedRun]:
    """Find the runs that failed, of those that are meant, and the skipped ones that need them."""
    again: dict[str, PlannedRun] = {}
    for run in plan.runs:
        failed = run.state == RunState.FAILED and run.fingerprint in meant
        waits = run.state == RunState.SKIPPED and any(needed in again for needed in run.needs.values())
        if failed or waits:
            again[run.fingerprint] = run
    return list(again.values())


def _names(run: PlannedRun, study: str) -> set[str]:
    """Return what a run of a study is called: RUN, RUN/SEED, each also behind the study's name."""
    places: list[PlannedRun | Alias] = [run, *run.aliases]
    names = {name for place in places for name in (place.name, place.label)}
    names |= {f"{name}/{run.seed}" for name in names}
    return names | {f"{study}/{name}" for name in names}


@dataclass(frozen=True)
class _Rerun:
    """Which completed runs shall run again.

    Attributes:
        changed: Whether those that were made by other code or data than is there now, or by other versions
            than newer seeds.
        retracted: Whether those whose results are retracted.
        runs: Names of those that are meant; none for all.
    """

    changed: bool = False
    retracted: bool = False
    runs: Sequence[str] = ()

    def chosen(self, plan: Plan, found: Changes) -> list[str]:
        """Return the fingerprints of the runs that shall run again, with those that need them.

        Raises:
            UserError: A name is of no run of the plan.
        """
        named = {run.fingerprint: _names(run, plan.study.name) for run in plan.runs}
        names = set().union(*named.values())
        for name in self.runs:
            if name not in names:
                shorter = {label for run in plan.runs for label in (run.name, run.label)}
                raise UserError(f"no run {name!r} in {plan.study.name}: {nearest(name, shorter)}")
        wanted = {*found.changed, *found.older} if self.changed else set()
        wanted |= set(found.retracted) if self.retracted else set()
        if self.runs:
            wanted = {run for run in wanted if named[run] & set(self.runs)}
        completed = {run.fingerprint for run in plan.runs if run.state == RunState.COMPLETED}
        order = [(run.fingerprint, list(run.needs.values())) for run in plan.runs]
        return [fingerprint for fingerprint in with_dependents(wanted, order) if fingerprint in completed]


def _compared(
    lab: Lab, plan: Plan, how: dict[str, Any], max_chip_hours: float | None, rerun: _Rerun
) -> tuple[Plan, list[str], list[str]]:
    """Compare a plan with the store and estimate what its runs will occupy. Writes nothing.

    Returns:
        The plan; the completed runs that shall run again; and what is to be said of the others.

    Raises:
        UserError: The estimate exceeds the limit or is unknown; the settings are wrong; nothing says where
            the runs go.
    """
    again: list[str] = []
    remarks: list[str] = []
    with _looking(lab) as store:
        if store is not None:
            states = store.states(plan.fingerprints)
            plan = plan.with_states(states)
            found = changes(store, plan.study, plan.runs)
            again = rerun.chosen(plan, found)
            remarks = found.without(again).lines(plan.study.name)
            plan = plan.with_states(states | dict.fromkeys(again, RunState.PENDING))
        if not _is_complete(plan.runs):
            place = executors.choose(how["on"], plan.study.resources, Settings.find())
            plan = budgeted(plan, store, local=place == "local")
            if max_chip_hours is not None:
                refuse_above(plan, max_chip_hours)
    return plan, again, remarks


def _is_complete(runs: Sequence[PlannedRun]) -> bool:
    return all(run.state == RunState.COMPLETED for run in runs)


@dataclass(frozen=True)
class _Target:
    """Where runs are launched, and how."""

    place: ExecutorName
    executor: Executor
    settings: Settings  # whose accounts find executors of earlier launches
    options: controller.Options
    wakeup: Wakeup  # rung when a job of this machine has ended

    @classmethod
    def of(cls, lab: Lab, study: Study, runs: Sequence[PlannedRun], how: dict[str, Any]) -> _Target:
        """Choose the executor of a study's runs; its resources count where `how` says nothing.

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
            keep_going=how["keep_going"],
            retry_exit_codes=resources.retry_exit_codes,
            record=settings.record,
        )
        return cls(place, executor, settings, options, wakeup)

    def launch(
        self, lab: Lab, store: Store, experiment: str, runs: Sequence[PlannedRun], listener: Listener
    ) -> Outcome:
        """Bring recorded runs to their end; runs that others need come first."""

        if not _is_complete(runs) and not store.has_attempts():
            told = provenance.announcement(
                _CODE, self.options.record, any(run.program not in OWN_PROGRAMS for run in runs)
            )
            listener.note(f"{told}. To record less: `record: []` in {config_path()}")

        @functools.cache
        def by_name(name: ExecutorName) -> Executor:
            return self.executor if name == self.place else executors.find(name, self.settings, lab)

        try:
            return controller.launch(
                lab, store, experiment, runs, by_name,
                options=self.options, listener=listener, wakeup=self.wakeup,
            )  # fmt: skip
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
        marks = Marks(_NO_STORE, run.fingerprint, 1, _NO_TOKEN)
        job = executors.job_of(lab, study.name, run, marks, f"{run.directory}/{logs.NAME}", place)
        path = folder / f"{job.name}.yaml"
        write_whole(path, dump(executor.render(job) or {}).encode())
        written.append(path)
    return written
