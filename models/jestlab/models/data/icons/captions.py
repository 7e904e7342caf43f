"""Captions of icons, from their names: as a curator writes them, and as web pages do."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

_TONE = re.compile(r"-(?:(?:medium-)?(?:light|dark)|medium)(?:-skin-tone)?(?=-|$)")
_WORD = re.compile(r"[a-z]+")


def without_tones(name: str, names: Collection[str]) -> str:
    """Return an emoji's name without skin tones: "artist-dark-skin-tone" and "artist-dark" are "artist".

    Args:
        name: Of an emoji.
        names: Of all emoji of its set. A word such as "dark" is a tone only where the emoji is there
            without it, too.
    """
    plain = _TONE.sub("", name)
    return plain if plain in names or "-skin-tone" in name else name


def clean(name: str) -> str:
    """Write a caption as a curator would: the name's words."""
    return name.replace("-", " ")


def as_on_the_web(name: str, title: str) -> str:
    """Write a caption as web pages name pictures: two fifths its words, a fifth each a file's name, its words
    and "icon", the set's title and its words.

    Args:
        name: Of an icon.
        title: Of its set.
    """
    words = clean(name)
    styles = (words, words, f"{name}.svg", f"{words} icon", f"{title} {words}")
    return styles[hashlib.sha256(f"{title}/{name}".encode()).digest()[0] % len(styles)]


def words(caption: str) -> list[str]:
    """Return the words of a caption, in lower case; digits and signs are none."""
    return _WORD.findall(caption.lower())


def name_quality(caption: str, known: Collection[str]) -> float:
    """Return which share of a caption's words is known: used in curated captions. 0 for one without words."""
    found = words(caption)
    return round(sum(word in known for word in found) / len(found), 3) if found else 0.0
