"""Write a lab, or some of its experiments, as one archive."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import tarfile
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Connection, select

from jestlab.analysis.connection import SCHEMA
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.exchange.archive import (
    CHECKSUMS,
    FORMAT,
    HEAD,
    METRIC,
    TABLES,
    columns,
    compression_of,
    encode,
)
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rerun import with_needs
from jestlab.platform.store.rows import chunks, now
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt, Experiment, Member, Metric, MetricName, Run

_FEW = 500  # runs whose rows are asked for at once
_POINTS = 100_000  # of a curve in one line: lines have to stay shorter than `limits.LIMITS` says


@dataclass(frozen=True)
class Written:
    """What an archive holds: names of experiments, number of runs, number of files of runs and reports."""

    experiments: list[str]
    runs: int
    files: int


def write(
    lab: Lab, store: Store, path: Path, experiments: Sequence[str] = (), checkpoints: bool = False
) -> Written:
    """Write an archive, which appears when it is whole.

    Args:
        lab: Whose files.
        store: Its store, read at one moment.
        path: Ends in .tar.zst or .tar.gz.
        experiments: Names; none for the whole lab.
        checkpoints: Whether to take all files of completed runs, and not their logs alone.

    Raises:
        UserError: No such experiment, another ending, or the file cannot be written.
    """
    import pyarrow as pa

    compression = compression_of(path)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with (
                partial.open("xb") as file,
                pa.CompressedOutputStream(file, compression) as stream,
                tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar,
            ):
                written = _Writer(lab, tar).whole(store, experiments, checkpoints)
            with partial.open("rb") as whole:
                os.fsync(whole.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    return written


class _Writer:
    """Puts members into a tar, one after another, and remembers their digests."""

    def __init__(self, lab: Lab, tar: tarfile.TarFile) -> None:
        self._lab = lab
        self._tar = tar
        self._checksums: dict[str, str] = {}

    def whole(self, store: Store, experiments: Sequence[str], checkpoints: bool) -> Written:
        with store.reading() as connection:
            names = _experiments(connection, experiments)
            runs = _runs(connection, names if experiments else None)
            head = {
                "format": FORMAT,
                "schema": SCHEMA,
                "jestlab": metadata.version("jestlab"),
                "created_at": now().isoformat(),
                "experiments": sorted(names),
                "checkpoints": checkpoints,
            }
            self._text(HEAD, json.dumps(head, indent=1))
            for table in TABLES:
                belongs = table != "published" or not experiments  # it is of the lab, and of no experiment
                self._rows(table, _rows(connection, table, runs, names) if belongs else ())
            self._rows(METRIC, _curves(connection, runs))
            folders = _folders(connection, runs)
        tables = len(self._checksums)
        for directory, state, logs in folders:
            if checkpoints and state == RunState.COMPLETED:
                self._folder(directory)
            else:
                for log in logs:
                    self._file(log)
        for name in names:
            self._folder(f"reports/{name}")
        files = len(self._checksums) - tables
        self._text(CHECKSUMS, json.dumps(self._checksums, indent=1))
        return Written(sorted(names), len(runs), files)

    def _rows(self, table: str, rows: Iterable[dict[str, Any]]) -> None:
        """Add the lines of a table; a tar has to know their length in advance."""
        with tempfile.TemporaryFile() as lines:
            for row in rows:
                lines.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
            size = lines.tell()
            lines.seek(0)
            self._add(f"tables/{table}.jsonl", lines, size)

    def _folder(self, name: str) -> None:
        """Add a folder's files at any depth, except hidden ones and links."""
        for place, folders, files in os.walk(self._lab.root / name):
            folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
            for file in sorted(files):
                if not file.startswith(".") and not file.endswith((".part", ".lock")):
                    self._file((Path(place) / file).relative_to(self._lab.root).as_posix())

    def _file(self, name: str) -> None:
        path = self._lab.root / name
        if name in self._checksums or not path.is_file() or path.is_symlink():
            return
        with path.open("rb") as file:  # what is appended from now on stays out
            self._add(name, file, os.fstat(file.fileno()).st_size)

    def _text(self, name: str, text: str) -> None:
        content = text.encode()
        self._add(name, io.BytesIO(content), len(content))

    def _add(self, name: str, content: IO[bytes], size: int) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode = size, 0o644
        digest = hashlib.sha256()
        reader: Any = _Reader(content, digest.update)
        self._tar.addfile(member, reader)
        self._checksums[name] = digest.hexdigest()


class _Reader:
    """A file that reports what is read from it."""

    def __init__(self, content: IO[bytes], tell: Callable[[bytes], None]) -> None:
        self._content = content
        self._tell = tell

    def read(self, size: int = -1) -> bytes:
        block = self._content.read(size)
        self._tell(block)
        return block


Names = dict[int, str]
"""Key → fingerprint of runs."""


def _experiments(connection: Connection, wanted: Sequence[str]) -> list[str]:
    known = list(connection.scalars(select(Experiment.name).order_by(Experiment.created_at)))
    for name in wanted:
        if name not in known:
            raise UserError(f"no experiment {name!r} in the store: {nearest(name, known)}")
    return [name for name in known if not wanted or name in wanted]


def _runs(connection: Connection, experiments: Sequence[str] | None) -> Names:
    """Return the runs of the experiments and all that they need; without experiments, all runs."""
    known = dict(connection.execute(select(Run.id, Run.fingerprint)).tuples().all())
    if experiments is None:
        return known
    members = select(Member.run_id).where(Member.experiment.in_(experiments))
    chosen = with_needs(connection, connection.scalars(members))
    return {run_id: fingerprint for run_id, fingerprint in known.items() if run_id in chosen}


def _rows(
    connection: Connection, name: str, runs: Names, experiments: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table that belong to the runs or the experiments; all published results."""
    table = TABLES[name]
    own = table.__table__.columns
    shared = columns(table)
    keys = [own[key] for key in ("id", "run_id", "needs_id") if key in own]
    query = select(*keys, *shared).order_by(*table.__table__.primary_key.columns)
    for statement in _parts(connection, query, name, own, runs, experiments):
        for row in connection.execute(statement):
            found = {column.name: encode(getattr(row, column.name)) for column in shared}
            if "run_id" in own:
                found["run"] = runs.get(row.run_id)
            if "needs_id" in own:
                found["needs"] = runs[row.needs_id]
            if found.get("experiment") is not None and found["experiment"] not in experiments:
                continue  # a run's place in an experiment that stays behind
            yield found


def _parts(
    connection: Connection, query: Any, name: str, own: Any, runs: Names, experiments: Sequence[str]
) -> Iterator[Any]:
    """Yield the query for some of the runs at a time, and for the experiments."""
    if name == "published":
        yield query
        return
    if name == "source":
        for digests in chunks(sorted(_sources(connection, runs)), _FEW):
            yield query.where(own["sha256"].in_(digests))
        return
    if name == "registration":
        yield query.where(own["experiment"].in_(experiments))
        return
    if name == "experiment":
        yield query.where(own["name"].in_(experiments))
        return
    column = own["id"] if name == "run" else own["run_id"]
    for few in chunks(runs, _FEW):
        yield query.where(column.in_(few))
    if own.get("run_id") is not None and own["run_id"].nullable:  # notes and tags of experiments
        yield query.where(own["experiment"].in_(experiments))


def _sources(connection: Connection, runs: Names) -> set[str]:
    """Return the digests of the users' code that attempts at the runs executed."""
    found: set[str] = set()
    for few in chunks(runs, _FEW):
        query = select(Attempt.sources).where(Attempt.run_id.in_(few), Attempt.sources.is_not(None))
        for sources in connection.scalars(query.distinct()):
            found.update(json.loads(str(sources)).values())
    return found


def _curves(connection: Connection, runs: Names) -> Iterator[dict[str, Any]]:
    """Yield metrics, one line for each run and name; several for a very long curve."""
    for few in chunks(runs, _FEW):
        rows = connection.execute(
            select(Metric.run_id, MetricName.name, Metric.step, Metric.value)
            .join(MetricName, MetricName.id == Metric.name_id)
            .where(Metric.run_id.in_(few))
            .order_by(Metric.run_id, Metric.name_id, Metric.step)
        )
        for (run_id, name), curve in itertools.groupby(rows, key=lambda row: tuple(row[:2])):
            whose = {"run": runs[run_id], "name": name}
            while points := list(itertools.islice(curve, _POINTS)):
                steps, values = zip(*((point.step, encode(point.value)) for point in points), strict=True)
                yield whose | {"steps": steps, "values": values}


def _folders(connection: Connection, runs: Names) -> list[tuple[str, str, list[str]]]:
    """Return directory, state and logs of each run."""
    logs: dict[int, list[str]] = {}
    for run_id, log in connection.execute(select(Attempt.run_id, Attempt.log).order_by(Attempt.id)):
        logs.setdefault(run_id, []).append(log)
    query = select(Run.id, Run.directory, Run.state).order_by(Run.id)
    return [
        (
            row.directory,
            row.state,
            [log for log in logs.get(row.id, []) if log.startswith(f"{row.directory}/")],
        )
        for row in connection.execute(query)
        if row.id in runs
    ]
