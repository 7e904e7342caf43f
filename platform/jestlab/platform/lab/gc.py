"""Find and delete unreferenced files: runs that nothing refers to, and what killed processes left behind.

Kept is whatever stands in an experiment, is tagged `keep`, or is not over; what those need; and whatever is
younger than some age, which another launch may just be making. Datasets that were made from settings stay as
long as a kept run reads them.

A run's rows go before its folder. A crash in between leaves a folder that no run owns, which the next
collection finds; the other way round it would leave a COMPLETED run without its weights, on which the next
launch would build. A folder is renamed before it is emptied: half of one is never found under its name.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy import Connection, delete, select

from jestlab.models.config import OwnReader, ShapesBenchmark, ShapesWeb
from jestlab.models.data.datasets import MADE, benchmark_name, web_name
from jestlab.platform import programs
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import schema
from jestlab.platform.store.address import parse_url, sqlite_file
from jestlab.platform.store.annotations import KEEP
from jestlab.platform.store.engine import closing_engine, read_only, reading
from jestlab.platform.store.records import ADOPTED, LIVE, RunState
from jestlab.platform.store.rerun import with_needs
from jestlab.platform.store.rows import chunks, now
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt, Evaluation, Member, Metric, Run, Tag


class Kind(StrEnum):
    """Kinds of things that gc deletes."""

    RUN = "run"  # rows, and the folder if there is one
    FOLDER = "folder"  # of no run in the store
    LEFTOVER = "leftover"  # half-made, a lock that nobody holds, or of jobs that are over
    DATA = "data"  # made from settings that no run has any more


@dataclass(frozen=True)
class Unreferenced:
    """Something that may be deleted, its size in bytes, and why nobody needs it.

    `path` of a run without a folder is where that would be.
    """

    kind: Kind
    path: Path
    size: int
    reason: str
    fingerprint: str | None = None


_PARTIAL = re.compile(r"\..+\.part|.+\.[0-9a-f]{32}\.part|\.(table|curves|pareto|learnability)[-.\w]*-\d+")
"""Names under which this package makes what is to appear whole."""

_FOLDER = re.compile(r"runs/(?!\.)[^/]+")

_BATCH = re.compile(r"[0-9a-f]{32}")
"""Folders of what is submitted to Slurm together; see `launch/executors/slurm_batch.py`."""

_LOCK = re.compile(r"\..+\.lock")


def find(lab: Lab, store: Store, older_than: timedelta) -> list[Unreferenced]:
    """Find what may be deleted now; files and runs that are younger than some age stay.

    Raises:
        UserError: The store knows none of the runs in the folder: it is another lab's.
    """
    with store.reading() as connection:
        state = _State.read(connection, older_than)
    _check_is_its_own(lab, state)
    return [
        *_runs(lab, state),
        *_folders(lab, state, older_than),
        *leftovers(lab, older_than),
        *_batches(lab, state, older_than),
        *_data(lab, state, older_than),
    ]


def collect(lab: Lab, store: Store, older_than: timedelta) -> list[Unreferenced]:
    """Delete what may be deleted now, and return it; each kind is searched again when its turn comes.

    Raises:
        UserError: As for `find`, another store knows runs of this folder, or something cannot be deleted.
    """
    _check_is_the_only_store(lab)
    find(lab, store, older_than)  # raises what there is to raise before anything is deleted
    with store.writing() as connection:
        state = _State.read(connection, older_than).locked(connection, older_than)
        for run in state.unreferenced:
            _folder(lab, run)
        _delete_rows(connection, [run.fingerprint for run in state.unreferenced])
    runs = list(_runs(lab, state))  # looks at the disk for a while, during which others may write
    gone = _removed(lab, (run for run in runs if not _is_owned(store, lab, run.path)))
    for look in (_folders, _batches, _data):
        with store.reading() as connection:
            state = _State.read(connection, older_than)
        gone += _removed(lab, look(lab, state, older_than))
    return gone + _removed(lab, leftovers(lab, older_than))


def _removed(lab: Lab, found: Iterable[Unreferenced]) -> list[Unreferenced]:
    gone = []
    for unreferenced in found:
        _remove(lab, unreferenced)
        gone.append(unreferenced)
    return gone


@dataclass(frozen=True)
class _Run:
    id: int
    fingerprint: str
    program: str
    config: str
    directory: str


@dataclass(frozen=True)
class _State:
    """The runs of the store: those that stay, and those that may be deleted."""

    kept: list[_Run]
    unreferenced: list[_Run]
    handles: Sequence[str | None]  # of the jobs of live attempts; None where it is not stored yet

    @classmethod
    def read(cls, connection: Connection, older_than: timedelta) -> _State:
        """Sort all runs into those that stay and those that may be deleted."""
        query = select(
            Run.id, Run.fingerprint, Run.program, Run.config, Run.directory, Run.state, Run.updated_at
        )
        rows = connection.execute(query).all()
        members = set(connection.scalars(select(Member.run_id)))
        tagged = set(connection.scalars(select(Tag.run_id).where(Tag.name == KEEP, Tag.run_id.is_not(None))))
        attempts = connection.execute(
            select(Attempt.run_id, Attempt.handle).where(Attempt.state.in_(LIVE))
        ).all()
        live = {attempt.run_id for attempt in attempts}
        handles = [attempt.handle for attempt in attempts]
        young = now() - older_than
        wanted = [
            row.id
            for row in rows
            if row.id in members | tagged | live
            or not RunState(row.state).is_terminal
            or row.updated_at > young
        ]
        kept = with_needs(connection, wanted)
        runs = [(row.id in kept, _Run(*row[:5])) for row in rows]
        return cls([run for keep, run in runs if keep], [run for keep, run in runs if not keep], handles)

    def locked(self, connection: Connection, older_than: timedelta) -> _State:
        """Return the same with unreferenced runs locked: until the transaction ends, nothing refers to them.

        Runs that stay are not locked: their workers write rows that refer to them.
        """
        held: set[int] = set()
        for chunk in chunks(sorted(run.fingerprint for run in self.unreferenced)):
            query = select(Run.id).where(Run.fingerprint.in_(chunk)).order_by(Run.id)
            held |= set(connection.scalars(query.with_for_update()))
        now_stands = _State.read(connection, older_than)  # somebody may have wanted one of them meanwhile
        unreferenced = [run for run in now_stands.unreferenced if run.id in held]
        return replace(now_stands, unreferenced=unreferenced)


def _runs(lab: Lab, state: _State) -> Iterator[Unreferenced]:
    for run in state.unreferenced:
        path = _folder(lab, run)
        size = _size(path) if path.is_dir() and not path.is_symlink() else 0
        yield Unreferenced(
            Kind.RUN, path, size, "stands in no experiment, and no run needs it", run.fingerprint
        )


def _folder(lab: Lab, run: _Run) -> Path:
    if not _FOLDER.fullmatch(run.directory):
        raise UserError(f"run {run.fingerprint[:8]} has the folder {run.directory!r}, which is not in runs/")
    return lab.root / run.directory


def _folders(lab: Lab, state: _State, older_than: timedelta) -> Iterator[Unreferenced]:
    owned = {lab.root / run.directory for run in (*state.kept, *state.unreferenced)}
    for path in _run_folders(lab):
        if path not in owned and _is_old(path, older_than):
            yield Unreferenced(Kind.FOLDER, path, _size(path), "of no run in the store")


def _run_folders(lab: Lab) -> list[Path]:
    there = _entries(lab.root / "runs")
    return [path for path in there if path.is_dir() and not _PARTIAL.fullmatch(path.name)]


def _check_is_its_own(lab: Lab, state: _State) -> None:
    """Raise where the store belongs to another folder, and everything here would look unreferenced."""
    owned = {lab.root / run.directory for run in (*state.kept, *state.unreferenced)}
    there = _run_folders(lab)
    if there and not owned & set(there):
        raise UserError(
            f"the store knows none of the {len(there)} runs in {lab.root / 'runs'}: "
            "give this lab's --store, or delete them by hand"
        )


def _check_is_the_only_store(lab: Lab) -> None:
    """Raise where the folder has a store of its own that is not in use, and knows runs."""
    own, used = lab.root / "results.db", sqlite_file(parse_url(lab.store_url))
    if not own.exists() or (used is not None and used.exists() and used.samefile(own)):
        return
    with closing_engine(read_only(f"sqlite:///{own}")) as engine, reading(engine) as connection:
        made = schema.revision(connection) is not None
        if not made or connection.scalar(select(Run.id).limit(1)) is None:
            return
    raise UserError(
        f"{own} knows runs in this folder too, and is not the store in use: give it by --store, "
        "or move it away if it is of no use any more"
    )


def leftovers(lab: Lab, older_than: timedelta) -> Iterator[Unreferenced]:
    """Find half-made files, and locks that nobody holds, that killed processes left behind."""
    reports = _entries(lab.reports)
    derived = [path / ".jestlab" for path in _entries(lab.data)]
    for folder in (lab.root, lab.root / "runs", lab.data, *derived, lab.reports, *reports):
        for path in _entries(folder):
            if _PARTIAL.fullmatch(path.name):
                if _is_old(path, older_than) and not _is_held(path.with_suffix(".lock")):
                    yield Unreferenced(
                        Kind.LEFTOVER, path, _size(path), "half-made, by a process that was killed"
                    )
            elif not _LOCK.fullmatch(path.name) or not path.is_file():
                continue
            elif _is_old(path, older_than) and not _is_held(path):
                yield Unreferenced(Kind.LEFTOVER, path, _size(path), "a lock that nobody holds")


def _batches(lab: Lab, state: _State, older_than: timedelta) -> Iterator[Unreferenced]:
    """Find what jobs of Slurm have left that are over; the handles of live attempts hold their batches."""
    if None in state.handles:
        return  # nobody knows which batch it is in
    reason = "of jobs of Slurm that are over"
    gone = set()
    for path in _entries(lab.slurm):
        is_live = any(path.name in (handle or "") for handle in state.handles)
        if _BATCH.fullmatch(path.name) and not is_live and _is_old(path, older_than):
            gone.add(path.name)
            yield Unreferenced(Kind.LEFTOVER, path, _size(path), reason)
    for path in _entries(lab.slurm / "names"):
        batch = path.read_text(errors="replace").partition(" ")[0] if path.is_file() else ""
        is_gone = batch in gone or (_BATCH.fullmatch(batch) and not (lab.slurm / batch).exists())
        if is_gone and _is_old(path, older_than):
            yield Unreferenced(Kind.LEFTOVER, path, _size(path), reason)


def _data(lab: Lab, state: _State, older_than: timedelta) -> Iterator[Unreferenced]:
    needed: set[str] = set()
    for run in state.kept:
        names = _datasets(run)
        if names is None:
            return  # nobody knows what it reads
        needed |= names
    for path in _entries(lab.data):
        is_made = MADE.fullmatch(path.name) and path.is_dir()
        if is_made and path.name not in needed and _is_old(path, older_than):
            yield Unreferenced(Kind.DATA, path, _size(path), "no run reads it; can be made again")


def _datasets(run: _Run) -> set[str] | None:
    """Names of the datasets made for a run; None where that cannot be said."""
    if run.program == ADOPTED:
        return set()
    try:
        program = programs.get(run.program)
        config = program.read(json.loads(run.config)) if program.schema is not None else None
    except (UserError, ValidationError):
        return None
    if config is None:
        return None
    data = getattr(config, "data", None)
    if data is None:
        return set()
    names = set()
    if isinstance(data.train, ShapesWeb | OwnReader):
        names.add(web_name(data.train, config.web_seed, config.code))
    if isinstance(data.benchmark, ShapesBenchmark):
        names.add(benchmark_name(data.benchmark))
    return names


def _delete_rows(connection: Connection, fingerprints: list[str]) -> None:
    """All rows of runs; what refers to them goes by the database's own rules."""
    for chunk in chunks(fingerprints):
        ids = select(Run.id).where(Run.fingerprint.in_(chunk)).scalar_subquery()
        for table in (Metric, Evaluation, Attempt):  # the many first, by their index
            connection.execute(delete(table).where(table.run_id.in_(ids)))
        connection.execute(delete(Run).where(Run.fingerprint.in_(chunk)))


def _is_owned(store: Store, lab: Lab, path: Path) -> bool:
    """Whether a run has taken a folder into use again, since the one that it was of went."""
    with store.reading() as connection:
        directory = path.relative_to(lab.root).as_posix()
        return connection.scalar(select(Run.id).where(Run.directory == directory)) is not None


def _remove(lab: Lab, unreferenced: Unreferenced) -> None:
    path = unreferenced.path
    place = path.parent.resolve()
    if not place.is_relative_to(lab.root.resolve()):
        raise UserError(f"{path} is outside the lab {lab.root}; deletion aborted")
    try:
        if _LOCK.fullmatch(path.name):
            _with_lock(path, lambda: path.unlink(missing_ok=True))  # unless somebody holds it by now
        elif path.is_symlink() or path.is_file():
            path.unlink(missing_ok=True)
        elif path.is_dir():
            if not _PARTIAL.fullmatch(path.name):
                path = path.rename(path.with_name(f".{path.name}.{uuid.uuid4().hex}.part"))
            shutil.rmtree(path)
    except OSError as error:
        raise UserError(f"cannot delete {path}: {error.strerror}") from error


def _entries(folder: Path) -> list[Path]:
    """What lies in a folder, links left out."""
    if not folder.is_dir() or folder.is_symlink():
        return []
    return sorted(path for path in folder.iterdir() if not path.is_symlink())


def _is_old(path: Path, older_than: timedelta) -> bool:
    """Whether nothing in a file or folder has changed lately."""
    limit = time.time() - older_than.total_seconds()
    return all(entry.lstat().st_mtime < limit for entry in _walk(path))


def _size(path: Path) -> int:
    return sum(entry.lstat().st_size for entry in _walk(path) if not entry.is_dir())


def _walk(path: Path) -> Iterator[Path]:
    """A file, or a folder and all that is below; links are not followed."""
    yield path
    if path.is_dir() and not path.is_symlink():
        for place, folders, files in os.walk(path):
            yield from (Path(place, name) for name in (*folders, *files))


def _is_held(lock: Path) -> bool:
    """Whether a process holds a lock now. Its file is not touched: it would look young."""
    return lock.is_file() and not _with_lock(lock, lambda: None)


def _with_lock(lock: Path, action: Callable[[], None]) -> bool:
    """Do something while holding a lock; False, and nothing done, if another process holds it."""
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        action()
        return True
