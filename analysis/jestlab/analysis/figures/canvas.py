"""The sheet a printed figure is drawn on: title and caption, and axes placed in inches between them.

Axes are placed by hand, so that the plotting area keeps its size whatever is written around it, unless the
user says how wide or how high the whole is.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import units
from ..sheet import Sheet
from .plot import Texts
from .style import GRAY, SAVED, points

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EDGE = 0.08  # outer margin, inches
WIDTH = 5.5  # of a figure: the text width of a paper; inches
_DECADES = 30.0  # a logarithmic axis that spans such a factor has ticks at 1, 2, 5, 10, …
LOG_FROM = 8.0  # values that differ by such a factor get a logarithmic axis
_FEW_TICKS = 7  # up to so many values are themselves the ticks
DPI = 200  # names are measured as finely as they are printed, since hinting makes coarse ones narrower
_TITLE_LINE, _CAPTION_LINE = 0.17, 0.115  # inches
_TITLE_CHARACTERS, _CAPTION_CHARACTERS = 74, 112  # that fit a line of a figure WIDTH wide
_NARROWEST, _LOWEST = 1.15, 0.35  # a plotting area, inches: else panels go into further rows
_FLATTEST = 1.35  # inches: a narrower figure makes its plotting areas lower, down to this


class Slot(NamedTuple):
    """Room for one plotting area in a row of them, in inches: left of it, its width, right of it."""

    left: float
    width: float
    right: float


def row(
    texts: Texts,
    sheet: Sheet,
    slots: Sequence[Slot],
    height: float | Sequence[float],
    below: float = 0.42,
    above: float = 0.0,
    title_left: float | None = None,
    foot: float = 0.0,
    narrowest: float = _NARROWEST,
    equal: bool = False,
    least: float = 0.0,
) -> list[Axes]:
    """Create a figure with plotting areas between title and caption: a row of them, or several rows.

    Args:
        texts: Title and caption.
        sheet: Width and height of the figure, if the user says these.
        slots: Room for each plotting area.
        height: Of the plotting areas, inches; those of a row are as high as the highest of them.
        below: Room for ticks and labels below them, inches, at the usual size of letters, as `above`.
        above: Room for headings above them, inches.
        title_left: Where the title begins, inches; None for the left edge of the first plotting area.
        foot: Room below all of them, for a legend, inches.
        narrowest: Plotting area, inches.
        least: Height of a plotting area, inches, unless the user says that of the figure.
        equal: Whether those of a shorter last row are as wide as the others.

    Returns:
        Axes for each slot.

    Raises:
        ValueError: The height leaves no room.
    """
    slots = [slot._replace(left=points(slot.left)) for slot in slots]
    below, above = points(below), points(above)
    rows = [list(slots)] if sheet.width is None else _rows(slots, sheet.width, narrowest, equal)
    width = sheet.width or sum(map(sum, slots))
    narrower = min(after.width / before.width for after, before in zip(chain(*rows), slots, strict=True))
    each = iter([height] * len(slots) if isinstance(height, int | float) else height)
    heights = [max(next(each) for _ in of_row) for of_row in rows]
    if narrower < 1:
        heights = [min(high, max(_FLATTEST, high * narrower**0.8)) for high in heights]
    heights = [max(high, least) for high in heights]
    left = rows[0][0].left if title_left is None else points(title_left)
    around = len(rows) * (below + above) + foot
    if sheet.height is not None:
        room = _left_over(sheet, _words(texts, width)[2] + around, len(rows)) * len(rows)
        heights = [max(_LOWEST, high * room / sum(heights)) for high in heights]
    figure, base = canvas(texts, width, around + sum(heights), left)
    base += around + sum(heights)
    all_axes = []
    for of_row, high in zip(rows, heights, strict=True):
        base -= above + high
        starts = accumulate((sum(slot) for slot in of_row), initial=0.0)
        all_axes += [
            add_axes(figure, start + slot.left, base, slot.width, high)
            for start, slot in zip(starts, of_row, strict=False)
        ]
        base -= below
    return all_axes


def _rows(slots: Sequence[Slot], width: float, narrowest: float, equal: bool) -> list[list[Slot]]:
    """Distribute slots over as few rows as their plotting areas allow, each as wide as the figure."""
    for count in range(1, len(slots) + 1):
        each = -(-len(slots) // count)
        rows = [list(slots[at : at + each]) for at in range(0, len(slots), each)]
        rooms = [width - sum(slot.left + slot.right for slot in of_row) for of_row in rows]
        if all(room >= narrowest * len(of_row) for room, of_row in zip(rooms, rows, strict=True)):
            break
    if equal and len(rows[-1]) < each:
        whole = [*rows[-1], *rows[0][len(rows[-1]) :]]
        room = width - sum(slot.left + slot.right for slot in whole)
        rooms[-1] = room * sum(slot.width for slot in rows[-1]) / sum(slot.width for slot in whole)
    return [
        [
            slot._replace(width=max(room, 0.4) * slot.width / sum(each.width for each in of_row))
            for slot in of_row
        ]
        for room, of_row in zip(rooms, rows, strict=True)
    ]


def single(
    texts: Texts, sheet: Sheet, x_label: str, right: float, foot: float = 0.0, height: float = 0.0
) -> Axes:
    """Create a figure with one plotting area, which keeps a width of 3.4 inches whatever `right` leaves.

    Args:
        texts: The words.
        sheet: Width and height of the figure, if the user says these.
        x_label: Of the horizontal axis, with its unit.
        right: Room right of the plotting area, inches.
        foot: Room below it, for a legend, inches.
        height: The least of it, for what is beside it, inches.
    """
    slot = Slot(0.62, max(WIDTH - 0.62 - right, 3.4), right)
    axes = row(texts, sheet, [slot], 2.9, below=0.45, foot=foot, least=height)[0]
    axes.set(xlabel=x_label, ylabel=texts.y)
    few_ticks([axes], sheet)
    round_ticks(axes)
    return axes


def grid(
    texts: Texts,
    sheet: Sheet,
    count: int,
    columns: int,
    height: float,
    *,
    left: float,
    between: float,
    below: float,
    above: float,
    foot: float,
) -> list[Axes]:
    """Create a figure of many small plotting areas of one size, row by row; the last row may be shorter.

    Args:
        texts: Title and caption.
        sheet: Width of the figure, and its height, if the user says it.
        count: How many.
        columns: In a row.
        height: Of a plotting area, inches.
        left: Room left of the first column, inches at the usual size of letters, as `below` and `above`.
        between: Room right of each, inches.
        below: Room below the last row, inches.
        above: Room above each, inches.
        foot: Room below all of them, for a legend, inches.

    Raises:
        ValueError: The height leaves no room.
    """
    width = sheet.width or WIDTH
    rows = -(-count // columns)
    left, below, above = points(left), points(below), points(above)
    around = rows * above + below + foot + (rows - 1) * 0.06
    if sheet.height is not None:
        height = _left_over(sheet, _words(texts, width)[2] + around, rows)
    figure, bottom = canvas(texts, width, around + rows * height, left)
    each = (width - left) / columns
    places = [divmod(place, columns) for place in range(count)]
    bottom += foot + below
    return [
        add_axes(
            figure, left + column * each, bottom + (rows - 1 - line) * (height + above + 0.06),
            each - between, height,
        )
        for line, column in places
    ]  # fmt: skip


def _left_over(sheet: Sheet, around: float, rows: int) -> float:
    """Height of plotting areas, inches, so that the figure has the height that the user wants."""
    assert sheet.height is not None
    height = (sheet.height - around) / rows
    if height < _LOWEST:
        raise ValueError(
            f"a height of {sheet.height:.3g}in leaves no room for the figure: it takes at least "
            f"{around + rows * _LOWEST:.2f}in, less without title, caption or legend"
        )
    return height


def canvas(texts: Texts, width: float, height: float, left: float) -> tuple[Figure, float]:
    """Create a figure with title and caption, and room between them.

    Args:
        texts: Title and caption; either may be empty.
        width: Of the figure, inches.
        height: Of the room, inches.
        left: Where the title begins, inches.

    Returns:
        The figure, and how far above its bottom the room begins, inches.
    """
    title, caption, around = _words(texts, width)
    total = around + height
    figure = blank(width, total)
    figure.text(left / width, 1 - EDGE / total, "\n".join(title), va="top", size=points(9))
    figure.text(
        EDGE / width, 0.6 * EDGE / total, "\n".join(caption), va="bottom", size=points(6.5), color=GRAY,
        linespacing=1.15,
    )  # fmt: skip
    return figure, EDGE + points(_CAPTION_LINE) * len(caption)


def _words(texts: Texts, width: float) -> tuple[list[str], list[str], float]:
    """Lines of title and caption, and how high both are with the margins, inches."""
    letters = width / WIDTH / points(1)
    title = textwrap.wrap(texts.title, max(8, int(_TITLE_CHARACTERS * letters)))
    caption = textwrap.wrap(texts.caption, max(8, int(_CAPTION_CHARACTERS * letters)))
    written = points(_CAPTION_LINE) * len(caption) + points(_TITLE_LINE) * len(title)
    return title, caption, EDGE * (1 + bool(title) + bool(caption)) + written


def fit(all_axes: Sequence[Axes], sheet: Sheet) -> None:
    """Move the sides of plotting areas so that ticks and labels are inside a figure of a given width.

    A single plotting area takes all the room that they leave. To be called before names are placed.
    """
    if sheet.width is None:
        return
    figure = figure_of(all_axes[0])
    labels = [(axes.xaxis.label, axes.get_xlabel()) for axes in all_axes]
    for label, _ in labels:  # they may be wider than what they name, and are moved instead
        label.set_text("")
    figure.draw_without_rendering()
    whole = sheet.width * figure.dpi
    frames = [axes.get_window_extent() for axes in all_axes]
    drawn = [axes.get_tightbbox() for axes in all_axes]
    left, right = min(frame.x0 for frame in frames), max(frame.x1 for frame in frames)
    beyond = [box for box in drawn if box is not None]
    gap = 0.5 * EDGE * figure.dpi
    more_left = gap - min(box.x0 for box in beyond)
    more_right = max(max(box.x1 for box in beyond) - (whole - gap), 0.0)
    if len(all_axes) > 1:
        more_left = max(more_left, 0.0)
    shrunk = (right - left - more_left - more_right) / (right - left)
    if not shrunk > 0.3:
        raise ValueError(
            f"a width of {sheet.width:.3g}in is too narrow for these names in letters of {points(8):.3g} "
            "points: take smaller letters, or legend: below"
        )
    for axes in all_axes:
        frame = axes.get_position()
        start = left + more_left + shrunk * (frame.x0 * whole - left)
        axes.set_position((start / whole, frame.y0, shrunk * frame.width, frame.height))
    for axes, (label, text) in zip(all_axes, labels, strict=True):
        label.set_text(text)
        box, width = label.get_window_extent(), axes.get_window_extent().width
        beyond_right = max(axes.get_window_extent().x0 + (width + box.width) / 2 - (whole - gap), 0.0)
        label.set_x(0.5 - beyond_right / width)


def few_ticks(all_axes: Sequence[Axes], sheet: Sheet) -> None:
    """Leave room between ticks, if the user says how large the figure is; before its axes get scales."""
    if sheet.width is None and sheet.height is None:
        return
    for axes in all_axes:
        frame, inch = axes.get_window_extent(), axes.figure.dpi * points(1)
        axes.locator_params(axis="x", nbins=max(2, min(9, int(frame.width / inch / 0.5))))
        axes.locator_params(axis="y", nbins=max(2, min(9, int(frame.height / inch / 0.28))))


def blank(width: float, height: float) -> Figure:
    """Create an empty figure that pyplot does not know, its size in inches.

    It may outlive our style: saved later, by whoever restyled it, its texts are still texts in a PDF.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Printed(Figure):
        def savefig(self, fname: Any, **options: Any) -> None:
            with rc_context(SAVED):
                super().savefig(fname, **options)

        def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
            """Show it in a notebook in its size, as sharp as it is printed."""
            content = io.BytesIO()
            self.savefig(content, format="png")
            wide, high = (round(96 * inches) for inches in self.get_size_inches())
            return content.getvalue(), {"width": wide, "height": high}

    figure = Printed(figsize=(width, height), dpi=DPI)
    FigureCanvasAgg(figure)  # measures texts, whatever format the figure is saved in
    return figure


def add_axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Add axes at a position given in inches."""
    whole, total = figure.get_size_inches()
    return figure.add_axes((left / whole, bottom / total, width / whole, height / total))


def figure_of(axes: Axes) -> Figure:
    """Return the figure that axes belong to."""
    from matplotlib.figure import Figure

    assert isinstance(axes.figure, Figure)
    return axes.figure


def round_ticks(axes: Axes, log: bool = False) -> None:
    """Write ticks of the horizontal axis as round numbers (5k, 2M); make it logarithmic if `log`."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(lambda x, _: units.tick(x, axes.get_xlim()[1]))


def scale_scores(axes: Axes, log: bool, scores: Sequence[float]) -> None:
    """Make the vertical axis logarithmic, if the metric wants that, and all scores have a logarithm."""
    if log and min(scores) > 0:
        from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

        axes.set_yscale("log")
        wide = max(scores) >= _DECADES * min(scores)
        ticks = LogLocator(subs=(1.0, 2.0, 5.0)) if wide else MaxNLocator(6, steps=[1, 2, 5, 10])
        axes.yaxis.set_major_locator(ticks)
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())


def tick_at_values(axes: Axes, means: pd.DataFrame) -> None:
    """Put ticks at words, or at the values themselves where they are few.

    Args:
        means: With columns x and tick (a word, or None for the number).
    """
    from matplotlib.ticker import NullFormatter, NullLocator

    values = means["x"].drop_duplicates().sort_values()
    if means["tick"].notna().any():
        words = means.drop_duplicates("x").sort_values("x")
        axes.set_xticks(words["x"], list(words["tick"]))
        axes.set_xlim(values.min() - 0.35, values.max() + 0.35)
        axes.xaxis.grid(False)
        return
    if values.min() > 0 and values.max() >= LOG_FROM * values.min():
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_minor_locator(NullLocator())
    if len(values) <= _FEW_TICKS:
        axes.set_xticks(list(values))
    round_ticks(axes)
    axes.margins(x=0.08)


def band(axes: Axes, x: Any, low: Any, high: Any, color: str, alpha: float = 0.16) -> None:
    """Shade the range around a line."""
    axes.fill_between(x, low, high, color=color, alpha=alpha, linewidth=0)
