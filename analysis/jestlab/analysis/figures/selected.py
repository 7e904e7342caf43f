"""Pictures of what was selected: by each run over training, or from one super-batch with captions."""

from __future__ import annotations

import base64
import io
import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..frames import Frames
from ..sheet import Sheet
from .canvas import WIDTH, add_axes, canvas
from .plot import Plot, Texts, title
from .style import GRAY, points

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES = 24
"""Pictures of a step, of each run."""

_COLUMNS = 6  # of a step's pictures
_LEFT, _ABOVE, _BETWEEN = 0.95, 0.2, 0.08  # inches
_MOST = 12  # labels
_LABEL, _CAPTION = 16, 15  # characters
_TEXT = 0.26  # room for a caption and a score below a picture, inches
_ACROSS = 4  # pictures of the selected, and of the rejected, beside each other


class ShownExample(NamedTuple):
    """An example that a run looked at in a step.

    Attributes:
        label: Of the run.
        step: Counted from 1.
        selected: Whether the run trained on it.
        score: By which it was selected or not; NaN where nothing is scored.
        caption: Its caption.
        picture: A small PNG file.
    """

    label: str
    step: int
    selected: bool
    score: float
    caption: str
    picture: bytes


class Pictures(Protocol):
    """Reads what runs selected."""

    def __call__(self, experiment: str, labels: tuple[str, ...], size: int) -> list[ShownExample]:
        """Read some of what runs selected, at a few steps of each; ValueError says why there is nothing."""


def selected(frames: Frames, pictures: Pictures | None) -> Plot:
    """Show what each run selected at the beginning, after a quarter of its steps, and at the end.

    Args:
        frames: Results of the experiment.
        pictures: Reads what runs selected; None where it cannot be read.

    Returns:
        The plot, named "selected". Its data: a row a picture, with the fields of `ShownExample`, `picture`
        in base64, and text.

    Raises:
        ValueError: There is nothing to show.
    """
    if pictures is None:
        raise ValueError("pictures are read from a lab, which is not known here: jestlab plot does")
    labels = frames.competitors
    data = _frame(pictures(frames.experiment, tuple(labels[:_MOST]), PICTURES))
    data["text"] = data["label"].map(frames.shown)
    more = f" Shown: the first {_MOST} of {len(labels)} labels." if len(labels) > _MOST else ""
    caption = f"Of each run's first seed, {PICTURES} of the examples that it trained on in a step.{more}"
    return Plot("selected", data, Texts(title(frames), caption, "", ""), _draw_over_training)


def super_batch(name: str, shown: Sequence[ShownExample], heading: str, caption: str) -> Plot:
    """Show some of the selected and of the rejected of one super-batch, with captions and scores."""
    return Plot(name, _frame(shown), Texts(heading, caption, "", ""), _draw_super_batch)


def _frame(shown: Sequence[ShownExample]) -> pd.DataFrame:
    import pandas as pd

    rows = [one._replace(picture=base64.b64encode(one.picture)) for one in shown]
    data = pd.DataFrame(rows, columns=list(ShownExample._fields))
    return data.assign(picture=[content.decode() for content in data["picture"]])


def _pixels(picture: str) -> Any:
    """Return the pixels of a picture, uint8 [h, w, 3]."""
    import numpy as np
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        return np.asarray(image.convert("RGB"))


def _mosaic(pictures: Sequence[str], columns: int) -> Any:
    """Put pictures side by side, row by row, with a white line between them."""
    import numpy as np

    tiles = [_pixels(picture) for picture in pictures]
    side = tiles[0].shape[0] + 2
    rows = math.ceil(len(tiles) / columns)
    whole = np.full((rows * side, columns * side, 3), 255, np.uint8)
    for place, tile in enumerate(tiles):
        top, left = (part * side for part in divmod(place, columns))
        whole[top : top + tile.shape[0], left : left + tile.shape[1]] = tile
    return whole


def _draw_over_training(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw a row a label, and in it a mosaic a step."""
    labels = list(dict.fromkeys(data["label"]))
    columns = max(data[data["label"] == label]["step"].nunique() for label in labels)
    width, left = sheet.width or 1.3 * WIDTH, points(_LEFT)
    each = (width - left) / columns
    count = data.groupby(["label", "step"]).size().max()
    high = (each - _BETWEEN) * math.ceil(count / _COLUMNS) / _COLUMNS
    above = points(_ABOVE)
    figure, base = canvas(texts, width, len(labels) * (high + above), 0.1)
    for line, label in enumerate(labels):
        of_label = data[data["label"] == label]
        bottom = base + (len(labels) - 1 - line) * (high + above)
        for column, (step, rows) in enumerate(of_label.groupby("step")):
            axes = add_axes(figure, left + column * each, bottom, each - _BETWEEN, high)
            axes.imshow(_mosaic(list(rows["picture"]), _COLUMNS), interpolation="none", aspect="auto")
            axes.set_axis_off()
            axes.set_title(f"step {step:,}", size=points(6.5), color=GRAY, pad=2)
            if column == 0:
                name = textwrap.fill(of_label["text"].iloc[0], _LABEL)
                axes.text(-0.03, 0.5, name, transform=axes.transAxes, ha="right", va="center", size=points(7))
    return figure


def _draw_super_batch(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw the selected left and the rejected right, each picture over its caption and score."""
    width = sheet.width or 1.3 * WIDTH
    sides = [data[data["selected"] == is_selected] for is_selected in (True, False)]
    sides = [side for side in sides if len(side)]
    half, across = width / len(sides), 2 * _ACROSS // len(sides)
    each = (half - 0.2) / across
    text = points(_TEXT)
    lines = max(math.ceil(len(side) / across) for side in sides)
    high, above = lines * (each + text), points(_ABOVE)
    figure, base = canvas(texts, width, high + above, 0.1)
    total = figure.get_figheight()
    for place, side in enumerate(sides):
        name = "selected" if side["selected"].iloc[0] else "rejected"
        start = 0.1 + place * half
        figure.text(start / width, (base + high + 0.3 * above) / total, name, size=points(8), weight="bold")
        for number, row in enumerate(side.itertuples()):
            line, column = divmod(number, across)
            bottom = base + high - (line + 1) * (each + text) + text
            axes = add_axes(figure, start + column * each, bottom, each - 0.06, each - 0.06)
            _draw_picture(axes, row)
    return figure


def _draw_picture(axes: Axes, row: Any) -> None:
    """Draw a picture with its caption and score."""
    axes.imshow(_pixels(row.picture), interpolation="none")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    caption = row.caption if len(row.caption) <= _CAPTION else row.caption[: _CAPTION - 1].rstrip() + "…"
    # A caption is anybody's text: dollar signs are no mathematics.
    words = caption.replace("$", r"\$") + ("" if math.isnan(row.score) else f"\n{row.score:.2f}")
    axes.set_xlabel(words, size=points(5.5), labelpad=1.5, linespacing=1.05)
