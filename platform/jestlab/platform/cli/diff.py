"""`jestlab diff`: two runs side by side."""

from __future__ import annotations

import json
import math
import string
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click
from rich.text import Text

from jestlab.platform.cli import naming
from jestlab.platform.cli.options import json_option, lab_options
from jestlab.platform.cli.output import printable, show
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.changes import Since, changed_since
from jestlab.platform.planning.explain import Comparison, Pair, compare
from jestlab.platform.render import Block, in_state, styled, table

_EPILOG = f"""{naming.HELP}

\b
Examples:
  jestlab diff quickstart/joint/0 quickstart/joint/1
  jestlab diff joint/0 uniform/0
  jestlab diff ridge/plain/0
"""
_ABSENT = "–"


@click.command(epilog=_EPILOG)
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="[RUN]", required=False)
@json_option()
@lab_options
def diff_command(first: str, second: str | None, *, as_json: bool, lab: Lab) -> None:
    """Show how two runs differ: config, dependencies, your own code and data, jestlab's code, machine, last
    scores and costs. With one RUN, show how its code and data differ from what is there now.
    """
    store = naming.existing_store(lab)
    if second is None:
        one = naming.run(store, first)
        since = changed_since(store, one.fingerprint)
        titles = (one.title, "now")
        show(as_json, _since_data(since, titles), _own_lines(since, titles))
        return
    one, other = (naming.run(store, name) for name in (first, second))
    compared = compare(store, one.fingerprint, other.fingerprint)
    titles = (one.title, other.title)
    show(as_json, _as_data(compared, titles), _lines(compared, titles))


def _lines(compared: Comparison, titles: tuple[str, str]) -> Iterator[Block]:
    for title, fingerprint, state in _runs(compared, titles):
        why = compared.retracted.get(fingerprint)
        about = styled(f"{title}  {fingerprint[:8]}  ") + in_state(state)
        yield about + (f", retracted: {_text(why)}" if why else "")
    sections: list[tuple[str, Mapping[str, Pair[Any]], Callable[[Any], str]]] = [
        ("config", compared.config, _text),
        ("needs", compared.needs, lambda fingerprint: fingerprint[:8]),
    ]
    for name, pairs, write in sections:
        yield ""
        yield _section(name, pairs, titles, write)
    yield ""
    yield from _own_lines(compared, titles)
    yield ""
    yield _section("provenance", compared.provenance, titles, _text)
    for name, numbers in (("scores", compared.scores), ("cost", compared.costs)):
        yield ""
        figures = [
            (key, *(_shown(value, _number) for value in (*pair, _difference(pair))))
            for key, pair in numbers.items()
        ]
        header = (name.upper(), *titles, "difference")
        yield table(header, figures, right=(1, 2, 3)) if figures else f"{name.upper()}  none"


def _section(
    name: str, pairs: Mapping[str, Pair[Any]], titles: tuple[str, str], write: Callable[[Any], str]
) -> Block:
    """Write the table of one kind of difference."""
    rows = [(key, *(_shown(value, write) for value in pair)) for key, pair in pairs.items()]
    return table((name.upper(), *titles), rows) if rows else f"{name.upper()}  no difference"


def _own_lines(compared: Comparison | Since, titles: tuple[str, str]) -> Iterator[Block]:
    """Write how the user's own code and data differ."""
    if not compared.known:
        yield "CODE  unknown: none was recorded"
    else:
        yield _section("code", compared.code, titles, _digest)
    if compared.source:
        yield ""
        yield from map(_source_line, compared.source.splitlines())
    if compared.data:
        yield ""
        yield _section("data", compared.data, titles, _digest)


def _source_line(line: str) -> Text:
    """Colour a line of a difference of files as git does."""
    return styled(printable(line), {"+": "green", "-": "red", "@": "bright_blue"}.get(line[:1], ""))


def _digest(value: str) -> str:
    """Shorten a digest or a commit; other texts stay whole."""
    return value[:12] if set(value) <= set(string.hexdigits) else _text(value)


def _since_data(since: Since, titles: tuple[str, str]) -> dict[str, Any]:
    return {"runs": list(titles), "known": since.known, "code": dict(since.code), "data": dict(since.data),
            "source": since.source}  # fmt: skip


def _as_data(compared: Comparison, titles: tuple[str, str]) -> dict[str, Any]:
    runs = [
        {
            "name": title,
            "fingerprint": fingerprint,
            "state": state,
            "retracted": compared.retracted.get(fingerprint),
        }
        for title, fingerprint, state in _runs(compared, titles)
    ]
    data: dict[str, Any] = {"runs": runs}
    for name in ("config", "needs", "code", "data", "provenance"):
        data[name] = dict(getattr(compared, name))
    data |= {"source": compared.source, "known": compared.known}
    for name in ("scores", "costs"):
        pairs: Mapping[str, Pair[float]] = getattr(compared, name)
        data[name] = {
            key: {"values": list(map(_finite, pair)), "difference": _finite(_difference(pair))}
            for key, pair in pairs.items()
        }
    return data


def _runs(compared: Comparison, titles: tuple[str, str]) -> Iterator[tuple[str, Any, Any]]:
    return zip(titles, compared.fingerprints, compared.states, strict=True)


def _difference(pair: Pair[float]) -> float | None:
    return None if pair.first is None or pair.second is None else pair.second - pair.first


def _finite(value: float | None) -> float | str | None:
    """JSON has no infinities."""
    return value if value is None or math.isfinite(value) else str(value)


def _shown(value: Any, show: Callable[[Any], str]) -> str:
    return _ABSENT if value is None else show(value)


def _number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.4g}"


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return printable(text)
