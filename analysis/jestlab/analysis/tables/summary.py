"""The summary of an experiment: final scores and costs of each run, and how much sooner it is as good."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ..curves import crossing_words
from ..efforts import WORDS, Effort, unit, writer
from ..intervals import INTERVAL, direction
from ..metrics import Metric, lacks_goal
from ..units import sentence
from . import show
from .core import ESSENTIAL, Column, Record, Table
from .final_results import Finals
from .speedups import IMPORTANCE, factor_column, note_on_flops

if TYPE_CHECKING:
    import pandas as pd


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
    columns = _columns(found)
    notes = (note for column in columns for note in column.notes)
    return Table(
        name=f"{frames.experiment} summary",
        caption=f"{sentence(': '.join(filter(None, (frames.experiment, frames.question))))} "
        f"Scores{unit}, {over}{_meaning_of_score(found)}.",
        frame=_rows(found),
        columns=columns,
        notes=tuple(filter(None, (frames.no_score, *dict.fromkeys(notes), *found.gaps))),
        parts=found.runs.assign(row=found.runs["label"], experiment=frames.experiment),
        baselines=found.baselines,
        shown=found.renamed,
    )


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


def _columns(found: Finals) -> tuple[Column, ...]:
    frames, declared = found.frames, found.frames.declared
    headers = show.metric_headers(frames.metrics, declared)
    unranked = [name for name in frames.metrics if declared.of(name).goal is None and not frames.no_score]
    columns = [
        Column("run", "run", lambda row: frames.shown[row["label"]], align="left", importance=ESSENTIAL),
        Column("seeds", "seeds", show.seeds, formula="runs that completed, of those planned", importance=30),
    ]
    for name, header in headers.items():
        column = _score(name, header, declared.of(name), f"final {name}")
        notes = (f"not ranked: {lacks_goal(unranked)}",) if name in unranked else ()
        columns.append(replace(column, notes=notes))
    if frames.averaged:
        alike = show.all_alike(frames.metrics, declared)
        header = "score" if alike else show.heading("score", found.metric)
        mean = f"mean of {', '.join(frames.averaged)}"
        columns.append(_score("score", header, found.metric, mean, tuple(frames.averaged), importance=90))
        columns += [_delta(found)] if found.has_rivals else []
    columns += [_spent(effort, found) for effort in found.efforts]
    if found.has_rivals and found.metric.goal is not None:
        explained = _note_on_factors(found)
        for effort in found.efforts:
            about = (explained, note_on_flops(found)) if effort == "flops" else (explained,)
            columns.append(replace(factor_column(effort, found.against), notes=about))
    return tuple(columns)


def _score(
    key: str, header: str, metric: Metric, formula: str, inputs: tuple[str, ...] = (), importance: int = 60
) -> Column:
    """Make the column of a metric or of the score."""
    mean, std, seeds = (f"{key}_{part}" for part in ("mean", "std", "seeds"))

    def text(row: Record) -> str:
        return show.mean(row[mean], row[std], row[seeds], row["seeds"], metric)

    def rank(row: Record) -> float:
        rank = metric.rank(float(row[mean]))
        diverged = row["diverged"] and row[seeds] < row["seeds"] and not math.isnan(rank)
        return -math.inf if diverged or math.isinf(rank) else rank

    return Column(
        key, header, text, rank, seeds=seeds, formula=f"mean over seeds of the {formula}", inputs=inputs,
        importance=importance, family="scores",
    )  # fmt: skip


def _delta(found: Finals) -> Column:
    """Make the column of the difference to the baseline's score; significantly better ones are bold."""
    metric, baseline = found.metric, found.against
    bold = "; bold: better, and the interval excludes 0" if metric.goal else ""
    less = "; less is better" if metric.goal == "min" else ""
    note = f"Δ: score minus that of {baseline} with the same seed, mean [{INTERVAL}]{bold}{less}"

    def text(row: Record) -> str:
        return show.difference(row["delta_mean"], row["delta_low"], row["delta_high"], metric)

    return Column(
        "delta",
        f"Δ {baseline}",
        text,
        bold=lambda row: metric.sign * direction(row["delta_low"], row["delta_high"]) > 0,
        seeds="delta_seeds",
        formula=f"mean over seeds of score minus that of {baseline} with the same seed; in brackets its "
        f"{INTERVAL} by Student's t",
        inputs=("score",),
        compares=True,
        importance=80,
        notes=(note,),
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
        lambda row: show.known(row[effort], writer(effort, divisor)),
        formula=formula,
        importance=IMPORTANCE[effort] - 25,
        family="costs",
        notes=(note_on_flops(found),) if effort == "flops" else (),
    )


def _note_on_factors(found: Finals) -> str:
    """Explain the factors of all efforts in one note."""
    baseline = found.against
    first, *others = (WORDS[effort].fewer for effort in found.efforts)
    factors = ", ".join([first, *(each.removeprefix("fewer ") for each in others)])
    return (
        f"{factors}: factor by which a run reaches the final score of {baseline} sooner than {baseline} "
        f"itself; same seed, {crossing_words(found.crossing, found.metric)}, median over seeds (seeds that "
        "reach it)"
    )
