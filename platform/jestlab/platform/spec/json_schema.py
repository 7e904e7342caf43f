"""The JSON Schema of spec files, by which text editors complete and check specs.

It comes from the models that validate specs, and describes values as specs write them: partial configs,
dotted keys, one value in place of a list. Rules between several keys are left to `jestlab plan`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jestlab.analysis.claims import Family, Until
from jestlab.models import extensions
from jestlab.platform.spec.fields import IS_PATH, NAMES_A_RUN, NAMES_CODE, definitions_of
from jestlab.platform.spec.options import REPORTS
from jestlab.platform.spec.program import ProgramConfig, builtin_programs
from jestlab.platform.spec.runs import RUN_KEYS
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.spec.tree import KIND

Schema = dict[str, Any]

_NULL: Schema = {"type": "null"}
_OBJECT: Schema = {"type": "object"}
_ELEMENTS: Schema = {"type": "object", "patternProperties": {"^-?[0-9]+$": {}}, "additionalProperties": False}
"""Changes of elements of a list, by index."""

_CUSTOM = ".:."  # pattern of a reference to custom code
_DOTTED = r"\."
_OMITTED = ("title", "required", "discriminator", "choices", NAMES_CODE, NAMES_A_RUN, IS_PATH)


def spec_schema() -> Schema:
    """Return the JSON Schema of spec files, in draft-07, which all editors support."""
    programs = builtin_programs()
    configs = [program.schema for program in programs.values() if program.schema is not None]
    definitions: Schema = {
        name: _relaxed(schema) for name, schema in definitions_of(StudySpec, Until, Family, *configs).items()
    }
    for name, forms in _forms().items():
        keys = definitions[name]["properties"]
        keys |= {key: _any(*several, _NULL, about=keys[key]) for key, several in forms.items()}
    for model in REPORTS.values():
        options = definitions[model.__name__]["properties"]
        if "figure" in options:  # whose options may also be written without it
            options |= {key: _ref(f"Sheet/properties/{key}") for key in definitions["Sheet"]["properties"]}
    definitions["Side"] = _any({"type": ["string", "array"]}, definitions["Side"])
    for name, program in programs.items():
        config = definitions[f"{name} config"] = _config(program, definitions)
        keys = config["properties"] | {key: {} for key in RUN_KEYS}
        definitions[f"{name} run"] = {**config, "properties": keys}
    run, study = definitions["RunSpec"], definitions.pop("StudySpec")
    del run["properties"]["overrides"], run["additionalProperties"]
    run["type"] = ["object", "null"]
    run["allOf"] = [_if_program([name], _ref(f"{name} run")) for name in programs]
    study["allOf"] = [_of_program(name) for name in programs]
    return {"$schema": "http://json-schema.org/draft-07/schema#", **study, "$defs": definitions}


def spec_schema_text() -> str:
    """Return the JSON Schema of spec files as the content of a file."""
    return json.dumps(spec_schema(), ensure_ascii=False, separators=(",", ":")) + "\n"


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _any(*several: Schema, about: Mapping[str, Any] = _NULL) -> Schema:
    """Describe a value that may have several forms, with the description and default of another schema."""
    kept = {key: about[key] for key in ("description", "default") if key in about}
    return kept | {"anyOf": [form for each in several for form in each.get("anyOf", [each])]}


def _one_or_several(items: Schema) -> Schema:
    return _any(items, {"type": "array", "items": items})


def _choice(names: Iterable[str]) -> Schema:
    """Describe names that are built in or installed, or refer to custom code."""
    return _any({"enum": [*names]}, {"type": "string", "pattern": _CUSTOM})


def _mapping(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _relaxed(schema: Mapping[str, Any]) -> Schema:
    """Copy a schema so that it accepts partial sections, dotted keys, null, and one value for a list."""
    relaxed = {key: value for key, value in schema.items() if key not in _OMITTED}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            relaxed[key] = _relaxed(schema[key])
    if kind := schema.get(NAMES_CODE):
        names = _choice((*schema.get("choices", ()), *extensions.installed(kind)))
        if schema["type"] == "string":
            return _any(names, about=schema)
        relaxed["additionalProperties"] = _any(names, relaxed["additionalProperties"])
    if several := relaxed.pop("oneOf", None) or relaxed.pop("anyOf", None):
        return _any(*map(_relaxed, several), about=schema)
    if schema.get("type") == "array":
        return _any(_one_or_several(relaxed.get("items", {})), _ELEMENTS, about=schema)
    if "properties" in schema:
        keys = {key: _relaxed(each) for key, each in schema["properties"].items()}
        relaxed["properties"] = {key: _any(each, _NULL, about=each) for key, each in keys.items()}
    if "properties" in schema or isinstance(schema.get("additionalProperties"), Mapping):
        relaxed["patternProperties"] = {_DOTTED: {}}
    return relaxed


def _config(program: ProgramConfig, definitions: Schema) -> Schema:
    """Describe a partial config of a program, with dotted keys."""
    if program.schema is None:
        texts = {name: {"description": key.meaning} for name, key in program.free_keys.items()}
        return {"type": ["object", "null"], "properties": texts}
    config = definitions[program.schema.__name__]
    keys = dict(config["properties"])
    patterns: Schema = {}
    for path, key, schema in _below(_ref(program.schema.__name__), definitions):
        if "." in path:
            keys[path] = _any(_ref(key), *([keys[path]] if path in keys else []))
        if any(form.get("type") == "object" for form in schema["anyOf"]):
            patterns[f"^{re.escape(path)}{_DOTTED}"] = {}  # below lists and mappings with any keys
    return {**config, "type": ["object", "null"], "properties": keys, "patternProperties": patterns}


def _below(schema: Schema, definitions: Schema, path: str = "") -> Iterator[tuple[str, str, Schema]]:
    """Yield the dotted path of each key below a section, of all kinds; its definition's name; its schema."""
    for form in schema.get("anyOf", [schema]):
        name = form.get("$ref", "").rpartition("/")[2]
        for key, below in definitions.get(name, {}).get("properties", {}).items():
            yield f"{path}{key}", f"{name}/properties/{key}", below
            yield from _below(below, definitions, f"{path}{key}.")


def _of_program(name: str) -> Schema:
    """Describe studies with a program, in which a run may name another one."""
    run = {"if": {"properties": {"program": _NULL}}, "then": _ref(f"{name} run")}
    then = {"properties": {"base": _ref(f"{name} config"), "runs": _mapping(run)}}
    is_default = name == StudySpec.model_fields["program"].default
    return _if_program([name, None], then, []) if is_default else _if_program([name], then)


def _if_program(names: list[str | None], then: Schema, required: Iterable[str] = ("program",)) -> Schema:
    condition = {"properties": {"program": {"enum": names}}, "required": [*required]}
    return {"if": condition, "then": then}


def _forms() -> dict[str, dict[str, tuple[Schema, ...]]]:
    """Return the keys that specs may write in other forms than the models have: model → key → forms."""
    names, axes = _choice(builtin_programs()), _one_or_several(_ref("AxisSpec"))
    custom = extensions.installed("figure")
    by_kind = {
        "type": "object",
        "properties": {name: _ref(model.__name__) for name, model in REPORTS.items()},
        "patternProperties": {_CUSTOM: _OBJECT, **{f"^{re.escape(name)}$": _OBJECT for name in custom}},
        "additionalProperties": False,
    }
    custom_kind = {"type": "object", "properties": {KIND: _choice(custom)}, "required": [KIND]}
    models = [_ref(model.__name__) for model in dict.fromkeys(REPORTS.values())]
    report = _any(_choice((*REPORTS, *custom)), by_kind, custom_kind, *models)
    return {
        "StudySpec": {
            "program": (names,),
            "seeds": ({"type": ["integer", "array"]}, _ref("Until")),
            "axes": (axes, _mapping(axes)),
            "family": ({"const": "none"}, _ref("Family")),
            "reports": (_one_or_several(report),),
            "studies": (_one_or_several({"type": "string"}), _mapping({"$ref": "#"})),
        },
        "RunSpec": {
            "program": (names,),
            "needs": ({"type": ["string", "array", "object"]},),
            "label": ({"type": ["string", "number"]},),
        },
        "AxisSpec": {"labels": (_mapping(_mapping({"type": ["string", "number"]})),)},
        "Sheet": {key: ({"type": "string"}, {"const": False}) for key in ("title", "caption")},
    }
