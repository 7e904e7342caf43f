"""The table of speed-ups: the effort of each run to reach the final score of the baseline."""

from __future__ import annotations

import math
from statistics import median_high

from ..curves import break_even, crossing_words
from ..efforts import WORDS, Effort, unit, writer
from ..errors import NotYet
from ..units import listed
from . import show
from .core import ESSENTIAL, Column, Record, Table
from .final_results import Finals

BREAK_EVEN = ("break_even", "break_even_low", "break_even_high")
"""Columns of the number of runs after which a reference has paid for itself: median over seeds, and range."""

IMPORTANCE: dict[Effort, int] = {"flops": 75, "examples_seen": 70, "seconds": 40, "chip_hours": 35}
"""Importance of the factors."""

_MATCHING = ("to_match", "most", "low", "high", "spent", "at_most", "low_at_most")
_PAID = (
    "break-even: runs that must share the reference until it has paid in FLOPs, its scoring counted; ∞: never"
)


def speedup_table(found: Finals) -> Table:
    """Build the table of the effort of each run to match the baseline.

    It has one row for each label that is compared, in the order of the study. A run that doesn't reach the
    score is right-censored: it would take more than it spent. A run that has reached it at its first
    evaluation is left-censored.

    Args:
        found: Final results of the experiment.

    Returns:
        A table whose frame has label, apart, the columns of `Finals.matching`, and `BREAK_EVEN` if a run
        needs something that must be made first. These are the median over seeds, of two middle ones the
        greater, and the range; infinite if no number of runs pays.

    Raises:
        ValueError: No run can be compared, or neither more nor less of the score is better.
    """
    frames, words = found.frames, crossing_words(found.crossing, found.frames.ranked)
    rows = found.matching
    if rows.empty:
        raise NotYet(f"no run of experiment {frames.experiment!r} has a seed in common with {found.against}")
    paid = break_even(frames, found.baseline, found.crossing)
    of_label = paid.dropna(subset="break_even").groupby("label")["break_even"]
    has_paid = of_label.ngroups > 0
    if has_paid:
        values = (of_label.agg(median_high), of_label.min(), of_label.max())
        rows = rows.assign(**dict(zip(BREAK_EVEN, values, strict=True)))
    columns = [
        Column("run", "run", lambda row: frames.shown[row["label"]], align="left", importance=ESSENTIAL),
        Column(
            "seeds", "reached", lambda row: f"{row['seeds_reached']} of {row['seeds_compared']}",
            formula=f"seeds that reach the final score of {found.against}, of those compared", importance=30,
        ),
    ]  # fmt: skip
    for effort in found.efforts:
        columns += [_effort_column(effort, found), factor_column(effort, found.against)]
    return Table(
        name=f"{frames.experiment} speed-ups",
        caption=f"{frames.experiment}: {listed([WORDS[each].amount for each in found.efforts])} until a "
        f"run reaches the final score of {found.against} with the same seed, {words}; also for "
        f"{found.against} itself. Median over seeds [least, greatest].",
        frame=rows.reset_index().assign(row=rows.index, apart=False),
        columns=(*columns, *([_break_even_column(found.against)] if has_paid else [])),
        notes=(
            *([note_on_flops(found)] if "flops" in found.efforts else []),
            "> : not reached by then; ≤, ≥ : reached by the first evaluation, perhaps sooner",
            "the range of n seeds holds the true median with probability 1 − 2^(1−n): .75 for 3, .94 for 5",
            *([_PAID] if has_paid else []),
            *found.gaps,
        ),
        parts=found.runs.merge(paid, on=["label", "seed"], how="left").assign(
            row=lambda runs: runs["label"], experiment=frames.experiment
        ),
        baselines=found.baselines,
        shown=found.renamed,
    )


def _effort_column(kind: Effort, found: Finals) -> Column:
    """Make the column of the effort at which the baseline's score is reached."""
    effort, baseline = WORDS[kind].name, found.against
    divisor, unit_name = unit(kind, found.runs[kind])

    write = writer(kind, divisor)

    def text(row: Record) -> str:
        value, most, low, high, spent, at_most, low_at_most = (row[f"{effort}_{part}"] for part in _MATCHING)
        if math.isnan(value):
            return show.MISSING
        if row["seeds_reached"] == 0:
            return f"> {write(value)}, not reached"
        middle = f"{'> ' if most > value else '≤ ' if at_most else ''}{write(value)}"
        if row["seeds_compared"] == 1 or low == high:
            return middle
        greatest = write(high) if math.isfinite(high) else f"> {write(spent)}"
        return f"{middle} [{'≤ ' if low_at_most else ''}{write(low)}, {greatest}]"

    return Column(
        f"{effort}_to_match",
        f"{WORDS[kind].header.format(unit=unit_name)} to match",
        text,
        seeds="seeds_compared",
        formula=f"{WORDS[kind].amount} at which the run's curve reaches the final score of {baseline} with "
        "the same seed, interpolated between the two evaluations around it: median over seeds [least, "
        "greatest]",
        inputs=("target", "score_before", "score_after", f"{effort}_before", f"{effort}_after"),
        importance=IMPORTANCE[kind] - 10,
        family="costs",
    )


def factor_column(kind: Effort, baseline: str) -> Column:
    """Make the column of the factor by which runs take less of an effort than the baseline."""
    words, key = WORDS[kind], f"fewer_{WORDS[kind].name}"

    def text(row: Record) -> str:
        factor, reached, compared = float(row[key]), row["seeds_reached"], row["seeds_compared"]
        of_seeds = f" ({reached:.0f}/{compared:.0f})" if 0 < reached < compared else ""
        if math.isinf(factor):
            return f"∞{of_seeds}"
        if not math.isnan(factor):
            bound = "≥ " if row[f"{key}_at_least"] is True else ""
            return f"{bound}{factor:.1f}×{of_seeds}"
        return f"not reached{of_seeds}" if compared > 0 and 2 * reached <= compared else show.MISSING

    return Column(
        key,
        words.fewer,
        text,
        lambda row: round(float(row[key]), 1),
        seeds="seeds_compared",
        formula=f"median over seeds of the {words.amount} that {baseline} takes to its final score, over "
        "those that the run takes to it with the same seed",
        inputs=(f"{words.name}_to_match",),
        compares=True,
        importance=IMPORTANCE[kind],
        family="factors",
    )


def note_on_flops(found: Finals) -> str:
    """Name the FLOPs that count."""
    return f"FLOPs: {found.frames.counted(found.scope)}"


def _break_even_column(baseline: str) -> Column:
    """Make the column of the number of runs after which a reference has paid for itself."""

    def text(row: Record) -> str:
        return with_range(*(float(row[key]) for key in BREAK_EVEN))

    return Column(
        "break_even",
        "break-even",
        text,
        seeds="seeds_compared",
        formula=f"the fewest runs that together, with making all that they need once, cost less FLOPs to the "
        f"final score of {baseline} than as many of {baseline}: median over seeds [least, greatest]",
        inputs=("making_flops", "scored_flops"),
        compares=True,
        importance=45,
    )


def with_range(value: float, low: float, high: float) -> str:
    """Write numbers of runs with their range: "13 [11, 109]"; only one number if all seeds have the same."""
    if math.isnan(value):
        return show.MISSING
    text, *ends = ("∞" if math.isinf(runs) else f"{runs:,.0f}" for runs in (value, low, high))
    return text if low == high else f"{text} [{', '.join(ends)}]"
