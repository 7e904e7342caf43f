"""Templates filled in, and the scripts and styles that pages ask for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from jestlab.analysis import units
from jestlab.analysis.report.page import SCRIPTS, own_file
from jestlab.platform.store.records import RunState

if TYPE_CHECKING:
    from jinja2 import Environment

GLYPHS = {
    RunState.PENDING: "○",
    RunState.BLOCKED: "◌",
    RunState.RUNNING: "▶",
    RunState.COMPLETED: "✓",
    RunState.FAILED: "✗",
    RunState.CANCELLED: "■",
    RunState.PREEMPTED: "↺",
    RunState.SKIPPED: "–",
}
"""A sign for each state, beside its word: colour alone says nothing to some people."""

_OWN_SCRIPTS = ("results.js", "live.js")


@dataclass(frozen=True)
class Asset:
    """A script or a style sheet, as browsers get it."""

    content: str
    media_type: str


@cache
def assets() -> dict[str, Asset]:
    """Return scripts and styles by their names, which change with their content: browsers may keep them."""
    style = own_file("style.css") + _own("static/serve.css")
    script = "\n".join([*map(own_file, SCRIPTS), *(_own(f"static/{name}") for name in _OWN_SCRIPTS)])
    found = {"style.css": Asset(style, "text/css"), "page.js": Asset(script, "text/javascript")}
    return {
        f"{hashlib.sha256(asset.content.encode()).hexdigest()[:12]}-{name}": asset
        for name, asset in found.items()
    }


def rendered(template: str, **values: Any) -> str:
    """Fill in a template of this folder."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    from jinja2 import ChoiceLoader, Environment, FunctionLoader, StrictUndefined

    def ours(name: str) -> str | None:
        place = files(__package__).joinpath("templates", name)
        return place.read_text(encoding="utf-8") if place.is_file() else None

    environment = Environment(
        autoescape=True, loader=ChoiceLoader([FunctionLoader(ours)]), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.globals |= {
        "asset": _asset,
        "address": address,
        "glyphs": {state.value: glyph for state, glyph in GLYPHS.items()},
    }
    environment.filters |= {
        "when": when,
        "count": lambda number: f"{number:,}",
        "duration": lambda seconds: "" if seconds is None else units.duration(seconds / 3600),
        "flops": lambda amount: "" if amount is None else units.flops(amount),
        "number": number,
    }
    return environment


def _asset(name: str) -> str:
    return next(f"/static/{known}" for known in assets() if known.endswith(f"-{name}"))


def address(*parts: str, **query: Any) -> str:
    """Write the address of a page; parts of the path and values may hold any characters."""
    known = {name: value for name, value in query.items() if value not in (None, "", False)}
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    return f"{path}?{urlencode(known, doseq=True)}" if known else path


def when(time: datetime | None) -> str:
    """Write a time, UTC, to the second."""
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def number(value: float | None) -> str:
    """Write a number of any size in four digits."""
    if value is None:
        return ""
    return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.4g}"


def whole(text: str) -> int | None:
    """Read a whole number of an address; None for what is none, or has more digits than any number here."""
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def as_json(value: Mapping[str, Any]) -> str:
    """Write JSON for scripts of ours; what is no number becomes null."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _own(name: str) -> str:
    return files(__package__).joinpath(*name.split("/")).read_text(encoding="utf-8")
