"""Read runs that MLflow recorded, from a file store or a SQLite database.

The client of `mlflow-skinny` isn't used: it needs 33 s instead of 2 s to read 500,000 points from a database,
writes its tables into each database that it opens, and refuses databases of other versions.
"""

import json
import math
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import yaml

from jestlab.analysis import read_only
from jestlab.platform.errors import UserError, sentence
from jestlab.platform.exchange.source_run import (
    MetricLog,
    Report,
    SourceRun,
    State,
    nested,
    report_errors,
    utc,
    whole_number,
)
from jestlab.platform.words import on_one_line

_MOST_FILE_BYTES = 1 << 20  # of a parameter, a tag, or metadata
_MOST_CELL_BYTES = 1 << 24

_STATES: dict[object, State] = {
    1: "RUNNING", 2: "RUNNING", 3: "COMPLETED", 4: "FAILED", 5: "CANCELLED",
    "RUNNING": "RUNNING", "SCHEDULED": "RUNNING", "FINISHED": "COMPLETED", "FAILED": "FAILED",
    "KILLED": "CANCELLED",
}  # fmt: skip
"""MLflow's statuses: numbers in a file store, words in a database."""


def read(path: Path, report: Report) -> Iterator[SourceRun]:
    """Yield the runs that MLflow recorded, except deleted ones.

    MLflow stores parameters as text. A parameter becomes a number, true, false, null, or a JSON list or
    mapping if writing that value gives the same text again. Dots in a key become nested mappings.

    Args:
        path: A database; a folder `mlruns`, or the folder of an experiment or a run in it; or a folder that
            contains `mlflow.db` or `mlruns`.
        report: Receives the errors of runs that can't be read.

    Raises:
        UserError: The path isn't an MLflow store.
    """
    if not path.exists():
        raise UserError(f"{path}: no such file or folder: expected a folder mlruns, or a database mlflow.db")
    database = path if path.is_file() else path / "mlflow.db"
    has_runs = database.is_file()
    if has_runs:
        yield from _read_database(database, report)
    for pattern in ("meta.yaml", "*/meta.yaml", "*/*/meta.yaml", "mlruns/*/*/meta.yaml"):
        for file in _files(path, pattern):
            has_runs = True
            with report_errors(report, file.parent):
                if (run := _read_folder(file.parent)) is not None:
                    yield run
    if not has_runs:
        raise UserError(f"{path}: no MLflow runs: expected mlflow.db, or EXPERIMENT/RUN/meta.yaml")


# ---- file store


def _read_folder(folder: Path) -> SourceRun | None:
    """Read a run from its folder; None if the run is deleted, or the folder isn't that of a run."""
    meta = _read_yaml(folder / "meta.yaml")
    if "run_id" not in meta and "run_uuid" not in meta:
        return None  # an experiment, or a logged model
    above = folder.resolve().parent
    experiment = next(map(_read_yaml, _files(above, "meta.yaml")), {})
    if "deleted" in (experiment.get("lifecycle_stage"), meta.get("lifecycle_stage")):
        return None
    log = MetricLog()
    for file in _files(folder, "metrics/**/*"):
        _read_metric(file, file.relative_to(folder / "metrics").as_posix(), log)
    params, tags = (
        {file.relative_to(folder / kind).as_posix(): _text(file) for file in _files(folder, f"{kind}/**/*")}
        for kind in ("params", "tags")
    )
    meta |= {
        "run_id": folder.resolve().name,
        "experiment_id": above.name,
        "experiment": experiment.get("name"),
    }
    return _run(meta, log, params, tags)


def _files(folder: Path, pattern: str) -> list[Path]:
    """Return the files that match a pattern, except links, which could lead to any file of this machine."""
    files = [file for file in folder.glob(pattern) if file.is_file() and ".trash" not in file.parts]
    return sorted(file for file in files if file.resolve() == folder.resolve() / file.relative_to(folder))


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        meta = yaml.safe_load(_text(file))
    except yaml.YAMLError as error:
        raise ValueError(f"not valid YAML: {error}") from error
    if not isinstance(meta, dict):
        raise ValueError(f"{file.name} isn't a mapping")
    return meta


def _text(file: Path) -> str:
    if file.stat().st_size > _MOST_FILE_BYTES:
        raise ValueError(f"{file} is larger than 1 MiB")
    return file.read_bytes().decode(errors="replace")


def _read_metric(file: Path, name: str, log: MetricLog) -> None:
    """Read the lines of a metric: time, value, and step. Ignore a last line that a kill cut off."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                _, value, *step = line.decode().split()
                log.add(name, whole_number(step[0]) if step else 0, float(value))
            except (ValueError, OverflowError) as error:
                raise ValueError(f"{file.name}, line {number}: expected 'TIME VALUE STEP'") from error


# ---- database

_TABLES = ("experiments", "runs", "params", "metrics", "tags")

_RUNS = """
SELECT runs.run_uuid AS run_id, runs.name AS run_name, runs.status, runs.start_time, runs.end_time,
    experiments.experiment_id, experiments.name AS experiment
FROM runs JOIN experiments ON experiments.experiment_id = runs.experiment_id
WHERE runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'
ORDER BY experiments.experiment_id, runs.start_time, runs.run_uuid
"""


def _read_database(path: Path, report: Report) -> Iterator[SourceRun]:
    try:
        with closing(read_only.open_readonly(path.absolute())) as connection:
            connection.text_factory = lambda text: text.decode(errors="replace")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_CELL_BYTES)
            query = "SELECT name FROM sqlite_schema WHERE type = 'table'"
            if missing := {*_TABLES} - {name for (name,) in connection.execute(query)}:
                raise UserError(f"{path}: not an MLflow database: it has no table {min(missing)}")
            cursor = connection.execute(_RUNS)
            columns = [column for column, *_ in cursor.description]
            for row in cursor.fetchall():
                with report_errors(report, f"{path}, run {row[0]}"):
                    yield _read_row(connection, dict(zip(columns, row, strict=True)))
            connection.rollback()
    except OSError as error:
        raise UserError(sentence(error)) from error
    except (sqlite3.Error, UnicodeDecodeError) as error:
        remedy = "expected an MLflow database; if it has an old version, run `mlflow db upgrade` on a copy"
        raise UserError(on_one_line(f"{path}: can't be read ({error}): {remedy}")) from error


def _read_row(connection: sqlite3.Connection, row: Mapping[str, object]) -> SourceRun:
    log = MetricLog()
    query = "SELECT key, step, value, is_nan FROM metrics WHERE run_uuid = ? ORDER BY timestamp, rowid"
    try:
        for key, step, value, is_nan in connection.execute(query, [row["run_id"]]):
            if isinstance(value, int | float):
                # MLflow's database stores infinity as the largest float.
                is_infinite = abs(value) == sys.float_info.max
                number = math.copysign(math.inf, value) if is_infinite else float(value)
                log.add(str(key), whole_number(step), math.nan if is_nan else number)
            else:  # SQLite allows any value in any column
                log.left_out["values that are not numbers"] += 1
        query = "SELECT key, value FROM {} WHERE run_uuid = ?"
        params, tags = (
            {str(key): str(value) for key, value in connection.execute(query.format(table), [row["run_id"]])}
            for table in ("params", "tags")
        )
    except sqlite3.DataError as error:
        raise ValueError(str(error)) from error
    return _run(row, log, params, tags)


# ---- both kinds of store


def _run(
    meta: Mapping[str, object], log: MetricLog, params: Mapping[str, str], tags: Mapping[str, str]
) -> SourceRun:
    """Create a run from its metadata, metrics, parameters, and tags."""
    times = (meta.get("start_time"), meta.get("end_time"))
    began, ended = (time / 1000 if isinstance(time, int) and 0 < time < 2**53 else None for time in times)
    name, experiment, status = (meta.get(key) for key in ("run_name", "experiment", "status"))
    user_tags = sorted((key, value) for key, value in tags.items() if not key.startswith("mlflow."))
    return SourceRun(
        origin=f"mlflow:{meta['experiment_id']}/{meta['run_id']}",
        name=str((isinstance(name, str | int) and name) or tags.get("mlflow.runName") or meta["run_id"]),
        config=nested({key: parse_parameter(params[key]) for key in sorted(params)}),
        metrics=log.curves(),
        # A status of a later MLflow version is unknown: treat the run as failed.
        state=_STATES.get(status if isinstance(status, int | str) else None, "FAILED"),
        began=utc(began),
        ended=utc(ended),
        tags=tuple(f"{key}={value}" if value else key for key, value in user_tags),
        notes=tags.get("mlflow.note.content", ""),
        group=experiment if isinstance(experiment, str) and experiment else None,
        git_commit=tags.get("mlflow.source.git.commit") or None,
        seconds=None if began is None or ended is None else ended - began,
        left_out=log.left_out,
    )


_CONSTANTS = {"True": True, "False": False, "None": None}


def parse_parameter(text: str) -> Any:
    """Return the value of a parameter if writing it gives the same text again, otherwise the text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        texts = (json.dumps(value, allow_nan=False), json.dumps(value, separators=(",", ":")), str(value))
        if type(value) in (int, float, list, dict) and text in texts:
            return value
    return text
