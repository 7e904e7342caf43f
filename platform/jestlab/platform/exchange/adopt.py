"""Adopt runs of other tools: choose their labels, seeds, and scores, and add them to a study."""

from __future__ import annotations

import importlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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
    report_errors,
    whole_number,
)
from jestlab.platform.planning.identity import origin_fingerprint
from jestlab.platform.spec.options import Options, option
from jestlab.platform.store.engine import RECORDING, one_at_a_time
from jestlab.platform.store.records import ADOPTED_FROM
from jestlab.platform.words import few, listed, on_one_line

if TYPE_CHECKING:
    from jestlab.platform.store.store import Store

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


class AdoptOptions(Options):
    """How runs of another tool become runs of a study; `jestlab adopt` has a flag for each option."""

    label: str = option(
        "Label of a run: text with {name}, {group}, and keys of the config and of tags in braces.", "{name}"
    )
    score: tuple[str, ...] = option(
        "Metric to use as a score: a pattern of names, 'eval/*', or DATASET/METRIC=NAME; repeatable.  "
        "[default: metrics named like a score of STUDY]",
        (),
    )
    goal: Literal["max", "min"] | None = option(
        "Whether larger or smaller scores are better, unless a spec of STUDY defines it."
    )
    examples: str | None = option(
        "Metric with the examples seen, or step*256, or step*KEY with a key of the config."
    )
    flops: str | None = option("The same for the FLOPs of training.")
    seconds: str | None = option(
        "The same for the seconds of training.  [default: the wall time of the run, at its last step]"
    )
    seed: str = option("Key of the config with the seed.", "seed")
    only: tuple[str, ...] = option("Only adopt runs whose names match this pattern; repeatable.", ())
    run: str | None = option("Tables: columns that identify a run, joined by commas.")
    step: str = option("Tables: column of steps.", "step")
    config: str | None = option("Tables: columns of the config, joined by commas.")
    source: str | None = option("Name to distinguish tables or folders with the same name.")
    moved: bool = option("PATH was adopted before from another place.", False)
    dry_run: bool = option("Show what would be adopted, and write nothing.", False)


def read(kind: str, path: Path, report: Report, options: AdoptOptions) -> Iterator[SourceRun]:
    """Yield the runs of a source whose names match `options.only`. `kind` is a key of `KINDS`.

    Raises:
        UserError: The path isn't a source of this kind, or an option doesn't apply to this kind.
    """
    names: dict[str, Any] = {}
    if kind in ("csv", "parquet"):
        columns = {"run": listed(options.run or ""), "config": listed(options.config or "")}
        names = {**columns, "step": options.step, "seed": options.seed, "source": options.source}
    elif given := {"run", "config", "step"} & options.model_fields_set:
        raise UserError(f"--{min(given)}: only tables have columns (csv, parquet)")
    elif kind == "tensorboard":
        names = {"source": options.source}
    elif options.source is not None:
        raise UserError(f"--source: the names of {kind} runs don't depend on the path")
    module = importlib.import_module(f"jestlab.platform.exchange.{KINDS[kind]}")
    for run in module.read(path, report, **names):
        if not options.only or any(fnmatchcase(run.name, pattern) for pattern in options.only):
            yield run


def parse_score(text: str) -> tuple[str, str]:
    """Parse `coco/i2t_r1=eval/recall`, `eval/top1`, or a pattern such as `eval/*`.

    Returns:
        For DATASET/METRIC=NAME: the score's name DATASET/METRIC and the metric's name NAME. Otherwise: "" and
        the text, a pattern of metric names.

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
        path: The file or folder that contains the runs.
        author: Author of the tags and notes that are added to runs.

    Raises:
        UserError: The study is a union of other studies, or the name of a score is invalid.
    """

    store: Store | None
    study: str
    kind: str
    path: str
    options: AdoptOptions
    author: str = ""

    def __post_init__(self) -> None:
        known = set[str]() if self.store is None else adopt_store.score_names(self.store, self.study)
        self._patterns = [parse_score(text) for text in self.options.score]
        self._known_scores = known
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
        options = self.options
        if self.store is None:
            placed, change = self._place(run, None), None
        elif options.dry_run:
            with self.store.reading() as connection:
                placed, change = self._place(run, connection), None
        else:
            with self.store.writing() as connection:
                one_at_a_time(connection, RECORDING)
                placed = self._place(run, connection)
                change = adopt_store.write(
                    connection, self.study, placed, self.author, options.moved, options.goal
                )
        self._origins.add(placed.run.origin)
        self._seeds[placed.label].add(placed.seed)
        return placed, change

    def _place(self, source: SourceRun, connection: Connection | None) -> Placed:
        """Choose the label, seed, and scores of a run. `connection` is None if the store doesn't exist."""
        run = _storable_run(source)
        if run.origin in self._origins:
            raise UserError(
                f"{run.name}: another copy of this run was just adopted: give the path of one copy"
            )
        if not run.metrics and run.left_out:
            raise UserError(f"{run.name}: it has only {few([*run.left_out])}: nothing to adopt")
        name, fingerprint = self._name(source), origin_fingerprint(run.origin)
        label = f"{name} ({self.kind})"
        stored_seed, taken = None, self._seeds[label]
        if connection is not None:
            stored_seed, others = adopt_store.seeds(connection, self.study, fingerprint, name, label)
            taken = taken | others
        seed_value = _value(source, self.options.seed)
        own_seed = _valid_seed(seed_value)
        wanted = [stored_seed] if own_seed is None else [own_seed, stored_seed]
        free = (seed for seed in chain(wanted, count()) if seed is not None and seed not in taken)
        seed = next(free)
        is_replaced = seed_value is not None and seed != own_seed
        left_out = {**run.left_out, **({_INVALID_SEEDS: 1} if is_replaced else {})}
        run, path = replace(run, left_out=left_out), _storable(self.path)
        return Placed(run, fingerprint, path, name, label, seed, [*self._scores(run)])

    def _name(self, run: SourceRun) -> str:
        """Fill in `options.label`, and check that the result can be a label."""
        own = {"name": run.name, "group": run.group or run.name}

        def text(field: re.Match[str]) -> str:
            key = field[1]
            if (value := own.get(key, _value(run, key))) is None:
                known = [*own, *_tags(run), *flat(run.config)]
                raise UserError(f"{run.name}: no {key!r} for its label: {nearest(key, known)}")
            return value_text(value)

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
            for step, value in zip(*(column.tolist() for column in run.metrics[metric]), strict=True):
                seen = examples(step)
                whole = int(seen) if seen is not None and 0 <= seen < 2**63 else None
                yield Score(dataset, measure, step, value, whole, flops(step), seconds(step))

    def _score_metrics(self, metrics: Iterable[str]) -> dict[str, str]:
        """Choose the metrics that are scores: name of the score → name of the metric."""
        if not self._patterns:
            return {metric: metric for metric in metrics if metric in self._known_scores}
        chosen: dict[str, str] = {}
        for name, pattern in self._patterns:
            if name:
                chosen |= {name: pattern} if pattern in metrics else {}
                continue
            for metric in metrics:
                score = _score_name(metric, pattern) if fnmatchcase(metric, pattern) else None
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


def _tags(run: SourceRun) -> dict[str, str]:
    """Return the tags that have a value, such as `team=vision`: key → value."""
    return {key: value for key, equals, value in (tag.partition("=") for tag in run.tags) if equals}


def _value(run: SourceRun, key: str) -> Any:
    """Return the value of a config key, or else of a tag with this key; None if neither exists."""
    value = run.config.get(key, lookup(run.config, key))
    return _tags(run).get(key) if value is None else value


def _valid_seed(value: Any) -> int | None:
    if not isinstance(value, bool):
        with suppress(ValueError, TypeError, OverflowError):
            if 0 <= (seed := whole_number(value)) < 2**32:
                return seed
    return None


# ---- limits of stores


def _storable_run(run: SourceRun) -> SourceRun:
    """Return a run without negative steps, and with text that every database can store."""
    left_out = Counter(run.left_out)
    metrics = {}
    for name, (steps, values) in run.metrics.items():
        if not name or name != _storable(name) or len(name) > _MOST_NAME_LETTERS:
            left_out[_INVALID_NAMES] += len(steps)
            continue
        first = int(steps.searchsorted(0))
        left_out["points at negative steps"] += first
        if len(steps) > first:
            metrics[name] = steps[first:], values[first:]
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
