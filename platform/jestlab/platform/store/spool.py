"""What a worker wants to write, kept in a file while the store cannot be reached.

One line a batch, appended and synced before the worker goes on; replayed in order, as often as it takes. A
line that a crash cut short was never promised to anybody and is left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PREFIX = "spool-"
"""Of the names of its files."""

_BLOCK = 1 << 16


@dataclass
class Batch:
    """Points of one attempt, in the order in which they came.

    Attributes:
        points: (step, metric, value); None for a value that is not a number.
        scores: dataset, metric, step, value, examples_seen, flops_total each.
        artifacts: name, uri, size, sha256 each.
        progress: Step and steps in all; the last one counts.
        end: State, reason and exit code, once the program has ended.
    """

    points: list[tuple[int, str, float | None]] = field(default_factory=list)
    scores: list[dict[str, Any]] = field(default_factory=list)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    progress: tuple[int, int] | None = None
    end: tuple[str, str | None, int] | None = None

    def __bool__(self) -> bool:
        return bool(self.points or self.scores or self.artifacts or self.progress or self.end)

    def __len__(self) -> int:
        return len(self.points) + len(self.scores) + len(self.artifacts)

    def followed_by(self, later: Batch) -> Batch:
        """Both, the later one's last word counting."""
        both = Batch()
        both.add(self)
        both.add(later)
        return both

    def add(self, later: Batch) -> None:
        """Take a later one in, its last word counting."""
        self.points += later.points
        self.scores += later.scores
        self.artifacts += later.artifacts
        self.progress = later.progress or self.progress
        self.end = later.end or self.end


class Spool:
    """The file in which one attempt keeps what it could not write."""

    def __init__(self, directory: Path, attempt_id: int) -> None:
        """Name it; nothing is made before `append`.

        Args:
            directory: The run's folder, on a disk of this machine.
            attempt_id: Whose it is.
        """
        self.path = directory / f"{PREFIX}{attempt_id}.jsonl"
        self.attempt_id = attempt_id

    @classmethod
    def left_in(cls, directory: Path, before: int) -> list[Spool]:
        """Those of earlier attempts, the oldest first.

        Args:
            directory: The run's folder.
            before: Id of the attempt that asks.
        """
        numbers = [path.stem.removeprefix(PREFIX) for path in directory.glob(f"{PREFIX}*.jsonl")]
        return [
            cls(directory, number)
            for number in sorted(int(n) for n in numbers if n.isdigit())
            if number < before
        ]

    def append(self, batch: Batch) -> None:
        """Keep a batch; it is on the disk when this returns.

        Raises:
            OSError: The disk is full, or gone. A part of the line may be there, which `batches` leaves out.
        """
        line = json.dumps(asdict(batch), separators=(",", ":")) + "\n"
        with self.path.open("ab") as stream:
            stream.truncate(self._whole_bytes())  # a line that was cut short was never promised
            stream.write(line.encode())
            stream.flush()
            os.fsync(stream.fileno())

    def batches(self) -> Iterator[Batch]:
        """What is kept, in order."""
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
        """Forget it, once all of it is in the store."""
        self.path.unlink(missing_ok=True)

    def _whole_bytes(self) -> int:
        """Length of the file's whole lines."""
        with self.path.open("rb") as stream:
            end = stream.seek(0, os.SEEK_END)
            while end > 0:
                start = max(end - _BLOCK, 0)
                stream.seek(start)
                found = stream.read(end - start).rfind(b"\n")
                if found >= 0:
                    return start + found + 1
                end = start
        return 0


def _batch(kept: dict[str, Any]) -> Batch:
    return Batch(
        [(int(step), str(name), value) for step, name, value in kept["points"]],
        kept["scores"],
        kept["artifacts"],
        tuple(kept["progress"]) if kept["progress"] else None,
        tuple(kept["end"]) if kept["end"] else None,
    )
