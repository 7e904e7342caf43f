"""`jestlab adopt`: take runs of other tools into a study, beside one's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from jestlab.platform.cli.naming import pasted
from jestlab.platform.cli.options import examples, json_option, lab_options, same_lab_options
from jestlab.platform.cli.output import counted, few, print_json, printable, say
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.render import Block, table
from jestlab.platform.whoami import person
from jestlab.platform.words import listed, on_one_line

if TYPE_CHECKING:
    from jestlab.platform.exchange.adopt import Score
    from jestlab.platform.exchange.taking import Taken

KINDS = ("wandb", "mlflow", "tensorboard", "csv", "parquet")
_TABLES = ("csv", "parquet")
_MOST_METRICS = 12  # that are listed where none is a score

_EPILOG = f"""\
Nothing is uploaded or downloaded, and none of these tools has to be installed. KIND PATH is one of

\b
  wandb        a folder wandb, or a run's folder in it, also offline ones
  mlflow       a folder mlruns, or a database mlflow.db
  tensorboard  a folder with event files below it
  csv          a table with a row for each step or run; also tabs, semicolons
  parquet      likewise

Tables, fronts and claims show adopted runs by their labels with the kind of their source,
"siglip (wandb)". Runs whose labels are alike are replicates. To adopt again takes in what is new.

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
@click.argument("kind", type=click.Choice(KINDS), metavar="KIND")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--into", "study", metavar="STUDY", required=True, help="Study that they join, new or not.")
@click.option(
    "--label",
    metavar="TEXT",
    default="{name}",
    show_default=True,
    help="What runs are called: {name}, {group}, and keys of the config and of tags in braces stand for what "
    "they are.",
)
@click.option(
    "--score",
    "scores",
    metavar="METRIC",
    multiple=True,
    help="A metric that is a score: a pattern of names, 'eval/*', or DATASET/METRIC=NAME; repeatable  "
    "[default: those named like a score of STUDY]",
)
@click.option(
    "--goal",
    type=click.Choice(("max", "min")),
    help="Whether more or less of their scores is better, unless a spec of STUDY says it.",
)
@click.option(
    "--examples",
    metavar="METRIC",
    help="Metric that holds the examples seen, or step*256, or step*KEY with a key of the config.",
)
@click.option("--flops", metavar="METRIC", help="Likewise the FLOPs of training until then.")
@click.option(
    "--seconds",
    metavar="METRIC",
    help="Likewise the seconds of training  [default: a run's wall time, at its last step]",
)
@click.option(
    "--seed", metavar="KEY", default="seed", show_default=True, help="Key of the config with the seed."
)
@click.option("--only", metavar="PATTERN", multiple=True, help="Only runs of such names; repeatable.")
@click.option("--run", "run_columns", metavar="COLUMNS", help="Of tables: the columns that name a run.")
@click.option("--step", metavar="COLUMN", help="Of tables: the column of steps  [default: step]")
@click.option("--config", "config_columns", metavar="COLUMNS", help="Of tables: the columns of the config.")
@click.option("--source", metavar="NAME", help="Name of the table or folder, if another one is called alike.")
@click.option("--moved", is_flag=True, help="PATH was adopted before, from another place.")
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
    """Take runs that another tool recorded at PATH into STUDY, with configs, metrics, scores and costs.

    Exit code: 0 all were taken in, 1 some could not be read.
    """
    from jestlab.platform.exchange import adopt as adoption
    from jestlab.platform.exchange.efforts import Effort
    from jestlab.platform.exchange.placing import Placing, Rules, parse_score
    from jestlab.platform.exchange.readers import READERS
    from jestlab.platform.exchange.taking import take
    from jestlab.platform.spec.runs import is_name
    from jestlab.platform.store.store import Store

    if not is_name(study):
        raise click.UsageError(f"--into {study}: expected letters, digits and _ . + -")
    efforts = (None if written is None else Effort(written) for written in (examples, flops, seconds))
    rules = Rules(label, seed, tuple(map(parse_score, scores)), *efforts)
    errors: list[UserError] = []
    options = _options(kind, run_columns, step, config_columns, source, seed) | {"damaged": errors.append}
    store = Store.open_readonly(lab.store_url) if dry_run else Store.open(lab.store_url)
    known = adoption.Known((), {}, {}, ()) if store is None else adoption.known(store, study)
    placing = Placing(kind, rules, known, str(path.resolve()))
    author = person()

    def write(run: adoption.AdoptedRun) -> adoption.Change | None:
        if store is None or dry_run:
            return None
        return adoption.adopt(store, study, run, author=author, moved=moved, goal=goal)

    every = READERS[kind](path, **options)
    runs = (run for run in every if not only or any(fnmatchcase(run.name, one) for one in only))
    try:
        # Not the runs themselves, whose curves may be large.
        taken = [_summary(one) for one in _with_progress(take(runs, placing, write, errors.append))]
    finally:
        if store is not None:
            with closing(store):
                if not dry_run:
                    store.close_whole()
    failed = [on_one_line(str(error)) for error in errors]
    for line in _told(failed, of_one_file=path.is_file()):
        say(f"jestlab: {line}", err=True)
    if as_json:
        print_json({"study": study, "dry_run": dry_run, "runs": taken, "failed": failed})
    else:
        say(_shown(taken, study, dry_run, only))
    if failed:
        raise SystemExit(1)


def _told(failed: Sequence[str], of_one_file: bool) -> Iterator[str]:
    """Write what went wrong with runs, in a line for each fault, or file: the first run, and their number."""
    alike: dict[str, list[str]] = {}
    for line in failed:
        _, _, fault = line.partition(": ")
        alike.setdefault("" if of_one_file else fault or line, []).append(line)
    for first, *others in alike.values():
        yield first + (f"; and {counted(len(others), 'more run')}: --json names them" if others else "")


def _options(
    kind: str, run: str | None, step: str | None, config: str | None, source: str | None, seed: str
) -> dict[str, Any]:
    """Gather the arguments of a reader; refuse those that another kind has."""
    of_tables = {"--run": run, "--step": step, "--config": config}
    if kind not in _TABLES and (given := [name for name, value in of_tables.items() if value is not None]):
        raise click.UsageError(f"{given[0]}: only tables have columns, csv and parquet")
    if source is not None and kind not in (*_TABLES, "tensorboard"):
        raise click.UsageError(f"--source: runs of {kind} have names of their own, wherever they lie")
    options: dict[str, Any] = {} if source is None else {"source": source}
    if kind in _TABLES:
        options |= {"run": listed(run or ""), "config": listed(config or "")}
        options |= {"step": step or "step", "seed": seed}
    return options


def _with_progress(taken: Iterator[Taken]) -> Iterator[Taken]:
    """Say on a terminal how many runs have been read; nobody knows before the end how many there are."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield from taken
        return
    with console.status("reading …") as status:
        for number, one in enumerate(taken, start=1):
            status.update(f"{counted(number, 'run')}, {printable(one.run.label)} …")
            yield one


def _summary(taken: Taken) -> dict[str, Any]:
    """Say in short what was adopted."""
    run = taken.run
    return {
        "label": run.label,
        "seed": run.seed,
        "origin": run.origin,
        "fingerprint": run.fingerprint,
        "state": str(run.state),
        "step": run.last_step,
        "metrics": sorted(run.metrics),
        "scores": _finals(run.scores),
        "change": taken.change,
        "left_out": dict(run.left_out),
    }


def _finals(scores: Sequence[Score]) -> dict[str, float | None]:
    """The last score in each evaluation, which are in the order of their steps; None for NaN."""
    return {score.name: score.value if score.value == score.value else None for score in scores}


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.4g}"


def _shown(taken: list[dict[str, Any]], study: str, dry_run: bool, only: tuple[str, ...]) -> Iterator[Block]:
    if not taken:
        yield "no runs were adopted" + (f": none is named like {' or '.join(only)}" if only else "")
        return
    headers = ["run", "state", "step", "scores", "from", *([] if dry_run else ["change"])]
    rows = []
    for run in sorted(taken, key=lambda run: (run["label"], run["seed"])):
        scores = few([f"{name} {_number(value)}" for name, value in run["scores"].items()])
        row = [f"{run['label']}/{run['seed']}", run["state"], f"{run['step']:,}", scores, run["origin"]]
        rows.append(row if dry_run else [*row, run["change"]])
    yield table(headers, rows, right=(2,))
    left_out = Counter[str]()
    for run in taken:
        left_out.update(run["left_out"])
    yield from (f"left out: {count:,} {reason}" for reason, count in left_out.items())
    changes = Counter(run["change"] for run in taken)
    if dry_run:
        yield f"{counted(len(taken), 'run')} would be adopted into {study}; nothing was written"
    else:
        told = f"{changes['new']} new, {changes['changed']} changed, {changes['same']} as before"
        yield f"{counted(len(taken), 'run')} in {study}: {told}"
    if not any(run["scores"] for run in taken):
        metrics = sorted({printable(name) for run in taken for name in run["metrics"]})
        listed = ", ".join(metrics[:_MOST_METRICS]) + (", …" if len(metrics) > _MOST_METRICS else "")
        yield (
            "none of their metrics is a score, which tables and fronts need: --score 'eval/*' or "
            f"--score DATASET/METRIC=NAME; they have {listed or 'no metrics'}"
        )
    elif not dry_run:
        yield f"next: jestlab table {pasted(study)}{same_lab_options()}"
