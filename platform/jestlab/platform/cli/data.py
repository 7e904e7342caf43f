"""`jestlab data`: make, fetch, or pack shards and benchmarks, inspect any, and score examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from jestlab.models.config import ShapesBenchmark, ShapesWeb
from jestlab.models.data import shapes
from jestlab.models.data.captioned import Captioned
from jestlab.models.data.files import build_once
from jestlab.models.data.icons import make as icons
from jestlab.models.data.icons.packages import download
from jestlab.models.data.icons.sets import icon_sets
from jestlab.platform.cli import inspecting
from jestlab.platform.cli.help import Verbs
from jestlab.platform.cli.options import FOLDER, examples, json_option
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
_SHOWN = 3  # damaged images

_folder = click.argument("folder", type=FOLDER, metavar="DIR")
_image_size = click.option(
    "--image-size", type=click.IntRange(min=8), help="Side of an image in pixels  [default: 32]"
)


@click.group(cls=Verbs, epilog=_EPILOG)
def data_command() -> None:
    """Make, fetch, pack, inspect, and score image-text shards and benchmarks."""


@data_command.group("make", cls=Verbs, epilog=_EPILOG)
def make() -> None:
    """Make synthetic data from settings and a seed."""


@make.command("shapes", epilog=_EPILOG)
@_folder
@click.option("--examples", type=click.IntRange(min=1), help="Number of image-text pairs  [default: 24576]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed.")
@_image_size
@json_option()
def make_shapes(folder: Path, seed: int, as_json: bool, **given: int | None) -> None:
    """Make the synthetic web in the folder DIR, in the format of img2dataset."""
    settings = ShapesWeb(**{name: value for name, value in given.items() if value is not None})
    with counting("Drawing shapes", settings.examples) as advance:
        _build(folder, lambda partial: shapes.make_web(partial, settings, seed, advance))
    _report(folder, as_json)


@make.command("benchmark", epilog=_EPILOG)
@_folder
@click.option("--seed", type=click.IntRange(min=0), help="Random seed  [default: 1000003]")
@_image_size
@json_option()
def make_benchmark(folder: Path, as_json: bool, **given: int | None) -> None:
    """Make a benchmark of clean held-out shapes in the folder DIR, in the format of CLIP_benchmark."""
    settings = ShapesBenchmark(**{name: value for name, value in given.items() if value is not None})
    _build(folder, lambda partial: shapes.make_benchmark(partial, settings))
    _report(folder, as_json)


@data_command.group("fetch", cls=Verbs, epilog=_EPILOG)
def fetch() -> None:
    """Download public pictures, and make shards and benchmarks of them."""


@fetch.command("icons", epilog=_EPILOG)
@click.argument("folder", type=FOLDER, metavar="[DIR]", default=Path("icons"))
@json_option()
def fetch_icons(folder: Path, as_json: bool) -> None:
    """Fetch 47,000 icons with their names, for `jestlab launch icons`, into the folder DIR  [default: icons].

    \b
    The icons are from 36 npm packages (41 MB) that allow redistribution:
      DIR/curated/       emoji of three styles, with clean names
      DIR/web/           these and other emoji, among logos, tokens, flags, files
                         and interface icons
      DIR/validation/    benchmark of a style that is in neither, to tune on
      DIR/benchmark/     benchmark of another style
      DIR/licenses.json  author and license of each set
      DIR/packages/      the downloaded packages

    If interrupted, the next call resumes.
    """
    sets = icon_sets()
    if icons.is_made(folder, sets):
        say(f"{folder}: the icons already exist", err=True)
    else:
        with counting("Downloading", len(sets)) as advance:
            download(sets, icons.packages_folder(folder), lambda one: advance(1))
        images = icons.Icons(folder, sets)
        with counting("Drawing icons", len(images)) as advance:
            images.make(advance)
    _report(folder, as_json)


@data_command.command("pack", epilog=_EPILOG)
@click.argument("images", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="IMAGES")
@_folder
@click.option("--captions", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True,
              metavar="FILE.csv", help="Captions or labels of the images.")  # fmt: skip
@click.option("--benchmark", type=click.Choice(["retrieval", "zero_shot"]),
              help="Write a benchmark's dataset instead of shards.")  # fmt: skip
@click.option("--template", "templates", multiple=True, default=["{c}", "a photo of a {c}"],
              show_default=True, help="Prompt of --benchmark zero_shot, where {c} is the class.")  # fmt: skip
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
    """Pack a folder of IMAGES and a file of captions as shards for training, or as a benchmark's dataset.

    \b
    The file is CSV with a header. Its columns:
      file     path of the image within IMAGES; also: image, filename, filepath,
               path
      caption  for shards and --benchmark retrieval, where several rows of an
               image are its captions; also: text, title
      label    name of the class, for --benchmark zero_shot; also: class
      split    test or train, for --benchmark zero_shot; few-shot probes learn
               from train  [default: test]
    Other columns are metadata of the shards, for data.filter.

    Train on shards with data.train={kind: folder, path: DIR}. A benchmark is a folder of datasets: if DIR is
    bench/mine, use data.benchmark={kind: folder, path: bench}.
    """
    _check_new(folder)
    pairs = Captioned(images, captions, skip_damaged)
    with counting("Packing", len(pairs.rows)) as advance:
        if benchmark is None:
            _build(folder, lambda partial: pairs.write_shards(partial, advance))
        elif benchmark == "retrieval":
            _build(folder, lambda partial: pairs.write_retrieval(partial, advance))
        else:
            _build(folder, lambda partial: pairs.write_classification(partial, templates, advance))
    for damaged in pairs.damaged[:_SHOWN]:
        say(f"skipped: {damaged}", err=True)
    if (more := len(pairs.damaged) - _SHOWN) > 0:
        say(f"skipped: {more:,} more", err=True)
    _report(folder, as_json)


@data_command.command("inspect", epilog=_EPILOG)
@_folder
@click.option("--filter", "expression", help="Show which examples this filter over the metadata keeps.")
@json_option()
def inspect(folder: Path, expression: str | None, as_json: bool) -> None:
    """Show the content of DIR: shards, a benchmark, or folders of either.

    For shards: pairs, metadata columns, licenses, kinds of noise, damaged examples, and some captions.
    """
    summary = inspecting.summary(folder, expression)
    if as_json:
        print_json(summary, indent=2)
    else:
        say(inspecting.lines(summary))


data_command.add_command(score_command, "score")


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    """Build a new folder, which appears when it is complete."""
    _check_new(folder)
    build_once(folder, build)


def _check_new(folder: Path) -> None:
    """Raise UserError if a folder exists and isn't empty; remove an empty one."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    if folder.exists():
        raise UserError(f"{folder} already exists: name a new folder, or remove this one")


def _report(folder: Path, as_json: bool) -> None:
    """Print the content of a new folder."""
    files = sum(path.is_file() for path in folder.rglob("*"))
    summary = inspecting.summary(folder)
    show(as_json, summary | {"files": files}, inspecting.lines(summary))
