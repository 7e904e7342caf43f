"""The reference of the keys of specs and configs.

It comes from the JSON schemas of the classes that validate specs. The meaning of a key is the description of
its field in the class, or the entry of the field under `Attributes:` in the docstring of the class.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from jestlab.analysis.claims import COMPARISONS, Claim, Side
from jestlab.analysis.metrics import Metric
from jestlab.analysis.sheet import Sheet
from jestlab.platform.errors import UserError, dotted, nearest
from jestlab.platform.spec.axes import AxisSpec
from jestlab.platform.spec.fields import IS_PATH, NAMES_A_RUN, NAMES_CODE, Field, fields_of
from jestlab.platform.spec.options import REPORTS
from jestlab.platform.spec.program import builtin_programs
from jestlab.platform.spec.resources import Resources, SlurmOptions
from jestlab.platform.spec.runs import Match, RunSpec
from jestlab.platform.spec.schema import Record, StudySpec
from jestlab.platform.spec.tree import KIND
from jestlab.platform.spec.yaml import dump_inline

REQUIRED = "required"
"""Shown in place of the default of a key that must be given."""

COMMAND = "A command in any language. All keys except these are values for placeholders in the command."
"""The description of the config of `command`."""

SECTIONS: dict[str, type] = {
    "": StudySpec,
    "runs.<run>": RunSpec,
    "runs.<run>.match": Match,
    "axes.<n>": AxisSpec,
    "metrics.<name>": Metric,
    "claims.<n>": Claim,
    "claims.<n>.of": Side,
    "figure": Sheet,
    "record": Record,
    "resources": Resources,
    "resources.slurm": SlurmOptions,
    **{f"reports.{kind}": options for kind, options in REPORTS.items()},
}
"""Section of a spec → the class that validates it."""

_INTERNAL = ("overrides", KIND)
"""Fields of these classes that aren't listed as keys."""

_SIDE = "run, list of runs, or mapping of of, minus, measure"
_WRITTEN_AS = {
    "name": ("string", "the name of the file"),
    "seeds": ("number of replicates, list of seeds, or mapping of until, at_least, at_most, budget", "1"),
    "reports": ("list of kinds, or of mappings from a kind to its options", "[]"),
    "resources": ("mapping", "{}"),
    "resources.slurm": ("mapping", "{}"),
    "record": ("mapping", "{}"),
    "studies": ("list of names and files of studies, or mapping from names to specs", "{}"),
    "claims.<n>.of": (_SIDE, REQUIRED),
    **{f"claims.<n>.{comparison}": (_SIDE, "one of them is required") for comparison in COMPARISONS},
}
"""Key → type and default, for keys that a spec writes in another form than the class that validates them."""

_SPEC_IDENTITY = re.compile(
    r"base|program|runs|axes|seeds|runs\.<run>\.(program|needs|match(\.\w+)?)|axes\.<n>\.(runs|grid|zip|cases)"
)
"""Keys of a spec that are part of the identity of runs."""

_NOT_IDENTITY = {
    *(("data.train.path", kind) for kind in ("folder", "reader")),  # the content counts
    *(("data.train.examples", kind) for kind in ("folder", "reader")),
    ("data.benchmark.path", "folder"),
    *((name, "") for name in ("path", "tokenizer", "model")),  # of imported weights
}
"""Keys of configs outside `runtime` that aren't part of the identity, with the kind of their section."""


@dataclass(frozen=True)
class SpecKey:
    """One key of a spec or of a config.

    Attributes:
        path: Dotted path, with `<…>` in place of a name or a number: `selection.rule`, `runs.<run>.needs`.
            The path of a config key is relative to the config, such as `base` or a run.
        type: Type of the value that a spec writes.
        default: Default in YAML, or "required".
        meaning: One or several sentences.
        where: For a config key, the programs that have it; for an option of reports, the kind of report;
            otherwise "study".
        identity: Whether the key is part of the identity of runs.
        choices: The built-in values, if there are few.
        kind: The only `kind` of the section that has the key; empty if the section has no kinds.
    """

    path: str
    type: str
    default: str
    meaning: str
    where: tuple[str, ...]
    identity: bool
    choices: tuple[str, ...] = ()
    kind: str = ""

    @property
    def section(self) -> str:
        """The path without its last part."""
        return self.path.rpartition(".")[0]

    @property
    def description(self) -> str:
        """The meaning, after the `kind` that has the key, if any."""
        return f"If kind is {self.kind}: {self.meaning}" if self.kind else self.meaning


@functools.cache
def spec_keys() -> tuple[SpecKey, ...]:
    """Return all keys of a spec that aren't keys of configs."""
    keys = []
    for section, cls in SECTIONS.items():
        where = section.removeprefix("reports.") if section.startswith("reports.") else "study"
        for name, field in fields_of(cls).children.items():
            path = f"{section}.{name}".lstrip(".")
            type_, default = _WRITTEN_AS.get(path, (_type(field), _default(field)))
            about = (type_, default, field.description, (where,), bool(_SPEC_IDENTITY.fullmatch(path)))
            if name not in _INTERNAL:
                keys.append(SpecKey(path, *about, _choices(field)))
    return tuple(keys)


@functools.cache
def config_keys() -> tuple[SpecKey, ...]:
    """Return the config keys of jestlab's own programs, grouped by section, each with its programs."""
    programs: dict[SpecKey, tuple[str, ...]] = {}
    for name, program in builtin_programs().items():
        keys = [] if program.fields is None else list(_config_keys(program.fields))
        keys += (SpecKey(k, *of, (), k != program.folder_key) for k, of in program.free_keys.items())
        programs |= {key: (*programs.get(key, ()), name) for key in keys}
    found = [replace(key, where=where) for key, where in programs.items()]
    groups = list(dict.fromkeys(map(group, found)))
    return tuple(sorted(found, key=lambda key: groups.index(group(key))))


def _config_keys(section: Field, path: tuple[str, ...] = (), kind: str = "") -> Iterator[SpecKey]:
    """Yield the keys of a section of a config."""
    for name, field in section.parts(kind).items():
        here = (*path, name)
        if name == KIND and kind:
            continue  # listed once, for all kinds
        if field.children and not field.is_optional:
            if kinds := tuple(field.variants):
                texts = zip(kinds, field.sections, strict=True)
                meaning = " ".join(f"{each}: {model.get('description', '')}" for each, model in texts)
                about = (_either(kinds), str(field.default_kind), meaning, (), True, kinds)
                yield SpecKey(dotted((*here, KIND)), *about)
            for each in kinds or ("",):
                yield from _config_keys(field, here, each)
            continue
        decides = here[0] != "runtime" and (dotted(here), kind) not in _NOT_IDENTITY
        about = (_type(field), _default(field), field.description, (), decides, _choices(field))
        yield SpecKey(dotted(here), *about, kind)
        if field.items.children and here != ("code",):
            yield from _config_keys(field.items, (*here, "<name>"))


def group(key: SpecKey) -> str:
    """Return the heading of a key: its section, or the first program for a top-level key of configs."""
    return key.section or key.where[0]


# ---- types


_NOUNS = {"object": "mapping", "boolean": "true or false", None: "anything"}
_MARKS = {NAMES_A_RUN: "name of a run", IS_PATH: "path"}
_BOUNDS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}


def _type(field: Field) -> str:
    """Name the type of a field: "integer > 0", "list[string] or null"."""
    return _either(name for each in field.alternatives for name in _type_names(each, field))


def _type_names(schema: Mapping[str, Any], field: Field) -> Iterable[str]:
    type_ = schema.get("type")
    for mark, noun in _MARKS.items():
        if schema.get(mark):
            return [noun]
    if schema.get(NAMES_CODE) and type_ == "string":
        return [*schema.get("choices", ()), "module:function", "file.py:function"]
    if values := _values(schema):
        return values
    if type_ == "array":
        return [f"list[{_type(field.items)}]"]
    if type_ == "object" and isinstance(schema.get("additionalProperties"), dict):
        return [f"mapping[{_type(field.items)}]"]
    bounds = ", ".join(f"{sign} {schema[key]:.10g}" for key, sign in _BOUNDS.items() if key in schema)
    return [f"{_NOUNS.get(type_, type_)} {bounds}".strip()]


def _either(names: Iterable[str]) -> str:
    *others, last = dict.fromkeys(names)
    return f"{', '.join(others)} or {last}" if others else last


def _values(schema: Mapping[str, Any]) -> list[str]:
    constant = [schema["const"]] if "const" in schema else []
    return list(map(str, schema.get("choices") or schema.get("enum") or constant))


def _choices(field: Field) -> tuple[str, ...]:
    """List the valid values of a field, if there are few; without custom code."""
    return tuple(value for each in field.alternatives for value in _values(each))


def _default(field: Field) -> str:
    return REQUIRED if field.required else dump_inline(field.schema.get("default", {}))


# ---- finding keys

_CONFIG_AFTER = re.compile(r"(base|runs\.[^.]+|axes\.[^.]+\.(grid|zip|cases\.[^.]+))\.(?=.)")
"""Places in a spec below which keys of configs are written."""


def find(prefix: str = "") -> tuple[SpecKey, ...]:
    """Return the keys at or below a place, in the order of the reference: those of specs, then of configs.

    Args:
        prefix: `selection`, `selection.rule`, `claims.of`; also a place as in errors,
            `runs.joint.selection.rule` or `axes.0.grid.loss`; empty for all keys.

    Raises:
        UserError: The key is unknown. The message suggests the nearest one.
    """
    every = (*spec_keys(), *config_keys())
    if not (asked := prefix.strip(" .")):
        return every
    for place in (asked, _CONFIG_AFTER.sub("", asked, count=1)):
        parts = list(map(re.escape, place.split(".")))
        # The place may omit placeholders; if no key matches, it may have names in place of them.
        for pattern in (r"\.(?:<\w+>\.)?".join(parts), r"\.".join(rf"(?:{part}|<\w+>)" for part in parts)):
            beginning = re.compile(rf"{pattern}(?:\.|$)")
            if found := tuple(key for key in every if beginning.match(key.path)):
                return found
    paths = (re.sub(r"\.<\w+>", "", key.path).split(".") for key in every)
    known = {name for path in paths for name in accumulate(path, "{}.{}".format)}
    last = [name for name in known if name.rpartition(".")[2] == asked.rpartition(".")[2]]
    raise UserError(f"no key {prefix!r}: {nearest(asked, last or known)}")
