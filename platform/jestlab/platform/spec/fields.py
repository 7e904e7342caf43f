"""Describe the fields of configs, by the JSON schemas of their pydantic models, and validate configs."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from pydantic import AfterValidator, BaseModel, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind, models_json_schema

from jestlab.platform.errors import (
    Mistakes,
    Path,
    SpecError,
    choices,
    dotted,
    kind_of,
    nearest,
    no_string,
    shown,
)
from jestlab.platform.spec.tree import KIND, Tree, parts_of

Model = TypeVar("Model", bound=BaseModel)
JsonSchema = Mapping[str, Any]

NAMES_A_RUN = "names_a_run"
"""Marks a field whose value is the name of another run, with the programs that the run may have:
`Field(json_schema_extra={NAMES_A_RUN: ["train"]})`."""

IS_PATH = "is_path"
"""Marks a field whose value is a path, by True."""

NAMES_CODE = "names_code"
"""Marks a field whose value may be a reference to custom code, with the kind of code."""

_INDEX = re.compile("-?[0-9]+")
_UNKNOWN = object()
_ATTRIBUTE = re.compile(r"^ {4}(\w+): *(.*(?:\n {5}.*)*)", re.MULTILINE)


# ---- JSON schemas


class _Described(GenerateJsonSchema):
    """Adds descriptions from docstrings: of a class, the first paragraph; of its fields, `Attributes:`."""

    # Defaults that aren't JSON are left out.
    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def model_schema(self, schema: Any) -> dict[str, Any]:
        """Generate the schema of a model."""
        return _described(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        """Generate the schema of a dataclass."""
        return _described(super().dataclass_schema(schema), schema["cls"])


def _described(schema: dict[str, Any], cls: type) -> dict[str, Any]:
    for base in cls.__mro__:
        section = inspect.cleandoc(base.__dict__.get("__doc__") or "").partition("\nAttributes:\n")[2]
        for name, text in _ATTRIBUTE.findall(re.split(r"\n(?=\S)", section)[0]):
            schema.get("properties", {}).get(name, {}).setdefault("description", " ".join(text.split()))
    introduction = (cls.__doc__ or "").strip().split("\n\n")[0]
    return {**schema, "description": " ".join(introduction.split())}


@dataclass(frozen=True)
class Field:
    """One field of a config, or a whole config.

    Attributes:
        schema: JSON schema of the field.
        definitions: The schemas that `$ref` refers to.
        required: Whether the field has no default.
    """

    schema: JsonSchema
    definitions: JsonSchema
    required: bool = False

    @cached_property
    def alternatives(self) -> tuple[JsonSchema, ...]:
        """The schemas of the types that a value may have, with each `$ref` resolved."""
        return tuple(_alternatives(self.schema, self.definitions))

    @cached_property
    def sections(self) -> tuple[JsonSchema, ...]:
        """The alternatives that are sections: models with fields."""
        return tuple(each for each in self.alternatives if "properties" in each)

    @cached_property
    def variants(self) -> Mapping[str, Mapping[str, Field]]:
        """Kind → its fields; empty unless this is a section with several kinds."""
        if len(self.sections) < 2:
            return {}
        kinds = [each["properties"].get(KIND, {}) for each in self.sections]
        return {
            value: self._fields(section)
            for section, kind in zip(self.sections, kinds, strict=True)
            for value in kind.get("enum", [kind.get("const")])
        }

    @cached_property
    def children(self) -> Mapping[str, Field]:
        """The fields of the section, from all of its kinds; empty if this isn't a section."""
        return {name: field for each in self.sections for name, field in self._fields(each).items()}

    @property
    def description(self) -> str:
        """The description of the field."""
        return str(self.schema.get("description", ""))

    @property
    def is_optional(self) -> bool:
        """Whether a value may be null."""
        return any(each.get("type") == "null" for each in self.alternatives)

    @property
    def default_kind(self) -> str | None:
        """The `kind` that applies if a section doesn't set it."""
        default = self.schema.get("default")
        return default.get(KIND) if isinstance(default, dict) else None

    @cached_property
    def items(self) -> Field:
        """A field that describes each element of a list, or each value of a mapping from names."""
        keys = ("items", "additionalProperties")
        found = (each[key] for each in self.alternatives for key in keys if isinstance(each.get(key), dict))
        return Field(next(found, {}), self.definitions)

    def parts(self, kind: object) -> Mapping[str, Field]:
        """Return the section's fields for a `kind`; those of all kinds if the kind is unknown."""
        return self.variants.get(kind, self.children) if isinstance(kind, str) else self.children

    def walk(self, path: Path = ()) -> Iterator[tuple[Path, Field]]:
        """Yield all fields below this one, with their paths."""
        for name, field in self.children.items():
            yield (*path, name), field
            yield from field.walk((*path, name))

    def _fields(self, section: JsonSchema) -> dict[str, Field]:
        required = section.get("required", ())
        return {
            name: Field(schema, self.definitions, name in required)
            for name, schema in section["properties"].items()
        }


def _alternatives(schema: JsonSchema, definitions: JsonSchema) -> Iterator[JsonSchema]:
    if "$ref" in schema:
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **schema}
        del schema["$ref"]
    if several := schema.get("anyOf") or schema.get("oneOf"):
        for each in several:
            yield from _alternatives(each, definitions)
    elif isinstance(types := schema.get("type"), list):
        yield from ({**schema, "type": each} for each in types)
    else:
        yield schema


@functools.cache
def fields_of(model: type) -> Field:
    """Return a model or a dataclass as a field, with its fields as children."""
    schema = TypeAdapter(model).json_schema(schema_generator=_Described)
    return Field(schema, schema.get("$defs", {}))


def definitions_of(*models: type) -> JsonSchema:
    """Return the JSON schemas of models, and of the models in them, by the names of their classes."""
    _, schema = models_json_schema([(each, "validation") for each in models], schema_generator=_Described)
    definitions: JsonSchema = schema["$defs"]
    return definitions


@functools.cache
def marked(model: type[BaseModel] | None, mark: str) -> Mapping[Path, Any]:
    """Map the paths of the fields with a mark, `NAMES_A_RUN`, `IS_PATH`, or `NAMES_CODE`, to its values."""
    fields = fields_of(model).walk() if model else ()
    return {path: each[mark] for path, field in fields for each in field.alternatives if each.get(mark)}


# ---- merging


def merge(beneath: Tree, above: Tree, section: Field | None = None, path: Path = ()) -> Tree:
    """Merge one tree over another into a new tree.

    Two mappings at the same place are merged. A mapping with a different `kind` replaces the one beneath,
    because the keys of one kind don't apply to another. Numbers as keys (`lst.0`) set elements of a list.

    Args:
        beneath: The tree with the lower priority.
        above: The tree with the higher priority.
        section: The config's fields, which determine the default `kind`.
        path: The place of both trees, for errors.

    Raises:
        SpecError: A number as a key is too large for the list.
    """
    merged = dict(beneath)
    for key, value in above.items():
        under, here = merged.get(key), (*path, key)
        field = section.children.get(key) if section else None
        if isinstance(value, dict) and isinstance(under, dict) and not _changes_kind(under, value, field):
            merged[key] = merge(under, value, field, here)
        elif isinstance(value, dict) and isinstance(under, list) and any(map(_INDEX.fullmatch, value)):
            elements = parts_of(under)
            for index in sorted(value.keys() - elements.keys()):
                raise SpecError((*here, index), f"no such element: there are {len(under)}, counted from 0")
            merged[key] = [*merge(elements, value, None, here).values()]
        else:
            merged[key] = value
    return merged


def _changes_kind(under: Tree, value: Tree, field: Field | None) -> bool:
    beneath = under.get(KIND, field.default_kind if field else None)
    return KIND in value and beneath is not None and value[KIND] != beneath


# ---- validation


def checked(parse: Callable[[Any], object]) -> AfterValidator:
    """Return a validator that accepts the values that a function can parse, and doesn't change them."""

    def check(given: Any) -> Any:
        parse(given)
        return given

    return AfterValidator(check)


def validated(model: type[Model], given: Any) -> Model:
    """Validate data by a model, and return the instance.

    Raises:
        SpecError: All mistakes, with their places in the data.
    """
    mistakes = Mistakes()
    try:
        result = model.model_validate(given)
        mistakes.add(_conversion_errors(given, result, ()))
    except ValidationError as error:
        mistakes.add(_errors_of(error, given, fields_of(model)))
    mistakes.check()
    return result


def unknown_keys(tree: Tree, section: Field, path: Path = ()) -> Iterator[SpecError]:
    """Yield an error for each key of a partial config that its model doesn't have."""
    parts = section.parts(tree.get(KIND))
    for key, value in tree.items():
        if key not in parts:
            yield SpecError((*path, key), _unknown_key(key, section, tree.get(KIND), section))
        elif isinstance(value, dict) and parts[key].children:
            yield from unknown_keys(value, parts[key], (*path, key))


def _conversion_errors(given: Any, result: Any, path: Path) -> Iterator[SpecError]:
    """Yield an error for each value that pydantic converted to a type with another meaning.

    For example, pydantic converts `chunks: true` to 1, and `seed: '3'` to 3.
    """
    if given is result:
        return
    if isinstance(given, Mapping):
        for key, value in given.items():
            found = result.get(key) if isinstance(result, Mapping) else getattr(result, str(key), None)
            yield from _conversion_errors(value, found, (*path, str(key)))
    elif isinstance(given, list | tuple) and isinstance(result, list | tuple):
        for index, (value, found) in enumerate(zip(given, result, strict=False)):
            yield from _conversion_errors(value, found, (*path, str(index)))
    elif isinstance(given, bool | str) or isinstance(result, bool):
        is_other = isinstance(result, bool | int | float) and type(given) is not type(result)
        if is_other and isinstance(given, bool | int | float | str):
            what = "true or false" if isinstance(result, bool) else "a number"
            yield SpecError(path, f"must be {what}, not {shown(given)} ({kind_of(given)})")


def _errors_of(error: ValidationError, given: Any, root: Field) -> Iterator[SpecError]:
    for details in error.errors(include_url=False):
        path, section, kind = _located(details, given, root)
        own = details.get("ctx", {}).get("error")
        if isinstance(own, SpecError):
            yield from (SpecError((*path, *each.path), each.message) for each in own.errors)
        elif details["type"] != "too_short" or len(details["input"]) < details["ctx"]["min_length"]:
            yield SpecError(path, _message(details, section, kind, root))


def _located(details: Mapping[str, Any], given: Any, root: Field) -> tuple[Path, Field, Any]:
    """Convert the location of a pydantic error to a path in the data.

    The location may also name members of union types and `[key]`; the path omits them.

    Returns:
        The place, the section that its last part belongs to, and the `kind` of that section.
    """
    path: list[str] = []
    section, field, kind = root, root, None
    missing = len(details["loc"]) - 1 if details["type"] == "missing" else None
    for depth, part in enumerate(details["loc"]):
        is_key = isinstance(part, int) or given is _UNKNOWN or part in parts_of(given) or depth == missing
        if part == "[key]" or not is_key:
            continue
        path.append(str(part))
        kind = parts_of(given).get(KIND)
        section, field = field, field.parts(kind).get(str(part)) or field.items
        given = parts_of(given).get(str(part), _UNKNOWN)
    return tuple(path), section, kind


def _message(details: Mapping[str, Any], section: Field, kind: Any, root: Field) -> str:
    """Write the message of a pydantic error, with the invalid value and the nearest valid key or value."""
    type_, given, context = details["type"], details["input"], details.get("ctx", {})
    if type_ in ("extra_forbidden", "unexpected_keyword_argument"):
        return _unknown_key(str(details["loc"][-1]), section, kind, root)
    if type_ == "missing":
        return "is missing"
    if type_ == "value_error":
        return str(context["error"])
    if type_ in ("literal_error", "enum"):
        valid = re.findall("'([^']*)'", context["expected"])
        return f"{shown(given)} is not valid: {choices(given, valid)}"
    if type_ == "union_tag_invalid":
        valid = re.findall("'([^']*)'", context["expected_tags"])
        return f"unknown kind {context['tag']!r}: {choices(context['tag'], valid)}"
    if type_ in ("model_type", "model_attributes_type", "dataclass_type", "dict_type"):
        return f"must be a mapping, not {shown(given)}"
    expected = re.sub(r", (unable to |got a number).*$| after validation.*$", "", details["msg"])
    expected = re.sub(r"^\w+ should", "must", expected).replace("valid tuple", "list")
    expected = expected.replace("a valid boolean", "true or false")
    by_type = f" ({kind_of(given)})" if "type" in type_ or "parsing" in type_ else ""
    return f"{expected}, not {no_string(given) if type_ == 'string_type' else shown(given) + by_type}"


def _unknown_key(key: str, section: Field, kind: Any, root: Field) -> str:
    """Describe an unknown key, and suggest the nearest valid key or the kind that has this key."""
    if others := [other for other, parts in section.variants.items() if key in parts]:
        return f"not valid for {KIND} {kind} (belongs to {' and '.join(others)}): set {KIND} as well"
    hint = nearest(key, section.parts(kind))
    if not hint.startswith("did you mean"):
        elsewhere = (dotted(path) for path, _ in root.walk() if path[-1] == key and len(path) > 1)
        hint = next((f"did you mean {found!r}?" for found in elsewhere), hint)
    return f"unknown key: {hint}"
