"""`jestlab plot`: the figures of an experiment."""

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
  jestlab plot quickstart
  jestlab plot quickstart --kind pareto --out figures
"""


@click.command(name="plot", epilog=EPILOG)
@click.argument("experiment")
@click.option("--kind", type=click.Choice(["curves", "pareto", "learnability", "all"]),
              default="all", show_default=True)  # fmt: skip
@click.option("--baseline", metavar="RUN", help="Run or label to compare with [first that is no reference].")
@click.option("--scope", type=click.Choice(SCOPES), default="scoring", show_default=True,
              help="What counts as FLOPs; each holds the ones before it.")  # fmt: skip
@click.option("--run", metavar="RUN", help="Run of `diagnose`, or its label, for learnability [the first].")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              help="Folder to write to [<root>/reports/EXPERIMENT].")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the paths as a JSON list.")
@lab_options
def command(
    lab: Lab,
    experiment: str,
    kind: str,
    baseline: str | None,
    scope: Scope,
    run: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Draw EXPERIMENT from the store as PNG and SVG, and print the paths.

    curves: mean score over examples seen. pareto: final score against training FLOPs, with the front.
    learnability: of the batches that the rules select, where the experiment has a run of `diagnose`. What
    would come out as it is already is not drawn again.
    """
    from jestlab.analysis import figures, frames
    from jestlab.analysis.learnability import learnability

    try:
        plots = []
        if kind != "learnability":
            results = frames.read(lab.store_url, experiment)
        if kind in ("curves", "all"):
            plots.append(figures.learning_curves(results, baseline, scope=scope))
        if kind in ("pareto", "all"):
            plots.append(figures.pareto(results, baseline, scope))
        if kind == "learnability" or (kind == "all" and frames.diagnosed(lab.store_url, experiment)):
            plots.append(learnability(lab.store_url, experiment, run))
    except (FileNotFoundError, ValueError) as error:
        raise UserError(str(error)) from error
    folder = out or lab.reports / experiment
    try:
        paths = [str(path) for plot in plots for path in plot.save(folder)]
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error
    click.echo(json.dumps(paths) if as_json else "\n".join(paths))
