"""Claims as specs make them: a statement, the runs that decide it, and by what they are compared."""

from __future__ import annotations

import json
import math
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from .connection import connect, frame
from .measures import SCORE, is_score

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from .costs import Scope

Comparison = Literal["above", "below", "near"]

COMPARISONS: tuple[Comparison, ...] = get_args(Comparison)

_STUDIES = "SELECT experiment, spec, scale FROM v_experiments"


@dataclass(frozen=True)
class Side:
    """What stands on one side of a claim: the mean over some runs, perhaps minus that over others.

    Attributes:
        of: Labels or names of runs.
        minus: The same of what is subtracted; empty for nothing.
        measure: What it is measured by, where that is not the claim's; else empty.
    """

    of: tuple[str, ...]
    minus: tuple[str, ...] = ()
    measure: str = ""

    @classmethod
    def parse(cls, written: Any) -> Side:
        """From the form that a spec has it in: a name, a list of names, or {of: …, minus: …, measure: …}."""
        if isinstance(written, Mapping):
            minus = written.get("minus")
            return cls(
                _names(written["of"]), () if minus is None else _names(minus), written.get("measure") or ""
            )
        return cls(_names(written))

    def __str__(self) -> str:
        of, minus = ("mean of " * (len(names) > 1) + ", ".join(names) for names in (self.of, self.minus))
        side = f"({of}) − ({minus})" if minus else of
        return f"{side} ({self.measure})" if self.measure else side


@dataclass(frozen=True)
class Claim:
    """A statement that runs decide.

    Attributes:
        statement: What is claimed, in words.
        of: What it is claimed of.
        comparison: How that lies to the other side.
        other: What it is compared with.
        within: How far from it at most where it is near, or on the wrong side of it else; NaN for not at all.
        measure: What is compared, where a side does not say otherwise: see `measures.Measures.values`.
        source: Where it is claimed; empty if the spec does not say.
        unless: The likely reason where it does not hold; empty if the spec does not say.
    """

    statement: str
    of: Side
    comparison: Comparison
    other: Side
    within: float = math.nan
    measure: str = SCORE
    source: str = ""
    unless: str = ""

    @classmethod
    def parse(cls, written: Mapping[str, Any]) -> Claim:
        """From the form that the store's spec has it in."""
        comparison = next(kind for kind in COMPARISONS if written.get(kind) is not None)
        return cls(
            statement=str(written["statement"]),
            of=Side.parse(written["of"]),
            comparison=comparison,
            other=Side.parse(written[comparison]),
            within=math.nan if written.get("within") is None else float(written["within"]),
            measure=written.get("measure") or SCORE,
            source=written.get("source") or "",
            unless=written.get("unless") or "",
        )

    @property
    def measures(self) -> tuple[str, str]:
        """What either side is measured by."""
        return self.of.measure or self.measure, self.other.measure or self.measure

    @property
    def unit(self) -> str:
        """What their difference is one of: the measure, or what the two have in common as in `learnability`
        of `learnability/joint` and `learnability/gibbs`, or both; of scores at two moments the score."""
        of, other = self.measures
        if of != other and is_score(of) and is_score(other):
            return SCORE
        return of if of == other else posixpath.commonpath((of, other)) or f"{of} − {other}"

    def __str__(self) -> str:
        within = "" if math.isnan(self.within) else f" within {self.within:g}"
        by = "" if self.of.measure and self.other.measure else f", by {self.measure}"
        return f"{self.of} {self.comparison} {self.other}{within}{by}"


@dataclass(frozen=True)
class Study:
    """What the store keeps of a study besides its runs.

    Attributes:
        spec: The resolved spec; empty where the store does not know it.
        scale: The scale it was last launched at; empty if it has none.
    """

    spec: Mapping[str, Any]
    scale: str

    @property
    def claims(self) -> list[Claim]:
        """What it claims."""
        return [Claim.parse(written) for written in self.spec.get("claims") or []]

    @property
    def parts(self) -> dict[str, dict[str, Any]]:
        """The studies that a union is of: name → spec; none of a study that is no union."""
        return dict(self.spec.get("studies") or {})

    @property
    def baseline(self) -> str | None:
        """Label or run that others are compared with, as its reports say; None where they do not."""
        named: str | None = self._said("baseline")
        return named

    @property
    def scope(self) -> Scope:
        """What counts as FLOPs, as its reports say."""
        scope: Scope = self._said("scope") or "scoring"
        return scope

    def _said(self, option: str) -> Any:
        """What the first of its reports says that says anything."""
        reports = self.spec.get("reports") or []
        return next((report[option] for report in reports if report.get(option)), None)


def studies(connection: Connection) -> dict[str, Study]:
    """Every study of a store by its name, in alphabetical order.

    Args:
        connection: To the store, from `connect`.
    """
    rows = frame(connection, _STUDIES).itertuples(index=False)
    found = {str(name): Study(json.loads(spec), str(scale or "")) for name, spec, scale in rows}
    return dict(sorted(found.items()))


def is_union(url: str, experiment: str) -> bool:
    """Whether an experiment of the store is a union of studies, which stand in the store themselves."""
    return bool(_parts(url, experiment))


def is_claiming_union(url: str, experiment: str) -> bool:
    """Whether it is one of which any study claims something."""
    return any(part.get("claims") for part in _parts(url, experiment).values())


def _parts(url: str, experiment: str) -> dict[str, dict[str, Any]]:
    with connect(url) as connection:
        found = studies(connection).get(experiment)
    return found.parts if found is not None else {}


def _names(written: Any) -> tuple[str, ...]:
    return (written,) if isinstance(written, str) else tuple(map(str, written))
