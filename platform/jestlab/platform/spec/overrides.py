"""Overrides: changes to a spec from the command line, `--set path=value`."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from jestlab.platform.errors import Path, SpecError, dotted, nearest, shown, within
from jestlab.platform.spec.axes import LABELS, AxisSpec
from jestlab.platform.spec.fields import Field, merge, unknown_keys, validated
from jestlab.platform.spec.runs import RUN_KEYS
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.spec.tree import (
    KIND,
    STUDIES,
    Tree,
    depth_of,
    has,
    is_mapping,
    lookup,
    nested,
    parts_of,
    plain,
)
from jestlab.platform.spec.yaml import value_of

_STUDY_ONLY_KEYS = ("program", "runs", "axes")  # keys that only the studies of a union have


def parse(text: str) -> tuple[Path, Any]:
    """Parse a path and a YAML value from `base.schedule.examples_seen=9600`.

    Raises:
        SpecError: The path, the `=`, or the value is missing, or the value isn't valid YAML.
    """
    where, equals, value = text.partition("=")
    path = tuple(where.strip().split("."))
    if not equals or not all(path):
        raise SpecError((), f"invalid override {shown(text)}: expected path=value, as in --set seeds=5")
    if not value.strip():
        raise SpecError(path, "has no value: write null for none, '' for an empty string")
    try:
        return path, value_of(value)
    except SpecError as error:
        raise SpecError(
            path, f"{shown(value)}: {error.message}; put strings with special characters in quotes"
        ) from None


def apply(study: StudySpec, overrides: Sequence[tuple[Path, Any]]) -> StudySpec:
    """Apply overrides to a study.

    Args:
        study: The study.
        overrides: Paths from the root of the spec (`base.a.b`, `runs.<name>.a.b`, `runs.<name>.needs`,
            `seeds`, `axes.<n>.grid.<key>`, `reports.<n>.baseline`, …) and values. If a path occurs twice, the
            last value wins. In a union, `studies.<name>.` before a path selects a part. Without it, `seeds`,
            `resources`, and `record` change every part, and `base` each part whose program has the key.

    Returns:
        A new, validated study. `expand` validates its configs.

    Raises:
        SpecError: A path is unknown, a value is invalid, or an override of a run sets a key of its axis.
    """
    # Kinds first: setting a kind removes the keys of the previous one.
    for path, value in sorted(overrides, key=lambda override: override[0][-1] != KIND):
        written = study.to_dict()
        (_set_in_union if study.studies else _set)(study, written, path, value)
        study = StudySpec.parse(written)
    return study


def _set(study: StudySpec, written: Tree, path: Path, value: Any) -> None:
    """Set one value in the written form of a study."""
    head, *keys = path
    if head not in StudySpec.model_fields:
        raise SpecError(path, f"unknown key {head!r}: {nearest(head, StudySpec.model_fields)}")
    if head == "scale":
        raise SpecError(path, "cannot be set: use --scale")
    if head == "base":
        written["base"] = _with_config_value(
            {}, written.get("base", {}), keys, value, study.program_of().fields, path
        )
    elif head == "runs":
        _set_run(study, written, path, value)
    else:
        written[head] = _with_value(written.get(head), path, value)
        if head == "axes" and len(path) > 1 and path[2:3] != (LABELS,):
            _drop_labels(written["axes"][int(path[1])])


def _set_in_union(study: StudySpec, written: Tree, path: Path, value: Any) -> None:
    """Set one value in the written form of a union, or of its parts."""
    head, *keys = path
    if head == STUDIES:
        name, rest = _split_name(path, study.studies, "study")
        if not rest:
            raise SpecError(path, f"incomplete: expected {STUDIES}.{name}.base.…, .runs.…, .seeds, …")
        with within(STUDIES, name):
            _set(study.studies[name], written[STUDIES][name], rest, value)
        return
    if head in _STUDY_ONLY_KEYS:
        raise SpecError(path, f"belongs to a part: write --set {STUDIES}.<name>.{dotted(path)}=…")
    if head not in ("base", "seeds"):
        _set(study, written, path, value)
    if head in ("base", "seeds", "resources", "record"):
        for name in _parts_that_accept(study, keys, value) if head == "base" else study.studies:
            with within(STUDIES, name):
                _set(study.studies[name], written[STUDIES][name], path, value)


def _parts_that_accept(study: StudySpec, keys: Sequence[str], value: Any) -> list[str]:
    """List the parts whose base accepts a key. A free-form base accepts only the keys that it has.

    Raises:
        SpecError: No part accepts the key.
    """
    errors: dict[str, list[SpecError]] = {}
    for name, part in study.studies.items():
        fields, place = part.program_of().fields, (STUDIES, name, "base")
        if fields is not None:
            errors[name] = list(unknown_keys(plain(nested(keys, value)), fields, place))
        else:
            errors[name] = (
                [] if has(part.base, keys) else [SpecError((*place, *keys), "no part has such a key")]
            )
    if all(errors.values()):
        raise next(iter(errors.values()))[0]
    return [name for name in errors if not errors[name]]


def _set_run(study: StudySpec, written: Tree, path: Path, value: Any) -> None:
    name, keys = _split_name(path, study.runs, "run")
    run = written["runs"][name]
    if keys and keys[0] in RUN_KEYS:
        run[keys[0]] = _with_value(run.get(keys[0]), path[-len(keys) :], value)
        return
    for index, axis in enumerate(study.axes):
        own = next((key for key in axis.keys if f"{dotted(keys)}.".startswith(f"{key}.")), None)
        if name in axis.runs and own is not None:
            place = dotted(("axes", str(index), *axis.place(dotted(keys), 0)))
            raise SpecError(path, f"has no effect because an axis sets it: use --set {place}")
    if not keys and is_mapping(value) and value.get("program", run.get("program")) != run.get("program"):
        written["runs"][name] = plain(value, path)  # another program has other keys
        return
    own_keys = {key: run[key] for key in RUN_KEYS if key in run}
    config = {key: below for key, below in run.items() if key not in own_keys}
    program = study.program_of(name)
    base = program.inherited(study.base, study.program_of())
    written["runs"][name] = own_keys | _with_config_value(base, config, keys, value, program.fields, path)


def _split_name(path: Path, known: Mapping[str, object], what: str) -> tuple[str, Path]:
    """Split a path into the name of a run or study and the rest. Names may have dots: the longest wins."""
    for end in range(len(path), 1, -1):
        name = dotted(path[1:end])
        if name in known:
            return name, path[end:]
    if len(path) == 1:
        raise SpecError(path, f"incomplete: expected {path[0]}.<name>, with a {what} of {', '.join(known)}")
    raise SpecError(path, f"no {what} {path[1]!r}: {nearest(path[1], known)}")


def _with_config_value(
    base: Tree, own: Tree, keys: Sequence[str], value: Any, fields: Field | None, path: Path
) -> Tree:
    """Set a value in a config that is merged over a base; return the changed config, without the base.

    The path is checked against the merged config: it must not go through a plain value of the base.
    """
    place = path[: len(path) - len(keys)]
    above = plain(nested(keys, value), place)
    if not isinstance(above, dict):
        raise SpecError(path, f"must be a mapping, not {shown(value)}")
    whole = merge(base, own, fields, place)
    depth = depth_of(whole, keys)
    beneath = lookup(whole, keys[:depth])
    if depth < len(keys) and not isinstance(beneath, dict | None):
        problem = f"is {shown(beneath)}, without {keys[depth]!r}: set it as a whole"
        raise SpecError(path, f"{dotted((*place, *keys[:depth]))} {problem}")
    return merge(own, above, fields, place)


def _with_value(tree: Any, path: Path, value: Any, depth: int = 1) -> Any:
    """Return a copy of plain data with a value at `path[depth:]`. Keys of the data may contain dots."""
    rest = path[depth:]
    if not rest:
        return value
    parts = parts_of(tree)
    ends = range(len(rest), 1, -1)
    end = next((end for end in ends if isinstance(tree, dict) and dotted(rest[:end]) in tree), 1)
    key = dotted(rest[:end])
    if key not in parts and not isinstance(tree, dict | None):
        count = f"there are {len(parts)}, counted from 0" if isinstance(tree, list) else "it has no parts"
        raise SpecError(path, f"no {dotted(path[: depth + 1])}: {count}")
    changed = parts | {key: _with_value(parts.get(key), path, value, depth + end)}
    return [*changed.values()] if isinstance(tree, list) else changed


def _drop_labels(axis: Any) -> None:
    """Remove the labels of keys and values that an axis no longer has."""
    if isinstance(axis, dict) and (labels := axis.pop(LABELS, None)):
        with suppress(SpecError):  # reported when the study is parsed
            known = validated(AxisSpec, axis).named_values
            kept = ((key, texts.items()) for key, texts in labels.items() if key in known)
            axis[LABELS] = {key: {v: text for v, text in texts if v in known[key]} for key, texts in kept}
