"""Find and delete unreferenced files: runs without an experiment, and leftovers of killed processes.

A run is kept if it belongs to an experiment, is tagged `keep`, hasn't ended, or is a dependency of a kept
run. A generated dataset is kept if a kept run reads it, and all shipped code while any run hasn't ended.
Everything newer than a minimum age is kept, because a launch may be creating it now.

The rows of a run are deleted before its folder. If the process is killed in between, the next collection
finds a folder without a run. The opposite order would leave a COMPLETED run without its weights, and the next
launch would use it. A folder is renamed before its files are deleted, so that no partial folder has a valid
name.
"""

import fcntl
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection, Row, Select, delete, or_, select

from jestlab.analysis.shared import store_in
from jestlab.models.data.datasets import MADE
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import CODE, Lab
from jestlab.platform.store import schema
from jestlab.platform.store.address import parse_url, sqlite_file
from jestlab.platform.store.annotations import KEEP
from jestlab.platform.store.engine import closing_engine, read_only, reading
from jestlab.platform.store.records import LIVE, RunState
from jestlab.platform.store.rerun import with_needs
from jestlab.platform.store.rows import now, one_of
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import (
    AttemptRow,
    EvaluationRow,
    MemberRow,
    MetricRow,
    RunRow,
    TagRow,
)

Datasets = Callable[[str, str], set[str] | None]
"""Program and config (JSON) of a run → names of the generated datasets that it reads; None if unknown."""


@dataclass(frozen=True)
class Garbage:
    """Something unreferenced.

    Attributes:
        kind: "run": a run and its folder; "folder": a folder without a run in the store; "leftover": partial
            files, free locks, files and code of ended jobs; "data": a generated dataset that no kept run
            reads.
        path: File or folder; the folder of a run may be missing.
        size: Bytes of all files.
        reason: Why it is unreferenced.
        fingerprint: The fingerprint of a run.
    """

    kind: Literal["run", "folder", "leftover", "data"]
    path: Path
    size: int
    reason: str
    fingerprint: str | None = None


_PARTIAL = re.compile(r"\..+\.part|.+\.[0-9a-f]{32}\.part|\.(table|curves|pareto|learnability)[-.\w]*-\d+")
"""Temporary names of files and folders that jestlab writes atomically."""

_ENDED = [state for state in RunState if state.is_terminal]
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
        refers = _References.read(connection, older_than)
    refers.check_lab(lab)
    runs = [_run_garbage(lab, row) for row in refers.unreferenced]
    return [*runs, *_others(lab, refers, older_than, datasets)]


def collect(lab: Lab, store: Store, older_than: timedelta, datasets: Datasets) -> list[Garbage]:
    """Delete everything that can be deleted now, and return it; the arguments are those of `find`.

    Raises:
        UserError: As for `find`; or another store has runs in this folder, or a file can't be deleted.
    """
    _check_is_the_only_store(lab)
    with store.writing() as connection:
        _References.read(connection, older_than).check_lab(lab)
        rows = _delete_rows(connection, lab, older_than)
    deleted = []
    for row in rows:
        garbage = _run_garbage(lab, row)  # this takes a while: a launch may have recorded the run again since
        with store.reading() as connection:
            recorded_again = connection.scalar(select(RunRow.id).where(RunRow.directory == row.directory))
        if recorded_again is None:
            deleted.append(_delete(lab, garbage))
    with store.reading() as connection:
        refers = _References.read(connection, older_than)
    return deleted + [_delete(lab, garbage) for garbage in _others(lab, refers, older_than, datasets)]


# ---- runs

_Row = Row[int, str, str]  # key, fingerprint, and directory of a run


def _kept_runs(older_than: timedelta) -> Select[int]:
    """Select the keys of the runs that are kept: see the docstring of the module."""
    tagged = select(TagRow.run_id).where(TagRow.name == KEEP, TagRow.run_id.is_not(None))
    is_kept = or_(
        RunRow.id.in_(select(MemberRow.run_id)),
        RunRow.id.in_(tagged),
        RunRow.id.in_(select(AttemptRow.run_id).where(AttemptRow.state.in_(LIVE))),
        RunRow.state.not_in(_ENDED),
        RunRow.updated_at > now() - older_than,
    )
    return with_needs(select(RunRow.id).where(is_kept))


def _unreferenced_runs(older_than: timedelta) -> Select[int, str, str]:
    columns = (RunRow.id, RunRow.fingerprint, RunRow.directory)
    return select(*columns).where(RunRow.id.not_in(_kept_runs(older_than))).order_by(RunRow.id)


@dataclass(frozen=True)
class _References:
    """Contents of the store that decide what can be deleted."""

    unreferenced: Sequence[_Row]  # runs to delete
    directories: set[str]  # of all runs
    kept: Sequence[Row[str, str]]  # programs and configs of kept runs
    handles: Sequence[str | None]  # of the jobs of live attempts; None before a job is submitted
    unfinished: bool  # whether any run hasn't ended

    @classmethod
    def read(cls, connection: Connection, older_than: timedelta) -> "_References":
        kept = select(RunRow.program, RunRow.config).where(RunRow.id.in_(_kept_runs(older_than))).distinct()
        return cls(
            connection.execute(_unreferenced_runs(older_than)).all(),
            {*connection.scalars(select(RunRow.directory))},
            connection.execute(kept).all(),
            connection.scalars(select(AttemptRow.handle).where(AttemptRow.state.in_(LIVE))).all(),
            connection.scalar(select(RunRow.id).where(RunRow.state.not_in(_ENDED)).limit(1)) is not None,
        )

    def check_lab(self, lab: Lab) -> None:
        """Raise UserError if the lab has runs, but none of those in the store."""
        folders = _run_folders(lab)
        if folders and not any(f"runs/{path.name}" in self.directories for path in folders):
            raise UserError(
                f"the store contains none of the {len(folders)} runs in {lab.root / 'runs'}: "
                "give this lab's --store, or delete them yourself"
            )


def _folder(lab: Lab, row: _Row) -> Path:
    if not _FOLDER.fullmatch(row.directory):
        raise UserError(f"run {row.fingerprint[:8]} has the folder {row.directory!r}, which is not in runs/")
    folder: Path = lab.root / row.directory
    return folder


def _run_garbage(lab: Lab, row: _Row) -> Garbage:
    path = _folder(lab, row)
    size = _size(path) if path.is_dir() and not path.is_symlink() else 0
    return Garbage("run", path, size, "in no experiment, and no dependency of a run", row.fingerprint)


def _delete_rows(connection: Connection, lab: Lab, older_than: timedelta) -> list[_Row]:
    """Delete the unreferenced runs with all rows that refer to them, and return them.

    The runs are locked first, so that no row can refer to them until the transaction ends. Kept runs aren't
    locked: their workers write rows that refer to them.
    """
    locked = {*connection.scalars(_unreferenced_runs(older_than).with_for_update(of=RunRow))}
    # Select again: a run may have been referenced before it was locked.
    rows = [row for row in connection.execute(_unreferenced_runs(older_than)) if row.id in locked]
    for row in rows:
        _folder(lab, row)
    deleted = [row.id for row in rows]
    for table in (MetricRow, EvaluationRow, AttemptRow):  # the largest tables first, by their index
        connection.execute(delete(table).where(one_of(table.run_id, deleted)))
    connection.execute(delete(RunRow).where(one_of(RunRow.id, deleted)))  # cascades to the other tables
    return rows


def _check_is_the_only_store(lab: Lab) -> None:
    """Raise UserError if the lab's folder contains a store with runs that is not the one in use."""
    own, used = store_in(lab.root), sqlite_file(parse_url(lab.store_url))
    if not own.exists() or (used is not None and used.exists() and used.samefile(own)):
        return
    with closing_engine(read_only(f"sqlite:///{own}")) as engine, reading(engine) as connection:
        if schema.revision(connection) is None or connection.scalar(select(RunRow.id).limit(1)) is None:
            return
    raise UserError(
        f"{own} has runs in this folder, too, and is not the store in use: give it as --store or move it away"
    )


# ---- files


def _others(lab: Lab, refers: _References, older_than: timedelta, datasets: Datasets) -> Iterator[Garbage]:
    """Find unreferenced files and folders, other than those of runs in the store."""
    for path in _run_folders(lab):
        if f"runs/{path.name}" not in refers.directories and _is_old(path, older_than):
            yield Garbage("folder", path, _size(path), "no run in the store has this folder")
    for path in _slurm_files(lab, refers.handles):
        if _is_old(path, older_than):
            yield Garbage("leftover", path, _size(path), "of ended Slurm jobs")
    for path in [] if refers.unfinished else _entries(lab.root / CODE):
        if _is_old(path, older_than):
            yield Garbage("leftover", path, _size(path), "code of launches that have ended")
    needed = [datasets(row.program, row.config) for row in refers.kept]
    if None not in needed:  # otherwise a run may read any dataset
        names = set[str]().union(*filter(None, needed))
        for path in _entries(lab.data):
            is_made = MADE.fullmatch(path.name) and path.is_dir()
            if is_made and path.name not in names and _is_old(path, older_than):
                yield Garbage("data", path, _size(path), "read by no run; can be generated again")
    yield from _leftovers(lab, older_than)


def _run_folders(lab: Lab) -> list[Path]:
    found = _entries(lab.root / "runs")
    return [path for path in found if path.is_dir() and not _PARTIAL.fullmatch(path.name)]


def _leftovers(lab: Lab, older_than: timedelta) -> Iterator[Garbage]:
    """Find partial files and free locks of killed processes."""
    derived = [path / ".jestlab" for path in _entries(lab.data)]
    folders = (lab.root, lab.root / "runs", lab.data, *derived, lab.reports, *_entries(lab.reports))
    for path in (path for folder in folders for path in _entries(folder)):
        if _PARTIAL.fullmatch(path.name):
            lock, reason = path.with_suffix(".lock"), "partial, left by a killed process"
        elif _LOCK.fullmatch(path.name) and path.is_file():
            lock, reason = path, "a free lock"
        else:
            continue
        if _is_old(path, older_than) and (not lock.is_file() or _with_lock(lock, lambda: None)):
            yield Garbage("leftover", path, _size(path), reason)


def _slurm_files(lab: Lab, handles: Sequence[str | None]) -> Iterator[Path]:
    """Find files of ended Slurm jobs; the handles of live attempts contain the names of their batches."""
    if None in handles:
        return  # the attempt may be in any batch
    live = " ".join(filter(None, handles))
    batches = [path for path in _entries(lab.slurm) if _BATCH.fullmatch(path.name)]
    yield from (path for path in batches if path.name not in live)
    for path in _entries(lab.slurm / "names"):
        batch = path.read_text(errors="replace").partition(".")[0] if path.is_file() else ""
        if _BATCH.fullmatch(batch) and batch not in live:
            yield path


def _delete(lab: Lab, garbage: Garbage) -> Garbage:
    """Delete a file or folder, and return its description."""
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
    """Return whether a file, or a folder with everything in it, hasn't changed for some time."""
    limit = time.time() - older_than.total_seconds()
    return all(entry.lstat().st_mtime < limit for entry in (path, *path.rglob("*")))


def _size(path: Path) -> int:
    return sum(entry.lstat().st_size for entry in (path, *path.rglob("*")) if not entry.is_dir())


def _with_lock(lock: Path, action: Callable[[], None]) -> bool:
    """Perform an action while holding a lock. Return False, without the action, if another process holds it.

    The lock's file isn't modified, so that it keeps its age.
    """
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        action()
        return True
