"""`jestlab table`, `plot`, and `report`: results as tables, figures, and one HTML page.

NumPy, pandas, and Matplotlib are imported when a verb runs, so that `--help` is fast.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import click

from jestlab.analysis.costs import Scope
from jestlab.analysis.frames import experiments as known
from jestlab.analysis.provenance import Origins
from jestlab.analysis.tables import NAMES, default_name
from jestlab.analysis.tables.core import FORMATS, Format, Table
from jestlab.analysis.tables.latex import remarks
from jestlab.platform.cli.completion import EXPERIMENT, TABLE
from jestlab.platform.cli.flags import CodeName, model_flags
from jestlab.platform.cli.options import (
    baseline_option,
    examples,
    json_option,
    lab_options,
    output_option,
    scope_option,
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
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.render import result_blocks
from jestlab.platform.spec.options import FIGURES, CustomFigureOptions, TableOptions

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
@click.argument("name", type=TABLE)
@click.argument("experiments", type=EXPERIMENT, nargs=-1, metavar="[EXPERIMENT]...")
@click.option("--format", "form", type=click.Choice(["text", *FORMATS]),
              help="Format of the table  [default: text on a terminal, else md]")  # fmt: skip
@model_flags(TableOptions, leave=["name"])
@click.option("--explain", nargs=2, metavar="ROW COLUMN",
              help="Print the origin of one number: runs, attempts, commit, config, formula.")  # fmt: skip
@output_option()
@wide_option
@json_option("The same as --format json.")
@lab_options
def table_command(
    lab: Lab,
    name: str,
    experiments: tuple[str, ...],
    form: Format | Literal["text"] | None,
    given: dict[str, Any],
    explain: tuple[str, str] | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Print a table from the store.

    NAME is one of: an experiment, for its summary (for a union of studies, its claims); summary or speedups,
    of one EXPERIMENT; claims, with verdicts, of one or more; a table of the paper (comparison,
    longer_training, specialists, laion, raw_vs_filtered) with published rows, those of the EXPERIMENTs, or
    both; or a custom table: file.py:function, module:function, an entry point of jestlab.tables, or the name
    of one of EXPERIMENT's reports. Numbers are over completed seeds; csv and json have unrounded numbers.
    """
    from jestlab.platform.reports.make import make_table

    if name not in NAMES and name in known(lab.store_url):
        name, experiments = default_name(lab.store_url, name), (name, *experiments)
    made = make_table(lab, experiments, name, given)
    form = "json" if as_json else form or default_format(output)
    if explain is not None:
        row, column = explain
        origin = Origins.read(lab.store_url, made.experiments).explain(made, _row_name(row, made), column)
        if form == "json":
            print_or_write(output, json.dumps(origin.to_dict(), indent=2, ensure_ascii=False) + "\n")
        elif output is not None:
            print_or_write(output, f"{origin}\n")
        else:
            say(str(origin))
    elif form == "text":
        print_or_write_blocks(output, result_blocks(made))
    else:
        print_or_write(output, made.render(form))
        for remark in remarks(made) if form == "latex" else ():
            say(remark, err=True)


def _row_name(name: str, table: Table) -> str:
    """Return the name of a row that may be given as EXPERIMENT/ROW."""
    experiment, _, rest = name.partition("/")
    is_qualified = experiment in table.experiments and name not in set(table.frame["row"])
    return rest if is_qualified else name


# ---- plot

_PLOTS = examples(
    "plot quickstart",
    "plot quickstart --kind pareto --over seconds -o figures",
    "plot quickstart --kind against --x schedule.examples_seen",
    "plot quickstart --kind curves --metric loss --over steps --smooth 5",
    "plot quickstart --width 3.25in --title none --caption none",
    "plot --kind published",
    "plot quickstart --kind mine.py:scatter --option x=seconds",
)


@click.command(epilog=_PLOTS)
@click.argument("experiment", type=EXPERIMENT, required=False)
@click.option("--kind", type=CodeName("figure", (*FIGURES, "all"), others=True), default="all",
              show_default=True, metavar="KIND", help="Figure to draw, one of the kinds above.")  # fmt: skip
@model_flags(*FIGURES.values(), CustomFigureOptions)
@output_option("Folder to write to  [default: <root>/reports/EXPERIMENT]", folder=True)
@json_option("Print the paths as a JSON list.")
@lab_options
def plot_command(
    lab: Lab, experiment: str | None, kind: str, given: dict[str, Any], output: Path | None, as_json: bool
) -> None:
    """Draw EXPERIMENT from the store as PNG, SVG, and PDF, and print the paths.

    \b
    curves               mean score, or --metric, over examples seen (or --over)
    pareto               final score against the cost of training (FLOPs, or
                         --over), with the front
    speedup              how many fewer examples and FLOPs runs need to match
                         the baseline
    step_costs           cost of one example, by component
    filtering_ratio      score against the filtering ratio
    approximation_share  score against the share trained on approximately
    batch_size           score against the batch size, and the gain over the
                         baseline
    loss_comparison      sigmoid and softmax
    against_reference    learners against the references they select with
    optimizer_spikes     a training metric over steps, by beta2 (or --x)
    learnability         how learnable the batches are that each rule selects,
                         from a `diagnose` run
    learnability_matrix, gibbs_comparison: its panels
    published            published methods, with comparable runs of EXPERIMENT,
                         if given
    against              score against any key of the config (--x, --by, --split)
    composition          share of each value of a metadata column (--x) in
                         batches
    selected             images that each run trained on
    file.py:function     a custom figure (--option); also module:function, an
                         entry point of jestlab.figures, or the name of one of
                         EXPERIMENT's reports
    all                  all kinds down to learnability for which the experiment
                         has the runs

    Each kind accepts some of the options: see `jestlab keys reports.KIND`.
    """
    from jestlab.platform.reports.make import make_plots

    if experiment is None and kind != "published":
        raise UserError("missing EXPERIMENT: only --kind published works without one")
    plots = make_plots(lab, experiment, kind, given)
    folder = output or lab.reports / (experiment or kind)
    with writing(folder):
        paths = [str(path) for plot in plots for path in plot.save(folder)]
    show(as_json, paths, "\n".join(paths))


# ---- report


@click.command(
    epilog=examples("report quickstart", "report quickstart --baseline uniform -o ~/for-my-colleagues")
)
@click.argument("experiment", type=EXPERIMENT)
@baseline_option("that of the spec's reports, else the first run that is not a reference")
@scope_option(default=None, otherwise="that of the spec's reports, else scoring")
@output_option("Folder to write to  [default: <root>/reports/EXPERIMENT]", folder=True)
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

    The page opens from disk, without a network. It has the answer, tables in which every number links to its
    provenance, interactive figures, the spec's other reports, planned and actual costs, failures, and the
    steps to reproduce it. Its buttons copy and save tables (LaTeX, CSV, Markdown) and figures (PNG, SVG,
    PDF). The folder report/ has the same as files.

    A page with options in the lab's folder stays until the next launch, or the next report without options.
    """
    from jestlab.platform import reports

    folder = None if output is None else output.expanduser()
    with writing(folder or lab.reports / experiment):
        paths = reports.write_page(lab, experiment, folder, baseline, scope)
    show(as_json, [str(path) for path in paths], str(paths[0]))
