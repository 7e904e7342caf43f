"""The page of a union: the whole of it to be read from top to bottom, each study's own page one link away."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..verdicts import VERDICTS, counted
from .claimed import MARKS, told
from .document import digest, document, grid, module, opened, still

if TYPE_CHECKING:
    from ..verdicts import Judged
    from .parts import StillPart
    from .sources import Sources
    from .union import Section, UnionContents

_COLOURS = 128  # of a still: those of its lines, and enough between them for smooth edges


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
        folder: Name of the folder beside it, that the links of its tables lead to.
        image: The PNG of a study's figure.
        own_page: Where a study's own page lies, from this one; empty where there is none.
    """
    history = contents.history
    rows = [] if contents.claims is None else told(contents.claims)
    judged = () if contents.claims is None else contents.claims.judged
    return document(
        "union.html.j2",
        [module("elements.js", "dialog.js")],
        {"figures": {}, **opened(contents.tables, contents.origins)},
        folder=folder,
        experiment=history.experiment,
        question=history.question,
        kicker=" · ".join(
            part
            for part in (history.experiment, history.scale and f"scale {history.scale}", history.paper)
            if part
        ),
        unfinished=contents.unfinished,
        facts=contents.facts,
        verdicts=counted(judged) if judged else "",
        claims=contents.claims and grid(contents.claims) | {"rows": rows},
        sections=[_section(section, judged, rows, image, own_page(section)) for section in contents.sections],
        made=sources.common,
        digest=digest(contents.tables, [each.plot for each in contents.stills]),
    )


def small(png: bytes) -> bytes:
    """A PNG with few colours: a figure of lines looks the same, at a third of the size."""
    from PIL import Image

    content = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(
            content, format="png", optimize=True
        )
    return min(content.getvalue(), png, key=len)


def _section(
    section: Section,
    judged: Sequence[Judged],
    rows: Sequence[Mapping[str, Any]],
    image: Callable[[Section, StillPart], bytes],
    own_page: str,
) -> dict[str, Any]:
    """A study as the template takes it."""
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
        "marks_said": counted([replace(each, scale="") for each in own]) if own else "",
        "claims": [row for row in rows if row["study"] == section.name],
        "tables": [grid(part) for part in section.tables],
        "stills": [
            still(each, small(image(section, each))) | {"name": f"{section.name}-{each.plot.name}"}
            for each in section.stills
        ],
        "not_made": section.not_made,
    }
