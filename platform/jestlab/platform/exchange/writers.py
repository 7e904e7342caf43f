"""The formats that results can be written in, and how: whole or not at all."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from jestlab.platform.errors import UserError
from jestlab.platform.exchange import write_mlflow as mlflow
from jestlab.platform.exchange import write_parquet as parquet
from jestlab.platform.exchange import write_tensorboard as tensorboard
from jestlab.platform.exchange.export import Result

WRITERS: dict[str, Callable[[Iterable[Result], Path], None]] = {
    "mlflow": mlflow.write,
    "parquet": parquet.write,
    "tensorboard": tensorboard.write,
}
"""Format → what writes runs below an existing, empty folder."""


def write(kind: str, results: Iterable[Result], folder: Path) -> None:
    """Write runs in a format to a folder, which appears when it is whole.

    Raises:
        UserError: Something is in the folder already, or it cannot be written.
    """
    # `.` and a link have the name of what they lead to, beside which another can be.
    whole = folder.resolve()
    if whole.exists() and not whole.is_dir():
        raise UserError(f"{folder} is a file: give the name of a new folder")
    if whole.is_dir() and any(whole.iterdir()):
        raise UserError(f"{folder} is not empty: give the name of a new folder")
    partial = whole.with_name(f".{whole.name}.{uuid.uuid4().hex}.part")
    try:
        partial.mkdir(parents=True)
        WRITERS[kind](results, partial)
        if whole.exists():
            whole.rmdir()
        partial.rename(whole)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
