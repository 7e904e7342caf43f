"""The final table of an experiment: scores, costs and speed-ups of each run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .. import units
from ..costs import Scope
from ..curves import CROSSING_WORDS, Crossing
from ..frames import Frames
from . import show
from .cells import Column
from .core import Table
from .finals import Finals, Mean, finals
from .speedups import EFFORTS, factor_column, reaching

if TYPE_CHECKING:
    import pandas as pd


def summary(
    frames: Frames,
    baseline: str | None = None,
    scope: Scope = "scoring",
    mean: Mean = "all",
    crossing: Crossing = "first",
) -> Table:
    """Build the final table of an experiment.

    One row a label, in the order of the study, runs that others need as reference first and apart. All
    numbers are over the seeds that completed.

    Args:
        frames: The experiment.
        baseline: Label or run to compare with; by default the study's first run that is no reference.
        scope: What counts as FLOPs.
        mean: Over which metrics the score is taken.
        crossing: Which crossing of the baseline's final score counts.

    Returns:
        A table whose frame has the columns of `Finals.by_label` and of `reaching`. What compares is NaN or 0
        for runs that stand apart.

    Raises:
        ValueError: As `finals`.
    """
    found = finals(frames, baseline, scope, mean, crossing)
    unit = " in %" if frames.scores_are_shares else ""
    several = found.runs["label"].duplicated().any()
    over = "mean ± standard deviation over seeds" if several else "one seed each"
    table = Table(
        name=f"{frames.experiment} summary",
        caption=f"{frames.experiment}{': ' + frames.question if frames.question else '.'} "
        f"Scores{unit}, {over}; score is the mean of the metrics.",
        frame=_rows(found),
        columns=_columns(found),
        notes=(*_conventions(found, mean, crossing), *show.gaps(found)),
        parts=found.runs.assign(row=found.runs["label"], experiment=frames.experiment),
        baselines={label: found.baseline for label in frames.labels if label != found.baseline},
    )
    return show.with_marks_explained(table)


def _rows(found: Finals) -> pd.DataFrame:
    rows = found.by_label.join(reaching(found))
    for name in ("seeds_reached", "seeds_compared", *(f"fewer_{effort}" for effort in EFFORTS)):
        rows[name] = rows.get(name, math.nan)  # where nothing can be compared there are no such columns
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
    factors = [
        factor_column("examples", "fewer examples", baseline),
        factor_column("flops", "fewer FLOPs", baseline),
    ]
    return (
        Column("run", "run", lambda row: str(row["label"]), align="left"),
        Column("seeds", "seeds", show.seeds, formula="runs that completed, of those planned"),
        *metrics,
        score,
        *([delta] if comparing else []),
        show.examples_column(),
        show.flops_column(scale, unit, f"mean over seeds of the FLOPs of {frames.counted(found.scope)}"),
        *(factors if comparing else []),
    )


def _conventions(found: Finals, mean: Mean, crossing: Crossing) -> list[str]:
    """Notes on the meaning of the columns."""
    said = [f"FLOPs: {found.frames.counted(found.scope)}"]
    if any(label != found.baseline for label in found.frames.competitors):
        said += [
            f"Δ: score minus that of {found.baseline} with the same seed, mean [95% confidence interval]",
            f"fewer examples, FLOPs: factor by which a run reaches the final score of {found.baseline} "
            f"sooner than {found.baseline} itself; same seed, {CROSSING_WORDS[crossing]}, median over seeds "
            "(seeds that reach it)" + _with_references(found, mean, crossing),
        ]
    return said


def _with_references(found: Finals, mean: Mean, crossing: Crossing) -> str:
    """Say the factors in FLOPs that include the reference, if the column leaves it out."""
    frames = found.frames
    needing = frames.costs.loc[frames.costs["reference_training_share_flops"] > 0, "label"]
    if found.scope == "reference_training" or needing.empty:
        return ""
    rows = reaching(finals(frames, found.baseline, "reference_training", mean, crossing))
    factors = [
        f"{label} {factor:.1f}×"
        for label, factor in rows.get("fewer_flops", {}).items()
        if label in set(needing) and math.isfinite(factor)
    ]
    if not factors:
        return ""
    return (
        "; fewer FLOPs leaves out making the reference: with its scoring and each run's share in its "
        f"training, the factors are {', '.join(factors)}"
    )
