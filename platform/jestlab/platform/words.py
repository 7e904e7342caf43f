"""Helpers for text: counts, lists, and printable characters."""

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """Write a count with its noun: "1 run", "3 runs", "2 studies"."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def few(labels: Sequence[str], most: int = 2) -> str:
    """Join the first labels, and append the number of the others: "a, b and 3 more"."""
    return ", ".join(labels[:most]) + (f" and {len(labels) - most} more" if len(labels) > most else "")


def listed(text: str) -> list[str]:
    """Split a text at commas into names, without empty ones."""
    return [name for part in text.split(",") if (name := part.strip())]


def printable(text: str) -> str:
    """Replace characters that aren't printable by spaces."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else " " for character in text)


def on_one_line(text: str) -> str:
    """Convert a text to one printable line with single spaces."""
    return " ".join(printable(text).split())
