"""`jestlab plot`: the figures of an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from jestlab.analysis.costs import SCOPES
from jestlab.platform.cli.options import baseline_option, examples, json_option, lab_options
from jestlab.platform.cli.output import show
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab

EPILOG = examples(
    "plot quickstart",
    "plot quickstart --kind pareto --out figures",
    "plot quickstart --kind against --x schedule.examples_seen",
    "plot --kind published",
)

# Those of `jestlab.analysis.figures.KINDS`, which takes too long to import for `--help`; a test compares.
KINDS = (
    "curves", "pareto", "speedup", "step_costs", "filtering_ratio", "approximation_share", "batch_size",
    "loss_comparison", "against_reference", "optimiser_spikes", "learnability", "learnability_matrix",
    "gibbs_comparison", "published", "against",
)  # fmt: skip


@click.command(name="plot", epilog=EPILOG)
@click.argument("experiment", required=False)
@click.option("--kind", type=click.Choice([*KINDS, "all"]), default="all", show_default=True, metavar="KIND",
              help="What to draw, of the kinds above.")  # fmt: skip
@baseline_option()
@click.option("--scope", type=click.Choice(SCOPES), default="scoring", show_default=True,
              help="Which FLOPs count; each scope includes the ones before it.")  # fmt: skip
@click.option("--x", metavar="KEY", help="Config key to draw scores against, or to compare spikes by.")
@click.option(
    "--by",
    metavar="KEY",
    multiple=True,
    help="Config key whose values are lines  [default: selection.rule]",
)
@click.option("--split", metavar="KEY", help="Config key whose values make a panel.")
@click.option("--metric", default="loss", show_default=True, help="Training metric for optimiser_spikes.")
@click.option("--group", help="Group of the published table  [default: its first]")
@click.option("--source", help="Source of the published table  [default: the one with most points]")
@click.option("--trajectories", is_flag=True, help="Show how runs move during training on the Pareto plot.")
@click.option("--surfaces", is_flag=True, help="Show attainment surfaces over seeds on the Pareto plot.")
@click.option("--run", metavar="RUN", help="Run of `diagnose` for learnability  [default: the first]")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              help="Folder to write to  [default: <root>/reports/EXPERIMENT]")  # fmt: skip
@json_option("Print the paths as a JSON list.")
@lab_options
def command(
    lab: Lab,
    experiment: str | None,
    kind: str,
    out: Path | None,
    as_json: bool,
    by: tuple[str, ...],
    **options: Any,
) -> None:
    """Draw EXPERIMENT from the store as PNG, SVG and PDF, and print the paths.

    \b
    curves               mean score over examples seen
    pareto               final score against training FLOPs, with the front
    speedup              how many fewer examples and FLOPs runs need to match the baseline
    step_costs           what an example costs, by component
    filtering_ratio      score against the filtering ratio
    approximation_share  score against the share trained on approximately
    batch_size           score against the batch size, and the gain over the baseline
    loss_comparison      sigmoid and softmax
    against_reference    learners against the references they select with
    optimiser_spikes     a training metric over steps, by beta2 (or --x)
    learnability         how learnable the batches are that each rule selects, from a `diagnose` run
    learnability_matrix, gibbs_comparison: its panels alone
    published            published methods, with comparable runs of EXPERIMENT, if given
    against              score against any key of the config (--x, --by, --split)
    all                  all kinds down to learnability for which the experiment has the runs

    Figures that are up to date are not drawn again.
    """
    from jestlab.analysis import figures  # here, because NumPy takes longer to import than --help may

    if experiment is None and kind != "published":
        raise UserError("missing EXPERIMENT: only --kind published needs none")
    if by:
        options["by"] = by
    request = figures.Request(lab.store_url, experiment or "", **options)
    try:
        plots = figures.all_possible(request) if kind == "all" else [figures.draw(kind, request)]
    except (FileNotFoundError, ValueError) as error:
        raise UserError(str(error)) from error
    folder = out or lab.reports / (experiment or kind)
    try:
        paths = [str(path) for plot in plots for path in plot.save(folder)]
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error
    show(as_json, paths, "\n".join(paths))
