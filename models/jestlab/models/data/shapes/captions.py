"""Scenes to English, at most 11 words: varied templates, attributes dropped at random."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from jestlab.models.data.shapes.world import BACKGROUNDS, COLOURS, POSITIONS, SHAPES, SIZES, Scenes

_TEMPLATES = (
    "a {size} {colour} {shape} {in_position} {on_background}",
    "{size} {colour} {shape} {at_position} {on_a_background}",
    "{on_background} a {size} {colour} {shape} {at_position}",
    "{position} {size} {colour} {shape} {on_a_background}",
    "photo of a {size} {colour} {shape} {at_position} {on_background}",
)
_NOUNS = ("shape", "object", "thing")

# Chance that a caption of a clean pair mentions an attribute. The class (colour and shape) is mostly kept.
_MENTIONED = {"size": 0.65, "colour": 0.95, "shape": 0.97, "position": 0.6, "background": 0.55}

_COLOURS, _BACKGROUNDS = tuple(COLOURS), tuple(BACKGROUNDS)
_ARTICLE = re.compile(r"\ba (?=[aeiou])")


def describe(scenes: Scenes, rng: np.random.Generator, *, complete: bool = False) -> list[str]:
    """Honest captions.

    Args:
        scenes: n of them.
        rng: Draws template, wording and the attributes left out.
        complete: Mention every attribute, so that a caption fits one scene of the world alone.

    Returns:
        n captions.
    """
    count = len(scenes)
    templates = rng.integers(0, len(_TEMPLATES), count)
    return _write(scenes, templates, rng, complete)


def describe_twice(scenes: Scenes, rng: np.random.Generator) -> list[tuple[str, str]]:
    """Two complete captions of each scene, in different templates: where scenes differ, all captions do.

    Args:
        scenes: n of them.
        rng: Draws templates and wording.

    Returns:
        n pairs of captions.
    """
    first = rng.integers(0, len(_TEMPLATES), len(scenes))
    second = (first + rng.integers(1, len(_TEMPLATES), len(scenes))) % len(_TEMPLATES)
    return list(zip(_write(scenes, first, rng, True), _write(scenes, second, rng, True), strict=True))


def _write(
    scenes: Scenes, templates: npt.NDArray[np.int64], rng: np.random.Generator, complete: bool
) -> list[str]:
    """Captions in given templates."""
    count = len(scenes)
    mentioned = {name: (rng.random(count) < chance) | complete for name, chance in _MENTIONED.items()}
    nouns = rng.integers(0, len(_NOUNS), count)
    captions = []
    for i in range(count):
        position = POSITIONS[scenes.position[i]] if mentioned["position"][i] else ""
        background = _BACKGROUNDS[scenes.background[i]] if mentioned["background"][i] else ""
        words = _TEMPLATES[templates[i]].format(
            size=SIZES[scenes.size[i]] if mentioned["size"][i] else "",
            colour=_COLOURS[scenes.colour[i]] if mentioned["colour"][i] else "",
            shape=SHAPES[scenes.shape[i]] if mentioned["shape"][i] else _NOUNS[nouns[i]],
            position=position,
            in_position=f"in the {position}" if position else "",
            at_position=f"at {position}" if position else "",
            on_background=f"on {background}" if background else "",
            on_a_background=f"on a {background} background" if background else "",
        )
        captions.append(_ARTICLE.sub("an ", " ".join(words.split())))
    return captions
