"""Batches of an attempt's records: how they are made, and written as rows of the store.

While the store can't be reached, `spool` keeps batches in a file.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, select, update

from jestlab.platform.digests import size_and_digest
from jestlab.platform.store.rows import upsert, write_metrics
from jestlab.platform.store.tables import (
    ArtifactRow,
    AttemptRow,
    EvaluationRow,
    MetricNameRow,
    MetricRow,
    RunRow,
)

LAST_STEP = 2**63 - 1
"""The greatest integer of every database."""

Batch = list[tuple[Any, ...]]
"""Records of one attempt in order, each with its kind first.

    point, step, metric, value              None for NaN
    score, step, *columns                   see `_SCORE`
    artifact, *columns                      see `_ARTIFACT`
    progress, step, total steps             the last one counts
    spent, columns of `attempt`             how its time was spent
    replace, first step, last step          deletes the records of earlier attempts in these steps before the
                                            batch is written; artifacts belong to step 0
    end, state, reason, exit code           once the program has ended; the last record
"""

_SCORE = ("step", "dataset", "metric", "value", "examples_seen", "flops_total", "seconds")
_ARTIFACT = ("name", "uri", "size", "sha256")


def as_number(value: float) -> float | None:
    """Return a value as the store keeps it: NULL for NaN."""
    number = float(value)
    return None if math.isnan(number) else number


def artifact_record(name: str, path: Path, root: Path) -> tuple[Any, ...]:
    """Return a file or folder with its size and digest; ValueError if outside the lab, or missing."""
    path, root = path.resolve(), root.resolve()
    if not path.is_relative_to(root):
        raise ValueError(f"artifact {name!r} at {path} is outside the lab {root}")
    if not path.exists():
        raise ValueError(f"artifact {name!r}: nothing at {path}")
    return ("artifact", name, path.relative_to(root).as_posix(), *size_and_digest(path))


def records_until(batch: Batch, step: int) -> Batch:
    """Return the records up to a step without the end, none at 0; later attempts replaced the others."""
    kept: Batch = []
    for record in batch:
        kind = record[0]
        if kind == "spent":
            kept.append(record)
        elif kind == "end" or not step or (kind in ("point", "score") and record[1] > step):
            continue
        else:
            kept.append((kind, record[1], min(record[2], step)) if kind == "replace" else record)
    return kept


def write(connection: Connection, run_id: int, number: int, batch: Batch, *, late: bool) -> int:
    """Write a batch, except its end, inside a write transaction; return the number of deleted rows.

    Args:
        connection: In a write transaction.
        run_id: Key of the run.
        number: Number of the attempt that recorded the batch.
        batch: The batch.
        late: Whether a later attempt may have written in the meantime.
    """
    records: dict[str, list[Any]] = defaultdict(list)
    for kind, *values in batch:
        records[kind].append(values)
    run, removed = {"run_id": run_id}, 0
    for first, last in records["replace"]:
        for table in (MetricRow, EvaluationRow):
            rows = delete(table).where(table.run_id == run_id, table.step.between(first, last))
            removed += connection.execute(rows).rowcount
        if first == 0 and not late:
            connection.execute(delete(ArtifactRow).where(ArtifactRow.run_id == run_id))
    if records["point"]:
        write_points(connection, run_id, records["point"], keep=late)
    keys, changed = ("run_id", "dataset", "metric", "step"), ("attempt", *_SCORE[3:])
    scores = [run | {"attempt": number} | dict(zip(_SCORE, score, strict=True)) for score in records["score"]]
    upsert(connection, EvaluationRow, scores, keys, changed, newest="attempt")
    artifacts = [run | dict(zip(_ARTIFACT, artifact, strict=True)) for artifact in records["artifact"]]
    upsert(connection, ArtifactRow, artifacts, ("run_id", "name"), _ARTIFACT[1:])
    if records["progress"]:
        step, total_steps = records["progress"][-1]
        reported = update(RunRow).where(RunRow.id == run_id)
        connection.execute(reported.values(step=step, total_steps=total_steps))
    for [spent] in records["spent"]:
        attempt = update(AttemptRow).where(AttemptRow.run_id == run_id, AttemptRow.number == number)
        connection.execute(attempt.values(**spent))
    return removed


def write_points(
    connection: Connection, run_id: int, points: Iterable[Sequence[Any]], *, keep: bool = False
) -> None:
    """Write points of a run: step, metric, value; the last of several at a step counts.

    With `keep`, points that the store has are left unchanged. Call it in a write transaction.
    """
    last = {(name, step): value for step, name, value in points}
    ids = metric_ids(connection, {name for name, _ in last})
    # In the order of the table, because pages that are filled in order hold more.
    rows = sorted((run_id, ids[name], step, value) for (name, step), value in last.items())
    write_metrics(connection, rows, keep=keep)


def metric_ids(connection: Connection, names: set[str]) -> dict[str, int]:
    """Return the ID of each name of a metric, in a write transaction that adds unknown names."""
    query = select(MetricNameRow.name, MetricNameRow.id).where(MetricNameRow.name.in_(names))
    known = dict(connection.execute(query).tuples().all())
    if missing := sorted(names - known.keys()):
        upsert(connection, MetricNameRow, [{"name": name} for name in missing])
        known = dict(connection.execute(query).tuples().all())
    return known
