"""The page of a study: answer, claims, tables, figures, costs, failures, and recipe."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from ..claims import studies
from ..claims.judged import Judged
from ..claims.verdicts import load as load_verdicts
from ..costs import Scope
from ..curves import score_curves
from ..custom import Loader
from ..efforts import WORDS, cost_of, known
from ..errors import NotYet
from ..figures import Plot, charts, learnability, learning_curves, pareto
from ..figures.selected import Pictures
from ..frames import Frames
from ..provenance.history import History, load, recipe
from ..provenance.soundness import Soundness
from ..results import Snapshot, opens_store
from ..tables import finals, speedup_table, summary
from ..tables.claims import claims_table
from ..tables.explain import Origins
from .answer import Answer, answer
from .page import FigurePart, PageSection, ReportPage, TablePart
from .requested import heading, requested, sheet_of
from .tables import cost_table, failure_table, machine_time


@opens_store
def study_page(
    store: Snapshot,
    experiment: str,
    baseline: str | None = None,
    scope: Scope | None = None,
    own: Loader | None = None,
    pictures: Pictures | None = None,
) -> ReportPage:
    """Collect the contents of the page of a study; arguments as of `report.build`."""
    missing: dict[str, str] = {}
    frames = results_of(store, experiment, missing)
    history = store.once(load, experiment)
    assert history is not None
    study = store.once(studies)[experiment]
    scope = study.scope if scope is None else scope
    compared = None if frames is None else frames.baseline(baseline)
    said = Answer("Nothing has been evaluated yet.")
    tables: list[TablePart] = []
    figures: list[FigurePart] = []
    if frames is not None and compared is not None:
        said, tables = _results(frames, compared, scope, missing)
        figures = _charts(frames, history, compared, scope, missing)
        sound = Soundness.read(store, [experiment])
        tables = [replace(part, table=part.table.marked(sound)) for part in tables]
        struck = {
            part.table.shown.get(row, row): why for part in tables for row, why in part.table.struck.items()
        }
        if struck:
            reasons = "; ".join(f"{row} ({why})" for row, why in struck.items())
            said = replace(said, sentence=f"Some results are retracted: {reasons}. {said.sentence}")
    extra = requested(store, history, frames, compared, scope, tables, own, pictures)
    figures += extra.figures
    if all(part.name != "learnability" for part in figures):
        with contextlib.suppress(NotYet):
            plot = learnability(store, experiment)
            figures.append(FigurePart(plot.name, heading(plot.name), (plot,), experiment))
    sections: list[PageSection] = []
    if judged := load_verdicts(store, experiment):
        claims = claims_part(judged, experiment)
        sections.append(PageSection("claims", claims.title, claims=claims))
        verdicts = claims.table.caption
        competes = frames is not None and len(frames.competitors) >= 2
        said = replace(said, sentence=f"{verdicts} {said.sentence}") if competes else Answer(verdicts)
    elif figures and frames is None:
        said = Answer("This study evaluates no run: it examines the selected examples.")
    texts = {name: (f"{what}: {missing[name]}.",) for name, what in _UNAVAILABLE.items() if name in missing}
    sections += [
        PageSection("results", "Results", texts=texts.get("results", ()), tables=(*tables, *extra.tables)),
        *(PageSection(name, _CHARTS[name], texts=texts[name]) for name in _CHARTS if name in texts),
        *(PageSection(part.name, part.title, figures=(part,)) for part in figures),
    ]
    if extra.missing:
        sections.append(PageSection("not-made", "Not available yet", missing=extra.missing))
    sections += [
        *_about_runs(history),
        PageSection("reproduce", "How to reproduce", recipe=recipe(history, baseline, scope)),
    ]
    options = {"baseline": compared, "scope": scope}
    origins = Origins([history])
    return ReportPage(store.url, history, options, said, unfinished(history), tuple(sections), origins)


_NO_COSTS = "No run has a planned price or has taken any time yet."
_CHARTS = {"curves": "Learning curves", "pareto": "Score against cost"}
_UNAVAILABLE = {"results": "No table yet", **dict.fromkeys(_CHARTS, "No figure")}


def results_of(store: Snapshot, experiment: str, missing: dict[str, str]) -> Frames | None:
    """Return the results of an experiment; None, with the reason in `missing`, if nothing was evaluated."""
    try:
        return store.frames(experiment)
    except NotYet as error:
        missing["results"] = str(error)
        return None


def claims_part(judged: list[Judged], experiment: str, by_study: bool = False) -> TablePart:
    """Make the table of claims; of those of several studies, with the study of each."""
    return TablePart("claims", "Claims", claims_table(judged, experiment, by_study), tuple(judged))


def unfinished(history: History) -> str:
    """Describe the progress of an experiment in words; empty once all runs have completed."""
    states = history.states()
    done, planned = states.get("COMPLETED", 0), sum(states.values())
    if done == planned:
        return ""
    others = ", ".join(f"{count} {state.lower()}" for state, count in states.items() if state != "COMPLETED")
    scores = "Scores below are of the completed runs." if done else "No run has a final score yet."
    return f"{done} of {planned} runs have completed; {others}. {scores}"


def _results(
    frames: Frames, baseline: str, scope: Scope, missing: dict[str, str]
) -> tuple[Answer, list[TablePart]]:
    """Make the answer, and the tables of every page."""
    try:
        found = finals(frames, baseline, scope)
    except NotYet as error:
        missing["results"] = str(error)
        return Answer("No run has completed yet."), []
    table = summary(found)
    parts = [TablePart("summary", "Final scores", table)]
    with contextlib.suppress(NotYet):  # without a completed baseline nothing can be compared
        if len(frames.competitors) > 1:
            parts.append(TablePart("speedups", "Speed-ups", speedup_table(found)))
    return answer(table.frame, found), parts


def _charts(
    frames: Frames, history: History, baseline: str, scope: Scope, missing: dict[str, str]
) -> list[FigurePart]:
    """Make the interactive figures of every page, one variant for each known effort or cost."""
    curves = score_curves(frames, scope)
    efforts = known(curves)
    cost = cost_of(curves[curves["final"]])
    costs = [cost, *(each for each in efforts if each not in (cost, "examples_seen"))]

    sheets = {kind: sheet_of(history, kind) for kind in _CHARTS}
    together = sheets["curves"].legend is not None
    parts = []
    for name, axes in {"curves": efforts or ["examples_seen"], "pareto": costs}.items():
        variants: dict[str, dict[str, Any]] = {}
        plots: list[Plot] = []
        for effort in axes:
            stem = f"{name}_{WORDS[effort].name}" if variants else name
            try:
                if name == "curves":
                    plot = learning_curves(frames, baseline, effort, scope, together=together)
                else:
                    plot = pareto(frames, baseline, scope, over=effort)
            except NotYet as error:
                if not variants:
                    missing[name] = str(error)
                    break
                continue  # only unfinished runs have it
            plot = replace(plot, name=stem, sheet=sheets[name])
            variant = charts.curves(plot) if name == "curves" else charts.pareto(plot)
            variant |= {"caption": plot.texts.caption, "printed": stem}
            variants[WORDS[effort].axis] = variant
            plots.append(charts.printable(plot, variant))
        if variants:
            parts.append(FigurePart(name, _CHARTS[name], tuple(plots), history.experiment, variants))
    return parts


def _about_runs(history: History) -> list[PageSection]:
    """Make the sections about costs, machine time, and failures."""
    none = "No attempt has failed." if history.attempts else "No run has been attempted yet."
    sections = []
    for name, title, table, text in (
        ("costs", "Planned and actual costs", cost_table(history), _NO_COSTS),
        ("failures", "Failed attempts", failure_table(history), none),
    ):
        tables = [] if table is None else [TablePart(name, title, table)]
        sections.append(PageSection(name, name.capitalize(), texts=() if tables else (text,), tables=tables))
    if (time := machine_time(history)) is not None:
        part = TablePart("goodput", "Shares of machine time", time.table)
        title = "Where the machines’ time went"
        sections.insert(1, PageSection("goodput", title, texts=[time.sentence], time=time, tables=[part]))
    return sections
