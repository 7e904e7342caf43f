"""Errors in what a spec says and this package parses: claims, metrics, families, numbers of seeds."""

from __future__ import annotations

import json

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


def shown(value: object) -> str:
    """Quote a value for an error: as YAML writes it, shortened."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
