"""Errors in what a spec says and this package parses: claims, metrics, families, numbers of seeds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .units import nearest

Path = tuple[str, ...]
"""A place in a spec: `("claims", "0", "within")`."""


class WrittenError(ValueError):
    """Something in a spec that is not valid.

    Attributes:
        path: The place.
        message: What is wrong there, and what was expected.
    """

    def __init__(self, path: Path, message: str) -> None:
        self.path = path
        self.message = message
        super().__init__(f"{'.'.join(path)}: {message}" if path else message)


def without_addresses(text: str) -> str:
    """Leave out where objects are in memory, which is another place each time: `<BytesIO at 0x7f…>`."""
    return re.sub(r" at 0x[0-9a-fA-F]+(?=>)", "", text)


def shown(value: object) -> str:
    """Quote a value for an error: as YAML writes it, shortened."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else without_addresses(repr(value))
    return text if len(text) <= 60 else text[:57] + "…"


def given(
    written: Mapping[Any, Any], keys: Sequence[str], path: Path, error: type[WrittenError] = WrittenError
) -> dict[str, Any]:
    """Keep the keys that are given a value, and refuse unknown ones.

    Raises:
        WrittenError: A key is unknown; of the kind `error`.
    """
    found = {str(key): value for key, value in written.items() if value is not None}
    for key in found:
        if key not in keys:
            raise error((*path, key), f"unknown key: {nearest(key, keys)}")
    return found
