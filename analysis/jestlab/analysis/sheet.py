"""Options of printed figures: size, title and caption, font, and placement of names.

`Sheet(width="3.25in", caption="none", font="serif")` suits a column of a paper with the caption in LaTeX.
Specs and commands have the same options. They import this module, so only the search for a font imports
Matplotlib.
"""

import difflib
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from .errors import RequestError

NONE = "none"
"""Value of `title` or `caption` that leaves it out."""

Legend = Literal["direct", "below", "none"]
"""Where the names of curves and points are: next to them, in a legend below, or nowhere."""

_WIDTH = 5.5  # inches: the text width of a paper
_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}  # TeX's points
_FAMILIES = {
    "serif": ("Times New Roman", "Times", "Nimbus Roman", "Liberation Serif", "STIXGeneral", "DejaVu Serif"),
    "sans-serif": ("Arial", "Helvetica", "Liberation Sans", "Nimbus Sans", "DejaVu Sans"),
    "monospace": ("Courier New", "Courier", "Liberation Mono", "Nimbus Mono PS", "DejaVu Sans Mono"),
}
"""Family → its fonts in order of preference; Matplotlib includes at least one of each."""


def inches(length: str) -> float:
    """Convert a length with its unit to inches.

    Raises:
        ValueError: It isn't a length with a unit, or is out of range; the message starts with "must be".
    """
    try:
        size = float(length[:-2]) * _INCHES[length[-2:]]
    except (KeyError, ValueError):
        expected = "a length with its unit, such as 3.25in, 8.3cm, 83mm, or 234pt"
        raise RequestError(f"must be {expected}, not {length!r}") from None
    if not 0.8 <= size <= 40.0:
        raise RequestError(f"must be between 0.8 and 40 inches, not {size:.4g}")
    return size


def _length(written: Any) -> Any:
    inches(str(written))
    return written


_Length = Annotated[str, BeforeValidator(_length)]
_Text = Annotated[
    str, BeforeValidator(lambda written: NONE if written is False or written == "" else written)
]


class Sheet(BaseModel):
    """How figures are printed. A report overrides its study, and a study overrides the defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: _Length | None = Field(None, description="Width with its unit: 3.25in, 8.3cm, 83mm, or 234pt.")
    height: _Length | None = Field(None, description="Height with its unit.")
    title: _Text | None = Field(
        None, description="Text above the figure, or none; default: the study's question."
    )
    caption: _Text | None = Field(
        None, description="Text below the figure, or none; default: a description of the figure."
    )
    font: str | None = Field(None, description="An installed font, or serif, sans-serif, or monospace.")
    font_size: float | None = Field(None, ge=4, le=30, description="Font size in points; default: 8.")
    legend: Legend | None = Field(
        None, description="Where curves and points are labeled; default: direct, if they fit."
    )

    def over(self, other: "Sheet") -> "Sheet":
        """Return the options of another sheet, overridden by those that are set here."""
        return other.model_copy(update=self.model_dump(exclude_none=True))

    @property
    def inches(self) -> float:
        """Width of the figure, inches."""
        return inches(self.width) if self.width else _WIDTH

    @property
    def families(self) -> list[str]:
        """The chosen font, then a fallback for characters that it lacks.

        Raises:
            ValueError: The font isn't installed; the message names similar ones.
        """
        chosen = [] if self.font is None else [_installed(self.font)]
        return list(dict.fromkeys([*chosen, "DejaVu Sans"]))


PLAIN = Sheet()
"""A sheet without options, for the defaults."""


@cache
def _installed(font: str) -> str:
    """Return an installed font, by its name in any case or the first of a family, or raise ValueError."""
    from matplotlib import font_manager

    names = {entry.name.lower(): entry.name for entry in font_manager.fontManager.ttflist}
    for name in _FAMILIES.get(font, (font,)):
        if name.lower() in names:
            return names[name.lower()]
    near = [names[name] for name in difflib.get_close_matches(font.lower(), names, n=3, cutoff=0.6)]
    offered = " or ".join(map(repr, [*near, *_FAMILIES]))
    raise RequestError(f"no font {font!r} is installed: choose {offered}")
