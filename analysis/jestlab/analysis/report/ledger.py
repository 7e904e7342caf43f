"""The cost ledger: what each run was planned to take, and what it took."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import units
from ..rendering import Column, Record, Table
from ..tables.show import MISSING, known

if TYPE_CHECKING:
    import pandas as pd

    from .history import History

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
    "actual_flops": "FLOPs counted while training until now, summed over seeds; what was done again counts "
    "once",
    "actual_share": "actual over planned FLOPs, of the runs for which both are known",
    "planned_chip_hours": "planned chips × hours, summed over seeds; of a process, its hours",
    "actual_chip_hours": "chips × hours of all attempts until now; of a process, its hours",
    "planned_dollars": "planned chip-hours at their price",
}


def ledger(history: History) -> Table | None:
    """Costs planned against actual, a row a label and one for all runs.

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
    frame.insert(0, "row", [*frame["label"][:-1], f"{_ALL} of {history.experiment}"])  # no label is called so
    if _SHARE in parts:  # the references themselves are among all runs
        frame.loc[frame.index[-1], _SHARE] = math.nan
    rows: list[Record] = [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]
    scale, unit = units.flops_unit([*frame["planned_flops"], *frame["actual_flops"]])

    def flops(header: str, key: str) -> Column:
        return Column(
            key,
            f"{header} ({unit})",
            lambda row: known(row[key], lambda x: units.significant(x / scale)),
            formula=_FORMULAS[key],
        )

    def other(key: str, header: str, text: Callable[[float], str]) -> Column:
        return Column(key, header, lambda row: known(row[key], text), formula=_FORMULAS[key])

    chips = [str(chip) for chip in costs.get("chip", pd.Series(dtype=object)).dropna().unique()]
    hours = "hours" if all(chip == "local" for chip in chips) else "chip-hours"
    columns = [
        Column("run", "run", lambda row: str(row["label"]), align="left"),
        Column("runs", "runs", lambda row: f"{row['runs']}", formula="runs of that name, over all seeds"),
        *(flops(_PARTS[part], part) for part in parts if frame[part].max() > 0),
        flops("planned", "planned_flops"),
        flops("actual", "actual_flops"),
        other("actual_share", "actual / planned", lambda x: f"{100 * x:.0f}%"),
        other("planned_chip_hours", f"planned {hours}", units.hours),
        other("actual_chip_hours", f"actual {hours}", units.hours),
        other("planned_dollars", "planned $", units.dollars),
    ]
    # A column that nothing is known of says nothing.
    shown = [c for i, c in enumerate(columns) if i < 2 or any(c.show(row) != MISSING for row in rows)]
    return Table(
        name=f"{history.experiment} costs",
        caption="Planned against actual cost, summed over the seeds of each run.",
        frame=frame,
        columns=tuple(shown),
        notes=tuple(_notes(history, costs, once, hours)),
        parts=costs.assign(row=costs["label"]),
    )


def _sums(costs: pd.DataFrame, parts: list[str]) -> pd.DataFrame:
    """A row a label."""
    of_label = costs.groupby("label", sort=False)
    sums = of_label[[*parts, *_SUMS, "of_both", "in_both"]].sum(min_count=1)
    sums["actual_share"] = sums.pop("in_both") / sums.pop("of_both")
    sums.insert(0, "apart", False)
    sums.insert(1, "runs", of_label.size())
    sums.insert(2, "priced", of_label["planned_flops"].count())
    return sums.reset_index()


def _notes(history: History, costs: pd.DataFrame, once: pd.DataFrame, hours: str) -> list[str]:
    notes = [
        "planned: training, scoring and selection, before the launch; actual: the same as counted, until now"
    ]
    notes.append("actual / planned: over the runs for which both are known")
    if len(once) < len(costs):
        notes.append(f"{_ALL}: a run that stands under several names counts once")
    unpriced = int(once["planned_flops"].isna().sum())
    if unpriced:
        notes.append(f"{unpriced} of {len(once)} runs have no planned price: their program names none")
    retried = int((history.runs.drop_duplicates("fingerprint")["attempts"] > 1).sum())
    if retried:
        notes.append(
            f"actual {hours} are of all attempts; {retried} {'run' if retried == 1 else 'runs'} took several"
        )
    return notes
