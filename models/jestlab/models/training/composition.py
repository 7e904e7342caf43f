"""What kinds of examples are selected: shares by the values of metadata columns."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..data.curation import metadata_of
from ..data.shards import ShardSource
from .step import NO_EXAMPLE, RECENT_STEPS

_LOG = logging.getLogger(__name__)
_MOST_VALUES = 64  # of a column that are told apart
_MOST_EXAMPLES = 1_024  # of a sub-batch whose metadata are read: shares to within 1.6 points

Ints = npt.NDArray[np.int64]


def shares(
    source: ShardSource, columns: Sequence[str], examples: Mapping[str, Iterable[Ints]]
) -> dict[str, float]:
    """Shares of examples by the values of metadata columns.

    Args:
        source: The folder of shards.
        columns: Of their metadata.
        examples: What they are called → their global numbers, in any number of parts.

    Returns:
        `selected/<called>/<column>/<value>`. Of a column with many values the most frequent are told apart,
        the others are `others`; a value that is not there is `missing`, and a column that nothing has is left
        out.
    """
    numbers = {called: np.concatenate([*parts]) for called, parts in examples.items()}
    ends = np.cumsum([len(of_one) for of_one in numbers.values()])[:-1]
    found = {}
    for column, values in metadata_of(source, np.concatenate([*numbers.values()]), columns).items():
        if all(value is None for value in values):
            continue
        texts = np.array(["missing" if value is None else str(value) for value in values], object)
        frequent = [text for text, _ in Counter(texts).most_common(_MOST_VALUES)]
        texts[~np.isin(texts, frequent)] = "others"
        for called, of_one in zip(numbers, np.split(texts, ends), strict=True):
            for value in dict.fromkeys(texts):
                found[f"selected/{called}/{column}/{value}"] = float(np.mean(of_one == value))
    return found


class Composition:
    """What a training run records of its sub-batches.

    The numbers of the examples are in the training state, so a resumed run records what the uninterrupted one
    would.
    """

    def __init__(self, folder: Path, rule: str, columns: Sequence[str]) -> None:
        """Open the metadata.

        Args:
            folder: The run's folder of shards.
            rule: The run's selection rule.
            columns: Of the metadata, to count by.
        """
        self._source = ShardSource(folder)
        self._rule = rule
        self._columns = columns

    def __call__(self, step: int, recent: npt.NDArray[np.uint32], candidates: Ints) -> dict[str, float]:
        """Metrics after a step.

        Args:
            step: Its number, counted from 1.
            recent: uint32 [RECENT_STEPS, b], `TrainState.recent`.
            candidates: int64 [k], the examples of its super-batch that this process loaded: a uniform sample.

        Returns:
            `selected_again`, the share of the sub-batch that was in one of the sub-batches before it, as many
            as the state remembers (within an epoch none can be: each example comes once); and `shares` of the
            sub-batch, called by the rule, and of `candidates`. Metadata that cannot be read cost these alone.
        """
        row = (step - 1) % RECENT_STEPS
        now, before = recent[row].astype(np.int64), np.delete(recent, row, axis=0)
        again = float(np.isin(now, before[before != NO_EXAMPLE]).mean())
        sample = now[np.linspace(0, len(now) - 1, min(len(now), _MOST_EXAMPLES)).astype(int)]
        try:
            counted = {self._rule: [sample], "candidates": [candidates[: len(sample)]]}
            found = shares(self._source, self._columns, counted)
        except (OSError, ValueError) as error:
            _LOG.warning("step %d: what kinds of examples were selected is not known: %s", step, error)
            found = {}
        return {"selected_again": again, **found}
