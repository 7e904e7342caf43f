"""The final table of an experiment: what each run scored, at what cost, and how much sooner."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .. import units
from ..costs import Scope
from ..curves import Crossing
from ..frames import Frames
from ..intervals import censored_median
from ..rendering import Column, Record, Table
from . import notes, show
from .finals import Finals, Mean, finals

if TYPE_CHECKING:
    import pandas as pd

_CROSSINGS: dict[Crossing, str] = {
    "first": "first crossing of the interpolated curve",
    "lasting": "crossing of the interpolated curve after which it stays above",
}


def summary(
    frames: Frames,
    baseline: str | None = None,
    scope: Scope = "scoring",
    mean: Mean = "all",
    crossing: Crossing = "first",
) -> Table:
    """The final table of an experiment.

    One row a label, in the order of the study, runs that others need as reference first and apart. All
    numbers are over the seeds that completed.

    Args:
        frames: The experiment.
        baseline: Label or run to compare with; by default the study's first run that is no reference.
        scope: What counts as FLOPs.
        mean: Over which metrics the score is taken.
        crossing: Which crossing of the baseline's final score counts.

    Returns:
        A table whose frame has the columns of `Finals.by_label`, and fewer_examples and fewer_flops (censored
        medians over seeds, NaN where not reached), seeds_reached and seeds_compared. What compares is NaN or
        0 for runs that stand apart.

    Raises:
        ValueError: As `finals`.
    """
    found = finals(frames, baseline, scope, mean, crossing)
    unit = " in %" if frames.scores_are_shares else ""
    several = found.runs["label"].duplicated().any()
    over = "mean ± standard deviation over seeds" if several else "one seed each"
    return Table(
        name=f"{frames.experiment} summary",
        caption=f"{frames.experiment}{': ' + frames.question if frames.question else '.'} "
        f"Scores{unit}, {over}; score is the mean of the metrics.",
        frame=_rows(found),
        columns=_columns(found),
        notes=(*_conventions(found, crossing), *notes.single_seeds(found), *notes.gaps(found)),
        parts=found.runs.assign(row=found.runs["label"], experiment=frames.experiment),
        baselines={label: found.baseline for label in frames.labels if label != found.baseline},
    )


def _rows(found: Finals) -> pd.DataFrame:
    rows = found.by_label.copy()
    compared = found.runs.dropna(subset="reached").groupby("label")
    for name in ("fewer_examples", "fewer_flops"):
        rows[name] = compared[name].agg(censored_median)
    rows["seeds_reached"] = compared["reached"].sum()
    rows["seeds_compared"] = compared.size()
    counts = ["seeds_reached", "seeds_compared"]
    rows[counts] = rows[counts].fillna(0).astype(int)
    rows = rows.reset_index().assign(row=rows.index)
    return rows.sort_values("apart", ascending=False, kind="stable", ignore_index=True)


def _columns(found: Finals) -> tuple[Column, ...]:
    frames, baseline = found.frames, found.baseline
    in_percent = frames.scores_are_shares
    scale, unit = units.flops_unit(found.runs["flops"])
    comparing = any(label != baseline for label in frames.competitors)
    metrics = [
        show.score_column(name, header, in_percent, f"mean over seeds of the final {name}")
        for name, header in show.metric_headers(frames.metrics).items()
    ]
    score = show.score_column(
        "score", "score", in_percent,
        f"mean over seeds of the mean of {', '.join(found.averaged)}",
        inputs=found.averaged,
    )  # fmt: skip
    delta = show.delta_column(
        f"Δ {baseline}",
        in_percent,
        f"mean over seeds of score minus that of {baseline} with the same seed; in brackets its 95% "
        "confidence interval by Student's t",
        inputs=("score",),
    )
    return (
        Column("run", "run", lambda row: str(row["label"]), align="left"),
        Column("seeds", "seeds", show.seeds, formula="runs that completed, of those planned"),
        *metrics,
        score,
        *([delta] if comparing else []),
        show.examples_column(),
        show.flops_column(scale, unit, f"mean over seeds of the FLOPs of {frames.counted(found.scope)}"),
        *([_factor_column("examples", baseline), _factor_column("FLOPs", baseline)] if comparing else []),
    )


def _factor_column(effort: str, baseline: str) -> Column:
    key = f"fewer_{effort.lower()}"

    def text(row: Record) -> str:
        factor, reached, compared = float(row[key]), row["seeds_reached"], row["seeds_compared"]
        of_seeds = f" ({reached}/{compared})" if 0 < reached < compared else ""
        if not math.isnan(factor):
            return ("∞" if math.isinf(factor) else f"{factor:.1f}×") + of_seeds
        unreached = compared > 0 and math.isnan(row["fewer_examples"])
        return f"not reached{of_seeds}" if unreached else show.MISSING

    return Column(
        key,
        f"fewer {effort}",
        text,
        lambda row: round(float(row[key]), 1),
        mark=lambda row: "" if text(row) == show.MISSING else show.one_seed("seeds_compared")(row),
        formula=f"median over seeds of the {effort} that {baseline} spent, over those at which the run's "
        f"interpolated curve reaches the final score of {baseline} with the same seed",
        inputs=(f"{effort.lower()}_spent", f"{effort.lower()}_to_match"),
        compares=True,
    )


def _conventions(found: Finals, crossing: Crossing) -> list[str]:
    """What the columns mean."""
    said = [f"FLOPs: {found.frames.counted(found.scope)}"]
    if any(label != found.baseline for label in found.frames.competitors):
        said += [
            f"Δ: score minus that of {found.baseline} with the same seed, mean [95% confidence interval]",
            f"fewer examples, FLOPs: factor by which a run reaches the final score of {found.baseline} "
            f"sooner; same seed, {_CROSSINGS[crossing]}, median over seeds (seeds that reach it)",
        ]
    return said
