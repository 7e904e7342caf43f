"""What a user says of the sheet that a figure is printed on: its size, its words, its font, its legend.

Matplotlib is asked for fonts alone, and specs import this without it.

A paper's figure has the width of a column, the font of the text, and its caption in LaTeX:
`Sheet.parse({"width": "3.25in", "caption": "none", "font": "serif"})`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args

from .units import nearest

if TYPE_CHECKING:
    from .figures.plot import Texts

Legend = Literal["direct", "inside", "right", "below", "none"]
"""How curves and points are named: beside themselves, in a legend at one of three places, or not at all."""

LEGENDS: tuple[Legend, ...] = get_args(Legend)

NONE = "none"
"""What is written for no title and for no caption."""

_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}  # a point is TeX's
_LENGTH = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]+)")
_NARROWEST, _WIDEST = 1.5, 40.0  # of a figure, inches
_LOWEST = 0.8
_SMALLEST, _LARGEST = 4.0, 30.0  # letters, points

_GENERIC = ("serif", "sans-serif", "monospace")
_ALIKE = {
    "serif": (
        "Times New Roman", "Times", "Nimbus Roman", "Liberation Serif", "TeX Gyre Termes", "STIXGeneral",
        "DejaVu Serif",
    ),
    "sans-serif": ("Arial", "Helvetica", "Liberation Sans", "Nimbus Sans", "TeX Gyre Heros", "DejaVu Sans"),
    "monospace": ("Courier New", "Courier", "Liberation Mono", "Nimbus Mono PS", "DejaVu Sans Mono"),
    "roman": ("Latin Modern Roman", "CMU Serif", "cmr10"),
}  # fmt: skip
"""Fonts that look alike, the best known first."""

_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True)
class Sheet:
    """The options of a printed figure; None leaves one to the figure.

    Attributes:
        width: Of the whole figure, inches.
        height: Of the whole figure, inches.
        title: Above it; empty for none.
        caption: Below it; empty for none.
        font: Name of an installed font, or serif, sans-serif or monospace.
        font_size: Of most letters, points; names, ticks and caption are in proportion.
        legend: How curves and points are named.
    """

    width: float | None = None
    height: float | None = None
    title: str | None = None
    caption: str | None = None
    font: str | None = None
    font_size: float | None = None
    legend: Legend | None = None

    @classmethod
    def parse(cls, written: Mapping[str, Any]) -> Sheet:
        """Parse the options as a spec or a command has them: `{width: 3.25in, title: none}`.

        Raises:
            ValueError: One is unknown or invalid: its name, what was expected.
        """
        for name in written:
            if name not in OPTIONS:
                raise ValueError(f"unknown option {name!r} of a figure: {nearest(name, OPTIONS)}")
        return cls(**{name: option(name, value) for name, value in written.items() if value is not None})

    def over(self, other: Sheet) -> Sheet:
        """Lay these options over those of another sheet, which stand where these leave one open."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(other, **{name: value for name, value in own.items() if value is not None})

    def worded(self, texts: Texts) -> Texts:
        """Return the words that are printed: those of the figure, with title and caption as they are here."""
        title = texts.title if self.title is None else self.title
        return replace(texts, title=title, caption=texts.caption if self.caption is None else self.caption)

    @property
    def families(self) -> list[str]:
        """The fonts that letters are taken from: the chosen one, then one that has all signs.

        Raises:
            ValueError: The font is not installed; the message names those that look alike.
        """
        if self.font is None:
            return ["DejaVu Sans"]
        return list(dict.fromkeys([_installed(self.font), "DejaVu Sans"]))


PLAIN: Sheet = Sheet()
"""No options."""

OPTIONS = tuple(each.name for each in fields(Sheet))


def option(name: str, written: Any) -> Any:
    """Parse one option.

    Args:
        name: One of `OPTIONS`.
        written: As a spec has it.

    Raises:
        ValueError: It is invalid; the message begins with what was expected: "must be …".
    """
    if name == "width":
        return _between(length(written), _NARROWEST, _WIDEST, "inches")
    if name == "height":
        return _between(length(written), _LOWEST, _WIDEST, "inches")
    if name == "font_size":
        points = written
        if isinstance(written, str):
            points = 72.27 * length(written) if _LENGTH.fullmatch(written.strip()) else _number(written)
        if isinstance(points, bool) or not isinstance(points, int | float):
            raise ValueError(f"must be a number of points, such as 8, not {written!r}")
        return _between(float(points), _SMALLEST, _LARGEST, "points")
    if name == "legend":
        if written not in LEGENDS:
            raise ValueError(f"must be {', '.join(LEGENDS[:-1])} or {NONE}, not {written!r}")
        return cast(Legend, written)
    if written is False and name != "font":
        return ""
    if not isinstance(written, str):
        raise ValueError(
            f"must be a text{'' if name == 'font' else f', or {NONE} for none'}, not {written!r}"
        )
    if name == "font":
        if not written.strip():
            raise ValueError("must be the name of a font, such as serif or Times New Roman")
        return written.strip()
    return "" if written == NONE else written


def length(written: Any) -> float:
    """Parse a length with its unit, "3.25in", "8.3cm", "83mm" or "234pt" (72.27 are an inch); in inches.

    Raises:
        ValueError: It is none.
    """
    found = _LENGTH.fullmatch(written.strip()) if isinstance(written, str) else None
    if found is None:
        number = isinstance(written, int | float) and not isinstance(written, bool)
        remedy = f": write {written:g}in, {written:g}cm, …" if number else ""
        raise ValueError(
            f"must be a length with its unit, such as 3.25in, 8.3cm, 83mm or 234pt, not {written!r}{remedy}"
        )
    if found[2] not in _INCHES:
        raise ValueError(f"must have one of the units {', '.join(_INCHES)}, not {found[2]!r}")
    return float(found[1]) * _INCHES[found[2]]


def _number(written: str) -> float | None:
    try:
        return float(written)
    except ValueError:
        return None


def _between(value: float, least: float, most: float, unit: str) -> float:
    if not least <= value <= most:
        raise ValueError(f"must be between {least:g} and {most:g} {unit}, not {value:.4g}")
    return value


@cache
def _installed(font: str) -> str:
    """Find an installed font by its name, however it is capitalised, or the best of a generic family.

    Raises:
        ValueError: There is none.
    """
    from matplotlib import font_manager

    names = {entry.name.lower(): entry.name for entry in font_manager.fontManager.ttflist}
    if font in _GENERIC:
        return next(names[name.lower()] for name in _ALIKE[font] if name.lower() in names)
    if font.lower() in names:
        return names[font.lower()]
    words = font.lower().split()
    known = {each.lower(): kind for kind, alike in reversed(_ALIKE.items()) for each in alike}
    meant = difflib.get_close_matches(font.lower(), known, n=1, cutoff=0.7)
    kinds = [known[meant[0]]] if meant else []
    alike = [each for kind in kinds for each in _ALIKE[kind] if each.lower() in names]
    alike += [names[each] for each in difflib.get_close_matches(font.lower(), names, n=3, cutoff=0.6)]
    alike += [name for low, name in sorted(names.items()) if words and words[0] in low.split()]
    offered = list(dict.fromkeys(alike))[:4] or list(_GENERIC)
    raise ValueError(f"no font {font!r} is installed: choose {' or '.join(map(repr, offered))}")
