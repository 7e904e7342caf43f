"""A run as pages show it: name, scores, and charts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sqlalchemy import select, text

from jestlab.analysis import units
from jestlab.analysis.metrics import Metrics
from jestlab.analysis.tables.show import heading
from jestlab.platform.launch.status import LOSS
from jestlab.platform.serve.experiment import curves_of, finite
from jestlab.platform.serve.labs import Served
from jestlab.platform.store.records import RunRecord
from jestlab.platform.store.tables import EvaluationRow, MetricNameRow, MetricRow, run_key

MOST_CHARTS = 12
"""Maximum number of small charts on a page, and of other charts in one request."""

_CLOCKS = {"examples": "examples_seen", "time": "seconds"}
"""Horizontal axis → column of evaluations, and metric, with its values."""

_EFFORTS = ("examples_seen", "distinct_examples", "flops_total", "seconds")
"""Metrics that measure progress, which need no chart."""

_PLACES = text("SELECT experiment, label, seed FROM v_runs WHERE fingerprint = :run")


@dataclass(frozen=True)
class ShownRun:
    """A run with what several pages show.

    Attributes:
        served: The lab.
        record: The run in the store.
        places: Experiment, label, and seed in each experiment of the run.
        evaluations: Evaluations by step: name, step, value, examples_seen, seconds.
        metrics: Meaning of its metrics, by the spec of its first experiment and by its program.
    """

    served: Served
    record: RunRecord
    places: Sequence[Any]
    evaluations: Sequence[Any]
    metrics: Metrics

    @classmethod
    def read(cls, served: Served, fingerprint: str, experiment: str = "", label: str = "") -> "ShownRun":
        """Read a run; the place with this experiment and label, if it has one, comes first."""
        store, row = served.store, EvaluationRow
        rows = store.rows(_PLACES.bindparams(run=fingerprint))
        places = sorted(rows, key=lambda place: (place[:2] != (experiment, label), *place))
        evaluations = store.rows(
            select((row.dataset + "/" + row.metric).label("name"), row.step, row.value)
            .add_columns(*(getattr(row, column) for column in _CLOCKS.values()))
            .where(row.run_id == run_key(fingerprint))
            .order_by(row.step)
        )
        record = store.run(fingerprint)
        metrics = store.metrics(places[0].experiment if places else "", [record.program])
        return cls(served, record, places, evaluations, metrics)

    @property
    def fingerprint(self) -> str:
        """Its fingerprint."""
        return self.record.fingerprint

    @property
    def title(self) -> str:
        """`experiment/label/seed`, or the start of its fingerprint if it belongs to no experiment."""
        return "/".join(map(str, self.places[0])) if self.places else f"run {self.fingerprint[:8]}"

    @cached_property
    def last(self) -> dict[str, Any]:
        """The last evaluation of each score, by name."""
        last = {row.name: row for row in self.evaluations}
        return {name: last[name] for name in sorted(last)}

    @property
    def charts(self) -> dict[str, str]:
        """Name → title of its charts: the loss, scores, then all other metrics."""
        is_of_run = (MetricRow.name_id == MetricNameRow.id) & (MetricRow.run_id == run_key(self.fingerprint))
        names = select(MetricNameRow.name).where(select(MetricRow.step).where(is_of_run).exists())
        logged = sorted({name for (name,) in self.served.store.rows(names)} - {*_EFFORTS})
        first = [LOSS] if LOSS in logged else []
        found = dict.fromkeys([*first, *self.last, *logged]) or [LOSS]
        return {name: heading(name, self.metrics.of(name)) for name in found}

    def curve(self, name: str) -> dict[str, list[Any]]:
        """Return the curve of a metric, or of a score where no metric has the name, in its unit."""
        curve = curves_of(self.served.store, [self.fingerprint], name)[self.fingerprint]
        if not curve["x"]:
            points = [row for row in self.evaluations if row.name == name]
            curve = {"x": [row.step for row in points], "y": [row.value for row in points]}
        factor = self.metrics.of(name).factor
        with np.errstate(over="ignore"):
            scaled = {key: finite(factor * np.array(values, float)) for key, values in curve.items()}
        return scaled | {"x": curve["x"]}

    def clock(self, column: str) -> dict[int, float]:
        """Return the examples or seconds at the start and at the steps where they were recorded."""
        logged = curves_of(self.served.store, [self.fingerprint], column)[self.fingerprint]
        points = [(row.step, getattr(row, column)) for row in self.evaluations]
        points += zip(logged["x"], logged["y"], strict=True)
        known = {step: value for step, value in points if value is not None and math.isfinite(value)}
        return dict(sorted(({0: 0.0} | known).items())) if known else {}


def charts(lines: Sequence[tuple[ShownRun, Mapping[str, Any]]], names: Sequence[str]) -> dict[str, Any]:
    """Return charts for the scripts of pages: the first charts of runs, and those named.

    `x` has values for each horizontal axis: steps, and examples and time if all runs recorded them. Between
    their records, which are rarer than steps, they are interpolated.

    Args:
        lines: Each run, with the label, name, and color of its lines.
        names: Names of metrics and scores.
    """
    titles = {name: title for run, _ in lines for name, title in run.charts.items()}
    clocks = {axis: [run.clock(column) for run, _ in lines] for axis, column in _CLOCKS.items()}
    clocks = {axis: of_runs for axis, of_runs in clocks.items() if all(of_runs)}
    scale, unit = units.seconds_unit(max(clock.values()) for clock in clocks.get("time", ()))
    axes = {"examples": ("examples", 1.0), "time": (f"time ({unit})", scale)}
    shown: dict[str, list[dict[str, Any]]] = {}
    for name in dict.fromkeys([*[*titles][:MOST_CHARTS], *names[:MOST_CHARTS]]):
        shown[name] = []
        for i, (run, line) in enumerate(lines):
            curve = run.curve(name)
            x: dict[str, list[Any]] = {"steps": curve["x"]}
            for axis, of_runs in clocks.items():
                title, scale = axes[axis]
                ends, values = [*of_runs[i]], [*of_runs[i].values()]
                x[title] = finite(np.interp(curve["x"], ends, values, right=math.nan) / scale)
            shown[name].append({**line, **curve, "x": x})
    return {"titles": titles, "charts": shown, "left": 0}
