"""When a study has enough seeds: `seeds: {until: decided, at_least: 3, at_most: 24, budget: {hours: 1}}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..written import Path, WrittenError, given, is_number, shown
from .looks import MOST_SEEDS

DECIDED = "decided"

FUTILE = 0.05
"""A claim is given up when the chance that it will be decided is below this."""

_KEYS = ("until", "at_least", "at_most", "budget")


@dataclass(frozen=True)
class Until:
    """Seeds are added until each claim is decided, or hopeless, or too dear.

    Attributes:
        at_least: Number of seeds with which a study begins.
        at_most: Number of seeds at which it ends, whatever is open.
        hours: Hours that its runs may take together, two at once counting twice; None for no limit.
    """

    at_least: int = 3
    at_most: int = 24
    hours: float | None = None

    @classmethod
    def parse(cls, written: Mapping[Any, Any], path: Path = ("seeds",)) -> Until:
        """Parse the form that a spec has it in.

        Raises:
            WrittenError: It has another form; the place is named.
        """
        found = given(written, _KEYS, path)
        if found.get("until") != DECIDED:
            raise WrittenError((*path, "until"), f"must be {DECIDED}, not {shown(found.get('until'))}")
        counts = {key: found.get(key, getattr(cls, key)) for key in ("at_least", "at_most")}
        for key, count in counts.items():
            if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_SEEDS:
                raise WrittenError(
                    (*path, key), f"must be a number of seeds from 1 to {MOST_SEEDS}, not {shown(count)}"
                )
        if counts["at_least"] > counts["at_most"]:
            raise WrittenError((*path, "at_least"), f"is above at_most, which is {counts['at_most']}")
        return cls(**counts, hours=_hours(found.get("budget"), (*path, "budget")))

    def written(self) -> dict[str, Any]:
        """Write it as a spec has it, without defaults."""
        plain = Until()
        counts = {key: getattr(self, key) for key in ("at_least", "at_most")}
        changed = {key: count for key, count in counts.items() if count != getattr(plain, key)}
        budget = {} if self.hours is None else {"budget": {"hours": self.hours}}
        return {"until": DECIDED} | changed | budget


def _hours(budget: Any, path: Path) -> float | None:
    if budget is None:
        return None
    if not isinstance(budget, Mapping) or set(budget) != {"hours"}:
        raise WrittenError(path, f"must be {{hours: 1}}, not {shown(budget)}")
    hours = budget["hours"]
    if not is_number(hours) or hours <= 0:
        raise WrittenError((*path, "hours"), f"must be a number above 0, not {shown(hours)}")
    return float(hours)
