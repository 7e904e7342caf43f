"""The tables and figures that the spec of a study asks for, in addition to those of every page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..costs import Scope
from ..custom import Loader, stem_of
from ..errors import RequestError
from ..figures import draw
from ..figures.selected import Pictures
from ..frames import Frames
from ..provenance.history import History
from ..results import Snapshot, opens_store
from ..sheet import Sheet
from ..tables import Shape
from ..tables import table as named_table
from .page import FigurePart, TablePart

_STANDING = ("summary", "speedups", "curves", "pareto")
"""Tables and figures of every page."""

_USUAL: dict[str, Any] = {"crossing": "first", "trajectories": False}
"""Their options, in addition to baseline and scope."""

_TABLE_OPTIONS = {"baseline", "scope", "crossing", "score", "options"}


@dataclass(frozen=True)
class Requested:
    """The tables and figures of a spec, in its order.

    Attributes:
        tables: Tables.
        figures: Figures.
        missing: Heading of a report that could not be made → the reason.
    """

    tables: list[TablePart] = field(default_factory=list)
    figures: list[FigurePart] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


@opens_store
def requested(
    store: Snapshot,
    history: History,
    frames: Frames | None,
    baseline: str | None,
    scope: Scope,
    standing: Sequence[TablePart] | None,
    own: Loader | None = None,
    pictures: Pictures | None = None,
) -> Requested:
    """Make the tables and figures that a study's spec asks for.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        history: The history, with the spec.
        frames: Results; None if nothing was evaluated.
        baseline: Label that the page compares with.
        scope: What counts as FLOPs in the page.
        standing: Tables of every page, which are not repeated; None for a page without those, and without
            the figures of every page.
        own: Imports custom tables and figures.
        pictures: Reads the selected examples of runs; None if they can't be read.
    """
    made = Requested()
    names = Counter(() if standing is None else _STANDING)
    for report in history.spec.get("reports", []):
        options = {key: value for key, value in report.items() if value not in (None, [], ())}
        is_table = options.pop("kind") == "table"
        name = str(options.pop("name", "summary")) if is_table else str(report["kind"])
        stem, title = stem_of(name), heading(stem_of(name))
        try:
            if name == "claims" and history.spec.get("claims"):  # the page has a list of them
                continue
            if standing is not None and _is_standing(name, options, frames, baseline, scope):
                continue
            if "runs" in options and frames and baseline not in frames.only(options["runs"]).labels:
                options.setdefault("baseline", None)
            options = {"baseline": baseline, "scope": scope} | options
            part = stem
            if names[stem]:
                part = f"{stem}-{names[stem] + 1}"
                title = f"{title}: {_options_in_words(report) or names[stem] + 1}"
            if is_table:
                given = {key: value for key, value in options.items() if key in _TABLE_OPTIONS}
                table = named_table(
                    store, name, [history.experiment], own=own, shape=Shape.of(options),
                    with_published=options.get("published", True), **given,
                )  # fmt: skip
                others = [*(standing or ()), *made.tables]
                if any(table.markdown() == other.table.markdown() for other in others):
                    continue
                made.tables.append(TablePart(part, title, table))
            else:
                options |= {"sheet": _sheet(history, options), "own": own, "pictures": pictures}
                plot = replace(draw(name, store, history.experiment, **options), name=part)
                made.figures.append(FigurePart(part, title, (plot,), history.experiment))
            names[stem] += 1
        except RequestError as error:
            made.missing[title] = str(error)
    return made


def _options_in_words(report: Mapping[str, Any]) -> str:
    """Describe the options that a report sets, as a heading: "baseline uniform, surfaces"."""
    words = []
    for key, value in {**report, **(report.get("options") or {})}.items():
        if key in ("kind", "name", "figure", "options") or value in (None, [], ()):
            continue
        if isinstance(value, bool):
            words.append(key if value else f"no {key}")
        else:
            words.append(f"{key} {' + '.join(map(str, value)) if isinstance(value, list) else value}")
    return ", ".join(words)


def heading(name: str) -> str:
    """Return the heading of a table or figure of that name."""
    return "LAION" if name == "laion" else name.replace("_", " ").capitalize()


def sheet_of(history: History, kind: str) -> Sheet:
    """Return how the spec wants figures of a kind printed: as its first such report, or else as all."""
    reports = (report for report in history.spec.get("reports", []) if report["kind"] == kind)
    return _sheet(history, next(reports, {}))


def _sheet(history: History, report: Mapping[str, Any]) -> Sheet:
    return Sheet(**report.get("figure") or {}).over(Sheet(**history.spec.get("figure") or {}))


def _is_standing(
    name: str, options: Mapping[str, Any], frames: Frames | None, baseline: str | None, scope: Scope
) -> bool:
    """Return whether a report equals one that every page has."""
    usual = {**_USUAL, "scope": scope}
    if frames is not None and "baseline" in options:
        usual["baseline"] = options["baseline"] if frames.baseline(options["baseline"]) == baseline else None
    if options.get("over") != "examples_seen" or name == "curves":  # the page has all other costs
        usual["over"] = options.get("over")
    other = {key for key, value in options.items() if key not in usual or usual[key] != value}
    return name in _STANDING and not other - {"figure", "published"}
