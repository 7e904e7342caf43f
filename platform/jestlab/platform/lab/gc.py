"""Find and delete unreferenced files: runs without an experiment, and leftovers of killed processes.

Kept are runs that belong to an experiment, are tagged `keep`, or haven't ended; the dependencies of these;
everything newer than some age, which another launch may be creating; and generated datasets that a kept run
reads.

The rows of a run are deleted before its folder. If the process is killed in between, the next collection
finds a folder without a run. The opposite order would leave a COMPLETED run without its weights, and the next
launch would use it. A folder is renamed before its files are deleted, so that no partial folder has a valid
name.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from sqlalchemy import Connection, Row, delete, select

from jestlab.models.data.datasets import MADE
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import schema
from jestlab.platform.store.address import parse_url, sqlite_file
from jestlab.platform.store.annotations import KEEP
from jestlab.platform.store.engine import closing_engine, read_only, reading
from jestlab.platform.store.records import LIVE, RunState
from jestlab.platform.store.rerun import with_needs
from jestlab.platform.store.rows import chunks, now
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import AttemptRow, EvaluationRow, MemberRow, MetricRow, RunRow, TagRow

Datasets = Callable[[str, str], set[str] | None]
"""Program and config (JSON) of a run → names of the generated datasets that it reads; None if unknown."""


class GarbageKind(StrEnum):
    """Kinds of unreferenced things."""

    RUN = "run"  # rows, and the folder if it exists
    FOLDER = "folder"  # without a run in the store
    LEFTOVER = "leftover"  # partial files, free locks, and files of ended jobs
    DATA = "data"  # generated from settings that no run has


@dataclass(frozen=True)
class Garbage:
    """Something unreferenced.

    Attributes:
        kind: Kind of garbage.
        path: File or folder; the folder of a run may be missing.
        size: Bytes on disk.
        reason: Why it is unreferenced.
        fingerprint: The run's.
    """

    kind: GarbageKind
    path: Path
    size: int
    reason: str
    fingerprint: str | None = None


_PARTIAL = re.compile(r"\..+\.part|.+\.[0-9a-f]{32}\.part|\.(table|curves|pareto|learnability)[-.\w]*-\d+")
"""Temporary names of files and folders that jestlab writes atomically."""

_LOCK = re.compile(r"\..+\.lock")
_FOLDER = re.compile(r"runs/(?!\.)[^/]+")

_BATCH = re.compile(r"[0-9a-f]{32}")
"""Folders of jobs submitted to Slurm together; see `launch/executors/slurm_batch.py`."""


def find(lab: Lab, store: Store, older_than: timedelta, datasets: Datasets) -> list[Garbage]:
    """Find everything that can be deleted now.

    Args:
        lab: The lab.
        store: The lab's store.
        older_than: Minimum age of files and runs.
        datasets: Finds the generated datasets of a run.

    Raises:
        UserError: The store contains none of the folder's runs, so it belongs to another lab.
    """
    with store.reading() as connection:
        runs = _Runs.read(connection, older_than)
    owned, existing = runs.folders(lab), _run_folders(lab)
    if existing and not owned & set(existing):
        raise UserError(
            f"the store contains none of the {len(existing)} runs in {lab.root / 'runs'}: "
            "give this lab's --store, or delete them yourself"
        )
    return [*_unreferenced_runs(lab, runs), *_unreferenced_files(lab, runs, older_than, datasets)]


def collect(lab: Lab, store: Store, older_than: timedelta, datasets: Datasets) -> list[Garbage]:
    """Delete everything that can be deleted now, and return it; the arguments are those of `find`.

    Raises:
        UserError: As for `find`; or another store has runs in this folder, or a file can't be deleted.
    """
    _check_is_the_only_store(lab)
    find(lab, store, older_than, datasets)  # raises before anything is deleted
    with store.writing() as connection:
        runs = _Runs.read(connection, older_than).locked(connection, older_than)
        for run in runs.unreferenced:
            _folder(lab, run)
        _delete_rows(connection, [run.id for run in runs.unreferenced])
    # Measuring sizes takes a while, in which a launch may record a deleted run again.
    found = list(_unreferenced_runs(lab, runs))
    deleted = [_removed(lab, item) for item in found if not _is_owned(store, lab, item.path)]
    with store.reading() as connection:
        runs = _Runs.read(connection, older_than)
    return deleted + [_removed(lab, item) for item in _unreferenced_files(lab, runs, older_than, datasets)]


# ---- runs

_Row = Row[int, str, str, str, str, str, datetime]


@dataclass(frozen=True)
class _Runs:
    """The runs of the store: kept and unreferenced ones."""

    kept: list[_Row]
    unreferenced: list[_Row]
    handles: Sequence[str | None]  # of the jobs of live attempts; None before a job is submitted

    @classmethod
    def read(cls, connection: Connection, older_than: timedelta) -> _Runs:
        """Divide the runs into kept and unreferenced ones."""
        columns = (
            RunRow.id,
            RunRow.fingerprint,
            RunRow.program,
            RunRow.config,
            RunRow.directory,
            RunRow.state,
            RunRow.updated_at,
        )
        rows = connection.execute(select(*columns)).all()
        query = select(AttemptRow.run_id, AttemptRow.handle).where(AttemptRow.state.in_(LIVE))
        attempts = connection.execute(query).all()
        referenced = {
            *connection.scalars(select(MemberRow.run_id)),
            *connection.scalars(select(TagRow.run_id).where(TagRow.name == KEEP, TagRow.run_id.is_not(None))),
            *(attempt.run_id for attempt in attempts),
        }
        limit = now() - older_than
        wanted = [
            row.id
            for row in rows
            if row.id in referenced or not RunState(row.state).is_terminal or row.updated_at > limit
        ]
        kept = with_needs(connection, wanted)
        return cls(
            [row for row in rows if row.id in kept],
            [row for row in rows if row.id not in kept],
            [attempt.handle for attempt in attempts],
        )

    def locked(self, connection: Connection, older_than: timedelta) -> _Runs:
        """Lock the unreferenced runs, so that nothing can refer to them until the transaction ends.

        Kept runs aren't locked: their workers write rows that refer to them.
        """
        held: set[int] = set()
        for some in chunks(sorted(run.id for run in self.unreferenced)):
            query = select(RunRow.id).where(RunRow.id.in_(some)).order_by(RunRow.id)
            held |= set(connection.scalars(query.with_for_update()))
        again = _Runs.read(connection, older_than)  # one of them may be referenced by now
        return replace(again, unreferenced=[run for run in again.unreferenced if run.id in held])

    def folders(self, lab: Lab) -> set[Path]:
        """Return the folders of all runs."""
        return {lab.root / run.directory for run in (*self.kept, *self.unreferenced)}


def _unreferenced_runs(lab: Lab, runs: _Runs) -> Iterator[Garbage]:
    for run in runs.unreferenced:
        path = _folder(lab, run)
        size = _size(path) if path.is_dir() and not path.is_symlink() else 0
        yield Garbage(
            GarbageKind.RUN, path, size, "in no experiment, and no dependency of a run", run.fingerprint
        )


def _folder(lab: Lab, run: _Row) -> Path:
    if not _FOLDER.fullmatch(run.directory):
        raise UserError(f"run {run.fingerprint[:8]} has the folder {run.directory!r}, which is not in runs/")
    folder: Path = lab.root / run.directory
    return folder


def _delete_rows(connection: Connection, ids: list[int]) -> None:
    """Delete runs with all rows that refer to them."""
    for some in chunks(ids):
        for table in (MetricRow, EvaluationRow, AttemptRow):  # the large ones first, by their index
            connection.execute(delete(table).where(table.run_id.in_(some)))
        connection.execute(delete(RunRow).where(RunRow.id.in_(some)))  # cascades to the others


def _is_owned(store: Store, lab: Lab, path: Path) -> bool:
    """Whether a run has used a folder again since its previous run was deleted."""
    directory = path.relative_to(lab.root).as_posix()
    with store.reading() as connection:
        return connection.scalar(select(RunRow.id).where(RunRow.directory == directory)) is not None


def _check_is_the_only_store(lab: Lab) -> None:
    """Raise UserError if the folder's own store is not the one in use, and has runs."""
    own, used = lab.root / "results.db", sqlite_file(parse_url(lab.store_url))
    if not own.exists() or (used is not None and used.exists() and used.samefile(own)):
        return
    with closing_engine(read_only(f"sqlite:///{own}")) as engine, reading(engine) as connection:
        if schema.revision(connection) is None or connection.scalar(select(RunRow.id).limit(1)) is None:
            return
    raise UserError(
        f"{own} has runs in this folder, too, and is not the store in use: give it as --store or move it away"
    )


# ---- files


def _unreferenced_files(
    lab: Lab, runs: _Runs, older_than: timedelta, datasets: Datasets
) -> Iterator[Garbage]:
    """Find unreferenced files and folders, other than those of runs in the store."""
    for search in (_unowned_folders(lab, runs), _slurm_files(lab, runs), _data(lab, runs, datasets)):
        yield from (item for item in search if _is_old(item.path, older_than))
    yield from leftovers(lab, older_than)


def _run_folders(lab: Lab) -> list[Path]:
    found = _entries(lab.root / "runs")
    return [path for path in found if path.is_dir() and not _PARTIAL.fullmatch(path.name)]


def _unowned_folders(lab: Lab, runs: _Runs) -> Iterator[Garbage]:
    owned = runs.folders(lab)
    for path in _run_folders(lab):
        if path not in owned:
            yield Garbage(GarbageKind.FOLDER, path, _size(path), "no run in the store has this folder")


def leftovers(lab: Lab, older_than: timedelta) -> Iterator[Garbage]:
    """Find partial files and free locks of killed processes."""
    reports = _entries(lab.reports)
    derived = [path / ".jestlab" for path in _entries(lab.data)]
    for folder in (lab.root, lab.root / "runs", lab.data, *derived, lab.reports, *reports):
        for path in _entries(folder):
            if _PARTIAL.fullmatch(path.name):
                lock, reason = path.with_suffix(".lock"), "partial, left by a killed process"
            elif _LOCK.fullmatch(path.name) and path.is_file():
                lock, reason = path, "a free lock"
            else:
                continue
            if _is_old(path, older_than) and not _is_held(lock):
                yield Garbage(GarbageKind.LEFTOVER, path, _size(path), reason)


def _slurm_files(lab: Lab, runs: _Runs) -> Iterator[Garbage]:
    """Find files of ended Slurm jobs; the handles of live attempts contain the names of their batches."""
    if None in runs.handles:
        return  # the attempt may be in any batch
    gone = set()
    for path in _entries(lab.slurm):
        if _BATCH.fullmatch(path.name) and not any(path.name in (handle or "") for handle in runs.handles):
            gone.add(path.name)
            yield Garbage(GarbageKind.LEFTOVER, path, _size(path), "of ended Slurm jobs")
    for path in _entries(lab.slurm / "names"):
        batch = path.read_text(errors="replace").partition(".")[0] if path.is_file() else ""
        if batch in gone or (_BATCH.fullmatch(batch) and not (lab.slurm / batch).exists()):
            yield Garbage(GarbageKind.LEFTOVER, path, _size(path), "of ended Slurm jobs")


def _data(lab: Lab, runs: _Runs, datasets: Datasets) -> Iterator[Garbage]:
    needed: set[str] = set()
    for run in runs.kept:
        names = datasets(run.program, run.config)
        if names is None:
            return  # any dataset may be read
        needed |= names
    for path in _entries(lab.data):
        if MADE.fullmatch(path.name) and path.is_dir() and path.name not in needed:
            yield Garbage(GarbageKind.DATA, path, _size(path), "read by no run; can be generated again")


def _removed(lab: Lab, garbage: Garbage) -> Garbage:
    path = garbage.path
    if not path.parent.resolve().is_relative_to(lab.root.resolve()):
        raise UserError(f"{path} is outside the lab {lab.root}; deletion aborted")
    try:
        if _LOCK.fullmatch(path.name):
            _with_lock(path, lambda: path.unlink(missing_ok=True))  # unless it is held by now
        elif path.is_symlink() or path.is_file():
            path.unlink(missing_ok=True)
        elif path.is_dir():
            if not _PARTIAL.fullmatch(path.name):
                path = path.rename(path.with_name(f".{path.name}.{uuid.uuid4().hex}.part"))
            shutil.rmtree(path)
    except OSError as error:
        raise UserError(f"cannot delete {path}: {error.strerror}") from error
    return garbage


def _entries(folder: Path) -> list[Path]:
    """List a folder without links."""
    if not folder.is_dir() or folder.is_symlink():
        return []
    return sorted(path for path in folder.iterdir() if not path.is_symlink())


def _is_old(path: Path, older_than: timedelta) -> bool:
    """Whether nothing in a file or folder has changed recently."""
    limit = time.time() - older_than.total_seconds()
    return all(entry.lstat().st_mtime < limit for entry in _walk(path))


def _size(path: Path) -> int:
    return sum(entry.lstat().st_size for entry in _walk(path) if not entry.is_dir())


def _walk(path: Path) -> Iterable[Path]:
    """Yield a file, or a folder and everything in it, without following links."""
    yield path
    if path.is_dir() and not path.is_symlink():
        for place, folders, files in os.walk(path):
            yield from (Path(place, name) for name in (*folders, *files))


def _is_held(lock: Path) -> bool:
    """Whether a process holds a lock. Its file is not touched, which would make it look new."""
    return lock.is_file() and not _with_lock(lock, lambda: None)


def _with_lock(lock: Path, action: Callable[[], None]) -> bool:
    """Perform an action with a lock; return False, without the action, if another process holds it."""
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        action()
        return True
