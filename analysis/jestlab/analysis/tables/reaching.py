"""What it takes each label of an experiment to match its baseline, over seeds; and how that is shown."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..intervals import censored_median, to_match
from ..rendering import Column, Record
from . import show
from .finals import Finals

if TYPE_CHECKING:
    import pandas as pd

EFFORTS = ("examples", "flops")


def reaching(found: Finals) -> pd.DataFrame:
    """One row a label that is compared, in the order of the study.

    Returns:
        Index label; seeds_compared, seeds_reached; for each effort: `<effort>_to_match` (median over seeds,
        or what it is at least where `<effort>_most` is more), `<effort>_low` and `_high` (range over seeds;
        infinite where one does not get there), `<effort>_spent` (the least by which one had not got there,
        else NaN), `<effort>_at_most` and `_low_at_most` (bool: the median, or the least, is of a run that was
        there at its first evaluation), `fewer_<effort>` (censored median) and `fewer_<effort>_at_least`.
    """
    import pandas as pd

    compared = found.runs.dropna(subset="reached")
    columns = {str(name): compared[name].to_numpy() for name in compared.columns}
    lines = []
    for label, at in compared.groupby("label", sort=False).indices.items():
        line: dict[str, object] = {"label": label, "seeds_compared": len(at)}
        line["seeds_reached"] = int(columns["reached"][at].sum())
        first = [bool(bounded) for bounded in columns["bounded"][at]]
        for effort in EFFORTS:
            names = (f"{effort}_to_match", f"{effort}_spent", f"fewer_{effort}")
            took, spent, fewer = (columns[name][at].astype(float).tolist() for name in names)
            missed = [whole for effort_, whole in zip(took, spent, strict=True) if math.isnan(effort_)]
            reach, factor = to_match(took, spent), censored_median(fewer)
            line |= {f"{effort}_to_match": reach.value, f"{effort}_most": reach.most}
            line |= {f"{effort}_low": reach.low, f"{effort}_high": reach.high, f"fewer_{effort}": factor}
            line[f"{effort}_spent"] = min(missed, default=math.nan)
            bounded = [each for each, early in zip(took, first, strict=True) if early]
            # A bound that lies on the median's other side cannot move it.
            line[f"{effort}_at_most"] = any(each >= reach.value for each in bounded)
            line[f"{effort}_low_at_most"] = reach.low in bounded
            factors = [each for each, early in zip(fewer, first, strict=True) if early]
            line[f"fewer_{effort}_at_least"] = any(each <= factor for each in factors)
        lines.append(line)
    return pd.DataFrame(lines).set_index("label") if lines else pd.DataFrame()


def effort_column(effort: str, header: str, shown: Callable[[float], str], baseline: str) -> Column:
    """The effort at which the baseline's score is reached."""

    def text(row: Record) -> str:
        value, most, low, high = (row[f"{effort}_{part}"] for part in ("to_match", "most", "low", "high"))
        if math.isnan(value):
            return show.MISSING
        if row["seeds_reached"] == 0:
            return f"> {shown(value)}, not reached"
        sign = "> " if most > value else "≤ " if row[f"{effort}_at_most"] else ""
        middle = f"{sign}{shown(value)}"
        if row["seeds_compared"] == 1 or low == high:
            return middle
        least = f"≤ {shown(low)}" if row[f"{effort}_low_at_most"] else shown(low)
        greatest = shown(high) if math.isfinite(high) else f"> {shown(row[f'{effort}_spent'])}"
        return f"{middle} [{least}, {greatest}]"

    return Column(
        f"{effort}_to_match",
        header,
        text,
        mark=one_seed_mark(text),
        formula=f"{effort} at which the run's curve reaches the final score of {baseline} with the same "
        "seed, interpolated between the two evaluations around it: median over seeds [least, greatest]",
        inputs=("target", "score_before", "score_after", f"{effort}_before", f"{effort}_after"),
    )


def factor_column(effort: str, header: str, baseline: str) -> Column:
    """The factor by which less effort is needed than the baseline needs."""
    key = f"fewer_{effort}"

    def text(row: Record) -> str:
        factor, reached, compared = float(row[key]), row["seeds_reached"], row["seeds_compared"]
        of_seeds = f" ({reached:.0f}/{compared:.0f})" if 0 < reached < compared else ""
        if not math.isnan(factor):
            least = "≥ " if row[f"{key}_at_least"] is True and math.isfinite(factor) else ""
            return ("∞" if math.isinf(factor) else f"{least}{factor:.1f}×") + of_seeds
        unreached = compared > 0 and math.isnan(row["fewer_examples"])
        return f"not reached{of_seeds}" if unreached else show.MISSING

    return Column(
        key,
        header,
        text,
        lambda row: round(float(row[key]), 1),
        mark=one_seed_mark(text),
        formula=f"median over seeds of the {effort} that {baseline} takes to its final score, over those "
        "that the run takes to it with the same seed",
        inputs=(f"{effort}_to_match",),
        compares=True,
    )


def one_seed_mark(text: Callable[[Record], str]) -> Callable[[Record], str]:
    """Marks what one seed alone says, if it says anything."""
    return lambda row: "" if text(row) == show.MISSING else show.one_seed("seeds_compared")(row)
