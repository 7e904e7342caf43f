"""The reference of the keys of specs and configs, from the JSON schemas of the classes that validate them.

The meaning of a key is the description of its field, or its entry under `Attributes:` in the docstring.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from jestlab.analysis.claims import MEANINGS, Claim, Side
from jestlab.analysis.metrics import Metric
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.spec.axes import AxisSpec
from jestlab.platform.spec.fields import IS_PATH, NAMES_A_RUN, NAMES_CODE, Field, fields_of
from jestlab.platform.spec.options import REPORTS, FigureOptions
from jestlab.platform.spec.program import ProgramConfig, builtin_programs
from jestlab.platform.spec.record import Record
from jestlab.platform.spec.resources import Resources
from jestlab.platform.spec.runs import RunSpec
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.spec.slurm import SlurmOptions
from jestlab.platform.spec.tree import KIND
from jestlab.platform.spec.yaml import dump_inline

REQUIRED = "required"
"""The default of a key that has none."""

COMMAND = "A command in any language. Every other key is a value for its placeholders."
"""The description of the config of `command`."""

_PARTS: dict[str, tuple[type, str, tuple[str, ...]]] = {
    "": (StudySpec, "study", ("resources", "record")),
    "runs.<run>": (RunSpec, "run", ("texts", "overrides")),
    "axes.<n>": (AxisSpec, "axis", ()),
    "metrics.<name>": (Metric, "metric", ()),
    "claims.<n>": (Claim, "claim", ("comparison", "other")),
    "claims.<n>.of": (Side, "side of a claim", ()),
    "figure": (FigureOptions, "study", ()),
    "record": (Record, "study", ()),
    "resources": (Resources, "study", ("slurm",)),
    "resources.slurm": (SlurmOptions, "study", ()),
    **{f"reports.{kind}": (options, kind, (KIND,)) for kind, options in REPORTS.items()},
}
"""Section of a spec → the class that validates it, its owner, and fields that a spec doesn't write there."""

_DECIDE = (
    *("base", "program", "runs", "axes", "seeds"),
    *("runs.<run>.program", "runs.<run>.needs", "runs.<run>.match"),
    *("axes.<n>.runs", "axes.<n>.grid", "axes.<n>.zip", "axes.<n>.cases"),
)
"""Keys of a spec that are part of the identity of runs."""

_WITHOUT_EFFECT = {
    *(("data.train.path", kind) for kind in ("folder", "reader")),  # the content counts
    *(("data.train.examples", kind) for kind in ("folder", "reader")),
    ("data.benchmark.path", "folder"),
    *((name, "") for name in ("path", "tokenizer", "model")),  # of imported weights
}
"""Keys of configs outside `runtime` that aren't part of the identity, with the kind of their section."""

_SIDE = "run, list of runs, or mapping of of, minus, measure"
_WRITTEN_AS = {
    "name": ("string", "the name of the file"),
    "runs": ("mapping from names to overrides of the base", REQUIRED),
    "axes": ("list of axes, or mapping from names of runs to axes", "[]"),
    "seeds": ("number of replicates, list of seeds, or mapping of until, at_least, at_most, budget", "1"),
    "reports": ("list of reports, each its kind or a mapping from its kind to options", "[]"),
    "family": ("mapping of error and adjust, or none", "{error: 0.05}"),
    "studies": ("list of names and files of studies, or mapping from names to specs", "{}"),
    "runs.<run>.needs": ("list of names of runs, or mapping from roles to them", "[]"),
    "runs.<run>.match": ("mapping from flops, learner_flops or seconds to the name of a run", "null"),
    "metrics.<name>.goal": ("max or min", REQUIRED),
    "claims.<n>.of": (_SIDE, REQUIRED),
    **{f"claims.<n>.{comparison}": (_SIDE, "one of them is required") for comparison in MEANINGS},
}
"""Key → type and default, where the form in a spec differs from the validated one."""

_EXAMPLES = {
    "base": "base: {schedule.examples_seen: 19200, optimizer.learning_rate: 1e-3}",
    "runs": "runs: {uniform: {}, joint: {selection: {rule: joint, reference: reference}}}",
    "axes": "axes: [{runs: [joint], grid: {selection.filtering_ratio: [0.5, 0.8, 0.9]}}]",
    "seeds": "seeds: {until: decided, at_least: 3, at_most: 24, budget: {hours: 1}}",
    "reports": "reports: [table: {baseline: uniform}, curves, pareto]",
    "claims": "claims: [{statement: Joint selection learns more, of: joint, above: uniform}]",
    "metrics": "metrics: {wiki/perplexity: {goal: min, name: Perplexity, digits: 2}}",
    "studies": "studies: [filtering_ratio, criteria, mine.yaml]",
    "runs.<run>.program": "runs: {cache: {program: embed, reference: reference}}",
    "runs.<run>.needs": "runs: {tuned: {needs: {init: pretrained}}}",
    "runs.<run>.match": "runs: {uniform: {match: {flops: joint}}}",
    "axes.<n>.cases": "axes: [{runs: [joint], cases: [{loss: sigmoid}, {loss: softmax}]}]",
    "claims.<n>.within": "claims: [{statement: As good, of: joint, near: reference, within: 0.02}]",
    "claims.<n>.of": "claims: [{statement: Gains, of: {of: joint, minus: uniform}, above: independent}]",
    "resources.on": "resources: {on: kubernetes, tpu: v5e-16x16}",
    "resources.slurm.gres": "resources: {gpus: 4, slurm: {gres: gpu:a100}}",
    "resources.slurm.setup": "resources: {slurm: {setup: [module load cuda]}}",
}
"""Key of specs → one line of a spec."""


@dataclass(frozen=True)
class SpecKey:
    """One key of a spec or of a config.

    Attributes:
        path: Dotted, with `<…>` in place of a name or a number: `selection.rule`, `runs.<run>.needs`. A key
            of configs starts at the config, as below `base` and below a run.
        type: In the terms of a spec.
        default: In YAML, or "required".
        meaning: One or several sentences.
        where: The programs whose configs have it, the kinds of reports, or its owner in a spec.
        identity: Whether it is part of the identity of runs.
        choices: The built-in values, if there are few.
        kind: The `kind` of its section, if the section has several.
        example: One line of YAML.
    """

    path: str
    type: str
    default: str
    meaning: str
    where: tuple[str, ...]
    identity: bool
    choices: tuple[str, ...] = ()
    kind: str = ""
    example: str = ""

    @property
    def section(self) -> str:
        """The path without its last part."""
        return self.path.rpartition(".")[0]

    @property
    def description(self) -> str:
        """The meaning, with the kind of its section."""
        return f"Of kind {self.kind}: {self.meaning}" if self.kind else self.meaning


# ---- keys of specs and of configs


@functools.cache
def spec_keys() -> tuple[SpecKey, ...]:
    """Return all keys of a spec that aren't keys of configs."""
    return tuple(key for section in _PARTS for key in _section_keys(section))


def _section_keys(section: str) -> Iterator[SpecKey]:
    cls, owner, skipped = _PARTS[section]
    for name, field in fields_of(cls).children.items():
        if name in skipped:
            continue
        path = f"{section}.{name}" if section else name
        type_, default = _WRITTEN_AS.get(path, (_type(field), _default(field)))
        yield SpecKey(
            path,
            type_,
            default,
            field.description,
            ("union" if path == "studies" else owner,),
            path in _DECIDE,
            _choices(field),
            example=_EXAMPLES.get(path, ""),
        )
        if path == "claims.<n>.of":
            for comparison, meaning in MEANINGS.items():
                other = f"claims.<n>.{comparison}"
                yield SpecKey(other, *_WRITTEN_AS[other], meaning, (owner,), False)


@functools.cache
def config_keys() -> tuple[SpecKey, ...]:
    """Return the keys of the configs of jestlab's own programs by section, each with its programs."""
    found: dict[SpecKey, tuple[str, ...]] = {}
    for name, program in builtin_programs().items():
        for key in _program_keys(program):
            found[key] = (*found.get(key, ()), name)
    keys = [replace(key, where=where) for key, where in found.items()]
    groups = list(dict.fromkeys(above for key in keys for above in _above(group(key))))
    return tuple(sorted(keys, key=lambda key: groups.index(group(key))))


def _program_keys(program: ProgramConfig) -> Iterator[SpecKey]:
    if program.schema is not None:
        yield from _config_keys(fields_of(program.schema))
    for name, key in program.free_keys.items():
        yield SpecKey(name, *key, (), name not in map(".".join, program.local_paths))


def _config_keys(section: Field, path: tuple[str, ...] = (), kind: str = "") -> Iterator[SpecKey]:
    """Yield the keys of a section of a config."""
    for name, field in section.parts(kind).items():
        if name == KIND and kind:
            continue  # listed once, for all kinds
        here = (*path, name)
        key = _config_key(".".join(here), field, kind)
        if field.is_optional or not field.children:
            yield key
            if field.items.children and here != ("code",):
                yield from _config_keys(field.items, (*here, "<name>"))
        elif field.variants:
            yield _kind_key(f"{key.path}.{KIND}", field)
            for each in field.variants:
                yield from _config_keys(field, here, each)
        else:
            yield from _config_keys(field, here)


def _config_key(path: str, field: Field, kind: str) -> SpecKey:
    choices, default = _choices(field), _default(field)
    value = next((choice for choice in choices if choice != default), default)
    is_example = value not in ("null", REQUIRED, "{}")
    return SpecKey(
        path,
        _type(field),
        default,
        field.description,
        where=(),
        identity=not path.startswith("runtime.") and (path, kind) not in _WITHOUT_EFFECT,
        choices=choices,
        kind=kind,
        example=f"base: {{{path}: {value}}}" if is_example else "",
    )


def _kind_key(path: str, field: Field) -> SpecKey:
    kinds = tuple(field.variants)
    texts = zip(kinds, field.sections, strict=True)
    return SpecKey(
        path,
        _either(kinds),
        default=str(field.default_kind),
        meaning=" ".join(f"{kind}: {section.get('description', '')}" for kind, section in texts),
        where=(),
        identity=True,
        choices=kinds,
        example=f"base: {{{path}: {kinds[0]}}}",
    )


def group(key: SpecKey) -> str:
    """Return the heading of a key of configs: the section, or the first program for a top-level key."""
    return key.section or key.where[0]


def _above(section: str) -> Iterator[str]:
    parts = section.split(".")
    yield from (".".join(parts[: depth + 1]) for depth in range(len(parts)))


# ---- types


_NOUNS = {"object": "mapping", "boolean": "true or false", "null": "null"}
_MARKS = {NAMES_A_RUN: ("name of a run", "names of runs"), IS_PATH: ("path", "paths")}
_BOUNDS = {"exclusiveMinimum": "above", "minimum": "from", "exclusiveMaximum": "below", "maximum": "up to"}
_CUSTOM_CODE = ("module:function", "file.py:function")


def _type(field: Field, plural: bool = False) -> str:
    """Name the type of a field: "integer above 0", "list of strings or null"."""
    return _either([name for each in field.alternatives for name in _type_names(each, field, plural)])


def _type_names(schema: Mapping[str, Any], field: Field, plural: bool) -> Sequence[str]:
    type_ = schema.get("type")
    for mark, nouns in _MARKS.items():
        if schema.get(mark):
            return [nouns[plural]]
    if schema.get(NAMES_CODE) and type_ == "string":
        return [*schema.get("choices", ()), *_CUSTOM_CODE]
    if "enum" in schema or "const" in schema:
        return list(map(str, schema.get("enum", [schema.get("const")])))
    if type_ == "array":
        return [f"{'lists' if plural else 'list'} of {_type(field.items, plural=True)}"]
    if type_ == "object" and isinstance(schema.get("additionalProperties"), dict):
        return [f"mapping from names to {_type(field.items, plural=True)}"]
    given = {word: schema[key] for key, word in _BOUNDS.items() if schema.get(key, 2**32) < 2**32}
    bounds = {word: f"{word} {bound:g}" for word, bound in given.items()}
    text = ", ".join(bounds.values())
    if [*bounds] == ["from", "up to"]:
        text = f"{bounds['from']} {bounds['up to'].removeprefix('up ')}"
    noun = _NOUNS.get(type_, type_) if type_ else "anything"
    is_plural = plural and type_ in ("integer", "number", "string", "object")
    return [f"{noun}{'s' if is_plural else ''} {text}".strip()]


def _either(names: Iterable[str]) -> str:
    *others, last = dict.fromkeys(names)
    return f"{', '.join(others)} or {last}" if others else last


def _choices(field: Field) -> tuple[str, ...]:
    """List the values of a field that has few, or its built-in values if custom code can be one."""
    found: list[Any] = []
    for each in field.alternatives:
        found += each.get("choices") or each.get("enum") or ([each["const"]] if "const" in each else [])
    return tuple(map(str, found))


def _default(field: Field) -> str:
    return REQUIRED if field.required else dump_inline(field.schema.get("default", {}))


# ---- finding keys


_PLACEHOLDER = re.compile(r"<\w+>")
_CONFIG_AFTER = (
    ("base",),
    ("runs", "*"),
    ("axes", "*", "grid"),
    ("axes", "*", "zip"),
    ("axes", "*", "cases", "*"),
)
"""Places in a spec below which keys of configs are written."""


def find(prefix: str = "") -> tuple[SpecKey, ...]:
    """Return the keys at or below a place, in the order of the reference: those of specs, then of configs.

    Args:
        prefix: `selection`, `selection.rule`, `claims.of`; also a place as in errors,
            `runs.joint.selection.rule` or `axes.0.grid.loss`; empty for all keys.

    Raises:
        UserError: The key is unknown; suggests the nearest.
    """
    every = (*spec_keys(), *config_keys())
    parts = tuple(part for part in prefix.strip().split(".") if part)
    below = [
        parts[len(head) :]
        for head in _CONFIG_AFTER
        if len(parts) > len(head) and _begins(head, parts[: len(head)], named=True)
    ]
    for asked in (parts, *below):
        for named in (False, True):
            if found := tuple(key for key in every if _begins(_places(key), asked, named)):
                return found
    known = {
        ".".join(part for part in _places(key)[:depth] if part != "*")
        for key in every
        for depth in range(1, 9)
    }
    last = [name for name in known if name.rpartition(".")[2] == parts[-1]]
    raise UserError(f"no key {prefix!r}: {nearest(prefix, last or known)}")


def _places(key: SpecKey) -> tuple[str, ...]:
    """Return the parts of a key's path, with `*` for a placeholder."""
    return tuple(_PLACEHOLDER.sub("*", part) for part in key.path.split("."))


def _begins(path: Sequence[str], beginning: Sequence[str], named: bool) -> bool:
    """Whether a path has a beginning, in which placeholders are left out, or replaced by names if `named`."""
    if not beginning or not path:
        return not beginning
    if path[0] == "*":
        return _begins(path[1:], beginning[1:] if named or beginning[0].startswith("<") else beginning, named)
    return path[0] == beginning[0] and _begins(path[1:], beginning[1:], named)


def together(keys: Iterable[SpecKey]) -> list[SpecKey]:
    """List keys by section; an option that several reports have is listed once, as `reports.*.baseline`."""
    merged: dict[SpecKey, SpecKey] = {}
    for key in keys:
        shared = key
        if key.path.startswith("reports.") and key.path.count(".") == 2:
            shared = replace(key, path=f"reports.*.{key.path.rpartition('.')[2]}", where=())
        before = merged.get(shared)
        merged[shared] = key if before is None else replace(shared, where=(*before.where, *key.where))
    sections = list(dict.fromkeys(key.section for key in merged.values()))
    return sorted(merged.values(), key=lambda key: sections.index(key.section))


def introductions(which: Literal["config", "spec"]) -> dict[str, str]:
    """Return the introduction of each section of specs, or of each section and program of configs."""
    if which == "spec":
        return {section: fields_of(cls).description for section, (cls, _, _) in _PARTS.items()}
    found = {"command": COMMAND}
    for name, program in builtin_programs().items():
        if program.schema is not None:
            root = fields_of(program.schema)
            found[name] = root.description
            for path, field in root.walk():
                section = (*path, "<name>") if field.items.children else path
                text = field.items.introduction or field.introduction or field.description
                found.setdefault(".".join(section), text)
    return found
