"""Images that each run selected over training, or that were selected from one super-batch."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from PIL import Image

from ..errors import RequestError
from ..frames import Frames
from ..sheet import Sheet
from .panels import finish, panels, wrapped
from .plot import Plot, Texts, title
from .style import GRAY, ink, size_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = 24
"""Number of images per run and step."""

_COLUMNS = 6  # columns of a step's images
_MOST = 12  # maximum number of labels
_CAPTION = 15  # maximum number of characters of an image's caption
_NAME = 1.0  # inches: width of the name of a label
_WIDE = 0.8  # inches: width of an image of a super-batch with its caption


class ShownExample(NamedTuple):
    """An example of a super-batch.

    Attributes:
        label: Label of the run.
        step: Training step, from 1.
        selected: Whether the run trained on the example.
        score: Score of the example in the selection; NaN if the rule computes none.
        caption: The text of the example.
        picture: A small PNG file.
    """

    label: str
    step: int
    selected: bool
    score: float
    caption: str
    picture: bytes


Pictures = Callable[[str, tuple[str, ...], int], list[ShownExample]]
"""Reads examples at a few steps, given experiment, labels, and number per step; ValueError without any."""


def selected(frames: Frames, pictures: Pictures | None = None) -> Plot:
    """Show examples that each run selected at the start, after a quarter of its steps, and at the end.

    Args:
        pictures: Reads the selected examples; None without a lab.

    Returns:
        The plot. Its data has one row per image, with the fields of `ShownExample` and text.

    Raises:
        ValueError: No run recorded its selection, or `pictures` is None.
    """
    if pictures is None:
        raise RequestError("images are read from a lab, which isn't known here: use jestlab plot")
    labels = frames.competitors
    data = pd.DataFrame(pictures(frames.experiment, tuple(labels[:_MOST]), PICTURES))
    data["text"] = data["label"].map(frames.shown)
    data["color"] = [ink(frames.colors[label].light) for label in data["label"]]
    more = f" Shown: the first {_MOST} of {len(labels)} labels." if len(labels) > _MOST else ""
    caption = f"{PICTURES} of the examples that the first seed of each run trained on in a step.{more}"
    return Plot("selected", data, Texts(title(frames), caption, "", ""), _draw_over_training)


def super_batch(name: str, shown: Sequence[ShownExample], heading: str, caption: str) -> Plot:
    """Show examples of one super-batch with captions and scores, selected ones above, rejected ones below."""
    return Plot(name, pd.DataFrame(shown), Texts(heading, caption, "", ""), _draw_super_batch)


def _image(picture: bytes) -> Image.Image:
    return Image.open(io.BytesIO(picture)).convert("RGB")


def _mosaic(pictures: Sequence[bytes]) -> Image.Image:
    """Return images side by side, row by row, with a white line between them."""
    tiles = list(map(_image, pictures))
    side = tiles[0].height + 2
    whole = Image.new("RGB", (_COLUMNS * side, math.ceil(len(tiles) / _COLUMNS) * side), "white")
    for place, tile in enumerate(tiles):
        whole.paste(tile, (place % _COLUMNS * side, place // _COLUMNS * side))
    return whole


def _draw_over_training(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw a row for each label with a mosaic for each step."""
    rows = [list(images.groupby("step")) for _, images in data.groupby("label", sort=False)]
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
        style: dict[str, Any] = {"size": size, "color": mosaics[0][1]["color"].iloc[0]}
        first.text(-0.03, 0.5, name, transform=first.transAxes, ha="right", va="center", **style)
    return finish(figure, texts, sheet)


def _draw_super_batch(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw the selected images, and below them the rejected ones, each with its caption and score."""
    parts = [part.to_dict("records") for _, part in data.groupby(~data["selected"])]
    across = max(1, min(max(map(len, parts)), int(sheet.inches / _WIDE)))
    rows = [-(-len(part) // across) for part in parts]
    height = sheet.inches / across + 0.3
    figure, all_axes = panels(sheet, sum(rows) * across, columns=across, height=height)
    for axes in all_axes:
        axes.set_axis_off()
        axes.set_anchor("N")
    for part, first in zip(parts, (0, rows[0] * across), strict=False):
        for axes, row in zip(all_axes[first:], part, strict=False):
            axes.imshow(_image(row["picture"]), interpolation="none")
            caption = str(row["caption"])
            caption = caption if len(caption) <= _CAPTION else f"{caption[: _CAPTION - 1].rstrip()}…"
            words = caption if math.isnan(row["score"]) else f"{caption}\n{row['score']:.2f}"
            style: dict[str, Any] = {"ha": "center", "va": "top", "size": size_of("caption")}
            axes.text(0.5, -0.03, words, transform=axes.transAxes, linespacing=1.05, **style)
        heading = "selected" if part[0]["selected"] else "rejected"
        all_axes[first].set_title(heading, size=size_of("name"), weight="bold", loc="left")
    return finish(figure, texts, sheet)
