"""One self-contained HTML document: its policy, its data, and the tables and figures in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ..plots import SUFFIXES
from . import provenance
from .sources import SUFFIX

if TYPE_CHECKING:
    from ..explain import Origins
    from ..plots import Plot
    from .parts import StillPart, TablePart

_PIXELS = 0.65
"""Of the page for one of a printed figure, so that texts are about as large in all of them."""

_MOST_ROWS = {"failures": 200}
"""Longer tables are cut in the page; their files are whole."""


def document(template: str, scripts: Sequence[tuple[str, str]], data: Any, **values: Any) -> str:
    """Write one HTML document.

    Nothing in it is fetched, and its policy forbids that anything is: scripts run that are named there by
    their digest, so no text of a spec or of a log can become one.

    Args:
        template: Name of its template.
        scripts: Type and text of each.
        data: What its scripts read, plain.
        values: What the template takes besides.
    """
    from jinja2 import Environment, FunctionLoader
    from markupsafe import Markup

    environment = Environment(autoescape=True, trim_blocks=False, loader=FunctionLoader(_own))
    return (
        environment.get_template(template).render(
            policy=_policy([script for _, script in scripts]),
            style=Markup(_own("style.css")),
            scripts=[(kind, Markup(script)) for kind, script in scripts],
            data=Markup(_json(data)),
            **values,
        )
        + "\n"
    )


def module(*names: str) -> tuple[str, str]:
    """Scripts of this package as one module: each may use what those before it define."""
    return "module", "\n".join(_own(name) for name in names)


def opened(parts: Iterable[TablePart], origins: Origins) -> dict[str, Any]:
    """What the cells of tables open.

    Args:
        parts: The tables.
        origins: Of the experiments that their runs stand in.
    """
    parts = list(parts)
    return {
        "tables": {part.name: provenance.of_table(part.table, origins) for part in parts if part.table.opens},
        "runs": provenance.of_runs([part.table for part in parts], origins),
    }


def grid(part: TablePart) -> dict[str, Any]:
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


def still(part: StillPart, image: bytes) -> dict[str, Any]:
    """A figure as the template takes it.

    Args:
        part: The figure.
        image: Its PNG.
    """
    plot = part.plot
    return {
        "name": plot.name,
        "title": part.title,
        "caption": plot.texts.caption,
        "width": round(_PIXELS * int.from_bytes(image[16:20])),  # where a PNG has its own
        "image": base64.b64encode(image).decode(),
        "files": [f"{plot.name}{suffix}" for suffix in (*SUFFIXES, SUFFIX)],
    }


def digest(tables: Iterable[TablePart], plots: Iterable[Plot]) -> str:
    """SHA-256 of all tables and figures' data, as CSV, one after the other."""
    found = hashlib.sha256()
    for part in tables:
        found.update(part.table.csv().encode())
    for plot in plots:
        found.update(plot.data.to_csv(index=False, lineterminator="\n").encode())
    return found.hexdigest()


def _policy(scripts: Sequence[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    # Styles: Plotly sets them on its elements. Images: it draws some as data.
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


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
def plotly() -> str:
    """Plotly's JavaScript, as its Python package ships it."""
    from plotly.offline import get_plotlyjs

    # HTML allows no control characters; in JavaScript's texts an escape means the same.
    return re.sub(r"[\x00-\x08\x0b\x0e-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", get_plotlyjs())
