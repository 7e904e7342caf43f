"""The page of a printed figure: panels, title, caption, legend, and the names next to curves and points.

`panels` makes the axes. Ordinary Matplotlib calls draw on them, with a `label` for each line, marker, or bar
that readers must identify. `finish` adds the words, names the labeled artists, and lays everything out.
"""

from __future__ import annotations

import io
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from ..errors import RequestError
from ..sheet import Legend, Sheet
from .labels import by_label, is_crowded, is_curve, labeled, look_of, place_names, write_name
from .plot import Texts
from .style import GRAY, SAVED, size_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Where = Legend | Literal["above"]
"""Where names are: next to lines and markers, or in a legend."""

WIDTH = 5.5  # inches: the text width of a paper
DPI = 200
EDGE = 0.06  # inches around everything
_LOWEST = 0.6  # inches: height of a row of panels with its labels
_LEGEND: dict[str, Any] = {
    "frameon": False, "handlelength": 1.8, "handletextpad": 0.5, "columnspacing": 1.2, "labelspacing": 0.35,
    "borderpad": 0.1, "borderaxespad": 0.0,
}  # fmt: skip


def panels(
    sheet: Sheet,
    count: int = 1,
    *,
    height: float | Sequence[float] | None = None,
    columns: int | None = None,
    least: float = 1.7,
    **options: Any,
) -> tuple[Figure, list[Axes]]:
    """Create a figure with axes in rows.

    Args:
        sheet: Width of the figure; 5.5 inches by default.
        count: Number of panels.
        height: Of a row, or of each panel, with its labels, inches; None for one that suits the width.
        columns: Number of panels in a row; None for as many as are at least `least` inches wide.
        least: Width of a panel, inches.
        options: Of `Figure.subplots`, such as `sharey` and `width_ratios`.
    """
    width = sheet.width or WIDTH
    columns = columns or max(1, min(count, int(width / least)))
    rows = -(-count // columns)
    columns = -(-count // rows)
    height = height or min(2.8, max(1.6, 0.75 * width / columns))
    each = [height] * count if isinstance(height, int | float) else list(height)
    heights = [max(each[start : start + columns]) for start in range(0, count, columns)]
    figure = _blank(width, sum(heights))
    grid = figure.subplots(rows, columns, squeeze=False, height_ratios=heights, **options)
    axes = list(grid.flat)
    for unused in axes[count:]:
        unused.remove()
    for above in axes[count - columns : columns * (rows - 1)]:
        above.tick_params(labelbottom=True)  # nothing is below it, even if the panels share the axis
    return figure, axes[:count]


def finish(
    figure: Figure,
    texts: Texts,
    sheet: Sheet,
    *,
    named: Where = "direct",
    x: str = "",
    y: str = "",
    keys: Sequence[Artist] | None = None,
) -> Figure:
    """Name the labeled artists, add title and caption, and lay out the figure.

    Args:
        figure: From `panels`, drawn.
        texts: Title and caption; either may be empty.
        sheet: Height and place of the names, if the user chose them.
        named: Default place of the names. "direct" is next to lines and markers, if the panels have room.
        x: Label below all panels, in place of a label for each.
        y: Label left of all panels.
        keys: Entries of the legend, if they differ from the labeled artists.

    Raises:
        ValueError: The figure doesn't fit in its width or height.
    """
    of_panels = {each: labeled(each) for each in figure.axes}
    where: Where = sheet.legend or named
    if where == "direct" and not all(is_curve(handle) for of in of_panels.values() for handle in of):
        where = named
    names: dict[Axes, list[Any]] = {}
    free: dict[Axes, list[Any]] = {}  # names that a legend can replace
    rest: list[Any] = []
    for axes, handles in of_panels.items():
        looks = Counter(map(look_of, handles))
        for handle in handles:
            # A legend can't identify artists that look the same: their names stay next to them.
            is_fixed = looks[look_of(handle)] > 1
            if is_fixed or where == "direct":
                names.setdefault(axes, []).append(name := write_name(axes, handle))
                if not is_fixed and not sheet.legend:
                    free.setdefault(axes, []).append(name)
            if not (is_fixed or (where == "direct" and sheet.legend)):
                rest.append(handle)
    page = _Page(figure, texts, sheet, x, y)
    fits = page.arrange()
    if not fits and not sheet.legend:
        free, rest = names, [handle for handles in of_panels.values() for handle in handles]
    if free and not (
        fits and all(not is_crowded(each, of) and place_names(each, of) for each, of in names.items())
    ):
        for name in (name for of in free.values() for name in of):
            name.remove()
        names = {axes: [name for name in of if name not in free.get(axes, ())] for axes, of in names.items()}
        where = "below"
    shown = list(by_label(rest if keys is None else keys).values())
    if shown and where == "inside":
        figure.axes[0].legend(handles=shown, loc="best", **_LEGEND | {"frameon": True, "framealpha": 0.7})
    if shown and where not in ("direct", "none"):
        fits = page.arrange(_legend(figure, shown, where) if where != "inside" else None, where)
    if not fits:
        raise RequestError(
            f"a width of {figure.get_figwidth():.3g}in is too narrow for these names in letters of "
            f"{size_of('name'):.3g} points: take smaller letters, or legend: below"
        )
    for each, of_panel in names.items():
        place_names(each, of_panel)
    return figure


class _Page:
    """Strips of words around the panels; Matplotlib's constrained layout places the panels between them."""

    def __init__(self, figure: Figure, texts: Texts, sheet: Sheet, x: str, y: str) -> None:
        self.figure, self.sheet, self.content = figure, sheet, figure.get_figheight()
        width = figure.get_figwidth()
        inside = width - 2 * EDGE
        self.title = figure.text(
            EDGE / width, 1, "\n".join(wrapped(texts.title, inside, size_of("title"))), va="top",
            size=size_of("title"),
        )  # fmt: skip
        self.caption = figure.text(
            EDGE / width, 0, "\n".join(wrapped(texts.caption, inside, size_of("caption"))), va="bottom",
            size=size_of("caption"), color=GRAY, linespacing=1.15,
        )  # fmt: skip
        sides = {"xaxis.label": "width", "yaxis.label": "height", "_left_title": "width"}
        self.labels = [
            (each, label := attrgetter(name)(each), label.get_text(), side)
            for each in figure.axes
            for name, side in sides.items()
        ]
        self.x = figure.text(0.5, 0, x, ha="center", va="bottom")
        self.y = figure.text(EDGE / width, 0.5, y, ha="left", va="center", rotation=90)

    def arrange(self, legend: Any = None, where: Where = "none") -> bool:
        """Set the height, move the strips, and lay out the panels in the rest; return whether they fit."""
        figure, width = self.figure, self.figure.get_figwidth()
        title, caption, x = (_size(text)[1] for text in (self.title, self.caption, self.x))
        wide, high = _size(legend) if legend is not None else (0.0, 0.0)
        above, below = EDGE + title, EDGE + caption
        beside = wide if where == "right" else 0.0
        above += high if where == "above" else 0.0
        legend_at = below
        below += (high if where == "below" else 0.0) + x
        content = max(self.content, high) if where == "right" else self.content
        total = self.sheet.height or above + content + below
        rows = max(spec.rowspan.stop for each in figure.axes if (spec := each.get_subplotspec()))
        if total - above - below < _LOWEST * rows:
            raise RequestError(
                f"a height of {total:.3g}in leaves no room for the figure: it takes at least "
                f"{above + below + _LOWEST * rows:.2f}in, less without title, caption, or legend"
            )
        figure.set_figheight(total)
        left = _size(self.y)[0] or EDGE / 2
        self.title.set_y(1 - EDGE / total)
        self.caption.set_y(0.5 * EDGE / total)
        self.x.set_y((below - x) / total)
        rect = (left / width, below / total, 1 - (left + beside + EDGE) / width, 1 - (above + below) / total)
        self.x.set_x(rect[0] + rect[2] / 2)
        self.y.set_y(rect[1] + rect[3] / 2)
        if legend is not None:
            place = {
                "right": ("upper right", (1 - EDGE / width, rect[1] + rect[3])),
                "below": ("lower center", (0.5, legend_at / total)),
                "above": ("upper left", (EDGE / width, 1 - (above - high) / total)),
            }[where]
            legend.set_loc(place[0])
            legend.set_bbox_to_anchor(place[1], figure.transFigure)
        return self._lay_out(rect)

    def _lay_out(self, rect: tuple[float, ...]) -> bool:
        """Place the panels twice: labels are wrapped to the width that the first layout gives them."""
        import warnings

        figure = self.figure
        self._wrap_labels()
        for attempt in range(3):
            figure.set_layout_engine("constrained", rect=rect, w_pad=EDGE / 2, h_pad=EDGE / 2)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                figure.draw_without_rendering()
            if not self._wrap_labels() and not self._thin_ticks(attempt):
                break
        figure.set_layout_engine("none")
        return not any("constrained_layout not applied" in str(each.message) for each in caught)

    def _thin_ticks(self, attempt: int) -> bool:
        """Choose fewer ticks for horizontal axes whose ticks touch."""
        from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator

        changed = False
        for axes in self.figure.axes:
            low, high = sorted(axes.xaxis.get_view_interval())
            ticks = [tick for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
            boxes = [tick.label1.get_window_extent() for tick in ticks if tick.label1.get_visible()]
            touch = any(a.x1 + 0.05 * self.figure.dpi > b.x0 for a, b in itertools.pairwise(boxes))
            if touch and not isinstance(axes.xaxis.get_major_locator(), FixedLocator):
                is_log = axes.get_xscale() == "log"
                fewer = LogLocator(subs=((1, 3), (1,))[attempt > 0]) if is_log else MaxNLocator(3 - attempt)
                axes.xaxis.set_major_locator(fewer)
                changed = True
        return changed

    def _wrap_labels(self) -> bool:
        """Break labels that are longer than their axis, which constrained layout ignores."""
        changed = False
        for axes, label, text, side in self.labels:
            room = getattr(axes.get_window_extent(), side) / self.figure.dpi
            room *= 1.1 if side == "height" or label is axes.xaxis.label else 1.0  # labels may stick out
            broken = "\n".join(wrapped(text, room, label.get_fontsize()))
            changed |= broken != label.get_text()
            label.set_text(broken)
        return changed


def wrapped(text: str, width: float, size: float) -> list[str]:
    """Break a text into lines.

    Args:
        text: Broken at its spaces; a longer word after one of `_=,/-`, or anywhere.
        width: Of a line, inches.
        size: Of the letters, points.
    """
    lines: list[str] = []
    for word in text.split():
        if lines and _width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
            continue
        lines.append("")
        for piece in (
            [word] if _width(word, size) <= width else re.findall(r"[^_=,/-]+[_=,/-]*|[_=,/-]+", word)
        ):
            if lines[-1] and _width(lines[-1] + piece, size) > width:
                lines.append("")
            for letter in [piece] if _width(piece, size) <= width else piece:
                if lines[-1] and _width(lines[-1] + letter, size) > width:
                    lines.append("")
                lines[-1] += letter
    return lines


def titled(axes: Sequence[Axes], titles: Sequence[str]) -> None:
    """Write titles above panels, without the beginning that all share if one takes more than two lines.

    Args:
        axes: The panels.
        titles: One for each.
    """
    size, first = size_of("name"), titles[0]
    width = axes[0].get_window_extent().width / axes[0].figure.dpi
    starts = (first[:end] for end in range(len(first), 0, -1) if first[end - 1] == " ")
    start = next((each for each in starts if all(title.startswith(each) for title in titles)), "")
    is_long = any(len(wrapped(title, width, size)) > 2 for title in titles)
    for each, title in zip(axes, titles, strict=True):
        text = f"…{title[len(start) :]}" if start and is_long else title
        each.set_title("\n".join(wrapped(text, width, size)), size=size, pad=3, loc="left", linespacing=1.0)


def _blank(width: float, height: float) -> Figure:
    """Create an empty figure, in inches, that pyplot has no record of.

    It may outlive our style: a PDF that a user saves later still has text as text.
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


def _legend(figure: Figure, handles: Sequence[Any], where: Where) -> Any:
    """Create a legend with as many columns as fit."""
    room = figure.get_figwidth() - 0.5
    names = ["\n".join(wrapped(handle.get_label(), room, size_of("name"))) for handle in handles]
    legend = figure.legend(handles=handles, labels=names, ncols=1, **_LEGEND)
    legend.set_in_layout(False)
    if where == "right":
        return legend
    each = _size(legend)[0] + _LEGEND["columnspacing"] * size_of("name") / 72
    columns = max(1, min(len(handles), int((figure.get_figwidth() - EDGE) / each)))
    legend.remove()
    legend = figure.legend(handles=handles, labels=names, ncols=columns, **_LEGEND)
    legend.set_in_layout(False)
    return legend


def _size(artist: Any) -> tuple[float, float]:
    """Width and height of a text or a legend with the gap around it, inches; none if it is empty."""
    if hasattr(artist, "get_text") and not artist.get_text():
        return 0.0, 0.0
    box, dpi = artist.get_window_extent(artist.figure.canvas.get_renderer()), artist.figure.dpi
    return box.width / dpi + EDGE, box.height / dpi + EDGE


def _width(text: str, size: float) -> float:
    """Width of a text, inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return float(text_to_path.get_text_width_height_descent(text, FontProperties(size=size), False)[0]) / 72
