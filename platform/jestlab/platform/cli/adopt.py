"""`jestlab adopt`: import runs that other tools recorded into a study."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from jestlab.platform.cli.completion import EXPERIMENT
from jestlab.platform.cli.naming import shell_name
from jestlab.platform.cli.options import examples, lab_json_options, model_flags, same_lab_options
from jestlab.platform.cli.output import reporting, say, show
from jestlab.platform.errors import UserError
from jestlab.platform.exchange.adopt import KINDS, Adoption, read
from jestlab.platform.exchange.adopt_store import Change, Placed
from jestlab.platform.exchange.source_run import AdoptOptions
from jestlab.platform.lab.lab import Lab
from jestlab.platform.render import Block, in_state, table
from jestlab.platform.whoami import person
from jestlab.platform.words import counted, few, on_one_line, printable

_EPILOG = f"""\
Nothing is uploaded or downloaded. KIND is the tool or format, and PATH is:

\b
  wandb        a folder `wandb`, or one of the runs in it; offline runs too
  mlflow       a folder `mlruns`, or a database `mlflow.db`
  tensorboard  a folder with event files (pip install 'jestlab[adopt]')
  csv          a table with a row per step or run; tabs or semicolons too
  parquet      the same kind of table in Parquet

The labels of adopted runs end with KIND, as in "siglip (wandb)". Runs with the same label are replicates,
which differ only in the seed. Adopting PATH again adds new runs and updates changed ones.

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
@click.option("--into", "study", type=EXPERIMENT, metavar="STUDY", required=True,
              help="Study to add the runs to, new or existing.")  # fmt: skip
@model_flags(AdoptOptions)
@lab_json_options()
def adopt_command(kind: str, path: Path, study: str, given: dict[str, Any], as_json: bool, lab: Lab) -> None:
    """Import runs recorded by another tool into STUDY, with configs, metrics, scores, and costs.

    Exit code: 0 if all runs were adopted, 1 if some could not be.
    """
    from jestlab.platform.spec.runs import is_name
    from jestlab.platform.store.store import Store

    if not is_name(study):
        raise click.UsageError(f"--into {study}: expected letters, digits and _ . + -")
    options, errors = AdoptOptions(**given), list[UserError]()
    with TemporaryDirectory() as empty:
        if options.dry_run:
            store = Store.open_readonly(lab.store_url) or Store.open(f"sqlite:///{empty}/empty.db")
        else:
            store = Store.open(lab.store_url)
        with closing(store), reporting("adopting runs") as report:
            adoption = Adoption(store, study, kind, str(path.resolve()), options, person())
            adopted = []  # only summaries: the curves of the runs may be large
            for placed, change in adoption.adopt_all(read(kind, path, errors.append, options), errors.append):
                adopted.append(_summary(placed, change))
                report(len(adopted), len(adopted))
            if not options.dry_run:
                store.close_whole()
    failed = [on_one_line(str(error)) for error in errors]
    for line in failed:
        say(f"jestlab: {line}", err=True)
    data = {"study": study, "dry_run": options.dry_run, "runs": adopted, "failed": failed}
    show(as_json, data, _report_blocks(adopted, study, options))
    if failed:
        raise SystemExit(1)


def _summary(placed: Placed, change: Change | None) -> dict[str, Any]:
    return {
        "label": placed.label,
        "seed": placed.seed,
        "origin": placed.run.origin,
        "fingerprint": placed.fingerprint,
        "state": str(placed.state),
        "step": placed.run.last_step,
        "metrics": sorted(placed.run.metrics),
        # The last value of each score; None for NaN.
        "scores": {one.name: one.value if one.value == one.value else None for one in placed.scores},
        "change": change,
        "left_out": dict(placed.run.left_out),
    }


def _report_blocks(adopted: list[dict[str, Any]], study: str, options: AdoptOptions) -> Iterator[Block]:
    if not adopted:
        names = f": no name matches {' or '.join(options.only)}" if options.only else ""
        yield f"no runs were adopted{names}"
        return
    rows = []
    for run in sorted(adopted, key=lambda run: (run["label"], run["seed"])):
        values = ("—" if value is None else f"{value:.4g}" for value in run["scores"].values())
        scores = few([f"{name} {value}" for name, value in zip(run["scores"], values, strict=True)])
        name, state = f"{run['label']}/{run['seed']}", in_state(run["state"])
        rows.append([name, state, f"{run['step']:,}", scores, run["origin"], run["change"] or "—"])
    yield table(["run", "state", "step", "scores", "from", "change"], rows, right=(2,))
    left_out = sum((Counter(run["left_out"]) for run in adopted), Counter[str]())
    yield from (f"left out: {count:,} {reason}" for reason, count in left_out.items())
    if options.dry_run:
        yield f"{counted(len(adopted), 'run')} would be adopted into {study}; nothing was written"
    else:
        changes = Counter(run["change"] for run in adopted)
        numbers = f"{changes['new']} new, {changes['changed']} changed, {changes['same']} unchanged"
        yield f"{counted(len(adopted), 'run')} in {study}: {numbers}"
    if not any(run["scores"] for run in adopted):
        metrics = sorted({printable(name) for run in adopted for name in run["metrics"]})
        yield (
            "none of their metrics is a score, which tables and plots need: --score 'eval/*' or "
            f"--score DATASET/METRIC=NAME; their metrics: {few(metrics, 12) or 'none'}"
        )
    elif not options.dry_run:
        yield f"next: jestlab table {shell_name(study)}{same_lab_options()}"
