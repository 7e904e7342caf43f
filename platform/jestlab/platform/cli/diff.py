"""`jestlab diff`: compare two runs."""

import json
import math
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click
from rich.text import Text

from jestlab.analysis import units
from jestlab.analysis.metrics import Metrics
from jestlab.platform.cli import naming
from jestlab.platform.cli.completion import RUN
from jestlab.platform.cli.options import RUN_HELP, examples, lab_json_options
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
@lab_json_options()
def diff_command(first: str, second: str | None, *, as_json: bool, lab: Lab) -> None:
    """Show how two runs differ: config, dependencies, code, data, machine, last scores, and costs.

    With only one RUN, compare the code and data that it used with the current files.
    """
    store = naming.existing_store(lab)
    one = naming.find_run(store, first)
    metrics = store.metrics(one.experiment, [one.row.program])
    if second is None:
        titles = (one.title, "now")
        about = {"runs": list(titles), **compare_with_now(store, one.fingerprint)}
    else:
        other = naming.find_run(store, second)
        titles = (one.title, other.title)
        about = compare(store, one.fingerprint, other.fingerprint)
        for run, title in zip(about["runs"], titles, strict=True):
            run["name"] = title
    show(as_json, about, _blocks(about, titles, metrics))


def _blocks(about: dict[str, Any], titles: Sequence[str], metrics: Metrics) -> Iterator[Block]:
    if "config" not in about:
        yield f"{titles[0]} compared with the current code and data"
    else:
        for run in about["runs"]:
            line = styled(f"{run['name']}  {run['fingerprint'][:8]}  ") + in_state(run["state"])
            yield line + (f", retracted: {_text(run['retracted'])}" if run["retracted"] else "")
        if len({title.partition("/")[0] for title in titles}) == 1:  # of one experiment
            titles = [title.partition("/")[2] for title in titles]
    for name in SECTIONS:
        if name not in about or (name == "data" and not about[name]):
            continue
        yield ""
        if name == "code" and not about["known"]:
            yield styled("code", "bold") + ": unknown, since it was not recorded"
            continue
        write = _SHORT.get(name, _text)
        rows = [
            (key, *(_ABSENT if value is None else write(value) for value in pair))
            for key, pair in about[name].items()
        ]
        yield table((name, *titles), rows) if rows else f"{name}: no difference"
        if name == "code" and about["source"]:
            yield ""
            yield from map(_source_line, about["source"].splitlines())
    for section in ("scores", "costs") if "scores" in about else ():
        numbers = [*_numbers(section, about[section], metrics)]
        yield ""
        yield table((section, *titles, "Δ"), numbers, right=(1, 2, 3)) if numbers else f"{section}: none"
    if "scores" in about:
        yield from ("", f"Δ: {titles[1]} minus {titles[0]}")


def _numbers(section: str, about: Mapping[str, Any], metrics: Metrics) -> Iterator[tuple[str, ...]]:
    """Yield the rows of scores or costs: both values, and the change. Costs that are 0 are omitted."""
    for name, numbers in about.items():
        first, second, change = numbers.values()
        metric = metrics.of(name)
        write: Callable[[float], str] = metric.text
        unit, of_change = metric.suffix, f" {metric.of_differences}".rstrip()
        if section == "costs":
            if not first and not second:
                continue
            name, _, kind = name.rpartition("_")
            quantity, write = _UNITS[kind]
            name, unit, of_change = f"{name.replace('_', ' ')} {quantity}", "", ""
            if change and first and math.isfinite(change):
                of_change = f" ({change / first:+.0%})".replace("-", "−")
        unit = unit if unit in ("", "%") else f" {unit}"
        cells = [_ABSENT if each is None else f"{write(each)}{unit}" for each in (first, second)]
        difference = _ABSENT
        if change is not None and not math.isnan(change):
            difference = f"{'−' if change < 0 else '+'}{write(abs(change))}{of_change}" if change else "="
        yield name, *cells, difference


def _source_line(line: str) -> Text:
    """Color a line of a unified diff."""
    return styled(printable(line), {"+": "green", "-": "red", "@": "bright_blue"}.get(line[:1], ""))


def _digest(value: str) -> str:
    """Shorten a digest or commit; write other values unchanged."""
    return value[:12] if set(value) <= set(string.hexdigits) else _text(value)


def _text(value: Any) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


_SHORT: dict[str, Callable[[Any], str]] = {"needs": _digest, "code": _digest, "data": _digest}
"""Sections whose values are digests."""

_UNITS = {"flops": ("FLOPs", units.flops), "hours": ("time", units.duration), "dollars": ("$", units.dollars)}
"""Last word of a cost's name → its unit, and the function that formats it."""
