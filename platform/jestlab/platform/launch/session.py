"""A launch from a study to its reports, for the command line and for notebooks alike.

Nothing here prints or ends the process: what happens is told to a listener, and how it ended is returned.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from jestlab.analysis.mixing import OWN_PROGRAMS
from jestlab.models.data.files import write_whole
from jestlab.models.extensions import check_name
from jestlab.platform import logs, reports
from jestlab.platform.dependencies import check_client
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.lab import identity
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.network_files import network_file_system
from jestlab.platform.lab.settings import Settings
from jestlab.platform.lab.settings import path as config_path
from jestlab.platform.launch import controller, executors
from jestlab.platform.launch.controller import Outcome
from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.executor import Executor, Marks
from jestlab.platform.launch.options import Options
from jestlab.platform.launch.wakeup import Wakeup
from jestlab.platform.planning import deciding, registering
from jestlab.platform.planning import plan as planning
from jestlab.platform.planning.changes import Changes, changes
from jestlab.platform.planning.cost import budgeted, refuse_above
from jestlab.platform.planning.names import check as check_names
from jestlab.platform.planning.plan import Alias, Plan, PlannedRun, waiting_lines
from jestlab.platform.planning.replicates import without
from jestlab.platform.planning.timings import Timings, matches_seconds
from jestlab.platform.spec.load import load_stored
from jestlab.platform.spec.resources import EXECUTORS, ExecutorName, runs_here
from jestlab.platform.spec.schema import Study
from jestlab.platform.spec.yaml import dump
from jestlab.platform.store import leases, provenance
from jestlab.platform.store.address import parse_url, sqlite_file
from jestlab.platform.store.identity import completed_elsewhere
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rerun import start_over, with_dependents
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store
from jestlab.platform.store.taken import refuse_taken
from jestlab.platform.store.trust import refuse_untrusted
from jestlab.platform.words import counted

_NO_STORE = _NO_TOKEN = "0" * 32
"""Stand for the store's id and a secret in manifests that are only looked at: there may be no store yet."""

_CODE = Path(__file__).parents[1]


@dataclass(frozen=True)
class How:
    """How runs are launched, where it is not as their study says.

    Attributes:
        on: Executor; None: as the study says, else the user's settings, else this machine.
        parallel: Number of concurrent runs; None for the study's.
        retries: Number of further attempts at a run that fails; None for the study's.
        fail_fast: Whether all runs stop once one has failed for good.
        keep_going: Whether the launch goes on when the first three runs that end have failed alike.
    """

    on: ExecutorName | None = None
    parallel: int | None = None
    retries: int | None = None
    fail_fast: bool = False
    keep_going: bool = False

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UserError: One is out of range, or two contradict each other.
        """
        if self.on is not None:
            try:
                check_name("executor", self.on, EXECUTORS)
            except ValueError as error:
                raise UserError(f"on: {error}") from None
        if self.parallel is not None and self.parallel < 1:
            raise UserError(f"parallel must be >= 1, got {self.parallel}")
        if self.retries is not None and self.retries < 0:
            raise UserError(f"retries must be >= 0, got {self.retries}")
        if self.fail_fast and self.keep_going:
            raise UserError("fail_fast and keep_going: give one of them")


@dataclass(frozen=True)
class Rerun:
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

    def __post_init__(self) -> None:
        """Check that runs are named for a reason.

        Raises:
            UserError: They are not to run again.
        """
        if self.runs and not (self.changed or self.retracted):
            raise UserError("runs: a launch takes the whole study; name runs with rerun_changed alone")

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


@dataclass(frozen=True)
class Launched:
    """A launch that has ended.

    Attributes:
        plan: All runs of the study.
        runs: Those of them that the launch was to bring to their end.
        outcome: How they ended.
        made: The reports that are up to date.
    """

    plan: Plan
    runs: Sequence[PlannedRun]
    outcome: Outcome
    made: reports.Made = field(default_factory=reports.Made)

    @property
    def exit_code(self) -> int:
        """0 when all is completed and reported, 130 when interrupted, else 1."""
        return self.outcome.exit_code or int(
            bool(self.made.failed or self.plan.waiting or self.outcome.stopped)
        )


class _Limit(NamedTuple):
    """Most chip-hours that a launch may take, None for any number, and when it began."""

    chip_hours: float | None
    since: datetime


def launch(
    lab: Lab,
    study: Study,
    how: How,
    listener: Listener,
    rerun: Rerun,
    *,
    max_chip_hours: float | None = None,
    replacing: bool = False,
    reported: bool = True,
) -> Launched:
    """Launch a study and bring its reports up to date.

    Args:
        lab: Where.
        study: What.
        how: How, where it is not as the study says.
        listener: Told what happens.
        rerun: Which completed runs shall run again.
        max_chip_hours: Nothing is launched if the estimate exceeds these or is unknown, and no run starts
            that would exceed them, with all that runs in the store meanwhile; None for no limit.
        replacing: Whether it may replace another study's, or another user's, experiment of its name.
        reported: Whether its tables and figures are written.

    Raises:
        UserError: The launch is refused, and nothing was written; or a report cannot be written. A later
            round that is refused ends the launch as `Outcome.stopped` says.
    """
    limit = _Limit(max_chip_hours, now())
    in_rounds = deciding.goes_on(study)
    whole = planned(lab, study, how)  # raises all there is to raise before anything is written
    plan = _begun(lab, whole) if in_rounds else whole
    ended: Outcome | None = None
    while True:
        try:
            launched = _once(lab, plan, how, listener, rerun, limit=limit, replacing=replacing, before=ended)
            rerun, replacing = Rerun(), False  # what was to run again has done so
            ended = launched.outcome
            if ended.interrupted or ended.stopped or (ended.exit_code and (how.fail_fast or not in_rounds)):
                break
            if plan.waiting:  # for the length of runs that have completed now
                whole = planned(lab, study, how)
                longer = _begun(lab, whole) if in_rounds else whole
                if len(longer.waiting) < len(plan.waiting):
                    plan = longer
                    continue
                for line in waiting_lines(plan):
                    listener.note(line)
            if not in_rounds:
                break
            standing = deciding.standing(lab.store_url, study.name)
            listener.note(str(standing))
            longer = deciding.further(whole, plan, standing.next)
            if not set(longer.fingerprints) - set(plan.fingerprints) - _stuck(longer, ended):
                break
            plan = longer
        except UserError as error:
            if ended is None:
                raise
            stopped = f"no further round: {error}"  # what has run is reported all the same
            listener.note(stopped)
            launched = replace(launched, outcome=replace(ended, stopped=stopped))
            break
    if not launched.outcome.launched:
        all_done = f"nothing to run: all {len(launched.runs)} runs are COMPLETED"
        listener.note(all_done if launched.runs else "nothing to run: the spec has no runs of its own")
    return _reported(lab, launched, listener) if reported else launched


def _begun(lab: Lab, whole: Plan) -> Plan:
    """Choose the runs of a plan with which its study begins, and all that earlier rounds have begun."""
    with _looking(lab) as store:
        return deciding.begun(whole, store)


def _stuck(plan: Plan, ended: Outcome) -> set[str]:
    """Return the runs of a plan that have ended without being completed, and those that need them."""
    found = {run for run, state in ended.states.items() if state != RunState.COMPLETED}
    for run in plan.runs:  # dependencies first
        if found.intersection(run.needs.values()):
            found.add(run.fingerprint)
    return found


def _once(
    lab: Lab,
    plan: Plan,
    how: How,
    listener: Listener,
    rerun: Rerun,
    *,
    limit: _Limit,
    replacing: bool,
    before: Outcome | None = None,
) -> Launched:
    """Launch a plan; what has ended before, completed or not, is left as it is."""
    study = plan.study
    check_names(plan, functools.partial(_recorded, lab))
    plan, again, remarks = _compared(lab, plan, how, limit.chip_hours, rerun, before is None)
    if not replacing:
        with _looking(lab) as existing:
            if existing is not None:
                refuse_taken(existing, plan.by_study)
    remarks += _of_other_labs(lab, plan)
    for line in remarks if before is None else ():  # else they were said
        listener.note(line)
    target = _Target.of(lab, study, plan.runs, how, limit)
    with _writing(lab) as store:
        gone = {
            each.study.name: len(set(store.members(each.study.name)) - set(each.fingerprints))
            for each in (plan, *plan.parts)
        }
        going = plan if before is None else without(plan, _stuck(plan, before))
        store.record(going)
        if again:
            count = len(start_over(store, again))
            listener.note(f"{counted(count, 'run')} to run again: what they measured is replaced")
        for name, count in gone.items():
            if count:
                keep = " To keep both studies: --set name=NAME" if name == study.name else ""
                listener.note(
                    f"no longer part of {name}: {counted(count, 'run')} of the last launch; results stay in "
                    f"the store.{keep}"
                )
        outcome = target.launch(lab, store, study.name, going.runs, listener)
        return Launched(plan, plan.runs, outcome if before is None else before.then(outcome))


def retry(
    lab: Lab, experiment: str, meant: Collection[str], how: How, listener: Listener, *, reported: bool = True
) -> Launched:
    """Launch those of an experiment's runs that are meant, by fingerprint, and failed, and those that wait
    for them."""
    with _writing(lab, create=False) as store:
        refuse_untrusted(store, experiment)
        study = load_stored(experiment, store.spec(experiment))
        plan = planned(lab, study, how)
        plan = plan.with_states(store.states(plan.fingerprints))
        again = _failed_and_waiting(plan, meant)
        target = _Target.of(lab, study, again, how)
        leases.reopen(store, [each.fingerprint for each in again])
        launched = Launched(plan, again, target.launch(lab, store, study.name, again, listener))
    if not again:
        listener.note("nothing to retry: no run has failed")
    return _reported(lab, launched, listener) if again and reported else launched


def render(lab: Lab, study: Study, how: How, folder: Path) -> list[Path]:
    """Write what would be sent for the first attempt at each run; nothing is sent.

    Raises:
        UserError: Runs would go to processes of this machine, which have no manifests.
    """
    plan = planned(lab, study, how)
    check_names(plan, functools.partial(_recorded, lab))
    resources, settings = study.resources, Settings.find()
    place = executors.choose(how.on, resources, settings)
    if runs_here(place):
        raise UserError("local runs have no manifests: give --on kubernetes or --on vertex")
    executor = executors.get(place, resources, settings, lab)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for run in plan.runs:
        marks = Marks(_NO_STORE, run.fingerprint, 1, _NO_TOKEN)
        job = executors.job_of(lab, study.name, run, marks, f"{run.directory}/{logs.NAME}", here=False)
        if (manifest := executor.render(job)) is None:
            raise UserError(f"the executor {place} has no manifests: give --on kubernetes or --on vertex")
        path = folder / f"{job.name}.yaml"
        write_whole(path, dump(manifest).encode())
        written.append(path)
    return written


def _reported(lab: Lab, launched: Launched, listener: Listener) -> Launched:
    """Bring the reports of what was launched up to date, unless its user wanted to stop."""
    if launched.outcome.interrupted:
        return launched
    with _writing(lab) as store:
        made = reports.bring_up_to_date(lab, store, launched.plan.study, listener.note)
    return replace(launched, made=made)


def _of_other_labs(lab: Lab, plan: Plan) -> list[str]:
    """Say which completed runs of a plan have their files in another lab.

    Raises:
        UserError: One is needed here by a run that is still to do.
    """
    here = identity.known(lab)
    completed = {run.fingerprint: run for run in plan.runs if run.state == RunState.COMPLETED}
    with _looking(lab) as store:
        if store is None:
            return []
        found = completed_elsewhere(store.engine, completed, None if here is None else here.uid)
    # Somebody may have copied a folder.
    away = {run: place for run, place in found.items() if not (lab.root / completed[run].directory).is_dir()}
    for run in plan.runs:
        for needed in run.needs.values() if run.state != RunState.COMPLETED else ():
            if needed in away:
                its = completed[needed]
                raise UserError(
                    f"run {its.label}/{its.seed} was completed in the lab at {away[needed]}, and "
                    f"{run.label}/{run.seed} needs its files: launch with the --root of that lab, or copy "
                    f"its {its.directory} to {lab.root / its.directory}"
                )
    return [
        f"{counted(count, 'run')} completed in the lab at {place}: files and logs are there"
        for place, count in Counter(away.values()).items()
    ]


def _recorded(lab: Lab) -> set[str]:
    """Return the names of all metrics in the lab's store; none if there is no store yet."""
    with _looking(lab) as store:
        return set() if store is None else store.measured()


@contextmanager
def _writing(lab: Lab, create: bool = True) -> Iterator[Store]:
    """Open a lab's store to write; in the end a SQLite store is left in its one file."""
    store = Store.open(lab.store_url, create)
    with closing(store):
        yield store
        store.close_whole()


@contextmanager
def _looking(lab: Lab) -> Iterator[Store | None]:
    """Open a lab's store to look at; None if there is none yet."""
    store = Store.open_readonly(lab.store_url)
    with nullcontext() if store is None else closing(store):
        yield store


def planned(lab: Lab, study: Study, how: How) -> Plan:
    """Plan a study for where it is to run; UserError if something is wrong with it."""
    is_here = runs_here(study.resources.executor(how.on, Settings.find().on))
    timings = Timings()
    if matches_seconds(study):  # else the store is not asked: manifests are rendered where it is out of reach
        with _looking(lab) as store:
            timings = Timings.read(store, study)
    return planning.plan(study, where="here" if is_here else "elsewhere", timings=timings)


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


def _compared(
    lab: Lab, plan: Plan, how: How, max_chip_hours: float | None, rerun: Rerun, first: bool
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
            remarks = found.without(again).lines(plan.study.name) + registering.remarks(store, plan)
            plan = plan.with_states(states | dict.fromkeys(again, RunState.PENDING))
        if not _is_complete(plan.runs):
            place = executors.choose(how.on, plan.study.resources, Settings.find())
            plan = budgeted(plan, store, place)
            if max_chip_hours is not None:
                refuse_above(plan, max_chip_hours, place, "nothing" if first else "no further run")
    return plan, again, remarks


def _is_complete(runs: Sequence[PlannedRun]) -> bool:
    return all(run.state == RunState.COMPLETED for run in runs)


@dataclass(frozen=True)
class _Target:
    """Where runs are launched, and how."""

    place: ExecutorName
    executor: Executor
    settings: Settings  # whose accounts find executors of earlier launches
    options: Options
    wakeup: Wakeup  # rung when a job of this machine has ended

    @classmethod
    def of(
        cls, lab: Lab, study: Study, runs: Sequence[PlannedRun], how: How, limit: _Limit | None = None
    ) -> _Target:
        """Choose the executor of a study's runs; its resources count where `how` says nothing.

        Raises:
            UserError: Runs would go where they cannot reach the store, or something that the executor needs
                is not named anywhere.
        """
        resources, settings, wakeup = study.resources, Settings.find(), Wakeup()
        # Nothing will be launched for a finished study, so it needs no executor.
        place = "local" if _is_complete(runs) else executors.choose(how.on, resources, settings)
        executor = executors.get(place, resources, settings, lab, wakeup.set)
        check_client(place)
        file = sqlite_file(parse_url(lab.store_url))
        if file is not None and place == "slurm":
            if kind := network_file_system(Path(file)):
                raise UserError(
                    f"{file} is on a network file system ({kind}), where SQLite is not safe: "
                    "give --store postgresql://user@host/database"
                )
        elif file is not None and not executor.here:
            raise UserError(
                f"jobs on {place} cannot reach the SQLite file {file}: "
                "give --store postgresql://user@host/database, or --on local"
            )
        options = Options(
            executor=place,
            parallel=how.parallel or resources.parallel,
            retries=resources.retries if how.retries is None else how.retries,
            lease_seconds=resources.lease_seconds,
            fail_fast=how.fail_fast,
            keep_going=how.keep_going,
            retry_exit_codes=resources.retry_exit_codes,
            record=settings.record,
            max_chip_hours=None if limit is None else limit.chip_hours,
            since=None if limit is None else limit.since,
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
            listener.note(f"{told}. To record less: `record: []` in {_from_home(config_path())}")

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


def _from_home(path: Path) -> str:
    """Write a path as people know it: `~/.config/…`."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
