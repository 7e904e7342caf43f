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
from jestlab.platform.cli.options import examples, json_option, lab_options
from jestlab.platform.cli.output import show
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.compare import Comparison, Pair, Pairs, compare, compare_with_now
from jestlab.platform.render import Block, in_state, styled, table
from jestlab.platform.words import printable

_EPILOG = f"""{naming.HELP}

{examples("diff quickstart/joint/0 quickstart/joint/1", "diff joint/0 uniform/0", "diff ridge/plain/0")}
"""
_ABSENT = "–"


@click.command(epilog=_EPILOG)
@click.argument("first", type=RUN, metavar="RUN")
@click.argument("second", type=RUN, metavar="[RUN]", required=False)
@json_option()
@lab_options
def diff_command(first: str, second: str | None, *, as_json: bool, lab: Lab) -> None:
    """Show how two runs differ: config, dependencies, custom code and data, jestlab's code, machine, last
    scores, and costs. With one RUN, compare its code and data with the current files.
    """
    store = naming.existing_store(lab)
    one = naming.run(store, first)
    if second is None:
        with_now, titles = compare_with_now(store, one.fingerprint), (one.title, "now")
        data = {"runs": titles, "known": with_now.known, **with_now.differences, "source": with_now.source}
        show(as_json, data, _code_blocks(with_now, titles))
        return
    other = naming.run(store, second)
    compared, titles = compare(store, one.fingerprint, other.fingerprint), (one.title, other.title)
    show(as_json, _as_data(compared, titles), _blocks(compared, titles))


def _blocks(compared: Comparison, titles: tuple[str, str]) -> Iterator[Block]:
    for title, (fingerprint, state, reason) in zip(titles, compared.runs, strict=True):
        line = styled(f"{title}  {fingerprint[:8]}  ") + in_state(state)
        yield line + (f", retracted: {_text(reason)}" if reason else "")
    yield ""
    yield _section("config", compared.differences["config"], titles, _text)
    yield ""
    yield _section("needs", compared.differences["needs"], titles, lambda fingerprint: fingerprint[:8])
    yield ""
    yield from _code_blocks(compared, titles)
    yield ""
    yield _section("provenance", compared.differences["provenance"], titles, _text)
    for name, pairs in compared.numbers.items():
        yield ""
        rows = [
            (key, *(_cell(value, _number) for value in (*pair, _difference(pair))))
            for key, pair in pairs.items()
        ]
        header = (name.upper(), *titles, "difference")
        yield table(header, rows, right=(1, 2, 3)) if rows else f"{name.upper()}  none"


def _section(name: str, pairs: Pairs, titles: tuple[str, str], write: Callable[[Any], str]) -> Block:
    rows = [(key, *(_cell(value, write) for value in pair)) for key, pair in pairs.items()]
    return table((name.upper(), *titles), rows) if rows else f"{name.upper()}  no difference"


def _code_blocks(compared: Comparison, titles: tuple[str, str]) -> Iterator[Block]:
    if not compared.known:
        yield "CODE  unknown: not recorded"
    else:
        yield _section("code", compared.differences["code"], titles, _digest)
    if compared.source:
        yield ""
        yield from map(_source_line, compared.source.splitlines())
    if data := compared.differences["data"]:
        yield ""
        yield _section("data", data, titles, _digest)


def _source_line(line: str) -> Text:
    """Color a line of a unified diff."""
    return styled(printable(line), {"+": "green", "-": "red", "@": "bright_blue"}.get(line[:1], ""))


def _digest(value: str) -> str:
    """Shorten a digest or a commit."""
    return value[:12] if set(value) <= set(string.hexdigits) else _text(value)


def _as_data(compared: Comparison, titles: tuple[str, str]) -> dict[str, Any]:
    return {
        "runs": [
            {"name": title, "fingerprint": fingerprint, "state": state, "retracted": reason}
            for title, (fingerprint, state, reason) in zip(titles, compared.runs, strict=True)
        ],
        **compared.differences,
        "source": compared.source,
        "known": compared.known,
        **{
            name: {
                key: {"values": list(map(_finite, pair)), "difference": _finite(_difference(pair))}
                for key, pair in pairs.items()
            }
            for name, pairs in compared.numbers.items()
        },
    }


def _difference(pair: Pair) -> float | None:
    return None if pair.first is None or pair.second is None else pair.second - pair.first


def _finite(value: float | None) -> float | str | None:
    """Write infinities and NaN, which JSON lacks, as text."""
    return value if value is None or math.isfinite(value) else str(value)


def _cell(value: Any, write: Callable[[Any], str]) -> str:
    return _ABSENT if value is None else write(value)


def _number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.4g}"


def _text(value: Any) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
