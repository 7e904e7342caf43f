"""What a study asks for in its spec, besides what every report shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ..figures import Request, draw
from ..tables import table as named_table
from .parts import StillPart, TablePart

if TYPE_CHECKING:
    from ..costs import Scope
    from ..frames import Frames
    from ..plots import Plot
    from ..rendering import Table
    from .history import History

_ALWAYS: dict[str, dict[str, Any]] = {
    "summary": {"mean": "all", "crossing": "first"},
    "speedups": {"mean": "all", "crossing": "first"},
    "claims": {},
    "curves": {},
    "pareto": {"trajectories": False, "surfaces": False},
}
"""Tables and figures that every page has → what they are told there besides baseline and scope."""

_TOLD = {each.name for each in fields(Request)} - {"url", "experiment", "results"}
"""What figures can be told."""


@dataclass(frozen=True)
class Asked:
    """The reports of a spec that not every page has, in its order.

    Attributes:
        tables: Tables.
        stills: Figures.
        gaps: Heading of what cannot be made → why, one sentence.
    """

    tables: tuple[TablePart, ...]
    stills: tuple[StillPart, ...]
    gaps: dict[str, str]


@dataclass(frozen=True)
class _Page:
    """What the page is of, and how it compares."""

    url: str
    experiment: str
    frames: Frames | None
    baseline: str | None
    scope: Scope

    def compares_so(self, report: Mapping[str, Any]) -> bool:
        """Whether a report would compare no other way."""
        named = report.get("baseline")
        same = self.frames is None or named is None or self.frames.baseline(named) == self.baseline
        return same and report.get("scope", self.scope) == self.scope

    def of(self, told: Mapping[str, Any]) -> _Page:
        """The same of the runs that a report shows."""
        if self.frames is None or "runs" not in told:
            return self
        frames = self.frames.only(told["runs"])
        return replace(
            self, frames=frames, baseline=self.baseline if self.baseline in frames.labels else None
        )

    def results(self) -> Frames:
        """As they are read once for all."""
        assert self.frames is not None
        return self.frames

    def table(self, name: str, told: Mapping[str, Any]) -> Table:
        return named_table(
            self.url,
            name,
            [self.experiment],
            baseline=told.get("baseline", self.baseline),
            scope=told.get("scope", self.scope),
            mean=told.get("mean", "all"),
            crossing=told.get("crossing", "first"),
            with_published=told.get("published", True),
            results=None if self.frames is None else {self.experiment: self.results},
        )

    def plot(self, kind: str, told: Mapping[str, Any]) -> Plot:
        options: dict[str, Any] = {"baseline": self.baseline, "scope": self.scope}
        options |= {key: value for key, value in told.items() if key in _TOLD}
        if "by" in told:
            options["by"] = tuple(told["by"])
        results = None if self.frames is None else self.results
        return draw(kind, Request(self.url, self.experiment, results=results, **options))


def asked(
    url: str,
    history: History,
    frames: Frames | None,
    baseline: str | None,
    scope: Scope,
    everything: bool = False,
) -> Asked:
    """Make them from the store: the spec stands there with the results.

    Args:
        url: SQLAlchemy URL of the store.
        history: With the spec.
        frames: Results; None where nothing was evaluated.
        baseline: Label that the page compares with.
        scope: What counts as FLOPs in the page.
        everything: Whether the page has nothing by itself but the claims, so that all is made.
    """
    page = _Page(url, history.experiment, frames, baseline, scope)
    tables: list[TablePart] = []
    stills: list[StillPart] = []
    gaps: dict[str, str] = {}
    seen = Counter(() if everything else _ALWAYS.keys())
    for report in history.spec.get("reports", []):
        told = {key: value for key, value in report.items() if value is not None}
        is_table = told.pop("kind") == "table"
        name = str(told.pop("name", "summary")) if is_table else str(report["kind"])
        heading = title(name)
        try:
            there = not everything if name != "claims" else bool(history.spec.get("claims"))
            if there and page.compares_so(told) and _is_on_every_page(name, told):
                continue
            seen[name] += 1
            part = name
            if seen[name] > 1:
                part, heading = f"{name}-{seen[name]}", f"{heading}: {_in_words(told)}"
            if is_table:
                tables.append(TablePart(part, heading, page.of(told).table(name, told)))
            else:
                stills.append(StillPart(heading, replace(page.of(told).plot(name, told), name=part)))
        except ValueError as error:
            gaps[heading] = str(error)
    return Asked(tuple(tables), tuple(stills), gaps)


def title(name: str) -> str:
    """The heading over a table or figure of that name."""
    return "LAION" if name == "laion" else name.replace("_", " ").capitalize()


def _in_words(told: Mapping[str, Any]) -> str:
    """What a report was told: "baseline joint, mean shared, surfaces"."""
    words = []
    for key, value in sorted(told.items()):
        if key == "runs" and "baseline" in told:  # which tells enough
            continue
        text = ", ".join(value) if isinstance(value, list | tuple) else str(value)
        words.append(key.replace("_", " ") + ("" if value is True else f" {text}"))
    return ", ".join(words) or "once more"


def _is_on_every_page(name: str, told: Mapping[str, Any]) -> bool:
    """Whether a report that compares as the page does is a part of every page."""
    fits = name in _ALWAYS and "runs" not in told
    return fits and all(told.get(key, value) == value for key, value in _ALWAYS[name].items())
