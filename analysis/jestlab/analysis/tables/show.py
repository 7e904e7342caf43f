"""Write cells and headings: means and differences with intervals, seeds, and metrics."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..metrics import Metric, Metrics
from .core import MISSING as MISSING
from .core import Record

METRICS = {
    "zero_shot": "zero-shot",
    "10_shot": "10-shot",
    "i2t_r1": "I2T R@1",
    "t2i_r1": "T2I R@1",
    "mean_r1": "mean R@1",
}
"""Metric of a dataset → heading."""


def interval(value: float, low: float, high: float, metric: Metric, sign: str = "") -> str:
    """Write a value with its confidence interval, if it has one, all with the same number of decimals.

    Args:
        sign: "+" adds a plus sign to positive numbers, as differences have it.
    """
    if math.isnan(value):
        return MISSING
    if math.isnan(low):
        return metric.text(value, sign)
    text, *ends = decimals(metric, value, low, high).texts((value, low, high), sign)
    return f"{text} [{', '.join(ends)}]"


def decimals(metric: Metric, *values: float) -> Metric:
    """Set the decimals of a metric that has none, so that all values are written with the same number."""
    largest = max(map(abs, values))
    if metric.digits is None and not metric.in_percent and 1e-4 <= largest < 1e4:
        return replace(metric, digits=max(0, 3 - math.floor(math.log10(largest))))
    return metric


def mean(value: float, low: float, high: float, seeds: float, of_row: float, metric: Metric) -> str:
    """Write a mean score with its confidence interval, and the number of seeds if other scores have more.

    Args:
        low: Start of the interval; NaN for one seed, which a mark shows. `high` is its end.
        seeds: Number of seeds with this score.
        of_row: Number of completed seeds.
    """
    if math.isnan(value):
        return MISSING
    return interval(value, low, high, metric) + ("" if seeds in (1, of_row) else f" (n = {seeds:.0f})")


def known(value: float, write: Callable[[float], str]) -> str:
    """Write a value, or a dash if it is unknown."""
    return MISSING if math.isnan(value) else write(value)


def seeds(row: Record) -> str:
    """Write the number of completed seeds, and the planned number if some are missing."""
    done, planned = row["seeds"], row["seeds_planned"]
    return f"{done}" if done == planned else f"{done} of {planned}"


def first_line(text: str, width: int = 100) -> str:
    """Return the first line of a text, shortened to a number of characters."""
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= width else line[: width - 1] + "…"


# ---- headings


def metric_headers(names: Sequence[str], declared: Metrics) -> dict[str, str]:
    """Return metric → heading: the declared name, or dataset and metric; without dataset if only one has it.

    Unless all metrics have the same unit and are to be maximized, each heading has a unit and an arrow.
    """
    short = {name: METRICS.get(metric, metric) for name in names for _, metric in [name.split("/", 1)]}
    count = Counter(short.values())
    headers = {
        name: text if count[text] == 1 else f"{name.split('/', 1)[0]} {text}" for name, text in short.items()
    }
    headers |= {name: text for name, text in declared.called(names).items() if text != name}
    if all_alike(names, declared):
        return headers
    return {name: heading(header, declared.of(name)) for name, header in headers.items()}


def all_alike(names: Sequence[str], declared: Metrics) -> bool:
    """Return whether all metrics have the same unit and are to be maximized."""
    metrics = [declared.of(name) for name in names]
    return len({each.unit for each in metrics}) == 1 and all(each.goal == "max" for each in metrics)


def heading(name: str, metric: Metric) -> str:
    """Write a name with its unit and the arrow of its goal: "PPL ↓", "top-1 (%) ↑"."""
    return " ".join(filter(None, (name, f"({metric.suffix})" if metric.suffix else "", metric.arrow)))
