"""Overrides: changes to a spec from the command line, `--set path=value`, in the spec's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from jestlab.analysis.claims.stopping import Until
from jestlab.platform.errors import Mistakes, Path, SpecError, dotted, nearest, shown, within
from jestlab.platform.spec.axes import KINDS, LABELS, columns_of, current_labels
from jestlab.platform.spec.fields import Field, fields_of, merge, unknown_keys
from jestlab.platform.spec.program import program_of
from jestlab.platform.spec.runs import LABEL
from jestlab.platform.spec.schema import Study
from jestlab.platform.spec.tree import (
    KIND,
    MATCH,
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

_BESIDE = ("needs", "program", MATCH, LABEL)
"""Keys of a run that aren't part of its config."""


def parse(text: str) -> tuple[Path, Any]:
    """Parse a path and a value from `base.schedule.examples_seen=9600`; the value is read as YAML.

    Raises:
        SpecError: No `=`, no path, no value, or not YAML.
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


def apply(study: Study, overrides: Sequence[tuple[Path, Any]]) -> Study:
    """Apply overrides to a study.

    Args:
        study: The study.
        overrides: Paths from the spec's root (`base.a.b`, `runs.<name>.a.b`, `runs.<name>.needs`, `seeds`,
            `axes.<n>.grid.<key>`, `resources.parallel`, `reports.<n>.baseline`, …), the last one winning. In
            a union, `studies.<name>.` before any of these means that part; `base`, `seeds`, `resources` and
            `record` without it mean every part, `base` as far as its program has such a key.

    Returns:
        A new study, validated; its configs are validated when `members` is read.

    Raises:
        SpecError: An unknown path, a value of a wrong type, or a run's key that an axis sets.
    """
    # Kinds first, whatever the order: a kind brings its own keys, and drops those of another.
    for path, value in sorted(overrides, key=lambda override: override[0][-1] != KIND):
        written = study.to_dict()
        (_set_in_union if study.studies else _set)(study, written, path, value)
        study = Study.parse(written)
    return study


def _set(study: Study, written: Tree, path: Path, value: Any) -> None:
    """Enter one override into the written form of a study."""
    head, *rest = path
    if head not in Study.model_fields:
        raise SpecError(path, f"unknown key {head!r}: {nearest(head, Study.model_fields)}")
    if head == "scale":
        raise SpecError(path, "cannot be set: use --scale")
    if not rest and head not in ("base", "runs"):
        written[head] = value
    elif head == "base":
        _check_parts(written, path, path)
        written["base"] = _lay(written.get("base", {}), rest, value, _fields(study, None), path)
    elif head == "runs":
        _set_run(study, written, path, value)
    elif head in ("resources", "record", "family") or (head == "seeds" and isinstance(study.seeds, Until)):
        _check_parts(written, path, path)
        written.update(merge(written, nested(path, value)))
    elif head == "axes":
        _set_axis(written, path, value)
    elif head in ("reports", "claims"):
        _set_item(written, path, ".".join(rest[1:]), value)
    else:
        raise SpecError(path, f"{head} has no parts: set it as a whole, --set {head}=…")


def _set_in_union(study: Study, written: Tree, path: Path, value: Any) -> None:
    """Enter one override into the written form of a union."""
    head, *rest = path
    if head == STUDIES:
        name, keys = _named(path, study.studies, "study")
        if not keys:
            raise SpecError(path, f"incomplete: expected {STUDIES}.{name}.base.…, .runs.…, .seeds, …")
        with within(STUDIES, name):
            _set(study.studies[name], written[STUDIES][name], keys, value)
        return
    if head in ("program", "runs", "axes"):
        raise SpecError(path, f"belongs to a part: write --set {STUDIES}.<name>.{'.'.join(path)}=…")
    if head in study.studies:
        raise SpecError(path, f"is a part: write --set {STUDIES}.{'.'.join(path)}=…")
    if head not in ("base", "seeds"):
        _set(study, written, path, value)
    if head in ("base", "seeds", "resources", "record"):
        for name in _accepting(study, tuple(rest), value) if head == "base" else study.studies:
            with within(STUDIES, name):
                _set(study.studies[name], written[STUDIES][name], path, value)


def _accepting(study: Study, keys: Path, value: Any) -> list[str]:
    """List the parts whose base may have a key; of free-form configs, those that have it.

    Raises:
        SpecError: No part may have the key.
    """
    accepting, mistakes = [], Mistakes()
    for name, part in study.studies.items():
        fields, before = _fields(part, None), len(mistakes)
        with mistakes, within(STUDIES, name):
            if fields is not None:
                mistakes.add(
                    SpecError((STUDIES, name, *error.path), error.message)
                    for error in unknown_keys(plain(nested(keys, value)), fields, ("base",))
                )
            elif not has(part.base, keys):
                raise SpecError(("base", *keys), "no part has such a key")
        if len(mistakes) == before:
            accepting.append(name)
    if not accepting:
        raise mistakes.together().errors[0]
    return accepting


def _check_parts(tree: Tree, keys: Sequence[str], path: Path) -> None:
    """Refuse a place below a value that has no parts, or below an element that a list does not have."""
    depth = depth_of(tree, keys)
    beneath = lookup(tree, keys[:depth])
    if depth < len(keys) and not isinstance(beneath, dict | None):
        place = dotted(path[: len(path) - len(keys) + depth])
        raise SpecError(path, f"{place} is {shown(beneath)}, without {keys[depth]!r}: set it as a whole")


def _lay(beneath: Tree, keys: Sequence[str], value: Any, fields: Field | None, path: Path) -> Tree:
    above = plain(nested(keys, value), path[: len(path) - len(keys)])
    if not isinstance(above, dict):
        raise SpecError(path, f"must be a mapping, not {shown(value)}")
    return merge(beneath, above, fields, path[: len(path) - len(keys)])


def _set_run(study: Study, written: Tree, path: Path, value: Any) -> None:
    name, keys = _named(path, study.runs, "run")
    if keys and keys[0] in _BESIDE:
        if len(keys) > 1:
            raise SpecError(path, f"{keys[0]} has no parts: set it as a whole, --set runs.{name}.{keys[0]}=…")
        written["runs"][name][keys[0]] = value
        return
    for index, axis in enumerate(study.axes):
        key = ".".join(keys)
        if name in axis.runs and any((key + ".").startswith(own + ".") for own in axis.keys):
            place = ".".join(("axes", str(index), *axis.place(key, 0)))
            raise SpecError(path, f"has no effect because an axis sets it: use --set {place}")
    own = written["runs"][name]
    if not keys and is_mapping(value) and value.get("program", own.get("program")) != own.get("program"):
        written["runs"][name] = plain(value, path)  # another program has other keys
        return
    beside = {key: own[key] for key in _BESIDE if key in own}
    config = {key: below for key, below in own.items() if key not in beside}
    base, fields = program_of(study, name).inherited(study.base, program_of(study)), _fields(study, name)
    _check_parts(merge(base, config, fields, ("runs", name)), keys, path)
    written["runs"][name] = beside | _lay(config, keys, value, fields, path)


def _named(path: Path, known: Mapping[str, object], what: str) -> tuple[str, Path]:
    """Split a path into a run or study and the rest. Names may hold dots: the longest that fits."""
    for end in range(len(path), 1, -1):
        name = ".".join(path[1:end])
        if name in known:
            return name, path[end:]
    if len(path) == 1:
        raise SpecError(path, f"incomplete: expected {path[0]}.<name>, with a {what} of {', '.join(known)}")
    name = path[1]
    raise SpecError(path, f"no {what} {name!r}: {nearest(name, known)}")


def _set_axis(written: Tree, path: Path, value: Any) -> None:
    kind, *keys = path[2:] or ("",)
    item = _item(written, path)
    if kind in ("grid", "zip") and keys:
        columns = item.get(kind, {})
        key = ".".join(keys)
        if key not in columns:
            raise SpecError(path, f"no such key on the axis: {nearest(key, columns)}")
        columns[key] = value
    elif kind in ("runs", "grid", "zip", "cases", LABELS) and not keys:
        item[kind] = value
    else:
        raise SpecError(
            path, "unknown place: expected axes.<n>.runs, .grid.<key>, .zip.<key>, .cases or .labels"
        )
    if kind != LABELS and LABELS in item:
        with suppress(AttributeError, TypeError):  # validation says what is wrong with the values
            item[LABELS] = current_labels(item[LABELS], columns_of(next(item[k] for k in KINDS if k in item)))


def _set_item(written: Tree, path: Path, key: str, value: Any) -> None:
    if not key:
        raise SpecError(path, f"unknown place: expected {path[0]}.<n>.<option>, or {path[0]} as a whole")
    item = _item(written, path)
    _check_parts(item, path[2:], path)
    item.update(merge(item, nested(path[2:], value)))


def _item(written: Tree, path: Path) -> Tree:
    """Return the mapping at `axes.<n>`, `reports.<n>` or `claims.<n>`."""
    head, number = path[0], path[1]
    items = parts_of(written.get(head, []))
    if number not in items:
        raise SpecError(path, f"no {head}.{number}: there are {len(items)}, counted from 0")
    item: Tree = items[number]
    return item


def _fields(study: Study, run: str | None) -> Field | None:
    schema = program_of(study, run).schema
    return fields_of(schema) if schema is not None else None
