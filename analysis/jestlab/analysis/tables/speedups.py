"""How soon each run of an experiment reaches what its baseline ends at."""

from __future__ import annotations

import math

from .. import break_even, units
from ..costs import Scope
from ..curves import CROSSING_WORDS, Crossing
from ..frames import Frames
from ..rendering import Column, Record, Table
from . import notes, show
from .finals import Mean, finals
from .reaching import effort_column, factor_column, one_seed_mark, reaching

_PAID = (
    "break-even: in FLOPs, the reference's scoring counted; ∞: however many runs it serves, it does not pay"
)


def speedup_table(
    frames: Frames,
    baseline: str | None = None,
    scope: Scope = "scoring",
    mean: Mean = "all",
    crossing: Crossing = "first",
) -> Table:
    """Examples and FLOPs that each run takes to match the baseline, with the range over seeds.

    One row a label that is compared, in the order of the study. A run that does not get there is
    right-censored: it takes more than it spent. One that is there at its first evaluation is left-censored.

    Args:
        frames: The experiment.
        baseline: Label or run to match; by default the study's first run that is no reference.
        scope: What counts as FLOPs.
        mean: Over which metrics the score is taken.
        crossing: Which crossing of the baseline's final score counts.

    Returns:
        A table whose frame has label, apart, the columns of `reaching`, and break_even where any run needs
        something that has to be made first.

    Raises:
        ValueError: As `finals`, or no run can be compared.
    """
    found = finals(frames, baseline, scope, mean, crossing)
    rows = reaching(found)
    if rows.empty:
        raise ValueError(
            f"no run of experiment {frames.experiment!r} has a seed in common with {found.baseline}"
        )
    paid = break_even.of_runs(frames, found.baseline, found.averaged, crossing)
    of_labels = break_even.over_seeds(paid)
    if of_labels:
        rows["break_even"] = [of_labels.get(str(label), math.nan) for label in rows.index]
    scale, unit = units.flops_unit(found.runs["flops"])
    reached = f"seeds that reach the final score of {found.baseline}, of those compared"
    table = Table(
        name=f"{frames.experiment} speed-ups",
        caption=f"{frames.experiment}: what it takes to reach the final score of {found.baseline} with the "
        f"same seed, {CROSSING_WORDS[crossing]}, of {found.baseline} itself, too. Median over seeds [least, "
        "greatest].",
        frame=rows.reset_index().assign(row=rows.index, apart=False),
        columns=(
            Column("run", "run", lambda row: str(row["label"]), align="left"),
            Column(
                "seeds", "reached", lambda row: f"{row['seeds_reached']} of {row['seeds_compared']}",
                formula=reached,
            ),
            effort_column("examples", "examples to match", units.count, found.baseline),
            factor_column("examples", "fewer examples", found.baseline),
            effort_column(
                "flops", f"{unit} to match", lambda flops: units.significant(flops / scale), found.baseline
            ),
            factor_column("flops", "fewer FLOPs", found.baseline),
            *([_break_even_column(found.baseline)] if of_labels else []),
        ),
        notes=(
            f"FLOPs: {frames.counted(scope)}",
            "> : not reached by then; ≤, ≥ : there at the first evaluation, so perhaps sooner",
            "n seeds' range holds the median of all with probability 1 − 2^(1−n): .75 for 3, .94 for 5",
            *([_PAID] if of_labels else []),
            *notes.gaps(found),
        ),
        parts=found.runs.merge(paid, on=["label", "seed"], how="left").assign(
            row=lambda runs: runs["label"], experiment=frames.experiment
        ),
        baselines={label: found.baseline for label in frames.labels if label != found.baseline},
    )  # fmt: skip
    return notes.with_marks_explained(table)


def _break_even_column(baseline: str) -> Column:
    """How many runs a reference has to serve until it has paid."""

    def text(row: Record) -> str:
        runs = float(row["break_even"])
        return show.MISSING if math.isnan(runs) else "∞" if math.isinf(runs) else f"{runs:,.0f}"

    return Column(
        "break_even",
        "break-even",
        text,
        mark=one_seed_mark(text),
        formula=f"the fewest runs that together, with making all that they need once, cost less FLOPs to the "
        f"final score of {baseline} than as many of {baseline}: median over seeds",
        inputs=("making_flops", "scored_flops"),
        compares=True,
    )
