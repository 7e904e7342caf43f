"""`jestlab keys`: list the keys of specs and configs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from jestlab.platform.cli.completion import KEY
from jestlab.platform.cli.options import examples, json_option
from jestlab.platform.cli.output import print_json, show
from jestlab.platform.render import Block, styled, table
from jestlab.platform.spec.keys import SpecKey, find, spec_schema, together
from jestlab.platform.words import counted


@click.command(epilog=examples("keys", "keys selection", "keys selection.rule", "keys reports.table"))
@click.argument("prefix", type=KEY, default="")
@click.option("--schema", "program", metavar="PROGRAM",
              help="Print the JSON schema of specs of PROGRAM, such as train, for editors.")  # fmt: skip
@json_option()
def keys_command(prefix: str, program: str | None, as_json: bool) -> None:
    """List the keys of specs and configs at or below PREFIX.

    A single key is shown with its type and its choices. PREFIX may also be a place as in errors, such as
    runs.joint.selection.rule.
    """
    if program is not None:
        print_json(spec_schema(program))
        return
    found = find(prefix)
    is_single = len({key.path for key in found}) == 1
    show(as_json, [asdict(key) for key in found], _details(found) if is_single else _list(together(found)))


def _details(keys: Sequence[SpecKey]) -> Iterator[Block]:
    for key in keys:
        yield styled(key.path, "bold")
        about = {
            "meaning": key.description,
            "type": key.type,
            "default": key.default,
            "choices": ", ".join(key.choices),
            "used by": ", ".join(key.where),
            "identity": "part of a run's identity" if key.identity else "not part of a run's identity",
        }
        yield table(("", ""), [(name, text) for name, text in about.items() if text], indent=2)


def _list(keys: Sequence[SpecKey]) -> Iterator[Block]:
    yield table(("KEY", "DEFAULT", "MEANING"), [(key.path, key.default, key.description) for key in keys])
    yield ""
    yield f"{counted(len(keys), 'key')}. For the type and choices of one: jestlab keys KEY"
