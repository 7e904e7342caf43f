"""Import an archive into a lab.

The rows of an archive are checked before they are inserted, and nothing in it is executed or unpickled. The
fingerprint of a run must match its program, config, and needs. Otherwise a run of the archive could take the
place of a different run, which a study would then not run.

A run that the lab doesn't have is added. A run that the lab has is replaced only if it isn't COMPLETED or
active here and the archive's is COMPLETED, or if it has no attempts here. An experiment that was launched
here is kept unless the user wants to replace it. Of an imported experiment, the later launch counts.
Importing an archive again changes nothing. `store.trust` refuses to execute what isn't trusted.

All rows are written in one transaction, and files are moved before it ends. A crash can leave folders without
a run.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.exc import DataError, IntegrityError

from jestlab.analysis import guards
from jestlab.analysis.connection import SCHEMA, other_version
from jestlab.platform.errors import SpecError, UserError
from jestlab.platform.exchange.archive_check import columns_of, decode, unpack
from jestlab.platform.exchange.archive_write import STORE, TABLES
from jestlab.platform.lab.lab import Lab
from jestlab.platform.logs import one_line
from jestlab.platform.planning.identity import folder_suffix, is_authentic
from jestlab.platform.spec.runs import is_name
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.published import take_rows
from jestlab.platform.store.records import LIVE, RunState
from jestlab.platform.store.rows import chunks, execute_many, insert, now, write_points
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import (
    AcceptanceRow,
    ArtifactRow,
    AttemptRow,
    BudgetRow,
    CostRow,
    EvaluationRow,
    ExperimentRow,
    MemberRow,
    MetricNameRow,
    MetricRow,
    NeedRow,
    NoteRow,
    PublishedRow,
    RegistrationRow,
    RetractionRow,
    RunRow,
    SourceRow,
    TagRow,
    run_key,
)
from jestlab.platform.store.trust import Origin, imported_from

_ROWS_AT_ONCE = 5_000
_POINTS_AT_ONCE = 50_000
_VALUE_TYPES = (float, int, type(None))
_MOST_CELL_BYTES = 1 << 26
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_FOLDER = re.compile(r"runs/(?!\.)[^/\\\0]+")
_DAMAGE = (IntegrityError, DataError, sqlite3.Error, LookupError, TypeError, ValueError, OverflowError)

_OF_ATTEMPTS: tuple[Any, ...] = (
    AttemptRow,
    EvaluationRow,
    CostRow,
    ArtifactRow,
    BudgetRow,
    AcceptanceRow,
    RetractionRow,
)
"""Tables that are replaced with a run; each comes after the tables that it refers to."""

_ACTIVE = "was running when it was exported"

Row = dict[str, Any]


@dataclass
class ImportSummary:
    """The changes of an import.

    Attributes:
        new: Number of added runs.
        replaced: Number of replaced runs.
        kept: Number of unchanged runs.
        experiments: Names of added or updated experiments.
        kept_experiments: Names of experiments that were launched here and differ in the archive.
        published: Number of added or updated published cells.
    """

    new: int = 0
    replaced: int = 0
    kept: int = 0
    experiments: list[str] = field(default_factory=list)
    kept_experiments: list[str] = field(default_factory=list)
    published: int = 0


def read_archive(lab: Lab, store: Store, path: Path, replace: bool = False) -> ImportSummary:
    """Import an archive into a lab and its store: all of it or nothing.

    With `replace`, experiments of the archive replace those launched here.

    Raises:
        UserError: The file is damaged, of another version, or not an archive.
    """
    lab.root.mkdir(parents=True, exist_ok=True)
    staging = lab.root / f".import.{uuid.uuid4().hex}.part"
    staging.mkdir()
    try:
        unpack(path, staging)
        with closing(guards.open_readonly(staging / STORE)) as source, store.writing() as connection:
            return _Import(lab, connection, source, staging, imported_from(path), replace).run()
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except _DAMAGE as error:
        reason = one_line(str(getattr(error, "orig", error)), 200)
        raise UserError(f"{path} is damaged, nothing was imported: {reason}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@dataclass
class _Import:
    """The import of an archive's rows and files, in a write transaction."""

    lab: Lab
    connection: Connection
    source: sqlite3.Connection
    staging: Path
    origin: Origin
    replace: bool

    def __post_init__(self) -> None:
        self._summary = ImportSummary()
        self._runs: dict[int, str] = {}  # key → fingerprint, of all runs in the archive
        self._written: dict[int, str] = {}  # key → folder, of new and replaced runs
        self._names: set[str] = set()  # of all experiments in the archive

    def run(self) -> ImportSummary:
        self._check_store()
        self._take_runs()
        fresh = self._take_experiments()
        table: Any
        for table in (MemberRow, RegistrationRow):
            self._insert(table, (row for row in self._rows(table) if row["experiment"] in fresh))
        for table in _OF_ATTEMPTS:
            self._insert(table, (row for key in self._written for row in self._rows(table, key)))
        self._insert_metrics()
        for table in (NeedRow, SourceRow, TagRow):
            self._insert(table, self._rows(table))
        known = set(
            self.connection.execute(
                select(NoteRow.experiment, NoteRow.run_id, NoteRow.text, NoteRow.created_at)
            ).tuples()
        )
        keys = ("experiment", "run_id", "text", "created_at")
        notes = (row for row in self._rows(NoteRow) if tuple(row[key] for key in keys) not in known)
        self._insert(NoteRow, notes)
        self._summary.published = take_rows(self.connection, [*self._rows(PublishedRow)])
        self._move_files(fresh)
        return self._summary

    def _check_store(self) -> None:
        """Raise UserError unless the archive's store is undamaged and has only tables of this version."""
        self.source.execute("PRAGMA trusted_schema = OFF")
        self.source.execute("PRAGMA cell_size_check = ON")
        self.source.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_CELL_BYTES)
        [(version,)] = self.source.execute("SELECT version_num FROM alembic_version").fetchall()
        if version != SCHEMA:
            raise UserError(
                other_version(one_line(str(version), 60), "import it with the version that wrote it")
            )
        query = "SELECT name FROM sqlite_schema WHERE type = 'table'"
        tables = {name for (name,) in self.source.execute(query)}
        if missing := {table.__tablename__ for table in TABLES} - tables:
            raise UserError(f"damaged: it has no table {min(missing)}")
        [(verdict,), *_] = self.source.execute("PRAGMA quick_check(1)").fetchall()
        if verdict != "ok":
            raise UserError(f"damaged: {one_line(verdict, 200)}")

    def _rows(self, table: Any, run: int | None = None) -> Iterator[Row]:
        """Yield the checked rows of a table, or only those of a run."""
        names = [column.name for column in columns_of(table)]
        query = f"SELECT {', '.join(names)} FROM {table.__tablename__}"
        if run is not None:
            query += f" WHERE run_id = {run:d}"
        for values in self.source.execute(query):
            row = decode(table, dict(zip(names, values, strict=True)))
            for column in ("run_id", "needs_id"):
                if row.get(column) is not None and row[column] not in self._runs:
                    raise UserError(f"damaged: {table.__tablename__} refers to an unknown run")
            if table is not RegistrationRow and row.get("experiment") not in (None, *self._names):
                raise UserError(f"damaged: {table.__tablename__} refers to an unknown experiment")
            yield row

    def _insert(self, table: Any, rows: Iterator[Row]) -> None:
        """Insert rows that the store doesn't have."""
        statement = insert(self.connection, table).on_conflict_do_nothing()
        while part := [self._checked(table, row) for row in islice(rows, _ROWS_AT_ONCE)]:
            self.connection.execute(statement, part)

    def _checked(self, table: Any, row: Row) -> Row:
        """Check the paths of a row; attempts that were active end, since their jobs aren't in this lab."""
        path = row.get("log" if table is AttemptRow else "uri")
        if path is not None:
            folder = path.rpartition("/")[0]
            end = folder_suffix(self._runs[row["run_id"]])
            is_own = path.startswith(f"{self._written[row['run_id']]}/")
            # The log of an attempt before the run started over is in another folder of the run.
            if ".." in path.split("/") or not (
                is_own or (_FOLDER.fullmatch(folder) and folder.endswith(end))
            ):
                raise UserError(f"damaged: the path {one_line(path, 100)!r}")
        if table is AttemptRow and row["state"] in LIVE:
            row |= {"state": RunState.PREEMPTED, "reason": _ACTIVE, "ended_at": row["heartbeat_at"]}
        return row

    def _insert_metrics(self) -> None:
        theirs = {row["id"]: row["name"] for row in self._rows(MetricNameRow)}
        names = [{"name": name} for name in theirs.values()]
        execute_many(self.connection, insert(self.connection, MetricNameRow).on_conflict_do_nothing(), names)
        ours = dict(self.connection.execute(select(MetricNameRow.name, MetricNameRow.id)).tuples().all())
        query = "SELECT name_id, step, value FROM metric WHERE run_id = ? ORDER BY name_id, step"
        for key in self._written:
            rows = self.source.execute(query, [key])
            while part := rows.fetchmany(_POINTS_AT_ONCE):
                # SQLite allows any value in any column.
                if not all(type(step) is int and type(value) in _VALUE_TYPES for _, step, value in part):
                    raise UserError("damaged: invalid metric.value")
                points = [(ours[theirs[name]], step, value) for name, step, value in part]
                write_points(self.connection, key, points)

    # ---- runs

    def _take_runs(self) -> None:
        """Insert new runs, and replace those that the archive's are better than."""
        needs: dict[int, dict[str, str]] = {}
        query = "SELECT need.run_id, need.role, run.fingerprint FROM need JOIN run ON run.id = need.needs_id"
        for key, role, fingerprint in self.source.execute(query):
            needs.setdefault(key, {})[role] = fingerprint
        begun = {key for (key,) in self.source.execute("SELECT DISTINCT run_id FROM attempt")}
        for rows in chunks(self._rows(RunRow), _ROWS_AT_ONCE):
            known, begun_here, replaceable = self._here([row["id"] for row in rows])
            for row in rows:
                key = row["id"]
                self._check_run(row, needs.get(key, {}))
                self._runs[key] = row["fingerprint"]
                if row["state"] == RunState.RUNNING:
                    row |= {"state": RunState.PREEMPTED, "reason": _ACTIVE}
                is_better = row["state"] == RunState.COMPLETED or (key in begun and key not in begun_here)
                if key not in known:
                    self.connection.execute(insert(self.connection, RunRow).values(**row))
                    self._summary.new += 1
                elif key in replaceable and is_better:
                    for table in (MetricRow, *_OF_ATTEMPTS[::-1]):
                        self.connection.execute(delete(table).where(table.run_id == key))
                    # Program and config differ at most in paths, and those of this machine are valid here.
                    values = {name: row[name] for name in row if name not in ("id", "program", "config")}
                    self.connection.execute(update(RunRow).where(RunRow.id == key).values(**values))
                    self._summary.replaced += 1
                else:
                    self._summary.kept += 1
                    continue
                self._written[key] = row["directory"]

    def _here(self, keys: list[int]) -> tuple[set[int], set[int], set[int]]:
        """Return which runs this store has, which have attempts here, and which may be replaced (locked)."""
        active = select(AttemptRow.run_id).where(AttemptRow.state.in_(LIVE))
        # key_share: workers may continue to write rows that refer to these runs.
        replaceable = set(
            self.connection.scalars(
                select(RunRow.id)
                .where(RunRow.id.in_(keys), RunRow.state != RunState.COMPLETED, RunRow.id.not_in(active))
                .order_by(RunRow.id)
                .with_for_update(key_share=True)
            )
        )
        # Read again: a launcher may have claimed a run before it was locked.
        replaceable -= set(self.connection.scalars(active.where(AttemptRow.run_id.in_(keys))))
        known = set(self.connection.scalars(select(RunRow.id).where(RunRow.id.in_(keys))))
        begun = set(self.connection.scalars(select(AttemptRow.run_id).where(AttemptRow.run_id.in_(keys))))
        return known, begun, replaceable

    def _check_run(self, row: Row, needs: dict[str, str]) -> None:
        fingerprint, folder = row["fingerprint"], row["directory"]
        if not _FINGERPRINT.fullmatch(fingerprint) or run_key(fingerprint) != row["id"]:
            raise UserError(f"damaged: invalid fingerprint {one_line(fingerprint, 80)!r}")
        if not _FOLDER.fullmatch(folder) or not folder.endswith(folder_suffix(fingerprint)):
            raise UserError(f"damaged: run {fingerprint[:8]} has the folder {one_line(folder, 100)!r}")
        if row["state"] not in set(RunState):
            raise UserError(f"damaged: run {fingerprint[:8]} has the state {one_line(row['state'], 60)!r}")
        if not is_authentic(fingerprint, row["program"], json.loads(row["config"]), needs):
            raise UserError(f"damaged: run {fingerprint[:8]} doesn't match its fingerprint")

    # ---- experiments

    def _take_experiments(self) -> set[str]:
        """Insert or update experiments; return the names of those whose members have to be inserted."""
        columns = (ExperimentRow.name, ExperimentRow.updated_at, ExperimentRow.origin, ExperimentRow.spec)
        known = {row.name: row for row in self.connection.execute(select(*columns))}
        fresh = set()
        for row in self._rows(ExperimentRow):
            name = row["name"]
            _check_spec(name, row["spec"])
            self._names.add(name)
            for time in ("created_at", "updated_at"):  # a launch in the future would count forever
                row[time] = min(row[time], now())
            row["origin"] = self.origin.to_json()
            if name not in known:
                self.connection.execute(insert(self.connection, ExperimentRow).values(**row))
                fresh.add(name)
            elif self._is_preferred(row, known[name]):
                self.connection.execute(update(ExperimentRow).where(ExperimentRow.name == name).values(**row))
                for table in (MemberRow, RegistrationRow):
                    self.connection.execute(delete(table).where(table.experiment == name))
                fresh.add(name)
        self._summary.experiments = sorted(fresh)
        return fresh

    def _is_preferred(self, theirs: Row, here: Any) -> bool:
        """Return whether the archive's version of an experiment replaces the one here."""
        if here.origin is not None:
            return bool(here.updated_at < theirs["updated_at"])
        if (here.updated_at, here.spec) == (theirs["updated_at"], theirs["spec"]):
            return False  # it was exported from here
        if not self.replace:
            self._summary.kept_experiments.append(here.name)
        return self.replace

    # ---- files

    def _move_files(self, experiments: set[str]) -> None:
        """Move the folders of the written runs, each in one step, and reports, file by file."""
        for directory in self._written.values():
            there, here = self.staging / directory, self.lab.root / directory
            if here.exists():  # of a replaced run: its checkpoints don't belong to the new result
                here.rename(here.with_name(f".{here.name}.{uuid.uuid4().hex}.part"))
            if there.is_dir():
                here.parent.mkdir(parents=True, exist_ok=True)
                there.rename(here)
        for name in experiments:
            there = self.staging / "reports" / name
            for file in sorted(path for path in there.rglob("*") if path.is_file()):
                here = self.lab.reports / name / file.relative_to(there)
                here.parent.mkdir(parents=True, exist_ok=True)
                file.replace(here)


def _check_spec(name: str, text: str) -> None:
    """Raise UserError unless a text is the spec of the experiment with this name."""
    if not is_name(name):
        raise UserError(f"damaged: invalid name of an experiment {one_line(name, 100)!r}")
    try:
        study = StudySpec.parse(json.loads(text))
    except SpecError as error:
        raise UserError(f"damaged: the spec of {name}: {one_line(str(error), 200)}") from None
    if study.name != name:
        raise UserError(f"damaged: the spec of {name} has the name {one_line(study.name, 100)!r}")
