"""How the numbers of a table are printed, and the notes that explain them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import units
from ..frames import Frames
from .core import MISSING as MISSING
from .core import Column, Record, Table

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


def score(value: float, in_percent: bool, sign: str = "") -> str:
    """A score, in percent with one decimal where scores are shares; `sign` "+" shows it always."""
    shown = f"{100 * value:{sign}.1f}" if in_percent else f"{value:{sign}.4g}"
    return shown.replace("-", "−")


def rounded(value: float, in_percent: bool) -> float:
    """Round a score as it is shown."""
    return round(100 * value, 1) if in_percent else float(f"{value:.4g}")


def known(value: float, show: Callable[[float], str]) -> str:
    """Format a value, or a dash if it is unknown."""
    return MISSING if math.isnan(value) else show(value)


def one_seed(key: str) -> Callable[[Record], str]:
    """Mark cells that rest on one seed; `key` holds the number of seeds."""
    return lambda row: ONE_SEED if row[key] == 1 else ""


def metric_headers(names: Sequence[str]) -> dict[str, str]:
    """Headings of metrics by name; the dataset is left out if only one dataset has the metric."""
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
    """Column of mean ± standard deviation over seeds, the best in bold."""

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
    """Column of the mean difference with its confidence interval; never bold: the best score is."""

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
    """Column of examples seen by the learner."""
    return Column(
        "examples_seen",
        header,
        lambda row: known(row["examples_seen"], units.count),
        formula="examples that the learner trained on, mean over seeds",
    )


def flops_column(scale: float, unit: str, formula: str) -> Column:
    """Column of total training FLOPs."""
    return Column(
        "flops",
        unit,
        lambda row: known(row["flops"], lambda flops: units.significant(flops / scale)),
        formula=formula,
    )


def seeds(row: Record) -> str:
    """Number of completed seeds, and of planned ones if some are missing."""
    done, planned = row["seeds"], row["seeds_planned"]
    return f"{done}" if done == planned else f"{done} of {planned}"


# ---- notes


def with_marks_explained(table: Table) -> Table:
    """Add a note on each kind of mark that the table has."""
    marks = {cell.mark for section in table.sections() for line in section.lines for cell in line.cells}
    if not any(ONE_SEED in mark for mark in marks):
        return table
    return replace(table, notes=(*table.notes, f"{ONE_SEED} one seed only: its spread is unknown"))


def gaps(finals: Finals) -> list[str]:
    """Notes on rows that need one: references, runs that did not complete, missing scores."""
    frames = finals.frames
    notes = [
        f"{label}: a reference that other runs depend on; not ranked"
        for label in frames.apart_from(finals.baseline)
    ]
    notes += unfinished(frames)
    left_out = [name for name in frames.metrics if name not in finals.averaged]
    averaged = list(finals.averaged)
    missing = finals.runs[averaged].isna().groupby(finals.runs["label"], sort=False).any()
    for label, of_metric in missing[missing.any(axis=1)].iterrows():
        lacking = [name for name in averaged if of_metric[name]]
        notes.append(f"{label}: no score where {', '.join(lacking)} is missing")
    if left_out:
        notes.append(f"score: without {', '.join(left_out)}, which some runs lack")
    return notes


def unfinished(frames: Frames) -> list[str]:
    """One line for each label with runs that have not completed, and why."""
    runs = frames.runs[frames.runs["state"] != "COMPLETED"]
    return [
        f"{label}: {'; '.join(_why_open(run) for _, run in of_label.iterrows())}"
        for label, of_label in runs.groupby("label", sort=False)
    ]


def _why_open(run: pd.Series[Any]) -> str:
    text = f"seed {run['seed']} {run['state']}"
    if run["step"] > 0:
        text += f" at step {run['step']:.0f}"
        text += f" of {run['total_steps']:.0f}" if run["total_steps"] > 0 else ""  # NaN where it is not known
    if isinstance(run["reason"], str) and run["reason"].strip():
        text += f" ({_shortened(run['reason'].strip().splitlines()[0])})"
    return text


def _shortened(text: str, width: int = 100) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
