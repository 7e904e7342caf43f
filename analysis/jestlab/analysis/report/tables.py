"""Tables that only reports have: planned and actual costs, machine time, and failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import units
from ..goodput import CAUSES, USEFUL, Goodput, by_run, percent, total
from ..tables.core import MISSING, Column, Table, records
from ..tables.show import first_line, known

if TYPE_CHECKING:
    from ..provenance.history import History

_ALL = "all runs"


def _number(key: str, header: str, formula: str, text: Callable[[float], str]) -> Column:
    """Column of numbers, with a dash for NaN."""
    return Column(key, header, lambda row: known(row[key], text), formula=formula)


def _run_columns(shown: Mapping[str, str]) -> tuple[Column, Column]:
    """Columns of the name of a row's runs, and of their number."""
    return (
        Column("run", "run", lambda row: shown[str(row["label"])], align="left"),
        Column("runs", "runs", lambda row: f"{row['runs']}", formula="runs of that name, over all seeds"),
    )


def _renamed(history: History) -> dict[str, str]:
    """Label → displayed name, where they differ."""
    return {label: name for label in history.runs["label"] if (name := history.shown[label]) != label}


# ---- costs

_SHARE = "reference_training_share_flops"
_PARTS = {
    "learner_flops": "learner",
    "selection_flops": "selection",
    "scoring_flops": "scoring",
    "reference_scoring_flops": "reference scoring",
    _SHARE: "share of reference training",
}
"""Planned part of a run's FLOPs → its name."""

_TOTALS = (
    "planned_flops",
    "actual_flops",
    "planned_chip_hours",
    "actual_chip_hours",
    "planned_dollars",
    "actual_hours",
)


def cost_table(history: History) -> Table | None:
    """Compare planned and actual costs, with one row for each label and one for all runs.

    Returns:
        A table whose frame has the columns label, runs, priced (runs with a planned price), a column for each
        planned part (`learner_flops`, …), planned_flops (learner, scoring, selection), actual_flops,
        planned_chip_hours, actual_chip_hours, planned_dollars, actual_hours, actual_share (actual / planned,
        of the runs that have both). They are sums over the runs of a label, NaN if nothing is known. None if
        no run has a price or took any time.
    """
    import pandas as pd

    costs = history.costs.rename(columns={"total_flops": "planned_flops"})
    costs = costs.assign(**{name: math.nan for name in _TOTALS if name not in costs})
    if costs[[*_TOTALS]].isna().all(axis=None):
        return None
    parts = [name for name in _PARTS if name in costs and costs[name].notna().any()]
    has_both = costs["planned_flops"].gt(0) & costs["actual_flops"].notna()
    costs["of_both"] = costs["planned_flops"].where(has_both)
    costs["in_both"] = costs["actual_flops"].where(has_both)
    once = costs.drop_duplicates("fingerprint")
    everything = f"{_ALL} of {history.experiment}"  # differs from all labels
    rows = pd.concat([costs.assign(row=costs["label"]), once.assign(row=everything, label=_ALL)])
    of_row = rows.groupby("row", sort=False)
    frame = of_row.agg(label=("label", "first"), runs=("label", "size"), priced=("planned_flops", "count"))
    frame.insert(1, "apart", False)
    frame = frame.join(of_row[[*parts, *_TOTALS, "of_both", "in_both"]].sum(min_count=1))
    frame["actual_share"] = frame.pop("in_both") / frame.pop("of_both")
    if _SHARE in parts:  # the references themselves are among all runs
        frame.loc[everything, _SHARE] = math.nan
    frame = frame.reset_index()

    scale, unit = units.flops_unit([*frame["planned_flops"], *frame["actual_flops"]])
    is_local = "chip" not in costs or costs["chip"].dropna().eq("local").all()
    hours = "hours" if is_local else "chip-hours"

    def flops(amount: float) -> str:
        return units.significant(amount / scale)

    described: list[tuple[str, str, str, Callable[[float], str]]] = [
        *(
            (part, f"{_PARTS[part]} ({unit})", f"planned FLOPs of {_PARTS[part]}, summed over seeds", flops)
            for part in parts
            if frame[part].max() > 0
        ),
        ("planned_flops", f"planned ({unit})",
         "planned FLOPs of the learner's training, scoring and selection, summed over seeds", flops),
        ("actual_flops", f"actual ({unit})",
         "FLOPs counted during training so far, summed over seeds; repeated work counts once", flops),
        ("actual_share", "actual / planned",
         "actual over planned FLOPs, of the runs for which both are known", lambda x: f"{100 * x:.0f}%"),
        ("planned_chip_hours", f"planned {hours}",
         "planned chips × hours, summed over seeds; for a process, its hours", units.hours),
        ("actual_chip_hours", f"actual {hours}",
         "chips × hours of all attempts so far; for a process, its hours", units.hours),
        ("planned_dollars", "planned $", "planned chip-hours times their price", units.dollars),
    ]  # fmt: skip
    notes = [
        "planned: training, scoring and selection, before the launch; actual: the same as counted, so far",
        "actual / planned: over the runs for which both are known",
    ]
    if len(once) < len(costs):
        notes.append(f"{_ALL}: a run that occurs under several names counts once")
    if unpriced := int(once["planned_flops"].isna().sum()):
        notes.append(f"{unpriced} of {len(once)} runs have no planned price, since their program has none")
    if retried := int((history.runs.drop_duplicates("fingerprint")["attempts"] > 1).sum()):
        notes.append(f"actual {hours} include all attempts; {number_of(retried, 'run')} took several")
    return Table(
        name=f"{history.experiment} costs",
        caption="Planned and actual cost, summed over the seeds of each run.",
        frame=frame,
        columns=(
            *_run_columns(history.shown),
            *(_number(*each) for each in described if frame[each[0]].notna().any()),
        ),
        notes=tuple(notes),
        parts=costs.assign(row=costs["label"]),
        shown=_renamed(history),
    )


# ---- machine time

_MOST_BARS = 24
_LEAST_SHARE = 0.0005  # a cause that took a smaller share of all time has no column

_REDONE = "work of {} attempts that was, or has to be, done again"
_CAUSES: dict[str, tuple[str, str]] = {
    "training": ("#0072b2", "training that did not have to be done again"),
    "evaluation": ("#56b4e9", "evaluation that did not have to be done again"),
    "startup": ("#e69f00", "from the start of the worker's process to the first step, without compilation"),
    "compilation": ("#cc79a7", "tracing, lowering and compiling, and loading compiled programs"),
    "checkpoint": ("#009e73", "time in which training waited for checkpoints"),
    "winddown": ("#999999", "after the last step: upload, records"),
    "preempted": ("#d55e00", _REDONE.format("preempted")),
    "failed": ("#882255", _REDONE.format("failed")),
    "cancelled": ("#55505a", _REDONE.format("cancelled")),
}
"""Cause → color (of Okabe and Ito; neighbors in a bar also differ in lightness) and formula."""


@dataclass(frozen=True)
class MachineTime:
    """How the runs used their machines.

    Attributes:
        table: One row for each label, and one for all runs.
        causes: The causes shown → name and color.
        bars: The first rows and the last: name, goodput and held time as texts, shares (cause → share).
        sentence: The goodput of all runs in words.
    """

    table: Table
    causes: dict[str, tuple[str, str]]
    bars: list[dict[str, Any]]
    sentence: str


def machine_time(history: History) -> MachineTime | None:
    """Divide the time that an experiment's runs held machines among causes.

    Returns:
        Bars, and a table with one row for each label and one for all runs. The frame of the table has the
        columns label, runs, held (chip-seconds), goodput, a column for each cause (share of the held time),
        attempts, and queue (seconds). None if no attempt measured its time.
    """
    import pandas as pd

    goodputs = by_run(history.times)
    whole = total(goodputs.values())
    if whole.ratio is None:
        return None
    names = history.shown
    timed = history.runs[history.runs["fingerprint"].isin([*goodputs])]
    of_label = {str(label): list(runs) for label, runs in timed.groupby("label", sort=False)["fingerprint"]}
    sums = {label: total(goodputs[run] for run in runs) for label, runs in of_label.items()}
    sums = {label: goodput for label, goodput in sums.items() if goodput.attempts}
    parts = [
        _row(str(label), str(label), goodputs[run], seed=seed, fingerprint=run, experiment=history.experiment)
        for label, seed, run in zip(timed["label"], timed["seed"], timed["fingerprint"], strict=True)
        if label in sums
    ]
    rows = [_row(label, label, goodput, runs=len(of_label[label])) for label, goodput in sums.items()]
    rows.append(_row(f"{_ALL} of {history.experiment}", _ALL, whole, runs=len(goodputs)))
    causes = [cause for cause in CAUSES if whole.share(cause) >= _LEAST_SHARE]

    def share(value: float) -> str:
        return percent(value) if value > 0 else MISSING

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
    held = "time in which workers held their machines × chips, summed over seeds and attempts"
    goodput = "training and evaluation that did not have to be done again, over held"
    queue = "from the claims of attempts until their workers began; not in held"
    table = Table(
        name=f"{history.experiment} goodput",
        caption="Where the time went in which machines were held, summed over the seeds of each run.",
        frame=pd.DataFrame(rows),
        columns=(
            *_run_columns(names),
            _number("held", "held", held, _duration),
            _number("goodput", "goodput", goodput, percent),
            *(_number(cause, CAUSES[cause], _CAUSES[cause][1], share) for cause in causes),
            _number("attempts", "attempts", "attempts whose workers began", str),
            _number("queue", "queue", queue, _duration),
        ),
        notes=tuple(notes),
        parts=pd.DataFrame(parts),
        shown=_renamed(history),
    )
    bars = [
        {
            "name": names[row["label"]],
            "goodput": known(row["goodput"], percent),
            "held": _duration(row["held"]),
            "shares": {cause: row[cause] for cause in causes if row[cause] > 0},
        }
        for row in (rows if len(rows) <= _MOST_BARS else [*rows[: _MOST_BARS - 1], rows[-1]])
    ]
    more = f" The table has {len(rows) - len(bars)} more runs." if len(rows) > len(bars) else ""
    return MachineTime(
        table,
        {cause: (CAUSES[cause], _CAUSES[cause][0]) for cause in causes},
        [bar for bar in bars if bar["shares"]],
        f"Goodput {percent(whole.ratio)}: this share of the time in which machines were held was training "
        f"and evaluation that did not have to be done again.{more}",
    )


def _row(name: str, label: str, goodput: Goodput, **about: Any) -> dict[str, Any]:
    """Make a row of the table of machine time."""
    is_known = goodput.ratio is not None
    return {
        "row": name,
        "apart": False,
        "label": label,
        **about,
        "held": goodput.held / 1e6,
        "goodput": goodput.ratio if is_known else math.nan,
        **{cause: goodput.share(cause) if is_known else math.nan for cause in CAUSES},
        "attempts": goodput.attempts,
        "queue": goodput.waited / 1e6,
    }


def _duration(seconds: float) -> str:
    return units.duration(seconds / 3600) if seconds >= 0.5 else MISSING


# ---- failures

_FAILED = ("FAILED", "PREEMPTED", "CANCELLED")
_FAILURE = (
    "label", "seed", "fingerprint", "state", "attempt", "ended", "reason", "at", "exit_code", "host", "log"
)  # fmt: skip


def failure_table(history: History) -> Table | None:
    """List every attempt that did not complete, and every run that ended without an attempt.

    Returns:
        A table whose frame has the columns label, seed, fingerprint, state (of the run now), attempt, ended
        (state of the attempt), reason, at (UTC), exit_code, host, log (relative to the lab's root). None if
        nothing failed.
    """
    import pandas as pd

    runs = history.runs
    states = dict(zip(runs["fingerprint"], runs["state"], strict=True))
    lines = [
        attempt
        | {"state": states[attempt["fingerprint"]], "attempt": attempt["number"], "ended": attempt["state"]}
        | {"at": attempt["ended_at"] or attempt["heartbeat_at"]}
        for attempt in history.attempts
        if attempt["state"] in _FAILED
    ]
    is_tried = runs["fingerprint"].isin([line["fingerprint"] for line in lines])
    untried = runs[runs["state"].isin((*_FAILED, "SKIPPED")) & ~is_tried]
    lines += map(dict, records(untried[["label", "seed", "fingerprint", "state", "reason"]]))
    if not lines:
        return None
    frame = pd.DataFrame(lines, columns=[*_FAILURE])
    frame = frame.drop_duplicates(["fingerprint", "attempt"], ignore_index=True)
    frame = frame.astype({"attempt": "Int64", "exit_code": "Int64"})
    frame.insert(0, "row", frame.index.map(str))
    frame.insert(1, "apart", False)
    recovered = int(frame.drop_duplicates("fingerprint")["state"].eq("COMPLETED").sum())
    notes = ["log: relative to the lab's root"]
    if recovered:
        notes.append(f"{recovered} of these {'run' if recovered == 1 else 'runs'} completed later")

    def text(value: Any) -> str:
        return MISSING if pd.isna(value) or value == "" else str(value)

    def column(key: str, header: str) -> Column:
        is_number = key in ("seed", "attempt", "exit_code")
        return Column(key, header, lambda row: text(row[key]), align="right" if is_number else "left")

    return Table(
        name=f"{history.experiment} failures",
        caption="Attempts that did not complete, and runs that ended without one.",
        frame=frame,
        columns=(
            Column("run", "run", lambda row: history.shown[str(row["label"])], align="left"),
            column("seed", "seed"),
            column("attempt", "attempt"),
            column("ended", "ended"),
            column("state", "run is now"),
            Column("reason", "reason", lambda row: first_line(text(row["reason"]), 160), align="left"),
            column("at", "when (UTC)"),
            column("exit_code", "exit code"),
            column("host", "host"),
            column("log", "log"),
        ),
        notes=tuple(notes),
    )


def number_of(count: int, noun: str) -> str:
    """Write a count with its noun: "1 run", "1,200 runs"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
