"""What exists in the synthetic world, and how often.

48 classes (8 colours × 6 shapes) with a Zipf tail, × 2 sizes × 4 positions × 8 backgrounds: 3,072 scenes.
Every background is dark and every colour bright, or no model learns shape in few steps.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

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
    """Zipf's law with exponent 1 over the classes, in a fixed random order: from 22% down to 0.5%.

    Returns:
        float64[48], summing to 1.
    """
    rank = np.random.Generator(np.random.PCG64(_TAIL_SEED)).permutation(len(CLASSES)) + 1
    weight: npt.NDArray[np.float64] = 1.0 / rank
    share: npt.NDArray[np.float64] = weight / weight.sum()
    return share


@dataclass(frozen=True)
class Scenes:
    """n scenes, as numbers into the tuples above.

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
        """int64[n], the class of each scene."""
        return self.colour * len(SHAPES) + self.shape

    @property
    def rest(self) -> Ints:
        """int64[n], size, position and background as one mixed-radix number, 0…63."""
        return (self.size * len(POSITIONS) + self.position) * len(BACKGROUNDS) + self.background

    @classmethod
    def of(cls, label: Ints, rest: Ints) -> Scenes:
        """Scenes by class and by the number of the remaining attributes.

        Args:
            label: int64[n], 0…47.
            rest: int64[n], 0…63, as of the property.
        """
        colour, shape = np.divmod(label, len(SHAPES))
        rest, background = np.divmod(rest, len(BACKGROUNDS))
        size, position = np.divmod(rest, len(POSITIONS))
        return cls(colour, shape, size, position, background)

    @classmethod
    def draw(cls, rng: np.random.Generator, count: int) -> Scenes:
        """Scenes as common as they are in this world: classes by Zipf's law, all else evenly."""
        label = rng.choice(len(CLASSES), count, p=class_probabilities())
        return cls.of(label, rng.integers(0, SCENES // len(CLASSES), count))

    def take(self, indices: Ints) -> Scenes:
        """Some of the scenes.

        Args:
            indices: int64[k].
        """
        return Scenes(*(getattr(self, part.name)[indices] for part in fields(self)))

    def where(self, mine: npt.NDArray[np.bool_], others: Scenes) -> Scenes:
        """These scenes where a mask holds, others elsewhere.

        Args:
            mine: bool[n].
            others: n scenes.
        """
        return Scenes(*(np.where(mine, getattr(self, p.name), getattr(others, p.name)) for p in fields(self)))

    def agreement(self, others: Scenes) -> npt.NDArray[np.float64]:
        """Share of the five attributes that are equal.

        Args:
            others: n scenes.

        Returns:
            float64[n].
        """
        equal = [getattr(self, part.name) == getattr(others, part.name) for part in fields(self)]
        share: npt.NDArray[np.float64] = np.mean(equal, axis=0, dtype=np.float64)
        return share
