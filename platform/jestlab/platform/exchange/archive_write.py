"""Export a lab, or some of its experiments, as an archive: a zip file with

results.db              SQLite store of the exported experiments, without job handles
runs/<folder>/…         logs, and on request all other files of completed runs; no hidden files
reports/<experiment>/…  tables and figures
"""

from __future__ import annotations

import json
import os
import tempfile
import uuid
import zipfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from jestlab.platform.errors import UserError, nearest
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import schema
from jestlab.platform.store.engine import closing_engine, create_file, one_file, writable, writing
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rerun import with_needs
from jestlab.platform.store.rows import chunks
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
)

STORE = "results.db"

TABLES: tuple[Any, ...] = (
    ExperimentRow, RunRow, MemberRow, NeedRow, AttemptRow, EvaluationRow, MetricNameRow, MetricRow, CostRow,
    ArtifactRow, BudgetRow, AcceptanceRow, RetractionRow, RegistrationRow, NoteRow, TagRow, SourceRow,
    PublishedRow,
)  # fmt: skip
"""Tables with results; each comes after the tables that it refers to."""

LOCAL = ("handle", "token", "launcher", "lab", "origin")
"""Columns that are only valid in one lab, such as those that identify its jobs."""

_INSERT_METRIC = "INSERT INTO metric (run_id, name_id, step, value) VALUES (?, ?, ?, ?)"
_RUNS_AT_ONCE = 500
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class ArchiveSummary:
    """The contents of an archive: names of experiments, number of runs, number of files."""

    experiments: list[str]
    runs: int
    files: int


def write_archive(
    lab: Lab, store: Store, path: Path, experiments: Sequence[str] = (), checkpoints: bool = False
) -> ArchiveSummary:
    """Write an archive; the file appears when it is complete.

    Args:
        lab: The lab with the files.
        store: The store of the lab, read at one moment.
        path: NAME.zip.
        experiments: Names; none for the whole lab.
        checkpoints: Whether to include all files of completed runs, not only logs.

    Raises:
        UserError: An experiment doesn't exist, or the file can't be written.
    """
    if path.suffix != ".zip":
        raise UserError(f"{path}: name the archive NAME.zip")
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with (
                tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder,
                zipfile.ZipFile(partial, "x", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive,
            ):
                names, runs = _copy_store(store, Path(folder) / STORE, experiments)
                archive.write(Path(folder) / STORE, STORE)
                files = list(dict.fromkeys(_files(lab, names, runs, checkpoints)))
                for file in files:
                    archive.write(lab.root / file, file)
            with partial.open("rb") as complete:
                os.fsync(complete.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    return ArchiveSummary(sorted(names), len(runs), len(files))


def _copy_store(store: Store, path: Path, experiments: Sequence[str]) -> tuple[list[str], list[Any]]:
    """Copy the rows of experiments into a new store.

    Returns:
        The names of the experiments, and directory, state, and logs of their runs.
    """
    create_file(path)
    with closing_engine(writable(f"sqlite:///{path}")) as engine:
        schema.ensure(engine, create=True)
        with store.reading() as source, writing(engine) as copy:
            names = list(source.scalars(select(ExperimentRow.name).order_by(ExperimentRow.created_at)))
            for name in experiments:
                if name not in names:
                    raise UserError(f"no experiment {name!r} in the store: {nearest(name, names)}")
            chosen = [name for name in names if not experiments or name in experiments]
            keys = set(source.scalars(select(RunRow.id)))
            if experiments:
                members = source.scalars(select(MemberRow.run_id).where(MemberRow.experiment.in_(chosen)))
                keys = with_needs(source, members)
            for table in TABLES:
                local = {column.name: None for column in table.__table__.columns if column.name in LOCAL}
                for query in _queries(source, table, keys, chosen, is_whole=not experiments):
                    rows = source.execution_options(yield_per=_ROWS_AT_ONCE).execute(query)
                    for part in rows.partitions():
                        if table is MetricRow:  # millions of rows: tuples are 5 times as fast
                            copy.exec_driver_sql(_INSERT_METRIC, [tuple(row) for row in part])
                        else:
                            values = [{**row._mapping, **local} for row in part]
                            copy.execute(table.__table__.insert(), values)
            logs: dict[int, list[str]] = {}
            for key, log in copy.execute(select(AttemptRow.run_id, AttemptRow.log)):
                logs.setdefault(key, []).append(log)
            places = copy.execute(select(RunRow.id, RunRow.directory, RunRow.state)).all()
            runs = [(row.directory, row.state, logs.get(row.id, [])) for row in places]
        one_file(engine)
    return chosen, runs


def _queries(
    connection: Connection, table: Any, runs: Collection[int], experiments: Sequence[str], is_whole: bool
) -> Iterator[Any]:
    """Yield the queries for the rows of a table that belong to runs and experiments."""
    query, columns = select(table.__table__), table.__table__.columns
    if is_whole or table is MetricNameRow:
        yield query
    elif table is SourceRow:
        digests = set[str]()
        for part in chunks(runs, _RUNS_AT_ONCE):
            for text in connection.scalars(select(AttemptRow.sources).where(AttemptRow.run_id.in_(part))):
                digests.update(json.loads(text or "{}").values())
        for values in chunks(digests, _RUNS_AT_ONCE):
            yield query.where(SourceRow.sha256.in_(values))
    elif table is ExperimentRow:
        yield query.where(ExperimentRow.name.in_(experiments))
    elif table is RegistrationRow:
        yield query.where(RegistrationRow.experiment.in_(experiments))
    elif table is not PublishedRow:  # published results belong to the lab
        for part in chunks(runs, _RUNS_AT_ONCE):
            of_runs = query.where((RunRow.id if table is RunRow else table.run_id).in_(part))
            # A run can also be in experiments that aren't exported.
            yield of_runs.where(MemberRow.experiment.in_(experiments)) if table is MemberRow else of_runs
        if "experiment" in columns and table is not MemberRow:
            yield query.where(table.experiment.in_(experiments))


def _files(lab: Lab, experiments: Sequence[str], runs: Sequence[Any], checkpoints: bool) -> Iterator[str]:
    """Yield the files of runs and reports, without hidden and partial files and links."""
    folders = [f"reports/{name}" for name in experiments]
    for directory, state, logs in runs:
        if checkpoints and state == RunState.COMPLETED:
            folders.append(directory)
        else:
            for log in logs:
                file = lab.root / log
                if log.startswith(f"{directory}/") and file.is_file() and not file.is_symlink():
                    yield log
    for folder in folders:
        for place, below, names in os.walk(lab.root / folder):
            below[:] = sorted(name for name in below if not name.startswith("."))
            for name in sorted(names):
                file = Path(place, name)
                if (
                    not name.startswith(".")
                    and not name.endswith((".part", ".lock"))
                    and not file.is_symlink()
                ):
                    yield file.relative_to(lab.root).as_posix()
