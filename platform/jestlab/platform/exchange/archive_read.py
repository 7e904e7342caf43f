"""Merge an archive into a lab.

Runs are matched by fingerprint, which has to be that of the archive's config, program and needs. A new run is
added. An existing run is replaced only if it is not COMPLETED and the archive's is, or if it has no attempts
and the archive's has; and never while a worker has it; what it executes stays as it is. An experiment that
was launched here stays as it is, unless the user wants it replaced; of one that was imported, the later
launch wins; of a published cell the later import. Merging an archive again changes nothing.

An imported experiment says from which archive it came, and nothing executes it before its user trusts it
(`store.trust`).

Files are moved before rows are written, all rows in one transaction. A crash in between leaves folders that
no run owns, or the archive's folder under an existing run of the same fingerprint, which resumes from it.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.exc import DataError, IntegrityError

from jestlab.platform.errors import SpecError, UserError
from jestlab.platform.exchange.archive import (
    FINGERPRINT,
    FOLDER,
    METRIC,
    damaged,
    decode,
    decode_curve,
)
from jestlab.platform.exchange.limits import check_disk
from jestlab.platform.exchange.unpacking import archived_rows, unpack
from jestlab.platform.lab.lab import Lab
from jestlab.platform.logs import one_line
from jestlab.platform.planning.identity import folder_end, is_true
from jestlab.platform.spec.runs import is_name
from jestlab.platform.spec.schema import Study
from jestlab.platform.store.published import take_rows
from jestlab.platform.store.records import LIVE, RunState
from jestlab.platform.store.rows import chunks, execute_many, insert, now
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import (
    Acceptance,
    Artifact,
    Attempt,
    Budget,
    Cost,
    Evaluation,
    Experiment,
    Member,
    Metric,
    MetricName,
    Need,
    Note,
    Published,
    Registration,
    Retraction,
    Run,
    Source,
    Tag,
    run_key,
)
from jestlab.platform.store.trust import Origin, imported_from

_BATCH = 5_000  # rows inserted at once
_EXPORTED = "was running when it was exported"


_OF_NO_RUN = ("experiment", "note", "tag", "published", "source", "registration")
"""Tables whose rows need not be of a run."""


@dataclass
class Merged:
    """What was merged: numbers of runs and published cells, and names of experiments.

    Attributes:
        new: Runs that were added.
        replaced: Runs that were replaced.
        kept: Runs that were left unchanged.
        experiments: Experiments that were added or updated.
        kept_experiments: Experiments that were launched here, and of which the archive has another version.
        published: Published cells that were added or updated.
    """

    new: int = 0
    replaced: int = 0
    kept: int = 0
    experiments: list[str] = field(default_factory=list)
    kept_experiments: list[str] = field(default_factory=list)
    published: int = 0


def merge(lab: Lab, store: Store, path: Path, replace: bool = False) -> Merged:
    """Merge an archive into a lab and its store: all of it or nothing.

    Args:
        lab: Whose files.
        store: Its store.
        path: The archive.
        replace: Whether the archive's version of an experiment takes the place of one launched here.

    Raises:
        UserError: It is damaged, of another schema, or not an archive.
    """
    lab.root.mkdir(parents=True, exist_ok=True)
    staging = lab.root / f".import.{uuid.uuid4().hex}.part"
    staging.mkdir()
    try:
        unpack(path, staging)
        origin = imported_from(path)
        with store.writing() as connection:
            return _Merge(lab, connection, staging, origin, replace).whole()
    except (IntegrityError, DataError, KeyError, TypeError, ValueError, OverflowError) as error:
        said = one_line(str(getattr(error, "orig", error)), 200)
        raise UserError(f"{path} is damaged, nothing was imported: {said}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _check_spec(name: str, spec: str) -> None:
    """Raise UserError unless this is the spec of an experiment of this name, as every reader expects it."""
    if not is_name(name):
        raise damaged(f"experiment {one_line(name, 100)!r}")
    try:
        study = Study.parse(json.loads(spec))
    except SpecError as error:
        raise damaged(f"the spec of {name}: {one_line(str(error), 200)}") from None
    if study.name != name:
        raise damaged(f"the spec of {name} is that of {one_line(study.name, 100)!r}")


@dataclass(frozen=True)
class _Here:
    """A run of this store; live if a worker has it, or had it a moment ago."""

    id: int
    state: str
    directory: str
    attempts: int
    live: bool


class _Merge:
    """One archive being merged into one store, inside a write transaction."""

    def __init__(
        self, lab: Lab, connection: Connection, staging: Path, origin: Origin, replace: bool
    ) -> None:
        self._lab = lab
        self._connection = connection
        self._staging = staging
        self._origin = origin
        self._replace = replace
        self._merged = Merged()
        self._runs: set[str] = set()  # all runs of the archive
        self._taken: dict[str, tuple[str, str]] = {}  # folders in the archive and here of the runs to write

    def whole(self) -> Merged:
        began = {row["run"] for row in self._rows("attempt")}
        needs: dict[str, dict[str, str]] = {}
        for row in self._rows("need"):
            needs.setdefault(row["run"], {})[decode(Need, row)["role"]] = row["needs"]
        here = self._here()
        for row in self._rows("run"):
            fingerprint = row["fingerprint"]
            values = self._checked_run(row, needs.get(fingerprint, {}))
            self._run(fingerprint, values, here.get(fingerprint), began)
        fresh = self._take_experiments()
        self._insert(Member, (row for row in self._rows("member") if row["experiment"] in fresh))
        self._insert(Need, self._rows("need"), ignore=True)
        self._insert_attempts()
        for table in (Evaluation, Cost, Artifact, Budget, Acceptance, Retraction):
            self._insert(table, (row for row in self._rows(table.__tablename__) if row["run"] in self._taken))
        self._insert_metrics()
        self._insert_notes()
        self._insert(Source, self._rows("source"), ignore=True)
        self._insert(Registration, (row for row in self._rows("registration") if row["experiment"] in fresh))
        self._insert(Tag, self._rows("tag"), ignore=True)
        published = [decode(Published, row) for row in self._rows(Published.__tablename__)]
        self._merged.published = take_rows(self._connection, published)
        self._move_files(fresh)
        return self._merged

    # ---- runs

    def _here(self) -> dict[str, _Here]:
        """Read the archive's runs that exist, and lock those that may be replaced, and nothing else."""
        here: dict[str, _Here] = {}
        at_work = select(Attempt.run_id).where(Attempt.state.in_(LIVE))
        for chunk in chunks(row["fingerprint"] for row in self._rows("run")):
            ours = Run.fingerprint.in_(chunk)
            # key_share: workers, also lost ones, may go on writing rows that refer to these runs.
            locked = set(
                self._connection.scalars(
                    select(Run.id)
                    .where(ours, Run.state != RunState.COMPLETED, Run.id.not_in(at_work))
                    .order_by(Run.id)
                    .with_for_update(key_share=True)
                )
            )
            attempts: dict[int, list[str]] = {}  # read after locking: nobody can claim those runs now
            for run_id, state in self._connection.execute(
                select(Attempt.run_id, Attempt.state).join(Run, Run.id == Attempt.run_id).where(ours)
            ):
                attempts.setdefault(run_id, []).append(state)
            for row in self._connection.execute(
                select(Run.id, Run.fingerprint, Run.state, Run.directory).where(ours)
            ):
                states = attempts.get(row.id, [])
                live = row.id not in locked or any(state in LIVE for state in states)
                here[row.fingerprint] = _Here(row.id, row.state, row.directory, len(states), live)
        return here

    def _checked_run(self, row: dict[str, Any], needs: Mapping[str, str]) -> dict[str, Any]:
        """Return the columns of a run that is what its fingerprint says.

        Else a run of the archive could pass for another one, which a study here would not run again.
        """
        fingerprint, values = row["fingerprint"], decode(Run, row)
        folder = values["directory"]
        if not FOLDER.fullmatch(folder) or not folder.endswith(folder_end(fingerprint)):
            raise damaged(f"run {fingerprint[:8]} has the folder {one_line(folder, 100)!r}")
        if values["state"] not in set(RunState):
            raise damaged(f"run {fingerprint[:8]} is {one_line(values['state'], 60)!r}")
        if not is_true(fingerprint, values["program"], json.loads(values["config"]), needs):
            raise damaged(
                f"run {fingerprint[:8]} has another fingerprint than its program, config and needs "
                f"({one_line(values['program'], 100)}): nothing was imported"
            )
        return values

    def _run(self, fingerprint: str, values: dict[str, Any], here: _Here | None, began: set[str]) -> None:
        if values["state"] == RunState.RUNNING:
            values |= {"state": RunState.PREEMPTED, "reason": _EXPORTED}
        theirs = values["directory"]
        self._runs.add(fingerprint)
        if here is None:
            taken = self._connection.scalar(select(Run.fingerprint).where(Run.directory == theirs))
            if taken is not None:
                raise UserError(f"{theirs} is the folder of another run here ({taken[:8]})")
            key = {"id": run_key(fingerprint)}
            self._connection.execute(insert(self._connection, Run).values(**values, **key))
            self._taken[fingerprint] = (theirs, theirs)
            self._merged.new += 1
            return
        better = values["state"] == RunState.COMPLETED or (here.attempts == 0 and fingerprint in began)
        if here.live or here.state == RunState.COMPLETED or not better:
            self._merged.kept += 1
            return
        for table in (Metric, Evaluation, Artifact, Cost, Budget, Acceptance, Retraction, Attempt):
            self._connection.execute(delete(table).where(table.run_id == here.id))
        values |= {"directory": here.directory}
        # Program and config are equal but for paths, and those of this machine are known to be good.
        del values["program"], values["config"]
        self._connection.execute(update(Run).where(Run.id == here.id).values(**values))
        self._taken[fingerprint] = (theirs, here.directory)
        self._merged.replaced += 1

    def _insert_attempts(self) -> None:
        """Insert attempts; none of them is running here."""
        attempts = []
        for row in self._rows("attempt"):
            if row["run"] not in self._taken:
                continue
            values = decode(Attempt, row) | {"run_id": run_key(row["run"])}
            if values["state"] in LIVE:
                ended = {"ended_at": values["heartbeat_at"]}
                values |= ended | {"state": RunState.PREEMPTED, "reason": _EXPORTED}
            values["log"] = self._moved(row["run"], values["log"])
            folder = values["log"].rpartition("/")[0]  # perhaps that of before the run started over
            is_before = FOLDER.fullmatch(folder) and folder.endswith(folder_end(row["run"]))
            if not is_before and not values["log"].startswith(f"{self._taken[row['run']][1]}/"):
                raise damaged(f"the path {one_line(values['log'], 100)!r}")
            attempts.append(values)
        self._execute(insert(self._connection, Attempt), iter(attempts))

    def _insert_metrics(self) -> None:
        names = dict(self._connection.execute(select(MetricName.name, MetricName.id)).tuples().all())

        def points() -> Iterator[dict[str, Any]]:
            for curve in self._rows(METRIC):
                if curve["run"] not in self._taken:
                    continue
                name, its_points = decode_curve(curve)
                if name not in names:
                    made = insert(self._connection, MetricName).values(name=name).returning(MetricName.id)
                    names[name] = int(self._connection.execute(made).scalar_one())
                whose = {"run_id": run_key(curve["run"]), "name_id": names[name]}
                for step, value in its_points:
                    yield whose | {"step": step, "value": value}

        self._execute(insert(self._connection, Metric), points())

    # ---- experiments, notes

    def _take_experiments(self) -> set[str]:
        """Return the names of those that are new or take another's place; their members are replaced."""
        columns = (Experiment.name, Experiment.updated_at, Experiment.origin, Experiment.spec)
        known = {row.name: row for row in self._connection.execute(select(*columns))}
        fresh = set()
        for row in self._rows("experiment"):
            values = decode(Experiment, row)
            for time in ("created_at", "updated_at"):  # a launch in the future would win for ever
                values[time] = min(values[time], now())
            values["origin"] = self._origin.to_json()
            name, here = values["name"], known.get(values["name"])
            _check_spec(name, values["spec"])
            if here is None:
                self._connection.execute(insert(self._connection, Experiment).values(**values))
            else:
                if not self._takes_place(values, here):
                    continue
                own = Experiment.name == name
                self._connection.execute(update(Experiment).where(own).values(**values))
                self._connection.execute(delete(Member).where(Member.experiment == name))
                self._connection.execute(delete(Registration).where(Registration.experiment == name))
            fresh.add(name)
        self._merged.experiments = sorted(fresh)
        return fresh

    def _takes_place(self, theirs: Mapping[str, Any], here: Any) -> bool:
        """Whether the archive's version of an experiment takes the place of the one here."""
        if here.origin is not None:
            return bool(here.updated_at < theirs["updated_at"])
        if (here.updated_at, here.spec) == (theirs["updated_at"], theirs["spec"]):
            return False  # it was exported from here
        if not self._replace:
            self._merged.kept_experiments.append(here.name)
        return self._replace

    def _insert_notes(self) -> None:
        known = {
            tuple(row)
            for row in self._connection.execute(
                select(Note.experiment, Note.run_id, Note.text, Note.author, Note.created_at)
            )
        }
        rows = [decode(Note, row) | self._keys(Note, row) for row in self._rows("note")]
        names = ("experiment", "run_id", "text", "author", "created_at")
        new = [row for row in rows if tuple(row.get(name) for name in names) not in known]
        self._execute(insert(self._connection, Note), iter(new))

    # ---- rows

    def _rows(self, table: str) -> Iterator[dict[str, Any]]:
        for row in archived_rows(self._staging, table):
            of_run = table not in _OF_NO_RUN
            run = row.get("fingerprint" if table == "run" else "run")
            is_run = isinstance(run, str) and FINGERPRINT.fullmatch(run)
            if (run is None and of_run) or (run is not None and not is_run):
                raise damaged(f"a row of {table} without a run")
            names = [row.get("needs", ""), row.get("experiment") or ""]
            of_experiment = table in ("member", "registration")
            if not all(isinstance(name, str) for name in names) or (of_experiment and not names[1]):
                raise damaged(f"a row of {table} without what it belongs to")
            yield row

    def _insert(self, table: Any, rows: Iterator[dict[str, Any]], ignore: bool = False) -> None:
        statement = insert(self._connection, table)
        if ignore:
            statement = statement.on_conflict_do_nothing()

        def values() -> Iterator[dict[str, Any]]:
            for row in rows:
                columns = decode(table, row) | self._keys(table, row)
                if "uri" in columns:
                    columns["uri"] = self._moved(row["run"], columns["uri"])
                yield columns

        self._execute(statement, values())

    def _execute(self, statement: Any, rows: Iterator[dict[str, Any]]) -> None:
        batch: list[dict[str, Any]] = []
        for row in rows:
            batch.append(row)
            if len(batch) == _BATCH:
                execute_many(self._connection, statement, batch)
                check_disk(self._lab.root)
                batch = []
        execute_many(self._connection, statement, batch)

    def _keys(self, table: Any, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the database's own keys for the natural ones of an archive."""
        own, keys = table.__table__.columns, {}
        for column, run in (("run_id", row.get("run")), ("needs_id", row.get("needs"))):
            if column in own:
                if run is not None and run not in self._runs:
                    raise damaged(f"{table.__tablename__} refers to {one_line(repr(run), 80)}")
                keys[column] = None if run is None else run_key(run)
        return keys

    # ---- files

    def _moved(self, fingerprint: str, path: str) -> str:
        """Return a path in the archive's lab as it is in this lab."""
        theirs, ours = self._taken[fingerprint]
        if path.startswith("/") or ".." in path.split("/"):
            raise damaged(f"the path {path!r}")
        return ours + path.removeprefix(theirs) if path.startswith(f"{theirs}/") else path

    def _move_files(self, experiments: set[str]) -> None:
        """Move the folders of the runs that were written, each in one step, and reports, file by file."""
        for theirs, ours in self._taken.values():
            there, here = self._staging / theirs, self._lab.root / ours
            if here.exists():  # of a replaced run: its checkpoints do not belong to this result
                here.rename(here.with_name(f".{here.name}.{uuid.uuid4().hex}.part"))
            if there.is_dir():
                here.parent.mkdir(parents=True, exist_ok=True)
                there.rename(here)
        for name in experiments:
            there = self._staging / "reports" / name
            for file in sorted(path for path in there.rglob("*") if path.is_file()):
                here = self._lab.reports / name / file.relative_to(there)
                here.parent.mkdir(parents=True, exist_ok=True)
                file.replace(here)
