"""`jestlab table`, `plot`, `report`, and `show-batch`: tables, figures, HTML pages, and images of results.

NumPy, pandas, and Matplotlib are imported when a verb runs, so that `--help` is fast.
"""

import json
import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import click

from jestlab.analysis.files import FORMATS, Format, write_whole
from jestlab.analysis.results import experiments as known
from jestlab.analysis.units import listed
from jestlab.platform.cli.completion import EXPERIMENT, RUN, TABLE
from jestlab.platform.cli.options import RUN_HELP, examples, lab_json_options, model_flags, output_option
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
from jestlab.platform.logs import one_line
from jestlab.platform.render import Block, result_blocks, table
from jestlab.platform.spec.options import FIGURES, TABLES, CustomFigureOptions, PageOptions, TableOptions

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
              help="Format of the table.  [default: text on a terminal, else md]")  # fmt: skip
@model_flags(TableOptions, exclude=["name"])
@click.option("--explain", nargs=2, metavar="ROW COLUMN",
              help="Print the origin of one number: runs, attempts, commit, config, formula.")  # fmt: skip
@output_option()
@lab_json_options("The same as --format json.")
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

    \b
    NAME is one of:
      an experiment       its summary; of a union of studies, its claims
      summary, speedups,
      scaling             of one EXPERIMENT
      claims              of one or more EXPERIMENTs, with verdicts
      a paper's table     comparison, longer_training, specialists, laion, or
                          raw_vs_filtered: published rows, EXPERIMENTs, or both
      a custom table      file.py:function, module:function, an entry point of
                          jestlab.tables, or a report of EXPERIMENT's spec
    Numbers are over completed seeds. csv and json have unrounded numbers.
    """
    from jestlab.analysis.tables import default_name
    from jestlab.analysis.tables.explain import explain as explained
    from jestlab.analysis.tables.latex import left_out
    from jestlab.platform.cli.outcome import answer_lines
    from jestlab.platform.planning.unreported import unreported
    from jestlab.platform.reports.make import make_table

    is_experiment = name not in TABLES and name in known(lab.store_url)
    has_answer = is_experiment and not experiments and given.keys() <= {"notes"}
    if is_experiment:
        name, experiments = default_name(lab.store_url, name), (name, *experiments)
    for line in (line for each in experiments for line in unreported(lab.store_url, each)):
        say(line, err=True)
    made = make_table(lab, experiments, name, given)
    form = "json" if as_json else form or default_format(output)
    if explain is not None:
        origin = explained(lab.store_url, made, *explain)
        if form == "json":
            print_or_write(output, json.dumps(asdict(origin), indent=2, ensure_ascii=False) + "\n")
        else:
            print_or_write_blocks(output, str(origin))
    elif form == "text":
        hides_notes = default_format(output) == "text" and "notes" not in given
        blocks = result_blocks(made, "--notes" if hides_notes else "")
        answer = ["", *answer_lines(lab, *experiments)] if has_answer else []
        print_or_write_blocks(output, [*blocks, *answer])
    else:
        print_or_write(output, made.render(form))
        if form == "latex" and (names := left_out(made)):
            say(f"Left out, since not all columns fit: {listed(names)}. Choose with --columns.", err=True)


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


_KINDS = "\n\n".join(
    f"{', '.join(kind for kind in FIGURES if FIGURES[kind] is model)}: {model.__doc__}".partition("\n")[0]
    for model in dict.fromkeys(FIGURES.values())
)


@click.command(epilog=f"Kinds of figures:\n\n{_KINDS}\n\n{_PLOTS}")
@click.argument("experiment", type=EXPERIMENT, required=False)
@click.option("--kind", default="all", show_default=True, metavar="KIND", help="Kind of figure to draw.")
@model_flags(*FIGURES.values(), CustomFigureOptions)
@output_option("Folder to write to.  [default: <root>/reports/EXPERIMENT]", folder=True)
@lab_json_options("Print the paths as a JSON list.")
def plot_command(
    lab: Lab, experiment: str | None, kind: str, given: dict[str, Any], output: Path | None, as_json: bool
) -> None:
    """Draw EXPERIMENT from the store as PNG, SVG, and PDF, and print the paths.

    KIND is one of the kinds below, or a custom figure: file.py:function, module:function, an entry point of
    jestlab.figures, or the name of a report in EXPERIMENT's spec. The default, all, draws each kind below
    that needs no option and for which there are runs. `jestlab keys reports.KIND` lists the options that a
    kind accepts.
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
@model_flags(PageOptions)
@output_option("Folder to write to.  [default: <root>/reports/EXPERIMENT]", folder=True)
@lab_json_options("Print the paths of all files as a JSON list.")
def report_command(
    lab: Lab, experiment: str, given: dict[str, Any], output: Path | None, as_json: bool
) -> None:
    """Write EXPERIMENT as one HTML page, report.html, and print its path.

    The page works offline. It answers the study's question, and shows tables in which every number links to
    its provenance, interactive figures, the spec's other reports, planned and actual costs, failures, and the
    steps to reproduce the results. Its buttons copy and save tables (LaTeX, CSV, Markdown) and figures (PNG,
    SVG, PDF). The folder report/ next to it has the same tables and figures as files.

    Without --output, the next launch replaces a page that was written with --baseline or --scope.
    """
    from jestlab.platform import reports
    from jestlab.platform.cli.outcome import answer_lines

    folder = None if output is None else output.expanduser()
    with writing(folder or lab.reports / experiment):
        paths = reports.write_page(lab, experiment, folder, PageOptions(**given))
    if not as_json and (lines := answer_lines(lab, experiment)):
        say(lines, err=True)
    show(as_json, [str(path) for path in paths], str(paths[0]))


# ---- show-batch


@click.command(
    epilog=f"{RUN_HELP}\n\n"
    + examples("show-batch quickstart/joint/1", "show-batch quickstart/joint/1 --step 45 -o batch.png")
)
@click.argument("name", type=RUN, metavar="RUN")
@click.option("--step", type=click.IntRange(min=1), help="Step of the super-batch.  [default: the last]")
@click.option("--examples", "size", type=click.IntRange(min=1, max=200), default=12, show_default=True,
              help="Number of selected examples to show, and of rejected ones.")  # fmt: skip
@output_option("PNG image to write.  [default: in the lab's reports]")
@lab_json_options()
def show_batch_command(
    name: str, *, step: int | None, size: int, output: Path | None, as_json: bool, lab: Lab
) -> None:
    """Show examples that RUN selected and rejected in one step, with captions, scores, and metadata.

    Each run records its candidates (the super-batch) at its first step and at each evaluation. The run's
    training data must be on this machine.
    """
    import numpy as np

    from jestlab.analysis.figures.selected import super_batch
    from jestlab.platform.cli import naming
    from jestlab.platform.reports import selected

    with closing(naming.existing_store(lab)) as store:
        named = naming.find_run(store, name)
        run = selected.RecordedRun(lab, store, named.row)
    step = run.steps[-1] if step is None else step
    batch = run.batch(step)
    shown = run.examples(step, batch, np.concatenate(selected.sample(batch, size)))
    path = output or selected.default_path(lab, named.experiment, named.row, step)
    summary: dict[str, Any] = {
        "run": named.title,
        "step": step,
        "recorded_steps": run.steps,
        "candidates": len(batch.examples),
        "selected": len(batch.selected),
        "mean_score_selected": _mean(batch.scores[batch.selected]),
        "mean_score_rejected": _mean(batch.scores[batch.rejected]),
        "shares": run.shares(batch),
        "picture": str(path),
    }
    heading = f"{named.title}, step {step:,}: {len(batch.selected):,} of {len(batch.examples):,} candidates"
    caption = "Selected above, rejected below: evenly spaced examples, each with its caption and score."
    with writing(path):
        write_whole(path, super_batch(path.stem, shown, heading, caption).png())
    rows = [
        {"selected": each.selected, "score": _mean([each.score]), "caption": each.caption} for each in shown
    ]
    summary["examples"] = rows
    show(as_json, summary, [heading, "", *_batch_blocks(summary)])


def _batch_blocks(summary: dict[str, Any]) -> Iterator[Block]:
    rows = [
        ("selected" if each["selected"] else "rejected", _score(each["score"]), one_line(each["caption"]))
        for each in summary["examples"]
    ]
    yield table(("", "score", "caption"), rows, right=(1,))
    if summary["shares"]:
        yield ""
        rows_of_shares = [
            (column, one_line(value), f"{share['selected']:.1%}", f"{share['candidates']:.1%}")
            for column, values in summary["shares"].items()
            for value, share in values.items()
            if share["selected"] or share["candidates"] >= 0.01
        ]
        yield table(("column", "value", "of selected", "of candidates"), rows_of_shares, right=(2, 3))
    yield ""
    means = [f"{part} {_score(summary[f'mean_score_{part}'])}" for part in ("selected", "rejected")]
    yield f"mean score: {', '.join(means)}"
    yield f"recorded steps: {', '.join(map(str, summary['recorded_steps']))}"
    yield f"picture: {summary['picture']}"


def _mean(scores: Any) -> float | None:
    """Return the mean of scores; None without scores, or for NaN, which JSON lacks."""
    mean = float(sum(scores) / len(scores)) if len(scores) else math.nan
    return None if math.isnan(mean) else mean


def _score(score: float | None) -> str:
    return "–" if score is None else f"{score:.3f}"
