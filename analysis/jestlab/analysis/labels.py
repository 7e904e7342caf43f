"""Places for direct labels, so that no reader has to look a run up in a legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Box(NamedTuple):
    """A rectangle, in pixels."""

    left: float
    bottom: float
    right: float
    top: float


_DIRECTIONS = 16
_RADII = (1.0, 1.8, 3.0, 4.5, 6.5, 9.0)  # from near to far, in label heights


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions on a line apart, each as little as possible.

    Least squares under p[i+1] − p[i] ≥ gap in the order of what is wanted: with q[i] = p[i] − i·gap this is
    isotonic regression, solved by pooling adjacent violators.

    Args:
        wanted: Positions, in any order.
        gap: Least distance between neighbours.
        low: The lower end of the room.
        high: The upper end; where the room is too small, positions go beyond it at the top.

    Returns:
        Positions in the order of `wanted`.
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    pools: list[tuple[float, int]] = []  # mean, size
    for rank, i in enumerate(order):
        mean, size = wanted[i] - rank * gap, 1
        while pools and pools[-1][0] > mean:
            other, count = pools.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        pools.append((mean, size))
    levels = [mean for mean, size in pools for _ in range(size)]
    room = max(low, high - (len(wanted) - 1) * gap)
    places = [0.0] * len(wanted)
    for rank, i in enumerate(order):
        places[i] = min(max(levels[rank], low), room) + rank * gap
    return places


def place(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    obstacles: Sequence[Box],
    frame: Box,
) -> list[Box]:
    """Put a label beside each point, clear of the others, of the obstacles and of the frame.

    Greedy: label by label, the nearest of places around the point that covers least.

    Args:
        points: What is labelled, pixels.
        sizes: Width and height of each label, pixels.
        obstacles: What should stay visible: markers, error bars, lines.
        frame: Where labels have to stay.

    Returns:
        A box for each label, in order.
    """
    taken = [*obstacles]
    placed: list[Box] = []
    for (x, y), (width, height) in zip(points, sizes, strict=True):
        boxes = [
            _beside(x, y, width, height, 2 * math.pi * turn / _DIRECTIONS, radius * height)
            for radius in _RADII
            for turn in range(_DIRECTIONS)
        ]
        around = np.array(taken).reshape(-1, 4)
        # Each radius costs a little: of two places that cover nothing, the nearer is taken.
        costs = [
            4 * _covered(box, around) + 4 * _outside(box, frame) + 0.01 * width * height * (i // _DIRECTIONS)
            for i, box in enumerate(boxes)
        ]
        best = boxes[int(np.argmin(costs))]
        taken.append(best)
        placed.append(best)
    return placed


def _beside(x: float, y: float, width: float, height: float, angle: float, distance: float) -> Box:
    """The box whose nearest point lies at a distance from (x, y) in a direction."""
    towards, up = math.cos(angle), math.sin(angle)
    left = x + towards * distance + (towards - 1) * width / 2
    bottom = y + up * distance + (up - 1) * height / 2
    return Box(left, bottom, left + width, bottom + height)


def _covered(box: Box, others: np.ndarray) -> float:
    """Area of a box that others cover, pixels²."""
    width = np.minimum(box.right, others[:, 2]) - np.maximum(box.left, others[:, 0])
    height = np.minimum(box.top, others[:, 3]) - np.maximum(box.bottom, others[:, 1])
    return float(np.sum(np.maximum(width, 0) * np.maximum(height, 0)))


def _outside(box: Box, frame: Box) -> float:
    """Area of a box outside a frame, pixels²."""
    whole = (box.right - box.left) * (box.top - box.bottom)
    return whole - _covered(box, np.array([frame]))
