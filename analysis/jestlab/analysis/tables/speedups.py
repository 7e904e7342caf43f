"""How soon each run of an experiment reaches what its baseline ends at."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import units
from ..costs import Scope
from ..curves import Crossing
from ..frames import Frames
from ..intervals import censored_median, to_match
from ..rendering import Column, Record, Table
from . import notes, show
from .finals import Finals, Mean, finals

if TYPE_CHECKING:
    import pandas as pd

_CROSSINGS: dict[Crossing, str] = {
    "first": "where the interpolated curve first crosses it",
    "lasting": "where the interpolated curve crosses it to stay above",
}


def speedup_table(
    frames: Frames,
    baseline: str | None = None,
    scope: Scope = "scoring",
    mean: Mean = "all",
    crossing: Crossing = "first",
) -> Table:
    """Examples and FLOPs that each run takes to match the baseline, with the range over seeds.

    One row a label that is compared, in the order of the study. A run that does not get there is
    right-censored: it takes more than it spent.

    Args:
        frames: The experiment.
        baseline: Label or run to match; by default the study's first run that is no reference.
        scope: What counts as FLOPs.
        mean: Over which metrics the score is taken.
        crossing: Which crossing of the baseline's final score counts.

    Returns:
        A table whose frame has label, run, apart, seeds (compared), seeds_reached; for efforts examples and
        flops: `<effort>_to_match` (median), `_low`, `_high` (range over seeds; infinite where not reached),
        `<effort>_spent` (least over the seeds that do not get there, else NaN), `fewer_<effort>`.

    Raises:
        ValueError: As `finals`, or no run can be compared.
    """
    found = finals(frames, baseline, scope, mean, crossing)
    rows = _rows(found)
    if rows.empty:
        raise ValueError(
            f"no run of experiment {frames.experiment!r} has a seed in common with {found.baseline}"
        )
    scale, unit = units.flops_unit(found.runs["flops"])
    return Table(
        name=f"{frames.experiment} speed-ups",
        caption=f"{frames.experiment}: what it takes to reach the final score of {found.baseline} with the "
        f"same seed, {_CROSSINGS[crossing]}. Median over seeds [least, greatest].",
        frame=rows,
        columns=(
            Column("run", "run", lambda row: str(row["label"]), align="left"),
            Column(
                "seeds",
                "reached",
                lambda row: f"{row['seeds_reached']} of {row['seeds']}",
                formula=f"seeds that reach the final score of {found.baseline}, of those compared",
            ),
            _effort_column("examples", "examples to match", units.count, found.baseline),
            _factor_column("examples", "fewer examples"),
            _effort_column(
                "flops", f"{unit} to match", lambda flops: units.significant(flops / scale), found.baseline
            ),
            _factor_column("flops", "fewer FLOPs"),
        ),
        notes=(
            f"FLOPs: {frames.counted(scope)}",
            "> : not reached by then, by at least half of the seeds, or by the slowest of them",
            "n seeds' range holds the median of all with probability 1 − 2^(1−n): .75 for 3, .94 for 5",
            *([f"{show.ONE_SEED} one seed: no spread is known"] if (rows["seeds"] == 1).any() else []),
            *notes.gaps(found),
        ),
        parts=found.runs.assign(row=found.runs["label"], experiment=frames.experiment),
        baselines={label: found.baseline for label in frames.labels if label != found.baseline},
    )


def _rows(found: Finals) -> pd.DataFrame:
    import pandas as pd

    compared = found.runs.dropna(subset="reached")
    columns = {str(name): compared[name].to_numpy() for name in compared.columns}
    lines = []
    for label, at in compared.groupby("label", sort=False).indices.items():
        line: dict[str, object] = {"row": label, "label": label, "apart": False}
        line |= {"seeds": len(at), "seeds_reached": int(columns["reached"][at].sum())}
        for effort in ("examples", "flops"):
            match, spent = (columns[f"{effort}_{what}"][at].tolist() for what in ("to_match", "spent"))
            missed = [whole for took, whole in zip(match, spent, strict=True) if math.isnan(took)]
            ends = to_match(match, spent)
            line[f"{effort}_to_match"], line[f"{effort}_low"], line[f"{effort}_high"] = ends
            line[f"{effort}_spent"] = min(missed, default=math.nan)
            line[f"fewer_{effort}"] = censored_median(columns[f"fewer_{effort}"][at].tolist())
        lines.append(line)
    return pd.DataFrame(lines)


def _effort_column(effort: str, header: str, shown: Callable[[float], str], baseline: str) -> Column:
    def end(row: Record, value: float) -> str:
        return shown(value) if math.isfinite(value) else f"> {shown(row[f'{effort}_spent'])}"

    def text(row: Record) -> str:
        value, low, high = (row[f"{effort}_{part}"] for part in ("to_match", "low", "high"))
        if math.isnan(value):
            return show.MISSING
        if math.isinf(low):
            return f"> {shown(row[f'{effort}_spent'])}, not reached"
        middle = shown(value) if math.isfinite(value) else end(row, value)
        return middle if row["seeds"] == 1 or low == high else f"{middle} [{shown(low)}, {end(row, high)}]"

    return Column(
        f"{effort}_to_match",
        header,
        text,
        mark=show.one_seed("seeds"),
        formula=f"{effort} at which the run's interpolated curve reaches the final score of {baseline} "
        "with the same seed: median over seeds [least, greatest]",
        inputs=("score",),
        compares=True,
    )


def _factor_column(effort: str, header: str) -> Column:
    key = f"fewer_{effort}"

    def text(row: Record) -> str:
        factor = float(row[key])
        if math.isnan(factor):
            return show.MISSING
        return "∞" if math.isinf(factor) else f"{factor:.1f}×"

    return Column(
        key, header, text, lambda row: round(float(row[key]), 1),
        mark=lambda row: "" if text(row) == show.MISSING else show.one_seed("seeds")(row),
        formula="median over seeds of what the baseline spent over what the run takes to match it",
        inputs=(f"{effort}_spent", f"{effort}_to_match"), compares=True,
    )  # fmt: skip
