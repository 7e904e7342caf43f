"""Where a run of another tool stands among those of a study: its label, its seed, and what is a score."""

from __future__ import annotations

import hashlib
import math
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from jestlab.analysis.configs import flat, lookup
from jestlab.analysis.names import value_text
from jestlab.platform.errors import UserError, nearest, shown
from jestlab.platform.exchange.adopt import AdoptedRun, Known, Score
from jestlab.platform.exchange.efforts import Effort, number_of
from jestlab.platform.exchange.source_run import Curve, FoundRun, State, whole
from jestlab.platform.planning.identity import of_origin
from jestlab.platform.store.records import ADOPTED_FROM, RunState
from jestlab.platform.words import few, printable

_FIELD = re.compile(r"\{([^{}]*)\}")
_LONGEST_LABEL = 120
_LONGEST_METRIC = 500  # PostgreSQL cannot find longer names by an index
_EXPORTED = "jestlab."
"""Tags of such names say what a run was before `jestlab export`; it is another one now."""

_STATES: Mapping[State, tuple[RunState, str | None]] = {
    "COMPLETED": (RunState.COMPLETED, None),
    "FAILED": (RunState.FAILED, "its tool recorded that it failed"),
    "CANCELLED": (RunState.CANCELLED, "its tool recorded that it was stopped"),
    "RUNNING": (RunState.CANCELLED, "had not ended when it was adopted: it was killed, or went on"),
}
"""How a run ended → its state in the store, and why it did not complete."""


@dataclass(frozen=True)
class Rules:
    """How runs are placed.

    Attributes:
        label: With `{name}`, `{group}`, or a key of the config or of a tag in braces, for what differs among
            runs. Runs of one label are replicates of each other.
        seed: Key of the config, or of a tag, that holds the seed; runs without one are numbered.
        scores: Each a name `dataset/metric` and the metric of the run that it is, or a pattern of metrics
            which are scores by their own names.
        examples: Where the examples seen by a step are found; None: unknown.
        flops: Likewise the FLOPs of training.
        seconds: Likewise the seconds of training; None: those of the whole run, at its last step.
    """

    label: str = "{name}"
    seed: str = "seed"
    scores: Sequence[tuple[str, str]] = ()
    examples: Effort | None = None
    flops: Effort | None = None
    seconds: Effort | None = None


def parse_score(written: str) -> tuple[str, str]:
    """Parse `coco/i2t_r1=eval/recall`, `eval/top1` or a pattern, `eval/*`.

    Raises:
        UserError: The name of an evaluation has no slash.
    """
    name, equals, metric = written.partition("=")
    if not equals:
        return "", written
    if "/" not in name.strip("/") or not metric:
        raise UserError(f"{shown(written)}: expected DATASET/METRIC=NAME, such as coco/i2t_r1=eval/recall")
    return name, metric


class Placing:
    """Places one run after another; no two runs get the same label and seed."""

    def __init__(self, kind: str, rules: Rules, known: Known, path: str) -> None:
        """Create it.

        Args:
            kind: Of the source, which marks the labels.
            rules: How runs are placed.
            known: What the store holds already.
            path: Where the runs are read from.
        """
        self._kind = kind
        self._rules = rules
        self._known = known
        self._path = _storable(path)
        self._taken = dict(known.places)

    def place(self, run: FoundRun) -> AdoptedRun:
        """Return a run as it goes into the store.

        Raises:
            UserError: It lacks what a rule names, or another run has its name.
        """
        config = _plain(run.config, run.name)
        origin = _distinct(run.origin, _storable(run.origin))
        fingerprint = of_origin(origin)
        name = self._label(run)
        label = f"{name} ({self._kind})"
        if name in self._known.own or label in self._known.own:
            raise UserError(
                f"{run.name}: the study has a run {name!r} of its own: give another, --label 'old {{name}}'"
            )
        left_out = Counter(run.left_out)
        metrics = dict(_as_stored(run.metrics, left_out))
        if not metrics and +left_out:
            raise UserError(f"{run.name}: it has only {few([*+left_out])}: nothing to adopt")
        seed = self._seed(run, label, fingerprint, left_out)
        steps = [int(curve.steps[-1]) for curve in metrics.values()]
        state, reason = _STATES[run.state]
        return AdoptedRun(
            fingerprint=fingerprint,
            origin=origin,
            path=self._path,
            name=name,
            label=label,
            seed=seed,
            config={**config, ADOPTED_FROM: origin},
            state=state,
            reason=reason,
            metrics={key: (curve.steps, curve.values) for key, curve in metrics.items()},
            scores=list(self._scores(replace(run, metrics=metrics), max(steps, default=0))),
            began=run.began,
            ended=run.ended,
            host=_storable(run.host or "") or None,
            device=_storable(run.device or "") or None,
            commit=_storable(run.git_commit or "") or None,
            tags=tuple(_storable(tag) for tag in run.tags if not tag.startswith(_EXPORTED)),
            note=_storable(run.notes).strip(),
            left_out=+left_out,
        )

    def learn(self, places: Mapping[tuple[str, int], str]) -> None:
        """Take in the labels and seeds that other runs have by now → fingerprints."""
        self._taken |= places

    def _label(self, run: FoundRun) -> str:
        values = {**_tags(run), "name": run.name, "group": run.group or run.name}

        def text(found: re.Match[str]) -> str:
            key = found[1]
            value = values.get(key, run.config.get(key, lookup(run.config, key)))
            if value is None:
                known = [*values, *flat(run.config)]
                raise UserError(f"{run.name}: it has no {key!r} for its label: {nearest(key, known)}")
            return value_text(value)

        written = _FIELD.sub(text, self._rules.label)
        label = " ".join(printable(written).split())
        if not label:
            raise UserError(f"{run.origin}: its label is empty: give one with --label")
        return _distinct(written, label, _LONGEST_LABEL)

    def _seed(self, run: FoundRun, label: str, fingerprint: str, left_out: Counter[str]) -> int:
        """Return the seed of a run: its own, else that which it has in the store, else the first free."""
        asked = [self._known.seeds.get(fingerprint)]
        key, own = self._rules.seed, number_of(run.config, self._rules.seed)
        if own is None:
            with suppress(ValueError):
                own = whole(_tags(run).get(key))
        if own is not None and 0 <= own < 2**32 and own == int(own):
            asked.insert(0, int(own))
            if self._taken.get((label, int(own)), fingerprint) != fingerprint:
                left_out["seeds that another run of the label has: numbered instead"] += 1
        elif key in _tags(run) or run.config.get(key, lookup(run.config, key)) is not None:
            left_out["seeds other than whole numbers from 0 to 4294967295: numbered instead"] += 1
        for seed in asked:
            if seed is not None and self._taken.setdefault((label, seed), fingerprint) == fingerprint:
                return seed
        seed = 0
        while self._taken.setdefault((label, seed), fingerprint) != fingerprint:
            seed += 1
        return seed

    def _scores(self, run: FoundRun, last: int) -> Iterator[Score]:
        rules = self._rules
        examples, flops, seconds = (
            (lambda step: None) if effort is None else effort.of(run)
            for effort in (rules.examples, rules.flops, rules.seconds)
        )
        if rules.seconds is None and run.seconds is not None:
            seconds = {last: run.seconds}.get
        for name, metric in self._chosen(run.metrics).items():
            dataset, _, measure = name.rpartition("/")
            curve = run.metrics[metric]
            for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
                seen = examples(step)
                yield Score(
                    dataset,
                    measure,
                    step,
                    value,
                    int(seen) if seen is not None and 0 <= seen < 2**63 else None,
                    flops(step),
                    seconds(step),
                )

    def _chosen(self, metrics: Collection[str]) -> dict[str, str]:
        """Return the names of evaluations with the metrics that they are."""
        if not self._rules.scores:
            return {metric: metric for metric in metrics if metric in self._known.evaluations}
        chosen: dict[str, str] = {}
        for name, pattern in self._rules.scores:
            if name:
                chosen |= {name: pattern} if pattern in metrics else {}
                continue
            for metric in metrics:
                evaluation = _as_evaluation(metric, pattern) if fnmatchcase(metric, pattern) else None
                if evaluation and (other := chosen.setdefault(evaluation, metric)) != metric:
                    raise UserError(f"{other} and {metric} have one name: --score {evaluation}=METRIC")
        return chosen


def _as_evaluation(metric: str, pattern: str) -> str | None:
    """Return the name of a metric as an evaluation: what precedes the last slash, or dot, is the dataset.

    Returns:
        The name; None if it has neither, and a pattern meets it by chance.

    Raises:
        UserError: It has neither, and is what the user asked for.
    """
    separator = "/" if "/" in metric.strip("/") else "."
    dataset, found, measure = metric.rpartition(separator)
    if found and dataset and measure:
        return f"{dataset}/{measure}"
    if metric == pattern:
        raise UserError(f"{metric} names no dataset: --score DATASET/METRIC={metric}")
    return None


def _tags(run: FoundRun) -> dict[str, str]:
    """Return the values of those tags that have one, `team=vision`."""
    return {key: value for key, equals, value in (tag.partition("=") for tag in run.tags) if equals}


def _as_stored(metrics: Mapping[str, Curve], left_out: Counter[str]) -> Iterator[tuple[str, Curve]]:
    """Yield the metrics that a store can hold: it has no steps below 0, and no zero bytes in names."""
    for name, curve in metrics.items():
        first = int(curve.steps.searchsorted(0)) if name else len(curve.steps)
        left_out["points at negative steps" if name else "points of a metric without a name"] += first
        if len(curve.steps) > first:
            text = _distinct(name, _storable(name), _LONGEST_METRIC)
            yield text, Curve(curve.steps[first:], curve.values[first:])


def _storable(text: str) -> str:
    return text.replace("\0", "").encode(errors="replace").decode()


def _distinct(written: str, cleaned: str, longest: int = sys.maxsize) -> str:
    """Shorten a text, and mark it with a digest if it has changed, so that no two texts become the same."""
    if len(cleaned) > longest:
        cleaned = f"{cleaned[: longest // 2 - 1]}…{cleaned[-longest // 2 :]}"
    if cleaned == written and not _MARKED.fullmatch(written):
        return written
    return f"{cleaned} #{hashlib.sha256(written.encode(errors='surrogatepass')).hexdigest()[:12]}"


_MARKED = re.compile(r".* #[0-9a-f]{12}", re.DOTALL)


_DEEPEST = 100


def _plain(value: Any, run: str, depth: int = 0) -> Any:
    """Return a value of a config as JSON has it: NaN and infinities are texts, and no text has zero bytes.

    Raises:
        UserError: It nests too deeply for those who read it later.
    """
    if depth > _DEEPEST:
        raise UserError(f"{run}: its config nests deeper than {_DEEPEST} levels")
    if isinstance(value, str):
        return _storable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {
            _distinct(str(key), _storable(str(key))): _plain(one, run, depth + 1)
            for key, one in value.items()
        }
    return [_plain(one, run, depth + 1) for one in value] if isinstance(value, list | tuple) else value
