"""The file in which an attempt keeps batches of records while the store can't be reached.

A batch is one line of the file. It is appended and synced before the worker continues. Batches are replayed
in order, as often as necessary. A line that a crash cut short was never reported as durable; it is ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from jestlab.platform.store.batches import Batch

PREFIX = "spool-"
"""Prefix of the names of spool files."""


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
        line = (json.dumps(batch, separators=(",", ":")) + "\n").encode()
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
                with suppress(ValueError):
                    if line.endswith(b"\n"):
                        yield [tuple(record) for record in json.loads(line)]

    def clear(self) -> None:
        """Delete the file, once its batches are in the store."""
        self.path.unlink(missing_ok=True)
        self._whole_bytes = 0
