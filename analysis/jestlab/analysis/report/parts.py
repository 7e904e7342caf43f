"""What a report is made of: tables and figures with their places in the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..plots import Plot
    from ..rendering import Table
    from ..verdicts import Judged


@dataclass(frozen=True)
class TablePart:
    """A table of the report.

    Attributes:
        name: Of its files, and of its place in the page.
        title: Above it.
        table: What it shows.
    """

    name: str
    title: str
    table: Table


@dataclass(frozen=True)
class ClaimsPart(TablePart):
    """The claims of the report.

    Attributes:
        judged: The same as the rows of its table.
    """

    judged: tuple[Judged, ...]


@dataclass(frozen=True)
class FigurePart:
    """A figure of the report, drawn by the page itself.

    Attributes:
        name: Of its place in the page.
        title: Above it.
        captions: One a variant.
        variants: Name of a horizontal axis → its data; one or several.
        plots: The same as printed figures.
    """

    name: str
    title: str
    captions: tuple[str, ...]
    variants: dict[str, dict[str, Any]]
    plots: tuple[Plot, ...]


@dataclass(frozen=True)
class StillPart:
    """A figure of the report, shown as it is printed.

    Attributes:
        title: Above it.
        plot: Its name is that of its files, and of its place in the page.
    """

    title: str
    plot: Plot
