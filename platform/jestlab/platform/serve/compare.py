"""The comparison of several runs, grouped by label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from starlette.requests import Request

from jestlab.analysis.colors import BASELINE, REFERENCE, LabelColor, numbered
from jestlab.analysis.intervals import direction, paired
from jestlab.analysis.metrics import Metric
from jestlab.analysis.query import distinct
from jestlab.analysis.tables.show import MISSING, decimals, heading, interval
from jestlab.analysis.units import near, nearest
from jestlab.platform.errors import UserError
from jestlab.platform.serve.experiment import paint
from jestlab.platform.serve.labs import Labs, Missing, Served
from jestlab.platform.serve.rendering import as_texts, render
from jestlab.platform.serve.shown import ShownRun, charts

MOST_COMPARED = 20
"""Maximum number of compared runs."""


@dataclass(frozen=True)
class Group:
    """Compared runs of one label, which differ in the seed only; or a single run.

    Attributes:
        name: Name on the page, and in `base=` of its address.
        color: Color of the label.
        runs: The compared runs.
    """

    name: str
    color: LabelColor
    runs: Sequence[ShownRun]

    def config(self) -> dict[str, str]:
        """Return the dotted keys of the config, with the different values of the runs."""
        configs = [as_texts(run.record.config | {"program": run.record.program}) for run in self.runs]
        return {key: ", ".join(dict.fromkeys(values)) for key, *values in side_by_side(configs)}

    def scores(self, name: str) -> dict[int, float]:
        """Return seed → last value of a score, without values that aren't numbers."""
        found = {run.record.seed: run.last[name].value for run in self.runs if name in run.last}
        return {seed: value for seed, value in found.items() if value is not None}


def page(labs: Labs, request: Request) -> Any:
    """Compare the runs of `?run=…&run=…`; with `data` in the address, return their charts.

    A run is `experiment/label/seed` or a fingerprint; `experiment/label` means all seeds of a label. `base`
    is the run or label that the others are compared with.
    """
    query, lab = request.query_params, request.query_params.get("lab")
    names = list(dict.fromkeys(query.getlist("run")))
    found = {place[1]: place for name in names for place in _named(labs, name, lab)}
    groups = _groups([ShownRun.read(*place) for place in list(found.values())[:MOST_COMPARED]])
    runs = [run for group in groups for run in group.runs]
    if "data" in query:
        lines = [
            (run, {"run": run.fingerprint, "label": group.name, "name": run.title} | paint(group.color))
            for group in groups
            for run in group.runs
        ]
        return charts(lines, query.getlist("metric"))
    base = _base(groups, query.get("base"))
    config = side_by_side([group.config() for group in groups])
    return render(
        "compare.html.j2",
        names=names,
        groups=groups,
        runs=runs,
        base=base,
        left=max(0, len(found) - MOST_COMPARED),
        different=[row for row in config if len(set(row[1:])) > 1],
        equal=[row[:2] for row in config if len(set(row[1:])) == 1],
        scores=_scores(groups, base) if base else [],
        is_mean=any(len(group.runs) > 1 for group in groups),
        charts={name: title for run in runs for name, title in run.charts.items()},
        most=MOST_COMPARED,
        lab=lab,
    )


def _named(labs: Labs, name: str, lab: str | None) -> list[tuple[Served, str, str, str]]:
    """Find the runs that a name means, with experiment and label; a run comes before a label of its name.

    Raises:
        Missing: No run has the name.
        UserError: Several labs have different runs of the name.
    """
    experiment, _, rest = name.partition("/")
    if not rest:
        return [(*labs.with_run(name, lab), "", "")]
    label, _, seed = rest.rpartition("/")
    found, known = {}, []
    for served in labs.all_with_experiment(experiment, lab):
        rows = [row.run for row in served.status(experiment).rows]
        one = [run for run in rows if (run.label, str(run.seed)) == (label, seed)]
        if runs := one or [run for run in rows if run.label == rest]:
            of_lab = [(served, run.fingerprint, experiment, run.label) for run in runs]
            found[frozenset(run.fingerprint for run in runs)] = of_lab
        known += [f"{experiment}/{run.label}/{run.seed}" for run in rows]
    if len(found) > 1:
        among = ", ".join(f"lab={served.name}" for [(served, *_), *_] in found.values())
        raise UserError(f"several labs have runs named {name!r}: add one of {among} to the address")
    if not found:
        raise Missing(f"no run {name!r}: expected experiment/label/seed; {near(name, known)}".rstrip("; "))
    return next(iter(found.values()))


def _groups(runs: Sequence[ShownRun]) -> list[Group]:
    """Group runs by label; runs of only one label are not grouped."""
    labels: dict[Any, list[ShownRun]] = {}
    for run in runs:
        label = (run.served.name, *run.places[0][:2]) if run.places else (run.fingerprint,)
        labels.setdefault(label, []).append(run)
    parts = list(labels.values()) if len(labels) > 1 else [[run] for run in runs]
    names = ["/".join(part[0].places[0][:2]) if len(part) > 1 else part[0].title for part in parts]
    colors = [_color(part[0]) for part in parts]
    if len(set(colors)) < len(colors):  # labels of several experiments, or seeds
        colors = [numbered(position) for position in range(len(parts))]
    return [Group(*group) for group in zip(distinct(names, "-"), colors, parts, strict=True)]


def _color(run: ShownRun) -> LabelColor:
    """Return the color of a run's label in its experiment."""
    colors = run.served.status(run.places[0].experiment).colors if run.places else {}
    return colors.get(run.places[0].label, REFERENCE) if colors else REFERENCE


def _base(groups: Sequence[Group], name: str | None) -> Group | None:
    """Find the group that a name means; by default the baseline of the study, else the first one.

    Raises:
        UserError: No compared run or label has the name.
    """
    if not name:
        return next((group for group in groups if group.color == BASELINE), next(iter(groups), None))
    known = {run.title: group for group in groups for run in group.runs}
    known |= {group.name: group for group in groups}
    if name not in known:
        raise UserError(f"base {name!r} is not among the compared runs: {nearest(name, known)}")
    return known[name]


def side_by_side(columns: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """Return a row for each key of the columns: the key, and its value in each column."""
    keys = sorted({key for column in columns for key in column})
    return [[key, *(column.get(key, MISSING) for column in columns)] for key in keys]


@dataclass(frozen=True)
class Score:
    """The texts of a score of a group: mean over seeds, and difference from the base with the same seeds.

    Attributes:
        mean: With its interval, if there are several seeds.
        delta: As `mean`; empty for the base.
        tone: "good" or "bad" if the interval of the difference excludes 0.
    """

    mean: str
    delta: str = ""
    tone: str = ""


def _scores(groups: Sequence[Group], base: Group) -> list[tuple[str, list[Score]]]:
    """Return the title of each score, with its last values in each group; they have equal decimals."""
    metrics = {name: run.metrics.of(name) for group in groups for run in group.runs for name in run.last}
    rows = []
    for name, metric in sorted(metrics.items()):
        form = decimals(metric, 0.0, *(x for group in groups for x in group.scores(name).values()))
        rows.append((heading(name, metric), [_score(name, form, group, base) for group in groups]))
    return rows


def _score(name: str, metric: Metric, group: Group, base: Group) -> Score:
    """Compare a score of a group with that of the base, paired by seed; by means if no seed is in both."""
    ours, theirs = (pd.Series(each.scores(name), dtype=float) for each in (group, base))
    mean, delta = paired(ours, 0.0 * ours), paired(ours, theirs)
    text = interval(mean.mean, mean.low, mean.high, metric)
    if group is base:
        return Score(text)
    difference = delta.mean if delta.seeds else float(ours.mean() - theirs.mean())
    tone = {1.0: "good", -1.0: "bad"}.get(direction(delta.low, delta.high) * metric.sign, "")
    return Score(text, interval(difference, delta.low, delta.high, metric, "+"), tone)
