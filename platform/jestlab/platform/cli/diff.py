"""`jestlab diff`: compare two runs."""

from __future__ import annotations

import json
import math
import string
from collections.abc import Callable, Iterator
from typing import Any

import click
from rich.text import Text

from jestlab.platform.cli import naming
from jestlab.platform.cli.completion import RUN
from jestlab.platform.cli.options import RUN_HELP, examples, json_option, lab_options
from jestlab.platform.cli.output import show
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.compare import Comparison, Pair, Pairs, compare, compare_with_now
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
        about = {"runs": list(titles), **_differences(compare_with_now(store, one.fingerprint))}
    else:
        other = naming.find_run(store, second)
        titles = (one.title, other.title)
        about = _comparison_data(compare(store, one.fingerprint, other.fingerprint), titles)
    show(as_json, about, _blocks(about, titles))


def _comparison_data(compared: Comparison, titles: tuple[str, str]) -> dict[str, Any]:
    return {
        "runs": [
            {"name": title, "fingerprint": fingerprint, "state": state, "retracted": reason}
            for title, (fingerprint, state, reason) in zip(titles, compared.runs, strict=True)
        ],
        **_differences(compared),
        **{name: _numbers(pairs) for name, pairs in compared.numbers.items()},
    }


def _differences(compared: Comparison) -> dict[str, Any]:
    return {"known": compared.known, **compared.differences, "source": compared.source}


def _numbers(pairs: Pairs) -> dict[str, Any]:
    return {
        key: {"values": list(map(_finite, pair)), "difference": _finite(_difference(pair))}
        for key, pair in pairs.items()
    }


def _difference(pair: Pair) -> float | None:
    return None if pair.first is None or pair.second is None else pair.second - pair.first


def _finite(value: float | None) -> float | str | None:
    """Return a number; infinities and NaN, which JSON lacks, as text."""
    return value if value is None or math.isfinite(value) else str(value)


def _blocks(about: dict[str, Any], titles: tuple[str, str]) -> Iterator[Block]:
    for run in about["runs"] if "config" in about else ():
        line = styled(f"{run['name']}  {run['fingerprint'][:8]}  ") + in_state(run["state"])
        yield line + (f", retracted: {_text(run['retracted'])}" if run["retracted"] else "")
    for name, write in _SECTIONS.items():
        if name not in about or (name == "data" and not about[name]):
            continue
        yield ""
        if name == "code" and not about["known"]:
            yield "CODE  unknown: not recorded"
            continue
        rows = [(key, *(_cell(value, write) for value in pair)) for key, pair in about[name].items()]
        yield table((name.upper(), *titles), rows) if rows else f"{name.upper()}  no difference"
        if name == "code" and about["source"]:
            yield ""
            yield from map(_source_line, about["source"].splitlines())
    for name, title in (("scores", "SCORES"), ("costs", "COST")) if "scores" in about else ():
        yield ""
        rows = [
            (key, *(_cell(value, _number) for value in (*numbers["values"], numbers["difference"])))
            for key, numbers in about[name].items()
        ]
        yield table((title, *titles, "difference"), rows, right=(1, 2, 3)) if rows else f"{title}  none"


def _source_line(line: str) -> Text:
    """Color a line of a unified diff."""
    return styled(printable(line), {"+": "green", "-": "red", "@": "bright_blue"}.get(line[:1], ""))


def _digest(value: str) -> str:
    """Shorten a digest or commit; write other values unchanged."""
    return value[:12] if set(value) <= set(string.hexdigits) else _text(value)


def _cell(value: Any, write: Callable[[Any], str]) -> str:
    return _ABSENT if value is None else write(value)


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.4g}"


def _text(value: Any) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


_SECTIONS: dict[str, Callable[[Any], str]] = {
    "config": _text,
    "needs": lambda fingerprint: fingerprint[:8],
    "code": _digest,
    "data": _digest,
    "provenance": _text,
}
"""Section of a comparison → function that writes its values."""
