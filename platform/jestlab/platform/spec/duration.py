"""Durations in the form `90m`, `4h`, `1h30m`, or `2d`, or in Slurm's form, `2-12:00:00`."""

from __future__ import annotations

import re

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_PARTS = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d{1,3}):(\d{2}):(\d{2})")


def parse_duration(text: str) -> int:
    """Return a duration in seconds.

    Args:
        text: Integers with units, largest first (d, h, m, s), or [DAYS-]HH:MM:SS. A number without a unit is
            invalid, because Slurm counts minutes and other tools seconds.

    Raises:
        ValueError: The form is invalid, or the duration is zero.
    """
    written = text.strip().lower()
    match = _PARTS.fullmatch(written) or _CLOCK.fullmatch(written)
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration: write it with its unit, as in 90m, 4h, 1h30m or 2d")
    numbers = (int(number or 0) for number in match.groups())
    seconds = sum(number * unit for number, unit in zip(numbers, _UNITS.values(), strict=True))
    if seconds == 0:
        raise ValueError(f"{text!r} is zero: write at least 1s")
    return seconds


def written_duration(seconds: int) -> str:
    """Write a duration in the form of a spec: 5400 is `1h30m`."""
    parts = []
    for name, unit in _UNITS.items():
        number, seconds = divmod(seconds, unit)
        if number:
            parts.append(f"{number}{name}")
    return "".join(parts)
