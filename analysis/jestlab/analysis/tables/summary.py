"""The summary of an experiment: final scores and costs of each run, and how much sooner it is as good."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..curves import crossing_words
from ..efforts import WORDS, Effort, unit, writer
from ..intervals import INTERVAL, direction
from ..metrics import Metric, lacks_goal
from ..units import sentence
from . import show
from .core import ESSENTIAL, Column, Record, Table
from .final_results import Finals, finals
from .speedups import factor_column

if TYPE_CHECKING:
    import pandas as pd

_IMPORTANCE: dict[Effort, int] = {"flops": 50, "examples_seen": 25, "seconds": 20, "chip_hours": 15}


def summary(found: Finals) -> Table:
    """Build the summary of an experiment.

    It has one row for each label, in the order of the study; references come first, set apart. All numbers
    are over completed seeds.

    Args:
        found: Final results of the experiment.

    Returns:
        A table whose frame has the columns of `Finals.by_label` and `Finals.matching`. Comparisons are NaN or
        0 for references.
    """
    frames = found.frames
    metrics = {found.metric, *map(frames.declared.of, frames.metrics)} if frames.averaged else {Metric()}
    unit = " in %" if all(metric.in_percent for metric in metrics) else ""
    several = found.runs["label"].duplicated().any()
    over = "mean ± standard deviation over seeds" if several else "one seed each"
    conventions = _conventions(found)
    table = Table(
        name=f"{frames.experiment} summary",
        caption=f"{sentence(': '.join(filter(None, (frames.experiment, frames.question))))} "
        f"Scores{unit}, {over}{_meaning_of_score(found)}.",
        frame=_rows(found),
        columns=_columns(found),
        notes=(*conventions, *found.gaps),
        explains=conventions,
        parts=found.runs.assign(row=found.runs["label"], experiment=frames.experiment),
        baselines=found.baselines,
        shown=found.renamed,
    )
    return show.with_marks_explained(table)


def _meaning_of_score(found: Finals) -> str:
    frames = found.frames
    if not frames.averaged:
        return ""
    if set(frames.averaged) == set(frames.metrics):
        return "; score is the mean of the metrics"
    mean_of = "the mean of " if len(frames.averaged) > 1 else ""
    return f"; score is {mean_of}{', '.join(frames.declared.called(frames.averaged).values())}"


def _rows(found: Finals) -> pd.DataFrame:
    rows = found.by_label.join(found.matching)
    counts = ["seeds_reached", "seeds_compared"]
    for name in (*counts, *(f"fewer_{WORDS[effort].name}" for effort in found.efforts)):
        rows[name] = rows.get(name, math.nan)  # without comparisons, these columns are missing
    rows[counts] = rows[counts].fillna(0).astype(int)
    rows = rows.reset_index().assign(row=rows.index)
    return rows.sort_values("apart", ascending=False, kind="stable", ignore_index=True)


# ---- columns


def _columns(found: Finals) -> tuple[Column, ...]:
    frames, declared = found.frames, found.frames.declared
    headers = show.metric_headers(frames.metrics, declared)
    columns = [
        Column("run", "run", lambda row: frames.shown[row["label"]], align="left", importance=ESSENTIAL),
        Column(
            "seeds", "seeds", show.seeds, formula="runs that completed, of those planned", importance=30,
            data=("seeds", "seeds_planned"),
        ),
        *(_score(name, header, declared.of(name), f"final {name}") for name, header in headers.items()),
    ]  # fmt: skip
    if frames.averaged:
        alike = show.all_alike(frames.metrics, declared)
        header = "score" if alike else show.heading("score", found.metric)
        mean = f"mean of {', '.join(frames.averaged)}"
        columns.append(_score("score", header, found.metric, mean, tuple(frames.averaged), importance=90))
        columns += [_delta(found)] if found.has_rivals else []
    columns += [_spent(effort, found) for effort in found.efforts]
    if found.has_rivals and found.metric.goal is not None:
        columns += [factor_column(effort, found.against) for effort in found.efforts]
    return tuple(columns)


def _score(
    key: str, header: str, metric: Metric, formula: str, inputs: tuple[str, ...] = (), importance: int = 60
) -> Column:
    """Make the column of a metric or of the score."""
    mean, std, seeds = data = tuple(f"{key}_{part}" for part in ("mean", "std", "seeds"))

    def text(row: Record, digits: int | None) -> str:
        return show.mean(row[mean], row[std], row[seeds], row["seeds"], show.to_digits(metric, digits))

    def rank(row: Record, digits: int | None) -> float:
        rank = show.to_digits(metric, digits).rank(float(row[mean]))
        diverged = row["diverged"] and row[seeds] < row["seeds"] and not math.isnan(rank)
        return -math.inf if diverged or math.isinf(rank) else rank

    return Column(
        key, header, text, rank, mark=show.one_seed(seeds), formula=f"mean over seeds of the {formula}",
        inputs=inputs, importance=importance, family="scores", data=data, takes_digits=True,
    )  # fmt: skip


def _delta(found: Finals) -> Column:
    """Make the column of the difference to the baseline's score; significantly better ones are bold."""
    metric, baseline = found.metric, found.against

    def text(row: Record, digits: int | None) -> str:
        values = (row["delta_mean"], row["delta_low"], row["delta_high"])
        return show.difference(*values, show.to_digits(metric, digits))

    return Column(
        "delta",
        f"Δ {baseline}",
        text,
        bold=lambda row: metric.sign * direction(row["delta_low"], row["delta_high"]) > 0,
        mark=show.one_seed("delta_seeds"),
        formula=f"mean over seeds of score minus that of {baseline} with the same seed; in brackets its "
        f"{INTERVAL} by Student's t",
        inputs=("score",),
        compares=True,
        importance=80,
        family="differences",
        data=tuple(f"delta_{part}" for part in ("mean", "std", "seeds", "low", "high")),
        takes_digits=True,
    )


def _spent(effort: Effort, found: Finals) -> Column:
    """Make the column of a total effort."""
    divisor, unit_name = unit(effort, found.runs[effort])
    formula = {
        "examples_seen": "examples that the learner trained on, mean over seeds",
        "flops": f"mean over seeds of the FLOPs of {found.frames.counted(found.scope)}",
        "seconds": "mean over seeds of the seconds of training: without waiting, and for jestlab's own "
        "programs without compilation, evaluation and checkpoints",
        "chip_hours": "mean over seeds of chips × hours of training",
    }[effort]
    return Column(
        effort,
        WORDS[effort].header.format(unit=unit_name),
        lambda row, digits: show.known(row[effort], writer(effort, divisor, digits)),
        formula=formula,
        importance=_IMPORTANCE[effort],
        family="costs",
        data=(effort,),
        takes_digits=True,
    )


# ---- notes


def _conventions(found: Finals) -> dict[str, tuple[str, ...]]:
    """Explain the columns: note → keys of the columns."""
    frames, baseline, metric = found.frames, found.against, found.metric
    notes: dict[str, tuple[str, ...]] = {}
    if "flops" in found.efforts:
        notes[f"FLOPs: {frames.counted(found.scope)}"] = ("flops", "fewer_flops")
    if frames.no_score:
        return notes | {frames.no_score: (*frames.metrics, "score")}
    if found.has_rivals:
        less = "; less is better" if metric.goal == "min" else ""
        bold = "; bold: better, and the interval excludes 0" if metric.goal else ""
        difference = f"Δ: score minus that of {baseline} with the same seed, mean [{INTERVAL}]"
        notes[f"{difference}{bold}{less}"] = ("delta",)
    if found.has_rivals and metric.goal is not None and found.efforts:
        first, *others = (WORDS[effort].fewer for effort in found.efforts)
        factors = ", ".join([first, *(each.removeprefix("fewer ") for each in others)])
        note = (
            f"{factors}: factor by which a run reaches the final score of {baseline} sooner than {baseline} "
            f"itself; same seed, {crossing_words(found.crossing, metric)}, median over seeds (seeds that "
            f"reach it){_with_references(found)}"
        )
        notes[note] = tuple(f"fewer_{WORDS[effort].name}" for effort in found.efforts)
    if unranked := [name for name in frames.metrics if frames.declared.of(name).goal is None]:
        notes[f"not ranked: {lacks_goal(unranked)}"] = tuple(unranked)
    return notes


def _with_references(found: Finals) -> str:
    """Give the factors in FLOPs that include making the reference, if the column doesn't."""
    frames = found.frames
    needing = frames.costs.loc[frames.costs["reference_training_share_flops"] > 0, "label"]
    if found.scope == "reference_training" or needing.empty:
        return ""
    whole = finals(frames, found.baseline, "reference_training", found.crossing).matching
    factors = ", ".join(
        f"{frames.shown[str(label)]} {factor:.1f}×"
        for label, factor in whole.get("fewer_flops", {}).items()
        if label in set(needing) and math.isfinite(factor)
    )
    if not factors:
        return ""
    timed = "seconds" in found.efforts
    leave, of_flops = (" and less time leave", " of FLOPs") if timed else (" leaves", "")
    return (
        f"; fewer FLOPs{leave} out making the reference: with its scoring and each run's share in its "
        f"training, the factors{of_flops} are {factors}"
    )
