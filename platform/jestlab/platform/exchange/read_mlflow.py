"""Reads runs that MLflow recorded, in a file store or in SQLite, without the library."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from jestlab.analysis import guards
from jestlab.platform.errors import SpecError, UserError, sentence
from jestlab.platform.exchange.damage import Damaged, attempted, refuse
from jestlab.platform.exchange.source_run import FoundRun, Points, State, nested, utc, whole
from jestlab.platform.words import on_one_line

_LARGEST_VALUE_BYTES = 1 << 20
_LARGEST_CELL_BYTES = 1 << 24
_LONGEST_LINE_BYTES = 4096
_ENDLESS_NUMBER = re.compile(r"\b\d{100,}\b")

_STATES: dict[object, State] = {
    1: "RUNNING",
    2: "RUNNING",
    3: "COMPLETED",
    4: "FAILED",
    5: "CANCELLED",
    "RUNNING": "RUNNING",
    "SCHEDULED": "RUNNING",
    "FINISHED": "COMPLETED",
    "FAILED": "FAILED",
    "KILLED": "CANCELLED",
}
"""MLflow's statuses: numbers in a file store, words in a database."""


def read(path: Path, damaged: Damaged = refuse) -> Iterator[FoundRun]:
    """Yield the runs that are recorded by MLflow, without those that were deleted.

    A parameter is a text in MLflow. It becomes a number, true, false, null, or a JSON list or mapping if
    writing that gives the same text again. A dot in its key makes a nested key, unless another key is the
    beginning of it.

    Args:
        path: A database; a folder `mlruns`; an experiment's or a run's folder in it; or a folder that has
            `mlflow.db`, `mlruns`, or both.
        damaged: Told of a run in which something is not as MLflow writes it; the run is left out.

    Raises:
        UserError: There is no such store, or it is none of MLflow's.
    """
    if path.is_file():
        yield from _database(path, damaged)
        return
    if not path.is_dir():
        raise UserError(f"{path}: no such file or folder: expected a folder mlruns, or a database mlflow.db")
    stores = 0
    if _is_own_file(path / "mlflow.db"):
        stores += 1
        yield from _database(path / "mlflow.db", damaged)
    for folder in (path, path / "mlruns"):
        if folder == path or not folder.is_symlink():
            for experiment, run in _run_folders(folder):
                stores += 1
                if run and (found := attempted(damaged, run, partial(_run, experiment, run))) is not None:
                    yield found
    if not stores:
        raise UserError(
            f"{path}: no runs of MLflow: expected mlflow.db, or folders EXPERIMENT/RUN that have meta.yaml"
        )


# ---- file store


def _run_folders(path: Path) -> Iterator[tuple[Path, Path | None]]:
    """Yield the folder of an experiment with that of each run in it; with None once, for the experiment."""
    if _is_own_file(path / "meta.yaml"):
        if (path / "metrics").is_dir() or (path / "params").is_dir():
            yield path.resolve().parent, path
            return
        experiments = [path]
    else:
        experiments = [one for one in _subfolders(path) if _is_own_file(one / "meta.yaml")]
    for experiment in experiments:
        yield experiment, None
        for run in _subfolders(experiment):
            if _is_own_file(run / "meta.yaml"):
                yield experiment, run


def _run(experiment: Path, folder: Path) -> FoundRun | None:
    told = _meta(experiment / "meta.yaml")
    meta = _meta(folder / "meta.yaml")
    if "deleted" in (told.get("lifecycle_stage"), meta.get("lifecycle_stage")):
        return None
    run_id = folder.resolve().name
    if "run_id" not in meta and "run_uuid" not in meta:
        # A folder of something else that MLflow keeps in an experiment, such as a logged model.
        return None
    points = Points()
    for key, file in _values(folder / "metrics"):
        _read_points(file, key, points)
    params, tags = ({key: _text(file) for key, file in _values(folder / name)} for name in ("params", "tags"))
    meta |= {"run_id": run_id, "experiment_id": experiment.resolve().name, "experiment": told.get("name")}
    return _found(meta, points, params, tags)


def _subfolders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = [one for one in folder.iterdir() if not one.name.startswith(".")]
    return sorted(one for one in found if one.is_dir() and not one.is_symlink())


def _is_own_file(file: Path) -> bool:
    return file.is_file() and not file.is_symlink()


def _values(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the key of each value in a folder, and its file; a key with slashes is in folders."""
    if folder.is_symlink() or not folder.is_dir():
        return
    waiting = [folder]
    while waiting:
        for file in sorted(waiting.pop().iterdir()):
            # NOTE: a link could lead to any file of this machine.
            if file.is_symlink():
                continue
            if file.is_dir():
                waiting.append(file)
            elif file.is_file():
                yield file.relative_to(folder).as_posix(), file


def _meta(file: Path) -> dict[str, Any]:
    from jestlab.platform.spec.yaml import Document

    if not _is_own_file(file):
        return {}
    try:
        meta = Document(_ENDLESS_NUMBER.sub(r"'\g<0>'", _text(file))).value
    except SpecError as error:
        raise UserError(on_one_line(f"{file}: not valid YAML ({error}): {_REMEDY}")) from error
    if not isinstance(meta, dict):
        raise UserError(f"{file}: expected a mapping, as MLflow writes it: {_REMEDY}")
    return meta


def _text(file: Path) -> str:
    if file.stat().st_size > _LARGEST_VALUE_BYTES:
        raise UserError(f"{file}: larger than 1 MiB, which no value in MLflow's file store is: move it away")
    return file.read_bytes().decode(errors="replace")


def _read_points(file: Path, key: str, points: Points) -> None:
    """Read a metric: in each line a time, the value, and the step, which is 0 if it is missing."""
    with file.open("rb") as lines:
        number = 0
        # MLflow ends each line: one without an end was cut off by a kill.
        while (line := lines.readline(_LONGEST_LINE_BYTES)).endswith(b"\n"):
            number += 1
            words = line.split()
            try:
                step = whole(words[2].decode()) if len(words) > 2 else 0
                points.add(key, step, float(words[1]), float(words[0]))
            except (ValueError, IndexError) as error:
                raise UserError(f"{file}, line {number}: expected 'TIME VALUE STEP': {_REMEDY}") from error
        if len(line) == _LONGEST_LINE_BYTES:
            raise UserError(f"{file}, line {number + 1}: expected 'TIME VALUE STEP': {_REMEDY}")


_REMEDY = "copy it again, or move the run's folder away"

# ---- SQLite

_TABLES = frozenset({"experiments", "runs", "params", "metrics", "tags"})

_RUNS = """
SELECT runs.run_uuid AS run_id, runs.name AS run_name, runs.status, runs.start_time, runs.end_time,
    experiments.experiment_id, experiments.name AS experiment
FROM runs JOIN experiments ON experiments.experiment_id = runs.experiment_id
WHERE runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'
ORDER BY experiments.experiment_id, runs.start_time, runs.run_uuid
"""


def _database(path: Path, damaged: Damaged) -> Iterator[FoundRun]:
    try:
        with closing(guards.open_readonly(path.absolute())) as connection:
            connection.text_factory = lambda text: text.decode(errors="replace")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_CELL_BYTES)
            tables = {
                name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            }
            if missing := sorted(_TABLES - tables):
                raise UserError(f"{path}: not a database of MLflow: it has no table {missing[0]}")
            runs = connection.execute(_RUNS)
            columns = [column for column, *_ in runs.description]
            for row in runs.fetchall():
                read_row = partial(_recorded, connection, dict(zip(columns, row, strict=True)))
                if (found := attempted(damaged, f"{path}, run {row[0]}", read_row)) is not None:
                    yield found
            connection.rollback()  # an error where somebody wrote to a file that could not be locked
    except OSError as error:
        raise UserError(sentence(error)) from error
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's messages quote what is damaged
        remedy = (
            "expected a database of MLflow; if it is one of an old version, run `mlflow db upgrade` on a copy"
        )
        raise UserError(on_one_line(f"{path}: cannot be read ({error}): {remedy}")) from error


def _recorded(connection: sqlite3.Connection, row: Mapping[str, object]) -> FoundRun:
    run_id = row["run_id"]
    points = Points()
    query = "SELECT key, step, value, is_nan FROM metrics WHERE run_uuid = ? ORDER BY timestamp, rowid"
    for order, (key, step, value, is_nan) in enumerate(connection.execute(query, [run_id])):
        # SQLite lets anything stand in any column.
        if isinstance(value, int | float):
            points.add(str(key), whole(step), math.nan if is_nan else _unclamped(float(value)), order)
        else:
            points.left_out["values that are not numbers"] += 1
    pairs = "SELECT key, value FROM {} WHERE run_uuid = ?"
    params, tags = (
        {str(key): str(value) for key, value in connection.execute(pairs.format(table), [run_id])}
        for table in ("params", "tags")
    )
    return _found(row, points, params, tags)


def _unclamped(value: float) -> float:
    """Return what was logged: MLflow writes the largest float into a database instead of infinity."""
    return math.copysign(math.inf, value) if abs(value) == sys.float_info.max else value


# ---- both


def _found(
    meta: Mapping[str, object], points: Points, params: Mapping[str, str], tags: Mapping[str, str]
) -> FoundRun:
    """Build a run from what MLflow has of it; `meta` has the keys of a file store's meta.yaml, at least."""
    times = (meta.get("start_time"), meta.get("end_time"))
    began, ended = (one / 1000 if isinstance(one, int) and 0 < one < 2**53 else None for one in times)
    experiment, status = meta["experiment"], meta.get("status")
    own = {key: value for key, value in tags.items() if not key.startswith("mlflow.")}
    return FoundRun(
        origin=f"mlflow:{meta['experiment_id']}/{meta['run_id']}",
        name=str(meta.get("run_name") or tags.get("mlflow.runName") or meta["run_id"]),
        config=nested({key: parameter(params[key]) for key in sorted(params)}),
        metrics=points.curves(),
        # A status that only later versions have may be any end, but is not known to be a good one.
        state=_STATES.get(status if isinstance(status, int | str) else None, "FAILED"),
        began=None if began is None else utc(began),
        ended=None if ended is None else utc(ended),
        tags=tuple(f"{key}={own[key]}" if own[key] else key for key in sorted(own)),
        notes=tags.get("mlflow.note.content", ""),
        group=str(experiment) if experiment else None,
        git_commit=tags.get("mlflow.source.git.commit") or None,
        seconds=None if began is None or ended is None else ended - began,
        left_out=points.left_out,
    )


_WORDS = {"True": True, "False": False, "None": None}


def parameter(text: str) -> Any:
    """Return the value that a parameter's text was written from, if writing it gives the same text again."""
    if text in _WORDS:
        return _WORDS[text]
    try:
        value = json.loads(text)
        # NaN and the infinities are no JSON values: ValueError.
        writings = (json.dumps(value, allow_nan=False), json.dumps(value, separators=(",", ":")), str(value))
    except (ValueError, RecursionError):
        return text
    # MLflow writes "True": "true" was meant as a text.
    is_value = isinstance(value, int | float | list | dict) and not isinstance(value, bool)
    return value if is_value and text in writings else text
