"""Launch a study, from its plan to its reports, for the command line and for notebooks.

This module doesn't print or exit: it reports events to a listener, and returns the result.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import select

from jestlab.analysis.files import write_whole
from jestlab.analysis.provenance.code import OWN_PROGRAMS
from jestlab.analysis.shared import is_shared
from jestlab.platform import dependencies, logs, reports
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.lab.lab import Lab, network_file_system
from jestlab.platform.lab.settings import Settings
from jestlab.platform.lab.settings import path as config_path
from jestlab.platform.launch import executors
from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.executors.base import NO_ATTEMPT, Executor
from jestlab.platform.launch.notify import Notifications
from jestlab.platform.launch.options import ControllerOptions, LaunchOptions, RetryOptions
from jestlab.platform.launch.outcome import LaunchOutcome, LaunchResult
from jestlab.platform.launch.shipping import Shipping
from jestlab.platform.planning import deciding, recording
from jestlab.platform.planning import plan as planning
from jestlab.platform.planning.changes import ResultChanges, changes
from jestlab.platform.planning.cost import OverBudget, budgeted, check_chip_hours
from jestlab.platform.planning.deciding import without
from jestlab.platform.planning.matching import Timings, matches_seconds
from jestlab.platform.planning.names import check as check_names
from jestlab.platform.planning.plan import Plan, PlannedRun, waiting_lines
from jestlab.platform.planning.suitable import check_resources
from jestlab.platform.planning.survey import open_readonly
from jestlab.platform.planning.unreported import unreported
from jestlab.platform.spec.expand import replaced_values
from jestlab.platform.spec.load import load_stored
from jestlab.platform.spec.resources import Resources, runs_here
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.spec.yaml import dump
from jestlab.platform.store import leases, provenance
from jestlab.platform.store.address import parse_url, sqlite_file
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rerun import start_over, with_dependents
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import AttemptRow
from jestlab.platform.store.trust import check_names_available, refuse_untrusted
from jestlab.platform.words import counted

_CODE = Path(__file__).parents[1]
_USE_CLUSTER = "give --on slurm, --on kubernetes, or --on vertex"


def launch(
    lab: Lab,
    study: StudySpec,
    options: LaunchOptions,
    listener: Listener,
    *,
    since: datetime | None = None,
    hand_over: Callable[[], str] | None = None,
) -> LaunchResult:
    """Launch a study and bring its reports up to date.

    Args:
        lab: Lab of the launch.
        study: The study.
        options: The user's options.
        listener: Receives the events of the launch.
        since: When the launch began, if it is continued: runs that have ended since then stay as they are.
        hand_over: Function to call once runs are recorded, instead of running them. It starts a process that
            continues the launch, and returns a message.

    Raises:
        UserError: The launch is refused (then nothing was written), or a report can't be written. If only a
            later round is refused, no error is raised, and `LaunchOutcome.stopped` contains the reason.
    """
    with Notifications(lab, study.name, listener) as messages:
        session = _Session(lab, study, options, listener, messages, since, hand_over)
        result = session.run()
        if session.hands_over and result.outcome.exit_code:
            return result
        if not result.outcome.launched:
            all_completed = f"nothing to run: all {len(result.runs)} runs are COMPLETED"
            listener.note(all_completed if result.runs else "nothing to run: the spec defines no runs")
        result = _report(lab, result, options, listener)
        messages.ended(result)
    return result


def look_after(lab: Lab, experiment: str) -> None:
    """End the attempts of an experiment whose jobs have ended unnoticed, because no launcher is alive."""
    from jestlab.platform.launch import controller

    with closing(Store.open(lab.store_url, create=False)) as store:
        runs = store.runs(experiment)
        fingerprints = [run.fingerprint for run in runs]
        standings, needs = leases.standings(store, fingerprints), store.needs(fingerprints)
        if not any(run.lease is not None and run.lease.is_submitted for run in standings.values()):
            return
        begun = [
            replace(run, needs={need: need for need in needs.get(run.fingerprint, {})})
            for run in runs
            if run.state.is_terminal or standings[run.fingerprint].is_live
        ]
        options = ControllerOptions(launches=False, ahead=True, retries=0)
        controller.launch(lab, store, experiment, begun, executors.finders(lab), options=options)


def continue_launch(
    lab: Lab, experiment: str, options: LaunchOptions, listener: Listener, since: datetime
) -> LaunchResult:
    """Continue the last launch of an experiment, which began at the time `since`."""
    with _open(lab, create=False) as store:
        refuse_untrusted(store, experiment)
        study = load_stored(experiment, store.spec(experiment))
    return launch(lab, study, options, listener, since=since)


def retry(
    lab: Lab, experiment: str, fingerprints: Collection[str], options: RetryOptions, listener: Listener
) -> LaunchResult:
    """Launch the FAILED runs among `fingerprints`, and the runs that were SKIPPED because of them."""
    with Notifications(lab, experiment, listener) as messages:
        with _open(lab, create=False) as store:
            refuse_untrusted(store, experiment)
            study = load_stored(experiment, store.spec(experiment))
            plan = plan_study(lab, study, options)
            plan = plan.with_states(store.states(plan.fingerprints))
            reruns: dict[str, PlannedRun] = {}
            for run in plan.runs:  # dependencies first
                failed = run.state == RunState.FAILED and run.fingerprint in fingerprints
                skipped = run.state == RunState.SKIPPED and any(need in reruns for need in run.needs.values())
                if failed or skipped:
                    reruns[run.fingerprint] = run
            runs = list(reruns.values())
            shipping = Shipping(lab, study.resources.code, listener.note)
            launch_recorded = _prepare(lab, study, runs, options, listener, shipping)
            leases.reopen(store, list(reruns))
            messages.has_begun = True
            result = LaunchResult(plan, runs, launch_recorded(store, runs))
        if not reruns:
            listener.note("nothing to retry: no run has failed")
        else:
            result = _report(lab, result, options, listener)
        messages.ended(result)
    return result


def render(
    lab: Lab, study: StudySpec, options: LaunchOptions, folder: Path, listener: Listener
) -> list[Path]:
    """Write the manifest of each run's first attempt to a folder; return the files. Nothing is launched.

    The study is recorded in the store, so that users can submit the manifests; a note says so if it can't be.

    Raises:
        UserError: The executor has no manifests.
    """
    from jestlab.platform.launch.claiming import job_of

    plan = plan_study(lab, study, options)

    def recorded() -> set[str]:  # called only if necessary, because the store may be unreachable
        with open_readonly(lab) as store:
            return set() if store is None else store.measured()

    check_names(plan, recorded)
    resources, settings = study.resources, Settings.find()
    place = executors.choose(options.on, resources, settings)
    if runs_here(place):
        raise UserError(f"local runs have no manifests: {_USE_CLUSTER}")
    executor = executors.get(place, resources, settings, lab)
    shipping = Shipping(lab, resources.code, listener.note)
    more = {"on": place, "record": settings.record, "code": shipping.arguments(plan.runs)}
    given = _completed(options, resources, more)
    folder.mkdir(parents=True, exist_ok=True)
    written = list[Path]()
    for run in plan.runs:
        key = NO_ATTEMPT._replace(fingerprint=run.fingerprint)
        log = f"{run.directory}/{logs.NAME}"
        job = job_of(lab, study.name, run, key, log, is_local=False, options=given, claimed=False)
        if (manifest := executor.render(job)) is None:
            raise UserError(f"the executor {place} has no manifests: {_USE_CLUSTER}")
        text, suffix = (manifest, "sbatch") if isinstance(manifest, str) else (dump(manifest), "yaml")
        path = folder / f"{job.name}.{suffix}"
        write_whole(path, text.encode())
        written.append(path)
    if all(path.suffix == ".sbatch" for path in written):
        lab.root.mkdir(parents=True, exist_ok=True)
        for run in plan.runs:
            lab.make_folder(run.directory)  # for the log, which Slurm opens
    try:
        _check_store(lab, executor)
        with _open(lab) as store:
            if len(store.states(plan.fingerprints)) < len(plan.runs):
                check_names_available(store, {} if options.replace else plan.by_study)
                recording.record(store, plan)
    except UserError as error:
        listener.note(f"the study is not recorded, which its jobs require: {error}")
    return written


def plan_study(lab: Lab, study: StudySpec, options: RetryOptions) -> Plan:
    """Plan a study for the executor that its runs will use; UserError if the study is invalid."""
    place = study.resources.executor(options.on, Settings.find().on)
    is_here = runs_here(place)
    timings = Timings()
    if matches_seconds(study):  # otherwise don't open the store: `--render` works without it
        with open_readonly(lab) as store:
            timings = Timings.read(store, study)
    made = planning.plan(study, placement="local" if is_here else "remote", timings=timings)
    # `--on local` tries a study of a cluster on this machine alone.
    check_resources(made, None if options.on == "local" else place)
    return made


@contextmanager
def _open(lab: Lab, create: bool = True) -> Iterator[Store]:
    """Open the store of a lab for writing; at the end, merge SQLite's write-ahead log into its file."""
    with closing(Store.open(lab.store_url, create)) as store:
        yield store
        store.close_whole()


def _report(lab: Lab, result: LaunchResult, options: RetryOptions, listener: Listener) -> LaunchResult:
    """After a launch that wasn't interrupted, note missing scores, and update the reports if requested."""
    if result.outcome.interrupted:
        return result
    for line in unreported(lab.store_url, result.plan.study.name):
        listener.note(line)
    if not options.reports:
        return result
    with _open(lab) as store:
        made = reports.bring_up_to_date(lab, store, result.plan.study, listener.note)
    return replace(result, made=made)


class _Session:
    """One launch of a study: one round, or more if claims need more seeds or runs wait for durations."""

    def __init__(
        self,
        lab: Lab,
        study: StudySpec,
        options: LaunchOptions,
        listener: Listener,
        messages: Notifications,
        since: datetime | None,
        hand_over: Callable[[], str] | None,
    ) -> None:
        self._lab = lab
        self._study = study
        self._options = options
        self._listener = listener
        self._messages = messages
        self._is_continued = since is not None
        self._since = since or now()
        self._hand_over = hand_over
        self.hands_over = options.ahead or hand_over is not None
        self._shipping = Shipping(lab, study.resources.code, listener.note)
        self._in_rounds = deciding.has_open_seeds(study)
        self._full_plan = plan_study(lab, study, options)  # raises the study's errors before writing
        self._check_detached()

    def run(self) -> LaunchResult:
        """Run all rounds, and return the combined result."""
        with open_readonly(self._lab) as store:
            if self._in_rounds and store is not None and store.members(self._study.name):
                self._messages.skip_decided()
        result = self._run_round(self._first_round(self._full_plan), None)
        try:
            while (plan := self._next_round(result.plan, result.outcome)) is not None:
                result = self._run_round(plan, result.outcome)
        except UserError as error:
            stopped = f"no further round: {error}"  # completed runs still get their reports
            self._listener.note(stopped)
            over_budget = isinstance(error, OverBudget)
            return replace(result, outcome=replace(result.outcome, stopped=stopped, over_budget=over_budget))
        return result

    def _check_detached(self) -> None:
        """Raise UserError if the launch can't continue in jobs, or not without a launcher."""
        place = self._study.resources.executor(self._options.on, Settings.find().on)
        if self.hands_over and place != "slurm":
            raise UserError(f"--detach=slurm and --detach=dependencies require --on slurm, not {place}")
        required = {
            "parallel": self._options.parallel or self._study.resources.parallel,
            "fail_fast": self._options.fail_fast,
            "rounds of claims with open seeds": self._in_rounds,
        }
        needed = [name for name, is_required in required.items() if is_required]
        if self._options.ahead and needed:
            raise UserError(f"{', '.join(needed)}: requires a launcher, such as --detach=slurm")

    def _first_round(self, full_plan: Plan) -> Plan:
        """Return the plan of the first round, with the runs of all rounds that were launched earlier."""
        if not self._in_rounds:
            return full_plan
        with open_readonly(self._lab) as store:
            return deciding.first_round(full_plan, store)

    def _next_round(self, plan: Plan, outcome: LaunchOutcome) -> Plan | None:
        """Return the plan of the next round; None after the last one."""
        if self.hands_over and outcome.exit_code:
            for line in waiting_lines(plan):
                self._listener.note(line)
            return None
        incomplete = outcome.exit_code and (self._options.fail_fast or not self._in_rounds)
        if outcome.interrupted or outcome.stopped or incomplete:
            return None
        if plan.waiting:  # for durations of runs, which may be known now
            self._full_plan = plan_study(self._lab, self._study, self._options)
            extended = self._first_round(self._full_plan)
            if len(extended.waiting) < len(plan.waiting):
                return extended
            for line in waiting_lines(plan):
                self._listener.note(line)
        if not self._in_rounds:
            return None
        status = deciding.claims_status(self._lab.store_url, self._study.name)
        self._listener.note(str(status))
        self._messages.decided(status)
        extended = deciding.add_round(self._full_plan, plan, status.next)
        new = set(extended.fingerprints) - set(plan.fingerprints) - _cannot_complete(extended, outcome)
        return extended if new else None

    def _run_round(self, plan: Plan, before: LaunchOutcome | None) -> LaunchResult:
        """Launch a plan. Omit runs that failed in earlier rounds (`before`), and their dependents."""
        is_first = before is None and not self._is_continued
        plan, reruns = self._compare(plan, is_first=is_first)
        launch_recorded = _prepare(
            self._lab, self._study, plan.runs, self._options, self._listener, self._shipping, self._since,
            is_first,
        )  # fmt: skip
        with _open(self._lab) as store:
            for part in (plan, *plan.parts):
                name = part.study.name
                if removed := set(store.members(name)) - set(part.fingerprints):
                    which = "of the last launch"
                    keep = ". To keep both studies: --set name=NAME" if part is plan else ""
                    last = {place.label: run.seed for run in part.runs for place in run.places}
                    former = store.runs(name, removed)
                    if all(run.seed > last.get(run.label, run.seed) for run in former):
                        seeds = f"--set seeds={max(run.seed for run in former) + 1}"
                        which = "with further seeds"
                        keep = f". To keep them: {'--decide' if part.study.claims else seeds}"
                    self._listener.note(
                        f"no longer part of {name}: {counted(len(removed), 'run')} {which}; their results "
                        f"stay in the store{keep}"
                    )
            launched = plan if before is None else without(plan, _cannot_complete(plan, before))
            recording.record(store, launched, reopens=not self._is_continued)
            if reruns:
                count = len(start_over(store, reruns))
                self._listener.note(f"{counted(count, 'run')} to run again: their results are replaced")
            self._messages.has_begun = True
            if self._hand_over is not None and not _is_complete(launched.runs):
                self._listener.note(self._hand_over())
                launch_recorded = _completed_outcome
            outcome = launch_recorded(store, launched.runs)
            if self._options.ahead and outcome.exit_code:
                self._listener.note("no launcher is running: launch again to retry runs that don't complete")
        return LaunchResult(plan, plan.runs, outcome if before is None else before.merged_with(outcome))

    def _compare(self, plan: Plan, *, is_first: bool) -> tuple[Plan, list[str]]:
        """Compare a plan with the store, estimate its cost, and report the differences. Writes nothing.

        Returns:
            The plan with states and budgets, and the fingerprints of completed runs to rerun.

        Raises:
            UserError: The round is refused.
        """
        options, reruns = self._options, list[str]()
        notes = [*replaced_values(plan.study)] if is_first else []
        with open_readonly(self._lab) as store:
            check_names(plan, tuple if store is None else store.measured)
            if store is not None:
                plan = plan.with_states(states := store.states(plan.fingerprints))
            if store is not None and is_first:
                differences = changes(store, plan.study, plan.runs)
                if reruns := _runs_to_rerun(options, plan, differences):
                    plan = plan.with_states(states | dict.fromkeys(reruns, RunState.PENDING))
                    differences = changes(store, plan.study, plan.runs)
                notes += [*differences.lines(plan.study.name), *deciding.deviations(store, plan)]
            if not _is_complete(plan.runs):
                place = executors.choose(options.on, plan.study.resources, Settings.find())
                plan = budgeted(plan, store, place)
                if options.max_chip_hours is not None:
                    refused = "nothing" if is_first else "no further run"
                    check_chip_hours(plan, options.max_chip_hours, place, refused)
            if store is not None and is_first and not options.replace:
                check_names_available(store, plan.by_study)
        for line in notes:
            self._listener.note(line)
        return plan, reruns


def _is_complete(runs: Sequence[PlannedRun]) -> bool:
    return all(run.state == RunState.COMPLETED for run in runs)


def _cannot_complete(plan: Plan, outcome: LaunchOutcome) -> set[str]:
    """Return the fingerprints of runs that ended without completing, and of all that depend on them."""
    ended = {run for run, state in outcome.states.items() if state != RunState.COMPLETED}
    return {*with_dependents(ended, [(run.fingerprint, run.needs.values()) for run in plan.runs])}


def _runs_to_rerun(options: LaunchOptions, plan: Plan, differences: ResultChanges) -> list[str]:
    """Return the fingerprints of the completed runs to rerun: the requested ones and all dependents.

    Raises:
        UserError: The plan has no run of a given name.
    """
    named = {run.fingerprint: _names_of(run, plan.study.name) for run in plan.runs}
    names = set().union(*named.values())
    for name in options.runs:
        if name not in names:
            short_names = {label for run in plan.runs for label in (run.name, run.label)}
            raise UserError(f"no run {name!r} in {plan.study.name}: {nearest(name, short_names)}")
    wanted = {*differences.changed, *differences.older} if options.rerun_changed else set()
    wanted |= set(differences.retracted) if options.rerun_retracted else set()
    if options.runs:
        wanted = {run for run in wanted if named[run] & set(options.runs)}
    completed = {run.fingerprint for run in plan.runs if run.state == RunState.COMPLETED}
    order = [(run.fingerprint, list(run.needs.values())) for run in plan.runs]
    return [fingerprint for fingerprint in with_dependents(wanted, order) if fingerprint in completed]


def _names_of(run: PlannedRun, study: str) -> set[str]:
    """Return all names of a run: RUN, RUN/SEED, STUDY/RUN, and STUDY/RUN/SEED, also with its labels."""
    names = {name for place in run.places for name in (place.name, place.label)}
    names |= {f"{name}/{run.seed}" for name in names}
    return names | {f"{study}/{name}" for name in names}


_Launch = Callable[[Store, Sequence[PlannedRun]], LaunchOutcome]
"""Function that launches recorded runs, and returns when all have ended."""


def _prepare(
    lab: Lab,
    study: StudySpec,
    runs: Sequence[PlannedRun],
    options: RetryOptions,
    listener: Listener,
    shipping: Shipping,
    since: datetime | None = None,
    is_first: bool = True,
) -> _Launch:
    """Create the executor for the runs of a study, and return the function that launches them.

    Raises:
        UserError: The executor can't launch jobs, or they couldn't reach the store, or a setting is missing,
            or the code can't be shipped.
    """
    if _is_complete(runs):
        return _completed_outcome
    from jestlab.platform.launch import controller

    resources, settings, wakeup = study.resources, Settings.find(), threading.Event()
    name = executors.choose(options.on, resources, settings)
    executor = executors.get(name, resources, settings, lab, wakeup.set)
    dependencies.check(name)
    _check_store(lab, executor)
    if is_first:  # later rounds wait until the executor is available again
        executor.check()
    more = {"on": name, "record": settings.record, "code": shipping.arguments(runs), "since": since}
    given = _completed(options, resources, more)
    others = executors.finders(lab)  # for attempts of earlier launches

    def launch_recorded(store: Store, runs: Sequence[PlannedRun]) -> LaunchOutcome:
        if not store.rows(select(AttemptRow.id).limit(1)):
            custom = any(run.program not in OWN_PROGRAMS for run in runs)
            recorded = provenance.announcement(_CODE, settings.record, custom)
            path, home = config_path(), Path.home()
            shown = f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
            listener.note(f"{recorded}. To record less: `record: []` in {shown}")
        with closing(executor):
            return controller.launch(
                lab, store, study.name, runs,
                lambda other: executor if other == name else others(other),
                options=given, listener=listener, wakeup=wakeup,
            )  # fmt: skip

    return launch_recorded


def _completed(options: RetryOptions, resources: Resources, more: Mapping[str, Any]) -> ControllerOptions:
    """Complete a user's options from a study's resources, and add `more`."""
    shared = ("lease_seconds", "retry_exit_codes", "tasks_per_node", "time_seconds")
    given = dict(options) | {name: getattr(resources, name) for name in shared}
    given |= {"parallel": options.parallel or resources.parallel}
    given |= {"retries": resources.retries if options.retries is None else options.retries}
    return ControllerOptions(**given | dict(more))


def _completed_outcome(store: Store, runs: Sequence[PlannedRun]) -> LaunchOutcome:
    fingerprints = [run.fingerprint for run in runs]
    return LaunchOutcome(store.states(fingerprints), store.reasons(fingerprints), False, 0)


def _check_store(lab: Lab, executor: Executor) -> None:
    """Raise UserError if jobs of an executor can't use the store of a lab."""
    file = sqlite_file(parse_url(lab.store_url))
    if file is None or executor.here or (executor.shares_folders and is_shared(file)):
        return
    advice = "give --store postgresql://user@host/database"
    if not executor.shares_folders:
        raise UserError(
            f"jobs on {executor.name} cannot reach the SQLite file {file}: {advice}, or --on local"
        )
    if kind := network_file_system(Path(file)):
        raise UserError(
            f"{file} is on a network file system ({kind}), where SQLite is not safe: {advice}, or "
            "--store shared"
        )
