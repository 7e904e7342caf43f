"""Writes runs as three Parquet files: `runs`, `metrics` and `evaluations`, joined by the fingerprint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.platform.exchange.export import Result

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 250_000
"""Rows that are in memory before they are written, as a row group."""


def write(results: Iterable[Result], folder: Path) -> None:
    """Write runs below an existing folder.

    Each row names its experiment, label, seed and fingerprint. Configs are JSON, tags and notes are lists;
    NaN is NaN, and what is unknown is null. Times are UTC.
    """
    with ExitStack() as stack:
        runs, metrics, scores = (
            stack.enter_context(_File(folder / f"{name}.parquet", schema))
            for name, schema in _schemas().items()
        )
        for result in results:
            whose = [result.experiment, result.label, result.seed, result.fingerprint]
            about = [result.run, result.program, str(result.state), result.reason, result.step]
            times = [result.began, result.ended]
            said = [result.commit, result.tags, result.notes]
            runs.add([[*whose, *about, json.dumps(result.config), *times, *said]])
            for name, (steps, values) in result.metrics.items():
                points = zip(steps.tolist(), values.tolist(), strict=True)
                metrics.add([*whose, name, step, value] for step, value in points)
            scores.add([*whose, *score] for score in result.scores)


class _File:
    """A Parquet file that rows are added to."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._rows: list[Sequence[Any]] = []

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            self._rows.append(row)
            if len(self._rows) >= _ROWS:
                self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        columns = [list(column) for column in zip(*self._rows, strict=True)] or [[] for _ in self._schema]
        arrays = [pa.array(each, field.type) for each, field in zip(columns, self._schema, strict=True)]
        self._writer.write_table(pa.table(arrays, self._schema))
        self._rows = []

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._flush()
        self._writer.close()


def _schemas() -> dict[str, pa.Schema]:
    """Return the columns of each file: those that say whose a row is, and its own."""
    import pyarrow as pa

    text, whole, number, time = pa.string(), pa.int64(), pa.float64(), pa.timestamp("us")
    whose = [("experiment", text), ("label", text), ("seed", whole), ("fingerprint", text)]
    own = {
        "runs": [
            ("run", text), ("program", text), ("state", text), ("reason", text), ("step", whole),
            ("config", text), ("began", time), ("ended", time), ("commit", text),
            ("tags", pa.list_(text)), ("notes", pa.list_(text)),
        ],
        "metrics": [("name", text), ("step", whole), ("value", number)],
        "evaluations": [
            ("dataset", text), ("metric", text), ("step", whole), ("value", number),
            ("examples_seen", whole), ("flops_total", number), ("seconds", number),
        ],
    }  # fmt: skip
    return {name: pa.schema([*whose, *columns]) for name, columns in own.items()}
