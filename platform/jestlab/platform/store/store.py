"""The results store: planned runs, their states, and their results."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    DateTime,
    Engine,
    Executable,
    Row,
    Text,
    column,
    func,
    select,
    table,
)
from sqlalchemy.orm import aliased

from jestlab.platform.errors import UserError, nearest
from jestlab.platform.store import identity, schema
from jestlab.platform.store.address import existing_file, parse_url, refuse_remnants, shown_url, sqlite_file
from jestlab.platform.store.engine import checkpoint, create_file, read_only, reading, writable, writing
from jestlab.platform.store.records import (
    ADOPTED,
    ExperimentSummary,
    RunProgress,
    RunRecord,
    RunState,
    RunSummary,
)
from jestlab.platform.store.rows import one_of
from jestlab.platform.store.tables import (
    AttemptRow,
    EvaluationRow,
    ExperimentRow,
    IdentityRow,
    MemberRow,
    MetricNameRow,
    NeedRow,
    RunRow,
    run_key,
)

if TYPE_CHECKING:
    from jestlab.analysis.metrics import Metrics


class Store:
    """One lab's results. Any number of processes may have it open; each method is one transaction."""

    def __init__(self, engine: Engine) -> None:
        """Use `open` or `open_readonly`."""
        self.engine = engine

    @classmethod
    def open(cls, url: str, create: bool = True) -> Store:
        """Open a store for reading and writing.

        Args:
            url: Of a SQLite file or a PostgreSQL database.
            create: Whether to create a missing file, or tables in an empty database.

        Raises:
            StoreUnreachable: It can't be reached now.
            StoreMissing: It doesn't exist, and `create` is False.
            StoreError: It has a problem that someone must fix.
            UserError: Another schema, or another application's database.
        """
        path = sqlite_file(parse_url(url)) if create else existing_file(url)
        if create and path is not None:
            create_file(path)
        store = cls._checked(writable(url), create)
        identity.settle(store.engine)
        return store

    @classmethod
    def open_readonly(cls, url: str) -> Store | None:
        """Open a store that can't be written through this object; None if it doesn't exist.

        Raises:
            StoreMissing: It was moved away from files that belong to it.
        """
        path = sqlite_file(parse_url(url))
        if path is not None and not path.exists():
            refuse_remnants(path)
            return None
        try:
            return cls._checked(read_only(url), create=False)
        except schema.EmptyStore:
            return None

    @classmethod
    def _checked(cls, engine: Engine, create: bool) -> Store:
        try:
            schema.ensure(engine, create)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine)

    def close(self) -> None:
        """Close all connections to the store."""
        self.engine.dispose()

    def close_whole(self) -> None:
        """Close all connections, and move SQLite's log into its file, unless another process reads it."""
        checkpoint(self.engine)
        self.close()

    def writing(self) -> AbstractContextManager[Connection]:
        """Open a transaction that writes all or nothing."""
        return writing(self.engine)

    def reading(self) -> AbstractContextManager[Connection]:
        """Open a transaction that reads one state of the store."""
        return reading(self.engine)

    def id(self) -> str:
        """Return the store's random ID, 32 hexadecimal digits; a copy of a store has another one.

        It distinguishes the jobs of two labs that share a cluster or a project.
        """
        found = self.rows(select(IdentityRow.id))
        if not found:
            raise UserError(f"the store {shown_url(self.engine.url)} has no ID: restore a backup")
        return str(found[0].id)

    def rows(self, query: Executable) -> Sequence[Any]:
        """Return the rows of a query, read in a separate transaction."""
        with self.reading() as connection:
            return connection.execute(query).all()

    def states(self, fingerprints: Iterable[str]) -> dict[str, RunState]:
        """Return the states of those of these runs that exist."""
        query = select(RunRow.fingerprint, RunRow.state).where(of_runs(fingerprints))
        return {run: RunState(state) for run, state in self.rows(query)}

    def reasons(self, fingerprints: Iterable[str]) -> dict[str, str]:
        """Return the reasons for the states of runs that have one."""
        query = select(RunRow.fingerprint, RunRow.reason).where(of_runs(fingerprints))
        return {run: reason for run, reason in self.rows(query) if reason is not None}

    def run(self, fingerprint: str) -> RunRecord:
        """Return a run with its dependencies; UserError if it doesn't exist."""
        if not (found := self._records(RunRow.fingerprint == fingerprint)):
            raise UserError(f"no run {fingerprint} in {shown_url(self.engine.url)}: launch its study")
        return found[0]

    def experiments(self) -> list[ExperimentSummary]:
        """Return all experiments; the most recently launched comes first."""
        count, reported_at = func.count(RunRow.id.distinct()), func.max(RunRow.updated_at)
        members = select(MemberRow.experiment, RunRow.state, count, reported_at)
        by_state = members.join(RunRow, RunRow.id == MemberRow.run_id).group_by(
            MemberRow.experiment, RunRow.state
        )
        newest_first = select(ExperimentRow.__table__).order_by(ExperimentRow.updated_at.desc())
        counts: dict[str, dict[RunState, int]] = defaultdict(dict)
        times: dict[str, list[datetime]] = defaultdict(list)
        with self.reading() as connection:
            for experiment, state, number, time in connection.execute(by_state):
                counts[experiment][RunState(state)] = number
                times[experiment].append(time)
            return [
                ExperimentSummary(
                    r.name, r.question, r.scale, r.updated_at, counts[r.name],
                    r.origin and json.loads(r.origin)["archive"], r.owner,
                    max([r.updated_at, *times[r.name]]),
                )
                for r in connection.execute(newest_first)
            ]  # fmt: skip

    def metrics(self, experiment: str, programs: Iterable[str]) -> Metrics:
        """Return the meaning of metrics by an experiment, if it exists, and by these programs."""
        from jestlab.analysis.results import Snapshot, metrics_of

        with self.reading() as connection:
            return metrics_of(Snapshot("", connection), experiment, programs)

    def spec(self, experiment: str) -> dict[str, Any]:
        """Return the resolved study of an experiment's last launch.

        Raises:
            UserError: No such experiment; the message suggests a name.
        """
        with self.reading() as connection:
            study: dict[str, Any] = json.loads(of_experiment(connection, experiment, ExperimentRow.spec))
        return study

    def measured(self) -> set[str]:
        """Return the names of all recorded metrics and evaluations (dataset/metric)."""
        scores = select(EvaluationRow.dataset + "/" + EvaluationRow.metric).distinct()
        return {name for query in (select(MetricNameRow.name), scores) for (name,) in self.rows(query)}

    def studies(self, fingerprint: str) -> list[tuple[str, dict[str, Any]]]:
        """Return name and resolved spec of each study with a run; the most recently launched comes first.

        Unions are left out, because their studies are experiments, too.
        """
        query = (
            select(ExperimentRow.name, ExperimentRow.spec, ExperimentRow.updated_at)
            .join(MemberRow, MemberRow.experiment == ExperimentRow.name)
            .where(MemberRow.run_id == run_key(fingerprint))
            .distinct()  # a study can list a run under several labels
            .order_by(ExperimentRow.updated_at.desc())
        )
        studies = [(name, json.loads(spec)) for name, spec, _ in self.rows(query)]
        return [(name, study) for name, study in studies if not study.get("studies")]

    def seconds_by_step(self, fingerprint: str) -> dict[int, float]:
        """Return the seconds of training until each evaluation of a run, by step; NaN if unknown."""
        query = (
            select(EvaluationRow.step, func.max(EvaluationRow.seconds))
            .where(EvaluationRow.run_id == run_key(fingerprint))
            .group_by(EvaluationRow.step)
        )
        return {step: math.nan if time is None else float(time) for step, time in self.rows(query)}

    def paces(self, programs: Iterable[str]) -> list[tuple[str, dict[str, Any], str, float]]:
        """Return program, config, device, and seconds of training per example of completed runs of programs.

        Only runs count whose seconds until the last evaluation are known.
        """
        last = aliased(EvaluationRow)
        step = select(func.max(last.step)).where(last.run_id == RunRow.id).scalar_subquery()
        of_attempt = (AttemptRow.run_id == RunRow.id) & (AttemptRow.number == EvaluationRow.attempt)
        query = (
            select(RunRow.__table__, AttemptRow.device, EvaluationRow.seconds, EvaluationRow.examples_seen)
            .select_from(RunRow)
            .join(EvaluationRow, (EvaluationRow.run_id == RunRow.id) & (EvaluationRow.step == step))
            .join(AttemptRow, of_attempt)
            .where(RunRow.program.in_(list(programs)), RunRow.state == RunState.COMPLETED)
            .where(EvaluationRow.seconds > 0, EvaluationRow.examples_seen > 0)
            .order_by(RunRow.created_at, RunRow.id)
            .distinct()
        )
        return [
            (row.program, json.loads(row.config), row.device or "", row.seconds / row.examples_seen)
            for row in self.rows(query)
        ]

    def launched(self, experiment: str) -> list[tuple[str, str, dict[str, Any]]]:
        """Return label, program, and config of an experiment's runs, in the study's order."""
        query = (
            select(MemberRow.position, MemberRow.label, RunRow.seed, RunRow.program, RunRow.config)
            .join(RunRow, RunRow.id == MemberRow.run_id)
            .where(MemberRow.experiment == experiment)
        )
        return [(row.label, row.program, json.loads(row.config)) for row in in_study_order(self.rows(query))]

    def runs(self, experiment: str, fingerprints: Collection[str] | None = None) -> list[RunSummary]:
        """Return the runs of an experiment in the study's order, or only those with these fingerprints.

        Raises:
            UserError: No such experiment; the message suggests a name.
        """
        fields = (name for name in RunSummary.__dataclass_fields__ if name != "needs")
        names = ("run" if name == "name" else name for name in fields)
        columns = (column(name, DateTime) if name.endswith("_at") else column(name) for name in names)
        query: Any = select(column("position"), *columns).select_from(table("v_runs"))
        query = query.where(column("experiment") == experiment)
        if fingerprints is not None:
            query = query.where(one_of(column("fingerprint", Text), fingerprints))
        with self.reading() as connection:
            of_experiment(connection, experiment, ExperimentRow.name)
            return [
                RunSummary(run, name, label, seed, RunState(state), *others)
                for _, run, name, label, seed, state, *others in in_study_order(connection.execute(query))
            ]

    def changes(self, experiment: str, since: datetime) -> tuple[datetime, dict[str, datetime]]:
        """Return the runs of an experiment that changed after a time, and all that haven't ended.

        Returns:
            The time of the last launch, and fingerprint → time of the last change.

        Raises:
            UserError: No such experiment.
        """
        members = select(MemberRow.run_id).where(MemberRow.experiment == experiment)
        ended = [state for state in RunState if state.is_terminal]
        query = select(RunRow.fingerprint, RunRow.updated_at).where(
            RunRow.id.in_(members), (RunRow.updated_at > since) | RunRow.state.not_in(ended)
        )
        with self.reading() as connection:
            launched_at: datetime = of_experiment(connection, experiment, ExperimentRow.updated_at)
            return launched_at, dict(connection.execute(query).tuples().all())

    def progress(self, fingerprints: Collection[str], metrics: Sequence[str]) -> dict[str, RunProgress]:
        """Return the progress of runs, with the newest values of these metrics."""
        names = ("fingerprint", "name", "value")
        query: Any = select(*map(column, names)).select_from(table("v_latest"))
        query = query.where(column("name").in_(metrics), one_of(column("fingerprint", Text), fingerprints))
        running = (AttemptRow.run_id == RunRow.id) & (AttemptRow.state == RunState.RUNNING)
        speeds = select(*_SPEED).outerjoin(AttemptRow, running).where(of_runs(fingerprints))
        latest: dict[str, dict[str, float]] = defaultdict(dict)
        with self.reading() as connection:
            for run, name, value in connection.execute(query):
                if value is not None:  # in SQL, the filter would look up each value twice
                    latest[run][name] = value
            return {
                row.fingerprint: RunProgress(row.step, row.total_steps, latest[row.fingerprint], _speed(row))
                for row in connection.execute(speeds)
            }

    def needs(self, fingerprints: Iterable[str]) -> dict[str, dict[str, RunState]]:
        """Return the dependencies of runs, with their states, by fingerprint."""
        needed = aliased(RunRow)
        query = select(RunRow.fingerprint, needed.fingerprint, needed.state).where(of_runs(fingerprints))
        query = query.join(NeedRow, NeedRow.run_id == RunRow.id).join(needed, needed.id == NeedRow.needs_id)
        found: dict[str, dict[str, RunState]] = defaultdict(dict)
        for run, need, state in self.rows(query):
            found[run][need] = RunState(state)
        return dict(found)

    def members(self, experiment: str) -> list[str]:
        """Return the fingerprints of an experiment's runs without adopted ones; empty if it doesn't exist."""
        query = (
            select(RunRow.fingerprint)
            .distinct()
            .join(MemberRow, MemberRow.run_id == RunRow.id)
            .where(MemberRow.experiment == experiment, RunRow.program != ADOPTED)
        )
        return [row.fingerprint for row in self.rows(query)]

    def shared(self, experiment: str, fingerprints: Iterable[str]) -> dict[str, int]:
        """Return the number of these runs in each other experiment."""
        members = select(MemberRow.experiment, RunRow.id).join(RunRow, RunRow.id == MemberRow.run_id)
        query = members.distinct().where(MemberRow.experiment != experiment, of_runs(fingerprints))
        return dict(Counter(row.experiment for row in self.rows(query)))

    def finished(self) -> list[RunRecord]:
        """Return every completed run, the oldest first."""
        return self._records(RunRow.state == RunState.COMPLETED)

    def _records(self, condition: ColumnElement[bool]) -> list[RunRecord]:
        """Return runs with their dependencies, the oldest first."""
        runs = select(RunRow.__table__).where(condition).order_by(RunRow.created_at, RunRow.id)
        query = select(NeedRow.run_id, NeedRow.role, RunRow.__table__)
        query = query.join(RunRow, RunRow.id == NeedRow.needs_id)
        needs: dict[int, dict[str, RunRecord]] = defaultdict(dict)
        with self.reading() as connection:
            rows = connection.execute(runs).all()
            for need in connection.execute(query.where(one_of(NeedRow.run_id, [row.id for row in rows]))):
                needs[need.run_id][need.role] = _run_record(need, {})
        return [_run_record(row, needs[row.id]) for row in rows]


_SPEED: tuple[Any, ...] = (
    RunRow.fingerprint, RunRow.step, RunRow.total_steps, RunRow.updated_at, AttemptRow.first_step,
    AttemptRow.started_at, AttemptRow.resumed_step, AttemptRow.reached_step, AttemptRow.training_seconds,
    AttemptRow.evaluation_seconds, AttemptRow.checkpoint_seconds,
)  # fmt: skip


def in_study_order(rows: Iterable[Any]) -> list[Any]:
    """Sort rows by position, label, and seed; databases sort text differently."""
    return sorted(rows, key=attrgetter("position", "label", "seed"))


def of_runs(fingerprints: Iterable[str]) -> ColumnElement[bool]:
    """Return the condition that a run is one of these."""
    return one_of(RunRow.id, map(run_key, fingerprints))


def _speed(row: Row[Any]) -> float | None:
    """Return the steps per second of a RUNNING attempt; None if it has made no steps."""
    if row.started_at is None:
        return None
    first, last, seconds = row.first_step, row.step, (row.updated_at - row.started_at).total_seconds()
    if row.resumed_step is not None and row.reached_step is not None:
        first, last = row.resumed_step, row.reached_step
        parts = (row.training_seconds, row.evaluation_seconds, row.checkpoint_seconds)
        seconds = sum(part or 0.0 for part in parts)
    return (last - first) / seconds if last > first and seconds > 0 else None


def of_experiment(connection: Connection, experiment: str, column: Any) -> Any:
    """Return a column of an experiment; UserError with a suggestion if it doesn't exist."""
    row = connection.execute(select(column).where(ExperimentRow.name == experiment)).one_or_none()
    if row is None:
        names = connection.scalars(select(ExperimentRow.name))
        raise UserError(f"no experiment {experiment!r} in the store: {nearest(experiment, list(names))}")
    return row[0]


def _run_record(row: Any, needs: Mapping[str, RunRecord]) -> RunRecord:
    state, config = RunState(row.state), json.loads(row.config)
    return RunRecord(row.fingerprint, row.program, config, row.seed, row.directory, state, row.reason, needs)
