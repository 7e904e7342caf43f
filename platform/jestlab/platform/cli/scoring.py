"""`jestlab data score`: scores of a data set by a reference's cached embeddings."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import numpy as np

from jestlab.analysis.files import write_whole
from jestlab.models.config import ELSEWHERE, EmbedConfig, ScoreConfig
from jestlab.models.data import datasets
from jestlab.models.data.shards import ShardIndex
from jestlab.models.scoring.columns import Column, load
from jestlab.platform.cli import naming
from jestlab.platform.cli.options import FILE, examples, json_option, lab_options
from jestlab.platform.cli.output import print_json, reporting, say, writing
from jestlab.platform.errors import UserError, one_line_errors
from jestlab.platform.lab.lab import Lab
from jestlab.platform.render import table
from jestlab.platform.store.records import RunRow
from jestlab.platform.store.store import Store

_QUANTILES = (0.1, 0.5, 0.9)

_EPILOG = f"""{naming.HELP}

{examples("data score quickstart/reference-cache/0", "data score toy/cache/0 scores.parquet")}"""


@click.command(epilog=_EPILOG)
@click.argument("name", metavar="RUN")
@click.argument("file", type=FILE, metavar="[FILE.parquet]", required=False)
@click.option("--target", metavar="RUN", help="Run that has embedded a target set, for normsim.")
@click.option(
    "--batch-size", type=click.IntRange(min=2), help="Pairs that meet for negcliploss  [default: 32768]"
)
@click.option("--repeats", type=click.IntRange(min=1), help="Divisions into batches for it  [default: 10]")
@click.option(
    "--clusters", type=click.IntRange(min=1), help="For semdedup  [default: the root of all examples]"
)
@json_option()
@lab_options
def score_command(
    name: str,
    file: Path | None,
    target: str | None,
    batch_size: int | None,
    repeats: int | None,
    clusters: int | None,
    as_json: bool,
    lab: Lab,
) -> None:
    """Score each example of the data that a RUN of `embed` has embedded, and show how scores spread.

    \b
    clip_score   cosine of image and caption
    negcliploss  the same, less what is alike to them in random batches
    semdedup     how alike an image is to one of its kind that is kept
    normsim      with --target: how alike an image is to those of a target set

    FILE.parquet gets a row for each example, with its tar and key. In a study, a run of `program: score` does
    the same, and runs with `data.scores` filter by its columns; of such a RUN its columns are shown.
    """
    with closing(naming.existing_store(lab)) as store:
        row = naming.run(store, name).row
        found, embedded = _columns(lab, store, row, target, batch_size, repeats, clusters)
        if file is not None:
            _write(file, found, lab, embedded)
    known = next(iter(found.values()))
    summary: dict[str, Any] = {
        "run": row.label,
        "examples": len(known),
        "scored": int(np.isfinite(known).sum()),
        "quantiles": {
            column: dict(zip(map(str, _QUANTILES), _quantiles(values), strict=True))
            for column, values in found.items()
            if not column.endswith("_rank")
        },
    }
    if file is not None:
        summary["file"] = str(file)
    if as_json:
        print_json(summary, indent=2)
        return
    rows = [
        (column, *(f"{value:.3f}" for value in of.values())) for column, of in summary["quantiles"].items()
    ]
    say(table(("column", "10%", "median", "90%"), rows, right=(1, 2, 3)))
    say(f"{summary['scored']:,} of {summary['examples']:,} examples are scored")
    say('the best 30%, with data.scores a run of program: score: data.filter: "negcliploss_rank > 0.7"')
    if file is not None:
        say(f"{file}")


def _columns(
    lab: Lab,
    store: Store,
    row: RunRow,
    target: str | None,
    batch_size: int | None,
    repeats: int | None,
    clusters: int | None,
) -> tuple[dict[str, Column], EmbedConfig]:
    """Return the columns of a run of `score`, or new ones of one of `embed`; and the config of the latter."""
    record = store.run(row.fingerprint)
    if record.program == "score":
        embedded = record.needs["embeddings"]
        with one_line_errors():
            found, _ = load(lab.inside(row.directory))
        return found, EmbedConfig.model_validate(embedded.config, context=ELSEWHERE)
    if record.program != "embed":
        raise UserError(f"{row.label} is a run of {record.program}: name a run of embed, or of score")
    from jestlab.models.scoring.score import score  # imports JAX

    own = {"batch_size": batch_size, "repeats": repeats}
    tree: dict[str, Any] = {
        "embeddings": row.label,
        "negcliploss": {key: value for key, value in own.items() if value is not None},
        "semdedup": {} if clusters is None else {"clusters": clusters},
    }
    folder = None
    if target is not None:
        their = naming.run(store, target).row
        tree["target"], folder = their.label, lab.inside(their.directory)
    config = ScoreConfig.model_validate(tree)
    with one_line_errors(), reporting("Scoring") as report:
        found = score(config, lab.inside(row.directory), folder, report)
    return found, EmbedConfig.model_validate(record.config, context=ELSEWHERE)


def _write(file: Path, columns: dict[str, Column], lab: Lab, embedded: EmbedConfig) -> None:
    """Write a row for each example, with the names that it has in the shards."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with one_line_errors():
        web = datasets.ensure_web(embedded.data.train, embedded.web_seed, lab.data, embedded.code)
    index = ShardIndex.load(web)
    names = [(tar, key) for shard, tar in enumerate(index.tars) for key in index.keys(shard)]
    rows = {"tar": [tar for tar, _ in names], "key": [key.rpartition("/")[2] for _, key in names]}
    content = io.BytesIO()
    pq.write_table(pa.table(rows | {name: np.asarray(values) for name, values in columns.items()}), content)
    with writing(file):
        write_whole(file, content.getvalue())


def _quantiles(values: Column) -> list[float]:
    return [float(value) for value in np.nanquantile(values, _QUANTILES)]
