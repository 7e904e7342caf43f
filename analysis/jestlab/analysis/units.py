"""Format numbers and lists for people, and suggest names for unknown ones."""

import difflib
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

MISSING = "—"
"""Shown for a missing value."""

HUGEST_WRITTEN = 1e21
"""Numbers from this one on, and numbers below its inverse, are written with an exponent."""

_PREFIXES = {"E": 1e18, "P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1.0}
_TIMES = {"days": 86_400, "h": 3600, "min": 60, "s": 1}


def count(n: float) -> str:
    """Format a count in a few characters: "9,600", "40.0k", "1.50M", "3.00B" (billions, as is usual)."""
    if n < 10_000:
        return f"{n:,.0f}"
    scale, letter = _prefix(n)
    return f"{significant(n / scale)}{'B' if letter == 'G' else letter}"


def tick(n: float, most: float = 0.0) -> str:
    """Format a number for an axis without trailing zeros: "0.5", "25,000", "1.5M"; "25k" of up to 150k."""
    if max(abs(n), most) < 100_000 or n == 0:
        return f"{n:,g}".replace("e-0", "e-")
    scale, letter = _prefix(n)
    return f"{n / scale:g}{'B' if letter == 'G' else letter}"


def flops(n: float) -> str:
    """Format FLOPs with their unit: "81.3 TFLOP"."""
    scale, letter = _prefix(n)
    return f"{significant(n / scale)} {letter}FLOP"


def hours(n: float) -> str:
    """Format hours or chip-hours: "<0.01", "12.3", "4,570"."""
    return "<0.01" if 0 < n < 0.005 else f"{n:.2f}" if n < 9.995 else significant(n)


def dollars(amount: float) -> str:
    """Format an amount of money: "<$0.01", "$0.37", "$14,800"."""
    if 0 < amount < 0.005:
        return "<$0.01"
    return f"${amount:.2f}" if amount < 99.995 else f"${significant(amount)}"


def duration(hours: float) -> str:
    """Format a time, given in hours: "45 s", "2 min 3 s", "1 h 12 min", "16 h", "12 days"."""
    seconds = 3600 * hours
    for (unit, scale), (smaller, part) in pairwise(_TIMES.items()):
        count, rest = divmod(round(seconds / part), scale // part)
        if count >= (2 if unit == "days" else 1):
            if count >= 10:  # the smaller unit would not matter
                return f"{round(seconds / scale)} {unit}"
            return f"{count} {unit} {rest} {smaller}" if rest else f"{count} {unit}"
    return "<1 s" if 0 < seconds < 0.5 else f"{seconds:.0f} s"


def flops_unit(amounts: Iterable[float]) -> tuple[float, str]:
    """Choose one unit for a column or axis of FLOPs, by the smallest amount above 0: (1e12, "TFLOP")."""
    scale, letter = _prefix(min((amount for amount in amounts if amount > 0), default=1.0))
    return scale, f"{letter}FLOP"


def seconds_unit(amounts: Iterable[float]) -> tuple[float, str]:
    """Choose one unit for a column or axis of seconds, by the largest amount: (60, "min")."""
    most = max((amount for amount in amounts if amount > 0), default=0.0)
    fitting = ((float(scale), unit) for unit, scale in _TIMES.items() if most >= 2 * scale)
    return next(fitting, (1.0, "s"))


def significant(x: float, digits: int = 3) -> str:
    """Format a number to some significant digits with its trailing zeros: 2.3 → "2.30"."""
    if not 1 / HUGEST_WRITTEN < abs(x) < HUGEST_WRITTEN:
        return f"{x:.{digits}g}"
    rounded = float(f"{x:.{digits - 1}e}")  # 99.96 becomes 100.0, which has one digit more before the point
    return f"{rounded:,.{max(0, digits - 1 - math.floor(math.log10(abs(rounded))))}f}"


def _prefix(n: float) -> tuple[float, str]:
    """Choose the metric prefix of a number: its factor and letter."""
    # Half a unit in the third digit below a factor already rounds up to it: 999,600 is 1.00M.
    fitting = ((scale, letter) for letter, scale in _PREFIXES.items() if abs(n) >= 0.9995 * scale)
    return next(fitting, (1.0, ""))


def near(name: str, known: Iterable[str]) -> str:
    """Suggest the most similar of the known names: "did you mean 'seed'?"; empty if none is similar."""
    folded = {each.casefold(): each for each in known}
    matches = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    return f"did you mean {folded[matches[0]]!r}?" if matches else ""


def nearest(name: str, known: Iterable[str], listed: Sequence[str] | None = None) -> str:
    """Suggest a known name for an unknown one; if none is similar, list `listed` (by default all known)."""
    names = sorted(set(known))
    shown = names if listed is None else listed
    return near(name, names) or (f"known: {some(shown)}" if shown else "none exist")


def listed(names: Sequence[str]) -> str:
    """Join names in a sentence: "a, b and c"."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def sentence(text: str) -> str:
    """End a text with a period, unless it already ends with a punctuation mark."""
    return text if text.endswith((".", "?", "!", "…")) else f"{text}."


def some(names: Sequence[str]) -> str:
    """Join the first twelve names; "…" means further ones."""
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
