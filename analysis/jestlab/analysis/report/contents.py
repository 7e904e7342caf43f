"""What the page of a study says, before it is written as HTML: its answer, tables, figures and recipe."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..claims import studies
from ..claims.judged import Judged
from ..claims.verdicts import load as load_verdicts
from ..costs import Scope
from ..curves import score_curves
from ..custom import Loader, stem_of
from ..efforts import WORDS, known
from ..figures import Plot, Request, charts, draw, learnability, learning_curves, pareto
from ..figures.selected import Pictures
from ..frames import Frames, NotYet
from ..provenance.explain import Origins
from ..provenance.history import History, Recipe, recipe
from ..provenance.history import load as load_history
from ..provenance.soundness import Soundness
from ..results import Snapshot, opens_store
from ..sheet import Sheet
from ..tables import Shape, finals, speedup_table, summary
from ..tables import table as named_table
from ..tables.claims import claims_table
from ..tables.core import Table
from .answer import Answer, answer
from .machine_time import MachineTime, machine_time
from .tables import TablePart, cost_breakdown, failures


@dataclass(frozen=True)
class FigurePart:
    """An interactive figure of a report, drawn by the page itself.

    Attributes:
        name: Its anchor in the page.
        title: Heading above it.
        caption: Text below it, of its first variant.
        variants: Name of a horizontal axis → data for report/charts.js; one or several.
        plots: The same figures as they are printed.
    """

    name: str
    title: str
    caption: str
    variants: dict[str, dict[str, Any]]
    plots: tuple[Plot, ...]

    @property
    def limited(self) -> str:
        """Which of very many series are shown when the page opens; empty if it is all."""
        most, few = max(len(variant["series"]) for variant in self.variants.values()), charts.SHOWN_AT_FIRST
        said = f"initially {few} of {most:,}: the baseline and the best; bands if few are shown"
        return said if most > few else ""


@dataclass(frozen=True)
class StillPart:
    """A figure of a report that the page shows as it is printed.

    Attributes:
        title: Heading above it.
        plot: Its name is the stem of its file names, and its anchor in the page.
    """

    title: str
    plot: Plot

    @property
    def name(self) -> str:
        """Its anchor in the page."""
        return self.plot.name


@dataclass(frozen=True)
class Contents:
    """Everything that the page of a study says.

    Attributes:
        history: What the store knows besides results.
        baseline: Label compared with; None while there is nothing to compare.
        scope: What counts as FLOPs.
        answer: The answer to the study's question.
        unfinished: Its progress, in words; empty once all runs have completed.
        results: Tables of results.
        figures: Interactive figures.
        costs: Planned and actual costs; None if no run has a price or took any time.
        time: Where the machines' time went; None if no attempt measured it.
        failures: What went wrong; None if nothing did.
        recipe: How to reproduce it.
        origins: Runs and attempts behind its numbers.
        stills: Figures shown as they are printed.
        claims: What it claims, with verdicts; None if it claims nothing.
        gaps: Name of a part that readers would look for → why it is missing, one sentence.
        not_made: Title of a report that the spec asks for → why it could not be made, one sentence.
    """

    history: History
    baseline: str | None
    scope: Scope
    answer: Answer
    unfinished: str
    results: tuple[TablePart, ...]
    figures: tuple[FigurePart, ...]
    costs: TablePart | None
    time: MachineTime | None
    failures: TablePart | None
    recipe: Recipe
    origins: Origins
    stills: tuple[StillPart, ...] = ()
    claims: TablePart | None = None
    gaps: dict[str, str] = field(default_factory=dict)
    not_made: dict[str, str] = field(default_factory=dict)

    @property
    def tables(self) -> list[TablePart]:
        """All tables of the page."""
        others = (self.claims, self.costs, self.time.part if self.time else None, self.failures)
        return [*self.results, *(part for part in others if part is not None)]

    @property
    def plots(self) -> list[Plot]:
        """All figures of the page, as they are printed."""
        printed = (plot for figure in self.figures for plot in figure.plots)
        return [*printed, *(still.plot for still in self.stills)]


@opens_store
def gather(
    store: Snapshot,
    experiment: str,
    baseline: str | None = None,
    scope: Scope | None = None,
    own: Loader | None = None,
    pictures: Pictures | None = None,
) -> Contents:
    """Collect everything that the page of a study says, from one moment of the store.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        experiment: Name of the experiment.
        baseline: Label or run to compare with; None for that of the study's reports, else its first
            non-reference run.
        scope: What counts as FLOPs; None for that of the study's reports, else scoring.
        own: Imports the figures and tables of one's own that the spec asks for.
        pictures: Reads what runs selected; None where that cannot be read.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: If the URL names no results store, or there is no such experiment or baseline.
    """
    frames: Frames | None = None
    gaps: dict[str, str] = {}
    try:
        frames = store.frames(experiment)
    except NotYet as error:
        gaps["results"] = str(error)
    history = store.once(load_history, experiment)
    assert history is not None
    judged = load_verdicts(store, experiment)
    sound = Soundness.read(store, [experiment])
    study = store.once(studies)[experiment]
    scope = study.scope if scope is None else scope
    compared = None if frames is None else frames.baseline(baseline)
    said = Answer("Nothing has been evaluated yet.")
    results: list[TablePart] = []
    figures: list[FigurePart] = []
    if frames is not None and compared is not None:
        said, results = _results(frames, compared, scope, gaps)
        figures = _figures(frames, history, compared, scope, gaps)
        results = [replace(part, table=part.table.marked(sound)) for part in results]
        if retracted := {
            part.table.shown.get(row, row): why for part in results for row, why in part.table.struck.items()
        }:
            told = "; ".join(f"{row} ({why})" for row, why in retracted.items())
            said = replace(said, sentence=f"Some results are retracted: {told}. {said.sentence}")
    extra = requested(store, history, frames, compared, scope, own=own, pictures=pictures)
    stills = extra.stills
    if all(still.name != "learnability" for still in stills):
        with contextlib.suppress(ValueError):  # no run of `diagnose` has completed
            stills += (StillPart(title("learnability"), learnability(store, experiment)),)
    claims = claims_part(judged, experiment)
    if claims is not None:
        competes = frames is not None and len(frames.competitors) >= 2
        verdicts = claims.table.caption
        said = replace(said, sentence=f"{verdicts} {said.sentence}") if competes else Answer(verdicts)
    elif stills and frames is None:
        said = Answer("No run of this study is evaluated: it examines what is selected.")
    costs, wrong = cost_breakdown(history), failures(history)
    return Contents(
        history=history,
        baseline=compared,
        scope=scope,
        answer=said,
        unfinished=unfinished(history),
        results=(*results, *extra.tables),
        figures=tuple(figures),
        costs=None if costs is None else TablePart("costs", "Costs", costs),
        time=machine_time(history),
        failures=None if wrong is None else TablePart("failures", "Failures", wrong),
        recipe=recipe(history, baseline, scope),
        origins=Origins([history]),
        stills=stills,
        claims=claims,
        gaps=gaps,
        not_made=extra.gaps,
    )


def claims_part(judged: list[Judged], experiment: str, by_study: bool = False) -> TablePart | None:
    """Make the table of claims of a page; None if there are none.

    Args:
        judged: Claims with their verdicts.
        experiment: Name of the page's experiment.
        by_study: Whether the claims are of several studies.
    """
    if not judged:
        return None
    return TablePart("claims", "Claims", claims_table(judged, experiment, by_study), tuple(judged))


def unfinished(history: History) -> str:
    """Describe the progress of an experiment in words; empty once all runs have completed."""
    states = history.states()
    done, planned = states.get("COMPLETED", 0), sum(states.values())
    if done == planned:
        return ""
    others = ", ".join(f"{count} {state.lower()}" for state, count in states.items() if state != "COMPLETED")
    scores = "Scores below are of the completed runs." if done else "There is no final score yet."
    return f"{done} of {planned} runs have completed; {others}. {scores}"


def title(name: str) -> str:
    """Return the heading over a table or figure of that name."""
    return "LAION" if name == "laion" else name.replace("_", " ").capitalize()


def _results(
    frames: Frames, baseline: str, scope: Scope, gaps: dict[str, str]
) -> tuple[Answer, list[TablePart]]:
    """The answer and the tables that every page has."""
    try:
        found = finals(frames, baseline, scope)
    except ValueError as error:
        gaps["results"] = str(error)
        return Answer("No run has completed yet."), []
    table = summary(found)
    parts = [TablePart("summary", "Final scores", table)]
    with contextlib.suppress(ValueError):  # without a completed baseline nothing can be compared
        if len(frames.competitors) > 1:
            parts.append(TablePart("speedups", "Speed-ups", speedup_table(found)))
    return answer(table.frame, found), parts


def _figures(
    frames: Frames, history: History, baseline: str, scope: Scope, gaps: dict[str, str]
) -> list[FigurePart]:
    """The figures that every page has, printed as the spec's report of their kind, or its study, says."""
    parts = []
    reports = {str(report["kind"]): report for report in reversed(history.spec.get("reports", []))}
    sheets = {kind: _sheet(history, reports.get(kind, {})) for kind in ("curves", "pareto")}
    try:
        plots: dict[str, Plot] = {}
        for effort in known(score_curves(frames, scope)) or ["examples_seen"]:
            name = "curves_" + WORDS[effort].name if plots else "curves"
            with contextlib.suppress(ValueError) if plots else contextlib.nullcontext():
                together = sheets["curves"].legend is not None
                plot = learning_curves(frames, baseline, effort, scope, together=together)
                plots[WORDS[effort].axis] = replace(plot, name=name, sheet=sheets["curves"])
        parts.append(_interactive("curves", "Learning curves", plots, charts.curves))
    except ValueError as error:
        gaps["curves"] = str(error)
    try:
        first = replace(pareto(frames, baseline, scope), sheet=sheets["pareto"])
        plots = {first.texts.x: first}
        for effort in known(score_curves(frames, scope)):
            if effort != "examples_seen" and WORDS[effort].axis not in plots:
                with contextlib.suppress(ValueError):  # only runs that are under way have it
                    other = pareto(frames, baseline, scope, cost=effort)
                    name = f"pareto_{WORDS[effort].name}"
                    plots[WORDS[effort].axis] = replace(other, name=name, sheet=sheets["pareto"])
        parts.append(_interactive("pareto", "Score against cost", plots, charts.pareto))
    except ValueError as error:
        gaps["pareto"] = str(error)
    return parts


def _interactive(
    name: str, heading: str, plots: dict[str, Plot], chart: Callable[[Plot], dict[str, Any]]
) -> FigurePart:
    variants = {
        axis: {**chart(plot), "caption": plot.texts.caption, "printed": plot.name}
        for axis, plot in plots.items()
    }
    printed = tuple(charts.printable(plot, variants[axis]) for axis, plot in plots.items())
    return FigurePart(name, heading, next(iter(plots.values())).texts.caption, variants, printed)


_ALWAYS: dict[str, dict[str, Any]] = {
    "summary": {"mean": "all", "crossing": "first"},
    "speedups": {"mean": "all", "crossing": "first"},
    "claims": {},
    "curves": {},
    "pareto": {"trajectories": False, "surfaces": False},
}
"""Tables and figures that every page has → their options there besides baseline and scope."""

_OPTIONS = {each.name for each in fields(Request)} - {"store", "experiment", "sheet", "own"}
"""Options of figures."""

_TABLE_OPTIONS = ("baseline", "scope", "mean", "crossing", "published", "score", "options")
_RENAMED = {"published": "with_published"}
"""Options of tables, and how `tables.table` calls them."""


@dataclass(frozen=True)
class Requested:
    """The reports that a spec asks for and that not every page has, in its order.

    Attributes:
        tables: Tables.
        stills: Figures.
        gaps: Heading of a report that could not be made → why, one sentence.
    """

    tables: tuple[TablePart, ...] = ()
    stills: tuple[StillPart, ...] = ()
    gaps: dict[str, str] = field(default_factory=dict)


@opens_store
def requested(
    store: Snapshot,
    history: History,
    frames: Frames | None,
    baseline: str | None,
    scope: Scope,
    everything: bool = False,
    own: Loader | None = None,
    pictures: Pictures | None = None,
) -> Requested:
    """Make the tables and figures that a study's spec asks for.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        history: With the spec.
        frames: Results; None if nothing was evaluated.
        baseline: Label that the page compares with.
        scope: What counts as FLOPs in the page.
        everything: Whether to include those that the page of every study has, except for claims.
        own: Imports the figures and tables of one's own.
        pictures: Reads what runs selected; None where that cannot be read.
    """

    def table_of(name: str, options: Mapping[str, Any]) -> Table:
        known = {_RENAMED.get(key, key): value for key, value in options.items() if key in _TABLE_OPTIONS}
        known["shape"] = Shape.of(options)
        return named_table(store, name, [history.experiment], own=own, **known)

    def plot_of(kind: str, options: Mapping[str, Any]) -> Plot:
        known: dict[str, Any] = {key: value for key, value in options.items() if key in _OPTIONS}
        known |= {key: tuple(value) for key, value in known.items() if isinstance(value, list)}
        known["sheet"] = _sheet(history, options)
        return draw(kind, Request(store, history.experiment, own=own, pictures=pictures, **known))

    tables: list[TablePart] = []
    stills: list[StillPart] = []
    gaps: dict[str, str] = {}
    seen = Counter(() if everything else _ALWAYS.keys())
    for report in history.spec.get("reports", []):
        options = {key: value for key, value in report.items() if value not in (None, [], ())}
        is_table = options.pop("kind") == "table"
        name = str(options.pop("name", "summary")) if is_table else str(report["kind"])
        stem = stem_of(name)
        heading = title(stem)
        try:
            there = not everything if name != "claims" else bool(history.spec.get("claims"))
            if there and _is_on_every_page(name, options, frames, baseline, scope):
                continue
            seen[stem] += 1
            part = stem
            if seen[stem] > 1:
                part, heading = f"{stem}-{seen[stem]}", f"{heading}: {_in_words(options)}"
            compared = baseline
            if frames is not None and "runs" in options:
                compared = baseline if baseline in frames.only(options["runs"]).labels else None
            options = {"baseline": compared, "scope": scope} | options
            if is_table:
                tables.append(TablePart(part, heading, table_of(name, options)))
            else:
                stills.append(StillPart(heading, replace(plot_of(name, options), name=part)))
        except ValueError as error:
            gaps[heading] = str(error)
    return Requested(tuple(tables), tuple(stills), gaps)


def _sheet(history: History, report: Mapping[str, Any]) -> Sheet:
    """How a figure of a report is printed: as the report says, else as the study does."""
    return Sheet.parse(report.get("figure") or {}).over(Sheet.parse(history.spec.get("figure") or {}))


def _is_on_every_page(
    name: str, options: Mapping[str, Any], frames: Frames | None, baseline: str | None, scope: Scope
) -> bool:
    """Whether a report equals the one of its name that every page has."""
    named = options.get("baseline")
    if frames is not None and named is not None and frames.baseline(named) != baseline:
        return False
    shaping = (each.name for each in fields(Shape))
    other = {"runs", "score", "metric", "smooth", "scale", "highlight", *shaping} & options.keys()
    fits = name in _ALWAYS and not other and options.get("scope", scope) == scope
    fits &= (name, options.get("over")) != ("pareto", "examples_seen")  # the page has the other costs
    return fits and all(options.get(key, value) == value for key, value in _ALWAYS[name].items())


def _in_words(options: Mapping[str, Any]) -> str:
    """Options of a report in words: "baseline joint, over examples seen, surfaces"."""
    words = []
    plain = {**options, **options.get("options", {})}  # those of a function of one's own are no less words
    for key, value in sorted(plain.items()):
        if key in ("options", "figure", "caption", "label", "notes", "width"):  # the words around it
            continue
        if key in ("runs", "rows") and "baseline" in options:  # which is enough
            continue
        if key == "over":
            words.append(f"over {WORDS[value].axis}")
            continue
        text = ", ".join(value) if isinstance(value, list | tuple) else str(value)
        words.append(key.replace("_", " ") + ("" if value is True else f" {text}"))
    return ", ".join(words) or "again"
