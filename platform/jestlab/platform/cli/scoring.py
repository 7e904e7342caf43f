"""`jestlab data score`: score a data set by a reference's cached embeddings."""

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
from jestlab.platform.cli.completion import RUN
from jestlab.platform.cli.options import FILE, examples, json_option, lab_options
from jestlab.platform.cli.output import reporting, show, writing
from jestlab.platform.errors import UserError, one_line_errors
from jestlab.platform.lab.lab import Lab
from jestlab.platform.render import Block, table
from jestlab.platform.store.store import Store

_QUANTILES = (0.1, 0.5, 0.9)

_EPILOG = f"""{naming.HELP}

{examples("data score quickstart/reference-cache/0", "data score toy/cache/0 scores.parquet")}"""


@click.command(epilog=_EPILOG)
@click.argument("name", type=RUN, metavar="RUN")
@click.argument("file", type=FILE, metavar="[FILE.parquet]", required=False)
@click.option("--target", type=RUN, metavar="RUN", help="Run that embedded a target set, for normsim.")
@json_option()
@lab_options
def score_command(name: str, file: Path | None, target: str | None, as_json: bool, lab: Lab) -> None:
    """Score each example of the data that a RUN of `embed` embedded, and show the distribution of scores.

    \b
    clip_score   cosine similarity of image and caption
    negcliploss  the same, minus similarities to other pairs in random batches
    semdedup     similarity of an image to a kept image of its cluster
    normsim      with --target: similarity of an image to those of a target set

    FILE.parquet gets a row for each example, with its tar and key. In a study, runs of `program: score`
    compute the same columns, also with other settings, and runs with `data.scores` filter by them. For such
    a RUN, its columns are shown.
    """
    with closing(naming.existing_store(lab)) as store:
        run = naming.run(store, name).row
        columns, embedded = _columns(lab, store, run, target)
        if file is not None:
            _write(file, columns, lab, embedded)
    first = next(iter(columns.values()))
    quantiles = {
        column: dict(zip(map(str, _QUANTILES), map(float, np.nanquantile(values, _QUANTILES)), strict=True))
        for column, values in columns.items()
        if not column.endswith("_rank")
    }
    scored = int(np.isfinite(first).sum())
    data: dict[str, Any] = {
        "run": run.label,
        "examples": len(first),
        "scored": scored,
        "quantiles": quantiles,
    }
    rows = [(column, *(f"{value:.3f}" for value in values.values())) for column, values in quantiles.items()]
    text: list[Block] = [
        table(("column", "10%", "median", "90%"), rows, right=(1, 2, 3)),
        f"{scored:,} of {len(first):,} examples are scored",
        'the best 30%, with data.scores a run of program: score: data.filter: "negcliploss_rank > 0.7"',
    ]
    if file is not None:
        data["file"] = str(file)
        text.append(str(file))
    show(as_json, data, text)


def _columns(lab: Lab, store: Store, run: Any, target: str | None) -> tuple[dict[str, Column], EmbedConfig]:
    """Return the columns of a run of `score`, or compute those of a run of `embed`; and the latter's
    config."""
    record = store.run(run.fingerprint)
    if record.program == "score":
        with one_line_errors():
            columns, _ = load(lab.inside(run.directory))
        embedded = record.needs["embeddings"].config
        return columns, EmbedConfig.model_validate(embedded, context=ELSEWHERE)
    if record.program != "embed":
        raise UserError(f"{run.label} is a run of {record.program}: name a run of embed or score")
    from jestlab.models.scoring.score import score  # imports JAX

    tree: dict[str, Any] = {"embeddings": run.label, "negcliploss": {}, "semdedup": {}}
    folder = None
    if target is not None:
        target_run = naming.run(store, target).row
        tree["target"], folder = target_run.label, lab.inside(target_run.directory)
    config = ScoreConfig.model_validate(tree)
    with one_line_errors(), reporting("Scoring") as report:
        columns = score(config, lab.inside(run.directory), folder, report)
    return columns, EmbedConfig.model_validate(record.config, context=ELSEWHERE)


def _write(file: Path, columns: dict[str, Column], lab: Lab, embedded: EmbedConfig) -> None:
    """Write a row for each example, with its tar and key in the shards."""
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
