"""The style of figures: colors, markers and line styles of curves, colors of costs, matplotlib's settings.

To change the color of a curve, change it here: figures carry their looks in their data, and both drawings
read them from there. The page lightens colors in dark mode (`ink` in report/page.js).

Colors are Okabe and Ito's ("Color Universal Design", 2008), legible in print, in gray and to the
color-blind; from the eighth run on Paul Tol's, chosen to differ from these. Twelve runs have colors of
their own. No two runs of a figure differ by color alone: each also has its own marker and line style, and
no two of 110 have all three in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..sheet import PLAIN_SIZE, Sheet

GRAY = "#6e6e6e"  # references, fronts and notes, which do not compete

ACCENT = "#0072B2"
"""The one curve that a panel is about."""

_BASELINE = "#000000"
_COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195",
    "#882255", "#999933", "#332288", "#8C564B",
)  # fmt: skip
_MARKERS = ("s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
_LINES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (2, 1)),
    (0, (8, 1.5, 1, 1.5, 1, 1.5)),
)

SURVIVORS: Any = (0, (1, 1.5))
"""Line of a mean over some of the seeds, the others being lost: finely dotted, whatever its label."""

COMPONENT_LOOKS = {
    "learner": ("#0072B2", ""),
    "image_tower": ("#0072B2", ""),
    "text_tower": ("#56B4E9", ""),
    "loss": ("#7A5195", ""),
    "scoring": ("#E69F00", "////"),
    "selection": ("#009E73", "...."),
    "reference_scoring": ("#CC79A7", "xxxx"),
}
"""Component of the cost → color and hatch; hatches tell components apart in gray."""

PARTS = (
    ("#0072B2", ""),
    ("#E69F00", "////"),
    ("#009E73", "...."),
    ("#CC79A7", "xxxx"),
    ("#56B4E9", ""),
    ("#D55E00", "////"),
    ("#7A5195", "...."),
    ("#999933", "xxxx"),
)
"""Parts of a whole in the order of their size → color and hatch."""

SAVED: Any = {
    "pdf.fonttype": 42,  # text that can be searched and edited; journals refuse the other kind
    "svg.fonttype": "path",  # independent of installed fonts
    "svg.hashsalt": "jestlab",  # ids that do not change from one drawing to the next
}
"""What matplotlib reads when a figure is saved, which may be long after it was drawn."""

_RC: dict[str, Any] = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "hatch.linewidth": 0.5,
    "hatch.color": "white",
    "text.parse_math": False,  # a $ in a run's name is a $
    **SAVED,
}


@dataclass(frozen=True)
class Look:
    """How the curve of one label is drawn: color, marker and line style, as matplotlib names them."""

    color: str
    marker: str
    line: Any


OURS, OTHERS = Look(_COLORS[2], "D", "-"), Look(GRAY, "o", "-")
"""Published methods: those of the source's own authors, and others."""


def looks(labels: Sequence[str], baseline: str) -> dict[str, Look]:
    """Choose a look for each label, the same in every figure of an experiment; the baseline is black."""
    others = [label for label in labels if label != baseline]
    chosen = {
        label: Look(_COLORS[i % len(_COLORS)], _MARKERS[i % len(_MARKERS)], _LINES[i % len(_LINES)])
        for i, label in enumerate(others)
    }
    return {baseline: Look(_BASELINE, "o", "-"), **chosen}


def ink(color: str) -> str:
    """Darken a color for text, since letters need more contrast than lines."""
    channels = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(0.72 * channel):02x}" for channel in channels)


def shades(color: str, count: int) -> list[str]:
    """Return `count` shades from light to the color itself, for lines that have an order."""
    channels = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    whites = [0.6 - 0.6 * i / max(1, count - 1) for i in range(count)]
    return ["#" + "".join(f"{round(c + white * (255 - c)):02x}" for c in channels) for white in whites]


def points(size: float) -> float:
    """Convert a size of letters, as it is at the usual 8 points, to that of the style that is applied."""
    import matplotlib

    return size * float(matplotlib.rcParams["font.size"]) / PLAIN_SIZE


def label_size() -> float:
    """Size of names, points."""
    return points(7.5)


@contextmanager
def applied(sheet: Sheet | None = None) -> Iterator[None]:
    """Apply our style, over matplotlib's defaults and not the user's, while drawing and saving.

    Args:
        sheet: With font and size of letters.

    Raises:
        ValueError: Its font is not installed.
    """
    import matplotlib.style

    settings = _RC if sheet is None else _RC | sheet.settings
    with matplotlib.style.context(["default", settings]):
        yield
