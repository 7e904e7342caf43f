"""Fill in templates, and serve scripts and styles."""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment

from jestlab.analysis import units
from jestlab.analysis.configs import flat
from jestlab.analysis.report.html import HEAD_SCRIPT, SCRIPTS, own_file
from jestlab.analysis.report.html import style as report_style
from jestlab.analysis.tables.formats import environment
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import now

GLYPHS = {
    RunState.COMPLETED: "✓",
    RunState.RUNNING: "▶",
    RunState.PREEMPTED: "↺",
    RunState.PENDING: "○",
    RunState.BLOCKED: "◌",
    RunState.SKIPPED: "–",
    RunState.CANCELLED: "■",
    RunState.FAILED: "✗",
}
"""A symbol for each state, shown next to its name for people who can't distinguish the colors.

Bars and counts list the states in this order.
"""


@cache
def assets() -> dict[str, tuple[str, str]]:
    """Return scripts and styles: name → content and media type. Names contain a digest, for caching."""
    style = report_style() + _own("serve.css")
    script = "\n".join([*map(own_file, SCRIPTS), _own("results.js"), _own("live.js"), _own("lists.js")])
    scripts = {"page.js": script, HEAD_SCRIPT: own_file(HEAD_SCRIPT)}
    contents = {"style.css": (style, "text/css")}
    contents |= {name: (content, "text/javascript") for name, content in scripts.items()}
    return {
        f"{hashlib.sha256(content.encode()).hexdigest()[:12]}-{name}": (content, media_type)
        for name, (content, media_type) in contents.items()
    }


def _own(name: str) -> str:
    return files(__package__).joinpath("static", name).read_text(encoding="utf-8")


def render(template: str, here: str = "", **values: Any) -> str:
    """Fill in a template; `here` is the page of the main navigation that it belongs to."""
    return _environment().get_template(template).render(here=here, **values)


def compile_templates() -> None:
    """Compile all templates, so that no request waits for it."""
    for template in _environment().list_templates(["j2"]):
        _environment().get_template(template)


@cache
def _environment() -> Environment:
    from jinja2 import PackageLoader

    made = environment(PackageLoader(__package__))
    made.globals |= {
        "asset": lambda name: next(f"/static/{known}" for known in assets() if known.endswith(f"-{name}")),
        "address": address,
        "glyphs": {state.value: glyph for state, glyph in GLYPHS.items()},
    }
    made.filters |= {"when": when, "ago": ago, "count": lambda number: f"{number:,}"}
    return made


def address(*parts: str, **query: Any) -> str:
    """Write the address of a page; empty values of the query are omitted."""
    known = {name: value for name, value in query.items() if value not in (None, "", False)}
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    return f"{path}?{urlencode(known, doseq=True)}" if known else path


def when(time: datetime | None) -> str:
    """Format a UTC time to the second; empty for None."""
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def ago(time: datetime) -> str:
    """Format a UTC time relative to now, such as "5 min ago"."""
    hours = (now() - time).total_seconds() / 3600
    return f"{units.duration(hours)} ago" if hours >= 1 / 60 else "just now"


def number(value: float | None) -> str:
    """Format a number with four significant digits; empty for None."""
    if value is None:
        return ""
    return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.4g}"


def duration(seconds: float | None) -> str:
    """Format a duration; empty for None."""
    return "" if seconds is None else units.duration(seconds / 3600)


def parse_whole(text: str) -> int | None:
    """Parse a whole number of up to 18 digits; None for other texts."""
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def as_texts(config: Mapping[str, Any]) -> dict[str, str]:
    """Format the values of a config, by dotted key."""
    values = {key: "default" if value is None else value for key, value in flat(config).items()}
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in values.items()
    }
