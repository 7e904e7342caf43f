"""pydantic's errors in the words of a spec's writer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from jestlab.platform.errors import nearest
from jestlab.platform.spec.errors import Path, choices, kind_of, shown
from jestlab.platform.spec.fields import Field


def first_error(error: ValidationError, root: Field) -> tuple[Path, str]:
    """The first thing wrong.

    Args:
        error: What pydantic raised.
        root: The schema's fields.

    Returns:
        Its path from the schema's root, and one line that says what is wrong and what would be right.
    """
    details = error.errors(include_url=False)[0]
    path, beside = _path(details["loc"], root)
    return path, _message(details, beside)


def _path(loc: tuple[int | str, ...], root: Field) -> tuple[Path, Mapping[str, Field]]:
    """pydantic's location without the tags of unions in it, and the fields beside its last part."""
    path: list[str] = []
    section, beside = root, root.children
    parts = beside
    at_tag = False
    for part in map(str, loc):
        if at_tag:
            parts, at_tag = section.variants.get(part, {}), False
            continue
        path.append(part)
        beside, section = parts, parts.get(part, Field())
        parts, at_tag = section.children, bool(section.variants)
    return tuple(path), beside


def _message(details: Mapping[str, Any], beside: Mapping[str, Field]) -> str:
    kind, given, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key: {nearest(str(details['loc'][-1]), beside)}"
    if kind == "missing":
        return "is missing"
    if kind == "value_error":
        return str(context["error"])
    if kind in ("literal_error", "enum"):
        return f"{shown(given)} is not valid: {choices(given, _quoted(context['expected']))}"
    if kind == "union_tag_invalid":
        tag, valid = context["tag"], _quoted(context["expected_tags"])
        return f"kind {tag!r} is unknown: {choices(tag, valid)}"
    if kind == "union_tag_not_found":
        return "says no kind: add `kind`"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"must be a mapping, not {shown(given)}"
    wanted = re.sub(r"^Input should (be|have|match) ", r"\1 ", details["msg"])
    wanted = re.sub(r", (unable to parse|got a number).*$", "", wanted).replace("be a valid ", "be a ")
    wanted = wanted.replace("be a integer", "be a whole number").replace("be a string", "be a text")
    if "type" in kind or "parsing" in kind:
        return f"must {wanted}, not {shown(given)} ({kind_of(given)})"
    return f"must {wanted}, not {shown(given)}"


def _quoted(expected: str) -> list[str]:
    """The values in pydantic's "'a', 'b' or 'c'"."""
    return re.findall(r"'([^']*)'", expected)
