"""The runs of an experiment, grouped by label: states, scores over seeds, and mean costs of each label."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from jestlab.analysis import units
from jestlab.analysis.colors import LabelColor
from jestlab.analysis.curves import score_curves
from jestlab.analysis.errors import NotYet
from jestlab.analysis.frames import Frames
from jestlab.analysis.intervals import direction
from jestlab.analysis.metrics import Metric
from jestlab.analysis.tables import finals, show
from jestlab.platform.launch.status import RunStatus, reason_lines
from jestlab.platform.programs.failures import headline, kind_of
from jestlab.platform.serve.rendering import GLYPHS, duration, number
from jestlab.platform.store.records import RunSummary

SPARK = (120, 28)
"""Width and height of a sparkline, pixels."""


@dataclass(frozen=True)
class Status:
    """The runs of an experiment at one moment.

    Attributes:
        rows: All runs in the order of the study.
        colors: Label → its color.
        groups: Label → its runs.
        counts: State → number of runs.
        totals: Cost so far next to the planned cost; empty if both are unknown.
        waits: The reasons why runs wait.
    """

    rows: Sequence[RunStatus] = ()
    colors: Mapping[str, LabelColor] = field(default_factory=dict)
    groups: Mapping[str, list[RunStatus]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    totals: str = ""
    waits: str = ""

    @classmethod
    def of(cls, rows: Sequence[RunStatus], colors: Mapping[str, LabelColor]) -> "Status":
        """Group and count runs."""
        unique = [row for row in rows if not row.is_repeat]
        waits = " · ".join(line.strip() for line in reason_lines(row for row in rows if row.wait))
        return cls(rows, colors, by_label(rows), by_state(unique), _cost_text(unique), waits)


@dataclass(frozen=True)
class Column:
    """A column of numbers in the table of runs; for a label, it has the mean of its runs.

    Attributes:
        title: Header.
        value: Returns the value of a run; None if unknown.
        text: Formats a value.
    """

    title: str
    value: Callable[[RunStatus], float | None]
    text: Callable[[float], str]

    def mean(self, rows: Iterable[RunStatus]) -> float | None:
        """Return the mean of the known values of runs; None if all are unknown."""
        values = [value for row in rows if (value := self.value(row)) is not None]
        return fmean(values) if values else None


def _share(row: RunStatus) -> float | None:
    """Return the completed share of a run that has started but not ended; None if it is unknown."""
    run = row.run
    is_partial = run.step and not run.state.is_terminal
    return min(1.0, run.step / run.total_steps) if is_partial and run.total_steps else None


COLUMNS: dict[str, Column] = {
    "progress": Column("progress", _share, "{:.0%}".format),
    "loss": Column("loss", lambda row: row.loss, number),
    "speed": Column("examples/s", lambda row: row.rate, "{:,.0f}".format),
    "left": Column("time left", lambda row: row.progress.seconds_left, duration),
    "hours": Column("time", lambda row: row.cost.actual_hours, units.duration),
    "flops": Column("FLOPs", lambda row: row.cost.actual_flops, units.flops),
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
    labels: Mapping[Any, Mapping[Any, Any]] = field(default_factory=dict)
    trends: Mapping[str, tuple[list[int], list[float]]] = field(default_factory=dict)

    @classmethod
    def of(cls, frames: Frames) -> "Scores":
        """Compute the scores from the results of an experiment."""
        if frames.no_score:
            return cls()
        curves = score_curves(frames)
        last = curves.groupby(["label", "seed"], sort=False).tail(1)
        means = curves.groupby(["label", "step"], sort=False)["score"].mean().dropna().reset_index()
        trends: dict[str, tuple[list[int], list[float]]] = {}
        for label, step, score in means.itertuples(index=False):
            steps, values = trends.setdefault(label, ([], []))
            steps.append(step)
            values.append(score)
        try:
            labels = finals(frames).by_label.to_dict("index")
        except NotYet:  # no run has completed
            labels = {}
        return cls(
            title=frames.averaged[0] if len(frames.averaged) == 1 else "score",
            metric=frames.score,
            baseline=frames.baseline(),
            runs=dict(zip(zip(last["label"], last["seed"], strict=True), last["score"], strict=True)),
            labels=labels,
            trends=trends,
        )

    def of_label(self, label: str) -> dict[str, str]:
        """Return the cells of a label: mean score, difference from the baseline, and sparkline.

        `standing` is "good" or "bad" if the interval of the difference excludes 0.
        """
        row, metric = self.labels.get(label, {}), self.metric
        cells = {"trend": spark(*self.trends.get(label, ((), ()))), "standing": ""}
        for name, sign in (("score", ""), ("delta", "+")):
            value, low, high = (float(row.get(f"{name}_{end}", math.nan)) for end in ("mean", "low", "high"))
            cells[name] = "" if math.isnan(value) else show.interval(value, low, high, metric, sign)
            if name == "delta" and metric.goal is not None:
                cells["standing"] = {1.0: "good", -1.0: "bad"}.get(metric.sign * direction(low, high), "")
        return cells

    def of_run(self, run: RunSummary) -> dict[str, str]:
        """Return the cells of a run: last score, and difference from the baseline's run of the same seed."""
        score, baseline = (self.runs.get((label, run.seed), math.nan) for label in (run.label, self.baseline))
        is_compared = run.label in self.labels and run.label != self.baseline
        numbers = {"score": (score, ""), "delta": (score - baseline if is_compared else math.nan, "+")}
        return {
            name: "" if math.isnan(value) else self.metric.text(value, sign)
            for name, (value, sign) in numbers.items()
        }

    def value(self, rows: Sequence[RunStatus]) -> float | None:
        """Return the mean score of a label, or the score of a single run; None if unknown."""
        run = rows[0].run
        found = self.labels.get(run.label, {}).get("score_mean", math.nan)
        value = float(self.runs.get((run.label, run.seed), math.nan) if len(rows) == 1 else found)
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


def _cost_text(rows: Sequence[RunStatus]) -> str:
    """Write the cost so far, next to the planned cost; empty if both are unknown."""
    costs = [row.cost for row in rows]
    planned = sum(cost.total_flops or 0.0 for cost in costs)
    spent = sum(cost.actual_flops or 0.0 for cost in costs if cost.total_flops)
    hours = sum(cost.actual_hours or 0.0 for cost in costs)
    flops = f"{units.flops(spent)} of {units.flops(planned)}, {spent / planned:.0%}" if planned else ""
    return "; ".join(filter(None, (flops, f"{units.duration(hours)} of compute" if hours else "")))


def cells(rows: Sequence[RunStatus], scores: Scores | None = None) -> dict[str, Any]:
    """Return the cells of a label, or of a single run, in the table of runs, as the template shows them."""
    run, is_run, scores = rows[0].run, len(rows) == 1, scores or Scores()
    values = {key: column.mean(rows) for key, column in COLUMNS.items()}
    texts = {key: "" if value is None else COLUMNS[key].text(value) for key, value in values.items()}
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.run.reason and (is_run or row.wait is None):  # the page has a list of the labels that wait
            reasons.setdefault(kind_of(row.run.reason), []).append(headline(row.run.reason))
    [reason, *others] = max(reasons.values(), key=len, default=[""])
    return {
        **texts,
        "trend": "",
        "standing": "",
        **(scores.of_run(run) if is_run else scores.of_label(run.label)),
        "run": run.fingerprint,
        "label": run.label,
        "seed": run.seed,
        "count": len(rows),
        "states": by_state(rows),
        "state": run.state.value if is_run else "",
        "step": f"{run.step:,}" + (f" of {run.total_steps:,}" if run.total_steps else "") if is_run else "",
        "share": values["progress"],
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
