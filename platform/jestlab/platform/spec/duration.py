"""Durations as a spec writes them: `90m`, `4h`, `1h30m`, `2d`, or as Slurm does, `2-12:00:00`."""

from __future__ import annotations

import re

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_PARTS = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d{1,3}):(\d{2}):(\d{2})")


def parse_duration(text: str) -> int:
    """Return the seconds of a duration.

    Args:
        text: Whole numbers with their units, largest first (d, h, m, s), or [DAYS-]HH:MM:SS.

    Raises:
        ValueError: It is neither, or zero. A number alone has no unit and is refused: Slurm counts minutes,
            others seconds.
    """
    written = text.strip().lower()
    found = _PARTS.fullmatch(written) or _CLOCK.fullmatch(written)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is not a duration: write it with its unit, as in 90m, 4h, 1h30m or 2d")
    numbers = (int(number or 0) for number in found.groups())
    seconds = sum(number * unit for number, unit in zip(numbers, _UNITS.values(), strict=True))
    if seconds == 0:
        raise ValueError(f"{text!r} is no time at all: write at least 1s")
    return seconds


def written_duration(seconds: int) -> str:
    """Return a duration as a spec writes it, with its largest units first: 5400 is `1h30m`."""
    parts = []
    for name, unit in _UNITS.items():
        number, seconds = divmod(seconds, unit)
        if number:
            parts.append(f"{number}{name}")
    return "".join(parts)
