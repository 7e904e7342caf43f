"""Figures of a table as people read them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from .. import units
from ..rendering import MISSING as MISSING
from ..rendering import Column, Record

ONE_SEED = "†"

_METRICS = {
    "zero_shot": "zero-shot",
    "10_shot": "10-shot",
    "i2t_r1": "I2T R@1",
    "t2i_r1": "T2I R@1",
}


def score(value: float, in_percent: bool, sign: str = "") -> str:
    """A score, in percent with one decimal where scores are shares; `sign` "+" shows it always."""
    shown = f"{100 * value:{sign}.1f}" if in_percent else f"{value:{sign}.4g}"
    return shown.replace("-", "−")


def rounded(value: float, in_percent: bool) -> float:
    """A score as rounded as it is shown."""
    return round(100 * value, 1) if in_percent else float(f"{value:.4g}")


def known(value: float, show: Callable[[float], str]) -> str:
    """What is known is shown."""
    return MISSING if math.isnan(value) else show(value)


def one_seed(key: str) -> Callable[[Record], str]:
    """Marks a cell that rests on one seed, whose number is in `key`."""
    return lambda row: ONE_SEED if row[key] == 1 else ""


def metric_headers(names: Sequence[str]) -> dict[str, str]:
    """Name → heading; the dataset is left out where one dataset alone has the metric."""
    parts = {name: name.split("/", 1) for name in names}
    several = Counter(metric for _, metric in parts.values())
    headers = {}
    for name, (dataset, metric) in parts.items():
        short = _METRICS.get(metric, metric)
        headers[name] = f"{dataset} {short}" if several[metric] > 1 else short
    return headers


def score_column(
    key: str, header: str, in_percent: bool, formula: str, inputs: tuple[str, ...] = ()
) -> Column:
    """Mean ± standard deviation over seeds, the best in bold."""

    def show(row: Record) -> str:
        mean, std = row[f"{key}_mean"], row[f"{key}_std"]
        if math.isnan(mean):
            return MISSING
        text = score(mean, in_percent) + ("" if math.isnan(std) else f" ± {score(std, in_percent)}")
        count = row[f"{key}_seeds"]
        return text if count in (1, row["seeds"]) else f"{text} (n = {count})"  # one seed has a mark

    return Column(
        key, header, show, lambda row: rounded(float(row[f"{key}_mean"]), in_percent),
        mark=one_seed(f"{key}_seeds"), formula=formula, inputs=inputs,
    )  # fmt: skip


def delta_column(header: str, in_percent: bool, formula: str, inputs: tuple[str, ...]) -> Column:
    """Mean difference with its confidence interval. Nothing is bold: the best Δ is the best score."""

    def show(row: Record) -> str:
        if math.isnan(row["delta_mean"]):
            return MISSING
        text = score(row["delta_mean"], in_percent, "+")
        if math.isnan(row["delta_low"]):
            return text
        low, high = (score(row[f"delta_{end}"], in_percent, "+") for end in ("low", "high"))
        return f"{text} [{low}, {high}]"

    return Column(
        "delta", header, show, mark=one_seed("delta_seeds"), formula=formula, inputs=inputs, compares=True
    )


def examples_column(header: str = "examples") -> Column:
    """Examples seen by the learner."""
    return Column(
        "examples_seen",
        header,
        lambda row: known(row["examples_seen"], units.count),
        formula="examples that the learner trained on, mean over seeds",
    )


def flops_column(scale: float, unit: str, formula: str) -> Column:
    """Total training FLOPs."""
    return Column(
        "flops",
        unit,
        lambda row: known(row["flops"], lambda flops: units.significant(flops / scale)),
        formula=formula,
    )


def seeds(row: Record) -> str:
    """How many seeds completed, of how many."""
    done, planned = row["seeds"], row["seeds_planned"]
    return f"{done}" if done == planned else f"{done} of {planned}"
