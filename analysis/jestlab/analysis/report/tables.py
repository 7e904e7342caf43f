"""Tables that only reports have: planned and actual costs, and failures."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from .. import units
from ..provenance.history import History
from ..tables.core import MISSING, Column, Table, records
from ..tables.show import first_line, known

_ALL = "all runs"


def _number(key: str, header: str, formula: str, write: Callable[[Any], str]) -> Column:
    """Make a column of numbers; `write` formats a number other than NaN."""
    return Column(key, header, lambda row: known(row[key], write), formula=formula)


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

_TOTALS = [
    "planned_flops", "actual_flops", "planned_chip_hours", "actual_chip_hours", "planned_dollars",
    "actual_hours",
]  # fmt: skip


def cost_table(history: History) -> Table | None:
    """Compare planned and actual costs, with one row for each label and one for all runs.

    Returns:
        A table whose frame has the columns label, runs, priced (runs with a planned price), a column for each
        planned part (`learner_flops`, …), planned_flops (learner, scoring, selection), actual_flops,
        planned_chip_hours, actual_chip_hours, planned_dollars, actual_hours, actual_share (actual / planned,
        of the runs that have both). Costs are sums over the runs of a label, NaN if nothing is known. None if
        no run has a price or took any time.
    """
    costs = history.costs.rename(columns={"total_flops": "planned_flops"})
    if costs[_TOTALS].isna().all(axis=None):
        return None
    parts = [name for name in _PARTS if costs[name].notna().any()]
    has_both = costs["planned_flops"].gt(0) & costs["actual_flops"].notna()
    costs = costs.assign(row=costs["label"], of_both=costs["planned_flops"].where(has_both),
                         in_both=costs["actual_flops"].where(has_both))  # fmt: skip
    once = costs.drop_duplicates("fingerprint")
    everything = f"{_ALL} of {history.experiment}"  # differs from all labels
    of_row = pd.concat([costs, once.assign(row=everything, label=_ALL)]).groupby("row", sort=False)
    frame = of_row.agg(label=("label", "first"), runs=("label", "size"), priced=("planned_flops", "count"))
    frame.insert(1, "apart", False)
    frame = frame.join(of_row[[*parts, *_TOTALS, "of_both", "in_both"]].sum(min_count=1))
    frame["actual_share"] = frame.pop("in_both") / frame.pop("of_both")
    if _SHARE in parts:  # the references themselves are among all runs
        frame.loc[everything, _SHARE] = math.nan

    scale, unit = units.flops_unit([*frame["planned_flops"], *frame["actual_flops"]])
    hours = "hours" if costs["chip"].dropna().eq("local").all() else "chip-hours"

    def flops(amount: float) -> str:
        return units.significant(amount / scale)

    columns = [
        _number("runs", "runs", "runs of that name, over all seeds", str),
        *(_number(part, f"{name} ({unit})", f"planned FLOPs of {name}, summed over seeds", flops)
          for part, name in _PARTS.items() if part in parts and frame[part].max() > 0),
        _number("planned_flops", f"planned ({unit})",
                "planned FLOPs of the learner's training, scoring and selection, summed over seeds", flops),
        _number("actual_flops", f"actual ({unit})",
                "FLOPs counted during training so far, summed over seeds; repeated work counts once", flops),
        _number("actual_share", "actual / planned",
                "actual over planned FLOPs, of the runs for which both are known",
                lambda x: f"{100 * x:.0f}%"),
        _number("planned_chip_hours", f"planned {hours}",
                "planned chips × hours, summed over seeds; for a process, its hours", units.hours),
        _number("actual_chip_hours", f"actual {hours}",
                "chips × hours of all attempts so far; for a process, its hours", units.hours),
        _number("planned_dollars", "planned $", "planned chip-hours times their price", units.dollars),
    ]  # fmt: skip
    unpriced = int(once["planned_flops"].isna().sum())
    retried = int((history.runs.drop_duplicates("fingerprint")["attempts"] > 1).sum())
    notes = {
        f"{_ALL}: a run that occurs under several names counts once": len(once) < len(costs),
        f"{unpriced} of {len(once)} runs have no planned price, since their program has none": unpriced,
        f"actual {hours} include all attempts; {number_of(retried, 'run')} took several": retried,
    }
    labels, shown = history.runs["label"], history.shown
    return Table(
        name=f"{history.experiment} costs",
        caption="Planned and actual cost, summed over the seeds of each run.",
        frame=frame.reset_index(),
        columns=(
            Column("run", "run", lambda row: shown[str(row["label"])], align="left"),
            *(column for column in columns if frame[column.key].notna().any()),
        ),
        own_notes=tuple(note for note, holds in notes.items() if holds),
        parts=costs,
        shown={label: shown[label] for label in labels if shown[label] != label},
    )


# ---- failures

_FAILED = ("FAILED", "PREEMPTED", "CANCELLED")
_FAILURE = {
    "error": "error", "times": "times", "runs": "runs", "ended": "ended", "state": "runs are now",
    "before": "printed before", "at": "last (UTC)", "exit_code": "exit code", "host": "host", "log": "log",
}  # fmt: skip
"""Column of the frame → heading."""


def failure_table(history: History) -> Table | None:
    """List attempts that did not complete, and runs that ended without one; equal ones are one row.

    Returns:
        A table whose frame has the columns error (of the exception), times, runs (label/seed, and #attempt),
        ended (state of the attempts), state (current states of the runs), before (lines printed before the
        error), and at (UTC), exit_code, host, log (relative to the lab's root), and fingerprint of the last
        attempt. None if nothing failed.
    """
    runs = history.runs
    states = dict(zip(runs["fingerprint"], runs["state"], strict=True))
    # A run has a row for each of its labels: the first stays.
    failed = {
        (attempt["fingerprint"], attempt["number"]): attempt
        | {"at": attempt["ended_at"] or attempt["heartbeat_at"]}
        for attempt in reversed(history.attempts)
        if attempt["state"] in _FAILED
    }
    tried = {fingerprint for fingerprint, _ in failed}
    untried = runs[runs["state"].isin((*_FAILED, "SKIPPED")) & ~runs["fingerprint"].isin([*tried])]
    untried = untried.drop_duplicates("fingerprint").fillna({"reason": ""})
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for line in (*reversed(failed.values()), *records(untried)):
        *before, error = (line["reason"] or "").split(" | ")
        groups.setdefault((error, " | ".join(before), line["state"]), []).append(line)
    if not groups:
        return None
    rows = []
    for (error, before, ended), members in groups.items():
        names = (
            f"{history.shown[str(each['label'])]}/{each['seed']}"
            + (f" #{each['number']}" if "number" in each else "")
            for each in members
        )
        now = Counter(states[each["fingerprint"]].lower() for each in members)
        state = ", ".join(f"{name} ×{n}" if n > 1 else name for name, n in now.items())
        last = max(members, key=lambda each: str(each.get("at") or ""))
        row = {
            "error": error or ended.lower(), "times": len(members), "runs": ", ".join(names), "ended": ended,
            "state": state, "before": before,
        }  # fmt: skip
        rows.append({key: last.get(key) for key in (*_FAILURE, "fingerprint")} | row)
    frame = pd.DataFrame(rows).astype({"exit_code": "Int64"})
    frame.insert(0, "row", frame.index.map(str))
    frame.insert(1, "apart", False)
    notes = ["log: of the last attempt, relative to the lab's root"]
    if recovered := sum(states[fingerprint] == "COMPLETED" for fingerprint in tried):
        notes.append(f"{recovered} of these {'run' if recovered == 1 else 'runs'} completed later")

    def column(key: str, header: str) -> Column:
        def text(row: Any) -> str:
            missing = pd.isna(row[key]) or row[key] == ""
            return MISSING if missing else first_line(str(row[key]), 160)

        return Column(key, header, text, align="right" if key in ("times", "exit_code") else "left")

    return Table(
        name=f"{history.experiment} failures",
        caption="Attempts that did not complete, and runs that ended without one.",
        frame=frame,
        columns=tuple(column(*each) for each in _FAILURE.items()),
        own_notes=tuple(notes),
    )


def number_of(count: int, noun: str) -> str:
    """Write a count with its noun: "1 run", "1,200 runs"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
