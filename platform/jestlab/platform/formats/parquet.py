"""Writes runs as three Parquet files: `runs`, `metrics` and `evaluations`, joined by the fingerprint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.platform.formats.results import Result

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
            stack.enter_context(_File(folder / f"{name}.parquet", schema()))
            for name, schema in (("runs", _runs), ("metrics", _metrics), ("evaluations", _evaluations))
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


def _schema(*more: tuple[str, pa.DataType]) -> pa.Schema:
    import pyarrow as pa

    text = pa.string()
    whose = [("experiment", text), ("label", text), ("seed", pa.int64()), ("fingerprint", text)]
    return pa.schema([*whose, *more])


def _runs() -> pa.Schema:
    import pyarrow as pa

    text, time = pa.string(), pa.timestamp("us")
    return _schema(
        ("run", text), ("program", text), ("state", text), ("reason", text), ("step", pa.int64()),
        ("config", text), ("began", time), ("ended", time), ("commit", text),
        ("tags", pa.list_(text)), ("notes", pa.list_(text)),
    )  # fmt: skip


def _metrics() -> pa.Schema:
    import pyarrow as pa

    return _schema(("name", pa.string()), ("step", pa.int64()), ("value", pa.float64()))


def _evaluations() -> pa.Schema:
    import pyarrow as pa

    return _schema(
        ("dataset", pa.string()), ("metric", pa.string()), ("step", pa.int64()), ("value", pa.float64()),
        ("examples_seen", pa.int64()), ("flops_total", pa.float64()), ("seconds", pa.float64()),
    )  # fmt: skip
