"""`jestlab data`: make or fetch a web and its benchmarks; inspect any folder of shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from jestlab.models.config import ShapesBenchmark, ShapesWeb
from jestlab.models.data import shapes
from jestlab.models.data.curation import load_metadata, metadata_columns, select
from jestlab.models.data.files import build_once
from jestlab.models.data.icons import make as made
from jestlab.models.data.icons.packages import download
from jestlab.models.data.icons.sets import icon_sets
from jestlab.models.data.shards import ShardSource
from jestlab.platform.cli.help import Verbs
from jestlab.platform.cli.options import examples, json_option
from jestlab.platform.cli.output import Block, counted, print_json, say, show, table
from jestlab.platform.errors import UserError
from jestlab.platform.launch.logs import one_line

_EPILOG = examples(
    "data make shapes web/ --examples 24576 --seed 0",
    "data make benchmark bench/",
    "data fetch icons",
    'data inspect web/ --filter "similarity > 0.25 and aesthetic > 4.3"',
)
_SAMPLES = 8  # captions shown by inspect
_Folder = click.Path(file_okay=False, path_type=Path)


@click.group(cls=Verbs, epilog=_EPILOG)
def data_command() -> None:
    """Make and inspect image-text shards."""


@data_command.group("make", cls=Verbs, epilog=_EPILOG)
def make() -> None:
    """Make synthetic data from settings and a seed."""


@make.command("shapes", epilog=_EPILOG)
@click.argument("folder", type=_Folder, metavar="DIR")
@click.option("--examples", type=click.IntRange(min=1), help="Number of image-text pairs  [default: 24576]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed.")
@click.option("--image-size", type=click.IntRange(min=8), help="Side of an image in pixels  [default: 32]")
@click.option("--shard-size", type=click.IntRange(min=1), help="Number of pairs per tar  [default: 4096]")
@json_option()
def make_shapes(
    folder: Path,
    examples: int | None,
    seed: int,
    image_size: int | None,
    shard_size: int | None,
    as_json: bool,
) -> None:
    """Make the synthetic web in the folder DIR, in the form in which img2dataset writes LAION."""
    given = {"examples": examples, "image_size": image_size, "shard_size": shard_size}
    settings = ShapesWeb(**{name: value for name, value in given.items() if value is not None})
    with _progress("Drawing shapes", settings.examples) as advance:
        _make(folder, lambda partial: shapes.make_web(partial, settings, seed, advance))
    _report(folder, as_json)


@make.command("benchmark", epilog=_EPILOG)
@click.argument("folder", type=_Folder, metavar="DIR")
@click.option("--seed", type=click.IntRange(min=0), help="Random seed  [default: 1000003]")
@click.option("--image-size", type=click.IntRange(min=8), help="Side of an image in pixels  [default: 32]")
@json_option()
def make_benchmark(folder: Path, seed: int | None, image_size: int | None, as_json: bool) -> None:
    """Make a benchmark of clean held-out shapes in the folder DIR, in CLIP_benchmark's form."""
    given = {"seed": seed, "image_size": image_size}
    settings = ShapesBenchmark(**{name: value for name, value in given.items() if value is not None})
    _make(folder, lambda partial: shapes.make_benchmark(partial, settings))
    _report(folder, as_json)


@data_command.group("fetch", cls=Verbs, epilog=_EPILOG)
def fetch() -> None:
    """Download public pictures, and make shards and benchmarks of them."""


@fetch.command("icons", epilog=_EPILOG)
@click.argument("folder", type=_Folder, metavar="[DIR]", default=Path("icons"))
@json_option()
def fetch_icons(folder: Path, as_json: bool) -> None:
    """Fetch 46,000 icons with their names, for `jestlab launch icons`, into the folder DIR  [default: icons].

    \b
    Made of 36 packages that npm has (41 MB), each of which allows redistribution:
      DIR/curated/       emoji of three styles, with clean names
      DIR/web/           emoji of other styles among logos, tokens, flags, files, interface icons
      DIR/validation/    benchmark of a style that is in neither, to tune on
      DIR/test/          benchmark of another one
      DIR/licenses.json  who made each set, and under which licence
      DIR/packages/      what was downloaded

    Interrupted, it goes on where it was when called again.
    """
    sets = icon_sets()
    if made.is_made(folder, sets):
        say(f"{folder}: the icons are there already", err=True)
    else:
        with _progress("Downloading", len(sets)) as advance:
            download(sets, made.packages_folder(folder), lambda one: advance(1))
        icons = made.Icons(folder, sets)
        with _progress("Drawing icons", len(icons)) as advance:
            icons.make(advance)
    _report(folder, as_json)


@data_command.command("inspect", epilog=_EPILOG)
@click.argument("folder", type=_Folder, metavar="DIR")
@click.option("--filter", "expression", help="Show what this filter over the metadata keeps.")
@json_option()
def inspect(folder: Path, expression: str | None, as_json: bool) -> None:
    """Count the pairs in DIR, also by kind of noise; list damaged ones; show some captions."""
    summary = _summary(folder, expression)
    if as_json:
        print_json(summary, indent=2)
    else:
        say(_lines(summary))


def _lines(summary: dict[str, Any]) -> Iterator[Block]:
    examples, is_filtered = summary["examples"], "filter" in summary
    yield f"{summary['folder']}: {examples:,} examples in {counted(summary['shards'], 'tar shard')}"
    for reason, count in summary["damaged"].items():
        yield f"  left out: {count:,} × {reason}"
    if "noise" in summary:
        rows = []
        for kind, counts in summary["noise"].items():
            row = [kind, f"{counts['examples']:,}", f"{counts['examples'] / examples:.1%}"]
            if is_filtered:
                row += [f"{counts['kept']:,}", f"{counts['kept'] / counts['examples']:.1%}"]
            rows.append(row)
        headers = ("noise", "pairs", "share", *(("kept", "of kind") if is_filtered else ()))
        yield table(headers, rows, right=(1, 2, 3, 4))
    if is_filtered:
        yield f"the filter keeps {summary['kept']:,} ({summary['kept'] / examples:.1%})"
    yield "captions kept:" if is_filtered else "captions:"
    for caption in summary["captions"]:
        yield f"  {one_line(caption)}"


def _summary(folder: Path, expression: str | None) -> dict[str, Any]:
    """Collect what `inspect` shows, as plain data."""
    source = ShardSource(folder)
    kept = select(folder, expression)
    summary: dict[str, Any] = {
        "folder": str(folder),
        "shards": len(source.index.tars),
        "examples": len(source),
        "damaged": source.index.damaged,
    }
    if expression is not None:
        summary |= {"filter": expression, "kept": len(kept)}
    if "noise" in metadata_columns(folder):
        noise = load_metadata(folder, ["noise"])["noise"]
        before, after = Counter(map(str, noise)), Counter(str(noise[i]) for i in kept)
        summary["noise"] = {
            kind: {"examples": count} | ({} if expression is None else {"kept": after[kind]})
            for kind, count in before.most_common()
        }
    spread = kept[np.linspace(0, len(kept) - 1, min(_SAMPLES, len(kept))).astype(np.int64)]
    summary["captions"] = source.captions(spread)
    return summary


def _make(folder: Path, build: Callable[[Path], None]) -> None:
    """Build a new folder, which appears only when it is complete."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    if folder.exists():
        raise UserError(f"{folder} exists already: name a new folder, or remove this one")
    build_once(folder, build)


@contextmanager
def _progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error if it is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)


def _report(folder: Path, as_json: bool) -> None:
    """Print what was made."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    show(
        as_json,
        {"folder": str(folder), "files": len(files), "bytes": size},
        f"{folder}: {counted(len(files), 'file')}, {size / 1e6:.1f} MB",
    )
