"""`jestlab table`: the tables of experiments and of the paper."""

from __future__ import annotations

import json
from pathlib import Path

import click

from jestlab.analysis.costs import SCOPES, Scope
from jestlab.analysis.curves import CROSSINGS, Crossing
from jestlab.analysis.frames import experiments as known
from jestlab.analysis.provenance import Origins
from jestlab.analysis.tables import MEANS, NAMES, Mean, default_name, table
from jestlab.analysis.tables.core import FORMATS, Format
from jestlab.platform.cli.options import baseline_option, examples, json_option, lab_options
from jestlab.platform.cli.output import write_whole
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab

EPILOG = examples(
    "table quickstart --baseline uniform",
    "table quickstart --explain joint score",
    "table speedups quickstart",
    "table claims quickstart",
    "table comparison quickstart --format latex --out table.tex",
    "table specialists",
)


@click.command(name="table", epilog=EPILOG)
@click.argument("name")
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@baseline_option()
@click.option("--format", "form", type=click.Choice(FORMATS), default="md", show_default=True)
@click.option("--scope", type=click.Choice(SCOPES), default="scoring", show_default=True,
              help="Which FLOPs count; each scope includes the ones before it.")  # fmt: skip
@click.option("--mean", type=click.Choice(MEANS), default="all", show_default=True,
              help="Average scores over all metrics, or over those that all runs have.")  # fmt: skip
@click.option("--crossing", type=click.Choice(CROSSINGS), default="first", show_default=True,
              help="Count a score as reached at its first crossing, or once it stays above.")  # fmt: skip
@click.option("--published/--no-published", "with_published", default=True,
              help="Whether the paper's tables also show published rows.")  # fmt: skip
@click.option("--explain", nargs=2, metavar="ROW COLUMN",
              help="Print where one number comes from: runs, attempts, commit, config, formula.")  # fmt: skip
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead.")
@json_option("The same as --format json.")
@lab_options
def command(
    lab: Lab,
    name: str,
    experiments: tuple[str, ...],
    baseline: str | None,
    form: Format,
    scope: Scope,
    mean: Mean,
    crossing: Crossing,
    with_published: bool,
    explain: tuple[str, str] | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Print a table from the store.

    NAME is one of: an experiment, for its summary (for a union of studies, its claims); summary or speedups,
    of one EXPERIMENT; claims, with verdicts, of one or more; or a table of the paper (comparison,
    longer_training, specialists, laion, raw_vs_filtered) with published rows, those of the EXPERIMENTs, or
    both. Numbers are over completed seeds; csv and json hold the raw numbers.
    """
    url = lab.store_url
    try:
        if name not in NAMES and name in known(url):
            name, experiments = default_name(url, name), (name, *experiments)
        made = table(
            url, name, experiments, baseline=baseline, scope=scope, mean=mean, crossing=crossing,
            with_published=with_published,
        )  # fmt: skip
        if explain is None:
            text = made.render("json" if as_json else form)
        else:
            told = Origins.read(url, made.experiments).explain(made, *explain)
            as_data = as_json or form == "json"
            text = json.dumps(told.to_dict(), indent=2, ensure_ascii=False) if as_data else str(told)
            text += "\n"
    except (FileNotFoundError, ValueError) as error:
        raise UserError(str(error)) from error
    if out is None:
        click.echo(text, nl=False)
        return
    write_whole(out, text)
    click.echo(out)
