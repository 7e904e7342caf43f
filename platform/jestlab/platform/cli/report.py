"""`jestlab report`: all that an experiment came to, as one page."""

from __future__ import annotations

import json
from pathlib import Path

import click

from jestlab.analysis.costs import SCOPES, Scope
from jestlab.platform.cli.common import lab_options
from jestlab.platform.errors import UserError
from jestlab.platform.lab import Lab

EPILOG = """\b
Examples:
  jestlab report quickstart
  jestlab report quickstart --baseline uniform --out ~/for-my-colleagues
"""


@click.command(name="report", epilog=EPILOG)
@click.argument("experiment")
@click.option("--baseline", metavar="RUN", help="Run or label to compare with [first that is no reference].")
@click.option("--scope", type=click.Choice(SCOPES), default="scoring", show_default=True,
              help="What counts as FLOPs; each holds the ones before it.")  # fmt: skip
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              help="Folder to write to [<root>/reports/EXPERIMENT].")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the paths of all files as a JSON list.")
@lab_options
def command(
    lab: Lab, experiment: str, baseline: str | None, scope: Scope, out: Path | None, as_json: bool
) -> None:
    """Write EXPERIMENT as one HTML page, report.html, and print its path.

    It opens from disk and needs no network: the answer, tables whose cells open what they are made of,
    interactive figures, what else the spec asks for under reports, costs planned against actual, failures,
    and how to reproduce it. In report/ beside it lie the same tables as .tex and .csv, the figures as .pdf
    and .png, each with a file that says what it was made from.
    """
    from jestlab.analysis.report.build import build
    from jestlab.platform import stamps

    folder = out.expanduser() if out is not None else lab.reports / experiment
    try:
        (folder / stamps.NAME).unlink(missing_ok=True)  # what a launch had written here is no more
        paths = build(lab.store_url, experiment, folder, baseline, scope)
    except (FileNotFoundError, ValueError) as error:
        raise UserError(str(error)) from error
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error
    click.echo(json.dumps([str(path) for path in paths]) if as_json else paths[0])
