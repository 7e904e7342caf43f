"""`jestlab adopt`: import runs of other tools into a study."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from jestlab.platform.cli.completion import EXPERIMENT
from jestlab.platform.cli.naming import pasted
from jestlab.platform.cli.options import examples, json_option, lab_options, same_lab_options
from jestlab.platform.cli.output import say, show
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.render import Block, table
from jestlab.platform.whoami import person
from jestlab.platform.words import counted, few, listed, on_one_line, printable

if TYPE_CHECKING:
    from jestlab.platform.exchange.adopt_store import Change, Placed

KINDS = {
    "wandb": "read_wandb",
    "mlflow": "read_mlflow",
    "tensorboard": "read_tensorboard",
    "csv": "read_tables",
    "parquet": "read_tables",
}
"""Kind of source → module that reads it."""

_TABLES = ("csv", "parquet")
_MOST_METRICS = 12  # listed if no metric is a score

_EPILOG = f"""\
Nothing is uploaded or downloaded. KIND PATH is one of

\b
  wandb        a folder wandb, or the folder of a run in it, also offline
  mlflow       a folder mlruns, or a database mlflow.db
  tensorboard  a folder with event files (pip install 'jestlab[tensorboard]')
  csv          a table with a row for each step or run; also tabs, semicolons
  parquet      the same in Parquet

Adopted runs are labeled with the kind of their source, such as "siglip (wandb)". Runs with the same label are
replicates. Adopting again adds new runs and updates changed ones.

{
    examples(
        "adopt wandb ~/wandb --into old --label '{group}' --score 'eval/*'",
        "adopt mlflow mlruns --into old --score coco/i2t_r1=r1",
        "adopt csv results.csv --into old --run model,lr --score 'val/*'",
        "adopt tensorboard logs --into old --dry-run",
    )
}
"""


@click.command(epilog=_EPILOG)
@click.argument("kind", type=click.Choice([*KINDS]), metavar="KIND")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--into",
    "study",
    type=EXPERIMENT,
    metavar="STUDY",
    required=True,
    help="Study to add the runs to, new or existing.",
)
@click.option(
    "--label",
    metavar="TEXT",
    default="{name}",
    show_default=True,
    help="Label of a run: text with {name}, {group}, and keys of the config and of tags in braces.",
)
@click.option(
    "--score",
    "scores",
    metavar="METRIC",
    multiple=True,
    help="Metric to use as a score: a pattern of names, 'eval/*', or DATASET/METRIC=NAME; repeatable  "
    "[default: metrics named like a score of STUDY]",
)
@click.option(
    "--goal",
    type=click.Choice(("max", "min")),
    help="Whether larger or smaller scores are better, unless a spec of STUDY defines it.",
)
@click.option(
    "--examples",
    metavar="METRIC",
    help="Metric with the examples seen, or step*256, or step*KEY with a key of the config.",
)
@click.option("--flops", metavar="METRIC", help="The same for the FLOPs of training.")
@click.option(
    "--seconds",
    metavar="METRIC",
    help="The same for the seconds of training  [default: the wall time of the run, at its last step]",
)
@click.option(
    "--seed", metavar="KEY", default="seed", show_default=True, help="Key of the config with the seed."
)
@click.option(
    "--only", metavar="PATTERN", multiple=True, help="Only adopt runs whose names match; repeatable."
)
@click.option("--run", "run_columns", metavar="COLUMNS", help="Tables: columns that identify a run.")
@click.option("--step", metavar="COLUMN", help="Tables: column of steps  [default: step]")
@click.option("--config", "config_columns", metavar="COLUMNS", help="Tables: columns of the config.")
@click.option("--source", metavar="NAME", help="Name to distinguish tables or folders with the same name.")
@click.option("--moved", is_flag=True, help="PATH was adopted before from another place.")
@click.option("--dry-run", is_flag=True, help="Show what would be adopted, and write nothing.")
@json_option()
@lab_options
def adopt_command(
    *,
    kind: str,
    path: Path,
    study: str,
    label: str,
    scores: tuple[str, ...],
    goal: Literal["max", "min"] | None,
    examples: str | None,
    flops: str | None,
    seconds: str | None,
    seed: str,
    only: tuple[str, ...],
    run_columns: str | None,
    step: str | None,
    config_columns: str | None,
    source: str | None,
    moved: bool,
    dry_run: bool,
    as_json: bool,
    lab: Lab,
) -> None:
    """Import runs recorded by another tool into STUDY, with configs, metrics, scores, and costs.

    Exit code: 0 all runs were adopted, 1 some could not be read.
    """
    from jestlab.platform.exchange.adopt import Adoption, Rules, parse_score
    from jestlab.platform.spec.runs import is_name
    from jestlab.platform.store.store import Store

    if not is_name(study):
        raise click.UsageError(f"--into {study}: expected letters, digits and _ . + -")
    columns = {"run": listed(run_columns or ""), "config": listed(config_columns or ""), "step": step}
    options = {name: value for name, value in columns.items() if value}
    if options and kind not in _TABLES:
        raise click.UsageError(f"--{next(iter(options))}: only tables have columns (csv, parquet)")
    if source is not None and kind in ("wandb", "mlflow"):
        raise click.UsageError(f"--source: the names of {kind} runs don't depend on the path")
    options |= {"source": source} if source is not None else {}
    options |= {"seed": seed} if kind in _TABLES else {}
    rules = Rules(label, seed, tuple(map(parse_score, scores)), examples, flops, seconds)
    errors: list[UserError] = []
    runs = importlib.import_module(f"jestlab.platform.exchange.{KINDS[kind]}").read(
        path, errors.append, **options
    )
    chosen = (run for run in runs if not only or any(fnmatchcase(run.name, pattern) for pattern in only))
    store = Store.open_readonly(lab.store_url) if dry_run else Store.open(lab.store_url)
    with nullcontext() if store is None else closing(store):
        adoption = Adoption(store, study, kind, str(path.resolve()), rules, person(), moved, goal, dry_run)
        # Keep summaries, not the runs, whose curves may be large.
        adopted = [_summary(*one) for one in _with_progress(adoption.adopt_all(chosen, errors.append))]
        if store is not None and not dry_run:
            store.close_whole()
    failed = [on_one_line(str(error)) for error in errors]
    for line in _without_repetitions(failed, is_one_file=path.is_file()):
        say(f"jestlab: {line}", err=True)
    data = {"study": study, "dry_run": dry_run, "runs": adopted, "failed": failed}
    show(as_json, data, _report(adopted, study, dry_run, only))
    if failed:
        raise SystemExit(1)


def _without_repetitions(failed: Sequence[str], is_one_file: bool) -> Iterator[str]:
    """Yield the first line of each kind of error, with the number of other runs that have it."""
    by_error: dict[str, list[str]] = {}
    for line in failed:
        _, _, error = line.partition(": ")
        by_error.setdefault("" if is_one_file else error or line, []).append(line)
    for first, *others in by_error.values():
        yield first + (f"; and {counted(len(others), 'more run')}: --json lists them" if others else "")


def _with_progress(adopted: Iterator[tuple[Placed, Change | None]]) -> Iterator[tuple[Placed, Change | None]]:
    """Show the number of adopted runs on a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("reading …") if console.is_terminal else nullcontext() as status:
        for number, (placed, change) in enumerate(adopted, start=1):
            if status is not None:
                status.update(f"{counted(number, 'run')}, {printable(placed.label)} …")
            yield placed, change


def _summary(placed: Placed, change: Change | None) -> dict[str, Any]:
    return {
        "label": placed.label,
        "seed": placed.seed,
        "origin": placed.run.origin,
        "fingerprint": placed.fingerprint,
        "state": str(placed.state),
        "step": placed.run.last_step,
        "metrics": sorted(placed.run.metrics),
        # The last score of each evaluation.
        "scores": {one.name: one.value if one.value == one.value else None for one in placed.scores},
        "change": change,
        "left_out": dict(placed.run.left_out),
    }


def _report(
    adopted: list[dict[str, Any]], study: str, dry_run: bool, only: tuple[str, ...]
) -> Iterator[Block]:
    if not adopted:
        yield "no runs were adopted" + (f": no name matches {' or '.join(only)}" if only else "")
        return
    headers = ["run", "state", "step", "scores", "from", *([] if dry_run else ["change"])]
    rows = []
    for run in sorted(adopted, key=lambda run: (run["label"], run["seed"])):
        scores = [
            f"{name} {'—' if value is None else f'{value:.4g}'}" for name, value in run["scores"].items()
        ]
        row = [f"{run['label']}/{run['seed']}", run["state"], f"{run['step']:,}", few(scores), run["origin"]]
        rows.append(row if dry_run else [*row, run["change"]])
    yield table(headers, rows, right=(2,))
    left_out = Counter[str]()
    for run in adopted:
        left_out.update(run["left_out"])
    yield from (f"left out: {count:,} {reason}" for reason, count in left_out.items())
    if dry_run:
        yield f"{counted(len(adopted), 'run')} would be adopted into {study}; nothing was written"
    else:
        changes = Counter(run["change"] for run in adopted)
        numbers = f"{changes['new']} new, {changes['changed']} changed, {changes['same']} unchanged"
        yield f"{counted(len(adopted), 'run')} in {study}: {numbers}"
    if not any(run["scores"] for run in adopted):
        metrics = sorted({printable(name) for run in adopted for name in run["metrics"]})
        names = ", ".join(metrics[:_MOST_METRICS]) + (", …" if len(metrics) > _MOST_METRICS else "")
        yield (
            "none of their metrics is a score, which tables and plots need: --score 'eval/*' or "
            f"--score DATASET/METRIC=NAME; their metrics: {names or 'none'}"
        )
    elif not dry_run:
        yield f"next: jestlab table {pasted(study)}{same_lab_options()}"
