"""Rows and curves of the best runs: in each seed, one of several labels, which a metric chooses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .claims.best import best_of
from .claims.claim import BOTH
from .claims.measures import Measures
from .colors import numbered
from .curves import score_curves
from .errors import NotYet, RequestError
from .frames import LOST, Frames, in_words
from .metrics import lacks_goal
from .results import Snapshot
from .units import some

if TYPE_CHECKING:
    import pandas as pd

BestOf = Mapping[str, Any]
"""`of`: names of labels or runs, `by`: the metric that chooses one of them in each seed."""

_RANKS = {"COMPLETED": 2, **dict.fromkeys(LOST, 1)}  # of states in which a run has ended


def with_best(
    store: Snapshot, frames: Frames, best: Mapping[str, BestOf], kept: Collection[str | None] = ()
) -> Frames:
    """Replace labels by the best of them in each seed.

    In each seed, the new label stands for the best run. In a seed without one, it stands for a run that has
    not ended or was lost, without its scores.

    Args:
        best: Name of the new label → the labels to choose from, and the metric.
        kept: Names of labels or runs that remain, next to the new label.

    Raises:
        NotYet: No run has a value of the metric yet.
        RequestError: A run is unknown, the new name is taken, or the metric has no goal or is part of the
            score.
    """
    remaining = {label for name in kept if name for label in frames.names.meant(name)}
    order = {label: float(place) for place, label in enumerate(frames.labels)}
    chosen: dict[tuple[str, int], str] = {}
    without_scores: set[tuple[str, int]] = set()
    about: dict[str, str] = {}
    replaced: set[str] = set()
    for name, choice in best.items():
        by = choice["by"]
        if frames.names.meant(name):
            raise RequestError(f"best: {name!r} is a run of {frames.experiment!r}: choose another name")
        if by in frames.averaged:
            raise RequestError(f"best: {by} is part of the score, which is reported. {BOTH} as `score`")
        labels = frames.only(choice["of"]).labels
        stand_ins = _stand_ins(store, frames, labels, by)
        chosen |= {(name, seed): label for seed, (label, _) in stand_ins.items()}
        without_scores |= {(name, seed) for seed, (_, is_best) in stand_ins.items() if not is_best}
        picked = [frames.shown[label] * is_best for label, is_best in stand_ins.values()]
        counts = in_words(picked, len(picked))
        about[name] = (
            f"in each seed, the best of {len(labels)} runs by {by} ({counts}); its costs are those of the "
            "chosen runs, without the search"
        )
        replaced |= {*labels} - remaining
        order[name] = order[labels[0]] - 0.5
    frames = replace(frames, chosen=chosen, about=about)

    def changed(rows: pd.DataFrame) -> pd.DataFrame:
        rows = frames.with_chosen(rows)
        rows = rows[~rows["label"].isin(replaced)]
        order_of_rows = rows["label"].map(order).argsort(kind="stable")
        return rows.iloc[order_of_rows].reset_index(drop=True)

    runs, scores, costs = map(changed, (frames.runs, frames.scores, frames.costs))
    places = zip(scores["label"], scores["seed"], strict=True)
    scores = scores[[place not in without_scores for place in places]].reset_index(drop=True)
    configs = frames.with_chosen(frames.configs)
    configs.loc[configs["label"].isin(best), "point"] = "{}"
    colors = dict(frames.colors)
    for name in best:
        colors[name] = numbered(len(colors))
    return replace(frames, runs=runs, scores=scores, costs=costs, configs=configs, colors=colors)


def _stand_ins(store: Snapshot, frames: Frames, labels: list[str], by: str) -> dict[int, tuple[str, bool]]:
    """Choose a label for each seed that all labels have.

    Returns:
        Seed → label, and whether it is the best. If not, its run has not ended or was lost.
    """
    measures = Measures(frames, score_curves(frames), store.metrics(frames.experiment, [by]), frames.declared)
    if (metric := measures.metric(by)).goal is None:
        raise RequestError(f"best: {lacks_goal([by])}")
    places = zip(frames.runs["label"], frames.runs["seed"], strict=True)
    states = dict(zip(places, frames.runs["state"], strict=True))
    seeds = [seed for seed in sorted({*frames.runs["seed"]}) if all((one, seed) in states for one in labels)]
    values = measures.values([(by, label) for label in labels], seeds)
    if not values:
        raise NotYet(f"best: no completed run of {some(labels)} has a value of {by}")
    chosen: dict[int, tuple[str, bool]] = {}
    for seed in seeds:
        state = {label: states[label, seed] for label in labels}
        known = {
            label: values[by, label, seed]
            for label in labels
            if state[label] == "COMPLETED" and (by, label, seed) in values
        }
        is_open = not {*state.values()} <= _RANKS.keys()
        best = None if is_open else best_of(known, labels, metric.sign)
        chosen[seed] = best or min(labels, key=lambda label: _RANKS.get(state[label], 0)), best is not None
    return chosen
