"""Render a page as HTML: as one self-contained document, or as a part of another page."""

import base64
import gzip
import hashlib
import io
import json
import math
import shlex
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import resources
from itertools import chain
from typing import Any

from jinja2 import FunctionLoader, Template
from markupsafe import Markup
from PIL import Image

from ..claims.evidence import Verdict
from ..colors import LabelColor
from ..intervals import direction
from ..tables.claims import MARKS
from ..tables.core import Record, records
from ..tables.explain import page_data
from ..tables.formats import OnPage, environment, prose
from ..units import sentence
from .page import FigurePart, ReportPage, TablePart, progress

SCRIPTS = ("page.js", "copies.js", "plot.js", "charts.js")
"""The scripts of a page, joined in this order; `begin()` starts them."""

HEAD_SCRIPT = "theme.js"
"""The script that must run before the page is drawn."""

PROVENANCE = "provenance.json"
"""Name of the file with the explanations of all cells, which the page reads when a cell is first opened."""

_PIXELS = 0.65
"""Pixels of the page for one pixel of a printed figure, so that all figures have about the same text size."""

_COLORS = 128
"""Number of colors of a figure in the page: enough for its lines and their smooth edges."""

BETWEEN = "<hr hidden>"
"""Separates the answer from the sections in the part of another page."""

_CLASSES: dict[Verdict, str] = {"holds": "good", "does not hold": "bad"}
"""Verdict → CSS class; "open" for the others."""

LogLink = Callable[[Record], str]
"""Returns the address of the log in a row of the table of failures; empty if it can't be reached."""


def document(
    page: ReportPage,
    embedded: Mapping[str, bytes],
    image: Callable[[FigurePart], bytes],
    log: LogLink,
) -> str:
    """Render a page as one HTML document.

    The document loads nothing else; its content security policy forbids it. The policy allows only our
    script, by its digest, so that no text of a spec or a log can run as a script.

    Args:
        page: The contents.
        embedded: Name → content of the files of tables and figures to include in the document.
        image: Returns the PNG of a figure.
        log: Links to logs.
    """
    script = "\n".join([*map(own_file, SCRIPTS), "begin();"])
    scripts = {"script": script, "head_script": own_file(HEAD_SCRIPT)}
    digests = (_base64(hashlib.sha256(text.encode()).digest()) for text in scripts.values())
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    policy = (  # cells have styles; images are data
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    files = {name: content for name, content in embedded.items() if not name.endswith(".png")}
    files[PROVENANCE] = provenance(page)
    parts = {name: Markup(text) for name, text in (scripts | {"style": style()}).items()}
    return fragment(
        page, lambda part: _image(image(part), small=bool(part.variants)), log,
        embedded=files, document=parts | {"policy": policy},
    )  # fmt: skip


def fragment(
    page: ReportPage,
    image: Callable[[FigurePart], Mapping[str, Any]],
    log: LogLink,
    place: str = "",
    embedded: Mapping[str, bytes] | None = None,
    document: Mapping[str, str] | None = None,
) -> str:
    """Render a page as a part of another page, without its scripts, or as a document.

    Args:
        page: The contents.
        image: Returns the `src` and the `width` of a figure.
        log: Links to logs.
        place: Address of its files, with FILE instead of a name; empty if they are embedded.
        embedded: Name → content of the embedded files.
        document: Scripts, style, and policy of a document.
    """
    files = embedded or {}
    data = {
        "figures": {part.name: {"variants": part.variants} for part in page.figures if part.variants},
        "files": {name: _base64(gzip.compress(content, mtime=0)) for name, content in files.items()},
        "place": place,
    }
    text = template().render(
        page=page, image=image, document=document, data=Markup(as_json(data)),
        unfinished=progress(page.history), on_page=lambda part: _on_page(part, page.colors, log),
    )  # fmt: skip
    return f"{text}\n"


@cache
def template() -> Template:
    """Return the template of a page, which takes a while to compile."""
    made = environment(FunctionLoader(own_file))
    made.filters |= {
        "prose": lambda text: Markup(prose(text).replace(" = ", "\u00a0=\u00a0")),
        "sentence": sentence,
        "quote": shlex.quote,
    }
    made.globals |= {"marks": MARKS, "classes": _CLASSES, "between": BETWEEN}
    return made.get_template("page.html.j2")


def _on_page(part: TablePart, colors: Mapping[str, LabelColor], log: LogLink) -> OnPage:
    """Return how a page shows a table: with the colors of its labels, drawings, and links to logs."""
    swatch = Markup('<i class="swatch" style="background:{}"></i>')
    labels = [row for row in part.shown.rows if row in colors] if part.table.opens else []
    after = _drawings(part)
    if part.name == "failures":
        link = Markup(' <a href="{}">Open</a>')
        rows = records(part.shown.frame)
        after = {(row["row"], "log"): link.format(place) for row in rows if (place := log(row))}
    return OnPage(
        part.name,
        hidden=part.hidden,
        before={row: swatch.format(colors[row].css) for row in labels},
        after=after,
    )


def _drawings(part: TablePart) -> dict[tuple[str, str], Markup]:
    """Draw each difference as a dot, its interval as a line, seeds as small dots, and 0 as a rule."""
    table, drawn = part.shown, dict[tuple[str, str], Markup]()
    if part.name != "summary" or table.parts is None or "delta_mean" not in table.frame:
        return {}
    seeds = table.parts.groupby("row")["delta"].agg(list)
    parts = [f"delta_{name}" for name in ("mean", "low", "high")]
    rows = {
        (row["row"], "delta"): [0.0, *(row[part] for part in parts), *seeds.get(row["row"], [])]
        for row in records(table.frame)
    }
    known = [*filter(math.isfinite, chain(*rows.values()))]
    low, width = min(known), max(known) - min(known) or 1.0
    for cell, values in rows.items():
        rule, middle, start, end, *dots = (4 + 64 * (value - low) / width for value in values)
        if math.isfinite(middle):
            tone = {1.0: "good", -1.0: "bad"}.get(part.sign * direction(*values[2:4]), "")
            line = "" if math.isnan(start) else f'<path class="ci" d="M{start:.1f} 8H{end:.1f}"/>'
            small = "".join(f'<circle cx="{x:.1f}" cy="8" r="1.5"/>' for x in dots if math.isfinite(x))
            drawn[cell] = Markup(
                f'<svg class="bar-cell {tone}" viewBox="0 0 72 16" aria-hidden="true">'
                f'<path d="M{rule:.1f} 0V16"/>{line}{small}'
                f'<circle class="dot" cx="{middle:.1f}" cy="8" r="3.5"/></svg>'
            )
    return drawn


def provenance(page: ReportPage) -> bytes:
    """Return the explanations of all cells of a page as JSON: see `explain.page_data`."""
    tables = {part.name: part.table for part in page.tables if part.table.opens}
    return as_json(page_data(page.histories, tables)).encode()


def own_file(name: str) -> str:
    """Return the text of a template, script, or style sheet of this package."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def style() -> str:
    """Return the style sheet of a page."""
    return own_file("style.css") + own_file("charts.css")


def _image(png: bytes, small: bool) -> dict[str, Any]:
    """Embed a PNG as WebP with few colors: a figure of lines looks the same at a fraction of the size.

    A `small` image has only the pixels that the page shows: the chart replaces it, if scripts run.
    """
    content = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        width = round(_PIXELS * image.width)
        whole = image.convert("RGB")
        if small:
            whole = whole.resize((width, round(width * image.height / image.width)))
        few = whole.quantize(_COLORS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(content, format="webp", lossless=True)
    return {"width": width, "src": f"data:image/webp;base64,{_base64(content.getvalue())}"}


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def as_json(value: Any) -> str:
    """Encode a value as JSON that is safe in a script element; NaN and infinities become null: gaps."""
    dumps = partial(json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text = dumps(value)
    except ValueError:  # rare, and checking every number takes as long as writing it
        text = dumps(json.loads(json.dumps(value), parse_constant=lambda name: None))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
