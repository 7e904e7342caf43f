"""`jestlab weights`: inspect, import, and export weights of public models and of runs."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jestlab.models.config import TwoTowers
from jestlab.models.weights.formats import LAYOUTS
from jestlab.models.weights.parameters import parameter_counts
from jestlab.platform import programs
from jestlab.platform.cli import SubcommandGroup, naming
from jestlab.platform.cli.completion import SOURCE
from jestlab.platform.cli.options import FILE, RUN_HELP, lab_json_options
from jestlab.platform.cli.output import show
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.sync import fetched
from jestlab.platform.render import Block, table
from jestlab.platform.store.records import RunRecord, RunState
from jestlab.platform.store.store import Store

if TYPE_CHECKING:  # otherwise in functions: it requires the extra jax, which `--help` must not
    from jestlab.models.weights.sources import Weights

_EPILOG = f"""\
SOURCE is one of: an .npz file of big_vision; a SigLIP model of Hugging Face, as a folder or as a .safetensors
file next to its config.json; a folder that `jestlab weights import` wrote; or a RUN.

{RUN_HELP}

\b
Examples:
  jestlab weights inspect siglip.npz
  jestlab weights import siglip-base-patch16-256/ siglip/
  jestlab weights export quickstart/reference/0 model/ --format huggingface
"""

_source = click.argument("source", type=SOURCE, metavar="SOURCE")


def _conversion_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments and options that import and export share."""
    tokenizer_help = "SentencePiece model of the texts.  [default: the one next to SOURCE]"
    for add in (
        lab_json_options(),
        click.option("--force", is_flag=True, help="Replace the weights at DEST."),
        click.option("--tokenizer", type=FILE, help=tokenizer_help),
        click.argument("destination", metavar="DEST", type=click.Path(path_type=Path)),
        _source,
    ):
        function = add(function)
    return function


@click.group(cls=SubcommandGroup, epilog=_EPILOG)
def weights_command() -> None:
    """Inspect, import, and export weights of public models and of runs."""


@weights_command.command("inspect", epilog=_EPILOG)
@_source
@lab_json_options()
def inspect(source: str, as_json: bool, lab: Lab) -> None:
    """Show the format, towers, parameters, and content hash of SOURCE."""
    about = _describe(_open(source, lab))
    show(as_json, about, _description(about))


@weights_command.command("import", epilog=_EPILOG)
@_conversion_options
def import_(**options: Any) -> None:
    """Check the weights in SOURCE and write them to the folder DEST, for runs of `program: weights`."""
    _convert(form="jestlab", **options)


@weights_command.command("export", epilog=_EPILOG)
@click.option("--format", "form", required=True, type=click.Choice([x for x in LAYOUTS if x != "jestlab"]),
              help="Format to write: big_vision is one .npz file, huggingface is a folder.")  # fmt: skip
@_conversion_options
def export(**options: Any) -> None:
    """Write the weights in SOURCE to DEST, for big_vision or Hugging Face transformers."""
    _convert(**options)


def _convert(
    source: str,
    destination: Path,
    form: str,
    tokenizer: Path | None,
    force: bool,
    as_json: bool,
    lab: Lab,
) -> None:
    """Write weights in another format, and check that their content has not changed."""
    from jestlab.models.weights.sources import open_weights, read_tokenizer, write

    weights = _open(source, lab)
    tokenizer = tokenizer or weights.tokenizer
    pieces = read_tokenizer(tokenizer, weights.model) if tokenizer is not None else None
    write(weights, destination, form, tokenizer=pieces, force=force)
    digest, expected = open_weights(destination, weights.model).digest(), weights.digest()
    if digest != expected:
        raise UserError(f"{destination}: digest is {digest[:12]}, expected {expected[:12]}: try again")
    has_tokenizer = pieces is not None and destination.is_dir()
    text = [f"{destination}: {form}, content {digest[:12]}{'' if has_tokenizer else ', without a tokenizer'}"]
    pooling = weights.model.text.pooling
    if open_weights(destination).model.text.pooling != pooling:
        text.append(
            f"{destination}: the format does not store the pooling of texts, {pooling}: "
            "give `model` together with the path of these weights"
        )
    show(as_json, {"path": str(destination), "digest": digest, "tokenizer": has_tokenizer}, text)


def _open(source: str, lab: Lab) -> Weights:
    """Open weights, given as a path or as the name of a run."""
    from jestlab.models.weights.sources import open_weights, run_weights

    path = Path(source)
    if path.exists():
        return open_weights(path)
    store = Store.open_readonly(lab.store_url)
    if store is None or not ("/" in source or naming.is_fingerprint(source)):
        raise UserError(f"no file, folder, or run {source!r}: expected a path, or EXPERIMENT/RUN/SEED")
    run = store.run(naming.find_run(store, source).fingerprint)
    if run.state != RunState.COMPLETED:
        raise UserError(f"{source} is {run.state}: expected a completed run")
    return run_weights(fetched(lab, run.directory), _towers(run))


def _towers(run: RunRecord) -> TwoTowers:
    """Return the model of a run; UserError if no format supports its weights."""
    program = programs.get(run.program)
    model = getattr(program.read(run.config), "model", None) if program.schema is not None else None
    if model is None:
        raise UserError(f"{run.directory}: runs of the program {run.program!r} have no image and text towers")
    towers: TwoTowers = model
    for tower in (towers.vision, towers.text):
        if tower.is_custom:
            raise UserError(
                f"{run.directory}: no format supports the custom tower {tower.architecture}: use the "
                "parameters in the run's checkpoints"
            )
    return towers


def _describe(weights: Weights) -> dict[str, Any]:
    """Return a description of weights, as JSON data."""
    tensors, tokenizer = weights.tensors(), weights.tokenizer
    return {
        "path": str(weights.path),
        "format": weights.format,
        "digest": weights.digest(),
        "model": weights.model.model_dump(mode="json", exclude={"variant", "compute_dtype"}),
        "parameters": parameter_counts(weights.model),
        "temperature": math.exp(tensors["t"].item()) if tensors["t"] < 700 else math.inf,
        "bias": tensors["b"].item(),
        "tokenizer": str(tokenizer) if tokenizer else None,
        "tokenizer_digest": hashlib.sha256(tokenizer.read_bytes()).hexdigest() if tokenizer else None,
    }


def _description(about: dict[str, Any]) -> list[Block]:
    vision, text, parameters = about["model"]["vision"], about["model"]["text"], about["parameters"]
    sizes = ("width", "depth", "heads", "mlp_dim", "pooling")
    inputs = {
        "image": f"{vision['image_size']} px in patches of {vision['patch_size']}",
        "text": f"{text['length']} tokens of {text['vocabulary_size']:,}",
    }
    rows = []
    for tower, section in (("image", vision), ("text", text)):
        of_tower = [str(section[size] or 4 * section["width"]) for size in sizes]
        rows.append([tower, f"{parameters[tower]:,}", *of_tower, inputs[tower]])
    headers = ("tower", "parameters", *sizes, "input")
    return [
        f"{about['path']}: {about['format']}, {parameters['all']:,} parameters, "
        f"embeddings of {about['model']['embedding_dim']}",
        table(headers, rows, right=(1, 2, 3, 4, 5)),
        f"temperature {about['temperature']:.4g}, bias {about['bias']:.4g}",
        f"content {about['digest']}",
        f"tokenizer {about['tokenizer'] or 'none: give one together with these weights'}",
    ]
