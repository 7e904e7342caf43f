"""How the numbers of a table are printed, and the notes that explain them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..frames import Frames
from ..lost import DIVERGED
from ..metrics import Metric, Metrics
from .core import MISSING as MISSING
from .core import Record, Table, records

if TYPE_CHECKING:
    import pandas as pd

    from .summary import Finals

ONE_SEED = "†"

_METRICS = {
    "zero_shot": "zero-shot",
    "10_shot": "10-shot",
    "i2t_r1": "I2T R@1",
    "t2i_r1": "T2I R@1",
}


def mean(value: float, std: float, seeds: float, whole: float, metric: Metric) -> str:
    """A mean score ± its standard deviation; with the number of its seeds if the row has others as well."""
    if math.isnan(value):
        return MISSING
    text = spread(value, std, metric)
    return text if seeds in (1, whole) else f"{text} (n = {seeds:.0f})"  # one seed has a mark


def spread(value: float, std: float, metric: Metric) -> str:
    """Write a mean ± its standard deviation, if there is one, with the same number of decimals."""
    if math.isnan(std):
        return metric.text(value)
    largest = max(abs(value), std)
    if metric.digits is None and not metric.in_percent and 1e-4 <= largest < 1e4:  # others have an exponent
        metric = replace(metric, digits=3 - math.floor(math.log10(largest)))
    return f"{metric.text(value)} ± {metric.text(std)}"


def difference(value: float, low: float, high: float, metric: Metric) -> str:
    """A difference of scores with its confidence interval, which one seed does not have."""
    if math.isnan(value):
        return MISSING
    text, *ends = (metric.text(number, "+") for number in (value, low, high))
    return text if math.isnan(low) else f"{text} [{', '.join(ends)}]"


def known(value: float, show: Callable[[float], str]) -> str:
    """Format a value, or a dash if it is unknown."""
    return MISSING if math.isnan(value) else show(value)


def one_seed(key: str) -> Callable[[Record], str]:
    """Mark cells that rest on one seed; `key` holds the number of seeds."""
    return lambda row: ONE_SEED if row[key] == 1 else ""


def metric_headers(names: Sequence[str], declared: Metrics) -> dict[str, str]:
    """Headings of metrics by name, as declared; the dataset is left out if only one dataset has the metric.

    Unless all metrics have one unit and more of each is better, each heading has its unit, and an arrow that
    says whether more or less is better.
    """
    parts = {name: name.split("/", 1) for name in names}
    several = Counter(metric for _, metric in parts.values())
    headers = {}
    for name, (dataset, metric) in parts.items():
        short = _METRICS.get(metric, metric)
        headers[name] = f"{dataset} {short}" if several[metric] > 1 else short
    headers |= {name: text for name, text in declared.called(names).items() if text != name}
    if all_alike(names, declared):
        return headers
    return {name: heading(header, declared.of(name)) for name, header in headers.items()}


def all_alike(names: Sequence[str], declared: Metrics) -> bool:
    """Whether the metrics have one unit, and more of each is better."""
    found = [declared.of(name) for name in names]
    return len({each.unit for each in found}) == 1 and all(each.goal == "max" for each in found)


def heading(name: str, metric: Metric) -> str:
    """Write a name with its unit and the arrow of its goal: "PPL ↓", "top-1 (%) ↑"."""
    return " ".join(filter(None, (name, f"({metric.suffix})" if metric.suffix else "", metric.arrow)))


def seeds(row: Record) -> str:
    """Number of completed seeds, and of planned ones if some are missing."""
    done, planned = row["seeds"], row["seeds_planned"]
    return f"{done}" if done == planned else f"{done} of {planned}"


# ---- notes


def with_marks_explained(table: Table) -> Table:
    """Add a note on each kind of mark that the table has."""
    marks = [column.mark for column in table.columns if column.mark is not None]
    if not any(ONE_SEED in mark(row) for row in records(table.frame) for mark in marks):
        return table
    return replace(table, notes=(*table.notes, f"{ONE_SEED} one seed only: its spread is unknown"))


def gaps(finals: Finals) -> list[str]:
    """Notes on rows that need one: references, runs that did not complete, missing scores."""
    frames = finals.frames
    notes = [
        f"{frames.shown[label]}: a reference that other runs depend on; not ranked"
        for label in frames.apart_from(finals.baseline)
    ]
    for name, lost in frames.lost.items():
        notes.append(f"{frames.shown[name]}: {lost}{'; not ranked' * (DIVERGED in frames.fates[name])}")
    notes += unfinished(frames)
    averaged = list(finals.averaged)
    left_out = [name for name in frames.averaged if name not in averaged]
    missing = finals.runs[averaged].isna().groupby(finals.runs["label"], sort=False).any()
    for row, of_metric in missing[missing.any(axis=1)].iterrows():
        lacking = [name for name in averaged if of_metric[name]]
        notes.append(f"{frames.shown[str(row)]}: no score where {', '.join(lacking)} is missing")
    if left_out:
        notes.append(f"score: without {', '.join(left_out)}, which some runs lack")
    return notes


def unfinished(frames: Frames) -> list[str]:
    """One line for each label with runs that have not completed, and why."""
    runs = frames.runs[frames.runs["state"] != "COMPLETED"]
    return [
        f"{frames.shown[str(label)]}: {'; '.join(_why_open(run) for _, run in of_label.iterrows())}"
        for label, of_label in runs.groupby("label", sort=False)
    ]


def _why_open(run: pd.Series[Any]) -> str:
    text = f"seed {run['seed']} {run['state']}"
    if run["step"] > 0:
        text += f" at step {run['step']:.0f}"
        text += f" of {run['total_steps']:.0f}" if run["total_steps"] > 0 else ""  # NaN where it is not known
    if isinstance(run["reason"], str) and (reason := first_line(run["reason"])):
        text += f" ({reason})"
    return text


def first_line(text: str, width: int = 100) -> str:
    """The first line of a text, shortened to a number of characters; empty if there is none."""
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= width else line[: width - 1] + "…"
