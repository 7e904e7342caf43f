"""The tables of one experiment: the summary, and the speed-ups over the baseline."""

import math
from statistics import median_high
from typing import Any

from ..costs import SCOPES
from ..curves import CROSSING, break_even
from ..efforts import WORDS, Effort, unit, writer
from ..errors import NotYet
from ..intervals import INTERVAL
from ..metrics import Metric, lacks_goal
from ..units import listed, sentence
from . import show
from .core import BEST, Column, Record, Table
from .final_results import Finals

_IMPORTANCE: dict[Effort, int] = {"flops": 75, "examples_seen": 70, "seconds": 40, "chip_hours": 35}
"""Importance of the columns with factors."""

_BOUNDS = "≤, ≥ : reached by the first evaluation, perhaps sooner; > : not reached by the end"


def summary(finals: Finals) -> Table:
    """Build the summary of an experiment.

    The table has one row for each label, in the order of the study; references come first, set apart. All
    numbers are statistics of completed seeds.

    Returns:
        A table whose frame has the columns of `Finals.by_label` and `Finals.matching`. Comparisons are NaN or
        0 for references.
    """
    frames, declared = finals.frames, finals.frames.declared
    rows = finals.by_label.join(finals.matching)
    counts = ["seeds_reached", "seeds_compared"]
    for name in (*counts, *(f"fewer_{WORDS[effort].name}" for effort in finals.efforts)):
        rows[name] = rows.get(name, math.nan)  # these columns are missing if nothing is compared
    rows[counts] = rows[counts].fillna(0).astype(int)
    has_rivals = any(label != finals.baseline for label in frames.competitors)
    unranked = [name for name in frames.metrics if declared.of(name).goal is None and not frames.no_score]
    columns = [
        Column("seeds", "seeds", show.seeds, formula="runs that completed, of those planned", importance=30)
    ]
    for name, header in show.metric_headers(frames.metrics, declared).items():
        notes = (f"not ranked: {lacks_goal(unranked)}",) if name in unranked else ()
        columns.append(_score(name, header, declared.of(name), f"final {name}", notes=notes))
    if frames.averaged:
        alike = show.all_alike(frames.metrics, declared)
        header = "score" if alike else show.heading("score", finals.metric)
        formula, inputs = f"mean of {', '.join(frames.averaged)}", tuple(frames.averaged)
        twin = {"importance": 0, "family": "", "notes": (f"score: {formula}",)}  # of its only metric
        options = {"importance": 90} if len(inputs) > 1 else twin
        columns.append(_score("score", header, finals.metric, formula, inputs=inputs, **options))
        columns += [_delta(finals)] if has_rivals else []
    columns += [_spent(effort, finals) for effort in finals.efforts]
    if has_rivals and finals.metric.goal is not None:
        columns += [_factor(effort, finals) for effort in finals.efforts]
    return finals.table(
        "summary",
        f"{sentence(': '.join(filter(None, (frames.experiment, frames.question))))} {_about_scores(finals)}.",
        rows.sort_values("apart", ascending=False, kind="stable"),
        columns,
        notes=(frames.no_score,),
    )


def comparisons(finals: Finals) -> str:
    """Note that intervals are those of single comparisons; empty if there is only one comparison."""
    count = int(finals.by_label["delta_low"].notna().sum())
    text = f"Δ: each interval is for one comparison; {count} runs are compared with {finals.against}"
    return text if count > 1 else ""


def _about_scores(finals: Finals) -> str:
    """Describe the scores: unit, statistics, and the metrics that the score averages."""
    frames = finals.frames
    metrics = {finals.metric, *map(frames.declared.of, frames.metrics)} if frames.averaged else {Metric()}
    unit = " in %" if all(metric.in_percent for metric in metrics) else ""
    is_of_all = set(frames.averaged) == set(frames.metrics)
    names = "the metrics" if is_of_all else ", ".join(frames.declared.called(frames.averaged).values())
    mean = f"; score is the mean of {names}" if len(frames.averaged) > 1 else ""
    return f"Scores{unit}, mean over seeds [{INTERVAL}]; bold: {BEST}{mean}"


def speedup_table(finals: Finals) -> Table:
    """Build the table of the effort of each run to match the baseline.

    The table has one row for each compared label, in the order of the study. A run that doesn't reach the
    score is right-censored: it would take more than it spent. A run that has reached the score at its first
    evaluation is left-censored: it may have taken less.

    Returns:
        A table whose frame has label, apart, the columns of `Finals.matching`, and, if runs need a
        reference that must be made first, break_even (median over seeds, or the greater of two middle values;
        infinite if no number of runs pays for it).

    Raises:
        ValueError: No run can be compared, or the score has no goal.
    """
    frames, rows = finals.frames, finals.matching
    frames.ranked  # noqa: B018 — raises without a goal
    if rows.empty:
        raise NotYet(f"no run of experiment {frames.experiment!r} has a seed in common with {finals.against}")
    columns = [
        Column(
            "seeds", "reached", lambda row: f"{row['seeds_reached']} of {row['seeds_compared']}",
            formula=f"seeds that reach the final score of {finals.against}, of those compared", importance=30,
        ),
        *(make(effort, finals) for effort in finals.efforts for make in (_to_match, _factor)),
    ]  # fmt: skip
    paid = break_even(frames, finals.baseline)
    by_label = paid.dropna(subset="break_even").groupby("label")["break_even"]
    if by_label.ngroups:
        rows = rows.assign(break_even=by_label.agg(median_high))
        columns.append(_break_even(finals.against))
    return finals.table(
        "speed-ups",
        f"{frames.experiment}: {listed([WORDS[each].amount for each in finals.efforts])} until a run reaches "
        f"the final score of {finals.against} with the same seed, {CROSSING}; also for "
        f"{finals.against} itself. Median over seeds.",
        rows.assign(apart=False),
        columns,
        notes=(_BOUNDS,),
        parts=finals.runs.merge(paid, on=["label", "seed"], how="left"),
    )


# ---- columns


def _score(key: str, header: str, metric: Metric, formula: str, **options: Any) -> Column:
    """Make the column of a metric or of the score."""
    mean, low, high, seeds = (f"{key}_{part}" for part in ("mean", "low", "high", "seeds"))

    def text(row: Record) -> str:
        return show.mean(row[mean], row[low], row[high], row[seeds], row["seeds"], metric)

    def rank(row: Record) -> float:
        rank = metric.rank(float(row[mean]))
        diverged = row["diverged"] and row[seeds] < row["seeds"] and not math.isnan(rank)
        return -math.inf if diverged or math.isinf(rank) else rank

    formula = f"mean over seeds of the {formula} [{INTERVAL}]; bold: {BEST}"
    return Column(
        key, header, text, rank, seeds=seeds, formula=formula,
        **{"family": "scores", "importance": 60, **options},
    )  # fmt: skip


def _delta(finals: Finals) -> Column:
    """Make the column of the difference to the baseline's score."""
    metric, baseline = finals.metric, finals.against
    formula = f"score minus that of {baseline} with the same seed, mean [{INTERVAL}]"
    less = "; less is better" if metric.goal == "min" else ""
    return Column(
        "delta",
        f"Δ {baseline}",
        lambda row: show.interval(row["delta_mean"], row["delta_low"], row["delta_high"], metric, "+"),
        seeds="delta_seeds",
        formula=formula,
        inputs=("score",),
        compares=True,
        importance=80,
        notes=(f"Δ: {formula}{less}", *filter(None, [comparisons(finals)])),
    )


def _spent(effort: Effort, finals: Finals) -> Column:
    """Make the column of an effort until the end of training."""
    divisor, unit_name = unit(effort, finals.runs[effort])
    write = writer(effort, divisor)
    return Column(
        effort,
        WORDS[effort].header.format(unit=unit_name),
        lambda row: show.known(row[effort], write),
        formula=f"{WORDS[effort].amount} until the end of training, mean over seeds",
        importance=_IMPORTANCE[effort] - 25,
        family="costs",
        notes=_notes(effort, finals),
    )


def _notes(effort: Effort, finals: Finals) -> tuple[str, ...]:
    """Return a note on which FLOPs count; none for other efforts."""
    return (f"FLOPs: {finals.frames.counted(finals.scope)}",) if effort == "flops" else ()


def _to_match(effort: Effort, finals: Finals) -> Column:
    """Make the column of the effort at which the baseline's score is reached."""
    name = WORDS[effort].name
    divisor, unit_name = unit(effort, finals.runs[effort])
    write = writer(effort, divisor)

    def text(row: Record) -> str:
        value, most, at_most = (row[f"{name}_{part}"] for part in ("to_match", "most", "at_most"))
        if math.isnan(value):
            return show.MISSING
        if row["seeds_reached"] == 0:
            return f"> {write(value)}, not reached"
        return f"{'> ' if most > value else '≤ ' if at_most else ''}{write(value)}"

    return Column(
        f"{name}_to_match",
        f"{WORDS[effort].header.format(unit=unit_name)} to match",
        text,
        seeds="seeds_compared",
        formula=f"{WORDS[effort].amount} at which the run's curve reaches the final score of "
        f"{finals.against} with the same seed, interpolated between the two evaluations around it: median "
        "over seeds",
        inputs=("target", "score_before", "score_after", f"{name}_before", f"{name}_after"),
        importance=_IMPORTANCE[effort] - 10,
        family="costs",
        notes=_notes(effort, finals),
    )


def _factor(effort: Effort, finals: Finals) -> Column:
    """Make the column of the factor by which runs reach the score with less effort than the baseline."""
    key, baseline = f"fewer_{WORDS[effort].name}", finals.against
    formula = (
        f"factor by which a run reaches the final score of {baseline} sooner than {baseline} itself; same "
        f"seed, {CROSSING}, median over seeds (seeds that reach it)"
    )
    reference = ["reference_scoring_flops", "reference_training_share_flops"]
    left_out = reference[max(0, SCOPES.index(finals.scope) - 1) :]
    is_partial = effort == "flops" and bool((finals.frames.costs[left_out] > 0).any(axis=None))

    return Column(
        key,
        WORDS[effort].fewer + " without reference" * is_partial,
        lambda row: factor_text(row, effort),
        lambda row: round(float(row[key]), 1),
        seeds="seeds_compared",
        formula=formula,
        inputs=(f"{WORDS[effort].name}_to_match",),
        compares=True,
        importance=_IMPORTANCE[effort],
        family="factors",
        notes=(f"{WORDS[effort].fewer}: {formula}", *_notes(effort, finals)),
    )


def factor_text(row: Record, effort: Effort) -> str:
    """Write a factor of a row, and the number of seeds that reach the score if not all do."""
    key = f"fewer_{WORDS[effort].name}"
    factor, reached, compared = float(row[key]), row["seeds_reached"], row["seeds_compared"]
    seeds = f" ({reached:.0f}/{compared:.0f})" if 0 < reached < compared else ""
    if math.isinf(factor):
        return f"∞{seeds}"
    if not math.isnan(factor):
        return f"{'≥ ' * (row[f'{key}_at_least'] is True)}{factor:.1f}×{seeds}"
    return f"not reached{seeds}" if compared > 0 and 2 * reached <= compared else show.MISSING


def _break_even(baseline: str) -> Column:
    """Make the column of the number of runs after which a reference has paid for itself."""
    formula = (
        "number of runs that must share the reference until they save the FLOPs of making it; each saves "
        f"the FLOPs of {baseline} minus its FLOPs, with scoring, to the final score of {baseline}; ∞: never"
    )

    return Column(
        "break_even",
        "break-even",
        lambda row: show.known(row["break_even"], lambda runs: f"{runs:,.0f}".replace("inf", "∞")),
        seeds="seeds_compared",
        formula=formula,
        inputs=("making_flops", "scored_flops"),
        compares=True,
        importance=45,
        notes=(f"break-even: {formula}",),
    )
