"""Records of an attempt in batches: kept in a file while the store can't be reached, and written as rows.

A batch is one line of the file. It is appended and synced before the worker continues. Batches are replayed
in order, as often as necessary. A line that a crash cut short was never reported as durable; it is ignored.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, select, update

from jestlab.platform.client import as_count, as_name
from jestlab.platform.digests import size_and_digest
from jestlab.platform.store.rows import insert, upsert, write_points
from jestlab.platform.store.tables import ArtifactRow, EvaluationRow, MetricNameRow, MetricRow, RunRow

PREFIX = "spool-"
"""Prefix of the names of spool files."""

LAST_STEP = 2**63 - 1
"""The greatest integer of every database."""


@dataclass
class Batch:
    """Records of one attempt, in order.

    Attributes:
        points: (step, metric, value); None for NaN.
        scores: Each with dataset, metric, step, value, examples_seen, flops_total, seconds.
        artifacts: Each with name, uri, size, sha256.
        progress: Step and total steps; the last one counts.
        end: State, reason, and exit code, once the program has ended.
        spent: How the attempt's time was spent, by columns of `attempt`; not durable without other records.
        replaced: Ranges of steps, first and last, in which the records of earlier attempts are deleted before
            these are written. Artifacts belong to step 0.
    """

    points: list[tuple[int, str, float | None]] = field(default_factory=list)
    scores: list[dict[str, Any]] = field(default_factory=list)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    progress: tuple[int, int] | None = None
    end: tuple[str, str | None, int] | None = None
    spent: dict[str, float | int | None] | None = None
    replaced: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of_scores(
        cls,
        step: int,
        examples_seen: int | None,
        flops_total: float | None,
        scores: Mapping[str, float],
        seconds: float | None = None,
    ) -> Batch:
        """Return scores, named `dataset/metric`, at a step, with their cost so far; None if unknown.

        Raises:
            ValueError: A step, a name, or a number is invalid.
        """
        cost = {
            "examples_seen": None if examples_seen is None else as_count("examples_seen", examples_seen),
            "flops_total": None if flops_total is None else as_number(flops_total),
            "seconds": None if seconds is None else as_number(seconds),
        }
        rows = []
        for name, value in scores.items():
            dataset, slash, metric = as_name(name).rpartition("/")
            if not slash:
                raise ValueError(f"score {name!r} must be named dataset/metric")
            place = {"dataset": dataset, "metric": metric, "step": as_count("step", step)}
            rows.append(place | {"value": as_number(value)} | cost)
        return cls(scores=rows)

    @classmethod
    def of_artifact(cls, name: str, path: Path, root: Path) -> Batch:
        """Return a file or folder with its size and digest; ValueError if outside the lab, or missing."""
        path, root = path.resolve(), root.resolve()
        if not path.is_relative_to(root):
            raise ValueError(f"artifact {name!r} at {path} is outside the lab {root}")
        if not path.exists():
            raise ValueError(f"artifact {name!r}: nothing at {path}")
        size, sha256 = size_and_digest(path)
        uri = path.relative_to(root).as_posix()
        return cls(artifacts=[{"name": name, "uri": uri, "size": size, "sha256": sha256}])

    @classmethod
    def joined(cls, batches: Iterable[Batch]) -> Batch:
        """Join several batches."""
        whole = cls()
        for batch in batches:
            whole.add(batch)
        return whole

    def __bool__(self) -> bool:
        return bool(
            self.points or self.scores or self.artifacts or self.progress or self.end or self.replaced
        )

    def __len__(self) -> int:
        return len(self.points) + len(self.scores) + len(self.artifacts)

    def __str__(self) -> str:
        """Describe the only record of a batch."""
        for step, name, value in self.points:
            return f"metric {name!r} at step {step}: {value}"
        for score in self.scores:
            name = f"score '{score['dataset']}/{score['metric']}' at step {score['step']}: {score['value']}"
            return f"{name} (examples_seen {score['examples_seen']}, flops_total {score['flops_total']})"
        for artifact in self.artifacts:
            return f"artifact {artifact['name']!r} at {artifact['uri']}"
        return f"progress {self.progress}" if self.progress else f"end {self.end}"

    def parts(self) -> list[Batch]:
        """Split the batch into smaller ones, to be written in order; empty if it has only one record."""
        single = [Batch(replaced=self.replaced)] if self.replaced else []
        single += [Batch(points=[point]) for point in self.points]
        single += [Batch(scores=[score]) for score in self.scores]
        single += [Batch(artifacts=[artifact]) for artifact in self.artifacts]
        middle = (len(single) + 1) // 2
        parts = [Batch.joined(single[:middle]), Batch.joined(single[middle:])]
        parts += [Batch(progress=self.progress), Batch(end=self.end, spent=self.spent)]
        parts = [part for part in parts if part]
        return parts if len(parts) > 1 else []

    def add(self, later: Batch) -> None:
        """Append a later batch."""
        self.points += later.points
        self.scores += later.scores
        self.artifacts += later.artifacts
        self.progress = later.progress or self.progress
        self.end = later.end or self.end
        self.spent = later.spent or self.spent
        self.replaced += later.replaced

    def until(self, step: int) -> Batch:
        """Return the records up to a step, none at 0; later attempts replaced the others."""
        if not step:
            return Batch(spent=self.spent)
        return replace(
            self,
            points=[point for point in self.points if point[0] <= step],
            scores=[score for score in self.scores if score["step"] <= step],
            replaced=[(first, min(last, step)) for first, last in self.replaced],
        )


class Spool:
    """The file with those batches of an attempt that couldn't be written to the store."""

    def __init__(self, directory: Path, attempt_id: int) -> None:
        """Name the file in the run's folder; the first `append` creates it."""
        self.path = directory / f"{PREFIX}{attempt_id}.jsonl"
        self.attempt_id = attempt_id
        self._whole_bytes: int | None = None  # length of the file's complete lines

    @classmethod
    def left_in(cls, directory: Path, before: int) -> list[Spool]:
        """Return the spools of attempts with IDs less than `before`, the oldest first."""
        names = [path.stem.removeprefix(PREFIX) for path in directory.glob(f"{PREFIX}*.jsonl")]
        ids = sorted(int(name) for name in names if name.isdigit())
        return [cls(directory, attempt_id) for attempt_id in ids if attempt_id < before]

    def append(self, batch: Batch) -> None:
        """Append a batch durably.

        Raises:
            OSError: The disk is full or missing. `batches` ignores an incomplete line.
        """
        line = (json.dumps(asdict(batch), separators=(",", ":")) + "\n").encode()
        if self._whole_bytes is None:
            self._whole_bytes = self.path.read_bytes().rfind(b"\n") + 1 if self.path.exists() else 0
        with self.path.open("ab") as stream:
            stream.truncate(self._whole_bytes)
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
        self._whole_bytes += len(line)

    def batches(self) -> Iterator[Batch]:
        """Yield the batches in order."""
        if not self.path.exists():
            return
        with self.path.open("rb") as stream:
            for line in stream:
                try:
                    kept = json.loads(line) if line.endswith(b"\n") else None
                except ValueError:
                    kept = None
                if kept is not None:
                    yield _batch(kept)

    def clear(self) -> None:
        """Delete the file, once its batches are in the store."""
        self.path.unlink(missing_ok=True)
        self._whole_bytes = 0


def as_number(value: float) -> float | None:
    """Return a value as the store keeps it: NULL for NaN."""
    number = float(value)
    return None if math.isnan(number) else number


def _batch(kept: dict[str, Any]) -> Batch:
    return Batch(
        [(int(step), str(name), value) for step, name, value in kept["points"]],
        kept["scores"],
        kept["artifacts"],
        tuple(kept["progress"]) if kept["progress"] else None,
        tuple(kept["end"]) if kept["end"] else None,
        kept["spent"],
        [(int(first), int(last)) for first, last in kept["replaced"]],
    )


# ---- rows

_OF_SCORE = ("run_id", "dataset", "metric", "step")


class Points:
    """Writes the records of one run; caches the IDs of metrics' names."""

    def __init__(self, run_id: int) -> None:
        """Create a writer for the run with this key."""
        self._run_id = run_id
        self._names: dict[str, int] = {}

    def write(self, connection: Connection, batch: Batch, attempt: int, *, late: bool) -> int:
        """Write a batch, except its end, inside a write transaction; return the number of deleted rows.

        Args:
            connection: In a write transaction.
            batch: The batch.
            attempt: Number of the attempt that recorded it.
            late: Whether a later attempt may have written in the meantime.
        """
        owner = {"run_id": self._run_id, "attempt": attempt}
        removed = 0
        for first, last in batch.replaced:
            for table in (MetricRow, EvaluationRow):
                rows = delete(table).where(table.run_id == self._run_id, table.step.between(first, last))
                removed += connection.execute(rows).rowcount
            if first == 0 and not late:
                connection.execute(delete(ArtifactRow).where(ArtifactRow.run_id == self._run_id))
        if batch.points:
            names = self._ids(connection, {name for _, name, _ in batch.points})
            points = [(names[name], step, value) for step, name, value in batch.points]
            write_points(connection, self._run_id, points, keep=late)
        scores = [owner | score for score in batch.scores]
        changed = ("value", "examples_seen", "flops_total", "seconds", "attempt")
        upsert(connection, EvaluationRow, scores, _OF_SCORE, changed, newest="attempt")
        artifacts = [{"run_id": self._run_id} | artifact for artifact in batch.artifacts]
        upsert(connection, ArtifactRow, artifacts, ("run_id", "name"), ("uri", "size", "sha256"))
        if batch.progress:
            step, total_steps = batch.progress
            reported = update(RunRow).where(RunRow.id == self._run_id)
            connection.execute(reported.values(step=step, total_steps=total_steps))
        return removed

    def _ids(self, connection: Connection, wanted: set[str]) -> dict[str, int]:
        if not (new := wanted - self._names.keys()):
            return self._names
        found = _found(connection, new)
        self._names |= found  # without those inserted below: this transaction may still fail
        if missing := new - found.keys():
            connection.execute(
                insert(connection, MetricNameRow).on_conflict_do_nothing(),
                [{"name": name} for name in sorted(missing)],
            )
            found |= _found(connection, missing)
        return self._names | found


def _found(connection: Connection, names: set[str]) -> dict[str, int]:
    rows = connection.execute(
        select(MetricNameRow.name, MetricNameRow.id).where(MetricNameRow.name.in_(names))
    )
    return dict(rows.tuples().all())
