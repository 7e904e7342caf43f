"""A run's identity: a hash of what decides its result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, no spaces, floats as Python prints them (shortest that reads back exactly).

    Raises:
        ValueError: A number that is not finite.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint(program: str, version: int, identity: Mapping[str, Any], needs: Mapping[str, str]) -> str:
    """The hash that says whether two runs are one.

    Args:
        program: What the run executes.
        version: Of the program: raised when the same config comes to mean something else.
        identity: What in the config decides the result, without fields at their default.
        needs: Role → fingerprint of each run that it needs. What those runs are called does not matter.

    Returns:
        64 hex digits.
    """
    whole = {"program": program, "version": version, "identity": identity, "needs": needs}
    return hashlib.sha256(canonical_json(whole).encode()).hexdigest()
