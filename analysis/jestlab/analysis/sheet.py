"""Options of printed figures: size, words, font, and legend.

The figure of a paper has the width of a column, the font of the text, and its caption in LaTeX:
`Sheet.parse({"width": "3.25in", "caption": "none", "font": "serif"})`. Specs import this module, so only the
search for a font imports Matplotlib.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from .errors import RequestError
from .units import nearest

if TYPE_CHECKING:
    from .figures.plot import Texts

Legend = Literal["direct", "inside", "right", "below", "none"]
"""Where the names of curves and points are: next to them, in a legend at one of three places, or nowhere."""

LEGENDS: tuple[Legend, ...] = get_args(Legend)

NONE = "none"
"""What users write for no title and for no caption."""

_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}  # TeX's points
_LENGTH = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]+)")
_RANGES = {
    "width": (1.5, 40.0, "inches"),
    "height": (0.8, 40.0, "inches"),
    "font_size": (4.0, 30.0, "points"),
}
_FAMILIES = {
    "serif": ("Times New Roman", "Times", "Nimbus Roman", "Liberation Serif", "STIXGeneral", "DejaVu Serif"),
    "sans-serif": ("Arial", "Helvetica", "Liberation Sans", "Nimbus Sans", "DejaVu Sans"),
    "monospace": ("Courier New", "Courier", "Liberation Mono", "Nimbus Mono PS", "DejaVu Sans Mono"),
}
"""Family → its fonts, the best known first; Matplotlib ships with some of each."""


@dataclass(frozen=True)
class Sheet:
    """The options of a printed figure; None leaves one to the figure.

    Attributes:
        width: Of the whole figure, inches.
        height: Of the whole figure, inches.
        title: Above it; empty for none.
        caption: Below it; empty for none.
        font: Name of an installed font, or serif, sans-serif, or monospace.
        font_size: Of most letters, points; names, title, and caption are in proportion.
        legend: Where the names of curves and points are.
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
            ValueError: An option is unknown or invalid.
        """
        for name in written:
            if name not in OPTIONS:
                raise RequestError(f"unknown option {name!r} of a figure: {nearest(name, OPTIONS)}")
        return cls(**{name: option(name, value) for name, value in written.items() if value is not None})

    def over(self, other: Sheet) -> Sheet:
        """Return the options of another sheet, overridden by those that are set here."""
        own = {name: getattr(self, name) for name in OPTIONS}
        return replace(other, **{name: value for name, value in own.items() if value is not None})

    def worded(self, texts: Texts) -> Texts:
        """Return the texts of a figure with the title and caption that are set here."""
        title = texts.title if self.title is None else self.title
        return replace(texts, title=title, caption=texts.caption if self.caption is None else self.caption)

    @property
    def families(self) -> list[str]:
        """The fonts of the letters: the chosen one, then one that has all characters.

        Raises:
            ValueError: The font isn't installed; the message names similar ones.
        """
        chosen = [] if self.font is None else [_installed(self.font)]
        return list(dict.fromkeys([*chosen, "DejaVu Sans"]))


PLAIN: Sheet = Sheet()
"""No options."""

OPTIONS = tuple(each.name for each in fields(Sheet))


def option(name: str, written: Any) -> Any:
    """Parse one of `OPTIONS` as a spec has it.

    Raises:
        ValueError: The value is invalid; the message has the form "must be …".
    """
    if name in _RANGES:
        value = _points(written) if name == "font_size" else _length(written)
        least, most, unit = _RANGES[name]
        if not least <= value <= most:
            raise RequestError(f"must be between {least:g} and {most:g} {unit}, not {value:.4g}")
        return value
    if name == "legend":
        if written not in LEGENDS:
            raise RequestError(f"must be {', '.join(LEGENDS[:-1])} or {NONE}, not {written!r}")
        return cast(Legend, written)
    if name == "font":
        if not isinstance(written, str) or not written.strip():
            raise RequestError(
                f"must be the name of a font, such as serif or Times New Roman, not {written!r}"
            )
        return written.strip()
    if written is False or written == NONE:
        return ""
    if not isinstance(written, str):
        raise RequestError(f"must be a text, or {NONE} for none, not {written!r}")
    return written


def _length(written: Any) -> float:
    """Parse a length with its unit, "3.25in", "8.3cm", "83mm", or "234pt" (72.27 are an inch); in inches."""
    found = _LENGTH.fullmatch(written.strip()) if isinstance(written, str) else None
    if found is None:
        is_number = isinstance(written, int | float) and not isinstance(written, bool)
        remedy = f": write {written:g}in, {written:g}cm, …" if is_number else ""
        raise RequestError(
            f"must be a length with its unit, such as 3.25in, 8.3cm, 83mm or 234pt, not {written!r}{remedy}"
        )
    if found[2] not in _INCHES:
        raise RequestError(f"must have one of the units {', '.join(_INCHES)}, not {found[2]!r}")
    return float(found[1]) * _INCHES[found[2]]


def _points(written: Any) -> float:
    """Parse a font size: a number of points, or a length with its unit."""
    if isinstance(written, str) and _LENGTH.fullmatch(written.strip()):
        return 72.27 * _length(written)
    try:
        return float("" if isinstance(written, bool) else written)
    except (TypeError, ValueError):
        raise RequestError(f"must be a number of points, such as 8, not {written!r}") from None


@cache
def _installed(font: str) -> str:
    """Find an installed font by its name in any case, or the best of a family.

    Raises:
        ValueError: No such font is installed.
    """
    from matplotlib import font_manager

    names = {entry.name.lower(): entry.name for entry in font_manager.fontManager.ttflist}
    for name in _FAMILIES.get(font, (font,)):
        if name.lower() in names:
            return names[name.lower()]
    near = [names[name] for name in difflib.get_close_matches(font.lower(), names, n=3, cutoff=0.6)]
    offered = " or ".join(map(repr, [*near, *_FAMILIES]))
    raise RequestError(f"no font {font!r} is installed: choose {offered}")
