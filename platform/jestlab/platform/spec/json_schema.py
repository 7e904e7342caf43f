"""The JSON Schema of spec files, by which text editors complete and check specs.

It comes from the models that validate specs, and describes values as specs write them: partial configs,
dotted keys, one value in place of a list. Rules between several keys are left to `jestlab plan`.
"""

from __future__ import annotations

import json
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
_TEXT: Schema = {"type": "string"}
_LABEL: Schema = {"type": ["string", "number"]}
_WHOLE: Schema = {"type": "integer", "minimum": 0}
_CUSTOM: Schema = {"type": "string", "pattern": ".:."}  # a reference to custom code
_OBJECT: Schema = {"type": "object"}
_DOTTED = r"\."
_OMITTED = ("title", "discriminator", "choices", NAMES_CODE, NAMES_A_RUN, IS_PATH)
_ELEMENTS: Schema = {"type": "object", "patternProperties": {"^-?[0-9]+$": {}}, "additionalProperties": False}
"""Changes of elements of a list, by index."""


def spec_schema() -> Schema:
    """Return the JSON Schema of spec files, in draft-07, which all editors support."""
    programs = builtin_programs()
    models = [program.schema for program in programs.values() if program.schema is not None]
    definitions = {name: _written(each, True) for name, each in definitions_of(*models).items()}
    for name, program in programs.items():
        config = definitions[f"{name} config"] = _config(program, definitions)
        own: Schema = {key: {} for key in RUN_KEYS}
        definitions[f"{name} run"] = {**config, "properties": config["properties"] | own}
    definitions |= {name: _written(each) for name, each in definitions_of(StudySpec, Until, Family).items()}
    for model in dict.fromkeys(REPORTS.values()):
        definitions[model.__name__] = _report(definitions[model.__name__], definitions["Sheet"])
    _write_forms(definitions)
    study: Schema = definitions.pop("StudySpec")
    study["required"].remove("name")  # the name of the file by default
    study["allOf"] = [_of_program(name) for name in programs]
    return {"$schema": "http://json-schema.org/draft-07/schema#", **study, "$defs": definitions}


def spec_schema_text() -> str:
    """Return the JSON Schema of spec files as the content of a file."""
    return json.dumps(spec_schema(), ensure_ascii=False, separators=(",", ":")) + "\n"


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _any(*several: Schema) -> Schema:
    return {"anyOf": [*several]} if len(several) > 1 else several[0]


def _one_or_several(items: Schema) -> Schema:
    return _any(items, {"type": "array", "items": items})


def _choice(names: Iterable[str]) -> Schema:
    """Describe names that are built in or installed, or refer to custom code."""
    return _any({"enum": [*names]}, _CUSTOM)


def _mapping(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _written(schema: Mapping[str, Any], is_config: bool = False) -> Schema:
    """Copy a model's schema so that it describes values as specs write them.

    Args:
        schema: The schema.
        is_config: Whether it belongs to a config, which may be partial, and may have dotted keys. The other
            parts of a spec may have null in place of absent keys.
    """
    if kind := schema.get(NAMES_CODE):
        names = _choice((*schema.get("choices", ()), *extensions.installed(kind)))
        if schema["type"] == "string":
            return {key: schema[key] for key in ("description", "default") if key in schema} | names
        schema = {**schema, "additionalProperties": _any(names, schema["additionalProperties"])}
    written: Schema = {}
    for key, value in schema.items():
        if key == "properties":
            written[key] = {name: _written(each, is_config) for name, each in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, Mapping):
            written[key] = _written(value, is_config)
        elif key in ("anyOf", "oneOf"):
            written["anyOf"] = [_written(each, is_config) for each in value]
        elif not (key in _OMITTED or (key == "required" and is_config) or (key, value) == ("default", {})):
            written[key] = value
    has_models = isinstance(schema.get("additionalProperties"), Mapping)
    if is_config and ("properties" in written or has_models):
        written["patternProperties"] = {_DOTTED: {}}
    elif "properties" in written:
        for name, each in written["properties"].items():
            about = {"description": each.pop("description")} if "description" in each else {}
            written["properties"][name] = about | _any(each, _NULL)
    if written.get("type") != "array":
        return written
    items = written.pop("items", {})
    about = {"description": written["description"]} if "description" in written else {}
    return about | _any(items, {"type": "array", "items": items}, *([_ELEMENTS] * is_config))


# ---- configs


def _config(program: ProgramConfig, definitions: Schema) -> Schema:
    """Describe a partial config of a program, with dotted keys."""
    if program.schema is None:
        texts = {name: {"description": key.meaning} for name, key in program.free_keys.items()}
        return {"type": ["object", "null"], "properties": texts}
    config: Schema = definitions[program.schema.__name__]
    keys: dict[str, list[Schema]] = {}
    patterns: Schema = {}
    for path, reference, schema in _below(_ref(program.schema.__name__), definitions):
        keys.setdefault(path, []).append(reference)
        if any(each.get("type") == "object" for each in schema.get("anyOf", [schema])):
            patterns[f"^{path}.".replace(".", r"\.")] = {}  # below lists and mappings with any keys
    several = {path: _any(*references) for path, references in keys.items() if "." in path}
    properties = {**config["properties"], **several}
    return {**config, "type": ["object", "null"], "properties": properties, "patternProperties": patterns}


def _below(schema: Schema, definitions: Schema, path: str = "") -> Iterator[tuple[str, Schema, Schema]]:
    """Yield the dotted path of each key below a section, of all kinds; a reference to it; and its schema."""
    for each in schema.get("anyOf", [schema]):
        name = each.get("$ref", "").rpartition("/")[2]
        for key, below in definitions.get(name, {}).get("properties", {}).items():
            yield f"{path}{key}", _ref(f"{name}/properties/{key}"), below
            yield from _below(below, definitions, f"{path}{key}.")


# ---- the rest of a spec


def _of_program(name: str) -> Schema:
    """Describe studies with a program, in which a run may name another one."""
    run = {"if": {"properties": {"program": _NULL}}, "then": _ref(f"{name} run")}
    then = {"base": _ref(f"{name} config"), "runs": _mapping(run)}
    return _if_program(name, {"properties": then}, name == StudySpec.model_fields["program"].default)


def _if_program(name: str, then: Schema, is_default: bool = False) -> Schema:
    names = {"properties": {"program": {"enum": [name, None] if is_default else [name]}}}
    return {"if": names if is_default else {**names, "required": ["program"]}, "then": then}


def _report(model: Schema, sheet: Schema) -> Schema:
    """Describe the options of a kind of report. Those of `figure` may be written flat."""
    flat = {
        key: _ref(f"Sheet/properties/{key}") for key in sheet["properties"] if "figure" in model["properties"]
    }
    required = [key for key in model["required"] if key != KIND]
    options = {**model["properties"], **flat, KIND: {}}
    return {**model, "properties": options, "patternProperties": {_DOTTED: {}}, "required": required}


def _reports() -> Schema:
    """Describe the reports of a study: names of kinds, `{KIND: {…}}`, or `{kind: KIND, …}`."""
    reports = {name: _ref(model.__name__) for name, model in REPORTS.items()}
    custom = extensions.installed("figure")
    kind = _choice((*REPORTS, *custom))
    conditions = [{"if": {"properties": {KIND: {"const": name}}}, "then": reports[name]} for name in REPORTS]
    flat = {"type": "object", "properties": {KIND: kind}, "required": [KIND], "allOf": conditions}
    nested = {
        "type": "object",
        "properties": reports | dict.fromkeys(custom, _OBJECT),
        "patternProperties": {_CUSTOM["pattern"]: _OBJECT},
        "additionalProperties": False,
        "maxProperties": 1,
    }
    return _any({"type": "array", "items": _any(kind, flat, nested)}, kind)


def _write_forms(definitions: Schema) -> None:
    """Describe the keys that specs write in several forms, and the programs of runs."""
    names, texts = _choice(builtin_programs()), {"type": "array", "items": _TEXT}
    several_axes = _one_or_several({**definitions["AxisSpec"], "required": []})
    columns = _mapping({"type": ["array", "object"]})
    forms: dict[str, dict[str, tuple[Schema, ...]]] = {
        "StudySpec": {
            "program": (names,),
            "seeds": (_WHOLE, {"type": "array", "items": _WHOLE}, _ref("Until")),
            "axes": ({"type": "array", "items": _ref("AxisSpec")}, _mapping(several_axes)),
            "claims": ({"type": "array", "items": _ref("Claim")},),
            "family": ({"const": "none"}, _ref("Family")),
            "reports": (_reports(),),
            "studies": (texts, _mapping({"$ref": "#"})),
        },
        "RunSpec": {"program": (names,), "needs": (_TEXT, texts, _mapping(_TEXT)), "label": (_LABEL,)},
        "AxisSpec": {"grid": (columns,), "zip": (columns,), "labels": (_mapping(_mapping(_LABEL)),)},
        "Sheet": {key: (_TEXT, {"const": False}) for key in ("title", "caption")},
    }
    for name, keys in forms.items():
        for key, several in keys.items():
            about = definitions[name]["properties"][key]["description"]
            definitions[name]["properties"][key] = {"description": about, **_any(*several, _NULL)}
    definitions["Side"] = _any(_TEXT, texts, definitions["Side"])
    run = definitions["RunSpec"]
    del run["properties"]["overrides"], run["additionalProperties"]
    run["type"] = ["object", "null"]
    run["allOf"] = [_if_program(name, _ref(f"{name} run")) for name in builtin_programs()]
