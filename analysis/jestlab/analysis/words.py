"""Quote values in error messages."""

from __future__ import annotations

import json
import re


def without_addresses(text: str) -> str:
    """Remove the addresses of objects in memory, which change with each process: `<BytesIO at 0x7f…>`."""
    return re.sub(r" at 0x[0-9a-fA-F]+(?=>)", "", text)


def shown(value: object) -> str:
    """Quote a value as YAML writes it, shortened to 60 characters."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else without_addresses(repr(value))
    return text if len(text) <= 60 else text[:57] + "…"
