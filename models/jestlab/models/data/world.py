"""The synthetic world: what exists and how often, drawn as pixels and described in English.

48 classes (8 colours × 6 shapes) with a Zipf tail, × 2 sizes × 4 positions × 8 backgrounds: 3,072 scenes.
Every background is dark and every colour bright, or no model would learn shapes in a few steps.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (238, 48, 44),
    "orange": (255, 146, 20),
    "yellow": (252, 232, 60),
    "green": (56, 206, 72),
    "cyan": (56, 214, 226),
    "blue": (76, 118, 255),
    "pink": (255, 128, 200),
    "white": (246, 246, 246),
}
SHAPES = ("circle", "square", "triangle", "star", "cross", "ring")
SIZES = ("small", "large")
POSITIONS = ("top left", "top right", "bottom left", "bottom right")
BACKGROUNDS: dict[str, tuple[int, int, int]] = {
    "black": (6, 6, 8),
    "grey": (66, 66, 68),
    "navy": (10, 18, 82),
    "teal": (0, 66, 68),
    "forest": (12, 58, 14),
    "brown": (74, 42, 14),
    "maroon": (82, 6, 16),
    "plum": (66, 12, 72),
}

CLASSES = tuple(f"{colour} {shape}" for colour in COLOURS for shape in SHAPES)
"""The 48 classes; a class's number is colour × 6 + shape."""

SCENES = len(CLASSES) * len(SIZES) * len(POSITIONS) * len(BACKGROUNDS)

_TAIL_SEED = 48  # which classes are common: a fact of this world, the same for every web and benchmark


def class_probabilities() -> npt.NDArray[np.float64]:
    """Return Zipf's law with exponent 1 over the classes, in a fixed random order: from 22% down to 0.5%."""
    rank = np.random.Generator(np.random.PCG64(_TAIL_SEED)).permutation(len(CLASSES)) + 1
    weight: npt.NDArray[np.float64] = 1.0 / rank
    share: npt.NDArray[np.float64] = weight / weight.sum()
    return share


@dataclass(frozen=True)
class _Columns:
    """Arrays of n elements each, whose rows belong together."""

    def take(self, indices: Ints) -> Self:
        """Select some of the rows, int64[k]."""
        return type(self)(*(getattr(self, part.name)[indices] for part in fields(self)))

    def where(self, mine: npt.NDArray[np.bool_], others: Self) -> Self:
        """Take these rows where a mask, bool[n], holds, and others elsewhere."""
        pairs = ((getattr(self, part.name), getattr(others, part.name)) for part in fields(self))
        return type(self)(*(np.where(mine, own, other) for own, other in pairs))


@dataclass(frozen=True)
class Scenes(_Columns):
    """The attributes of n scenes, as numbers into the tuples above.

    Attributes:
        colour, shape, size, position, background: int64[n] each.
    """

    colour: Ints
    shape: Ints
    size: Ints
    position: Ints
    background: Ints

    def __len__(self) -> int:
        return len(self.colour)

    @property
    def label(self) -> Ints:
        """The class of each scene, int64[n]."""
        return self.colour * len(SHAPES) + self.shape

    @property
    def rest(self) -> Ints:
        """Size, position and background as one mixed-radix number from 0 to 63, int64[n]."""
        return (self.size * len(POSITIONS) + self.position) * len(BACKGROUNDS) + self.background

    @classmethod
    def of(cls, label: Ints, rest: Ints) -> Scenes:
        """Create scenes from `label` and `rest`, int64[n] each."""
        colour, shape = np.divmod(label, len(SHAPES))
        rest, background = np.divmod(rest, len(BACKGROUNDS))
        size, position = np.divmod(rest, len(POSITIONS))
        return cls(colour, shape, size, position, background)

    @classmethod
    def draw(cls, rng: np.random.Generator, count: int) -> Scenes:
        """Draw scenes as they occur in this world: classes by Zipf's law, all else uniformly."""
        label = rng.choice(len(CLASSES), count, p=class_probabilities())
        return cls.of(label, rng.integers(0, SCENES // len(CLASSES), count))

    def agreement(self, others: Scenes) -> npt.NDArray[np.float64]:
        """Return the share of the five attributes that are equal to those of other scenes, float64[n]."""
        equal = [getattr(self, part.name) == getattr(others, part.name) for part in fields(self)]
        share: npt.NDArray[np.float64] = np.mean(equal, axis=0, dtype=np.float64)
        return share


Floats = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]

_RADIUS = np.array([0.17, 0.27], np.float32)  # small, large; share of the image's side
_NEAR, _FAR = 0.27, 0.73  # centres of the quadrants' objects, share of the side
_PALETTE = np.array(list(COLOURS.values()), np.float32)
_BACKDROP = np.array(list(BACKGROUNDS.values()), np.float32)


@dataclass(frozen=True)
class Jitter(_Columns):
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
        """Draw random differences.

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

    def then(self, other: Jitter) -> Jitter:
        """Combine two differences, one after the other."""
        return Jitter(
            self.x + other.x,
            self.y + other.y,
            self.radius * other.radius,
            self.angle + other.angle,
            self.light * other.light,
            self.back_light * other.back_light,
        )


def render(scenes: Scenes, jitter: Jitter, image_size: int) -> Pixels:
    """Draw n scenes, each with its differences, as uint8[n, image_size, image_size, 3]."""
    images = np.empty((len(scenes), image_size, image_size, 3), np.uint8)
    for start in range(0, len(scenes), _IMAGES_AT_ONCE):
        block = np.arange(start, min(start + _IMAGES_AT_ONCE, len(scenes)))
        images[block] = _render_block(scenes.take(block), jitter.take(block), image_size)
    return images


_IMAGES_AT_ONCE = 128  # images drawn at once: what they need stays in the processor's cache


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
    """Return the distance to the outline of a disc of radius 0.95."""
    return np.sqrt(x * x + y * y) - np.float32(0.95)


def _ring(x: Floats, y: Floats) -> Floats:
    """Return the distance to an annulus between radii 0.5 and 1."""
    return np.abs(np.sqrt(x * x + y * y) - np.float32(0.76)) - np.float32(0.25)


def _square(x: Floats, y: Floats) -> Floats:
    """Return the distance to a square of side 1.7."""
    return np.maximum(np.abs(x), np.abs(y)) - np.float32(0.85)


def _cross(x: Floats, y: Floats) -> Floats:
    """Return the distance to a plus sign with arms of length 1 and width 0.6."""
    longer, shorter = np.maximum(np.abs(x), np.abs(y)), np.minimum(np.abs(x), np.abs(y))
    return np.maximum(longer - np.float32(1.0), shorter - np.float32(0.3))


def _triangle(x: Floats, y: Floats) -> Floats:
    """Return the distance to an equilateral triangle at the origin, pointing up (y grows downwards)."""
    root = np.float32(math.sqrt(3.0) / 2.0)
    slope = root * np.abs(x) - np.float32(0.5) * y
    return np.maximum(slope, y) - np.float32(0.58)


def _star(x: Floats, y: Floats) -> Floats:
    """Return the distance to a five-pointed star, pointing up: five spikes around a small pentagon."""
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


_SPIKE_COSINE, _SPIKE_SINE = (np.float32(part(math.radians(24.0))) for part in (math.cos, math.sin))
_DISTANCES = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "cross": _cross,
    "ring": _ring,
}


_SENTENCES = (
    "a {size} {colour} {shape} {in_position} {on_background}",
    "{size} {colour} {shape} {at_position} {on_a_background}",
    "{on_background} a {size} {colour} {shape} {at_position}",
    "{position} {size} {colour} {shape} {on_a_background}",
    "photo of a {size} {colour} {shape} {at_position} {on_background}",
)
_NOUNS = ("shape", "object", "thing")

# Chance that a caption of a clean pair mentions an attribute. The class (colour and shape) is mostly kept.
_MENTIONED = {"size": 0.65, "colour": 0.95, "shape": 0.97, "position": 0.6, "background": 0.55}

_COLOUR_NAMES, _BACKGROUND_NAMES = tuple(COLOURS), tuple(BACKGROUNDS)
_ARTICLE = re.compile(r"\ba (?=[aeiou])")


def describe(scenes: Scenes, rng: np.random.Generator, *, complete: bool = False) -> list[str]:
    """Write honest captions of scenes.

    Args:
        scenes: n scenes.
        rng: Draws template, wording and the attributes left out.
        complete: Mention every attribute, so that a caption fits one scene of the world alone.
    """
    return _sentences(scenes, rng.integers(0, len(_SENTENCES), len(scenes)), rng, complete)


def describe_twice(scenes: Scenes, rng: np.random.Generator) -> list[tuple[str, str]]:
    """Write two complete captions of each scene, in different templates: where scenes differ, all do."""
    first = rng.integers(0, len(_SENTENCES), len(scenes))
    second = (first + rng.integers(1, len(_SENTENCES), len(scenes))) % len(_SENTENCES)
    return list(zip(_sentences(scenes, first, rng, True), _sentences(scenes, second, rng, True), strict=True))


def _sentences(
    scenes: Scenes, templates: npt.NDArray[np.int64], rng: np.random.Generator, complete: bool
) -> list[str]:
    """Write captions in given templates."""
    count = len(scenes)
    mentioned = {name: (rng.random(count) < chance) | complete for name, chance in _MENTIONED.items()}
    nouns = rng.integers(0, len(_NOUNS), count)
    captions = []
    for i in range(count):
        position = POSITIONS[scenes.position[i]] if mentioned["position"][i] else ""
        background = _BACKGROUND_NAMES[scenes.background[i]] if mentioned["background"][i] else ""
        words = _SENTENCES[templates[i]].format(
            size=SIZES[scenes.size[i]] if mentioned["size"][i] else "",
            colour=_COLOUR_NAMES[scenes.colour[i]] if mentioned["colour"][i] else "",
            shape=SHAPES[scenes.shape[i]] if mentioned["shape"][i] else _NOUNS[nouns[i]],
            position=position,
            in_position=f"in the {position}" if position else "",
            at_position=f"at {position}" if position else "",
            on_background=f"on {background}" if background else "",
            on_a_background=f"on a {background} background" if background else "",
        )
        captions.append(_ARTICLE.sub("an ", " ".join(words.split())))
    return captions
