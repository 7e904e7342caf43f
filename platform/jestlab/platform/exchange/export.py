"""Write runs in formats of other tools: MLflow file stores, TensorBoard event files, and Parquet tables."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.platform.errors import UserError
from jestlab.platform.exchange import write_mlflow, write_tensorboard
from jestlab.platform.exchange.export_read import ExportedRun

if TYPE_CHECKING:
    import pyarrow as pa


def write(kind: str, runs: Iterable[ExportedRun], folder: Path) -> None:
    """Write runs as "mlflow", "parquet", or "tensorboard" to a new folder, which appears when it is complete.

    Raises:
        UserError: The folder isn't empty, or can't be written.
    """
    others = {"mlflow": write_mlflow.write, "tensorboard": write_tensorboard.write}
    target = folder.resolve()
    if target.exists() and not target.is_dir():
        raise UserError(f"{folder} is a file: give the name of a new folder")
    if target.is_dir() and any(target.iterdir()):
        raise UserError(f"{folder} is not empty: give the name of a new folder")
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        partial.mkdir(parents=True)
        others.get(kind, _write_parquet)(runs, partial)
        if target.exists():
            target.rmdir()
        partial.rename(target)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_parquet(runs: Iterable[ExportedRun], folder: Path) -> None:
    """Write the tables runs, metrics, and evaluations, joined by experiment, label, seed, and fingerprint.

    Configs are JSON, tags and notes are lists, and times are UTC. Unknown values are null; NaN is NaN.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    with ExitStack() as stack:
        files = [
            (
                schema,
                stack.enter_context(ParquetWriter(folder / f"{name}.parquet", schema, compression="zstd")),
            )
            for name, schema in _schemas().items()
        ]
        for run in runs:
            key = (run.experiment, run.label, run.seed, run.fingerprint)
            about = (run.run, run.program, str(run.state), run.reason, run.step, json.dumps(run.config))
            points = [
                (*key, name, step, value)
                for name, (steps, values) in run.metrics.items()
                for step, value in zip(steps.tolist(), values.tolist(), strict=True)
            ]
            rows = [(*key, *about, run.began, run.ended, run.commit, run.tags, run.notes)]
            scores = [(*key, *score) for score in run.scores]
            parts: tuple[list[tuple[Any, ...]], ...] = (rows, points, scores)
            for (schema, file), part in zip(files, parts, strict=True):
                if part:
                    columns = [list(column) for column in zip(*part, strict=True)]
                    file.write_table(pa.table(columns, schema))


def _schemas() -> dict[str, pa.Schema]:
    import pyarrow as pa

    text, whole, number, time = pa.string(), pa.int64(), pa.float64(), pa.timestamp("us")
    key = [("experiment", text), ("label", text), ("seed", whole), ("fingerprint", text)]
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
    return {name: pa.schema([*key, *columns]) for name, columns in own.items()}
