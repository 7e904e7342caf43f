"""`jestlab init`: write a starter study."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from jestlab.analysis import files
from jestlab.platform import templates
from jestlab.platform.cli.options import FILE, examples, json_option
from jestlab.platform.cli.output import show, writing
from jestlab.platform.errors import UserError


@click.command(epilog=examples("init", "init mine.yaml --program command"))
@click.argument("file", type=FILE, default=Path("study.yaml"))
@click.option(
    "--program",
    type=click.Choice(templates.STARTS),
    default="train",
    show_default=True,
    help="Program of the runs: jestlab's training, or a custom script, which is written next to the study.",
)
@json_option("Print the names of the files as JSON.")
def init_command(file: Path, program: templates.Start, as_json: bool) -> None:
    """Write FILE, a short commented study, ready to plan and launch  [default: study.yaml]"""
    texts = templates.files(file, program)
    for path in texts:
        if path.exists():
            raise UserError(f"{path} exists: give another name, as in jestlab init mine.yaml")
    for path, text in texts.items():
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_whole(path, text)
    following = [f"jestlab plan {file}", f"jestlab launch {file}"]
    if program == "command" and (activate := _activation()):
        following.insert(0, activate)
    lines = [*(f"wrote {path}" for path in texts), "next:", *(f"  {command}" for command in following)]
    show(as_json, {"files": [str(path) for path in texts], "next": following}, "\n".join(lines))


def _activation() -> str | None:
    """Return the command that activates jestlab's environment; None if it is active, or unknown."""
    folder = Path(sys.executable).parent
    found = shutil.which("python")
    script = folder / "activate"
    is_it = found is not None and Path(found).parent == folder
    return None if is_it or not script.exists() else f"source {script}"
