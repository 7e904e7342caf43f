"""What a report says, before it is written as a page."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..claims import Study, studies
from ..connection import connect
from ..explain import Origins
from ..frames import Frames
from ..frames import load as load_frames
from ..verdicts import load as load_verdicts
from . import charts
from .answer import Answer, answer
from .asked import Asked, asked, title
from .claimed import claims_part
from .failures import failures
from .history import History
from .history import load as load_history
from .ledger import ledger
from .parts import ClaimsPart, FigurePart, StillPart, TablePart
from .recipe import Recipe, recipe

if TYPE_CHECKING:
    from ..costs import Scope
    from ..plots import Plot


@dataclass(frozen=True)
class Contents:
    """All that a report says.

    Attributes:
        history: What the store knows besides results.
        baseline: Label compared with; None while there is nothing to compare.
        scope: What counts as FLOPs.
        answer: What came out.
        unfinished: How far it is, in words; empty once all runs have completed.
        results: Tables of results.
        figures: Interactive figures.
        costs: The ledger; None where no run has a price or took any time.
        failures: What went wrong; None if nothing did.
        recipe: How to make it again.
        origins: What is behind the runs.
        stills: Figures that are shown as they are printed.
        claims: What it claims, with verdicts; None where it claims nothing.
        gaps: Why a part that readers would look for is not there: name of the part → one sentence.
        not_made: The same of what the spec asks for: title → one sentence.
    """

    history: History
    baseline: str | None
    scope: Scope
    answer: Answer
    unfinished: str
    results: tuple[TablePart, ...]
    figures: tuple[FigurePart, ...]
    costs: TablePart | None
    failures: TablePart | None
    recipe: Recipe
    origins: Origins
    stills: tuple[StillPart, ...] = ()
    claims: ClaimsPart | None = None
    gaps: dict[str, str] = field(default_factory=dict)
    not_made: dict[str, str] = field(default_factory=dict)

    @property
    def tables(self) -> list[TablePart]:
        """Every table of it."""
        others = (self.claims, self.costs, self.failures)
        return [*self.results, *(part for part in others if part is not None)]

    @property
    def plots(self) -> list[Plot]:
        """Every figure of it, as it is printed."""
        return [
            *(plot for figure in self.figures for plot in figure.plots),
            *(still.plot for still in self.stills),
        ]


def gather(url: str, experiment: str, baseline: str | None = None, scope: Scope | None = None) -> Contents:
    """Everything a report says, from one moment of the store.

    Args:
        url: SQLAlchemy URL of the store.
        experiment: Its name.
        baseline: Label or run to compare with; None as the study's reports say, else the first that is no
            reference.
        scope: What counts as FLOPs; None as the study's reports say, else scoring.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: If what is there is no results store, it does not know the experiment, or it has no such
            baseline.
    """
    frames: Frames | None = None
    nothing = ""
    with connect(url) as connection:
        history = load_history(connection, experiment)
        try:
            frames = load_frames(connection, experiment)
        except ValueError as error:
            if history is None or history.runs.empty:
                raise
            nothing = str(error)
        origins = Origins.load(connection, [experiment])
        known = studies(connection)
        judged = load_verdicts(connection, experiment, known, frames)
    assert history is not None
    study = known[experiment]
    scope = study.scope if scope is None else scope
    if baseline is None and frames is not None:
        baseline = compared_with(study, frames)
    contents = _written(history, frames, origins, nothing, baseline, scope)
    contents = replace(contents, claims=claims_part(judged, experiment))
    told = asked(url, history, frames, contents.baseline, scope)
    stills = told.stills + _diagnosis(url, experiment, told)
    contents = replace(contents, results=contents.results + told.tables, stills=stills, not_made=told.gaps)
    if contents.claims is not None:
        verdicts, said = contents.claims.table.caption, contents.answer
        if frames is None or len(frames.competitors) < 2:  # no runs compete: there is no more to say
            return replace(contents, answer=Answer(verdicts))
        return replace(contents, answer=replace(said, sentence=f"{verdicts} {said.sentence}"))
    if stills and frames is None:
        looked = Answer("No run of this study is evaluated: it looks into what is selected.")
        return replace(contents, answer=looked)
    return contents


def compared_with(study: Study, frames: Frames) -> str | None:
    """The label that a study's reports compare with; None where they say none, or one that is not there.

    That may be one of a run of several points, or of one that has not been evaluated: a report that needs
    it says so itself.
    """
    if study.baseline is None:
        return None
    try:
        return frames.label_of(study.baseline)
    except ValueError:
        return None


def _written(
    history: History,
    frames: Frames | None,
    origins: Origins,
    nothing: str,
    baseline: str | None,
    scope: Scope,
) -> Contents:
    gaps = {"results": nothing} if nothing else {}
    compared = None if frames is None else frames.baseline(baseline)
    results: list[TablePart] = []
    figures: list[FigurePart] = []
    said = Answer("Nothing has been evaluated yet.")
    if frames is not None and compared is not None:
        from ..tables import speedup_table, summary

        try:
            table = summary(frames, compared, scope)
        except ValueError as error:
            gaps["results"] = str(error)
            said = Answer("No run has completed yet.")
        else:
            results.append(TablePart("summary", "Final scores", table))
            said = answer(table.frame, frames, compared, scope)
        with contextlib.suppress(ValueError):  # without a baseline that completed nothing can be compared
            if len(frames.competitors) > 1:
                results.append(TablePart("speedups", "Speed-ups", speedup_table(frames, compared, scope)))
        figures = _figures(frames, compared, scope, gaps)
    costs, wrong = ledger(history), failures(history)
    return Contents(
        history=history,
        baseline=compared,
        scope=scope,
        answer=said,
        unfinished=unfinished(history),
        results=tuple(results),
        figures=tuple(figures),
        costs=None if costs is None else TablePart("costs", "Costs", costs),
        failures=None if wrong is None else TablePart("failures", "Failures", wrong),
        recipe=recipe(history, baseline, scope),
        origins=origins,
        gaps=gaps,
    )


def _figures(frames: Frames, baseline: str, scope: Scope, gaps: dict[str, str]) -> list[FigurePart]:
    from ..figures import learning_curves, pareto

    parts = []
    plots: dict[str, Plot] = {}
    try:
        plots["examples seen"] = learning_curves(frames, baseline, scope=scope)
        plots["training FLOPs"] = replace(
            learning_curves(frames, baseline, "flops", scope), name="curves_flops"
        )
    except ValueError as error:
        gaps["curves"] = str(error)
    if plots:
        parts.append(_part("curves", "Learning curves", plots, charts.curves))
    try:
        plot = pareto(frames, baseline, scope)
    except ValueError as error:
        gaps["pareto"] = str(error)
    else:
        parts.append(_part("pareto", "Accuracy against FLOPs", {"training FLOPs": plot}, charts.pareto))
    return parts


def _part(
    name: str, title: str, plots: dict[str, Plot], chart: Callable[[Plot], dict[str, Any]]
) -> FigurePart:
    variants = {axis: chart(plot) for axis, plot in plots.items()}
    return FigurePart(
        name,
        title,
        tuple(plot.texts.caption for plot in plots.values()),
        variants,
        tuple(charts.printable(plot, variants[axis]) for axis, plot in plots.items()),
    )


def _diagnosis(url: str, experiment: str, told: Asked) -> tuple[StillPart, ...]:
    """How learnable the selected batches are, where that was diagnosed and its spec does not ask for it."""
    from ..frames import diagnosed
    from ..learnability import learnability

    if any(still.plot.name == "learnability" for still in told.stills) or not diagnosed(url, experiment):
        return ()
    return (StillPart(title("learnability"), learnability(url, experiment)),)


def unfinished(history: History) -> str:
    """How far an experiment is, in words; empty once all runs have completed."""
    states = history.states()
    done, planned = states.get("COMPLETED", 0), sum(states.values())
    if done == planned:
        return ""
    others = ", ".join(f"{count} {state.lower()}" for state, count in states.items() if state != "COMPLETED")
    shown = "Scores below are of those that have." if done else "So there is no final score yet."
    return f"{done} of {planned} runs have completed; {others}. {shown}"
