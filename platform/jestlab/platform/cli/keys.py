"""`jestlab keys`: what a spec and its configs may hold, key by key."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from jestlab.platform.cli.options import examples, json_option
from jestlab.platform.cli.output import counted, show
from jestlab.platform.spec.keys import Key, find, together

_WIDEST_DEFAULT = 14
_NARROWEST_MEANING = 22


@click.command(epilog=examples("keys", "keys selection", "keys selection.rule", "keys reports.table"))
@click.argument("prefix", default="")
@json_option()
def keys_command(prefix: str, as_json: bool) -> None:
    """Show the keys of specs and of their configs at or below PREFIX: default and meaning.

    One key alone is shown with its type, its choices and an example. PREFIX may also be a place as errors
    name it, such as runs.joint.selection.rule.
    """
    found = find(prefix)
    alone = len({key.path for key in found}) == 1
    lines = _each(found) if alone else _listed(together(found))
    show(as_json, [asdict(key) for key in found], "\n".join(lines))


def _each(keys: Sequence[Key]) -> Iterator[str]:
    """Write everything about keys of one path."""
    width = _width()
    for number, key in enumerate(keys):
        if number:
            yield ""
        yield key.path
        about = {
            "meaning": key.told,
            "type": key.type,
            "default": key.default,
            "choices": ", ".join(key.choices),
            "used by": ", ".join(key.where),
            "identity": "part of a run's identity" if key.identity else "not part of a run's identity",
            "example": key.example,
        }
        for name, text in about.items():
            if text:
                yield from _hanging(f"  {name:<10}", text, width)


def _listed(keys: Sequence[Key]) -> Iterator[str]:
    """Write a table of keys, the meaning wrapped to the terminal, and how to learn more."""
    rows = [(key.path, key.default, key.told) for key in keys]
    width = _width()
    first = max(len(path) for path, *_ in rows)
    second = min(_WIDEST_DEFAULT, max(len("DEFAULT"), *(len(default) for _, default, _ in rows)))
    if first + second + 4 + _NARROWEST_MEANING > width:
        yield from _stacked(rows, width)
    else:
        yield f"{'KEY':<{first}}  {'DEFAULT':<{second}}  MEANING"
        for path, default, meaning in rows:
            columns = (_wrapped(default, second), _wrapped(meaning, width - first - second - 4))
            for line in range(max(map(len, columns))):
                cells = [column[line] if line < len(column) else "" for column in columns]
                yield f"{'' if line else path:<{first}}  {cells[0]:<{second}}  {cells[1]}".rstrip()
    yield ""
    end = "One key with its type, choices and an example: jestlab keys KEY"
    yield from _hanging("", f"{counted(len(keys), 'key')}. {end}", width)


def _stacked(rows: Sequence[tuple[str, str, str]], width: int) -> Iterator[str]:
    """Write keys without columns, for a terminal that is too narrow for them."""
    for path, default, meaning in rows:
        yield from _hanging("", f"{path}  [default: {default}]" if default else path, width)
        yield from _hanging("    ", meaning, width)


def _hanging(head: str, text: str, width: int) -> list[str]:
    """Write text after a head, its further lines indented as far."""
    indent = " " * len(head)
    return textwrap.wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def _width() -> int:
    return shutil.get_terminal_size((80, 24)).columns
