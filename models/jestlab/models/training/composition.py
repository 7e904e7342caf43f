"""What kinds of examples are selected, and how often again: from the last sub-batches and the metadata.

The numbers of the examples are in the training state, so a resumed run records what the uninterrupted one
would. Reading the metadata of b examples takes a file read each: cheap where it is done now and then.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.shards import ShardSource
from .step import NO_EXAMPLE, RECENT_STEPS

_LOG = logging.getLogger(__name__)
_MOST_VALUES = 100


class Composition:
    """Shares of what was selected."""

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        """Open the metadata.

        Args:
            folder: The run's folder of shards.
            columns: Of their metadata, to count by.
        """
        self._source = ShardSource(folder)
        self._columns = list(columns)

    def __call__(
        self, step: int, recent: npt.NDArray[np.uint32], candidates: npt.NDArray[np.int64]
    ) -> dict[str, float]:
        """Metrics after a step.

        Args:
            step: Its number, counted from 1.
            recent: uint32 [RECENT_STEPS, b], `TrainState.recent`.
            candidates: int64 [k], the examples of its super-batch that this process loaded: a uniform sample.

        Returns:
            `selected_again`, the share of the sub-batch that was in one of the sub-batches before it, as many
            as the state remembers; and by column and value, `selected/noise/blank` and
            `candidates/noise/blank`, shares of the sub-batch and of as many candidates. A column that no
            example has is left out.
        """
        row = (step - 1) % RECENT_STEPS
        now, before = recent[row], np.delete(recent, row, axis=0)
        again = np.isin(now, before[before != NO_EXAMPLE])
        values = {"selected_again": float(again.mean())}
        for what, examples in (("selected", now.astype(np.int64)), ("candidates", candidates[: len(now)])):
            for (column, value), share in self._shares(examples).items():
                values[f"{what}/{column}/{value}"] = share
        return values

    def _shares(self, examples: npt.NDArray[np.int64]) -> dict[tuple[str, str], float]:
        metadata = [_parsed(content) for content in self._source.metadata(examples)]
        shares: dict[tuple[str, str], float] = {}
        for column in list(self._columns):
            counts = Counter(str(entry[column]) for entry in metadata if column in entry)
            if len(counts) > _MOST_VALUES:
                _LOG.warning("metadata column %r has too many values to count by: left out", column)
                self._columns.remove(column)
                continue
            shares |= {(column, value): counts[value] / len(examples) for value in sorted(counts)}
        return shares


def _parsed(content: bytes) -> Mapping[str, Any]:
    """An example's metadata; none where it has none that can be read."""
    try:
        entry = json.loads(content) if content else {}
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}
