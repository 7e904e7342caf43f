"""`jestlab data`: make the synthetic web and its benchmark, and look into any folder of shards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from jestlab.platform.errors import UserError

_EPILOG = """\b
Examples:
  jestlab data make shapes web/ --examples 24576 --seed 0
  jestlab data make benchmark bench/
  jestlab data inspect web/ --filter "similarity > 0.25 and aesthetic > 4.3 and text_quality > 0.45"
"""
_SAMPLES = 8  # captions shown by inspect
_Folder = click.Path(file_okay=False, path_type=Path)


@click.group("data", epilog=_EPILOG)
def command() -> None:
    """Make and inspect image-text shards."""


@command.group("make", epilog=_EPILOG)
def make() -> None:
    """Make data from nothing but settings and a seed."""


@make.command("shapes", epilog=_EPILOG)
@click.argument("folder", type=_Folder, metavar="DIR")
@click.option("--examples", type=click.IntRange(min=1), help="Image-text pairs.  [default: 24576]")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of all that is random."
)
@click.option("--image-size", type=click.IntRange(min=8), help="Pixels, square.  [default: 32]")
@click.option("--shard-size", type=click.IntRange(min=1), help="Pairs a tar.  [default: 4096]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def make_shapes(
    folder: Path,
    examples: int | None,
    seed: int,
    image_size: int | None,
    shard_size: int | None,
    as_json: bool,
) -> None:
    """The synthetic web, as img2dataset writes LAION."""
    from jestlab.models.config import ShapesWeb
    from jestlab.models.data import shapes

    given = {"examples": examples, "image_size": image_size, "shard_size": shard_size}
    settings = ShapesWeb(**{name: value for name, value in given.items() if value is not None})
    with _progress("Drawing shapes", settings.examples) as advance:
        _make(folder, lambda partial: shapes.make_web(partial, settings, seed, advance))
    _report(folder, as_json)


@make.command("benchmark", epilog=_EPILOG)
@click.argument("folder", type=_Folder, metavar="DIR")
@click.option("--seed", type=click.IntRange(min=0), help="Of all that is random.  [default: 1000003]")
@click.option("--image-size", type=click.IntRange(min=8), help="Pixels, square.  [default: 32]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def make_benchmark(folder: Path, seed: int | None, image_size: int | None, as_json: bool) -> None:
    """Clean held-out shapes, in CLIP_benchmark's form."""
    from jestlab.models.config import ShapesBenchmark
    from jestlab.models.data import shapes

    given = {"seed": seed, "image_size": image_size}
    settings = ShapesBenchmark(**{name: value for name, value in given.items() if value is not None})
    _make(folder, lambda partial: shapes.make_benchmark(partial, settings))
    _report(folder, as_json)


@command.command("inspect", epilog=_EPILOG)
@click.argument("folder", type=_Folder, metavar="DIR")
@click.option("--filter", "expression", help="Show what a filter over the metadata keeps.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(folder: Path, expression: str | None, as_json: bool) -> None:
    """Count pairs, also by kind of noise and what is damaged; show captions."""
    summary = _summary(folder, expression)
    if as_json:
        click.echo(json.dumps(summary, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(
        f"{folder}: {summary['examples']:,} examples in {summary['shards']} tar shards", highlight=False
    )
    for reason, count in summary["damaged"].items():
        console.print(f"  left out: {count:,} × {reason}", highlight=False)
    if "noise" in summary:
        table = Table("noise", box=None, header_style="bold")
        for title in ("pairs", "share") if expression is None else ("pairs", "share", "kept", "of kind"):
            table.add_column(title, justify="right")
        for kind, counts in summary["noise"].items():
            cells = [f"{counts['examples']:,}", f"{counts['examples'] / summary['examples']:.1%}"]
            if expression is not None:
                cells += [f"{counts['kept']:,}", f"{counts['kept'] / counts['examples']:.1%}"]
            table.add_row(kind, *cells)
        console.print(table)
    if expression is not None:
        share = summary["kept"] / summary["examples"]
        console.print(f"filter keeps {summary['kept']:,} ({share:.1%})", highlight=False)
    console.print("captions:" if expression is None else "captions kept:", highlight=False)
    for caption in summary["captions"]:
        console.print(f"  {caption}", highlight=False, markup=False)


def _summary(folder: Path, expression: str | None) -> dict[str, Any]:
    """What `inspect` shows, as plain data."""
    from collections import Counter

    import numpy as np

    from jestlab.models.data.curation import load_metadata, metadata_columns, select
    from jestlab.models.data.shards import ShardSource

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
    """Build into a new folder, which appears when it is whole."""
    from jestlab.models.data.files import build_once

    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    if folder.exists():
        raise UserError(f"{folder}: exists already: name a new folder, or remove this one")
    build_once(folder, build)


@contextmanager
def _progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, while there is a terminal to show it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)


def _report(folder: Path, as_json: bool) -> None:
    """Say what was made."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "files": len(files), "bytes": size}))
    else:
        click.echo(f"{folder}: {len(files)} files, {size / 1e6:.1f} MB")
