"""The `figure` of a spec and of its reports: size, words, font and legend of printed figures."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from jestlab.analysis.sheet import NONE, Sheet, option


class FigureOptions(BaseModel):
    """How figures are printed; what is left out is left to the study, or to the figure.

    Attributes:
        width: Of the whole figure, with its unit: 3.25in, 8.3cm, 83mm or 234pt (TeX's, 72.27 to the inch).
        height: Of the whole figure, likewise.
        title: Above it; none for none. By default the study's question.
        caption: Below it; none for none, as LaTeX has it: title and caption are then in a .txt beside it.
        font: Name of an installed font, or serif, sans-serif or monospace.
        font_size: Of most letters, in points.
        legend: direct: curves and points are named beside themselves, the default where there is room;
            inside, right or below: in a legend; none: not at all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: str | None = None
    height: str | None = None
    title: str | None = None
    caption: str | None = None
    font: str | None = None
    font_size: float | str | None = None
    legend: str | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _valid(cls, written: Any, info: ValidationInfo) -> Any:
        if written is not None:
            option(str(info.field_name), written)
        return NONE if written is False else written

    @property
    def sheet(self) -> Sheet:
        """What the options mean."""
        return Sheet.parse(self.model_dump(exclude_none=True))
