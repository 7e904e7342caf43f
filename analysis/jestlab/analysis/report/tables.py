"""Tables of a report page alone: verdicts on claims, planned against actual cost, and failures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from .. import units
from ..claims.claim import SCORE
from ..claims.evidence import Verdict
from ..claims.judged import Judged
from ..provenance.document import SUFFIX
from ..provenance.history import History
from ..tables import show
from ..tables.claims import MARKS, agree, chance, difference, expected, names
from ..tables.core import MISSING, Column, Record, Table, records
from ..tables.show import first_line, known

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup


_KINDS: dict[Verdict, str] = {
    "holds": "holds",
    "does not hold": "fails",
    "undecided": "open",
    "not run": "open",
}
"""Verdict → CSS class."""

_MOST_ROWS = {"failures": 200}
"""Table → rows shown in the page at most; its files have all."""


@dataclass(frozen=True)
class TablePart:
    """A table of a report.

    Attributes:
        name: Stem of its file names, and its anchor in the page.
        title: Heading above it.
        table: Its content.
        judged: For a table of claims, the claims in the order of its rows.
    """

    name: str
    title: str
    table: Table
    judged: tuple[Judged, ...] = ()

    @property
    def html(self) -> Markup:
        """The rows that the page shows."""
        from markupsafe import Markup

        return Markup(self.table.html(opens=True, most=_MOST_ROWS.get(self.name)))

    @property
    def left_out(self) -> str:
        """Where the other rows are; empty where the page shows all."""
        rows = len(self.table.frame)
        most = _MOST_ROWS.get(self.name, rows)
        return f"{most} of {rows:,} rows; {self.name}.csv has all." if rows > most else ""

    @property
    def files(self) -> list[str]:
        """Names of the files that lie beside the page."""
        return [f"{self.name}.tex", f"{self.name}.csv", self.name + SUFFIX]

    @cached_property
    def claims(self) -> list[dict[str, Any]]:
        """Each claim of a table of claims as the page shows it, by words and sign as well as by colour."""
        rows = records(self.table.frame)
        return [
            _claim_item(name, each, row)
            for name, each, row in zip(names(self.judged), self.judged, rows, strict=True)
        ]


def _claim_item(name: str, each: Judged, row: Record) -> dict[str, Any]:
    claim, shown = each.claim, difference(row, each.metric)
    seeds = show.seeds(row)
    likely = ""
    if each.seeds >= 2 and each.reason:  # of fewer seeds the number itself is the reason
        reason = _sentence(each.reason)
        fails = each.verdict == "does not hold"
        likely = f"Likely reason: {reason}" if fails else reason[0].upper() + reason[1:]
    return {
        "row": name,
        "study": each.experiment,
        "kind": _KINDS[each.verdict],
        "mark": MARKS[each.verdict],
        "verdict": each.verdict_text,
        "statement": claim.statement,
        "source": claim.source,
        "difference": "" if shown == MISSING else shown,
        "unit": f" {each.metric.of_differences}" if each.metric.suffix and claim.unit == SCORE else "",
        "seeds": f"{seeds} {'seed' if seeds == '1' else 'seeds'}",
        "claim": claim.text(each.shown),
        "sure": _sure(each),
        "missing": _sentence(each.gap),
        "likely": likely,
    }


def _sure(each: Judged) -> str:
    """Say what was expected, how sure the verdict is, and why there are no more seeds."""
    if each.seeds < 2:
        return ""
    said = [
        f"Expected {expected(each)}",
        f"{agree(each)} seeds agree",
        f"chance of an error {chance(each)}",
        *([f"stopped: {each.stopped}"] if each.judging.until is not None else []),
        *([f"exploratory: {each.exploratory}"] if each.exploratory else []),
    ]
    return "; ".join(said) + "."


def _sentence(text: str) -> str:
    """End a text with a full stop, if it has no end."""
    return text if not text or text.endswith((".", "?", "!", "…")) else f"{text}."


_SUMS = (
    "planned_flops",
    "actual_flops",
    "planned_chip_hours",
    "actual_chip_hours",
    "planned_dollars",
    "actual_hours",
)
_SHARE = "reference_training_share_flops"
_PARTS = {
    "learner_flops": "learner",
    "selection_flops": "selection",
    "scoring_flops": "scoring",
    "reference_scoring_flops": "reference scoring",
    _SHARE: "share of reference training",
}
_ALL = "all runs"

_FORMULAS = {
    **{key: f"planned FLOPs of {part}, summed over seeds" for key, part in _PARTS.items()},
    "planned_flops": "planned FLOPs of the learner's training, scoring and selection, summed over seeds",
    "actual_flops": "FLOPs counted during training so far, summed over seeds; repeated work counts once",
    "actual_share": "actual over planned FLOPs, of the runs for which both are known",
    "planned_chip_hours": "planned chips × hours, summed over seeds; for a process, its hours",
    "actual_chip_hours": "chips × hours of all attempts so far; for a process, its hours",
    "planned_dollars": "planned chip-hours times their price",
}


def cost_breakdown(history: History) -> Table | None:
    """Compare planned and actual costs, with one row a label and one for all runs.

    Args:
        history: Of the experiment.

    Returns:
        A table whose frame has the columns label, runs, priced (runs whose price was planned), a column for
        each planned part (`learner_flops`, …), planned_flops (learner, scoring, selection), actual_flops,
        actual_share (actual / planned, over runs that have both), planned_chip_hours, actual_chip_hours,
        planned_dollars, actual_hours; sums over the runs of a label, NaN where nothing is known. None if no
        run has a price or took any time.
    """
    import pandas as pd

    costs = history.costs.rename(columns={"total_flops": "planned_flops"})
    for name in _SUMS:
        if name not in costs:
            costs[name] = math.nan
    if costs[[*_SUMS]].isna().all(axis=None):
        return None
    parts = [name for name in _PARTS if name in costs and costs[name].notna().any()]
    both = costs["planned_flops"].notna() & costs["actual_flops"].notna()
    costs["of_both"] = costs["planned_flops"].where(both & (costs["planned_flops"] > 0))
    costs["in_both"] = costs["actual_flops"].where(costs["of_both"].notna())
    once = costs.drop_duplicates("fingerprint")
    frame = pd.concat([_sums(costs, parts), _sums(once.assign(label=_ALL), parts)], ignore_index=True)
    frame.insert(0, "row", [*frame["label"][:-1], f"{_ALL} of {history.experiment}"])  # unlike any label
    if _SHARE in parts:  # the references themselves are among all runs
        frame.loc[frame.index[-1], _SHARE] = math.nan
    scale, unit = units.flops_unit([*frame["planned_flops"], *frame["actual_flops"]])

    def column(key: str, header: str, text: Callable[[float], str]) -> Column:
        return Column(key, header, lambda row: known(row[key], text), formula=_FORMULAS[key])

    def flops(header: str, key: str) -> Column:
        return column(key, f"{header} ({unit})", lambda x: units.significant(x / scale))

    chips = [str(chip) for chip in costs.get("chip", pd.Series(dtype=object)).dropna().unique()]
    hours = "hours" if all(chip == "local" for chip in chips) else "chip-hours"
    shown = history.shown
    columns = [
        Column("run", "run", lambda row: shown[str(row["label"])], align="left"),
        Column("runs", "runs", lambda row: f"{row['runs']}", formula="runs of that name, over all seeds"),
        *(flops(_PARTS[part], part) for part in parts if frame[part].max() > 0),
        flops("planned", "planned_flops"),
        flops("actual", "actual_flops"),
        column("actual_share", "actual / planned", lambda x: f"{100 * x:.0f}%"),
        column("planned_chip_hours", f"planned {hours}", units.hours),
        column("actual_chip_hours", f"actual {hours}", units.hours),
        column("planned_dollars", "planned $", units.dollars),
    ]
    rows = records(frame)
    # A column of which nothing is known is left out.
    kept = [c for i, c in enumerate(columns) if i < 2 or any(c.text(row) != MISSING for row in rows)]
    return Table(
        name=f"{history.experiment} costs",
        caption="Planned and actual cost, summed over the seeds of each run.",
        frame=frame,
        columns=tuple(kept),
        notes=tuple(_cost_notes(history, costs, once, hours)),
        parts=costs.assign(row=costs["label"]),
        shown={label: shown[label] for label in costs["label"].unique() if shown[label] != label},
    )


def _sums(costs: pd.DataFrame, parts: list[str]) -> pd.DataFrame:
    """One row a label."""
    of_label = costs.groupby("label", sort=False)
    sums = of_label[[*parts, *_SUMS, "of_both", "in_both"]].sum(min_count=1)
    sums["actual_share"] = sums.pop("in_both") / sums.pop("of_both")
    sums.insert(0, "apart", False)
    sums.insert(1, "runs", of_label.size())
    sums.insert(2, "priced", of_label["planned_flops"].count())
    return sums.reset_index()


def _cost_notes(history: History, costs: pd.DataFrame, once: pd.DataFrame, hours: str) -> list[str]:
    notes = [
        "planned: training, scoring and selection, before the launch; actual: the same as counted, so far",
        "actual / planned: over the runs for which both are known",
    ]
    if len(once) < len(costs):
        notes.append(f"{_ALL}: a run that occurs under several names counts once")
    unpriced = int(once["planned_flops"].isna().sum())
    if unpriced:
        notes.append(f"{unpriced} of {len(once)} runs have no planned price, since their program has none")
    retried = int((history.runs.drop_duplicates("fingerprint")["attempts"] > 1).sum())
    if retried:
        notes.append(
            f"actual {hours} include all attempts; {retried} {'run' if retried == 1 else 'runs'} took several"
        )
    return notes


_BAD = ("FAILED", "PREEMPTED", "CANCELLED")
_STUCK = (*_BAD, "SKIPPED")


def failures(history: History) -> Table | None:
    """List every attempt that did not complete, and every run that ended without one.

    Args:
        history: Of the experiment.

    Returns:
        A table whose frame has the columns label, seed, fingerprint, state (of the run now), attempt, ended
        (how the attempt did), reason, at (UTC), exit_code, host, log (relative to the lab's root). None if
        nothing went wrong.
    """
    import pandas as pd

    runs, shown = history.runs, history.shown
    bad = history.attempts[history.attempts["state"].isin(_BAD)]
    frame = bad[["label", "seed", "fingerprint"]].assign(
        state=bad["fingerprint"].map(dict(zip(runs["fingerprint"], runs["state"], strict=True))),
        attempt=bad["number"],
        ended=bad["state"],
        reason=bad["reason"],
        at=bad["ended_at"].fillna(bad["heartbeat_at"]),
    )
    frame[["exit_code", "host", "log"]] = bad[["exit_code", "host", "log"]]
    untried = runs[runs["state"].isin(_STUCK) & ~runs["fingerprint"].isin(bad["fingerprint"])]
    if len(untried):
        missed = untried[["label", "seed", "fingerprint", "state", "reason"]]
        frame = pd.concat([frame, missed], ignore_index=True)
    if frame.empty:
        return None
    frame = frame.drop_duplicates(["fingerprint", "attempt"], ignore_index=True)
    frame = frame.astype({"attempt": "Int64", "exit_code": "Int64"})
    frame.insert(0, "row", [f"{one}" for one in range(len(frame))])
    frame.insert(1, "apart", False)
    recovered = int(frame.drop_duplicates("fingerprint")["state"].eq("COMPLETED").sum())
    notes = ["log: relative to the lab's root"]
    if recovered:
        notes.append(f"{recovered} of these {'run' if recovered == 1 else 'runs'} completed later")

    def column(key: str, header: str, align: Literal["left", "right"] = "left") -> Column:
        return Column(key, header, lambda row: _text(row[key]), align=align)

    return Table(
        name=f"{history.experiment} failures",
        caption="Attempts that did not complete, and runs that ended without one.",
        frame=frame,
        columns=(
            Column("run", "run", lambda row: shown[str(row["label"])], align="left"),
            column("seed", "seed", "right"),
            column("attempt", "attempt", "right"),
            column("ended", "ended"),
            column("state", "run is now"),
            Column("reason", "reason", lambda row: _reason(row["reason"]), align="left"),
            Column("at", "when (UTC)", lambda row: _text(row["at"])[:19], align="left"),
            column("exit_code", "exit code", "right"),
            column("host", "host"),
            column("log", "log"),
        ),
        notes=tuple(notes),
    )


def _text(value: object) -> str:
    import pandas as pd

    return MISSING if pd.isna(value) or value == "" else str(value)  # type: ignore[call-overload]


def _reason(value: object) -> str:
    return first_line(_text(value), width=160) or MISSING
