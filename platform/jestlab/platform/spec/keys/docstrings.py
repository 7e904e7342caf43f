"""What docstrings say of attributes: the `Attributes:` sections of the classes that specs are written in."""

from __future__ import annotations

import re

_ENTRY = re.compile(r"(\w+): *(.*)")


def attributes(cls: type) -> dict[str, str]:
    """Return attribute → what the class and its bases say of it, each as one line.

    Args:
        cls: A class whose docstring has an `Attributes:` section, as the Google style has it.
    """
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        found |= _entries(one.__dict__.get("__doc__") or "")
    return found


def introduction(cls: type) -> str:
    """Return the first paragraph of the docstring of a class, as one line; empty where there is none."""
    return " ".join((cls.__doc__ or "").strip().split("\n\n")[0].split())


def _entries(docstring: str) -> dict[str, str]:
    found: dict[str, str] = {}
    name, margin = "", -1
    for line in docstring.expandtabs().splitlines():
        indent, text = len(line) - len(line.lstrip()), line.strip()
        if text == "Attributes:":
            name, margin = "", indent
        elif margin < 0 or not text:
            continue
        elif indent <= margin:
            margin = -1
        elif indent == margin + 4 and (entry := _ENTRY.fullmatch(text)):
            name = entry[1]
            found[name] = entry[2]
        elif name:
            found[name] = f"{found[name]} {text}".strip()
    return found
