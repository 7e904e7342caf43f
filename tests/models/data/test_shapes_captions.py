"""Captions: short, grammatical, honest, and complete ones unique."""

from __future__ import annotations

import re

import numpy as np

from jestlab.models.data.world import (
    BACKGROUNDS,
    COLOURS,
    POSITIONS,
    SCENES,
    SHAPES,
    SIZES,
    Scenes,
    describe,
    describe_twice,
)

ALL = Scenes.of(np.arange(SCENES) // 64, np.arange(SCENES) % 64)


def test_complete_captions_name_every_attribute_and_are_unique():
    pairs = describe_twice(ALL, np.random.default_rng(0))
    captions = [caption for pair in pairs for caption in pair]
    assert len(set(captions)) == 2 * SCENES
    for i in range(0, SCENES, 37):
        for caption in pairs[i]:
            for part in (
                SIZES[ALL.size[i]],
                tuple(COLOURS)[ALL.colour[i]],
                SHAPES[ALL.shape[i]],
                POSITIONS[ALL.position[i]],
                tuple(BACKGROUNDS)[ALL.background[i]],
            ):
                assert f" {part} " in f" {caption} "


def test_captions_are_short_varied_and_mostly_name_the_class():
    captions = describe(ALL, np.random.default_rng(1))
    assert max(len(caption.split()) for caption in captions) <= 11
    assert len({len(caption.split()) for caption in captions}) > 6
    named = [
        tuple(COLOURS)[ALL.colour[i]] in caption.split() and SHAPES[ALL.shape[i]] in caption.split()
        for i, caption in enumerate(captions)
    ]
    assert 0.85 < np.mean(named) < 0.98


def test_articles_and_spaces():
    for caption in describe(ALL, np.random.default_rng(2)):
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]|  |^ | $", caption), caption
