"""The runs of an experiment, grouped by label: states, scores over seeds, and costs of each label."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from jestlab.analysis import units
from jestlab.analysis.metrics import Metric
from jestlab.analysis.tables import show
from jestlab.platform.launch.status import RunStatus
from jestlab.platform.programs.failures import headline, kind_of
from jestlab.platform.serve.rendering import GLYPHS, duration, number
from jestlab.platform.store.records import RunSummary

if TYPE_CHECKING:
    from jestlab.analysis.frames import Frames

SPARK = (120, 28)
"""Width and height of a sparkline, pixels."""


@dataclass(frozen=True)
class Column:
    """A column of the table of runs.

    Attributes:
        title: Header.
        value: Returns the value of a run; None if unknown.
        combine: Returns the value of a label from the known values of its runs.
        text: Formats a value.
    """

    title: str
    value: Callable[[RunStatus], float | None]
    combine: Callable[[list[float]], float]
    text: Callable[[float], str]


def _share(row: RunStatus) -> float | None:
    """Return the completed share of a run that has started but not ended; None if it is unknown."""
    run = row.run
    is_partial = run.step and not run.state.is_terminal
    return min(1.0, run.step / run.total_steps) if is_partial and run.total_steps else None


COLUMNS: dict[str, Column] = {
    "progress": Column("progress", _share, fmean, "{:.0%}".format),
    "loss": Column("loss", lambda row: row.loss, fmean, number),
    "speed": Column("examples/s", lambda row: row.rate, sum, "{:,.0f}".format),
    "left": Column("time left", lambda row: row.progress.seconds_left, max, duration),
    "hours": Column("time", lambda row: row.cost.actual_hours, fmean, units.duration),
    "flops": Column("FLOPs", lambda row: row.cost.actual_flops, sum, units.flops),
}
"""Key → column of numbers, which can be sorted by."""


@dataclass(frozen=True)
class Scores:
    """Scores of the runs of an experiment.

    Attributes:
        title: Name of the score; empty if the experiment has no score.
        metric: Its unit and goal.
        baseline: Label that `labels` compares with.
        runs: Label and seed → last score; NaN if unknown.
        labels: Label → row of `Finals.by_label`; only labels with a completed run.
        trends: Label → steps, and the mean over seeds of the score at each.
    """

    title: str = ""
    metric: Metric = field(default_factory=Metric)
    baseline: str = ""
    runs: Mapping[tuple[str, int], float] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    trends: Mapping[str, tuple[list[int], list[float]]] = field(default_factory=dict)

    @classmethod
    def of(cls, frames: Frames) -> Scores:
        """Compute the scores from the results of an experiment."""
        from jestlab.analysis.curves import score_curves
        from jestlab.analysis.errors import NotYet
        from jestlab.analysis.intervals import half_widths
        from jestlab.analysis.tables import finals

        if frames.no_score:
            return cls()
        curves = score_curves(frames)
        last = curves.groupby(["label", "seed"], sort=False).tail(1)
        means = curves.groupby(["label", "step"], sort=False)["score"].mean().dropna().reset_index()
        try:
            table = finals(frames).by_label
        except NotYet:  # no run has completed
            labels = {}
        else:
            half = half_widths(table["score_std"], table["score_seeds"])
            half[table["diverged"]] = math.nan  # the other seeds are a biased selection
            table = table.assign(score_low=table["score_mean"] - half, score_high=table["score_mean"] + half)
            labels = table.to_dict("index")
        return cls(
            title=frames.averaged[0] if len(frames.averaged) == 1 else "score",
            metric=frames.score,
            baseline=frames.baseline(),
            runs=dict(zip(zip(last["label"], last["seed"], strict=True), last["score"], strict=True)),
            labels={str(label): {str(k): v for k, v in row.items()} for label, row in labels.items()},
            trends={
                str(label): (rows["step"].tolist(), rows["score"].tolist())
                for label, rows in means.groupby("label", sort=False)
            },
        )

    def of_label(self, label: str) -> tuple[str, str]:
        """Write the mean score of a label and its difference from the baseline, with confidence intervals."""
        row, texts = self.labels.get(label, {}), []
        for name, sign in (("score", ""), ("delta", "+")):
            value, low, high = (float(row.get(f"{name}_{end}", math.nan)) for end in ("mean", "low", "high"))
            texts.append("" if math.isnan(value) else show.interval(value, low, high, self.metric, sign))
        return texts[0], texts[1]

    def standing(self, label: str) -> str:
        """Return whether a label is better ("good") or worse ("bad") than the baseline; empty if unclear."""
        from jestlab.analysis.intervals import direction

        row = self.labels.get(label)
        side = direction(row["delta_low"], row["delta_high"]) if row else 0
        return "" if side == 0 or self.metric.goal is None else "good" if side == self.metric.sign else "bad"

    def run(self, run: RunSummary) -> float | None:
        """Return the last score of a run; None if unknown."""
        value = self.runs.get((run.label, run.seed), math.nan)
        return None if math.isnan(value) else value

    def of_run(self, run: RunSummary) -> tuple[str, str]:
        """Write the last score of a run, and its difference from the baseline's run of the same seed."""
        score, baseline = (self.runs.get((label, run.seed), math.nan) for label in (run.label, self.baseline))
        is_compared = run.label in self.labels and run.label != self.baseline
        delta = score - baseline if is_compared else math.nan
        text = self.metric.text
        return "" if math.isnan(score) else text(score), "" if math.isnan(delta) else text(delta, "+")

    def mean(self, label: str) -> float | None:
        """Return the mean score of a label; None if unknown."""
        value = float(self.labels.get(label, {}).get("score_mean", math.nan))
        return None if math.isnan(value) else value


def by_state(rows: Iterable[RunStatus]) -> dict[str, int]:
    """Return the number of runs by state; states without runs are omitted."""
    counts = Counter(row.run.state for row in rows)
    return {state.value: counts[state] for state in GLYPHS if counts[state]}


def by_label(rows: Iterable[RunStatus]) -> dict[str, list[RunStatus]]:
    """Group runs by label, in their order."""
    groups: dict[str, list[RunStatus]] = {}
    for row in rows:
        groups.setdefault(row.run.label, []).append(row)
    return groups


def combined(column: Column, rows: Sequence[RunStatus]) -> float | None:
    """Return the value of a label in a column; None if unknown."""
    values = [value for row in rows if (value := column.value(row)) is not None]
    return column.combine(values) if values else None


def cells(rows: Sequence[RunStatus], scores: Scores | None = None) -> dict[str, Any]:
    """Return the cells of a label, or of a single run, in the table of runs, as the template shows them."""
    run, is_run, scores = rows[0].run, len(rows) == 1, scores or Scores()
    values = {key: combined(column, rows) for key, column in COLUMNS.items()}
    texts = {key: "" if value is None else COLUMNS[key].text(value) for key, value in values.items()}
    score, delta = scores.of_run(run) if is_run else scores.of_label(run.label)
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.run.reason and (is_run or row.wait is None):  # the page has a list of the labels that wait
            reasons.setdefault(kind_of(row.run.reason), []).append(headline(row.run.reason))
    [reason, *others] = max(reasons.values(), key=len, default=[""])
    return texts | {
        "run": run.fingerprint,
        "label": run.label,
        "seed": run.seed,
        "count": len(rows),
        "states": by_state(rows),
        "state": run.state.value if is_run else "",
        "step": f"{run.step:,}" + (f" of {run.total_steps:,}" if run.total_steps else "") if is_run else "",
        "share": values["progress"],
        "score": score,
        "delta": delta,
        "standing": "" if is_run else scores.standing(run.label),
        "trend": "" if is_run else spark(*scores.trends.get(run.label, ((), ()))),
        "reason": f"{reason} ×{len(others) + 1}" if others else reason,
        "detail": (run.reason or "") if is_run else "",
    }


def spark(x: Sequence[float], y: Sequence[float]) -> str:
    """Return the path of a sparkline; empty for fewer than two points."""
    known = [(a, b) for a, b in zip(x, y, strict=True) if math.isfinite(b)]
    if len(known) < 2:
        return ""
    (left, low), (right, high) = (tuple(map(end, zip(*known, strict=True))) for end in (min, max))
    width, height = SPARK[0] - 4, SPARK[1] - 4
    points = (
        f"{2 + width * (a - left) / (right - left):.1f} {2 + height * (high - b) / ((high - low) or 1):.1f}"
        for a, b in known
    )
    return f"M{'L'.join(points)}"
