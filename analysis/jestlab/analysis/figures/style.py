"""The style of figures: markers and line styles of labels, uncertainty, and Matplotlib's settings.

`colors` chooses the color of a label. The data of a figure contains its looks, so print and page agree. No
two of 104 labels share color and marker.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from ..colors import BASELINE, PALETTE, REFERENCE, LabelColor
from ..intervals import INTERVAL
from ..sheet import PLAIN, Sheet

GRAY = "#59626d"  # notes
FRONT = "#aeb5bd"
FAINT = "#c4c4c4"  # curves that are shown for comparison

_MARKERS = ("s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d", "8")

SURVIVORS: Any = (0, (1, 1.5))
"""Line of a mean over the seeds that remain after others were lost: finely dotted for any label."""

DOTTED: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9, "zorder": 1}
"""Line of a level for comparison, such as the baseline's final score."""

DASHED: dict[str, Any] = {"color": REFERENCE.light, "linestyle": (0, (6, 3)), "linewidth": 0.8, "zorder": 1}
"""Line of the final score of a reference."""

UNCERTAINTY = f"{INTERVAL} of the mean"
"""What every bar and band of a figure shows."""

PARTS = tuple(zip([each.light for each in PALETTE], 2 * ("", "////", "....", "xxxx"), strict=True))
"""Color and hatch of the parts of a whole. Hatches distinguish them in gray print."""

SAVED: Any = {
    "pdf.fonttype": 42,  # text that can be searched and edited; journals reject the other kind
    "svg.fonttype": "path",  # independent of installed fonts
    "svg.hashsalt": "jestlab",  # the same ids in every drawing
}
"""Settings that Matplotlib reads when a figure is saved, which may be long after it was drawn."""

_RC: dict[str, Any] = {
    "axes.titlesize": "medium",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "hatch.linewidth": 0.5,
    "hatch.color": "white",
    "text.parse_math": False,  # a $ in the name of a run is a $
    **SAVED,
}
_SIZES = {"title": 1.125, "label": 1.0, "name": 0.94, "caption": 0.82}  # relative to the font size


@dataclass(frozen=True)
class Look:
    """How a label is drawn, in Matplotlib's notation; `dark` is the color on dark pages."""

    color: str
    marker: str
    line: Any
    dark: str = ""


OURS, OTHERS = Look(PALETTE[2].light, "D", "-"), Look(GRAY, "o", "-")
"""Looks of published methods: those of the source's own authors, and others."""


def looks(colors: Mapping[str, LabelColor]) -> dict[str, Look]:
    """Return the look of each label; only the baseline and references have circles as markers.

    Args:
        colors: The color of all labels of an experiment in order, so that labels keep their markers.
    """
    chosen, place = {}, 0
    for label, color in colors.items():
        own = color not in (BASELINE, REFERENCE)
        lengths = tuple(float(length) / 2 for length in color.dash.split(",") if length)
        marker = _MARKERS[place % len(_MARKERS)] if own else "o"
        chosen[label] = Look(color.light, marker, (0, lengths) if lengths else "-", color.dark)
        place += own
    return chosen


def ink(color: str) -> str:
    """Darken a color for text, since letters need more contrast than lines."""
    channels = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(0.72 * channel):02x}" for channel in channels)


def shades(color: str, count: int) -> list[str]:
    """Return `count` shades from light to the color itself, for lines that have an order."""
    channels = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    whites = [0.6 - 0.6 * i / max(1, count - 1) for i in range(count)]
    return ["#" + "".join(f"{round(c + white * (255 - c)):02x}" for c in channels) for white in whites]


def size_of(what: Literal["title", "label", "name", "caption"]) -> float:
    """Return the font size of a kind of text in the current style, points."""
    import matplotlib

    return _SIZES[what] * float(matplotlib.rcParams["font.size"])


@contextmanager
def applied(sheet: Sheet = PLAIN) -> Iterator[None]:
    """Apply our style on top of Matplotlib's defaults, not of the user's settings, to draw or save.

    Args:
        sheet: Font and font size that the user chose.

    Raises:
        ValueError: The font isn't installed.
    """
    import matplotlib.style

    settings = _RC | {"font.size": sheet.font_size or 8.0, "font.family": sheet.families}
    settings["legend.fontsize"] = _SIZES["name"] * settings["font.size"]
    with matplotlib.style.context(["default", settings]):
        yield
