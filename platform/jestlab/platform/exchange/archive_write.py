"""Export a lab, or some of its experiments, as an archive: a zip file with

results.db              SQLite store of the exported experiments, without job handles
runs/<folder>/…         logs, and on request all other files of completed runs; no hidden files
reports/<experiment>/…  tables and figures
"""

import json
import os
import tempfile
import zipfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Table, select

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import schema
from jestlab.platform.store.engine import closing_engine, create_file, one_file, writable, writing
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rerun import with_needs
from jestlab.platform.store.rows import copy_rows, one_of
from jestlab.platform.store.store import Store, of_experiment
from jestlab.platform.store.tables import AttemptRow, Base, ExperimentRow, MemberRow, RunRow

STORE = "results.db"

_LOCAL_TABLES = ("identity", "lab", "launcher", "saved_query")
_LOCAL_COLUMNS = ("handle", "token", "launcher", "lab", "origin")  # valid in this lab only, such as jobs

TABLES = tuple(table for table in Base.metadata.sorted_tables if table.name not in _LOCAL_TABLES)
"""Tables with results; each comes after the tables that it refers to."""


def columns_of(table: Table) -> list[Column[Any]]:
    """Return the columns to export and import. Only runs and metric names keep their ids."""
    local = (*_LOCAL_COLUMNS, *(("id",) if table.name not in ("run", "metric_name") else ()))
    return [column for column in table.columns if column.name not in local]


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
        store: The store of the lab, read in one transaction.
        path: The archive, NAME.zip.
        experiments: Names of the experiments to export; empty for the whole lab.
        checkpoints: Whether to include all files of completed runs, not only logs.

    Raises:
        UserError: An experiment doesn't exist, or the file can't be written.
    """
    if path.suffix != ".zip":
        raise UserError(f"{path}: name the archive NAME.zip")
    experiments = [*dict.fromkeys(experiments)]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
            partial = Path(folder, path.name)
            with zipfile.ZipFile(partial, "x", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
                names, runs = _copy_store(store, Path(folder, STORE), experiments)
                archive.write(Path(folder, STORE), STORE)
                files = set(_files(lab.root, names, runs, checkpoints))
                for file in sorted(files):
                    archive.write(lab.root / file, file)
            with partial.open("rb") as complete:
                os.fsync(complete.fileno())
            partial.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    return ArchiveSummary(sorted(names), len(runs), len(files))


def _copy_store(store: Store, path: Path, experiments: Sequence[str]) -> tuple[list[str], list[Any]]:
    """Copy the rows of experiments into a new store.

    Returns:
        The names of the experiments, and (directory, state, logs) of each of their runs.
    """
    create_file(path)
    with closing_engine(writable(f"sqlite:///{path}")) as engine:
        schema.ensure(engine, create=True)
        with store.reading() as source, writing(engine) as copy:
            names = list(source.scalars(select(ExperimentRow.name).order_by(ExperimentRow.name)))
            for name in experiments:
                of_experiment(source, name, ExperimentRow.name)
            for table, query in _queries(source, experiments):
                copy_rows(source, copy, table, query)
            logs: dict[int, list[str]] = {}
            for key, log in copy.execute(select(AttemptRow.run_id, AttemptRow.log)):
                logs.setdefault(key, []).append(log)
            places = copy.execute(select(RunRow.id, RunRow.directory, RunRow.state))
            runs = [(directory, state, logs.get(key, [])) for key, directory, state in places]
        one_file(engine)
    return list(experiments) or names, runs


def _queries(connection: Connection, experiments: Collection[str]) -> Iterator[tuple[Table, Any]]:
    """Yield tables with queries for the rows to copy: all rows, or those of experiments and their runs."""
    is_whole_lab = not experiments
    members = select(MemberRow.run_id).where(MemberRow.experiment.in_(experiments))
    named = select(RunRow.id).where(RunRow.id.in_(members))
    runs = set() if is_whole_lab else set(connection.scalars(with_needs(named)))
    sources = connection.scalars(select(AttemptRow.sources).where(one_of(AttemptRow.run_id, runs)))
    digests = {digest for text in sources for digest in json.loads(text or "{}").values()}
    # Members are chosen by experiment, since a run can also be in experiments that aren't exported.
    # Published results belong to the lab as a whole.
    chosen: dict[str, dict[str, Iterable[Any]]] = {
        "experiment": {"name": experiments}, "run": {"id": runs}, "member": {"experiment": experiments},
        "source": {"sha256": digests}, "published": {},
    }  # fmt: skip
    for table in TABLES:
        query = select(*columns_of(table))
        if is_whole_lab or table.name == "metric_name":
            yield table, query
            continue
        for name, values in chosen.get(table.name, {"experiment": experiments, "run_id": runs}).items():
            if name in table.columns:
                yield table, query.where(one_of(table.columns[name], values))


def _files(root: Path, experiments: Iterable[str], runs: Iterable[Any], checkpoints: bool) -> Iterator[str]:
    """Yield the files of runs and reports, except hidden files, partial files, locks, and links."""
    folders = [f"reports/{name}" for name in experiments]
    for directory, state, logs in runs:
        if checkpoints and state == RunState.COMPLETED:
            folders.append(directory)
        else:
            own = (log for log in logs if log.startswith(f"{directory}/"))
            yield from (log for log in own if (root / log).is_file() and not (root / log).is_symlink())
    for folder in folders:
        for parent, subfolders, names in os.walk(root / folder):
            subfolders[:] = [name for name in subfolders if not name.startswith(".")]
            for file in (Path(parent, name) for name in names if not name.startswith(".")):
                if file.suffix not in (".part", ".lock") and not file.is_symlink():
                    yield file.relative_to(root).as_posix()
