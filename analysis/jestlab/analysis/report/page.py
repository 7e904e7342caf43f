"""The page of an experiment: contents as HTML that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..plots import SUFFIXES
from .charts import SHOWN_AT_FIRST
from .claimed import told
from .document import digest, document, grid, module, opened, plotly, still
from .sources import SUFFIX

if TYPE_CHECKING:
    from .contents import Contents
    from .parts import FigurePart
    from .sources import Sources

_FEW = "at first {} of {:,}: the baseline and the best; bands where few are shown"


def page(contents: Contents, sources: Sources, folder: str, images: Mapping[str, bytes] | None = None) -> str:
    """Write a report as one HTML document.

    Args:
        contents: What it says.
        sources: What it was made from.
        folder: Name of the folder beside it, that its links lead to.
        images: PNG of each of its stills, by name.
    """
    scripts = [("text/javascript", plotly())] if contents.figures else []
    charts = {figure.name: {"variants": figure.variants} for figure in contents.figures}
    history = contents.history
    return document(
        "page.html.j2",
        [*scripts, module("elements.js", "traces.js", "charts.js", "dialog.js")],
        {"figures": charts, **opened(contents.tables, contents.origins)},
        folder=folder,
        experiment=history.experiment,
        question=history.question,
        kicker=_kicker(contents),
        unfinished=contents.unfinished,
        answer=contents.answer,
        claims=contents.claims and grid(contents.claims) | {"rows": told(contents.claims)},
        results=[grid(part) for part in contents.results],
        figures=[_figure(figure) for figure in contents.figures],
        stills=[still(each, (images or {})[each.plot.name]) for each in contents.stills],
        costs=contents.costs and grid(contents.costs),
        failures=contents.failures and grid(contents.failures),
        no_failure="No attempt has failed." if len(history.attempts) else "Nothing was attempted yet.",
        recipe=contents.recipe,
        gaps=contents.gaps,
        not_made=contents.not_made,
        made=sources.common,
        digest=digest(contents.tables, contents.plots),
    )


def _kicker(contents: Contents) -> str:
    history = contents.history
    parts = [history.experiment, history.scale and f"scale {history.scale}", history.paper]
    runs = sum(history.states().values())
    seeds = history.runs["seed"].nunique()
    parts.append(f"{runs} {'run' if runs == 1 else 'runs'}, {seeds} {'seed' if seeds == 1 else 'seeds'}")
    return " · ".join(part for part in parts if part)


def _figure(figure: FigurePart) -> dict[str, Any]:
    most = max(len(variant["series"]) for variant in figure.variants.values())
    limited = most > SHOWN_AT_FIRST
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.captions[0],
        "limited": _FEW.format(SHOWN_AT_FIRST, most) if limited else "",
        "files": [f"{plot.name}{suffix}" for plot in figure.plots for suffix in (*SUFFIXES, SUFFIX)],
    }
