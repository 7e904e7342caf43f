"""Reports as HTML: one self-contained document a page, for a study and for a union of studies."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any

from ..provenance.document import Sources
from .contents import Contents, StillPart
from .union import Section, UnionContents

_PIXELS = 0.65
"""Pixels of the page for one of a printed figure, so that texts are about as large in all of them."""

_COLOURS = 128
"""Colours of a figure in the page: those of its lines, and enough for smooth edges."""


def study_page(contents: Contents, sources: Sources, files: Mapping[str, bytes]) -> str:
    """Write the page of a study as one HTML document.

    Args:
        contents: What it says.
        sources: What it was made from.
        files: Name → content of its tables and figures in all their forms, which the page holds, too.
    """
    history = contents.history
    runs, seeds = sum(history.states().values()), history.runs["seed"].nunique()
    return _document(
        contents,
        sources,
        files,
        {figure.name: {"variants": figure.variants} for figure in contents.figures},
        size=f"{runs} {'run' if runs == 1 else 'runs'}, {seeds} {'seed' if seeds == 1 else 'seeds'}",
        image=lambda still: _image(_small(files[f"{still.name}.png"])),
        still_image=lambda figure: _image(_small(files[f"{figure.plots[0].name}.png"])),
    )


def union_page(
    contents: UnionContents,
    sources: Sources,
    files: Mapping[str, bytes],
    image: Callable[[Section, StillPart], bytes],
) -> str:
    """Write the page of a union as one HTML document.

    Args:
        contents: What it says.
        sources: What it was made from.
        files: Name → content of its tables in all their forms, which the page holds, too.
        image: Returns the PNG of a study's figure.
    """
    return _document(
        contents,
        sources,
        files,
        image=lambda section, still: _image(_small(image(section, still))),
    )


def study_fragment(
    contents: Contents, sources: Sources, image: Callable[[StillPart], Mapping[str, Any]], place: str
) -> str:
    """Write what the page of a study says as HTML to be put into another page, without its scripts.

    Args:
        contents: What it says.
        sources: What it was made from.
        image: Returns the `src` and the `width` of a figure that is shown as it is printed.
        place: Address of its files, with FILE in the place of their names.
    """
    figures = {figure.name: {"variants": figure.variants} for figure in contents.figures}
    return _rendered("fragment.html.j2", contents, sources, {}, figures, place, image=image)


def union_fragment(
    contents: UnionContents,
    sources: Sources,
    image: Callable[[Section, StillPart], Mapping[str, Any]],
    place: str,
) -> str:
    """Write what the page of a union says: see `study_fragment`."""
    return _rendered("fragment.html.j2", contents, sources, {}, {}, place, image=image)


SCRIPTS = ("page.js", "copies.js", "plot.js", "charts.js")
"""The scripts of a page, to be joined in this order: `begin()` starts them."""


def _document(
    contents: Contents | UnionContents,
    sources: Sources,
    embedded: Mapping[str, bytes],
    charts: Mapping[str, Any] | None = None,
    **values: Any,
) -> str:
    """Write one HTML document.

    Nothing in it is fetched, and its policy forbids fetching: only those scripts run that the policy names by
    their digest, so no text of a spec or of a log can become one.

    Args:
        contents: What it says.
        sources: What it was made from.
        embedded: Files that the page holds, so that it can be mailed by itself.
        charts: Data of the figures that the page draws itself, by name.
        values: Further values of the template.
    """
    from markupsafe import Markup

    script = "\n".join([*map(own_file, SCRIPTS), "begin();"])
    return _rendered(
        "page.html.j2",
        contents,
        sources,
        embedded,
        charts or {},
        policy=_policy(script),
        style=Markup(own_file("style.css")),
        script=Markup(script),
        **values,
    )


def _rendered(
    template: str,
    contents: Contents | UnionContents,
    sources: Sources,
    embedded: Mapping[str, bytes],
    charts: Mapping[str, Any],
    place: str | None = None,
    **values: Any,
) -> str:
    """Fill in a template, with the data that scripts read; arguments as of `_document`.

    Files that are not embedded are at `place`.
    """
    from jinja2 import Environment, FunctionLoader
    from markupsafe import Markup

    tables = contents.tables
    opening = {part.name: part.table for part in tables if part.table.opens}
    data = contents.origins.page_data(opening) | {
        "figures": charts,
        "files": {name: _file(name, content) for name, content in embedded.items() if name[-4:] != ".png"}
        | {f"{part.name}.md": {"text": part.table.markdown()} for part in tables},
        "place": place,
    }
    shown = hashlib.sha256()
    for part in tables:
        shown.update(part.table.csv().encode())
    for plot in contents.plots:
        shown.update(plot.data.to_csv(index=False, lineterminator="\n").encode())
    page = Environment(autoescape=True, loader=FunctionLoader(own_file)).get_template(template)
    return (
        page.render(
            data=Markup(_json(data)),
            page=contents,
            study=contents.history,
            made=sources.common,
            digest=shown.hexdigest(),
            **values,
        )
        + "\n"
    )


def _image(png: bytes) -> dict[str, Any]:
    """A PNG as the template takes it."""
    width = int.from_bytes(png[16:20])  # a PNG has its width there
    return {"width": round(_PIXELS * width), "src": f"data:image/png;base64,{base64.b64encode(png).decode()}"}


def _file(name: str, content: bytes) -> dict[str, Any]:
    """A file as the page holds it: texts that are copied as they are, all others compressed."""
    if name.endswith((".tex", ".csv", ".txt", ".yaml")):
        return {"text": content.decode()}
    if name.endswith(".pdf"):  # is compressed
        return {"base64": base64.b64encode(content).decode()}
    return {"base64": base64.b64encode(gzip.compress(content, mtime=0)).decode(), "gzip": True}


def _small(png: bytes) -> bytes:
    """Reduce a PNG to few colours: a figure of lines looks the same, at a third of the size."""
    from PIL import Image

    content = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        few = image.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
        few.save(content, format="png", optimize=True)
    return min(content.getvalue(), png, key=len)


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Styles: cells have some of their own. Images: figures are data.
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(value: Any) -> str:
    """JSON that is safe in a script element, whatever texts are in it."""
    dumps = partial(json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text = dumps(value)
    except ValueError:  # rare, and to look at every number takes as long as to write it
        text = dumps(_finite(value))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _finite(value: Any) -> Any:
    """Return data without NaN and infinities, which JSON lacks: charts leave a gap where there is none."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def own_file(name: str) -> str:
    """Return the text of a template, script or style sheet of this package."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
