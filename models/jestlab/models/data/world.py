"""The synthetic world: its scenes and their frequencies, drawn as pixels and described in English.

48 classes (8 colors × 6 shapes) with a Zipf tail, × 2 sizes × 4 positions × 8 backgrounds: 3,072 scenes.
Every background is dark and every color bright; otherwise no model would learn shapes in a few steps.

A scene is a whole number: class × 64 + the rest, with the attributes in the order of `ATTRIBUTES`.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]
Pixels = npt.NDArray[np.uint8]

COLORS = {
    "red": (238, 48, 44),
    "orange": (255, 146, 20),
    "yellow": (252, 232, 60),
    "green": (56, 206, 72),
    "cyan": (56, 214, 226),
    "blue": (76, 118, 255),
    "pink": (255, 128, 200),
    "white": (246, 246, 246),
}
BACKGROUNDS = {
    "black": (6, 6, 8),
    "grey": (66, 66, 68),
    "navy": (10, 18, 82),
    "teal": (0, 66, 68),
    "forest": (12, 58, 14),
    "brown": (74, 42, 14),
    "maroon": (82, 6, 16),
    "plum": (66, 12, 72),
}
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "color": tuple(COLORS),
    "shape": ("circle", "square", "triangle", "star", "cross", "ring"),
    "size": ("small", "large"),
    "position": ("top left", "top right", "bottom left", "bottom right"),
    "background": tuple(BACKGROUNDS),
}
"""The attributes of a scene and their values."""

CLASSES = tuple(f"{color} {shape}" for color in ATTRIBUTES["color"] for shape in ATTRIBUTES["shape"])
"""The 48 classes; the number of a class is color × 6 + shape."""

SCENES_PER_CLASS = 64
SCENES = len(CLASSES) * SCENES_PER_CLASS

_TAIL_SEED = 48  # decides which classes are common, for every web and benchmark


def generator(*numbers: int) -> np.random.Generator:
    """Return the random stream with these numbers as its seed."""
    return np.random.Generator(np.random.PCG64(numbers))


def class_probabilities() -> npt.NDArray[np.float64]:
    """Return Zipf's law with exponent 1 over the classes, in a fixed random order: from 22% down to 0.5%."""
    weight = 1.0 / (generator(_TAIL_SEED).permutation(len(CLASSES)) + 1)
    share: npt.NDArray[np.float64] = weight / weight.sum()
    return share


def draw_scenes(rng: np.random.Generator, count: int) -> Ints:
    """Draw scenes, int64[count]: classes by Zipf's law, all else uniformly."""
    label = rng.choice(len(CLASSES), count, p=class_probabilities())
    return np.asarray(label * SCENES_PER_CLASS + rng.integers(0, SCENES_PER_CLASS, count))


def attributes(scenes: Ints) -> dict[str, Ints]:
    """Return the attributes of n scenes: for each, int64[n], numbers into its values in `ATTRIBUTES`."""
    sizes = tuple(len(values) for values in ATTRIBUTES.values())
    return dict(zip(ATTRIBUTES, np.unravel_index(scenes, sizes), strict=True))


# Jitter: how an image differs from the plain rendering of its scene, as float32[6]: the shift of the object
# (x, y; share of the image's side), a factor on its radius, its turn (radians), and factors on the brightness
# of object and background.
_PLAIN = np.array([0, 0, 1, 0, 1, 1], np.float32)
_VARIETY = (0.03, 0.03, 0.08, 0.22, 0.06, 0.12)


def draw_jitter(rng: np.random.Generator, count: int, *, scale: float = 1.0) -> Floats:
    """Draw the jitter of n images, float32[n, 6]; `scale` is 1 for variety, near 0 for near-duplicates."""
    unit = rng.uniform(-1.0, 1.0, (count, len(_VARIETY))) * scale
    return _PLAIN + (unit * _VARIETY).astype(np.float32)


def combine_jitter(first: Floats, second: Floats) -> Floats:
    """Return the effect of two jitters, float32[n, 6] each, one after the other."""
    # Factors, which are 1 in a plain image, multiply; shifts and turns add.
    return np.where(_PLAIN, first * second, first + second)


_RADIUS = np.array([0.17, 0.27], np.float32)  # small, large; share of the image's side
_CENTER = np.array([0.27, 0.73], np.float32)  # of the near and far objects, share of the side
_PALETTE = np.array(list(COLORS.values()), np.float32)
_BACKDROP = np.array(list(BACKGROUNDS.values()), np.float32)
_IMAGES_AT_ONCE = 128  # so that their intermediate results stay in the processor's cache


def render(scenes: Ints, jitter: Floats, image_size: int) -> Pixels:
    """Draw n scenes, int64[n], with jitter, float32[n, 6], as uint8[n, image_size, image_size, 3]."""
    images = np.empty((len(scenes), image_size, image_size, 3), np.uint8)
    for start in range(0, len(scenes), _IMAGES_AT_ONCE):
        block = slice(start, start + _IMAGES_AT_ONCE)
        images[block] = _render_block(attributes(scenes[block]), jitter[block], image_size)
    return images


def _render_block(scene: dict[str, Ints], jitter: Floats, image_size: int) -> Pixels:
    """Draw a few scenes at once."""
    shift_x, shift_y, growth, angle, light, back_light = jitter.T[..., None, None]  # [n, 1, 1] each
    radius = _RADIUS[scene["size"], None, None] * growth
    center_x = _CENTER[scene["position"] % 2, None, None] + shift_x
    center_y = _CENTER[scene["position"] // 2, None, None] + shift_y
    # NOTE: NumPy's vectorized sine differs in the last bit between the body and the tail of a batch.
    turns = angle.ravel().tolist()
    sine = np.array([math.sin(turn) for turn in turns], np.float32)[:, None, None]
    cosine = np.array([math.cos(turn) for turn in turns], np.float32)[:, None, None]

    grid = (np.arange(image_size, dtype=np.float32) + 0.5) / image_size
    across = (grid[None, None, :] - center_x) / radius  # [n, 1, w], in radii
    down = (grid[None, :, None] - center_y) / radius  # [n, h, 1]
    x = across * cosine + down * sine  # [n, h, w]
    y = down * cosine - across * sine

    distance = np.empty_like(x)
    for number, shape in enumerate(ATTRIBUTES["shape"]):
        chosen = scene["shape"] == number
        distance[chosen] = _DISTANCES[shape](x[chosen], y[chosen])
    coverage = np.clip(0.5 - distance * (radius * image_size), 0.0, 1.0)[..., None]

    front = _PALETTE[scene["color"], None, None] * light[..., None]  # [n, 1, 1, 3]
    back = _BACKDROP[scene["background"], None, None] * back_light[..., None]
    images: Pixels = np.clip(back + (front - back) * coverage + 0.5, 0.0, 255.0).astype(np.uint8)
    return images


def _star(x: Floats, y: Floats) -> Floats:
    """Return the distance to a five-pointed star: five spikes around a small pentagon."""
    nearest = np.sqrt(x * x + y * y) - 0.4  # fills the center, where the spikes only touch
    for point in range(5):
        turn = 2.0 * math.pi * point / 5.0
        along = x * math.sin(turn) - y * math.cos(turn)  # up is −y
        aside = np.abs(x * math.cos(turn) + y * math.sin(turn))
        # An isosceles spike of half-angle 24°, its tip at 1.2 from the center, from the center outwards.
        spike = math.cos(_HALF_ANGLE) * aside + math.sin(_HALF_ANGLE) * (along - 1.2)
        nearest = np.minimum(nearest, np.maximum(spike, -along))
    return nearest


_HALF_ANGLE = math.radians(24.0)

# Signed distances to the outlines of shapes at the origin, in radii; y grows downwards, and tips point up.
_DISTANCES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "circle": lambda x, y: np.sqrt(x * x + y * y) - 0.95,
    "square": lambda x, y: np.maximum(np.abs(x), np.abs(y)) - 0.85,
    "triangle": lambda x, y: np.maximum(math.sqrt(3.0) / 2.0 * np.abs(x) - 0.5 * y, y) - 0.58,
    "star": _star,
    "cross": lambda x, y: np.maximum(
        np.maximum(np.abs(x), np.abs(y)) - 1.0, np.minimum(np.abs(x), np.abs(y)) - 0.3
    ),
    "ring": lambda x, y: np.abs(np.sqrt(x * x + y * y) - 0.76) - 0.25,
}


_SENTENCES = (
    "a {size} {color} {shape} {in_position} {on_background}",
    "{size} {color} {shape} {at_position} {on_a_background}",
    "{on_background} a {size} {color} {shape} {at_position}",
    "{position} {size} {color} {shape} {on_a_background}",
    "photo of a {size} {color} {shape} {at_position} {on_background}",
)
_NOUNS = ("shape", "object", "thing")

# Chance that a caption of a clean pair mentions an attribute. Most captions mention the class.
_MENTIONED = {"size": 0.65, "color": 0.95, "shape": 0.97, "position": 0.6, "background": 0.55}
_ARTICLE = re.compile(r"\ba (?=[aeiou])")


def describe_twice(scenes: Ints, rng: np.random.Generator) -> list[tuple[str, str]]:
    """Write two complete captions of each scene, in two templates; captions of different scenes differ."""
    first = rng.integers(0, len(_SENTENCES), len(scenes))
    second = (first + rng.integers(1, len(_SENTENCES), len(scenes))) % len(_SENTENCES)
    captions = [describe(scenes, rng, complete=True, templates=each) for each in (first, second)]
    return list(zip(*captions, strict=True))


def describe(
    scenes: Ints, rng: np.random.Generator, *, complete: bool = False, templates: Ints | None = None
) -> list[str]:
    """Write a true caption of each scene.

    Args:
        scenes: int64[n].
        rng: Draws the templates, the wording, and the attributes left out.
        complete: Mention every attribute, so that a caption fits one scene of the world only.
        templates: int64[n], numbers of caption templates; None: draw them.
    """
    count, numbers = len(scenes), attributes(scenes)
    if templates is None:
        templates = rng.integers(0, len(_SENTENCES), count)
    mentioned = {name: (rng.random(count) < chance) | complete for name, chance in _MENTIONED.items()}
    nouns = rng.integers(0, len(_NOUNS), count)
    captions = []
    for i in range(count):
        words = {
            name: values[numbers[name][i]] if mentioned[name][i] else ""
            for name, values in ATTRIBUTES.items()
        }
        words["shape"] = words["shape"] or _NOUNS[nouns[i]]
        position, background = words["position"], words["background"]
        text = _SENTENCES[templates[i]].format(
            **words,
            in_position=position and f"in the {position}",
            at_position=position and f"at {position}",
            on_background=background and f"on {background}",
            on_a_background=background and f"on a {background} background",
        )
        captions.append(_ARTICLE.sub("an ", " ".join(text.split())))
    return captions
