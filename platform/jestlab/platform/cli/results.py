"""`jestlab table`, `plot` and `report`: results as tables, as figures, and as one HTML page.

NumPy, pandas and Matplotlib are imported when a verb runs: `--help` is not to wait for them.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from jestlab.analysis.costs import Scope
from jestlab.analysis.curves import CROSSINGS, Crossing
from jestlab.analysis.efforts import OVERS, Over
from jestlab.analysis.frames import experiments as known
from jestlab.analysis.provenance import Origins
from jestlab.analysis.sheet import Sheet
from jestlab.analysis.smoothing import Smoothing
from jestlab.analysis.tables import MEANS, NAMES, Mean, Shape, default_name, table
from jestlab.analysis.tables.core import FORMATS, Format, Table
from jestlab.analysis.tables.latex import remarks
from jestlab.platform.cli import result_tables
from jestlab.platform.cli.figures import sheet_options
from jestlab.platform.cli.options import (
    baseline_option,
    examples,
    json_option,
    lab_options,
    output_option,
    scope_option,
    score_option,
    wide_option,
)
from jestlab.platform.cli.output import (
    default_format,
    print_or_write,
    print_or_write_blocks,
    say,
    show,
    writing,
)
from jestlab.platform.cli.own import Named, options_option, parsed
from jestlab.platform.cli.shaping import shape_options
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab

_output_folder = output_option("Folder to write to  [default: <root>/reports/EXPERIMENT]", folder=True)


_TABLES = examples(
    "table quickstart --baseline uniform",
    "table quickstart --explain joint score",
    "table quickstart --score shapes/zero_shot",
    "table speedups quickstart",
    "table claims quickstart",
    "table quickstart --columns score,delta --sort -score --digits 2",
    "table quickstart --format latex --width column -o table.tex",
    "table specialists",
    "table mine.py:per_class quickstart --option top=5",
)


@click.command(epilog=_TABLES)
@click.argument("name")
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@baseline_option()
@click.option("--format", "form", type=click.Choice(["text", *FORMATS]),
              help="Format of the table  [default: text on a terminal, else md]")  # fmt: skip
@scope_option()
@click.option("--mean", type=click.Choice(MEANS), default="all", show_default=True,
              help="Average scores over all metrics, or over those that all runs have.")  # fmt: skip
@click.option("--crossing", type=click.Choice(CROSSINGS), default="first", show_default=True,
              help="Count a score as reached at its first crossing, or once it stays above.")  # fmt: skip
@click.option("--published/--no-published", "with_published", default=True,
              help="Whether the paper's tables also show published rows.")  # fmt: skip
@score_option
@options_option
@shape_options
@click.option("--explain", nargs=2, metavar="ROW COLUMN",
              help="Print where one number comes from: runs, attempts, commit, config, formula.")  # fmt: skip
@output_option()
@wide_option
@json_option("The same as --format json.")
@lab_options
def table_command(
    lab: Lab,
    name: str,
    experiments: tuple[str, ...],
    baseline: str | None,
    form: Format | Literal["text"] | None,
    scope: Scope,
    mean: Mean,
    crossing: Crossing,
    with_published: bool,
    score: tuple[str, ...],
    own_options: tuple[str, ...],
    shape: Shape,
    explain: tuple[str, str] | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Print a table from the store.

    NAME is one of: an experiment, for its summary (for a union of studies, its claims); summary or speedups,
    of one EXPERIMENT; claims, with verdicts, of one or more; or a table of the paper (comparison,
    longer_training, specialists, laion, raw_vs_filtered) with published rows, those of the EXPERIMENTs, or
    both; or a table of your own: file.py:function, module:function, an entry point of jestlab.tables, or what
    a report of EXPERIMENT is called. Numbers are over completed seeds; csv and json hold the raw numbers of
    what is shown.
    """
    url = lab.store_url
    if name not in NAMES and name in known(url):
        name, experiments = default_name(url, name), (name, *experiments)
    from jestlab.platform.own_results import asked  # imports SQLAlchemy

    first = experiments[0] if experiments else None
    own = asked(url, first, "table", name, parsed(own_options), NAMES, "--option")
    made = table(
        url, own.name if own else name, experiments, baseline=baseline, scope=scope, mean=mean,
        crossing=crossing, with_published=with_published, score=score, shape=shape,
        options=own.options if own else None, own=own.loader if own else None,
    )  # fmt: skip
    form = "json" if as_json else form or default_format(output)
    if explain is not None:
        row, column = explain
        told = Origins.read(url, made.experiments).explain(made, _row(row, made), column)
        if form == "json":
            print_or_write(output, json.dumps(told.to_dict(), indent=2, ensure_ascii=False) + "\n")
        elif output is not None:
            print_or_write(output, f"{told}\n")
        else:
            say(str(told))
    elif form == "text":
        print_or_write_blocks(output, result_tables.blocks(made))
    else:
        print_or_write(output, made.render(form))
        for remark in remarks(made) if form == "latex" else ():
            say(remark, err=True)


def _row(name: str, made: Table) -> str:
    """Find the row that is meant: it may be named EXPERIMENT/ROW."""
    experiment, _, rest = name.partition("/")
    is_whole = experiment in made.experiments and name not in set(made.frame["row"])
    return rest if is_whole else name


# ---- plot

_PLOTS = examples(
    "plot quickstart",
    "plot quickstart --kind pareto --over seconds -o figures",
    "plot quickstart --kind against --x schedule.examples_seen",
    "plot quickstart --kind curves --metric loss --over steps --smooth 5",
    "plot quickstart --width 3.25in --no-title --no-caption --font serif",
    "plot --kind published",
    "plot quickstart --kind mine.py:scatter --option x=seconds",
)

# Those of `jestlab.analysis.figures.KINDS`, which takes too long to import for `--help`; a test compares.
KINDS = (
    "curves", "pareto", "speedup", "step_costs", "filtering_ratio", "approximation_share", "batch_size",
    "loss_comparison", "against_reference", "optimiser_spikes", "learnability", "learnability_matrix",
    "gibbs_comparison", "published", "against", "composition", "selected",
)  # fmt: skip


@click.command(epilog=_PLOTS)
@click.argument("experiment", required=False)
@click.option("--kind", type=Named("figure", (*KINDS, "all"), others=True), default="all",
              show_default=True, metavar="KIND", help="What to draw, of the kinds above.")  # fmt: skip
@baseline_option()
@scope_option()
@score_option
@click.option(
    "--x",
    metavar="KEY",
    help="Config key to draw scores against, or to compare spikes by; column of composition.",
)
@click.option("--over", type=click.Choice(OVERS),
              help="What curves are drawn over, and what the Pareto plot takes as cost.")  # fmt: skip
@click.option("--by", metavar="KEY", multiple=True,
              help="Config key whose values are lines  [default: selection.rule]")  # fmt: skip
@click.option("--split", metavar="KEY", help="Config key whose values make a panel.")
@click.option("--metric", "metrics", multiple=True,
              help="Any recorded metric that curves show in place of the score; repeat for panels. "
              "Training metric of optimiser_spikes  [default: loss]")  # fmt: skip
@click.option("--smooth", metavar="WINDOW", help="Smooth curves over recorded points (5) or a share (10%).")
@click.option("--scale", type=click.Choice(["linear", "log"]),
              help="Axis of the curves' metric  [default: as declared]")  # fmt: skip
@click.option("--highlight", metavar="RUN", multiple=True,
              help="Run or label to colour among curves, the others being grey; repeatable.")  # fmt: skip
@click.option("--group", help="Group of the published table  [default: its first]")
@click.option("--source", help="Source of the published table  [default: the one with most points]")
@click.option("--trajectories", is_flag=True, help="Show how runs move during training on the Pareto plot.")
@click.option("--surfaces", is_flag=True, help="Show attainment surfaces over seeds on the Pareto plot.")
@options_option
@click.option("--run", metavar="RUN", help="Run of `diagnose` for learnability  [default: the first]")
@sheet_options
@_output_folder
@json_option("Print the paths as a JSON list.")
@lab_options
def plot_command(
    lab: Lab,
    experiment: str | None,
    kind: str,
    output: Path | None,
    as_json: bool,
    by: tuple[str, ...],
    score: tuple[str, ...],
    over: Over | None,
    metrics: tuple[str, ...],
    sheet: Sheet,
    own_options: tuple[str, ...],
    **options: Any,
) -> None:
    """Draw EXPERIMENT from the store as PNG, SVG and PDF, and print the paths.

    \b
    curves               mean score, or --metric, over examples seen (or --over)
    pareto               final score against what training costs (FLOPs, or
                         --over), with the front
    speedup              how many fewer examples and FLOPs runs need to match
                         the baseline
    step_costs           what an example costs, by component
    filtering_ratio      score against the filtering ratio
    approximation_share  score against the share trained on approximately
    batch_size           score against the batch size, and the gain over the
                         baseline
    loss_comparison      sigmoid and softmax
    against_reference    learners against the references they select with
    optimiser_spikes     a training metric over steps, by beta2 (or --x)
    learnability         how learnable the batches are that each rule selects,
                         from a `diagnose` run
    learnability_matrix, gibbs_comparison: its panels alone
    published            published methods, with comparable runs of EXPERIMENT,
                         if given
    against              score against any key of the config (--x, --by, --split)
    composition          what batches were made of, by a column of metadata (--x)
    selected             pictures of what each run trained on, over training
    file.py:function     a figure of your own (--option); also module:function,
                         an entry point of jestlab.figures, or what a report of
                         EXPERIMENT is called
    all                  all kinds down to learnability for which the experiment
                         has the runs

    Figures that are up to date are not drawn again.
    """
    from jestlab.analysis import figures  # here, because NumPy takes longer to import than --help may
    from jestlab.platform.own_results import asked
    from jestlab.platform.pictures import pictures

    if experiment is None and kind != "published":
        raise UserError("missing EXPERIMENT: only --kind published needs none")
    if by:
        options["by"] = by
    if over == "steps" and kind not in ("curves", "all"):
        raise UserError("--over steps is for curves: a step is no cost")
    if options["smooth"] is not None:
        try:
            Smoothing.parse(options["smooth"])
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--smooth") from None
    options |= {"effort": over, "cost": None if over == "steps" else over, "score": score or None}
    options |= {"metric": metrics[0] if metrics else None, "metrics": metrics, "sheet": sheet}
    own = asked(lab.store_url, experiment, "figure", kind, parsed(own_options), (*KINDS, "all"), "--option")
    if own is not None:
        kind = own.name
        options |= {"own": own.loader, "options": own.options}
    options["pictures"] = partial(pictures, lab)
    request = figures.Request(lab.store_url, experiment or "", **options)
    plots = figures.all_possible(request) if kind == "all" else [figures.draw(kind, request)]
    folder = output or lab.reports / (experiment or kind)
    with writing(folder):
        paths = [str(path) for plot in plots for path in plot.save(folder)]
    show(as_json, paths, "\n".join(paths))


# ---- report


@click.command(
    epilog=examples("report quickstart", "report quickstart --baseline uniform -o ~/for-my-colleagues")
)
@click.argument("experiment")
@baseline_option("as the spec's reports say, else the first run that is not a reference")
@scope_option(default=None, otherwise="as the spec's reports say, else scoring")
@_output_folder
@json_option("Print the paths of all files as a JSON list.")
@lab_options
def report_command(
    lab: Lab,
    experiment: str,
    baseline: str | None,
    scope: Scope | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Write EXPERIMENT as one HTML page, report.html, and print its path.

    The page opens from disk and needs no network: the answer, tables in which every number links to its
    provenance, interactive figures, the spec's further reports, planned and actual costs, failures, and how
    to reproduce it. Its buttons copy and save tables as LaTeX, CSV and Markdown and figures as PNG, SVG and
    PDF, from the page itself, so it can be mailed. The folder report/ beside it holds the same as files.

    Without --baseline, --scope and --output this is the page that a launch writes, and it is left as it is
    if it is up to date. With any of them it is always written; in the lab's own folder it then stays until
    the next launch, or report without them.
    """
    from jestlab.platform import reports

    folder = output.expanduser() if output is not None else lab.reports / experiment
    is_as_launched = baseline is None and scope is None and output is None
    with writing(folder):
        if is_as_launched:
            paths = reports.bring_page_up_to_date(lab, experiment)
        else:
            paths = reports.write_page(lab, experiment, folder, baseline, scope)
    show(as_json, [str(path) for path in paths], str(paths[0]))
