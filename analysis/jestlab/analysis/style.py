"""How every figure looks: one style, legible in print, in grey and to the colour-blind.

Colours are Okabe and Ito's ("Color Universal Design", 2008). No two runs of a figure differ by colour alone:
each has its own marker and line style, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

GREY = "#6e6e6e"  # references, fronts and notes: what is no competitor

_BASELINE = "#000000"
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195")
_MARKERS = ("s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
_LINES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (2, 1)),
    (0, (8, 1.5, 1, 1.5, 1, 1.5)),
)

COMPONENT_LOOKS = {
    "learner": ("#0072B2", ""),
    "image_tower": ("#0072B2", ""),
    "text_tower": ("#56B4E9", ""),
    "loss": ("#7A5195", ""),
    "scoring": ("#E69F00", "////"),
    "selection": ("#009E73", "...."),
    "reference_scoring": ("#CC79A7", "xxxx"),
}
"""Colour and hatch of what FLOPs are spent on: hatches and light tell them apart in grey."""

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
    "pdf.fonttype": 42,  # text that can be searched and edited; journals refuse the other kind
    "svg.fonttype": "path",  # the same everywhere, whatever fonts there are
    "svg.hashsalt": "jestlab",  # ids that do not change from one drawing to the next
}


@dataclass(frozen=True)
class Look:
    """How one run is drawn: colour, marker, line style."""

    colour: str
    marker: str
    line: Any


def looks(labels: Sequence[str], baseline: str) -> dict[str, Look]:
    """A look for each label, the same in every figure of an experiment; the baseline's is black."""
    others = [label for label in labels if label != baseline]
    chosen = {
        label: Look(_COLOURS[i % len(_COLOURS)], _MARKERS[i % len(_MARKERS)], _LINES[i % len(_LINES)])
        for i, label in enumerate(others)
    }
    return {baseline: Look(_BASELINE, "o", "-"), **chosen}


def ink(colour: str) -> str:
    """The colour a run's name is written in: its own, darker, since letters need more contrast than lines."""
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(0.72 * channel):02x}" for channel in channels)


def shades(colour: str, count: int) -> list[str]:
    """A colour from light to itself, in as many steps: for lines that have an order."""
    channels = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    whites = [0.6 - 0.6 * i / max(1, count - 1) for i in range(count)]
    return ["#" + "".join(f"{round(c + white * (255 - c)):02x}" for c in channels) for white in whites]


@contextmanager
def applied() -> Iterator[None]:
    """Draw and save within this: matplotlib's defaults and the style over them, whatever the user has set."""
    import matplotlib.style

    with matplotlib.style.context(["default", _RC]):
        yield
