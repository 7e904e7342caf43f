"""The table of claims, each with its verdict and difference."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..intervals import INTERVAL
from ..measures import SCORE
from ..metrics import Metric
from ..verdicts import Judged, Verdict, counted
from . import show
from .core import ESSENTIAL, Column, Record, Table

if TYPE_CHECKING:
    import pandas as pd

MARKS: dict[Verdict, str] = {"holds": "✓", "does not hold": "✗", "undecided": "?", "not run": "○"}
"""Verdict → its sign in pages and terminals."""

_RULES = (
    f"difference: what the claim is of minus what it is compared with, seed by seed, mean [{INTERVAL} by "
    "Student's t]; of scores in points (%)",
    "holds: the whole interval lies where the claim says; does not hold: the whole interval lies elsewhere; "
    "undecided: neither, or there are fewer than two seeds",
    "each interval misses the true difference one time in twenty: of many claims, expect some misses",
)
_SEEDS = "seeds in which all runs of both sides have completed, of those planned"


def claims_table(judged: Sequence[Judged], name: str, by_study: bool = False) -> Table:
    """Build the table of claims with their verdicts, one row for each claim.

    Args:
        judged: Them, in the order of the studies.
        name: Of the experiment, or of several.
        by_study: Whether a first column says of which study each is.

    Returns:
        A table whose frame has study, statement, source, verdict, scale, claim (what is compared, in the
        words of the spec), measure (what the difference is one of), within, difference, low, high (in the
        measure's own unit), seeds, seeds_planned, reason; unit and digits of the measure.
    """
    meant = {row: each.metric for row, each in zip(names(judged), judged, strict=True)}
    return Table(
        name=f"{name} claims",
        caption=counted(judged),
        frame=_frame(judged),
        columns=(
            *(
                [Column("study", "study", lambda row: str(row["study"]), align="left", importance=70)]
                if by_study
                else []
            ),
            Column(
                "statement", "claim", lambda row: str(row["statement"]), align="left", importance=ESSENTIAL
            ),
            Column(
                "source",
                "source",
                lambda row: str(row["source"]),
                align="left",
                importance=40,
                data=("source",),
            ),
            Column("verdict", "verdict", lambda row: str(row["said"]), align="left", importance=90),
            _difference_column(meant),
            Column("seeds", "n", show.seeds, formula=_SEEDS, importance=30),
            Column(
                "reason",
                "why not",
                lambda row: str(row["reason"]),
                align="left",
                importance=20,
                data=("reason",),
            ),
        ),
        notes=(*_RULES, *_gaps(judged)),
        parts=_parts(judged),
    )


def _difference_column(meant: Mapping[str, Metric]) -> Column:
    """Column of differences.

    Args:
        meant: Row → what its difference is one of.
    """
    return Column(
        "difference",
        "difference",
        lambda row: difference(row, meant[row["row"]]) + _allowed(row, meant[row["row"]]),
        formula="mean over seeds of what the claim is of minus what it is compared with; in brackets "
        f"its {INTERVAL} by Student's t; a run adds its value times its weight",
        inputs=("value", "weight"),
        importance=80,
        family="differences",
        data=("difference", "low", "high"),
        rounded=lambda n: _difference_column({row: replace(each, digits=n) for row, each in meant.items()}),
    )


def difference(row: Record, metric: Metric) -> str:
    """Write the difference of a claim with its interval, and its measure if that is not the score."""
    text = show.difference(row["difference"], row["low"], row["high"], metric)
    if text == show.MISSING or row["measure"] == SCORE:
        return text
    return f"{text} {metric.name or row['measure']}"


def _allowed(row: Record, metric: Metric) -> str:
    """Write the difference that still counts as equal."""
    if math.isnan(row["within"]) or math.isnan(row["difference"]):
        return ""
    return f" ({metric.text(row['within'])} is as good)"


def _frame(judged: Sequence[Judged]) -> pd.DataFrame:
    import pandas as pd

    rows: list[dict[str, Any]] = [
        {
            "row": name,
            "apart": False,
            "study": each.experiment,
            "statement": each.claim.statement,
            "source": each.claim.source,
            "verdict": each.verdict,
            "said": each.said,
            "scale": each.scale,
            "claim": str(each.claim),
            "measure": each.claim.unit,
            "within": math.nan if each.claim.within is None else each.claim.within,
            "difference": each.difference,
            "low": each.low,
            "high": each.high,
            "seeds": each.seeds,
            "seeds_planned": each.planned,
            "reason": each.reason,
            "unit": each.metric.unit,
            "digits": math.nan if each.metric.digits is None else each.metric.digits,
        }
        for name, each in zip(names(judged), judged, strict=True)
    ]
    return pd.DataFrame(rows)


def names(judged: Sequence[Judged]) -> list[str]:
    """Name the rows by their statements, and by the study if several state the same."""
    several = Counter(each.claim.statement for each in judged)
    return [
        each.claim.statement
        if several[each.claim.statement] == 1
        else f"{each.claim.statement} ({each.experiment})"
        for each in judged
    ]


def _parts(judged: Sequence[Judged]) -> pd.DataFrame:
    import pandas as pd

    found = [each.parts.assign(row=name) for name, each in zip(names(judged), judged, strict=True)]
    filled = [parts for parts in found if len(parts)]
    return pd.concat(filled, ignore_index=True) if filled else found[0]


def _gaps(judged: Sequence[Judged]) -> list[str]:
    """Notes on verdicts by fewer seeds than planned; with one seed or none, the row itself says it."""
    return [
        f"{name}: by {each.seeds} of {each.planned} seeds; {each.gap}"
        for name, each in zip(names(judged), judged, strict=True)
        if 2 <= each.seeds < each.planned
    ]
