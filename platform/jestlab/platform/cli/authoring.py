"""`jestlab init`, `keys`, and `schema`: write a starter study, and describe the keys of specs and configs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jestlab.analysis import files
from jestlab.platform import templates
from jestlab.platform.cli.options import FILE, examples, json_option
from jestlab.platform.cli.output import print_or_write, show, writing
from jestlab.platform.dependencies import missing
from jestlab.platform.errors import UserError
from jestlab.platform.render import Block, styled, table
from jestlab.platform.words import counted

if TYPE_CHECKING:
    from jestlab.platform.spec.keys import SpecKey


@click.command(epilog=examples("init", "init mine.yaml --program command"))
@click.argument("file", type=FILE, default=Path("study.yaml"))
@click.option(
    "--program",
    type=click.Choice(templates.STARTS),
    help="Program of the runs: jestlab's training, or a sample script, which is written next to FILE.  "
    "[default: train if JAX is installed, else command]",
)
@json_option("Print the names of the files as JSON.")
def init_command(file: Path, program: templates.Start | None, as_json: bool) -> None:
    """Write a starter study with comments to FILE (by default study.yaml), ready to launch."""
    texts = templates.files(file, program or ("command" if missing("jax") else "train"))
    for path in texts:
        if path.exists() and path.name != templates.SCHEMA:
            raise UserError(f"{path} exists: give another name, as in jestlab init mine.yaml")
    for path, text in texts.items():
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_whole(path, text)
    following = [f"jestlab plan {file}", f"jestlab launch {file}"]
    lines = [*(f"wrote {path}" for path in texts), "next:", *(f"  {command}" for command in following)]
    show(as_json, {"files": [str(path) for path in texts], "next": following}, "\n".join(lines))


@click.command(epilog=examples("keys", "keys selection", "keys selection.rule", "keys reports.table"))
@click.argument("prefix", default="")
@json_option()
def keys_command(prefix: str, as_json: bool) -> None:
    """List the keys of specs and configs at or below PREFIX.

    If only one key matches, its type and valid values are shown, too. PREFIX may also be a path from an error
    message, such as runs.joint.selection.rule.
    """
    from jestlab.platform.spec.keys import find

    found = find(prefix)
    is_single = len({key.path for key in found}) == 1
    show(as_json, [asdict(key) for key in found], _details(found) if is_single else _overview(found))


@click.command(epilog=examples("schema --output jestlab.schema.json"))
@click.option("--output", type=FILE, help="Write the schema to this file instead of printing it.")
def schema_command(output: Path | None) -> None:
    """Print the JSON Schema of spec files, for completion and checks in text editors.

    Editors with a YAML language server, such as VS Code, find the file by a comment in the first line of a
    spec. Its path starts at the folder of the spec. `jestlab init` writes both.

    \b
      # yaml-language-server: $schema=jestlab.schema.json
    """
    from jestlab.platform.spec.json_schema import spec_schema_text

    print_or_write(output, spec_schema_text())


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


def _overview(keys: Sequence[SpecKey]) -> Iterator[Block]:
    yield table(("key", "default", "meaning"), [(key.path, key.default, key.description) for key in keys])
    yield ""
    yield f"{counted(len(keys), 'key')}. For the type and choices of one: jestlab keys KEY"
