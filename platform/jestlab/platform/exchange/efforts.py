"""What training had taken by a step: examples, FLOPs or seconds, as a run's people recorded them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jestlab.analysis.configs import lookup
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.exchange.source_run import FoundRun, number

_PER_STEP = re.compile(r"\s*step\s*\*\s*(\S+)\s*")

AtStep = Callable[[int], float | None]
"""Step → what had been spent by then; None where nobody knows."""


@dataclass(frozen=True)
class Effort:
    """Where an effort is found in a run.

    Attributes:
        written: As a user wrote it: the name of a metric that holds it, or `step*FACTOR`, where the factor is
            a number or the key of a number in the config.
    """

    written: str

    def of(self, run: FoundRun) -> AtStep:
        """Return what a run had spent by each step.

        Raises:
            UserError: The run has no such metric, or no such number in its config.
        """
        if matched := _PER_STEP.fullmatch(self.written):
            factor = self._factor(run, matched[1])
            return lambda step: step * factor
        if self.written not in run.metrics:
            known = nearest(self.written, run.metrics)
            raise UserError(
                f"{run.name}: no metric {self.written!r}: {known}; or step*NUMBER, or step*KEY of the config"
            )
        curve = run.metrics[self.written]

        def by(step: int) -> float | None:
            place = int(curve.steps.searchsorted(step, side="right")) - 1
            value = float(curve.values[place]) if place >= 0 else math.nan
            return value if math.isfinite(value) else None

        return by

    def _factor(self, run: FoundRun, written: str) -> float:
        try:
            value: float | None = float(written)
        except ValueError:
            value = number_of(run.config, written)
        if value is None or not math.isfinite(value):
            raise UserError(
                f"{run.name}: {self.written}: its config has no number {written!r}: give one, step*256"
            )
        return value


def number_of(config: dict[str, Any], key: str) -> float | None:
    """Return the finite number at a dotted key of a config; None if there is none."""
    value = config.get(key, lookup(config, key))
    found = None if isinstance(value, bool | str) else number(value)
    return found if found is not None and math.isfinite(found) else None
