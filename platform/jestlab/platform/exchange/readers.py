"""The kinds of sources that runs can be read from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from jestlab.platform.exchange import read_mlflow as mlflow
from jestlab.platform.exchange import read_tables as tabular
from jestlab.platform.exchange import read_tensorboard as tensorboard
from jestlab.platform.exchange import read_wandb as wandb
from jestlab.platform.exchange.source_run import FoundRun


class Reader(Protocol):
    """Yields the runs at a path. Readers take more arguments, each its own, which have defaults."""

    def __call__(self, path: Path) -> Iterator[FoundRun]:
        """Yield the runs at a path; raise a UserError if it cannot be read."""


READERS: dict[str, Reader] = {
    "wandb": wandb.read,
    "mlflow": mlflow.read,
    "tensorboard": tensorboard.read,
    "csv": tabular.read,
    "parquet": tabular.read,
}
"""Kind → its reader. The reader of tables tells CSV from Parquet by the file."""
