"""Tables that only reports have: planned and actual costs, machine time, and failures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .. import units
from ..colors import BASELINE, PALETTE, REFERENCE
from ..goodput import CAUSES, Goodput, by_run, percent, total
from ..tables.core import MISSING, Column, Table, records
from ..tables.show import first_line, known

if TYPE_CHECKING:
    import pandas as pd

    from ..provenance.history import History

_ALL = "all runs"

Number = tuple[str, str, str, Callable[[Any], str]]
"""Column of numbers: key, header, formula, and a function that formats a number other than NaN."""


def _label_table(
    history: History,
    name: str,
    caption: str,
    frame: pd.DataFrame,
    numbers: Iterable[Number],
    notes: Iterable[str],
    parts: pd.DataFrame,
) -> Table:
    """Return a table with a row for each label and one for all runs."""

    def column(key: str, header: str, formula: str, write: Callable[[Any], str]) -> Column:
        return Column(key, header, lambda row: known(row[key], write), formula=formula)

    runs: Number = ("runs", "runs", "runs of that name, over all seeds", str)
    return Table(
        name=f"{history.experiment} {name}",
        caption=caption,
        frame=frame,
        columns=(_run_column(history), *(column(*each) for each in (runs, *numbers))),
        notes=tuple(notes),
        parts=parts,
        shown={label: shown for label in history.runs["label"] if (shown := history.shown[label]) != label},
    )


def _run_column(history: History) -> Column:
    return Column("run", "run", lambda row: history.shown[str(row["label"])], align="left")


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
    import pandas as pd

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

    numbers: list[Number] = [
        *((part, f"{name} ({unit})", f"planned FLOPs of {name}, summed over seeds", flops)
          for part, name in _PARTS.items() if part in parts and frame[part].max() > 0),
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
    unpriced = int(once["planned_flops"].isna().sum())
    retried = int((history.runs.drop_duplicates("fingerprint")["attempts"] > 1).sum())
    notes = {
        f"{_ALL}: a run that occurs under several names counts once": len(once) < len(costs),
        f"{unpriced} of {len(once)} runs have no planned price, since their program has none": unpriced,
        f"actual {hours} include all attempts; {number_of(retried, 'run')} took several": retried,
    }
    return _label_table(
        history, "costs", "Planned and actual cost, summed over the seeds of each run.", frame.reset_index(),
        (each for each in numbers if frame[each[0]].notna().any()),
        (note for note, holds in notes.items() if holds), costs,
    )  # fmt: skip


# ---- machine time

_MOST_BARS = 24
_LEAST_SHARE = 0.0005  # a cause that took a smaller share of all time has no column

_REDONE = "work of {} attempts that was, or has to be, done again"
_CAUSES: dict[str, tuple[str, str]] = {
    "training": (PALETTE[0].css, "training that did not have to be done again"),
    "evaluation": (PALETTE[5].css, "evaluation that did not have to be done again"),
    "startup": (
        PALETTE[1].css,
        "from the start of the worker to the first step, without compilation",
    ),
    "compilation": (PALETTE[4].css, "tracing, lowering and compiling, and loading compiled programs"),
    "checkpoint": (PALETTE[2].css, "time in which training waited for checkpoints"),
    "winddown": (REFERENCE.css, "after the last step: upload, records"),
    "preempted": (PALETTE[6].css, _REDONE.format("preempted")),
    "failed": (PALETTE[3].css, _REDONE.format("failed")),
    "cancelled": (BASELINE.css, _REDONE.format("cancelled")),
}
"""Cause → color and formula."""


def machine_time(history: History) -> tuple[Table, list[dict[str, Any]], str] | None:
    """Divide the time that an experiment's runs held machines among causes.

    Returns:
        A table with one row for each label and one for all runs. Its frame has the columns label, runs, held
        (chip-seconds), goodput, a column for each cause (share of the held time), attempts, and queue
        (seconds). Then a bar for each of the first rows and the last: name, goodput and held time as texts,
        shares (name and color of a cause, and its share); the last bar has all causes that are shown. Then a
        sentence with the goodput of all runs. None if no attempt measured its time.
    """
    import pandas as pd

    goodputs = by_run(history.times)
    whole = total(goodputs.values())
    if whole.ratio is None:
        return None
    timed = history.runs[history.runs["fingerprint"].isin([*goodputs])]
    rows, parts = [], []
    for label, runs in timed.groupby("label", sort=False):
        of_label = total(goodputs[run] for run in runs["fingerprint"])
        if of_label.attempts:
            rows.append(_row(label, of_label, runs=len(runs)))
            for seed, run in zip(runs["seed"], runs["fingerprint"], strict=True):
                about = {"seed": seed, "fingerprint": run, "experiment": history.experiment}
                parts.append(_row(label, goodputs[run], **about))
    rows.append(_row(_ALL, whole, row=f"{_ALL} of {history.experiment}", runs=len(goodputs)))
    causes = [cause for cause in CAUSES if whole.share(cause) >= _LEAST_SHARE]

    def share(value: float) -> str:
        return percent(value) if value > 0 else MISSING

    numbers: list[Number] = [
        ("held", "held",
         "time in which workers held their machines × chips, summed over seeds and attempts", _duration),
        ("goodput", "goodput",
         "training and evaluation that did not have to be done again, over held", percent),
        *((cause, CAUSES[cause], _CAUSES[cause][1], share) for cause in causes),
        ("attempts", "attempts", "attempts whose workers began", str),
        ("queue", "queue", "from the claims of attempts until their workers began; not in held", _duration),
    ]  # fmt: skip
    caption = "Where the time went in which machines were held, summed over the seeds of each run."
    unknown = (
        f"{whole.unknown_attempts} of {whole.attempts} attempts did not measure where time went; their time "
        "is in held, but in no share"
    )
    shown = rows if len(rows) <= _MOST_BARS else [*rows[: _MOST_BARS - 1], rows[-1]]
    bars = [
        {
            "name": history.shown[row["label"]],
            "goodput": known(row["goodput"], percent),
            "held": _duration(row["held"]),
            "shares": [(CAUSES[cause], _CAUSES[cause][0], row[cause]) for cause in causes if row[cause] > 0],
        }
        for row in shown
    ]
    more = f" The table has {len(rows) - len(shown)} more runs." if len(rows) > len(shown) else ""
    return (
        _label_table(
            history, "goodput", caption, pd.DataFrame(rows), numbers,
            (unknown,) if whole.unknown_attempts else (), pd.DataFrame(parts),
        ),
        [bar for bar in bars if bar["shares"]],
        f"Goodput {percent(whole.ratio)}: this share of the time in which machines were held was training "
        f"and evaluation that did not have to be done again.{more}",
    )  # fmt: skip


def _row(label: Any, goodput: Goodput, **about: Any) -> dict[str, Any]:
    """Return a row of the table of machine time."""
    is_known = goodput.ratio is not None
    row = {"row": label, "apart": False, "label": label, **about, "held": goodput.held / 1e6}
    row |= {"goodput": goodput.ratio if is_known else math.nan}
    row |= {cause: goodput.share(cause) if is_known else math.nan for cause in CAUSES}
    return row | {"attempts": goodput.attempts, "queue": goodput.waited / 1e6}


def _duration(seconds: float) -> str:
    return units.duration(seconds / 3600) if seconds >= 0.5 else MISSING


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
    import pandas as pd

    runs = history.runs
    states = dict(zip(runs["fingerprint"], runs["state"], strict=True))
    failed = {
        (attempt["fingerprint"], attempt["number"]): {
            **attempt,
            "at": attempt["ended_at"] or attempt["heartbeat_at"],
        }
        for attempt in reversed(history.attempts)  # a run has a row for each of its labels: the first stays
        if attempt["state"] in _FAILED
    }
    tried = {fingerprint for fingerprint, _ in failed}
    untried = runs[runs["state"].isin((*_FAILED, "SKIPPED")) & ~runs["fingerprint"].isin([*tried])]
    untried = untried.drop_duplicates("fingerprint").fillna({"reason": ""})
    lines = [
        *reversed(failed.values()),
        *records(untried[["label", "seed", "fingerprint", "state", "reason"]]),
    ]
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for line in lines:
        *before, error = (line["reason"] or "").split(" | ")
        groups.setdefault((error, " | ".join(before), line["state"]), []).append(line)
    if not groups:
        return None
    rows = []
    for (error, before, ended), members in groups.items():
        names = (
            f"{history.shown[str(each['label'])]}/{each['seed']}"
            + (f" #{n}" if (n := each.get("number")) else "")
            for each in members
        )
        now = Counter(states[each["fingerprint"]].lower() for each in members)
        last = max(members, key=lambda each: str(each.get("at") or ""))
        rows.append(
            {"error": error or ended.lower(), "times": len(members), "runs": ", ".join(names), "ended": ended}
            | {
                "state": ", ".join(f"{name} ×{n}" if n > 1 else name for name, n in now.items()),
                "before": before,
            }
            | {key: last.get(key) for key in ("at", "exit_code", "host", "log", "fingerprint")}
        )
    frame = pd.DataFrame(rows, columns=[*_FAILURE, "fingerprint"]).astype({"exit_code": "Int64"})
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
        notes=tuple(notes),
    )


def number_of(count: int, noun: str) -> str:
    """Write a count with its noun: "1 run", "1,200 runs"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
