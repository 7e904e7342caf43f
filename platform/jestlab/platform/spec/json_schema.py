"""The JSON schema of specs, for completion and checks in editors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jestlab.platform.errors import UserError, nearest
from jestlab.platform.spec.fields import fields_of
from jestlab.platform.spec.keys import find
from jestlab.platform.spec.options import REPORTS
from jestlab.platform.spec.program import builtin_programs
from jestlab.platform.spec.schema import StudySpec

_DOTTED_KEYS: dict[str, Any] = {r"\.": {}}  # `model.vision.width`: valid, but a schema can't describe them


def spec_schema(program: str) -> dict[str, Any]:
    """Return the JSON schema of the specs of a program.

    Args:
        program: One of jestlab's own, which determines the keys of `base` and of runs.

    Raises:
        UserError: The program is unknown.
    """
    programs = builtin_programs()
    if program not in programs:
        raise UserError(f"no program {program!r}: {nearest(program, programs)}")
    model = programs[program].schema
    study: dict[str, Any] = _relaxed(fields_of(StudySpec).schema)
    config: dict[str, Any] = {"properties": _texts(programs[program].free_keys)}
    if model is not None:
        config = _relaxed(fields_of(model).schema)
    definitions = study["$defs"] | config.pop("$defs", {}) | {"Config": config}
    study = definitions.pop("StudySpec")
    for kind, options in REPORTS.items():
        report = _relaxed(fields_of(options).schema)
        definitions |= report.pop("$defs", {}) | {f"{kind}_report": report}
    keys = study["properties"]
    keys["base"] = {"$ref": "#/$defs/Config"}
    run = definitions["RunSpec"]
    own = {key: run["properties"][key]["description"] for key in ("program", "needs", "match", "label")}
    run["properties"] = _texts(own) | config["properties"]
    del run["additionalProperties"]  # a run of another program has other keys
    reports = {kind: {"$ref": f"#/$defs/{kind}_report"} for kind in REPORTS}
    by_kind = {"type": "object", "required": ["kind"]}
    in_short = {"type": "object", "properties": reports}
    keys["reports"] = _list_of({"anyOf": [{"enum": [*REPORTS]}, by_kind, in_short]})
    claim = {key.path.rpartition(".")[2]: key.meaning for key in find("claims") if key.path.count(".") == 2}
    keys["claims"] = _list_of({"type": "object", "properties": _texts(claim)})
    keys["axes"] = {"anyOf": [keys["axes"], {"type": "object"}]}
    keys["studies"] = {"description": keys["studies"]["description"]}
    study["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return study | {"$defs": definitions}


def _texts(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {"description": str(getattr(key, "meaning", key))} for name, key in keys.items()}


def _list_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [{"type": "array", "items": schema}, schema]}


def _relaxed(schema: Any) -> Any:
    """Copy a schema, and accept parts of a config, dotted keys, and single values in place of lists."""
    if isinstance(schema, list):
        return [_relaxed(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    relaxed = {
        key: _relaxed(each) for key, each in schema.items() if key not in ("required", "discriminator")
    }
    if isinstance(schema.get("properties"), Mapping):
        relaxed["patternProperties"] = _DOTTED_KEYS
    if relaxed.get("type") == "array" and "items" in relaxed:
        about = {key: relaxed.pop(key) for key in ("description", "default") if key in relaxed}
        return about | {"anyOf": [relaxed, relaxed["items"]]}
    return relaxed
