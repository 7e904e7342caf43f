"""`jestlab data`: make, fetch or pack shards and benchmarks, look at any, and score examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from jestlab.models.config import ShapesBenchmark, ShapesWeb
from jestlab.models.data import shapes
from jestlab.models.data.captioned import Captioned
from jestlab.models.data.files import build_once
from jestlab.models.data.icons import make as made
from jestlab.models.data.icons.packages import download
from jestlab.models.data.icons.sets import icon_sets
from jestlab.platform.cli import inspecting
from jestlab.platform.cli.help import Verbs
from jestlab.platform.cli.options import examples, json_option
from jestlab.platform.cli.output import counting, print_json, say, show
from jestlab.platform.cli.scoring import score_command
from jestlab.platform.errors import UserError

_EPILOG = examples(
    "data make shapes web/ --examples 24576 --seed 0",
    "data make benchmark bench/",
    "data fetch icons",
    "data pack photos/ flickr/ --captions captions.csv",
    'data inspect web/ --filter "similarity > 0.25 and aesthetic > 4.3"',
    "data score quickstart/reference-cache/0",
)
_NAMED = 3  # damaged images that are named
_Folder = click.Path(file_okay=False, path_type=Path)


@click.group(cls=Verbs, epilog=_EPILOG)
def data_command() -> None:
    """Make, fetch, pack, inspect and score image-text shards and benchmarks."""


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
    with counting("Drawing shapes", settings.examples) as advance:
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
    """Fetch 47,000 icons with their names, for `jestlab launch icons`, into the folder DIR  [default: icons].

    \b
    Made of 36 packages that npm has (41 MB), each of which allows redistribution:
      DIR/curated/       emoji of three styles, with clean names
      DIR/web/           these and other emoji, among logos, tokens, flags, files
                         and interface icons
      DIR/validation/    benchmark of a style that is in neither, to tune on
      DIR/benchmark/     benchmark of another one
      DIR/licenses.json  who made each set, and under which licence
      DIR/packages/      what was downloaded

    Interrupted, it goes on where it was when called again.
    """
    sets = icon_sets()
    if made.is_made(folder, sets):
        say(f"{folder}: the icons are there already", err=True)
    else:
        with counting("Downloading", len(sets)) as advance:
            download(sets, made.packages_folder(folder), lambda one: advance(1))
        icons = made.Icons(folder, sets)
        with counting("Drawing icons", len(icons)) as advance:
            icons.make(advance)
    _report(folder, as_json)


@data_command.command("pack", epilog=_EPILOG)
@click.argument("images", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="IMAGES")
@click.argument("folder", type=_Folder, metavar="DIR")
@click.option("--captions", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True,
              metavar="FILE.csv", help="What each image shows.")  # fmt: skip
@click.option("--benchmark", type=click.Choice(["retrieval", "zero_shot"]),
              help="Write a benchmark's dataset in place of shards.")  # fmt: skip
@click.option("--template", "templates", multiple=True, default=["{c}", "a photo of a {c}"],
              show_default=True,
              help="Prompt of --benchmark zero_shot, with {c} in the place of the class.")  # fmt: skip
@click.option("--skip-damaged", is_flag=True, help="Leave out images that cannot be read.")
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
    """Pack a folder of IMAGES and a file of captions as shards, to train on, or as a benchmark's dataset.

    \b
    The file is CSV with a header. Its columns:
      file     path of the image within IMAGES; also: image, filename, filepath,
               path
      caption  for shards and --benchmark retrieval, where rows of the same image
               are all its captions; also: text, title
      label    name of the class, for --benchmark zero_shot; also: class
      split    test or train, for --benchmark zero_shot; few-shot probes learn
               from train  [default: test]
    Others are metadata of the shards, for data.filter.

    DIR appears when it is complete. Train on shards with data.train={kind: folder, path: DIR}. A benchmark is
    a folder of datasets: with DIR in bench/mine, it is data.benchmark={kind: folder, path: bench}.
    """
    _refuse_existing(folder)
    pairs = Captioned(images, captions, skip_damaged)
    with counting("Packing", len(pairs.rows)) as advance:
        if benchmark is None:
            _make(folder, lambda partial: pairs.write_shards(partial, advance))
        elif benchmark == "retrieval":
            _make(folder, lambda partial: pairs.write_retrieval(partial, advance))
        else:
            _make(folder, lambda partial: pairs.write_classification(partial, templates, advance))
    for damaged in pairs.damaged[:_NAMED]:
        say(f"left out: {damaged}", err=True)
    if (more := len(pairs.damaged) - _NAMED) > 0:
        say(f"left out: {more:,} more", err=True)
    _report(folder, as_json)


@data_command.command("inspect", epilog=_EPILOG)
@click.argument("folder", type=_Folder, metavar="DIR")
@click.option("--filter", "expression", help="Show what this filter over the metadata keeps.")
@json_option()
def inspect(folder: Path, expression: str | None, as_json: bool) -> None:
    """Show what DIR holds: shards, a benchmark, or folders of either.

    Of shards: pairs, columns of metadata, licences, kinds of noise, what is damaged, some captions.
    """
    summary = inspecting.summary(folder, expression)
    if as_json:
        print_json(summary, indent=2)
    else:
        say(inspecting.lines(summary))


data_command.add_command(score_command, "score")


def _make(folder: Path, build: Callable[[Path], None]) -> None:
    """Build a new folder, which appears only when it is complete."""
    _refuse_existing(folder)
    build_once(folder, build)


def _refuse_existing(folder: Path) -> None:
    """Raise UserError if a folder to be made exists; an empty one is removed."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    if folder.exists():
        raise UserError(f"{folder} exists already: name a new folder, or remove this one")


def _report(folder: Path, as_json: bool) -> None:
    """Print what was made."""
    files = sum(path.is_file() for path in folder.rglob("*"))
    summary = inspecting.summary(folder)
    show(as_json, summary | {"files": files}, inspecting.lines(summary))
