"""The page: contents as HTML that needs nothing but itself."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ..plots import SUFFIXES
from . import provenance
from .charts import SHOWN_AT_FIRST
from .claimed import told
from .sources import SUFFIX

if TYPE_CHECKING:
    from .contents import Contents
    from .parts import FigurePart, StillPart, TablePart
    from .sources import Sources

_FEW = "at first {} of {:,}: the baseline and the best; bands where few are shown"
_SCRIPTS = ("elements.js", "traces.js", "charts.js", "dialog.js")
"""What the page runs, as one module: each may use what those before it define."""

_PIXELS = 0.65
"""Of the page for one of a printed figure, so that texts are about as large in all of them."""

_MOST_ROWS = {"failures": 200}
"""Longer tables are cut in the page; their files are whole."""


def page(contents: Contents, sources: Sources, folder: str, images: Mapping[str, bytes] | None = None) -> str:
    """Write a report as one HTML document.

    Nothing in it is fetched, and its policy forbids that anything is: scripts run that are named there by
    their digest, so no text of a spec or of a log can become one.

    Args:
        contents: What it says.
        sources: What it was made from.
        folder: Name of the folder beside it, that its links lead to.
        images: PNG of each of its stills, by name.
    """
    from jinja2 import Environment, FunctionLoader
    from markupsafe import Markup

    scripts = ([("text/javascript", _plotly())] if contents.figures else []) + [
        ("module", "\n".join(_own(name) for name in _SCRIPTS))
    ]
    tables = [part.table for part in contents.tables]
    data = {
        "figures": {figure.name: {"variants": figure.variants} for figure in contents.figures},
        "tables": {
            part.name: provenance.of_table(part.table, contents.origins)
            for part in contents.tables
            if part.table.opens
        },
        "runs": provenance.of_runs(tables, contents.origins),
    }
    environment = Environment(autoescape=True, trim_blocks=False, loader=FunctionLoader(_own))
    history = contents.history
    return (
        environment.get_template("page.html.j2").render(
            policy=_policy([script for _, script in scripts]),
            style=Markup(_own("style.css")),
            scripts=[(kind, Markup(script)) for kind, script in scripts],
            data=Markup(_json(data)),
            folder=folder,
            experiment=history.experiment,
            question=history.question,
            kicker=_kicker(contents),
            unfinished=contents.unfinished,
            answer=contents.answer,
            claims=contents.claims and _grid(contents.claims) | {"rows": told(contents.claims)},
            results=[_grid(part) for part in contents.results],
            figures=[_figure(figure) for figure in contents.figures],
            stills=[_still(still, (images or {})[still.plot.name]) for still in contents.stills],
            costs=contents.costs and _grid(contents.costs),
            failures=contents.failures and _grid(contents.failures),
            no_failure="No attempt has failed." if len(history.attempts) else "Nothing was attempted yet.",
            recipe=contents.recipe,
            gaps=contents.gaps,
            not_made=contents.not_made,
            made=sources.common,
            digest=_digest(contents),
        )
        + "\n"
    )


def _policy(scripts: Sequence[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    # Styles: Plotly sets them on its elements. Images: it draws some as data.
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _kicker(contents: Contents) -> str:
    history = contents.history
    parts = [history.experiment, history.scale and f"scale {history.scale}", history.paper]
    runs = sum(history.states().values())
    seeds = history.runs["seed"].nunique()
    parts.append(f"{runs} {'run' if runs == 1 else 'runs'}, {seeds} {'seed' if seeds == 1 else 'seeds'}")
    return " · ".join(part for part in parts if part)


def _grid(part: TablePart) -> dict[str, Any]:
    """A table as the template takes it."""
    from markupsafe import Markup

    table = part.table
    rows, most = len(table.frame), _MOST_ROWS.get(part.name)
    cut = most is not None and rows > most
    return {
        "name": part.name,
        "title": part.title,
        "html": Markup(table.html(opens=True, most=most)),
        "caption": table.caption,
        "notes": table.notes,
        "opens": table.opens,
        "left_out": f"{most} of {rows:,} rows; all are in {part.name}.csv." if cut else "",
        "files": [f"{part.name}.tex", f"{part.name}.csv", part.name + SUFFIX],
    }


def _still(still: StillPart, image: bytes) -> dict[str, Any]:
    plot = still.plot
    return {
        "name": plot.name,
        "title": still.title,
        "caption": plot.texts.caption,
        "width": round(_PIXELS * int.from_bytes(image[16:20])),  # where a PNG has its own
        "image": base64.b64encode(image).decode(),
        "files": [f"{plot.name}{suffix}" for suffix in (*SUFFIXES, SUFFIX)],
    }


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


def _digest(contents: Contents) -> str:
    """SHA-256 of all tables and figures' data, as CSV, one after the other."""
    digest = hashlib.sha256()
    for part in contents.tables:
        digest.update(part.table.csv().encode())
    for plot in contents.plots:
        digest.update(plot.data.to_csv(index=False, lineterminator="\n").encode())
    return digest.hexdigest()


def _json(value: Any) -> str:
    """JSON that can stand in a script element, whatever texts are in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _own(name: str) -> str:
    """A file of this package."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """Plotly's JavaScript, as its Python package ships it."""
    from plotly.offline import get_plotlyjs

    # HTML allows no control characters; in JavaScript's texts an escape means the same.
    return re.sub(r"[\x00-\x08\x0b\x0e-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", get_plotlyjs())
