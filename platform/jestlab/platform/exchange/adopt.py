"""Adopt runs of other tools: choose their labels, seeds, and scores, and add them to a study."""

import importlib
import json
import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain, count
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from jestlab.analysis.configs import flat
from jestlab.analysis.names import value_text
from jestlab.platform.errors import UserError, nearest, shown
from jestlab.platform.exchange import adopt_store
from jestlab.platform.exchange.adopt_store import Change, Placed
from jestlab.platform.exchange.source_run import (
    AdoptOptions,
    Report,
    Score,
    SourceRun,
    report_errors,
    whole_number,
)
from jestlab.platform.planning.identity import origin_fingerprint
from jestlab.platform.store.engine import RECORDING, one_at_a_time
from jestlab.platform.store.records import ADOPTED_FROM
from jestlab.platform.store.store import Store
from jestlab.platform.words import few, on_one_line

KINDS = {
    "wandb": "read_wandb",
    "mlflow": "read_mlflow",
    "tensorboard": "read_tensorboard",
    "csv": "read_tables",
    "parquet": "read_tables",
}
"""Kind of source → module that reads it."""

_FIELD = re.compile(r"\{([^{}]*)\}")
_PER_STEP = re.compile(r"\s*step\s*\*\s*(\S+)\s*")
_MOST_NAME_LETTERS = 500  # a limit of PostgreSQL's indexes
_EXPORT_TAG_PREFIX = "jestlab."
"""Prefix of the tags that `jestlab export` adds to a run. They aren't adopted."""

_INVALID_NAMES = f"points of metrics whose names are empty, longer than {_MOST_NAME_LETTERS}, or invalid text"
_INVALID_SEEDS = (
    "seeds other than whole numbers from 0 to 4294967295, and seeds that another run of the label has: "
    "replaced by free ones"
)

AtStep = Callable[[int], float | None]
"""Step → examples, FLOPs, or seconds until this step; None if unknown."""


def read(kind: str, path: Path, report: Report, options: AdoptOptions) -> Iterator[SourceRun]:
    """Yield the runs of a source whose names match `options.only`. `kind` is a key of `KINDS`.

    Raises:
        UserError: The path isn't a source of this kind, or an option doesn't apply to this kind.
    """
    own = _OPTIONS.get(KINDS[kind], frozenset())
    if wrong := (_OPTIONS["read_tables"] & options.model_fields_set) - own:
        raise UserError(f"--{min(wrong)}: not an option of {kind}")
    module = importlib.import_module(f"jestlab.platform.exchange.{KINDS[kind]}")
    for run in module.read(path, report, options) if own else module.read(path, report):
        if not options.only or any(fnmatchcase(run.name, pattern) for pattern in options.only):
            yield run


_OPTIONS = {
    "read_tables": frozenset({"run", "config", "step", "source"}),
    "read_tensorboard": frozenset({"source"}),
}
"""Readers whose origins start with the name of the file or folder → the options that only readers have."""


@dataclass
class Adoption:
    """Adopts runs into a study, one per transaction. No two runs get the same label and seed.

    Attributes:
        store: The store.
        study: Name of the study. If it doesn't exist, it is created with only adopted runs.
        kind: Kind of the source, which is part of the labels.
        path: The file or folder that contains the runs.
        author: Author of the tags and notes that are added to runs.

    Raises:
        UserError: The study is a union of other studies, or the name of a score is invalid.
    """

    store: Store
    study: str
    kind: str
    path: str
    options: AdoptOptions
    author: str = ""

    def __post_init__(self) -> None:
        for text in self.options.score:
            name, equals, metric = text.partition("=")
            if equals and ("/" not in name.strip("/") or not metric):
                raise UserError(f"{shown(text)}: expected DATASET/METRIC=NAME, such as coco/i2t_r1=eval/r1")
        self._known_scores = adopt_store.score_names(self.store, self.study)
        self._origins = set[str]()  # of the runs adopted so far
        self._seeds = defaultdict[str, set[int]](set)  # label → seeds of the runs adopted so far

    def adopt_all(self, runs: Iterable[SourceRun], report: Report) -> Iterator[tuple[Placed, Change | None]]:
        """Yield each adopted run with its change in the store; report the errors of the other runs."""
        for run in runs:
            with report_errors(report, run.name):
                yield self.adopt(run)

    def adopt(self, run: SourceRun) -> tuple[Placed, Change | None]:
        """Adopt a run. Return it with its change in the store, which is None in a dry run.

        Raises:
            UserError: An option can't be applied to the run, or the study has another run with this name.
        """
        if self.options.dry_run:
            with self.store.reading() as connection:
                placed, change = self._place(connection, run), None
        else:
            with self.store.writing() as connection:
                one_at_a_time(connection, RECORDING)
                placed = self._place(connection, run)
                may_move = KINDS[self.kind] not in _OPTIONS or self.options.source is not None
                change = adopt_store.write(
                    connection, self.study, placed, self.author, self.options.goal, may_move
                )
        self._origins.add(placed.run.origin)
        self._seeds[placed.label].add(placed.seed)
        return placed, change

    def _place(self, connection: Connection, source: SourceRun) -> Placed:
        """Choose the label, seed, and scores of a run."""
        run = _storable_run(source)
        if run.origin in self._origins:
            raise UserError(
                f"{run.name}: another copy of this run was just adopted: give the path of one copy"
            )
        if not run.metrics and run.left_out:
            raise UserError(f"{run.name}: it has only {few([*run.left_out])}: nothing to adopt")
        values = _values(source)
        name, fingerprint = self._name(source, values), origin_fingerprint(run.origin)
        label = f"{name} ({self.kind})"
        stored_seed, others = adopt_store.seeds(connection, self.study, fingerprint, name, label)
        given, own_seed = values.get(self.options.seed), -1
        with suppress(ValueError):
            own_seed = whole_number(given)
        wanted = [own_seed, stored_seed] if 0 <= own_seed < 2**32 else [stored_seed]
        taken = others | self._seeds[label]
        seed = next(seed for seed in chain(wanted, count()) if seed is not None and seed not in taken)
        if given is not None and seed != own_seed:
            run = replace(run, left_out={**run.left_out, _INVALID_SEEDS: 1})
        scores = [*self._scores(run)]
        return Placed(run, fingerprint, _storable(self.path), name, label, seed, scores)

    def _name(self, run: SourceRun, values: dict[str, Any]) -> str:
        """Fill in `options.label`, and check that the result can be a label."""
        known = values | {"name": run.name, "group": run.group or run.name}

        def text(field: re.Match[str]) -> str:
            if field[1] not in known:
                raise UserError(f"{run.name}: no {field[1]!r} for its label: {nearest(field[1], known)}")
            return value_text(known[field[1]])

        name = on_one_line(_FIELD.sub(text, self.options.label))
        if not name or len(name) > _MOST_NAME_LETTERS:
            problem = f"longer than {_MOST_NAME_LETTERS} characters" if name else "empty"
            raise UserError(f"{run.origin}: its label is {problem}: choose one with --label")
        return name

    # ---- scores

    def _scores(self, run: SourceRun) -> Iterator[Score]:
        """Yield the scores of a run, with the costs that the options define."""
        options = self.options
        examples, flops, seconds = (
            _cost_by_step(run, text) for text in (options.examples, options.flops, options.seconds)
        )
        if options.seconds is None and run.seconds is not None:
            seconds = {run.last_step: run.seconds}.get
        for name, metric in self._score_metrics(run.metrics).items():
            dataset, _, measure = name.rpartition("/")
            for step, value in run.metrics[metric].items():
                seen = examples(step)
                whole = int(seen) if seen is not None and 0 <= seen < 2**63 else None
                yield Score(dataset, measure, step, value, whole, flops(step), seconds(step))

    def _score_metrics(self, metrics: Iterable[str]) -> dict[str, str]:
        """Choose the metrics that are scores: name of the score → name of the metric."""
        if not self.options.score:
            return {metric: metric for metric in metrics if metric in self._known_scores}
        chosen: dict[str, str] = {}
        for text in self.options.score:
            name, equals, pattern = text.partition("=")
            for metric in metrics:
                if metric == pattern if equals else fnmatchcase(metric, text):
                    score = name if equals else _score_name(metric, text)
                    if score and (other := chosen.setdefault(score, metric)) != metric:
                        raise UserError(f"{other} and {metric} have the same name: --score {score}=METRIC")
        return chosen


def _score_name(metric: str, pattern: str) -> str | None:
    """Return a metric's name as DATASET/METRIC, split at the last slash or dot; None if it has no dataset."""
    dataset, _, measure = metric.rpartition("/" if "/" in metric.strip("/") else ".")
    if dataset and measure:
        return f"{dataset}/{measure}"
    if metric == pattern:  # the user gave the metric's name, not a wildcard that happens to match it
        raise UserError(f"{metric} has no dataset prefix: map it with --score DATASET/METRIC={metric}")
    return None


def _cost_by_step(run: SourceRun, text: str | None) -> AtStep:
    """Return a function that computes the examples, FLOPs, or seconds until a step.

    `text` is a metric's name, or `step*FACTOR` with a number or a key of the config; None if unknown.

    Raises:
        UserError: The run doesn't have the metric, or its config doesn't have a number for the key.
    """
    if text is None:
        return lambda step: None
    if matched := _PER_STEP.fullmatch(text):
        factor: Any = flat(run.config).get(matched[1], matched[1])
        with suppress(ValueError, TypeError, OverflowError):
            if math.isfinite(factor := float(factor)):
                return lambda step: step * factor
        raise UserError(
            f"{run.name}: {text}: its config has no number {matched[1]!r}: write one, such as step*256"
        )
    if text not in run.metrics:
        known = nearest(text, run.metrics)
        raise UserError(f"{run.name}: no metric {text!r}: {known}; or step*NUMBER, or step*KEY of the config")
    curve = run.metrics[text]
    steps = [*curve]

    def at(step: int) -> float | None:
        index = bisect_right(steps, step) - 1
        value = curve[steps[index]] if index >= 0 else math.nan
        return value if math.isfinite(value) else None

    return at


def _values(run: SourceRun) -> dict[str, Any]:
    """Return the values of the config, and of tags such as `team=vision` where the config has none."""
    tags = {key: value for key, equals, value in (tag.partition("=") for tag in run.tags) if equals}
    return tags | {key: value for key, value in flat(run.config).items() if value is not None}


# ---- limits of stores


def _storable_run(run: SourceRun) -> SourceRun:
    """Return a run without negative steps, and with text that every database can store."""
    left_out = Counter(run.left_out)
    metrics = {}
    for name, curve in run.metrics.items():
        if not name or name != _storable(name) or len(name) > _MOST_NAME_LETTERS:
            left_out[_INVALID_NAMES] += len(curve)
            continue
        points = {step: value for step, value in curve.items() if step >= 0}
        left_out["points at negative steps"] += len(curve) - len(points)
        if points:
            metrics[name] = points
    origin = _storable(run.origin)
    # JSON has no NaN and no infinities: they become text.
    text = json.dumps({**run.config, ADOPTED_FROM: origin}, ensure_ascii=False, default=str)
    texts = {name: _storable(getattr(run, name) or "") or None for name in ("host", "device", "git_commit")}
    return replace(
        run,
        origin=origin,
        config=json.loads(_storable(text), parse_constant=str),
        metrics=metrics,
        tags=tuple(_storable(tag) for tag in run.tags if not tag.startswith(_EXPORT_TAG_PREFIX)),
        notes=_storable(run.notes).strip(),
        left_out=+left_out,
        **texts,  # type: ignore[arg-type]
    )


def _storable(text: str) -> str:
    """Remove NUL characters and replace lone surrogates, which PostgreSQL rejects."""
    return text.replace("\0", "").encode(errors="replace").decode()
