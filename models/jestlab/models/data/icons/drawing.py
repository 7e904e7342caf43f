"""Draw SVG as pixels, with resvg: the same bytes everywhere, since it uses no fonts of the machine."""

from __future__ import annotations

import io
import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from PIL import Image

from jestlab.models.data.icons.packages import Icon

_PART = 256  # icons that a process draws at a time


def draw(icon: Icon, size: int) -> bytes | None:
    """Draw an icon in the middle of a white square.

    Args:
        icon: What to draw.
        size: Side of the square, in pixels.

    Returns:
        A PNG file; None if nothing is seen: it cannot be drawn, or is white.
    """
    import resvg_py

    left, top, width, height = icon.box
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'width="{size}" height="{size}" viewBox="{left:g} {top:g} {width:g} {height:g}">{icon.body}</svg>'
    )
    try:
        png = bytes(
            resvg_py.svg_to_bytes(
                svg_string=svg, width=size, height=size, background="white", skip_system_fonts=True
            )
        )
    except ValueError:  # of 40,000 icons some are not valid SVG
        return None
    with Image.open(io.BytesIO(png)) as image:
        is_plain = len(image.convert("RGB").getcolors(maxcolors=2**16) or ()) == 1
    return None if is_plain else png


def draw_all(
    icons: Sequence[Icon], size: int, progress: Callable[[int], None] = lambda drawn: None
) -> Iterator[tuple[Icon, bytes]]:
    """Draw icons, on all cores.

    Args:
        icons: What to draw.
        size: Side of the pictures, in pixels.
        progress: Called with the number of icons that were just drawn.

    Yields:
        Those that show something, in order, each with its PNG file.
    """
    for icon, png in zip(icons, _pictures(icons, size), strict=True):
        progress(1)
        if png is not None:
            yield icon, png


def _pictures(icons: Sequence[Icon], size: int) -> Iterator[bytes | None]:
    """Draw icons in this process if they are few, else in one for each core: resvg holds the interpreter."""
    sizes = itertools.repeat(size)
    if len(icons) <= _PART:
        yield from map(draw, icons, sizes)
        return
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(draw, icons, sizes, chunksize=_PART)
