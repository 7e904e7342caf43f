"""`jestlab diff`: compare two runs."""

from __future__ import annotations

import json
import math
import string
from collections.abc import Callable, Iterator
from typing import Any

import click
from rich.text import Text

from jestlab.analysis import units
from jestlab.platform.cli import naming
from jestlab.platform.cli.completion import RUN
from jestlab.platform.cli.options import RUN_HELP, examples, json_option, lab_options
from jestlab.platform.cli.output import show
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.compare import SECTIONS, compare, compare_with_now
from jestlab.platform.render import Block, in_state, styled, table
from jestlab.platform.words import printable

_EPILOG = f"""{RUN_HELP}

{examples("diff quickstart/joint/0 quickstart/joint/1", "diff joint/0 uniform/0", "diff ridge/plain/0")}
"""
_ABSENT = "–"


@click.command(epilog=_EPILOG)
@click.argument("first", type=RUN, metavar="RUN")
@click.argument("second", type=RUN, metavar="[RUN]", required=False)
@json_option()
@lab_options
def diff_command(first: str, second: str | None, *, as_json: bool, lab: Lab) -> None:
    """Show how two runs differ: config, dependencies, code, data, machine, last scores, and costs.

    With only one RUN, compare the code and data that it used with the current files.
    """
    store = naming.existing_store(lab)
    one = naming.find_run(store, first)
    if second is None:
        titles = (one.title, "now")
        about = {"runs": list(titles), **compare_with_now(store, one.fingerprint)}
    else:
        other = naming.find_run(store, second)
        titles = (one.title, other.title)
        about = compare(store, one.fingerprint, other.fingerprint)
        for run, title in zip(about["runs"], titles, strict=True):
            run["name"] = title
        for numbers in (*about["scores"].values(), *about["costs"].values()):
            # JSON lacks infinities and NaN.
            numbers |= {n: str(x) for n, x in numbers.items() if x is not None and not math.isfinite(x)}
    show(as_json, about, _blocks(about, titles))


def _blocks(about: dict[str, Any], titles: tuple[str, str]) -> Iterator[Block]:
    for run in about["runs"] if "config" in about else ():
        line = styled(f"{run['name']}  {run['fingerprint'][:8]}  ") + in_state(run["state"])
        yield line + (f", retracted: {_text(run['retracted'])}" if run["retracted"] else "")
    for name in SECTIONS:
        if name not in about or (name == "data" and not about[name]):
            continue
        yield ""
        if name == "code" and not about["known"]:
            yield "CODE  unknown: not recorded"
            continue
        write = _SHORT.get(name, _text)
        rows = [
            (key, *(_ABSENT if value is None else write(value) for value in pair))
            for key, pair in about[name].items()
        ]
        yield table((name.upper(), *titles), rows) if rows else f"{name.upper()}  no difference"
        if name == "code" and about["source"]:
            yield ""
            yield from map(_source_line, about["source"].splitlines())
    for name in ("scores", "costs") if "scores" in about else ():
        yield ""
        headers = (name.upper(), *titles, "second − first")
        rows = [
            (key, *(_number(key, value) for value in numbers.values()))
            for key, numbers in about[name].items()
        ]
        yield table(headers, rows, right=(1, 2, 3)) if rows else f"{name.upper()}  none"


def _source_line(line: str) -> Text:
    """Color a line of a unified diff."""
    return styled(printable(line), {"+": "green", "-": "red", "@": "bright_blue"}.get(line[:1], ""))


def _digest(value: str) -> str:
    """Shorten a digest or commit; write other values unchanged."""
    return value[:12] if set(value) <= set(string.hexdigits) else _text(value)


def _number(key: str, value: float | str | None) -> str:
    """Format a score, or an amount of FLOPs, hours, or dollars."""
    if value is None or isinstance(value, str):
        return value or _ABSENT
    kind = key.rpartition("_")[2]
    if kind not in _UNITS:
        return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.4g}"
    return ("-" if value < 0 else "") + _UNITS[kind](abs(value))


def _text(value: Any) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


_SHORT: dict[str, Callable[[Any], str]] = {"needs": _digest, "code": _digest, "data": _digest}
"""Sections whose values are digests."""

_UNITS = {"flops": units.flops, "hours": units.duration, "dollars": units.dollars}
"""Last word of a cost's name → function that formats it."""
