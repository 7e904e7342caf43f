"""Where the machines' time went, for the page: a bar of shares for each run, and the table behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import units
from ..goodput import CAUSES, USEFUL, Goodput, by_run, percent, total
from ..provenance.history import History
from ..tables.core import MISSING, Column, Table
from ..tables.show import known
from .tables import TablePart

_ALL = "all runs"
_MOST_BARS = 24
_LEAST_SHARE = 0.0005  # of all time: a cause that took less has no column
_HOUR = 3600.0

_COLOURS: dict[str, str] = {
    "training": "#0072b2",
    "evaluation": "#56b4e9",
    "startup": "#e69f00",
    "compilation": "#cc79a7",
    "checkpoint": "#009e73",
    "winddown": "#999999",
    "preempted": "#d55e00",
    "failed": "#882255",
    "cancelled": "#55505a",
}
"""Okabe and Ito's colours, in an order in which neighbours in a bar differ in lightness, too."""

_FORMULAS: dict[str, str] = {
    "held": "time in which workers held their machines × chips, summed over seeds and attempts",
    "goodput": "training and evaluation that did not have to be done again, over held",
    "training": "training that did not have to be done again",
    "evaluation": "evaluation that did not have to be done again",
    "startup": "from the start of the worker's process until the first step, without compilation",
    "compilation": "tracing, lowering and compiling, and loading compiled programs",
    "checkpoint": "time in which training waited for checkpoints",
    "winddown": "after the last step: upload, records",
    "preempted": "work of preempted attempts that was, or has to be, done again",
    "failed": "work of failed attempts that was, or has to be, done again",
    "cancelled": "work of cancelled attempts that was, or has to be, done again",
    "attempts": "attempts whose workers began",
    "queue": "from the claims of attempts until their workers began; not in held",
}


@dataclass(frozen=True)
class Segment:
    """A piece of a bar.

    Attributes:
        name: What the time went to.
        colour: Its colour.
        x: Where it begins, in percent of the bar.
        width: In percent of the bar.
    """

    name: str
    colour: str
    x: float
    width: float


@dataclass(frozen=True)
class Bar:
    """Shares of the held time of the runs of one name.

    Attributes:
        name: Name of the runs.
        goodput: Their goodput, as text.
        held: Their held time, as text.
        segments: From left to right; together 100%.
        told: The bar in words.
    """

    name: str
    goodput: str
    held: str
    segments: tuple[Segment, ...]
    told: str


@dataclass(frozen=True)
class MachineTime:
    """Where the machines' time went.

    Attributes:
        part: The table, by run.
        bars: One for each run, and one for all; the table may have more rows.
        legend: Name and colour of what is in the bars.
        sentence: What the bars say, in one sentence.
    """

    part: TablePart
    bars: tuple[Bar, ...]
    legend: tuple[tuple[str, str], ...]
    sentence: str


def machine_time(history: History) -> MachineTime | None:
    """Divide the time that an experiment's runs held machines among causes.

    Args:
        history: Of the experiment.

    Returns:
        Bars and a table with a row a label and one for all runs, whose frame has the columns label, runs,
        held (chip-seconds), goodput, a column for each cause (share of held), attempts, queue (seconds). None
        if no attempt measured where its time went.
    """
    goodputs = by_run(history.times)
    whole = total(goodputs.values())
    if whole.ratio is None:
        return None
    labels: dict[str, dict[str, Goodput]] = {}
    for attempt in history.times:
        of_label = labels.setdefault(attempt.label, {})
        of_label[attempt.fingerprint] = goodputs[attempt.fingerprint]
    ordered = [str(label) for label in dict.fromkeys(history.runs["label"]) if str(label) in labels]
    found = {label: total(labels[label].values()) for label in ordered}
    found = {label: its for label, its in found.items() if its.attempts}
    shown: list[str] = [cause for cause in CAUSES if whole.share(cause) >= _LEAST_SHARE]
    table = _table(history, found, {label: len(labels[label]) for label in found}, whole, shown)
    names = [*(history.shown[label] for label in found), _ALL]
    bars = [_bar(name, its, shown) for name, its in zip(names, [*found.values(), whole], strict=True)]
    if len(bars) > _MOST_BARS:
        bars = [*bars[: _MOST_BARS - 1], bars[-1]]
    said = (
        f"Goodput {percent(whole.ratio)}: this share of the time in which machines were held was training "
        "and evaluation that did not have to be done again."
    )
    if left_out := len(found) + 1 - len(bars):
        said += f" The table has {left_out} more runs."
    return MachineTime(
        TablePart("goodput", "Where the machines’ time went", table),
        tuple(bar for bar in bars if bar.segments),
        tuple((CAUSES[cause], _COLOURS[cause]) for cause in shown),
        said,
    )


def _bar(name: str, found: Goodput, shown: Sequence[str]) -> Bar:
    segments: list[Segment] = []
    x = 0.0
    for cause in shown:
        width = 100 * found.share(cause)
        if width > 0:
            segments.append(Segment(CAUSES[cause], _COLOURS[cause], round(x, 3), round(width, 3)))
            x += width
    shares = {CAUSES[cause]: found.share(cause) for cause in shown if found.parts[cause]}
    told = ", ".join(f"{cause} {percent(share)}" for cause, share in shares.items())
    goodput = "unknown" if found.ratio is None else percent(found.ratio)
    return Bar(name, goodput, units.duration(found.held / 1e6 / _HOUR), tuple(segments), told)


def _table(
    history: History,
    found: dict[str, Goodput],
    runs: dict[str, int],
    whole: Goodput,
    shown: Sequence[str],
) -> Table:
    import pandas as pd

    count = len({attempt.fingerprint for attempt in history.times})
    rows = [{"row": label, "label": label, "runs": runs[label], **_row(its)} for label, its in found.items()]
    last = {"row": f"{_ALL} of {history.experiment}", "label": _ALL, "runs": count, **_row(whole)}
    frame = pd.DataFrame([*rows, last])
    frame.insert(1, "apart", False)
    goodputs = by_run(history.times)
    places = {(attempt.label, attempt.seed, attempt.fingerprint): None for attempt in history.times}
    parts = pd.DataFrame(
        [
            {
                "row": label, "experiment": history.experiment, "label": label, "seed": seed,
                "fingerprint": fingerprint, **_row(goodputs[fingerprint]),
            }
            for label, seed, fingerprint in places
            if label in found
        ]
    )  # fmt: skip
    names = history.shown

    def share(cause: str) -> Column:
        return Column(cause, CAUSES[cause], lambda row: _share(row[cause]), formula=_FORMULAS[cause])

    columns = (
        Column("run", "run", lambda row: names[str(row["label"])], align="left"),
        Column("runs", "runs", lambda row: f"{row['runs']}", formula="runs of that name, over all seeds"),
        Column("held", "held", lambda row: _duration(row["held"]), formula=_FORMULAS["held"]),
        Column(
            "goodput", "goodput", lambda row: known(row["goodput"], percent), formula=_FORMULAS["goodput"]
        ),
        *(share(cause) for cause in shown),
        Column("attempts", "attempts", lambda row: f"{row['attempts']}", formula=_FORMULAS["attempts"]),
        Column("queue", "queue", lambda row: _duration(row["queue"]), formula=_FORMULAS["queue"]),
    )
    return Table(
        name=f"{history.experiment} goodput",
        caption="Where the time went in which machines were held, summed over the seeds of each run.",
        frame=frame,
        columns=columns,
        notes=tuple(_notes(whole)),
        parts=parts,
        shown={label: names[label] for label in found if names[label] != label},
    )


def _row(found: Goodput) -> dict[str, Any]:
    known = found.ratio is not None
    return {
        "held": found.held / 1e6,
        "goodput": found.ratio if known else math.nan,
        **{cause: found.share(cause) if known else math.nan for cause in CAUSES},
        "attempts": found.attempts,
        "queue": found.waited / 1e6,
    }


def _notes(whole: Goodput) -> list[str]:
    notes = [
        "held: time × chips; of a machine without chips, its time",
        f"goodput: {' and '.join(USEFUL)}; shares are of held",
        "queue: from the claim of an attempt until its worker began, not in held",
    ]
    if whole.unknown_attempts:
        notes.append(
            f"{whole.unknown_attempts} of {whole.attempts} attempts did not measure where time went; "
            "they are in held, and in no share"
        )
    return notes


def _share(value: float) -> str:
    return percent(value) if value > 0 else MISSING


def _duration(seconds: float) -> str:
    return units.duration(seconds / _HOUR) if seconds >= 0.5 else MISSING
