"""All keys of a spec beside those of configs: of a study, its runs, axes, claims, metrics and reports."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from jestlab.analysis.claims import MEANINGS, Claim, Side
from jestlab.analysis.metrics import Metric
from jestlab.platform.spec.axes import Axis
from jestlab.platform.spec.keys import words
from jestlab.platform.spec.keys.docstrings import attributes, introduction
from jestlab.platform.spec.keys.key import REQUIRED, Key
from jestlab.platform.spec.options import REPORTS, FigureOptions
from jestlab.platform.spec.record import Record
from jestlab.platform.spec.resources import Resources
from jestlab.platform.spec.runs import RunSpec
from jestlab.platform.spec.schema import Study
from jestlab.platform.spec.slurm import SlurmOptions
from jestlab.platform.spec.tree import KIND

_DECIDE = (
    *("base", "program", "runs", "axes", "seeds"),
    *("runs.<run>.program", "runs.<run>.needs", "runs.<run>.match"),
    *("axes.<n>.runs", "axes.<n>.grid", "axes.<n>.zip", "axes.<n>.cases"),
)
"""Keys that decide what is run, and so which fingerprints there are."""

_SIDE = "run, list of runs, or mapping of of, minus, measure"
_RUNS = "run or list of runs"
_WRITTEN_AS = {
    "name": ("string", "the name of the file"),
    "base": ("mapping of config keys", "{}"),
    "runs": ("mapping from names to overrides of the base", REQUIRED),
    "axes": ("list of axes, or mapping from names of runs to axes", "[]"),
    "seeds": ("number of replicates, list of seeds, or mapping of until, at_least, at_most, budget", "1"),
    "reports": ("list of reports, each its kind or a mapping from its kind to options", "[]"),
    "claims": ("list of claims", "[]"),
    "family": ("mapping of error and adjust, or none", "{error: 0.05}"),
    "metrics": ("mapping from names or patterns to what they mean", "{}"),
    "score": ("list of evaluations", "[]"),
    "studies": ("list of names and files of studies, or mapping from names to specs", "{}"),
    "runs.<run>.program": ("string", "that of the study"),
    "runs.<run>.needs": ("list of names of runs, or mapping from roles to them", "[]"),
    "runs.<run>.match": ("mapping from flops, learner_flops or seconds to the name of a run", "null"),
    "axes.<n>.runs": ("list of names of runs, or a string of them with commas", REQUIRED),
    "axes.<n>.grid": ("mapping from config keys to lists of values", "null"),
    "axes.<n>.zip": ("mapping from config keys to lists of values", "null"),
    "axes.<n>.cases": ("list of mappings of config keys", "null"),
    "claims.<n>.of": (_SIDE, REQUIRED),
    **{f"claims.<n>.{comparison}": (_SIDE, "one of them is required") for comparison in MEANINGS},
    "claims.<n>.of.of": (_RUNS, REQUIRED),
    "claims.<n>.of.minus": (_RUNS, "[]"),
}
"""Key → type and default as written, where the parsed form has others."""

_EXAMPLES = {
    "name": "name: filtering",
    "question": "question: Does joint selection learn faster?",
    "paper": "paper: Figure 3",
    "scale": "scale: smoke",
    "program": "program: command",
    "base": "base: {schedule.examples_seen: 19200, optimizer.learning_rate: 1e-3}",
    "runs": "runs: {uniform: {}, joint: {selection: {rule: joint, reference: reference}}}",
    "axes": "axes: [{runs: [joint], grid: {selection.filtering_ratio: [0.5, 0.8, 0.9]}}]",
    "seeds": "seeds: {until: decided, at_least: 3, at_most: 24, budget: {hours: 1}}",
    "reports": "reports: [table: {baseline: uniform}, curves, pareto]",
    "claims": "claims: [{statement: Joint selection learns more, of: joint, above: uniform}]",
    "family": "family: {error: 0.01}",
    "metrics": "metrics: {wiki/perplexity: {goal: min}}",
    "score": "score: [coco/i2t_r1, coco/t2i_r1]",
    "studies": "studies: [filtering_ratio, criteria, mine.yaml]",
    "runs.<run>.program": "runs: {cache: {program: embed, reference: reference}}",
    "runs.<run>.needs": "runs: {tuned: {needs: {init: pretrained}}}",
    "runs.<run>.match": "runs: {uniform: {match: {flops: joint}}}",
    "axes.<n>.runs": "axes: [{runs: [joint, independent], grid: {selection.filtering_ratio: [0.5, 0.8]}}]",
    "axes.<n>.grid": "axes: [{runs: [joint], grid: {selection.filtering_ratio: [0.5, 0.8]}}]",
    "axes.<n>.zip": "axes: [{runs: [joint], zip: {loss: [sigmoid, softmax], initialization: [1, 2]}}]",
    "axes.<n>.cases": "axes: [{runs: [joint], cases: [{loss: sigmoid}, {loss: softmax}]}]",
    "metrics.<name>.goal": "metrics: {wiki/perplexity: {goal: min}}",
    "metrics.<name>.unit": "metrics: {denoised/psnr: {goal: max, unit: dB}}",
    "metrics.<name>.name": "metrics: {wiki/perplexity: {goal: min, name: Perplexity}}",
    "metrics.<name>.digits": "metrics: {wiki/perplexity: {goal: min, digits: 2}}",
    "metrics.<name>.scale": "metrics: {wiki/perplexity: {goal: min, scale: log}}",
    "claims.<n>.within": "claims: [{statement: As good, of: joint, near: reference, within: 0.02}]",
    "claims.<n>.measure": "claims: [{statement: Ahead, of: joint, above: uniform, measure: score_at_flops}]",
    "claims.<n>.of": "claims: [{statement: Gains, of: {of: joint, minus: uniform}, above: independent}]",
    "record.packages": "record: {packages: [torch]}",
    "record.files": "record: {files: [data/train.csv]}",
    "resources.on": "resources: {on: kubernetes, tpu: v5e-16x16}",
    "resources.parallel": "resources: {parallel: 4}",
    "resources.threads": "resources: {threads: 4}",
    "resources.memory_gb": "resources: {memory_gb: 8}",
    "resources.gpus": "resources: {gpus: 1}",
    "resources.nodes": "resources: {nodes: 2, gpus: 8}",
    "resources.time": "resources: {time: 12h}",
    "resources.tpu": "resources: {tpu: v5e-16x16}",
    "resources.slurm.partition": "resources: {slurm: {partition: gpu}}",
    "resources.slurm.gres": "resources: {gpus: 4, slurm: {gres: gpu:a100}}",
    "resources.slurm.setup": "resources: {slurm: {setup: [module load cuda]}}",
    "reports.baseline": "reports: [table: {baseline: uniform}]",
    "reports.runs": "reports: [curves: {runs: [uniform, joint]}]",
    "reports.score": "reports: [table: {score: shapes/zero_shot}]",
}
"""Key → one line of a spec."""


@functools.cache
def spec_keys() -> tuple[Key, ...]:
    """Return all keys of a spec that are not keys of configs: of a study, its runs, axes, claims, metrics and
    reports."""
    return (
        *_of_study(),
        *_written("runs.<run>", RunSpec, "run", leave=("texts", "overrides")),
        *_written("axes.<n>", Axis, "axis"),
        *_written("metrics.<name>", Metric, "metric", required=("goal",)),
        *_of_claims(),
        *_written("figure", FigureOptions, "study"),
        *_written("record", Record, "study"),
        *_written("resources", Resources, "study", leave=("slurm",)),
        *_written("resources.slurm", SlurmOptions, "study"),
        *(key for kind, report in REPORTS.items() for key in _of_report(kind, report)),
    )


def _of_study() -> Iterator[Key]:
    for key in _written("", Study, "study", leave=("resources", "record")):
        yield replace(key, where=("union",)) if key.path == "studies" else key


def _of_claims() -> Iterator[Key]:
    path = "claims.<n>"
    for key in _written(path, Claim, "claim", leave=("comparison", "other")):
        yield key
        if key.path == f"{path}.of":
            for name, meaning in MEANINGS.items():
                yield _spec_key(f"{path}.{name}", "", "", meaning, "claim")
    yield from _written(f"{path}.of", Side, "side of a claim")


def _of_report(kind: str, report: type[BaseModel]) -> Iterator[Key]:
    yield from _written(f"reports.{kind}", report, kind, leave=(KIND,))


def _written(
    path: str, cls: type, where: str, leave: Iterable[str] = (), required: Iterable[str] = ()
) -> Iterator[Key]:
    """Yield the keys that the attributes of a class are written as.

    Args:
        path: Of the mapping that is parsed into the class.
        cls: A pydantic model or a dataclass.
        where: What has the keys.
        leave: Attributes that are written in another way.
        required: Attributes that have a default and have to be given all the same.
    """
    meanings = attributes(cls)
    if issubclass(cls, BaseModel):
        meanings |= {name: info.description for name, info in cls.model_fields.items() if info.description}
    for name, type_, default in _fields(cls):
        if name not in leave:
            here = f"{path}.{name}" if path else name
            default = REQUIRED if name in required else default
            yield _spec_key(here, type_, default, meanings.get(name, ""), where, _choices(cls, name))


def _fields(cls: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the type and the default of the attributes of a model or a dataclass."""
    if issubclass(cls, BaseModel):
        for name, info in cls.model_fields.items():
            default = REQUIRED if info.is_required() else words.value(info.get_default())
            yield name, words.words(info.annotation, info.metadata, info.json_schema_extra), default
        return
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        missing = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        yield field.name, words.words(hints[field.name]), REQUIRED if missing else words.value(field.default)


def _choices(cls: Any, name: str) -> tuple[str, ...]:
    return words.choices(typing.get_type_hints(cls)[name])


def _spec_key(
    path: str, type_: str, default: str, meaning: str, where: str, choices: tuple[str, ...] = ()
) -> Key:
    general = path.replace(f"reports.{where}.", "reports.")
    type_, default = _WRITTEN_AS.get(general, (type_, default))
    example = _EXAMPLES.get(general, "")
    return Key(path, type_, default, meaning, (where,), path in _DECIDE, choices, example=example)


@functools.cache
def spec_sections() -> dict[str, str]:
    """Return section → what it is."""
    told = {
        "": Study,
        "runs.<run>": RunSpec,
        "axes.<n>": Axis,
        "metrics.<name>": Metric,
        "claims.<n>": Claim,
        "claims.<n>.of": Side,
        "figure": FigureOptions,
        "record": Record,
        "resources": Resources,
        "resources.slurm": SlurmOptions,
        **{f"reports.{kind}": report for kind, report in REPORTS.items()},
    }
    return {section: introduction(cls) for section, cls in told.items()}
