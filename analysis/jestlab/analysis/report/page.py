"""Reports as HTML: one self-contained document a page, for a study and for a union of studies."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from ..figures import Plot
from ..figures.charts import SHOWN_AT_FIRST
from ..figures.plot import SUFFIXES
from ..provenance import SUFFIX, History, Origins, Sources, of_runs, of_table
from ..tables.claims import MARKS
from ..verdicts import VERDICTS, Judged, counted
from .contents import Contents, FigurePart, StillPart
from .tables import TablePart, claim_items
from .union import Section, UnionContents

_PIXELS = 0.65
"""Pixels of the page for one of a printed figure, so that texts are about as large in all of them."""

_COLOURS = 128
"""Colours of a figure in the page of a union: those of its lines, and enough for smooth edges."""

_MOST_ROWS = {"failures": 200}
"""Table → rows shown in the page at most; its files have all."""


def study_page(contents: Contents, sources: Sources, folder: str, images: Mapping[str, bytes]) -> str:
    """Write the page of a study as one HTML document.

    Args:
        contents: What it says.
        sources: What it was made from.
        folder: Name of the folder beside it, where its links lead.
        images: PNG of each of its stills, by name.
    """
    history = contents.history
    runs, seeds = sum(history.states().values()), history.runs["seed"].nunique()
    size = f"{runs} {'run' if runs == 1 else 'runs'}, {seeds} {'seed' if seeds == 1 else 'seeds'}"
    return _document(
        contents.tables,
        contents.plots,
        contents.origins,
        sources,
        charts={figure.name: {"variants": figure.variants} for figure in contents.figures},
        folder=folder,
        kicker=_kicker(history, size),
        unfinished=contents.unfinished,
        answer=contents.answer,
        claims=contents.claims and _grid(contents.claims) | {"rows": claim_items(contents.claims)},
        results=[_grid(part) for part in contents.results],
        figures=[_figure(figure) for figure in contents.figures],
        stills=[_still(each, images[each.plot.name]) for each in contents.stills],
        costs=contents.costs and _grid(contents.costs),
        failures=contents.failures and _grid(contents.failures),
        no_failure="No attempt has failed." if len(history.attempts) else "No run has been attempted yet.",
        recipe=contents.recipe,
        gaps=contents.gaps,
        not_made=contents.not_made,
    )


def union_page(
    contents: UnionContents,
    sources: Sources,
    folder: str,
    image: Callable[[Section, StillPart], bytes],
    own_page: Callable[[Section], str],
) -> str:
    """Write the page of a union as one HTML document.

    Args:
        contents: What it says.
        sources: What it was made from.
        folder: Name of the folder beside it, where the links of its tables lead.
        image: Returns the PNG of a study's figure.
        own_page: Returns the path of a study's own page from this one; empty if there is none.
    """
    rows = [] if contents.claims is None else claim_items(contents.claims)
    judged = () if contents.claims is None else contents.claims.judged
    return _document(
        contents.tables,
        [still.plot for still in contents.stills],
        contents.origins,
        sources,
        folder=folder,
        kicker=_kicker(contents.history),
        unfinished=contents.unfinished,
        facts=contents.facts,
        verdicts=counted(judged) if judged else "",
        claims=contents.claims and _grid(contents.claims) | {"rows": rows},
        sections=[_section(section, judged, rows, image, own_page(section)) for section in contents.sections],
    )


def _document(
    tables: Sequence[TablePart],
    plots: Sequence[Plot],
    origins: Origins,
    sources: Sources,
    charts: Mapping[str, Any] | None = None,
    **values: Any,
) -> str:
    """Write one HTML document.

    Nothing in it is fetched, and its policy forbids fetching: only those scripts run that the policy names by
    their digest, so no text of a spec or of a log can become one.

    Args:
        tables: Tables of the page, whose cells link to their provenance.
        plots: Figures of the page.
        origins: Runs and attempts behind its numbers.
        sources: What it was made from.
        charts: Data of the figures that the page draws itself, by name.
        values: Further values of the template.
    """
    from jinja2 import Environment
    from markupsafe import Markup

    scripts = [("text/javascript", _plotly())] if charts else []
    scripts.append(("module", "\n".join(_own(name) for name in ("page.js", "charts.js"))))
    data = {
        "figures": charts or {},
        "tables": {part.name: of_table(part.table, origins) for part in tables if part.table.opens},
        "runs": of_runs([part.table for part in tables], origins),
    }
    shown = hashlib.sha256()
    for part in tables:
        shown.update(part.table.csv().encode())
    for plot in plots:
        shown.update(plot.data.to_csv(index=False, lineterminator="\n").encode())
    template = Environment(autoescape=True).from_string(_own("page.html.j2"))
    return (
        template.render(
            policy=_policy([script for _, script in scripts]),
            style=Markup(_own("style.css")),
            scripts=[(kind, Markup(script)) for kind, script in scripts],
            data=Markup(_json(data)),
            experiment=sources.history.experiment,
            question=sources.history.question,
            made=sources.common,
            digest=shown.hexdigest(),
            **values,
        )
        + "\n"
    )


def _kicker(history: History, size: str = "") -> str:
    """The line above the title."""
    parts = (history.experiment, history.scale and f"scale {history.scale}", history.paper, size)
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
        "left_out": f"{most} of {rows:,} rows; {part.name}.csv has all." if cut else "",
        "files": [f"{part.name}.tex", f"{part.name}.csv", part.name + SUFFIX],
    }


def _figure(figure: FigurePart) -> dict[str, Any]:
    """An interactive figure as the template takes it."""
    most = max(len(variant["series"]) for variant in figure.variants.values())
    few = f"initially {SHOWN_AT_FIRST} of {most:,}: the baseline and the best; bands if few are shown"
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "limited": few if most > SHOWN_AT_FIRST else "",
        "files": _files(*(plot.name for plot in figure.plots)),
    }


def _still(part: StillPart, image: bytes) -> dict[str, Any]:
    """A printed figure, of which the image is a PNG, as the template takes it."""
    return {
        "name": part.plot.name,
        "title": part.title,
        "caption": part.plot.texts.caption,
        "width": round(_PIXELS * int.from_bytes(image[16:20])),  # a PNG has its width there
        "image": base64.b64encode(image).decode(),
        "files": _files(part.plot.name),
    }


def _files(*names: str) -> list[str]:
    return [f"{name}{suffix}" for name in names for suffix in (*SUFFIXES, SUFFIX)]


def _section(
    section: Section,
    judged: Sequence[Judged],
    rows: Iterable[Mapping[str, Any]],
    image: Callable[[Section, StillPart], bytes],
    own_page: str,
) -> dict[str, Any]:
    """A study of a union as the template takes it."""
    own = [each for each in judged if each.experiment == section.name]
    return {
        "name": section.name,
        "question": section.question,
        "paper": section.paper,
        "unfinished": section.unfinished,
        "changed": section.changed,
        "own_page": own_page,
        "command": section.command,
        "marks": [MARKS[verdict] for verdict in VERDICTS for each in own if each.verdict == verdict],
        "verdicts": counted([replace(each, scale="") for each in own]) if own else "",
        "claims": [row for row in rows if row["study"] == section.name],
        "tables": [_grid(part) for part in section.tables],
        "stills": [
            _still(each, _small(image(section, each))) | {"name": f"{section.name}-{each.plot.name}"}
            for each in section.reports.stills
        ],
        "not_made": section.reports.gaps,
    }


def _small(png: bytes) -> bytes:
    """Reduce a PNG to few colours: a figure of lines looks the same, at a third of the size."""
    from PIL import Image

    content = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        few = image.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
        few.save(content, format="png", optimize=True)
    return min(content.getvalue(), png, key=len)


def _policy(scripts: Sequence[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    # Styles: Plotly sets them on its elements. Images: it draws some as data.
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(value: Any) -> str:
    """JSON that is safe in a script element, whatever texts are in it."""
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
