"""Numbers as people read them (examples, FLOPs, hours, money), and the name that somebody may have meant."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence

MISSING = "—"
"""Shown where there is no value."""

HUGEST_WRITTEN = 1e21  # numbers from this on have an exponent, and so have those below its inverse

_STEPS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def count(n: float) -> str:
    """A count in a few characters: "9,600", "40.0k", "1.50M", "3.00B" (billions, as the field has it)."""
    if n < 10_000:
        return f"{n:,.0f}"
    scale, letter = _step(n)
    return f"{significant(n / scale)}{'B' if letter == 'G' else letter}"


def tick(n: float, most: float = 0.0) -> str:
    """A count beside an axis, without trailing zeros: "25,000", "1.5M"; "25k" on an axis up to 150k."""
    if max(n, most) < 100_000 or n == 0:
        return f"{n:,g}"
    scale, letter = _step(n)
    return f"{n / scale:g}{'B' if letter == 'G' else letter}"


def flops(n: float) -> str:
    """An amount of FLOPs with its unit: "81.3 TFLOP"."""
    scale, letter = _step(n)
    return f"{significant(n / scale)} {letter}FLOP"


def hours(n: float) -> str:
    """Hours, or chip-hours: "12.3", "4,570"; what is too little to matter is "<0.01"."""
    return "<0.01" if 0 < n < 0.005 else f"{n:.2f}" if n < 9.995 else significant(n)


def dollars(amount: float) -> str:
    """An amount of money: "$0.37", "$14,800"; what is too little to pay is "<$0.01"."""
    if 0 < amount < 0.005:
        return "<$0.01"
    return f"${amount:.2f}" if amount < 99.995 else f"${significant(amount)}"


def duration(n: float) -> str:
    """A time of n hours in the largest unit that fits: "20 s", "4.5 min", "3.2 h", "12 days"."""
    for scale, unit in ((24.0, "days"), (1.0, "h"), (1 / 60, "min")):
        if n >= 1.5 * scale:
            return f"{significant(n / scale, 2)} {unit}"
    return f"{3600 * n:.0f} s" if 3600 * n >= 0.5 else "no time"


def flops_unit(amounts: Iterable[float]) -> tuple[float, str]:
    """One unit for a whole column or axis of FLOPs.

    Args:
        amounts: FLOPs; NaN is passed over.

    Returns:
        What to divide by, and the unit's name: (1e12, "TFLOP") where the least of the amounts is 1.3e12.
    """
    known = [amount for amount in amounts if amount > 0]
    scale, letter = _step(min(known)) if known else (1.0, "")
    return scale, f"{letter}FLOP"


def seconds_unit(amounts: Iterable[float]) -> tuple[float, str]:
    """One unit for a whole column or axis of seconds, by the greatest; as `flops_unit`: (60, "min")."""
    most = max((amount for amount in amounts if amount > 0), default=0.0)
    for scale, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if most >= 2 * scale:
            return scale, unit
    return 1.0, "s"


def significant(x: float, digits: int = 3) -> str:
    """A number to some significant digits with its trailing zeros: 2.3 → "2.30"."""
    if not 1 / HUGEST_WRITTEN < abs(x) < HUGEST_WRITTEN:
        return f"{x:.{digits}g}"
    rounded = float(f"{x:.{digits - 1}e}")  # 99.96 becomes 100.0, which has one digit more before the point
    return f"{rounded:,.{max(0, digits - 1 - math.floor(math.log10(abs(rounded))))}f}"


def _step(n: float) -> tuple[float, str]:
    # Half a unit in the third digit below the step already rounds up to it: 999,600 is 1.00M.
    return next(((scale, letter) for scale, letter in _STEPS if abs(n) >= 0.9995 * scale), (1.0, ""))


def near(name: str, known: Iterable[str]) -> str:
    """A hint at the most similar of the known names: "did you mean 'seed'?"; empty if none is similar."""
    matches = difflib.get_close_matches(name, list(dict.fromkeys(known)), n=1, cutoff=0.5)
    return f"did you mean {matches[0]!r}?" if matches else ""


def nearest(name: str, known: Iterable[str], listed: Sequence[str] | None = None) -> str:
    """A hint for an unknown name: "did you mean 'seed'?", or else what there is.

    Args:
        name: As it was given.
        known: Valid names.
        listed: Which of them are listed where none is near; None for all.
    """
    names = list(dict.fromkeys(known))
    shown = names if listed is None else listed
    return near(name, names) or (f"it has {some(shown)}" if shown else "it has none")


def listed(names: Sequence[str]) -> str:
    """A list in words: "a, b and c"."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def some(names: Sequence[str]) -> str:
    """The first few names of a list."""
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
