"""Placeholders in the words of a command: `{learning_rate}`, `{model.width}`; `{{` and `}}` are braces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_PARTS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def names(word: str) -> Iterator[str]:
    """Names of the placeholders in a word.

    Raises:
        ValueError: A brace stands by itself.
    """
    for match in _PARTS.finditer(word):
        if match[0] in ("{", "}"):
            raise ValueError(f"{word!r} has a brace by itself: write {match[0] * 2} for {match[0]}")
        if match[1] is not None:
            yield match[1]


def fill(word: str, values: Mapping[str, Any]) -> str:
    """A word with its placeholders replaced.

    Args:
        word: With names of which all are known, and no brace by itself.
        values: By name; a text is taken as it is, all else as JSON.
    """

    def value(match: re.Match[str]) -> str:
        return match[0][0] if match[1] is None else text(values[match[1]])

    return _PARTS.sub(value, word)


def text(value: Any) -> str:
    """A value as a word of a command."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
