"""Lay out a printed figure: panels, title, caption, legend, and the names next to curves and points.

`panels` makes the axes. Ordinary Matplotlib calls draw on them, with a `label` for each line, marker, or bar
that readers must identify. `finish` adds the words, names the labeled artists, and lays everything out.
"""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..errors import RequestError
from ..sheet import Legend, Sheet, inches
from .labels import alike, by_label, is_curve, place_names, write_name
from .plot import Texts
from .style import GRAY, SAVED, size_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 200
_EDGE = 0.06  # inches around everything
_LOWEST = 0.6  # inches: height of a row of panels with its labels
_TICK = 0.65  # inches: width of the text of a tick, unless few ticks have more room
_NAMED = 0.75  # share of the width that a panel keeps next to the names of its lines
_LEGEND: dict[str, Any] = {
    "frameon": False, "handlelength": 1.8, "handletextpad": 0.5, "columnspacing": 1.2, "labelspacing": 0.35,
    "borderpad": 0.1, "borderaxespad": 0.0, "loc": "lower center",
}  # fmt: skip


def panels(
    sheet: Sheet,
    count: int = 1,
    *,
    height: float | None = None,
    columns: int | None = None,
    least: float = 1.7,
    **options: Any,
) -> tuple[Figure, list[Axes]]:
    """Create a figure with axes in rows.

    Args:
        sheet: Width of the figure.
        count: Number of panels.
        height: Height of a row with its labels, inches; None for one that suits the width.
        columns: Number of panels in a row; None for as many as are at least `least` inches wide.
        least: Width of a panel, inches.
        options: Arguments of `Figure.subplots`, such as `sharey` and `width_ratios`.
    """
    width = sheet.inches
    columns = columns or max(1, min(count, int(width / least)))
    rows = -(-count // columns)
    columns = -(-count // rows)
    height = height or min(2.8, max(1.6, 0.75 * width / columns))
    figure = _blank(width, rows * height)
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    axes = list(grid.flat)
    for unused in axes[count:]:
        unused.remove()
    for above in axes[count - columns : columns * (rows - 1)]:
        above.tick_params(labelbottom=True)  # no panel is below, so labels are needed even on a shared axis
    return figure, axes[:count]


def finish(
    figure: Figure,
    texts: Texts,
    sheet: Sheet,
    *,
    named: Legend = "direct",
    x: str = "",
    y: str = "",
) -> Figure:
    """Name the labeled artists, add title and caption, and lay out the figure.

    Args:
        figure: From `panels`, drawn.
        texts: Title and caption; either may be empty.
        sheet: Height and place of the names, if the user chose them.
        named: Default place of the names. "direct" is next to lines and markers, if the panels have room.
        x: Label below all panels, in place of a label below each.
        y: Label left of all panels.

    Raises:
        ValueError: The figure doesn't fit in its width or height.
    """
    labeled = {axes: by_label(axes.get_legend_handles_labels()[0]) for axes in figure.axes}
    where = sheet.legend or named
    if where == "direct" and not all(map(is_curve, itertools.chain(*labeled.values()))):
        where = "below"
    twins = {axes: alike(handles) for axes, handles in labeled.items()}  # a legend can't tell them apart
    attempts: dict[str, list[dict[Axes, list[Any]]]]
    attempts = {"direct": [labeled, twins, {}], "below": [twins, {}], "none": [{}]}
    page = _Page(figure, texts, sheet, x, y)
    for direct in attempts[where]:
        names = {axes: [write_name(axes, handle) for handle in direct[axes]] for axes in direct}
        rest = [each for axes in labeled for each in labeled[axes] if each not in direct.get(axes, ())]
        fits = page.arrange([] if where == "none" else by_label(rest))
        is_clear = [place_names(axes, panel_names) for axes, panel_names in names.items()]
        if fits and (all(is_clear) or direct is not labeled):
            return figure
        for name in itertools.chain(*names.values()):
            name.remove()
    raise RequestError(
        f"a width of {figure.get_figwidth():.3g}in is too narrow for a font of {size_of('name'):.3g} points"
    )


class _Page:
    """Words above and below the panels; Matplotlib's constrained layout places the panels between them."""

    def __init__(self, figure: Figure, texts: Texts, sheet: Sheet, x: str, y: str) -> None:
        self.figure, self.width, self.content = figure, figure.get_figwidth(), figure.get_figheight()
        self.height = inches(sheet.height) if sheet.height else None
        left, room = _EDGE / self.width, self.width - 2 * _EDGE
        style: dict[str, Any] = {"size": size_of("title"), "va": "top"}
        self.title = figure.text(left, 1, wrapped(texts.title, room, style["size"]), **style)
        style = {"size": size_of("caption"), "va": "bottom", "color": GRAY, "linespacing": 1.15}
        self.caption = figure.text(left, 0, wrapped(texts.caption, room, style["size"]), **style)
        self.x = figure.text(0.5, 0, x, ha="center", va="bottom")
        self.y = figure.text(left, 0.5, y, ha="left", va="center", rotation=90)
        sides = {"xaxis.label": "width", "yaxis.label": "height", "_left_title": "width"}
        labels = [
            (axes, attrgetter(name)(axes), side) for axes in figure.axes for name, side in sides.items()
        ]
        self.labels = [(axes, label, label.get_text(), side) for axes, label, side in labels]

    def arrange(self, entries: Sequence[Any]) -> bool:
        """Add a legend of the entries, set the height, and lay out the panels; return whether they fit."""
        figure = self.figure
        for legend in [*figure.legends]:
            legend.remove()
        legends = [self._legend(entries)] if entries else []
        above, below = _EDGE + _size(self.title)[1], _EDGE / 2
        levels = []
        for strip in (self.caption, *legends, self.x):
            levels.append(below)
            below += _size(strip)[1]
        grid: Any = figure.axes[0].get_gridspec()
        total = self.height or above + self.content + below
        least = above + below + _LOWEST * grid.nrows
        if total < least:
            raise RequestError(
                f"a height of {total:.3g}in leaves no room for the panels: it takes at least {least:.2f}in; "
                "without title, caption, or legend, less is enough"
            )
        figure.set_figheight(total)
        self.title.set_y(1 - _EDGE / total)
        self.caption.set_y(levels[0] / total)
        self.x.set_y(levels[-1] / total)
        for legend in legends:
            legend.set_bbox_to_anchor((0.5, levels[1] / total), figure.transFigure)
        left = _size(self.y)[0] or _EDGE / 2
        self.y.set_y((1 + (below - above) / total) / 2)
        size = 1 - (left + _EDGE) / self.width, 1 - (above + below) / total
        return self._lay_out((left / self.width, below / total, *size))

    def _lay_out(self, rect: tuple[float, ...]) -> bool:
        """Lay out the panels twice: the first tells the width at which labels are broken into lines."""
        import warnings

        figure = self.figure
        for _ in range(2):
            for axes, label, text, side in self.labels:
                room = getattr(axes.get_window_extent(), side) / figure.dpi
                room *= 1.1 if side == "height" or label is axes.xaxis.label else 1.0  # may stick out a bit
                label.set_text(wrapped(text, room, label.get_fontsize()))
            figure.set_layout_engine("constrained", rect=rect, w_pad=_EDGE / 2, h_pad=_EDGE / 2)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return not any("constrained_layout not applied" in str(each.message) for each in caught)

    def _legend(self, entries: Sequence[Any]) -> Any:
        """Create a legend with as many columns as fit."""
        size, room = size_of("name"), self.width - 2 * _EDGE
        handle = size / 72 * sum(_LEGEND[each] for each in ("handlelength", "handletextpad", "columnspacing"))
        names = [wrapped(each.get_label(), room - handle, size) for each in entries]
        widest = max(_width(line, size) for name in names for line in name.split("\n"))
        columns = max(1, min(len(names), int(room / (widest + handle))))
        legend = self.figure.legend(handles=entries, labels=names, ncols=columns, **_LEGEND)
        legend.set_in_layout(False)
        return legend


def wrapped(text: str, width: float, size: float) -> str:
    """Break a text into lines.

    Args:
        text: Breaks at its spaces, and in a word longer than a line after one of `_=,/-`, or anywhere.
        width: Width of a line, inches.
        size: Font size, points.
    """
    lines: list[str] = []
    for word in text.split():
        pieces = [word] if _width(word, size) <= width else re.findall(r"[^_=,/-]+[_=,/-]*|[_=,/-]+", word)
        letters = [p for piece in pieces for p in ([piece] if _width(piece, size) <= width else piece)]
        for place, piece in enumerate(letters):
            longer = f"{lines[-1]}{'' if place else ' '}{piece}" if lines else piece
            if lines and _width(longer, size) <= width:
                lines[-1] = longer
            else:
                lines.append(piece)
    return "\n".join(lines)


def write_ticks(axes: Axes, x: Iterable[float], texts: Iterable[str]) -> None:
    """Write ticks on the horizontal axis, broken into lines; texts that would overlap are left out."""
    size, end, shown = size_of("label"), -math.inf, []
    across, places = axes.get_xaxis_transform(), [*x]
    room = _NAMED * axes.get_window_extent().width / axes.figure.dpi / len(places) - _EDGE
    for place, text in zip(places, texts, strict=True):
        broken = wrapped(text, max(_TICK, room), size)
        half = max(_width(line, size) for line in broken.split("\n")) / 2
        middle = _NAMED * across.transform((place, 0))[0] / axes.figure.dpi
        fits = middle - half > end
        shown.append(broken if fits else "")
        end = middle + half + _EDGE if fits else end
    axes.set_xticks(places, shown)
    axes.minorticks_off()


def titled(axes: Sequence[Axes], titles: Sequence[str]) -> None:
    """Write a title above each panel, which `finish` breaks into lines."""
    for each, title in zip(axes, titles, strict=True):
        each.set_title(title, size=size_of("name"), pad=3, loc="left", linespacing=1.0)


def _blank(width: float, height: float) -> Figure:
    """Create an empty figure, in inches, that pyplot has no record of.

    A file that a user saves later, when our style isn't applied, still has the settings in `SAVED`.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Printed(Figure):
        def savefig(self, fname: Any, **options: Any) -> None:
            with rc_context(SAVED):
                super().savefig(fname, **options)

        def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
            """Show the figure in a notebook in its size, as sharp as in print."""
            content = io.BytesIO()
            self.savefig(content, format="png")
            wide, high = (round(96 * inches) for inches in self.get_size_inches())
            return content.getvalue(), {"width": wide, "height": high}

    figure = Printed(figsize=(width, height), dpi=DPI)
    FigureCanvasAgg(figure)  # measures texts, whatever the format of the file
    return figure


def _size(artist: Any) -> tuple[float, float]:
    """Return width and height of a text or legend with the gap around it, inches; 0 if it is empty."""
    if hasattr(artist, "get_text") and not artist.get_text():
        return 0.0, 0.0
    box, dpi = artist.get_window_extent(artist.figure.canvas.get_renderer()), artist.figure.dpi
    return box.width / dpi + _EDGE, box.height / dpi + _EDGE


def _width(text: str, size: float) -> float:
    """Return the width of a text, inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return float(text_to_path.get_text_width_height_descent(text, FontProperties(size=size), False)[0]) / 72
