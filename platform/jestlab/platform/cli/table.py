"""`jestlab table`: the comparison table of an experiment."""

from __future__ import annotations

from pathlib import Path

import click

from jestlab.analysis.costs import SCOPES, Scope
from jestlab.analysis.rendering import FORMATS, Format
from jestlab.platform.cli.common import lab_options
from jestlab.platform.errors import UserError
from jestlab.platform.lab import Lab

EPILOG = """\b
Examples:
  jestlab table quickstart --baseline uniform
  jestlab table quickstart --format latex --out table.tex
"""


@click.command(name="table", epilog=EPILOG)
@click.argument("experiment")
@click.option("--baseline", metavar="RUN", help="Run or label to compare with [first that is no reference].")
@click.option("--format", "form", type=click.Choice(FORMATS), default="md", show_default=True)
@click.option("--scope", type=click.Choice(SCOPES), default="scoring", show_default=True,
              help="What counts as FLOPs; each holds the ones before it.")  # fmt: skip
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write it here instead.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@lab_options
def command(
    lab: Lab,
    experiment: str,
    baseline: str | None,
    form: Format,
    scope: Scope,
    out: Path | None,
    as_json: bool,
) -> None:
    """Print the final scores, costs and speed-ups of EXPERIMENT, from the store.

    Mean and standard deviation are over the seeds that completed; csv and json hold the raw numbers.
    """
    from jestlab.analysis import frames, tables

    try:
        results = frames.read(lab.store_url, experiment)
        text = tables.summary(results, baseline, scope).render("json" if as_json else form)
    except (FileNotFoundError, ValueError) as error:
        raise UserError(str(error)) from error
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from error
    click.echo(out)
