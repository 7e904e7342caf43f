"""`jestlab data`: make, fetch, pack, and inspect shards and benchmarks; show scores of examples."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import numpy as np

from jestlab.analysis.files import write_whole
from jestlab.models.config import ELSEWHERE, EmbedConfig, ShapesBenchmark, ShapesWeb
from jestlab.models.data import datasets as training_data
from jestlab.models.data import shapes
from jestlab.models.data.benchmarks import classification, datasets_in, name_and_task, retrieval
from jestlab.models.data.curation import select
from jestlab.models.data.files import build_once, shard_files
from jestlab.models.data.icons import make as icons
from jestlab.models.data.images import ensure_decoded
from jestlab.models.data.metadata import load_metadata, metadata_columns, without_metadata
from jestlab.models.data.packing import Captioned
from jestlab.models.data.shards import ShardIndex
from jestlab.models.scoring.columns import Column, load
from jestlab.platform.cli import SubcommandGroup, naming
from jestlab.platform.cli.completion import RUN
from jestlab.platform.cli.options import FILE, FOLDER, RUN_HELP, examples, json_option, lab_json_options
from jestlab.platform.cli.output import counting, reporting, say, show, writing
from jestlab.platform.dependencies import check
from jestlab.platform.errors import UserError, one_line_errors
from jestlab.platform.lab.lab import Lab
from jestlab.platform.logs import one_line
from jestlab.platform.render import Block, table
from jestlab.platform.words import counted

_EPILOG = examples(
    "data make shapes web/ --examples 24576 --seed 0",
    "data make benchmark bench/",
    "data fetch icons",
    "data pack photos/ flickr/ --captions captions.csv",
    'data inspect web/ --filter "similarity > 0.25 and aesthetic > 4.3"',
    "data score filtered/scores/0 scores.parquet",
)
_MOST_DAMAGED = 3  # damaged images that are listed
_SAMPLES = 8  # captions, and undecodable images, that are shown
_COUNTED = ("noise", "license", "kind")  # metadata columns whose values are counted
_MOST_VALUES = 20  # of such a column that are shown
_QUANTILES = (0.1, 0.5, 0.9)
_DATA_SUFFIXES = (".tar", "nshards.txt")  # by these files, a folder is recognized as data
_SIDE = 8  # pixels: side of images that are decoded only to check them
_MOST_DECODED = 250_000  # images; in larger folders, images are not decoded

_folder = click.argument("folder", type=FOLDER, metavar="DIR")
_image_size = click.option(
    "--image-size", type=click.IntRange(min=8), help="Side of an image in pixels.  [default: 32]"
)


@click.group(cls=SubcommandGroup, epilog=_EPILOG)
def data_command() -> None:
    """Make, fetch, pack, and inspect image-text shards and benchmarks."""


@data_command.group("make", cls=SubcommandGroup, epilog=_EPILOG)
def make() -> None:
    """Make synthetic data: pictures of shapes with captions."""


@make.command("shapes", epilog=_EPILOG)
@_folder
@click.option("--examples", type=click.IntRange(min=1), help="Number of image-text pairs.  [default: 24576]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed.")
@_image_size
@json_option()
def make_shapes(folder: Path, seed: int, as_json: bool, **given: int | None) -> None:
    """Make shards of noisy image-text pairs in the new folder DIR, in the format of img2dataset."""
    settings = ShapesWeb(**{name: value for name, value in given.items() if value is not None})
    with counting("Drawing shapes", settings.examples) as advance:
        _build(folder, lambda partial: shapes.make_web(partial, settings, seed, advance))
    _print_description(folder, as_json)


@make.command("benchmark", epilog=_EPILOG)
@_folder
@click.option("--seed", type=click.IntRange(min=0), help="Random seed.  [default: 1000003]")
@_image_size
@json_option()
def make_benchmark(folder: Path, as_json: bool, **given: int | None) -> None:
    """Make a benchmark of clean held-out pairs in the new folder DIR, in the format of CLIP_benchmark."""
    settings = ShapesBenchmark(**{name: value for name, value in given.items() if value is not None})
    _build(folder, lambda partial: shapes.make_benchmark(partial, settings))
    _print_description(folder, as_json)


@data_command.group("fetch", cls=SubcommandGroup, epilog=_EPILOG)
def fetch() -> None:
    """Download public images, and make shards and benchmarks from them."""


@fetch.command("icons", epilog=_EPILOG)
@click.argument("folder", type=FOLDER, metavar="[DIR]", default=Path("icons"))
@json_option()
def fetch_icons(folder: Path, as_json: bool) -> None:
    """Fetch 47,000 icons with their names into the folder DIR (by default icons), for `jestlab launch icons`.

    \b
    The icons are from 36 npm packages (41 MB) that allow redistribution:
      DIR/curated/       emoji of three styles, with clean names
      DIR/web/           these and other emoji, with logos, tokens, flags, and
                         icons of files and user interfaces
      DIR/validation/    benchmark of a style that is in neither, for tuning
      DIR/benchmark/     benchmark of another such style, for results
      DIR/licenses.json  author and license of each set
      DIR/packages/      the downloaded packages

    If interrupted, run the command again to resume.
    """
    sets = icons.icon_sets()
    if icons.is_made(folder, sets):
        say(f"{folder}: the icons already exist", err=True)
    else:
        check("icons")
        check("jax")
        with counting("Downloading", len(sets)) as advance:
            icons.download(sets, folder / icons.PACKAGES, advance)
        with reporting("Drawing icons") as report:
            icons.make(folder, sets, report)
    _print_description(folder, as_json)


@data_command.command("pack", epilog=_EPILOG)
@click.argument("images", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="IMAGES")
@_folder
@click.option("--captions", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True,
              metavar="FILE.csv", help="Captions or class names of the images.")  # fmt: skip
@click.option("--benchmark", type=click.Choice(["retrieval", "zero_shot"]),
              help="Write a benchmark dataset of this kind instead of shards.")  # fmt: skip
@click.option("--template", "templates", multiple=True, default=["{c}", "a photo of a {c}"],
              show_default=True, help="Prompt for zero_shot; {c} is the class; repeatable.")  # fmt: skip
@click.option("--skip-damaged", is_flag=True, help="Skip images that cannot be read.")
@json_option()
def pack(
    images: Path,
    folder: Path,
    captions: Path,
    benchmark: str | None,
    templates: tuple[str, ...],
    skip_damaged: bool,
    as_json: bool,
) -> None:
    """Pack the images in the folder IMAGES, with captions, as shards for training or a benchmark dataset.

    \b
    The captions are a CSV file with a header and these columns:
      file     path of the image within IMAGES (or: image, filename, filepath,
               path)
      caption  for shards and --benchmark retrieval, for which an image can have
               several rows, one per caption (or: text, title)
      label    name of the class, for --benchmark zero_shot (or: class)
      split    test or train, for --benchmark zero_shot; few-shot probes learn
               from train (default: test)
    Other columns become metadata of the shards, for data.filter.

    To train on the shards, set data.train={kind: folder, path: DIR}. A benchmark is a folder of datasets: if
    DIR is bench/mine, set data.benchmark={kind: folder, path: bench}.
    """
    _check_new(folder)
    pairs = Captioned(images, captions, skip_damaged)
    with counting("Packing", len(pairs.rows)) as pairs.progress:
        if benchmark is None:
            _build(folder, pairs.write_shards)
        elif benchmark == "retrieval":
            _build(folder, pairs.write_retrieval)
        else:
            _build(folder, lambda partial: pairs.write_classification(partial, templates))
    for damaged in pairs.damaged[:_MOST_DAMAGED]:
        say(f"skipped: {damaged}", err=True)
    if (more := len(pairs.damaged) - _MOST_DAMAGED) > 0:
        say(f"skipped: {more:,} more", err=True)
    _print_description(folder, as_json)


@data_command.command("inspect", epilog=_EPILOG)
@_folder
@click.option(
    "--filter", "expression", help="Count the examples that this condition on metadata columns keeps."
)
@json_option()
def inspect(folder: Path, expression: str | None, as_json: bool) -> None:
    """Describe the data in DIR: shards, a benchmark, or subfolders with either.

    For shards, show the number of examples, metadata columns, licenses, kinds of noise, damaged examples, and
    some captions.
    """
    _print_description(folder, as_json, expression)


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    """Build a new folder; it appears only once it is complete. UserError without the extra jax."""
    check("jax")
    _check_new(folder)
    build_once(folder, build)


def _check_new(folder: Path) -> None:
    """Raise UserError if something exists at this path, except an empty folder, which is removed."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    if folder.exists():
        raise UserError(f"{folder} already exists: name a new folder, or remove this one")


def _print_description(folder: Path, as_json: bool, expression: str | None = None) -> None:
    """Print a description of a folder."""
    summary = _describe(folder, expression)
    show(as_json, summary, _blocks(summary))


# ---- inspect


def _describe(folder: Path, expression: str | None = None) -> dict[str, Any]:
    """Return a description of a folder, as JSON data.

    Args:
        folder: Contains shards, a benchmark, one dataset of a benchmark, or folders of these.
        expression: Filter of the examples in shards.
    """
    if not folder.is_dir() or any(folder.glob("*.tar")):
        return _describe_shards(folder, expression)
    about: dict[str, Any] = {"folder": str(folder), "bytes": _bytes(folder)}
    if (folder / "test" / "nshards.txt").exists():
        return about | {"datasets": [_describe_dataset(folder, *name_and_task(folder))]}
    if any(path.is_dir() for path in folder.glob("*/test")):
        return about | {"datasets": [_describe_dataset(*each) for each in datasets_in(folder)]}
    parts = [path for path in sorted(folder.iterdir()) if path.is_dir() and shard_files(path, _DATA_SUFFIXES)]
    if not parts:
        return _describe_shards(folder, expression)  # raises the error about missing files
    return about | {"parts": [_describe(part, expression) for part in parts]}


def _bytes(folder: Path) -> int:
    """Return the total size of a folder's data files."""
    return sum(stat.st_size for _, stat in shard_files(folder, (".tar", ".parquet", ".txt", ".json")))


def _describe_dataset(path: Path, name: str, for_retrieval: bool) -> dict[str, Any]:
    about: dict[str, Any] = {"folder": str(path), "name": name}
    if for_retrieval:
        pairs = retrieval(path, _SIDE)
        return about | {"kind": "retrieval", "images": len(pairs.images), "captions": len(pairs.captions)}
    labeled = classification(path, _SIDE)
    return about | {
        "kind": "classification",
        "images": len(labeled.images),
        "train_images": len(labeled.train_images),
        "classes": len(labeled.class_names),
        "templates": list(labeled.templates),
    }


def _describe_shards(folder: Path, expression: str | None) -> dict[str, Any]:
    index = ShardIndex.load(folder)
    decoded = ensure_decoded(index, _SIDE, _MOST_DECODED * _SIDE * _SIDE * 3)
    is_whole = np.ones(len(index), bool) if decoded is None else decoded.whole
    whole, undecodable = np.flatnonzero(is_whole), np.flatnonzero(~is_whole)
    kept = np.intersect1d(select(folder, expression), whole)
    columns = metadata_columns(folder)
    about: dict[str, Any] = {
        "folder": str(folder),
        "shards": len(index.tars),
        "examples": len(whole),
        "bytes": _bytes(folder),
        "damaged": index.damaged | ({"undecodable image": n} if (n := len(undecodable)) else {}),
        "damaged_at": [*index.damaged_places, *map(index.describe, undecodable[:_SAMPLES].tolist())],
        "members": index.members,
        "columns": list(columns),
    }
    if expression is not None:
        about |= {"filter": expression, "kept": len(kept), "without_metadata": without_metadata(index)}
    for column in set(_COUNTED) & set(columns):
        values = load_metadata(folder, [column])[column]
        before, after = (Counter(str(values[i]) for i in examples) for examples in (whole, kept))
        about[column] = {
            value: {"examples": count} | ({} if expression is None else {"kept": after[value]})
            for value, count in before.most_common(_MOST_VALUES)
        }
    spread = kept[np.linspace(0, len(kept) - 1, min(_SAMPLES, len(kept))).astype(np.int64)]
    return about | {"captions": index.captions(spread)}


def _blocks(summary: dict[str, Any]) -> Iterator[Block]:
    """Return the text of a description."""
    yield f"{summary['folder']}: {_content(summary)}, {_megabytes(summary)} MB"
    if "parts" in summary:
        parts = [(Path(part["folder"]).name, _content(part), _megabytes(part)) for part in summary["parts"]]
        yield table(("", "content", "MB"), parts, right=(2,))
    elif "datasets" in summary:
        datasets = [(each["name"], each["kind"], _counts(each)) for each in summary["datasets"]]
        yield table(("dataset", "kind", "content"), datasets)
    else:
        yield from _shard_lines(summary)


def _megabytes(summary: dict[str, Any]) -> str:
    return f"{summary['bytes'] / 1e6:,.1f}"


def _content(summary: dict[str, Any]) -> str:
    if "parts" in summary:
        return f"{counted(len(summary['parts']), 'folder')} of data"
    if "datasets" in summary:
        return f"benchmark of {counted(len(summary['datasets']), 'dataset')}"
    skipped = f", {sum(summary['damaged'].values()):,} skipped" if summary["damaged"] else ""
    return f"{summary['examples']:,} examples in {counted(summary['shards'], 'tar shard')}{skipped}"


def _counts(about: dict[str, Any]) -> str:
    counts = {key: value for key, value in about.items() if isinstance(value, int)}
    return ", ".join(f"{count:,} {key.replace('_', ' ')}" for key, count in counts.items())


def _shard_lines(summary: dict[str, Any]) -> Iterator[Block]:
    examples, is_filtered = summary["examples"], "filter" in summary
    yield from (f"  skipped: {count:,} × {reason}" for reason, count in summary["damaged"].items())
    yield from (f"    {one_line(place)}" for place in summary["damaged_at"])
    if len(summary["members"]) > 1:
        yield f"  members: {', '.join(f'{count:,} {kind}' for kind, count in summary['members'].items())}"
    for column in (each for each in _COUNTED if each in summary):
        rows = []
        for value, counts in summary[column].items():
            row = [one_line(value), f"{counts['examples']:,}", f"{counts['examples'] / examples:.1%}"]
            if is_filtered:
                row += [f"{counts['kept']:,}", f"{counts['kept'] / counts['examples']:.1%}"]
            rows.append(row)
        headers = (column, "pairs", "share", *(("kept", "kept share") if is_filtered else ()))
        yield table(headers, rows, right=(1, 2, 3, 4))
    if is_filtered:
        without = f"; {count:,} have no metadata" if (count := summary["without_metadata"]) else ""
        yield f"the filter keeps {summary['kept']:,} ({summary['kept'] / max(examples, 1):.1%}){without}"
    if summary["columns"]:
        yield f"metadata: {', '.join(map(one_line, summary['columns']))}"
    yield "captions kept:" if is_filtered else "captions:"
    yield from (f"  {one_line(caption)}" for caption in summary["captions"])


# ---- score


@data_command.command(epilog=f"{RUN_HELP}\n\n{_EPILOG}")
@click.argument("name", type=RUN, metavar="RUN")
@click.argument("file", type=FILE, metavar="[FILE.parquet]", required=False)
@lab_json_options()
def score(name: str, file: Path | None, as_json: bool, lab: Lab) -> None:
    """Show quantiles of the scores that RUN, a run of `program: score`, computed for examples.

    With FILE.parquet, also write all scores, with a row for each example: tar, key, and scores.
    """
    with closing(naming.existing_store(lab)) as store, one_line_errors():
        run = store.run(naming.find_run(store, name).fingerprint)
        columns, _ = load(lab.inside(run.directory))
    if file is not None:
        embedded = EmbedConfig.model_validate(run.needs["embeddings"].config, context=ELSEWHERE)
        _write_scores(file, columns, lab, embedded)
    first = next(iter(columns.values()))
    quantiles = {
        column: dict(zip(map(str, _QUANTILES), map(float, np.nanquantile(values, _QUANTILES)), strict=True))
        for column, values in columns.items()
        if not column.endswith("_rank")
    }
    scored = int(np.isfinite(first).sum())
    data = {"run": name, "examples": len(first), "scored": scored, "quantiles": quantiles}
    rows = [(column, *(f"{value:.3f}" for value in values.values())) for column, values in quantiles.items()]
    written = {} if file is None else {"file": str(file)}
    heading = table(("column", "10%", "median", "90%"), rows, right=(1, 2, 3))
    text: list[Block] = [heading, f"{scored:,} of {len(first):,} examples are scored", *written.values()]
    show(as_json, data | written, text)


def _write_scores(file: Path, columns: dict[str, Column], lab: Lab, embedded: EmbedConfig) -> None:
    """Write a Parquet file with a row for each example: tar, key in the tar, and scores."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with one_line_errors():
        web = training_data.ensure_web(embedded, lab.data)
    index = ShardIndex.load(web)
    names = [(tar, key) for shard, tar in enumerate(index.tars) for key in index.keys(shard)]
    rows = {"tar": [tar for tar, _ in names], "key": [key.rpartition("/")[2] for _, key in names]}
    content = io.BytesIO()
    pq.write_table(pa.table(rows | {name: np.asarray(values) for name, values in columns.items()}), content)
    with writing(file):
        write_whole(file, content.getvalue())
