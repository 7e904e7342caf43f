"""Import an archive into a lab.

The rows of an archive are checked before they are inserted, and nothing in it is executed or unpickled. The
fingerprint of a run must match its program, config, and needs. Otherwise an archive could contain a run with
the fingerprint of a different run, and a study would use its results instead of executing the right run.

A run that the lab doesn't have is added. A run that the lab has is replaced only if it is neither COMPLETED
nor active here, but COMPLETED in the archive. An experiment that was launched here is kept. An experiment
that was imported earlier is updated if the archive has a later launch of it. Importing an archive again
changes nothing. `store.trust` refuses to execute the code of an imported experiment until the user trusts it.

All rows are written in one transaction, and files are moved before it ends. A crash can leave folders without
a run, which `jestlab gc` deletes.
"""

import json
import re
import sqlite3
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from sqlalchemy import Connection, Table, select
from sqlalchemy.exc import DataError, IntegrityError

from jestlab.analysis import read_only
from jestlab.analysis.connection import SCHEMA, other_version
from jestlab.platform.errors import SpecError, UserError
from jestlab.platform.exchange.archive_check import Row, decode, unpack
from jestlab.platform.exchange.archive_write import STORE, TABLES, columns_of
from jestlab.platform.lab.lab import Lab
from jestlab.platform.logs import one_line
from jestlab.platform.planning.identity import folder_suffix, is_authentic
from jestlab.platform.spec.runs import is_name
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.batches import metric_ids
from jestlab.platform.store.published import take_rows
from jestlab.platform.store.records import LIVE, RunState
from jestlab.platform.store.rows import insert, now, write_metrics
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import AttemptRow, Base, RunRow, run_key
from jestlab.platform.store.trust import imported_from

_ROWS_AT_ONCE = 5_000
_POINTS_AT_ONCE = 50_000
_VALUE_TYPES = (float, int, type(None))
_MOST_CELL_BYTES = 1 << 26
_DAMAGE = (IntegrityError, DataError, sqlite3.Error, LookupError, TypeError, ValueError, OverflowError)
_WAS_RUNNING = "was running when it was exported"

_TABLE = Base.metadata.tables
_RESULT_TABLES = ("attempt", "evaluation", "cost", "artifact", "budget", "acceptance", "retraction")
"""Tables whose rows are replaced together with their run, as are its metrics.

Each comes after the tables that it refers to.
"""


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


def read_archive(lab: Lab, store: Store, path: Path) -> ImportSummary:
    """Import an archive into a lab and its store: all of it or nothing.

    Raises:
        UserError: The file is damaged, of another version, or not an archive.
    """
    lab.root.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(".part", ".import.", lab.root, ignore_cleanup_errors=True) as folder:
            staging = Path(folder)
            unpack(path, staging)
            with closing(read_only.open_readonly(staging / STORE)) as source, store.writing() as connection:
                importing = _Import(connection, source, imported_from(path).to_json())
                importing.take_all()
                move_files(importing, staging, lab)
                return importing.summary
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except _DAMAGE as error:
        reason = one_line(str(getattr(error, "orig", error)), 200)
        raise UserError(f"{path} is damaged, nothing was imported: {reason}") from error


@dataclass
class _Import:
    """The import of an archive's rows, in a write transaction.

    Attributes:
        summary: The changes.
        fingerprints: Key → fingerprint of all runs in the archive.
        folders: Key → folder of the new and the replaced runs.
    """

    connection: Connection
    source: sqlite3.Connection
    origin: str

    def __post_init__(self) -> None:
        self.summary = ImportSummary()
        self.fingerprints: dict[int, str] = {}
        self.folders: dict[int, str] = {}
        self._names: set[str] = set()  # of all experiments in the archive

    def take_all(self) -> None:
        """Check and take the rows of all tables."""
        self._check_store()
        self._take_runs()
        self._take_experiments()
        subject = ("experiment", "run_id", "text", "created_at")
        query = select(*(_TABLE["note"].columns[name] for name in subject))
        notes = set(map(tuple, self.connection.execute(query)))
        wanted: dict[str, Callable[[Row], bool]] = {
            **dict.fromkeys(_RESULT_TABLES, lambda row: row["run_id"] in self.folders),
            "member": lambda row: row["experiment"] in self.summary.experiments,
            "registration": lambda row: row["experiment"] in self.summary.experiments,
            "note": lambda row: tuple(row[name] for name in subject) not in notes,
        }
        for table in TABLES:
            if table.name == "published":
                imported = take_rows(self.connection, [*self._rows(table)])
                self.summary.published = imported.new + imported.changed
            elif table.name == "metric":
                self._take_metrics()
            elif table.name not in ("run", "experiment", "metric_name"):
                self._insert(table, filter(wanted.get(table.name), self._rows(table)))

    def _check_store(self) -> None:
        """Raise UserError unless the archive's store is undamaged and has only tables of this version."""
        self.source.execute("PRAGMA trusted_schema = OFF")
        self.source.execute("PRAGMA cell_size_check = ON")
        self.source.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_CELL_BYTES)
        [(version,)] = self.source.execute("SELECT version_num FROM alembic_version").fetchall()
        if version != SCHEMA:
            remedy = "import it with the version that wrote it"
            raise UserError(other_version(one_line(str(version), 60), remedy))
        query = "SELECT name FROM sqlite_schema WHERE type = 'table'"
        tables = {name for (name,) in self.source.execute(query)}
        if missing := {table.name for table in TABLES} - tables:
            raise UserError(f"damaged: it has no table {min(missing)}")
        [(verdict,), *_] = self.source.execute("PRAGMA quick_check(1)").fetchall()
        if verdict != "ok":
            raise UserError(f"damaged: {one_line(verdict, 200)}")

    def _rows(self, table: Table) -> Iterator[Row]:
        """Yield the rows of a table, checked. Active attempts are ended: their jobs aren't in this lab."""
        names = [column.name for column in columns_of(table)]
        for values in self.source.execute(f"SELECT {', '.join(names)} FROM {table.name}"):
            row = decode(table, dict(zip(names, values, strict=True)))
            runs = {row[key] for key in ("run_id", "needs_id") if row.get(key) is not None}
            if not runs <= self.fingerprints.keys():
                raise UserError(f"damaged: {table.name} refers to an unknown run")
            if table.name != "registration" and row.get("experiment") not in (None, *self._names):
                raise UserError(f"damaged: {table.name} refers to an unknown experiment")
            for path in (row[key] for key in ("log", "uri") if key in row):
                if not _is_in_run_folder(path, self.fingerprints[row["run_id"]]):
                    raise UserError(f"damaged: the path {one_line(path, 100)!r}")
            if table.name == "attempt" and row["state"] in LIVE:
                row |= {"state": RunState.PREEMPTED, "reason": _WAS_RUNNING, "ended_at": row["heartbeat_at"]}
            yield row

    def _insert(self, table: Table, rows: Iterable[Row]) -> None:
        """Insert rows that the store doesn't have."""
        statement, rest = insert(self.connection, table).on_conflict_do_nothing(), iter(rows)
        while part := [*islice(rest, _ROWS_AT_ONCE)]:
            self.connection.execute(statement, part)

    def _take_metrics(self) -> None:
        """Insert the metrics of new and replaced runs. The ids of metric names differ between stores."""
        theirs = {row["id"]: row["name"] for row in self._rows(_TABLE["metric_name"])}
        ours = dict[str, int]()
        for name in theirs.values():
            ours |= metric_ids(self.connection, {name})
        query = "SELECT name_id, step, value FROM metric WHERE run_id = ? ORDER BY name_id, step"
        for key in self.folders:
            rows = self.source.execute(query, [key])
            while part := rows.fetchmany(_POINTS_AT_ONCE):
                # SQLite allows any value in any column.
                if not all(type(step) is int and type(value) in _VALUE_TYPES for _, step, value in part):
                    raise UserError("damaged: invalid metric.value")
                write_metrics(self.connection, [(key, ours[theirs[name]], *point) for name, *point in part])

    # ---- runs

    def _take_runs(self) -> None:
        """Insert new runs, and replace unfinished runs that are COMPLETED in the archive."""
        needs: dict[int, dict[str, str]] = {}
        query = "SELECT need.run_id, need.role, run.fingerprint FROM need JOIN run ON run.id = need.needs_id"
        for key, role, fingerprint in self.source.execute(query):
            needs.setdefault(key, {})[role] = fingerprint
        table = _TABLE["run"]
        rest = self._rows(table)
        while rows := [*islice(rest, _ROWS_AT_ONCE)]:
            known, replaceable = self._known_and_replaceable([row["id"] for row in rows])
            for row in rows:
                key = row["id"]
                _check_run(row, needs.get(key, {}))
                self.fingerprints[key] = row["fingerprint"]
                if row["state"] == RunState.RUNNING:
                    row |= {"state": RunState.PREEMPTED, "reason": _WAS_RUNNING}
                if key not in known:
                    self.connection.execute(table.insert().values(**row))
                    self.summary.new += 1
                elif key in replaceable and row["state"] == RunState.COMPLETED:
                    for other in ("metric", *_RESULT_TABLES[::-1]):
                        results = _TABLE[other]
                        self.connection.execute(results.delete().where(results.c.run_id == key))
                    # Program and config differ at most in paths, and this machine's paths are valid here.
                    values = {name: row[name] for name in row if name not in ("id", "program", "config")}
                    self.connection.execute(table.update().where(table.c.id == key).values(**values))
                    self.summary.replaced += 1
                else:
                    self.summary.kept += 1
                    continue
                self.folders[key] = row["directory"]

    def _known_and_replaceable(self, keys: list[int]) -> tuple[set[int], set[int]]:
        """Return the runs that this store has, and those that may be replaced, which are now locked."""
        active = select(AttemptRow.run_id).where(AttemptRow.state.in_(LIVE), AttemptRow.run_id.in_(keys))
        own = select(RunRow.id).where(RunRow.id.in_(keys)).order_by(RunRow.id)
        unfinished = own.where(RunRow.state != RunState.COMPLETED, RunRow.id.not_in(active))
        # key_share: workers may continue to write rows that refer to these runs.
        replaceable = set(self.connection.scalars(unfinished.with_for_update(key_share=True)))
        # Read again: a launcher may have claimed a run before it was locked.
        return set(self.connection.scalars(own)), replaceable - set(self.connection.scalars(active))

    # ---- experiments

    def _take_experiments(self) -> None:
        """Insert or update experiments; delete the members and registrations of the updated ones."""
        table = _TABLE["experiment"]
        known = {row.name: row for row in self.connection.execute(select(table))}
        for row in self._rows(table):
            name = row["name"]
            _check_spec(name, row["spec"])
            self._names.add(name)
            for time in ("created_at", "updated_at"):  # no launch could replace one in the future
                row[time] = min(row[time], now())
            row["origin"] = self.origin
            existing = known.get(name)
            if existing is None:
                self.connection.execute(table.insert().values(**row))
            elif existing.origin is not None and existing.updated_at < row["updated_at"]:
                self.connection.execute(table.update().where(table.c.name == name).values(**row))
                for members in (_TABLE["member"], _TABLE["registration"]):
                    self.connection.execute(members.delete().where(members.c.experiment == name))
            else:
                # An archive that was exported from this store has the same spec and time.
                is_same = (existing.updated_at, existing.spec) == (row["updated_at"], row["spec"])
                if existing.origin is None and not is_same:
                    self.summary.kept_experiments.append(name)
                continue
            self.summary.experiments.append(name)
        self.summary.experiments.sort()


def _is_in_run_folder(path: str, fingerprint: str) -> bool:
    """Return whether a path is in one of a run's folders. A run that started over has several folders."""
    return bool(re.fullmatch(rf"runs/(?!\.)[^/\\\0]+{folder_suffix(fingerprint)}(/(?!\.)[^/\\\0]+)*", path))


def _check_run(row: Row, needs: dict[str, str]) -> None:
    """Raise UserError unless a run's fingerprint, folder, and state are valid."""
    fingerprint, folder = row["fingerprint"], row["directory"]
    if not re.fullmatch("[0-9a-f]{64}", fingerprint) or run_key(fingerprint) != row["id"]:
        raise UserError(f"damaged: invalid fingerprint {one_line(fingerprint, 80)!r}")
    if not _is_in_run_folder(folder, fingerprint) or folder.count("/") > 1:
        raise UserError(f"damaged: run {fingerprint[:8]} has the folder {one_line(folder, 100)!r}")
    if row["state"] not in set(RunState):
        raise UserError(f"damaged: run {fingerprint[:8]} has the state {one_line(row['state'], 60)!r}")
    if not is_authentic(fingerprint, row["program"], json.loads(row["config"]), needs):
        raise UserError(f"damaged: run {fingerprint[:8]} doesn't match its fingerprint")


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


def move_files(imported: _Import, staging: Path, lab: Lab) -> None:
    """Move unpacked files to the lab: the folders of new and replaced runs, and the reports of experiments.

    A run's folder is moved in one step, reports are moved file by file.
    """
    for directory in imported.folders.values():
        source, target = staging / directory, lab.root / directory
        if target.exists():  # the run is replaced: the old checkpoints don't belong to the new result
            target.rename(target.with_name(f".{target.name}.{uuid.uuid4().hex}.part"))
        if source.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)
    for name in imported.summary.experiments:
        source = staging / "reports" / name
        for file in sorted(path for path in source.rglob("*") if path.is_file()):
            target = lab.reports / name / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.replace(target)
