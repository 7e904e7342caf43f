"""`Frames`: runs, scores, costs, and configs of one experiment as pandas frames, which `results` reads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .colors import LabelColor
from .costs import COUNTED, Scope
from .errors import NotYet, RequestError
from .metrics import Metric, Metrics, lacks_goal
from .names import Names, Shown, names_in
from .units import nearest, some

if TYPE_CHECKING:
    import pandas as pd

LOST = {"FAILED": "failed", "SKIPPED": "was skipped", "CANCELLED": "was stopped"}
"""State in which a run ended without a result → a verb for messages."""

DIVERGED = "diverged"
"""Describes a completed run with a recorded value that isn't finite."""

UNEVALUATED = "completed without an evaluation"

_RECALL = re.compile(r"(?<=/)(i2t|t2i)_r\d+$")
"""Recall at some rank in a retrieval direction, such as `coco/i2t_r5`."""


@dataclass(frozen=True)
class Frames:
    """The results of one experiment, read at one moment.

    Attributes:
        experiment: Name of the experiment.
        question: Question of the experiment; may be empty.
        runs: One row for each run: run, label, seed, position, fingerprint, state, reason, step, total_steps,
            needed (1 if other runs depend on it); in the order of the study.
        scores: One row for each run and evaluated step, in the order of the runs: fingerprint, label,
            seed, step, examples_seen, flops_total (learner, scoring and selection until then), seconds
            and chip_hours (of training until then), NaN where unknown, final (bool: the last step of a
            completed run), diverged (bool: a recorded score isn't finite), and a column for each name of
            `evaluated`, NaN where it was not recorded.
        costs: One row for each run with its costs, NaN if unknown: the columns of `v_costs`, such as label,
            seed, learner_flops, scoring_flops, selection_flops, total_flops (of these three), and
            reference_training_flops (of all runs that the run needs).
        configs: One row for each run, also for runs that are left out of `runs`: run, label, seed, point
            (values on the axes) and config, both JSON; see `configs`.
        spec: The study as it was last launched; empty if unknown.
        declared: Goals and units of the metrics, from `results.metrics_of`.
        colors: Label → its color, also for labels that are left out of `runs`.
        chosen: Label and seed → label of the run that it represents; only labels from `tuned.with_best`.
        about: Label → a clause about it for notes; only the same labels.
    """

    experiment: str
    question: str
    runs: pd.DataFrame
    scores: pd.DataFrame
    costs: pd.DataFrame
    configs: pd.DataFrame
    spec: Mapping[str, Any] = field(default_factory=dict)
    declared: Metrics = field(default_factory=Metrics)
    colors: Mapping[str, LabelColor] = field(default_factory=dict)
    chosen: Mapping[tuple[str, int], str] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def labels(self) -> list[str]:
        """Labels in the order of the study."""
        return [str(label) for label in self.runs["label"].unique()]

    @cached_property
    def names(self) -> Names:
        """Display names of the runs, from the spec."""
        return names_in(self.spec, self.configs)

    @property
    def shown(self) -> Shown:
        """Label → display name in tables and figures."""
        return self.names.shown

    @cached_property
    def reference_labels(self) -> list[str]:
        """Labels of runs that other runs of the study depend on; they aren't competitors."""
        return [str(label) for label in self.runs.loc[self.runs["needed"] > 0, "label"].unique()]

    def apart_from(self, baseline: str) -> list[str]:
        """List the references except the baseline, which competes even if it is a reference."""
        return [label for label in self.reference_labels if label != baseline]

    @cached_property
    def competitors(self) -> list[str]:
        """Labels except the references, in the order of the study."""
        references = set(self.reference_labels)
        return [label for label in self.labels if label not in references]

    @cached_property
    def evaluated(self) -> list[str]:
        """Names (dataset/metric) of all evaluations, in alphabetical order."""
        return sorted(name for name in self.scores.columns if "/" in name)

    @cached_property
    def fates(self) -> dict[str, list[str]]:
        """Label → one text for each run: how it was lost if it ended without a finite score, else empty.

        Leaving out lost seeds silently would favor labels that lost runs.
        """
        import numpy as np

        finals = self.scores[self.scores["final"]]
        diverged = finals["diverged"] & ~np.isfinite(finals[self.averaged].to_numpy()).all(axis=1)
        ends = dict(zip(zip(finals["label"], finals["seed"], strict=True), diverged, strict=True))
        fates: dict[str, list[str]] = {}
        for label, seed, state in self.runs[["label", "seed", "state"]].itertuples(index=False):
            completed = DIVERGED * ends[label, seed] if (label, seed) in ends else UNEVALUATED
            fates.setdefault(str(label), []).append({**LOST, "COMPLETED": completed}.get(state, ""))
        return fates

    @cached_property
    def lost(self) -> dict[str, str]:
        """Label → how many of its runs were lost and how; only labels that lost some."""
        texts = {label: in_words(fates, len(fates)) for label, fates in self.fates.items()}
        return {label: text for label, text in texts.items() if text}

    @cached_property
    def metrics(self) -> list[str]:
        """Names (dataset/metric) of the headline evaluations, which tables show.

        Metrics that the spec declares come first, in the spec's order. Then come the metrics of the spec's
        `score`, or all others without a `score`, in alphabetical order. Without a `score`, recall at higher
        ranks (`coco/i2t_r5`) is left out if recall at 1 was evaluated: it would count one ability twice.
        """
        declared = self.declared.in_order(self.evaluated)
        scored = set(self.spec.get("score") or ()).intersection(self.evaluated)
        names = scored or set(self.evaluated)
        others = names if scored else {n for n in names if _RECALL.sub(r"\1_r1", n) not in names - {n}}
        return [*declared, *sorted(others.difference(declared))]

    @cached_property
    def score(self) -> Metric:
        """Goal and unit of the score, the mean of the metrics that the spec names, or of all with a goal.

        Raises:
            NotYet: The score is undefined. The message has the reason and the remedy.
        """
        scored = self.spec.get("score") or ()
        if absent := [name for name in scored if name not in self.evaluated]:
            raise NotYet(
                f"no score: no run of {self.experiment!r} has recorded {some(absent)}, which its `score` "
                f"names: {nearest(absent[0], self.evaluated)}"
            )
        try:
            metric = self.declared.mean(self._score_metrics)
        except RequestError as error:
            raise NotYet(f"no score: {error}") from None
        if metric.goal is None and len(self._score_metrics) > 1 and not scored:
            raise NotYet(f"no score: {lacks_goal(self._score_metrics)}")
        return metric

    @cached_property
    def _score_metrics(self) -> list[str]:
        ranked = [name for name in self.metrics if self.declared.of(name).goal is not None]
        return sorted(self.spec.get("score") or ()) or ranked or self.metrics

    @cached_property
    def no_score(self) -> str:
        """The reason why the score is undefined; empty if it is defined."""
        try:
            self.score  # noqa: B018
        except NotYet as error:
            return str(error)
        return ""

    @property
    def averaged(self) -> list[str]:
        """The metrics whose mean is the score; empty if the score is undefined."""
        return [] if self.no_score else self._score_metrics

    @property
    def ranked(self) -> Metric:
        """Goal and unit of the score, for uses that need a goal.

        Raises:
            NotYet: The score is undefined, or has no goal.
        """
        if self.score.goal is None:
            raise NotYet(lacks_goal(self.averaged))
        return self.score

    def scored_by(self, names: Sequence[str]) -> Frames:
        """Return the same results with the mean of the named evaluations as the score.

        Raises:
            NotYet: An evaluation is unknown, or the mean is undefined.
        """
        other = replace(self, spec={**self.spec, "score": list(names)})
        other.score  # noqa: B018 — raises if undefined
        return other

    def counted(self, scope: Scope) -> str:
        """Describe which FLOPs a scope counts; scoring is mentioned only if a run scores."""
        planned = self.costs[["scoring_flops", "selection_flops", "reference_scoring_flops"]]
        shares = self.costs["reference_training_share_flops"]
        is_training = scope in ("scoring", "reference_scoring") and not (planned > 0).any(axis=None)
        words = "training" if is_training else COUNTED[scope]
        if scope == "reference_training" and shares.isna().any():
            words += "; without needed runs of unknown FLOPs"
        return words

    def label_of(self, name: str) -> str:
        """Find a label by name, by the name of a run with one label, or by a display name.

        Raises:
            RequestError: The name is unknown, or the run has several labels.
        """
        meant = self._meant(name, self.labels)
        if len(meant) > 1:
            raise RequestError(
                f"run {name!r} of {self.experiment!r} has several points: name one of {some(meant)}"
            )
        return meant[0]

    def _meant(self, name: str, labels: Sequence[str]) -> list[str]:
        """Return those of the labels that a name refers to; RequestError without any."""
        if meant := [label for label in self.names.meant(name) if label in labels]:
            return meant
        known = nearest(name, self.names.known)
        raise RequestError(f"experiment {self.experiment!r} has no run {name!r}: {known}")

    def baseline(self, name: str | None = None) -> str:
        """Find the label to compare with.

        Args:
            name: Label or run; None for the baseline that the study's reports name, if it has results, else
                the first competitor.
        """
        if name is not None:
            return self.label_of(name)
        named = (report.get("baseline") for report in self.spec.get("reports") or ())
        with suppress(RequestError):
            return self.label_of(next(filter(None, named), ""))
        return (self.competitors or self.labels)[0]

    def only(self, names: Sequence[str]) -> Frames:
        """Keep the results of some labels only.

        Args:
            names: Labels, runs (for all their labels), or display names. Labels without an evaluation are
                left out.

        Raises:
            RequestError: A name is unknown, or nothing is left.
        """
        kept = [label for name in names for label in self._meant(name, self.names.known)]
        runs, scores, costs = (
            rows[rows["label"].isin(kept)].reset_index(drop=True)
            for rows in (self.runs, self.scores, self.costs)
        )
        if scores.empty:
            raise NotYet(f"none of {', '.join(names)} has been evaluated yet")
        return replace(self, runs=runs, scores=scores, costs=costs)

    def with_chosen(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Append the rows of `chosen` runs, under the labels that represent these runs.

        Args:
            rows: Rows of runs, with columns label, seed, and optionally run.
        """
        import pandas as pd

        if not self.chosen:
            return rows
        places = [(name, seed, label) for (name, seed), label in self.chosen.items()]
        copies = pd.DataFrame(places, columns=["_of", "seed", "label"]).merge(rows, on=["label", "seed"])
        own = {column: copies["_of"] for column in ("label", "run") if column in rows}
        return pd.concat([rows, copies.assign(**own)[rows.columns]], ignore_index=True)

    def progress(self) -> str:
        """Count the runs by state: "3 RUNNING, 9 PENDING"."""
        states = self.runs.drop_duplicates("fingerprint")["state"]  # a run may have several labels
        return ", ".join(f"{count} {state}" for state, count in states.value_counts().items())


def in_words(fates: Iterable[str], seeds: int) -> str:
    """Describe how many seeds were lost and how: "diverged in 2 of 5, failed in 1 of 5 seeds".

    Args:
        fates: One for each seed: a verb as in `LOST`, or empty if the seed has a value.
        seeds: Total number of seeds.
    """
    counts = Counter(filter(None, fates))
    text = ", ".join(f"{fate} in {count} of {seeds}" for fate, count in counts.items())
    return f"{text} seed{'s' * (seeds != 1)}" if text else ""
