"""Comparison tables of an experiment, from the store."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import units
from .costs import Scope
from .curves import censored_median, score_curves, speedups
from .frames import Frames
from .rendering import Column, Record, Table

if TYPE_CHECKING:
    import pandas as pd

_COST_SCOPES: dict[Scope, str] = {
    "learner": "the learner's training alone",
    "scoring": "training and the learner's scoring of super-batches, no pass reused; reference scores cached",
    "reference_scoring": "training, and scoring of super-batches by learner and reference, no pass reused",
}

_METRIC_NAMES = {
    "zero_shot": "zero-shot",
    "10_shot": "10-shot",
    "i2t_r1": "I2T R@1",
    "t2i_r1": "T2I R@1",
}

_MISSING = "—"


def summary(frames: Frames, baseline: str | None = None, scope: Scope = "scoring") -> Table:
    """The final table of an experiment: what each run scored, at what cost, and how much sooner.

    One row a label, in the order of the study, runs that others need as reference first and apart. All
    numbers are over the seeds that completed.

    Args:
        frames: Results of an experiment, from `frames.read`.
        baseline: Label or run to compare with; by default the study's first run that is no reference.
        scope: What counts as FLOPs.

    Returns:
        A table whose frame has the columns label, run, apart, seeds, seeds_planned; for each headline metric
        (`Frames.metrics`) and for score (their mean) `_mean` and `_std`; delta_mean, delta_std (paired by
        seed) and delta_seeds; examples_seen, flops; fewer_examples and fewer_flops (censored medians over
        seeds, NaN where not reached), seeds_reached and seeds_compared. A standard deviation is the sample's,
        NaN for one seed.
        What compares is NaN or 0 for runs that stand apart.

    Raises:
        ValueError: If no run of it has completed yet, or it has no
            such baseline.
    """
    compared = frames.baseline(baseline)
    curves = score_curves(frames, scope)
    finals = curves[curves["final"]]
    if finals.empty:
        raise ValueError(f"no run of experiment {frames.experiment!r} has completed yet: {frames.progress()}")
    in_percent = frames.scores_are_shares
    unit = " in %" if in_percent else ""
    over = "mean ± standard deviation over seeds" if finals["label"].duplicated().any() else "one seed each"
    return Table(
        name=f"{frames.experiment} summary",
        caption=f"{frames.experiment}{': ' + frames.question if frames.question else '.'} "
        f"Scores{unit}, {over}; score is the mean of the metrics.",
        frame=_rows(frames, finals, speedups(curves, compared), compared),
        columns=_columns(frames, finals, compared, in_percent),
        notes=(*_conventions(frames, compared, scope), *_gaps(frames, finals, compared)),
    )


def _rows(frames: Frames, finals: pd.DataFrame, factors: pd.DataFrame, baseline: str) -> pd.DataFrame:
    import pandas as pd

    by_label = frames.runs.groupby("label", sort=False)
    rows = pd.DataFrame({"run": by_label["run"].first(), "apart": False})
    apart = frames.apart_from(baseline)
    rows.loc[apart, "apart"] = True
    ended = finals.groupby("label")
    rows["seeds"] = ended.size()
    rows["seeds_planned"] = by_label.size()

    for name in [*frames.metrics, "score"]:
        rows[[f"{name}_mean", f"{name}_std"]] = ended[name].agg(["mean", "std"])  # the sample's: n − 1

    competing = finals[~finals["label"].isin(apart)]
    of_baseline = finals[finals["label"] == baseline].set_index("seed")["score"]
    others = competing[competing["label"] != baseline]
    deltas = (others["score"] - others["seed"].map(of_baseline)).groupby(others["label"])
    rows["delta_mean"], rows["delta_std"], rows["delta_seeds"] = deltas.mean(), deltas.std(), deltas.count()

    rows[["examples_seen", "flops"]] = ended[["examples_seen", "flops"]].mean()
    sooner = factors[~factors["label"].isin(apart)].groupby("label")
    rows["fewer_examples"] = sooner["examples_seen"].agg(censored_median)
    rows["fewer_flops"] = sooner["flops"].agg(censored_median)
    rows["seeds_reached"] = sooner["reached"].sum()
    rows["seeds_compared"] = sooner.size()

    counts = ["seeds", "delta_seeds", "seeds_reached", "seeds_compared"]
    rows[counts] = rows[counts].fillna(0).astype(int)
    return rows.reset_index().sort_values("apart", ascending=False, kind="stable", ignore_index=True)


def _columns(frames: Frames, finals: pd.DataFrame, baseline: str, in_percent: bool) -> tuple[Column, ...]:
    scale, unit = units.flops_unit(finals["flops"])
    comparing = any(label != baseline for label in frames.competitors)
    scores = [_score_column(header, name, in_percent) for name, header in _metric_headers(frames).items()]
    delta = [_score_column(f"Δ {baseline}", "delta", in_percent)]
    factors = [
        _factor_column("fewer examples", "fewer_examples"),
        _factor_column("fewer FLOPs", "fewer_flops"),
    ]
    return (
        Column("run", lambda row: str(row["label"]), align="left"),
        Column("seeds", _seeds),
        *scores,
        _score_column("score", "score", in_percent),
        *(delta if comparing else []),
        Column("examples", lambda row: _known(row["examples_seen"], units.count)),
        Column(unit, lambda row: _known(row["flops"], lambda flops: units.significant(flops / scale))),
        *(factors if comparing else []),
    )


def _metric_headers(frames: Frames) -> dict[str, str]:
    """Name → heading; the dataset is left out where one dataset alone has the metric."""
    parts = {name: name.split("/", 1) for name in frames.metrics}
    several = Counter(metric for _, metric in parts.values())
    headers = {}
    for name, (dataset, metric) in parts.items():
        short = _METRIC_NAMES.get(metric, metric)
        headers[name] = f"{dataset} {short}" if several[metric] > 1 else short
    return headers


def _score_column(header: str, key: str, in_percent: bool) -> Column:
    """Mean ± standard deviation, the best in bold; percent with one decimal where all scores are shares."""
    signed = key == "delta"

    def text(value: float, sign: str) -> str:
        shown = f"{100 * value:{sign}.1f}" if in_percent else f"{value:{sign}.4g}"
        return shown.replace("-", "−")

    def show(row: Record) -> str:
        mean, std = row[f"{key}_mean"], row[f"{key}_std"]
        if math.isnan(mean):
            return _MISSING
        return text(mean, "+" if signed else "") + ("" if math.isnan(std) else f" ± {text(std, '')}")

    def rank(row: Record) -> float:
        mean = float(row[f"{key}_mean"])
        return round(100 * mean, 1) if in_percent else float(f"{mean:.4g}")

    return Column(header, show, None if signed else rank)  # the best Δ is the best score once more


def _factor_column(header: str, key: str) -> Column:
    def show(row: Record) -> str:
        factor, reached, compared = float(row[key]), row["seeds_reached"], row["seeds_compared"]
        of_seeds = f" ({reached}/{compared})" if 0 < reached < compared else ""
        if not math.isnan(factor):
            return ("∞" if math.isinf(factor) else f"{factor:.1f}×") + of_seeds
        unreached = compared > 0 and math.isnan(row["fewer_examples"])
        return f"not reached{of_seeds}" if unreached else _MISSING

    return Column(header, show, lambda row: round(float(row[key]), 1))


def _seeds(row: Record) -> str:
    done, planned = row["seeds"], row["seeds_planned"]
    return f"{done}" if done == planned else f"{done} of {planned}"


def _known(value: float, show: Callable[[float], str]) -> str:
    return _MISSING if math.isnan(value) else show(value)


def _conventions(frames: Frames, baseline: str, scope: Scope) -> list[str]:
    """What the columns mean."""
    notes = [f"FLOPs: {_COST_SCOPES[scope]}"]
    if any(label != baseline for label in frames.competitors):
        notes += [
            f"Δ: score minus that of {baseline} with the same seed",
            f"fewer examples, FLOPs: factor by which a run reaches the final score of {baseline} sooner; "
            "same seed, first crossing of the interpolated curve, median over seeds (seeds that reach it)",
        ]
    return notes


def _gaps(frames: Frames, finals: pd.DataFrame, baseline: str) -> list[str]:
    """Rows that are not what they seem: references, runs that did not complete, scores that are missing."""
    notes = [
        f"{label}: a reference, needed by other runs; no competitor" for label in frames.apart_from(baseline)
    ]
    unfinished = frames.runs[frames.runs["state"] != "COMPLETED"]
    for label, runs in unfinished.groupby("label", sort=False):
        notes.append(f"{label}: {'; '.join(_why_open(run) for _, run in runs.iterrows())}")
    for label, ended in finals.groupby("label", sort=False):
        lacking = [name for name in frames.metrics if ended[name].isna().any()]
        if lacking:
            notes.append(f"{label}: no score where {', '.join(lacking)} is missing")
    return notes


def _why_open(run: pd.Series[Any]) -> str:
    text = f"seed {run['seed']} {run['state']}"
    if run["step"] > 0:
        text += f" at step {run['step']:.0f}"
        text += f" of {run['total_steps']:.0f}" if run["total_steps"] > 0 else ""  # NaN where it is not known
    if isinstance(run["reason"], str) and run["reason"].strip():
        text += f" ({_shortened(run['reason'].strip().splitlines()[0])})"
    return text


def _shortened(text: str, width: int = 100) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
