"""The reference of keys as Markdown, for the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal

from jestlab.platform.spec.keys.find import together
from jestlab.platform.spec.keys.key import Key
from jestlab.platform.spec.keys.of_config import config_keys, config_sections, group_of
from jestlab.platform.spec.keys.of_spec import spec_keys, spec_sections


def markdown(which: Literal["config", "spec"]) -> str:
    """Write the reference of the keys of configs, or of all other keys of a spec, as Markdown.

    Returns:
        A heading of the second level for each section, with what it is and a table of its keys.
    """
    if which == "config":
        return _sections(groupby(config_keys(), group_of), config_sections())
    return _sections(groupby(together(spec_keys()), lambda key: key.section), spec_sections())


def _sections(groups: Iterable[tuple[str, Iterable[Key]]], told: Mapping[str, str]) -> str:
    parts = []
    for section, listed in groups:
        members = list(listed)
        title = f"`{section}`" if section else "Study"
        parts.append(
            "\n\n".join([f"## {title}", *filter(None, [told.get(section, "")]), _table(members, section)])
        )
    return "\n\n".join(parts) + "\n"


def _table(keys: Sequence[Key], section: str) -> str:
    """Write a table, whose heading says what the keys begin with."""
    return "\n".join(
        [
            "| key | type | default | meaning | used by | identity |",
            "|:--|:--|:--|:--|:--|:--|",
            *_rows(keys, section),
        ]
    )


def _rows(keys: Sequence[Key], section: str) -> Iterator[str]:
    for key in keys:
        default = f"`{key.default}`" if _is_value(key) else key.default
        cells = (
            f"`{key.path.removeprefix(f'{section}.')}`",
            key.type,
            default,
            key.told,
            ", ".join(key.where),
            "yes" if key.identity else "no",
        )
        yield "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _is_value(key: Key) -> bool:
    """Whether a default is a value, and not words such as "required"."""
    return (
        bool(key.default)
        and " " not in key.default.strip("[]{}").replace(", ", "")
        and key.default != "required"
    )


def _cell(text: str) -> str:
    """Escape what Markdown or HTML would obey, outside of code."""
    inside = text.split("`")
    inside[::2] = [part.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_") for part in inside[::2]]
    return "`".join(inside).replace("|", "\\|")
