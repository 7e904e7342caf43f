"""Rows and curves of the best runs: in each seed, one of several labels, which a metric chooses."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from .claims.best import refusal, stand_ins
from .claims.claim import LOSS, SCORE, SPIKES
from .claims.measures import Measures
from .colors import numbered
from .curves import score_curves
from .errors import NotYet, RequestError
from .frames import Frames, in_words
from .results import Snapshot
from .units import some

BestOf = Mapping[str, Any]
"""`of`: names of labels or runs, `by`: the metric that chooses one of them in each seed."""


def with_best(
    store: Snapshot, frames: Frames, best: Mapping[str, BestOf], kept: Collection[str | None] = ()
) -> Frames:
    """Replace labels by the best of them in each seed.

    In each seed, the new label represents the best run. In a seed without one, it represents a run that has
    not ended or was lost, without its scores.

    Args:
        best: Name of the new label → the labels to choose from, and the metric.
        kept: Names of labels or runs that remain, next to the new label.

    Raises:
        NotYet: No run has a value of the metric yet.
        RequestError: A run is unknown, the new name is taken, or the metric has no goal or is part of the
            score.
    """
    if not best:
        return frames
    order = {label: float(place) for place, label in enumerate(frames.labels)}
    of_runs = frames.runs[["label", "seed", "state"]].itertuples(index=False, name=None)
    states = {(label, seed): state for label, seed, state in of_runs}
    chosen: dict[tuple[str, int], str] = {}
    about, colors = {}, dict(frames.colors)
    without_scores, replaced = set(), set()
    for name, choice in best.items():
        if frames.names.meant(name):
            raise RequestError(f"best: {name!r} is a run of {frames.experiment!r}: choose another name")
        labels, by = frames.only(choice["of"]).labels, choice["by"]
        logged = store.metrics(frames.experiment, [LOSS if by == SPIKES else by])
        measures = Measures(frames, score_curves(frames), logged, frames.declared)
        if problem := refusal(by, [SCORE], measures):
            raise RequestError(f"best: {problem}")
        picked = []
        for seed, label, is_best in stand_ins(measures, states, labels, by):
            chosen[name, seed] = label
            picked.append(frames.shown[label] * is_best)
            without_scores |= set() if is_best else {(name, seed)}
        if not any(picked):
            raise NotYet(f"best: in no seed, all of {some(labels)} have ended and one has a value of {by}")
        about[name] = (
            f"in each seed, the best of {len(labels)} runs by {by} ({in_words(picked, len(picked))}); costs "
            "are those of the chosen runs, without the search"
        )
        replaced |= set(labels)
        order[name], colors[name] = order[labels[0]] - 0.5, numbered(len(colors))
    replaced -= {label for name in kept if name for label in frames.names.meant(name)}
    frames = replace(frames, chosen=chosen, about=about, colors=colors)

    def changed(rows: pd.DataFrame) -> pd.DataFrame:
        rows = frames.with_chosen(rows)
        rows = rows[~rows["label"].isin(replaced)]
        return rows.iloc[rows["label"].map(order).argsort(kind="stable")].reset_index(drop=True)

    runs, scores, costs = map(changed, (frames.runs, frames.scores, frames.costs))
    places = zip(scores["label"], scores["seed"], strict=True)
    scores = scores[[place not in without_scores for place in places]].reset_index(drop=True)
    configs = frames.with_chosen(frames.configs)
    configs.loc[configs["label"].isin(best), "point"] = "{}"
    return replace(frames, runs=runs, scores=scores, costs=costs, configs=configs)
