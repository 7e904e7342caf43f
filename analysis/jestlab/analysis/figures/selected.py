"""Images that were selected: by each run over training, or from one super-batch, with captions."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..errors import RequestError
from ..frames import Frames
from ..sheet import Sheet
from .panels import finish, panels, wrapped
from .plot import Plot, Texts, title
from .style import GRAY, size_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PICTURES = 24
"""Images of a step, of each run."""

_COLUMNS = 6  # of a step's images
_MOST = 12  # labels
_CAPTION = 15  # characters
_NAME = 1.0  # inches: the name of a label
_WIDE = 0.8  # inches: an image of a super-batch with its caption


class ShownExample(NamedTuple):
    """An example of a super-batch.

    Attributes:
        label: Label of the run.
        step: Training step, from 1.
        selected: Whether the run trained on the example.
        score: Its score in the selection; NaN if the rule computes none.
        caption: The text of the example.
        picture: A small PNG file.
    """

    label: str
    step: int
    selected: bool
    score: float
    caption: str
    picture: bytes


class Pictures(Protocol):
    """Reads the examples that runs selected."""

    def __call__(self, experiment: str, labels: tuple[str, ...], size: int) -> list[ShownExample]:
        """Read `size` examples at a few steps of each label; raise ValueError if no run recorded any."""


def selected(frames: Frames, pictures: Pictures | None) -> Plot:
    """Show examples that each run selected at the start, after a quarter of its steps, and at the end.

    Args:
        frames: Results of the experiment.
        pictures: Reads the selected examples; None without a lab.

    Returns:
        The plot. Its data has one row per image, with the fields of `ShownExample`, `picture` in base64, and
        text.

    Raises:
        ValueError: No run recorded its selection, or `pictures` is None.
    """
    if pictures is None:
        raise RequestError("images are read from a lab, which isn't known here: use jestlab plot")
    labels = frames.competitors
    data = _frame(pictures(frames.experiment, tuple(labels[:_MOST]), PICTURES))
    data["text"] = data["label"].map(frames.shown)
    more = f" Shown: the first {_MOST} of {len(labels)} labels." if len(labels) > _MOST else ""
    caption = f"Of each run's first seed, {PICTURES} of the examples that it trained on in a step.{more}"
    return Plot("selected", data, Texts(title(frames), caption, "", ""), _draw_over_training)


def super_batch(name: str, shown: Sequence[ShownExample], heading: str, caption: str) -> Plot:
    """Show examples of one super-batch, first the selected ones, with their captions and scores."""
    return Plot(name, _frame(shown), Texts(heading, caption, "", ""), _draw_super_batch)


def _frame(shown: Sequence[ShownExample]) -> pd.DataFrame:
    import pandas as pd

    data = pd.DataFrame(list(shown), columns=list(ShownExample._fields))
    return data.assign(picture=[base64.b64encode(content).decode() for content in data["picture"]])


def _pixels(picture: str) -> Any:
    """Return the pixels of an image, uint8 [h, w, 3]."""
    import numpy as np
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        return np.asarray(image.convert("RGB"))


def _mosaic(pictures: Sequence[str]) -> Any:
    """Return images side by side, row by row, with a white line between them."""
    import numpy as np

    tiles = [_pixels(picture) for picture in pictures]
    side = tiles[0].shape[0] + 2
    whole = np.full((math.ceil(len(tiles) / _COLUMNS) * side, _COLUMNS * side, 3), 255, np.uint8)
    for place, tile in enumerate(tiles):
        top, left = (part * side for part in divmod(place, _COLUMNS))
        whole[top : top + tile.shape[0], left : left + tile.shape[1]] = tile
    return whole


def _draw_over_training(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw a row for each label with a mosaic for each step."""
    rows = [list(of_label.groupby("step")) for _, of_label in data.groupby("label", sort=False)]
    columns = max(map(len, rows))
    wide = (sheet.inches - _NAME) / columns
    lines = math.ceil(data.groupby(["label", "step"]).size().max() / _COLUMNS)
    height = 0.2 + wide * lines / _COLUMNS
    figure, all_axes = panels(sheet, len(rows) * columns, columns=columns, height=height)
    for axes in all_axes:
        axes.set_axis_off()
    for place, mosaics in enumerate(rows):
        for axes, (step, of_step) in zip(all_axes[place * columns :], mosaics, strict=False):
            axes.imshow(_mosaic(list(of_step["picture"])), interpolation="none")
            axes.set_title(f"step {step:,}", size=size_of("caption"), color=GRAY, pad=2)
        first, size = all_axes[place * columns], size_of("name")
        name = wrapped(str(mosaics[0][1]["text"].iloc[0]), _NAME, size)
        first.text(-0.03, 0.5, name, transform=first.transAxes, ha="right", va="center", size=size)
    return finish(figure, texts, sheet)


def _draw_super_batch(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw the selected images, then the rejected ones, each with its caption and score below it."""
    parts = [part.to_dict("records") for _, part in data.groupby(~data["selected"])]
    width = sheet.inches
    across = max(1, min(max(map(len, parts)), int(width / _WIDE)))
    padded = [[*part, *[None] * (-len(part) % across)] for part in parts]
    figure, all_axes = panels(sheet, sum(map(len, padded)), columns=across, height=width / across + 0.3)
    for axes, row in zip(all_axes, [row for part in padded for row in part], strict=True):
        if row is None:
            axes.set_axis_off()
            continue
        axes.imshow(_pixels(row["picture"]), interpolation="none")
        axes.set(xticks=[], yticks=[], anchor="N")
        axes.spines[:].set_visible(False)
        caption = str(row["caption"])
        if len(caption) > _CAPTION:
            caption = caption[: _CAPTION - 1].rstrip() + "…"
        words = caption if math.isnan(row["score"]) else f"{caption}\n{row['score']:.2f}"
        axes.text(
            0.5, -0.03, words, transform=axes.transAxes, ha="center", va="top", size=size_of("caption"),
            linespacing=1.05,
        )  # fmt: skip
    for part, first in zip(parts, (0, len(padded[0])), strict=False):
        all_axes[first].set_title(
            "selected" if part[0]["selected"] else "rejected", size=size_of("name"), weight="bold", loc="left"
        )
    return finish(figure, texts, sheet)
