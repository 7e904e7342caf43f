"""What a stream shows: how wide it is, and whether it takes bold and colours; texts with styles."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO

# What a terminal obeys, besides line breaks and tabs, or what turns the direction of what follows.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_CODES = {
    "bold": "1",
    "dim": "2",
    "italic": "3",
    "struck": "9",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "94",  # the dark one cannot be read on black
    "magenta": "35",
}

STATES: Mapping[str, str] = {
    "COMPLETED": "green",
    "RUNNING": "blue",
    "FAILED": "red",
    "CANCELLED": "magenta",
    "PREEMPTED": "yellow",
    "PENDING": "dim",
    "BLOCKED": "dim",
    "SKIPPED": "dim",
}
"""State of a run → its style."""


def width(stream: IO[str] | None = None) -> int | None:
    """Return how many columns a line may take; None where lines may have any length: in pipes and files.

    That is the width of the terminal. COLUMNS in the environment is obeyed anywhere.

    Args:
        stream: Where lines are written; by default standard output.
    """
    given = os.environ.get("COLUMNS", "")
    if re.fullmatch("[1-9][0-9]{0,8}", given):
        return int(given)
    stream = stream or sys.stdout
    if not stream.isatty():
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def has_styles(stream: IO[str] | None = None) -> bool:
    """Tell whether a stream takes bold and colours: a terminal does.

    NO_COLOR in the environment (no-color.org) turns them off, FORCE_COLOR turns them on anywhere.

    Args:
        stream: By default standard output.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return (stream or sys.stdout).isatty() and os.environ.get("TERM") != "dumb"


@dataclass(frozen=True)
class Styled:
    """Text for people, parts of which have a style on a terminal.

    Attributes:
        parts: Pieces of text, each with its style: names such as "bold green", empty for none.
    """

    parts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        """Return the text without its styles."""
        return "".join(text for text, _ in self.parts)

    def __len__(self) -> int:
        """Return the number of characters."""
        return sum(len(text) for text, _ in self.parts)

    def __add__(self, other: str | Styled) -> Styled:
        """Join two texts."""
        return Styled(self.parts + as_styled(other).parts)

    def __radd__(self, other: str) -> Styled:
        """Join two texts."""
        return Styled(as_styled(other).parts + self.parts)

    def cut(self, begin: int, end: int) -> Styled:
        """Return a range of its characters."""
        found, at = [], 0
        for text, style in self.parts:
            piece = text[max(begin - at, 0) : max(end - at, 0)]
            if piece:
                found.append((piece, style))
            at += len(text)
        return Styled(tuple(found))

    def styled(self, style: str) -> Styled:
        """Return it with a further style all over."""
        return Styled(tuple((text, f"{own} {style}".strip()) for text, own in self.parts))

    def shown(self, styles: bool) -> str:
        """Write it for a terminal; what a terminal would obey in the text is written as spaces.

        Args:
            styles: Whether the terminal takes styles.
        """
        return "".join(_painted(OBEYED.sub(" ", text), style if styles else "") for text, style in self.parts)


def styled(text: object, style: str = "") -> Styled:
    """Give a text one style."""
    return Styled(((str(text), style),))


def as_styled(text: str | Styled) -> Styled:
    """Return a text as one with styles, of which plain text has none."""
    return text if isinstance(text, Styled) else styled(text)


def joined(separator: str, texts: list[Styled]) -> Styled:
    """Join texts by a separator."""
    found = styled("")
    for number, text in enumerate(texts):
        found += (separator if number else "") + text
    return found


def state(text: str, of: str | None = None) -> Styled:
    """Give a text the colour of a run's state; a state by itself its own."""
    return styled(text, STATES.get(of or text, ""))


def columns_of(text: str) -> int:
    """Count the columns that a text takes on a terminal, where some letters take two and some none."""
    if text.isascii():
        return len(text)
    return sum(_columns(letter) for letter in text)


def _columns(letter: str) -> int:
    if unicodedata.combining(letter) or letter == "\u200b":
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def wrapped(text: str | Styled, most: int, hang: int | None = None) -> Iterator[Styled]:
    """Break one line between words, so that each part takes at most so many columns; longer words stay whole.

    What stands between backticks is a command to copy, and stays together where it fits on a line.

    Args:
        text: One line.
        most: Columns.
        hang: By how much all but the first part are indented; by default as the first is, and by two more in
            an item of a list.
    """
    line = as_styled(text)
    plain = str(line)
    if columns_of(plain) <= most:
        yield line
        return
    if hang is None:
        hang = len(plain) - len(plain.lstrip(" "))
        hang += 2 if plain[hang:].startswith("- ") else 0
    hang = min(hang, most // 2)
    room, begin, end, used = most, 0, 0, 0
    indent = ""
    for word in _WORD.finditer(plain):
        for piece in _pieces(word, most - hang):
            size = columns_of(plain[end : piece[1]])
            if used and used + size > room:
                yield indent + line.cut(begin, end)
                begin, used, indent, room = piece[0], 0, " " * hang, most - hang
                size = columns_of(plain[piece[0] : piece[1]])
            used += size
            end = piece[1]
    yield indent + line.cut(begin, max(end, begin))


_WORD = re.compile(r"(?:`[^`]*`[^\s`]*)|\S+")


def _pieces(word: re.Match[str], most: int) -> Iterator[tuple[int, int]]:
    """Split what stands between backticks into words where it is too long for a line."""
    if columns_of(word[0]) <= most:
        yield word.span()
        return
    for part in re.finditer(r"\S+", word[0]):
        yield word.start() + part.start(), word.start() + part.end()


def _painted(text: str, style: str) -> str:
    codes = ";".join(_CODES[name] for name in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text
