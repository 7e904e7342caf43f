"""Scenes to pixels, thousands at a time, antialiased at any size.

Each shape is a signed distance field (Inigo Quilez, "2D distance functions"): a pixel's coverage is the
distance from its centre to the outline, in pixels, clipped to one pixel. Arithmetic is limited to operations
that IEEE 754 rounds exactly, so that a pixel does not depend on its place in a batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from jestlab.models.data.shapes.world import BACKGROUNDS, COLOURS, SHAPES, Scenes

Floats = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]

_RADIUS = np.array([0.17, 0.27], np.float32)  # small, large; share of the image's side
_NEAR, _FAR = 0.27, 0.73  # centres of the quadrants' objects, share of the side
_PALETTE = np.array(list(COLOURS.values()), np.float32)
_BACKDROP = np.array(list(BACKGROUNDS.values()), np.float32)


@dataclass(frozen=True)
class Jitter:
    """How n images differ from the plain rendering of their scenes.

    Attributes:
        x, y: float32[n], shift of the object, share of the side.
        radius: float32[n], factor on the object's radius.
        angle: float32[n], turn of the object, in radians.
        light, back_light: float32[n], factors on the brightness of object and background.
    """

    x: Floats
    y: Floats
    radius: Floats
    angle: Floats
    light: Floats
    back_light: Floats

    @classmethod
    def draw(cls, rng: np.random.Generator, count: int, *, scale: float = 1.0) -> Jitter:
        """Random differences.

        Args:
            rng: The generator.
            count: n.
            scale: 1 for natural variety; near 0 for near-duplicates.
        """
        unit = rng.uniform(-1.0, 1.0, (count, 6)) * scale
        x, y, radius, angle, light, back_light = (
            (unit * (0.03, 0.03, 0.08, 0.22, 0.06, 0.12)).astype(np.float32).T
        )
        one = np.float32(1.0)
        return cls(x, y, one + radius, angle, one + light, one + back_light)

    def take(self, indices: npt.NDArray[np.int64]) -> Jitter:
        """Some of the images' differences.

        Args:
            indices: int64[k].
        """
        return Jitter(*(getattr(self, part.name)[indices] for part in fields(self)))

    def where(self, mine: npt.NDArray[np.bool_], others: Jitter) -> Jitter:
        """These where a mask holds, others elsewhere.

        Args:
            mine: bool[n].
            others: n of them.
        """
        return Jitter(*(np.where(mine, getattr(self, p.name), getattr(others, p.name)) for p in fields(self)))

    def then(self, other: Jitter) -> Jitter:
        """Both, one after the other."""
        return Jitter(
            self.x + other.x,
            self.y + other.y,
            self.radius * other.radius,
            self.angle + other.angle,
            self.light * other.light,
            self.back_light * other.back_light,
        )


def render(scenes: Scenes, jitter: Jitter, image_size: int) -> Pixels:
    """Draw scenes.

    Args:
        scenes: n of them.
        jitter: n of them.
        image_size: Side in pixels.

    Returns:
        uint8[n, image_size, image_size, 3].
    """
    images = np.empty((len(scenes), image_size, image_size, 3), np.uint8)
    for start in range(0, len(scenes), _BLOCK):
        block = np.arange(start, min(start + _BLOCK, len(scenes)))
        images[block] = _render_block(scenes.take(block), jitter.take(block), image_size)
    return images


_BLOCK = 128  # images drawn at once: what they need stays in the processor's cache


def _render_block(scenes: Scenes, jitter: Jitter, image_size: int) -> Pixels:
    """Draw a few scenes at once."""
    radius = _RADIUS[scenes.size] * jitter.radius
    centre_x = np.where(scenes.position % 2, _FAR, _NEAR).astype(np.float32) + jitter.x
    centre_y = np.where(scenes.position // 2, _FAR, _NEAR).astype(np.float32) + jitter.y
    # NumPy's vectorised sine differs in the last bit between a batch's body and its tail; math's does not.
    sine = np.array([math.sin(angle) for angle in jitter.angle.tolist()], np.float32)
    cosine = np.array([math.cos(angle) for angle in jitter.angle.tolist()], np.float32)

    grid = (np.arange(image_size, dtype=np.float32) + np.float32(0.5)) / np.float32(image_size)
    across = (grid[None, None, :] - centre_x[:, None, None]) / radius[:, None, None]  # [n, 1, w], in radii
    down = (grid[None, :, None] - centre_y[:, None, None]) / radius[:, None, None]  # [n, h, 1]
    x = across * cosine[:, None, None] + down * sine[:, None, None]  # [n, h, w]
    y = down * cosine[:, None, None] - across * sine[:, None, None]

    distance = np.empty_like(x)
    for number, shape in enumerate(SHAPES):
        chosen = scenes.shape == number
        distance[chosen] = _DISTANCES[shape](x[chosen], y[chosen])
    pixels_per_radius = (radius * np.float32(image_size))[:, None, None]
    coverage = np.clip(np.float32(0.5) - distance * pixels_per_radius, 0.0, 1.0)[..., None]

    front = (_PALETTE[scenes.colour] * jitter.light[:, None])[:, None, None, :]
    back = (_BACKDROP[scenes.background] * jitter.back_light[:, None])[:, None, None, :]
    images: Pixels = np.clip(back + (front - back) * coverage + np.float32(0.5), 0.0, 255.0).astype(np.uint8)
    return images


def _circle(x: Floats, y: Floats) -> Floats:
    """Distance to the outline of a disc of radius 0.95."""
    return np.sqrt(x * x + y * y) - np.float32(0.95)


def _ring(x: Floats, y: Floats) -> Floats:
    """An annulus between radii 0.5 and 1."""
    return np.abs(np.sqrt(x * x + y * y) - np.float32(0.76)) - np.float32(0.25)


def _square(x: Floats, y: Floats) -> Floats:
    """A square of side 1.7."""
    return np.maximum(np.abs(x), np.abs(y)) - np.float32(0.85)


def _cross(x: Floats, y: Floats) -> Floats:
    """A plus sign: arms of length 1 and width 0.6."""
    longer, shorter = np.maximum(np.abs(x), np.abs(y)), np.minimum(np.abs(x), np.abs(y))
    return np.maximum(longer - np.float32(1.0), shorter - np.float32(0.3))


def _triangle(x: Floats, y: Floats) -> Floats:
    """An equilateral triangle, point upwards (y grows downwards), its centroid at the origin."""
    root = np.float32(math.sqrt(3.0) / 2.0)
    slope = root * np.abs(x) - np.float32(0.5) * y
    return np.maximum(slope, y) - np.float32(0.58)


def _star(x: Floats, y: Floats) -> Floats:
    """A five-pointed star, one point upwards: the union of five spikes around a small pentagon."""
    nearest = np.sqrt(x * x + y * y) - np.float32(0.4)  # fills the centre, where the spikes only touch
    for point in range(5):
        turn = 2.0 * math.pi * point / 5.0
        sine, cosine = np.float32(math.sin(turn)), np.float32(math.cos(turn))
        along = x * sine - y * cosine  # up is −y
        aside = np.abs(x * cosine + y * sine)
        # An isosceles spike of half-angle 24°, its tip at 1.2 from the centre, from the centre outwards.
        spike = _SPIKE_COSINE * aside + _SPIKE_SINE * (along - np.float32(1.2))
        nearest = np.minimum(nearest, np.maximum(spike, -along))
    return nearest


_SPIKE_COSINE, _SPIKE_SINE = (
    np.float32(math.cos(math.radians(24.0))),
    np.float32(math.sin(math.radians(24.0))),
)
_DISTANCES = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "cross": _cross,
    "ring": _ring,
}
