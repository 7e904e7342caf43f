"""The figures of an experiment, by name: `draw("pareto", store, experiment).save(folder)`.

Each figure's module turns results into plain data, and draws that data with Matplotlib for print. `charts`
converts the same data for the page. All modules share `style` (colors), `axes`, `panels` (layout),
`captions`, and `plot` (titles and looks).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

from .. import published as publications
from ..claims import studies
from ..custom import Loader, Results, load
from ..errors import NotYet, RequestError
from ..frames import Frames
from ..results import Snapshot, opened
from ..sheet import PLAIN
from ..sheet import Sheet as Sheet
from ..tuned import with_best
from .against import PRESETS
from .against import Axis as Axis
from .against import against as against
from .against import against_reference as against_reference
from .composition import composition
from .custom import custom_plot
from .learnability import learnability as learnability
from .learning_curves import learning_curves as learning_curves
from .optimizer_spikes import optimizer_spikes as optimizer_spikes
from .pareto import pareto as pareto
from .plot import Plot as Plot
from .published import published_scores as published_scores
from .scaling import scaling
from .selected import selected as selected
from .speedup import speedup as speedup
from .step_costs import method_costs as method_costs
from .step_costs import step_costs as step_costs


def _against(
    frames: Frames,
    x: str,
    by: Sequence[str] = ("selection.rule",),
    split: str | None = None,
    baseline: str | None = None,
) -> Plot:
    return against(frames, Axis(x, tuple(by), split), baseline)


KINDS: dict[str, Callable[..., Plot]] = {
    "curves": learning_curves,
    "pareto": pareto,
    "speedup": speedup,
    "step_costs": step_costs,
    **{name: partial(against, axis=axis, name=name) for name, axis in PRESETS.items()},
    "against_reference": against_reference,
    "optimizer_spikes": optimizer_spikes,
    "learnability": learnability,
    "published": published_scores,
    "against": _against,
    "composition": composition,
    "selected": selected,
    "scaling": scaling,
}
"""Kind → function that makes the figure. `draw` passes sources and options to parameters of the same name."""

_ON_DEMAND = ("published", "against", "composition", "selected", "scaling")
"""Kinds that `all_possible` leaves out: they repeat part of another kind, or need further options."""


def draw(
    kind: str,
    store: str | Snapshot,
    experiment: str = "",
    *,
    sheet: Sheet = PLAIN,
    own: Loader | None = None,
    **options: Any,
) -> Plot:
    """Make the figure of a kind: one of `KINDS`, or custom code.

    Args:
        kind: The kind, or the name of custom code.
        store: SQLAlchemy URL of the store, or a snapshot of it.
        experiment: Name of the experiment; empty for published methods only.
        sheet: Options of the printed figure, which override those of the study's spec.
        own: Imports the code of custom figures; None if it must not be executed.
        options: Options of a report; each kind uses those that apply to it. `runs`, `score`, and `best`
            apply to all; `pictures` reads selected examples from a lab.

    Raises:
        FileNotFoundError: The URL names a SQLite file that doesn't exist.
        ValueError: The kind is unknown, the experiment lacks results for the kind, or custom code fails.
    """
    if kind not in KINDS and own is None and ":" not in kind:
        raise RequestError(f"no figure {kind!r}: choose one of {', '.join(KINDS)}")
    with opened(store) as opened_store:
        if (study := opened_store.once(studies).get(experiment)) is not None:
            sheet = sheet.over(Sheet(**study.spec.get("figure") or {}))

        def frames() -> Any:
            if not experiment:
                return None
            results = opened_store.frames(experiment)
            results = results.scored_by(options["score"]) if options.get("score") else results
            kept = [*options.get("runs", ()), *options.get("highlight", ()), options.get("baseline")]
            results = with_best(opened_store, results, options.get("best", {}), kept)
            return results.only(options["runs"]) if options.get("runs") else results

        if kind in KINDS:
            sources: dict[str, Callable[[], Any]] = {
                "store": lambda: opened_store,
                "experiment": lambda: experiment,
                "sheet": lambda: sheet,
                "frames": frames,
                "cells": lambda: opened_store.once(publications.read),
            }
            names = signature(KINDS[kind]).parameters
            given = {name: options[name] for name in names if name in options}
            plot = KINDS[kind](**given, **{name: sources[name]() for name in names if name in sources})
        else:
            code = load(own, experiment, "figure", kind)
            about = experiment, frames, options.get("baseline"), options.get("scope", "scoring")
            plot = custom_plot(code, Results(opened_store, *about), options.get("options", {}))
        return replace(plot, sheet=sheet)


def all_possible(store: str | Snapshot, experiment: str, **options: Any) -> list[Plot]:
    """Make all figures that an experiment has the results for, in the order of `KINDS`.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        experiment: Name of the experiment.
        options: Arguments of `draw`.

    Raises:
        FileNotFoundError: The URL names a SQLite file that doesn't exist.
        ValueError: The baseline or a metric is unknown, or no figure can be made.
    """
    plots: list[Plot] = []
    missing: list[NotYet] = []
    with opened(store) as opened_store:
        for kind in (kind for kind in KINDS if kind not in _ON_DEMAND):
            try:
                plots.append(draw(kind, opened_store, experiment, **options))
            except NotYet as error:
                if kind == "curves" and options.get("metric"):
                    raise
                missing.append(error)
    if not plots:
        raise missing[0]
    return plots
