"""What configs share: frozen sections, identities, types of fields, names of rules, criteria, and losses."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveInt
from pydantic_core import CoreSchema, core_schema

from jestlab.models import extensions
from jestlab.models.extensions import Kind, check_name

ELSEWHERE = {"elsewhere": True}
"""Validation context of configs that another machine planned: their custom code may be missing here."""


def run_of(*programs: str) -> Any:
    """Declare the name of another run of the study, which has one of these programs and runs first.

    In identities, the run's fingerprint replaces the name.
    """
    return Field(min_length=1, json_schema_extra={"names_a_run": [*programs]})


TowersName = Annotated[str, run_of("train", "weights")]
ReferenceName = Annotated[str, run_of("train", "weights", "embed")]  # `embed` has cached a reference
EmbeddingsName = Annotated[str, run_of("embed")]
ScoresName = Annotated[str, run_of("score")]

LocalPath = Annotated[str, Field(min_length=1, json_schema_extra={"is_path": True})]
"""A file or folder. In a YAML spec, a relative path starts at the folder of the spec."""

Seed = Annotated[int, Field(ge=0, lt=2**32)]
"""JAX makes keys from 32 bits of a seed: larger seeds would repeat earlier ones."""

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """A frozen part of a config; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class LoaderRuntime(Section):
    """How to read data. Not part of a run's identity.

    Attributes:
        loader_threads: Number of threads that read and decode examples.
        damaged_share: Largest share of damaged examples; the run fails if more are damaged.
    """

    loader_threads: PositiveInt = 1
    damaged_share: Fraction = 0.01


class RunConfig(Section):
    """The whole config of a run. `version` increases when a default or its meaning changes."""

    version: ClassVar[int] = 1

    def identity(self) -> dict[str, Any]:
        """Return the part of the config that determines the result, as plain data.

        Fields at their default and fields without effect are left out. Data and custom code are identified
        by their content, not by their location.
        """
        identity = self._plain()
        for path in self._inert():
            *heads, last = path.split(".")
            section = identity
            for head in heads:
                section = section.get(head, {})
            section.pop(last, None)
        return {key: value for key, value in identity.items() if value != {}}

    def _plain(self) -> dict[str, Any]:
        """Return all fields that aren't at their default, as plain data."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def _inert(self) -> Iterable[str]:
        """Return the dotted paths of fields that have no effect on the result."""
        return ()


# ---- custom code


class FrozenOptions(dict[str, Any]):
    """Options as plain data. They can be hashed, like the sections of a config."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(json.dumps(self, sort_keys=True))


Options = Annotated[dict[str, Any], AfterValidator(FrozenOptions)]
"""Keyword arguments of custom code, as plain data."""

NO_OPTIONS = FrozenOptions()


@dataclass(frozen=True)
class NamesCode:
    """Marks a text field whose value is the name of a built-in or of custom code.

    The field `<name>_options` or `options` of the same section has the keyword arguments of the code.
    """

    kind: Kind
    builtin: Collection[str] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        def check(name: str, info: core_schema.ValidationInfo) -> str:
            return name if info.context == ELSEWHERE else check_name(self.kind, name, [*self.builtin])

        return core_schema.with_info_after_validator_function(check, core_schema.str_schema(min_length=1))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        return {**handler(schema), "names_code": self.kind, "choices": [*self.builtin]}


class Code(Section):
    """Custom code when the run was planned: its digest, and the arguments of `extensions.GIVEN` that it takes
    (None if unknown)."""

    digest: str
    uses: tuple[str, ...] | None = None


_INPUTS: dict[Kind, dict[str, tuple[str, ...]]] = {
    "rule": {"uniform": (), **dict.fromkeys(("independent", "joint", "greedy", "gibbs"), ("batch",))},
    "criterion": {
        "learnability": ("learner", "reference"),
        "easy_reference": ("reference",),
        "hard_learner": ("learner",),
    },
    "loss": {"sigmoid": ("z",), "softmax": ("z",)},
}
"""The inputs of built-in code, out of `extensions.GIVEN`."""

RULES, CRITERIA, LOSSES = _INPUTS["rule"], _INPUTS["criterion"], _INPUTS["loss"]

ScoringLoss = Literal["sigmoid", "softmax"]  # the losses that selection can score pairs by
SCORING_LOSSES: tuple[ScoringLoss, ...] = get_args(ScoringLoss)


def takes(code: Mapping[str, Code], kind: Kind, name: str, input: str) -> bool:
    """Whether a rule, criterion, or loss takes an input, out of `extensions.GIVEN`; true if unknown.

    `code` is the planned custom code by name; the source of other custom code is read.
    """
    inputs: Collection[str] | None = _INPUTS[kind].get(name)
    if inputs is None:
        inputs = code[name].uses if name in code else extensions.uses(kind, name)
    return inputs is None or input in inputs


class Extension(NamedTuple):
    """Custom code that a config names in the field at `path`, and its keyword arguments at `options_path`."""

    path: tuple[str, ...]
    kind: Kind
    name: str
    options: Mapping[str, Any]
    options_path: tuple[str, ...]


def custom_code(section: Section, path: tuple[str, ...] = ()) -> Iterator[Extension]:
    """Yield the custom code that a section and its parts name; `path` is the path of the section."""
    for name, field in type(section).model_fields.items():
        if name not in section.model_fields_set:  # defaults don't name custom code
            continue
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from custom_code(value, (*path, name))
        for key, part in value.items() if isinstance(value, dict) else ():
            if isinstance(part, Section):
                yield from custom_code(part, (*path, name, key))
        for mark in field.metadata:
            if isinstance(mark, NamesCode) and value not in mark.builtin:
                options = f"{name}_options" if hasattr(section, f"{name}_options") else "options"
                given = getattr(section, options, NO_OPTIONS)  # a diagnosis has no options of its loss
                yield Extension((*path, name), mark.kind, value, given, (*path, options))
