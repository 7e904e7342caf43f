"""Adopt runs of other tools: choose their labels, seeds, and scores, and add them to a study."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from jestlab.analysis.configs import flat, lookup
from jestlab.analysis.names import value_text
from jestlab.platform.errors import UserError, nearest, shown
from jestlab.platform.exchange import adopt_store
from jestlab.platform.exchange.adopt_store import Change, Placed
from jestlab.platform.exchange.source_run import (
    Report,
    Score,
    SourceRun,
    number,
    read_or_report,
    whole_number,
)
from jestlab.platform.planning.identity import origin_fingerprint
from jestlab.platform.store.engine import RECORDING, one_at_a_time
from jestlab.platform.store.records import ADOPTED_FROM
from jestlab.platform.words import few, on_one_line

if TYPE_CHECKING:
    from jestlab.analysis.metrics import Goal
    from jestlab.platform.store.store import Store

_FIELD = re.compile(r"\{([^{}]*)\}")
_DIGEST_END = re.compile(r".* #[0-9a-f]{12}", re.DOTALL)
_PER_STEP = re.compile(r"\s*step\s*\*\s*(\S+)\s*")
_MOST_LABEL_LETTERS = 120
_MOST_METRIC_LETTERS = 500  # a limit of PostgreSQL's indexes
_EXPORTED = "jestlab."
"""Prefix of the tags that `jestlab export` writes about the run that it exported."""

AtStep = Callable[[int], float | None]


@dataclass(frozen=True)
class Rules:
    """How runs become runs of a study.

    Attributes:
        label: Template with `{name}`, `{group}`, and keys of the config and of tags. Runs with the same label
            are replicates.
        seed: Key of the config, or of a tag, with the seed. Runs without a seed are numbered.
        scores: Pairs of a score name DATASET/METRIC and a metric, or of "" and a pattern of metric names.
        examples: Metric with the examples seen, or `step*FACTOR`; None if unknown.
        flops: Likewise for the FLOPs of training.
        seconds: Likewise for the seconds of training; None for the wall time of the run, at its last step.
    """

    label: str = "{name}"
    seed: str = "seed"
    scores: Sequence[tuple[str, str]] = ()
    examples: str | None = None
    flops: str | None = None
    seconds: str | None = None


def parse_score(text: str) -> tuple[str, str]:
    """Parse `coco/i2t_r1=eval/recall`, `eval/top1`, or a pattern such as `eval/*`.

    Raises:
        UserError: The name of the score has no dataset.
    """
    name, equals, metric = text.partition("=")
    if not equals:
        return "", text
    if "/" not in name.strip("/") or not metric:
        raise UserError(f"{shown(text)}: expected DATASET/METRIC=NAME, such as coco/i2t_r1=eval/recall")
    return name, metric


@dataclass
class Adoption:
    """Adopts runs into a study, one per transaction. No two runs get the same label and seed.

    Attributes:
        store: The store; None in a dry run if it doesn't exist.
        study: Name of the study. If it doesn't exist, it is created with only adopted runs.
        kind: Kind of the source, which is part of the labels.
        path: Where the runs are read.
        rules: How runs become runs of the study.
        author: Author of their tags and notes.
        moved: Whether runs may replace runs of the same origin that were read at another path.
        goal: Whether larger or smaller scores are better, for a study that has only adopted runs.
        dry_run: Whether to write nothing.

    Raises:
        UserError: The study is a union of other studies.
    """

    store: Store | None
    study: str
    kind: str
    path: str
    rules: Rules
    author: str = ""
    moved: bool = False
    goal: Goal | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        self._scores = adopt_store.score_names(self.store, self.study) if self.store is not None else set()
        self._origins = set[str]()
        self._seeds: dict[tuple[str, int], str] = {}

    def adopt_all(self, runs: Iterable[SourceRun], report: Report) -> Iterator[tuple[Placed, Change | None]]:
        """Yield each adopted run and what changed in the store; report errors of the others."""
        for run in runs:
            adopted = read_or_report(report, run.name, partial(self.adopt, run))
            if adopted is not None:
                yield adopted

    def adopt(self, run: SourceRun) -> tuple[Placed, Change | None]:
        """Adopt a run; return it with what changed in the store, None in a dry run.

        Raises:
            UserError: A rule can't be applied to the run, or the study has another run with this name.
        """
        if self.store is None:
            placed, change = self._place(run, None), None
        elif self.dry_run:
            with self.store.reading() as connection:
                placed, change = self._place(run, connection), None
        else:
            with self.store.writing() as connection:
                one_at_a_time(connection, RECORDING)
                placed = self._place(run, connection)
                change = adopt_store.write(connection, self.study, placed, self.author, self.moved, self.goal)
        self._origins.add(placed.run.origin)
        self._seeds[placed.label, placed.seed] = placed.fingerprint
        return placed, change

    def _place(self, source: SourceRun, connection: Connection | None) -> Placed:
        run = _storable_run(source)
        if run.origin in self._origins:
            raise UserError(
                f"{run.name}: another copy of this run was just adopted: give the path of one copy"
            )
        if not run.metrics and run.left_out:
            raise UserError(f"{run.name}: it has only {few([*run.left_out])}: nothing to adopt")
        name = self._name(source)
        label, fingerprint = f"{name} ({self.kind})", origin_fingerprint(run.origin)
        taken = {
            seed for (text, seed), other in self._seeds.items() if text == label and other != fingerprint
        }
        asked: list[int] = []
        if connection is not None:
            before, others = adopt_store.seeds(connection, self.study, fingerprint, name, label)
            taken |= others
            asked = [before] if before is not None else []
        left_out = Counter(run.left_out)
        own = self._own_seed(source, left_out)
        if own is not None:
            asked.insert(0, own)
            left_out["seeds that another run of the label has: numbered instead"] += own in taken
        free = (seed for seed in (*asked, *range(len(taken) + 1)) if seed not in taken)
        scores = list(self._scores_of(run))
        run, path = replace(run, left_out=+left_out), _storable(self.path)
        return Placed(run, fingerprint, path, name, label, next(free), scores)

    def _name(self, run: SourceRun) -> str:
        values = {**_tags(run), "name": run.name, "group": run.group or run.name}

        def text(field: re.Match[str]) -> str:
            key = field[1]
            value = values.get(key, run.config.get(key, lookup(run.config, key)))
            if value is None:
                known = [*values, *flat(run.config)]
                raise UserError(f"{run.name}: no {key!r} for its label: {nearest(key, known)}")
            return value_text(value)

        written = _FIELD.sub(text, self.rules.label)
        name = on_one_line(written)
        if not name:
            raise UserError(f"{run.origin}: its label is empty: choose one with --label")
        return _distinct(written, name, _MOST_LABEL_LETTERS)

    def _own_seed(self, run: SourceRun, left_out: Counter[str]) -> int | None:
        value = run.config.get(self.rules.seed, lookup(run.config, self.rules.seed))
        value = _tags(run).get(self.rules.seed) if value is None else value
        if value is None:
            return None
        if not isinstance(value, bool):
            with suppress(ValueError, TypeError, OverflowError):
                seed = whole_number(value)
                if 0 <= seed < 2**32:
                    return seed
        left_out["seeds other than whole numbers from 0 to 4294967295: numbered instead"] += 1
        return None

    # ---- scores

    def _scores_of(self, run: SourceRun) -> Iterator[Score]:
        rules = self.rules
        examples, flops, seconds = (
            _spent(run, text) for text in (rules.examples, rules.flops, rules.seconds)
        )
        if rules.seconds is None and run.seconds is not None:
            seconds = {run.last_step: run.seconds}.get
        for name, metric in self._chosen(run).items():
            dataset, _, measure = name.rpartition("/")
            for step, value in zip(*(column.tolist() for column in run.metrics[metric]), strict=True):
                seen = examples(step)
                whole = int(seen) if seen is not None and 0 <= seen < 2**63 else None
                yield Score(dataset, measure, step, value, whole, flops(step), seconds(step))

    def _chosen(self, run: SourceRun) -> dict[str, str]:
        """Return score name → metric."""
        if not self.rules.scores:
            return {metric: metric for metric in run.metrics if metric in self._scores}
        chosen: dict[str, str] = {}
        for name, pattern in self.rules.scores:
            if name:
                chosen |= {name: pattern} if pattern in run.metrics else {}
                continue
            for metric in run.metrics:
                score = _score_name(metric, pattern) if fnmatchcase(metric, pattern) else None
                if score and (other := chosen.setdefault(score, metric)) != metric:
                    raise UserError(f"{other} and {metric} have the same name: --score {score}=METRIC")
        return chosen


def _score_name(metric: str, pattern: str) -> str | None:
    """Return DATASET/METRIC, split at the last slash or dot; None if a pattern matches other metrics."""
    dataset, _, measure = metric.rpartition("/" if "/" in metric.strip("/") else ".")
    if dataset and measure:
        return f"{dataset}/{measure}"
    if metric == pattern:
        raise UserError(f"{metric} has no dataset prefix: map it with --score DATASET/METRIC={metric}")
    return None


def _spent(run: SourceRun, text: str | None) -> AtStep:
    """Return the examples, FLOPs, or seconds by step, from a metric's name or `step*FACTOR`.

    Raises:
        UserError: The run has no such metric, or no such number in its config.
    """
    if text is None:
        return lambda step: None
    if matched := _PER_STEP.fullmatch(text):
        key = matched[1]
        try:
            factor: float | None = float(key)
        except ValueError:
            value = run.config.get(key, lookup(run.config, key))
            factor = None if isinstance(value, bool | str) else number(value)
        if factor is None or not math.isfinite(factor):
            raise UserError(
                f"{run.name}: {text}: its config has no number {key!r}: write one, such as step*256"
            )
        return lambda step: step * factor
    if text not in run.metrics:
        known = nearest(text, run.metrics)
        raise UserError(f"{run.name}: no metric {text!r}: {known}; or step*NUMBER, or step*KEY of the config")
    steps, values = run.metrics[text]

    def at(step: int) -> float | None:
        index = int(steps.searchsorted(step, side="right")) - 1
        value = float(values[index]) if index >= 0 else math.nan
        return value if math.isfinite(value) else None

    return at


# ---- limits of stores


def _tags(run: SourceRun) -> dict[str, str]:
    """Return the tags that have a value, `team=vision`."""
    return {key: value for key, equals, value in (tag.partition("=") for tag in run.tags) if equals}


def _storable_run(run: SourceRun) -> SourceRun:
    """Return a run without negative steps, and with text that every database can hold."""
    left_out = Counter(run.left_out)
    metrics = {}
    for name, (steps, values) in run.metrics.items():
        first = int(steps.searchsorted(0)) if name else len(steps)
        left_out["points at negative steps" if name else "points of a metric without a name"] += first
        if len(steps) > first:
            metrics[_distinct(name, _storable(name), _MOST_METRIC_LETTERS)] = steps[first:], values[first:]
    origin = _distinct(run.origin, _storable(run.origin))
    # NaN and infinities become text, which JSON has.
    text = json.dumps({**run.config, ADOPTED_FROM: origin}, ensure_ascii=False, default=str)
    return replace(
        run,
        origin=origin,
        config=json.loads(_storable(text), parse_constant=str),
        metrics=metrics,
        tags=tuple(_storable(tag) for tag in run.tags if not tag.startswith(_EXPORTED)),
        notes=_storable(run.notes).strip(),
        host=_storable(run.host or "") or None,
        device=_storable(run.device or "") or None,
        git_commit=_storable(run.git_commit or "") or None,
        left_out=+left_out,
    )


def _storable(text: str) -> str:
    return text.replace("\0", "").encode(errors="replace").decode()


def _distinct(written: str, cleaned: str, most: int = sys.maxsize) -> str:
    """Shorten a text, and add a digest if it changed, so that different texts stay different."""
    if len(cleaned) > most:
        cleaned = f"{cleaned[: most // 2 - 1]}…{cleaned[-most // 2 :]}"
    if cleaned == written and not _DIGEST_END.fullmatch(written):
        return written
    return f"{cleaned} #{hashlib.sha256(written.encode(errors='surrogatepass')).hexdigest()[:12]}"
