"""`jestlab weights`: inspect, import and export weights of public models and of runs."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from jestlab.models.config import TwoTowers
from jestlab.models.weights import CHECKPOINTS, Weights, open_weights, read_tokenizer, run_weights, write
from jestlab.platform import programs
from jestlab.platform.cli import naming
from jestlab.platform.cli.help import Verbs
from jestlab.platform.cli.options import FILE, json_option, lab_options
from jestlab.platform.cli.output import print_json, say
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.sync import fetched
from jestlab.platform.render import Block, table
from jestlab.platform.store.records import FinishedRun
from jestlab.platform.store.store import Store

_EPILOG = f"""\
SOURCE is big_vision's .npz, Hugging Face's SigLIP (.safetensors, or its folder), an imported folder, a run's
folder, or a RUN.

{naming.HELP}

\b
Examples:
  jestlab weights inspect siglip.npz
  jestlab weights import siglip-base-patch16-256/ siglip/
  jestlab weights export quickstart/reference/0 model/ --format huggingface
"""
_FORMATS = ("big_vision", "big_vision-scanned", "huggingface")

_source = click.argument("source", metavar="SOURCE")
_destination = click.argument("destination", metavar="DEST", type=click.Path(path_type=Path))
_tokenizer = click.option(
    "--tokenizer", type=FILE, help="Sentencepiece model  [default: the one beside SOURCE]"
)
_force = click.option("--force", is_flag=True, help="Replace the weights at DEST.")


def _converting(function: Callable[..., None]) -> Callable[..., None]:
    """Add SOURCE, DEST and the options that import and export share."""
    decorators = (_source, _destination, _tokenizer, _force, json_option(), lab_options)
    return functools.reduce(lambda decorated, add: add(decorated), reversed(decorators), function)


@click.group(cls=Verbs, epilog=_EPILOG)
def weights_command() -> None:
    """Inspect, import and export weights of public models and of runs."""


@weights_command.command("inspect", epilog=_EPILOG)
@_source
@json_option()
@lab_options
def inspect(source: str, as_json: bool, lab: Lab) -> None:
    """Show the format, towers, parameters and content hash of SOURCE."""
    about = _about(_find(source, lab))
    if as_json:
        print_json(about, indent=2)
    else:
        say(_lines(about))


@weights_command.command("import", epilog=_EPILOG)
@_converting
def import_(**options: Any) -> None:
    """Check the weights SOURCE and write them to the folder DEST, for `program: weights`."""
    _convert(form="jestlab", **options)


@weights_command.command("export", epilog=_EPILOG)
@click.option("--format", "form", type=click.Choice(_FORMATS), required=True,
              help="big_vision: an .npz file; huggingface: a folder.")  # fmt: skip
@_converting
def export(**options: Any) -> None:
    """Write the weights SOURCE to DEST for big_vision or transformers."""
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
    weights = _find(source, lab)
    tokenizer = tokenizer or weights.tokenizer
    pieces = read_tokenizer(tokenizer, weights.model) if tokenizer is not None else None
    write(weights, destination, form, tokenizer=pieces, force=force)
    written = open_weights(destination, weights.model)
    if (found := written.digest()) != (wanted := weights.digest()):
        raise UserError(f"{destination}: digest is {found[:12]}, expected {wanted[:12]}: try again")
    kept = pieces is not None and destination.is_dir()
    if as_json:
        print_json({"path": str(destination), "digest": found, "tokenizer": kept})
        return
    missing = "" if kept else ", without a tokenizer"
    say(f"{destination}: {form}, content {found[:12]}{missing}")
    if open_weights(destination).model.text.pooling != weights.model.text.pooling:
        say(
            f"{destination}: the format does not record the pooling of texts, {weights.model.text.pooling}: "
            "where these weights are used, give `model` beside their path"
        )


def _find(source: str, lab: Lab) -> Weights:
    """Find weights by their path or by their run."""
    path = Path(source)
    if path.exists() and not (path / CHECKPOINTS).is_dir():
        return open_weights(path)
    if path.exists():
        root, name = path.absolute().parent.parent, path.absolute().name
        own = Lab.find(root) if (root / "results.db").exists() else lab
        run = _run(own, lambda run: Path(run.directory).name == name, f"of the folder {path}")
        return run_weights(path, _towers(run))
    store = Store.open_readonly(lab.store_url)
    if store is None or not ("/" in source or naming.is_fingerprint(source)):
        raise UserError(
            f"no file, folder or completed run {source!r}: expected a path, or EXPERIMENT/RUN/SEED"
        )
    fingerprint = naming.run(store, source).fingerprint
    run = _run(lab, lambda run: run.fingerprint == fingerprint, source)
    return run_weights(fetched(lab, run.directory), _towers(run))


def _run(lab: Lab, chosen: Callable[[FinishedRun], bool], meant: str) -> FinishedRun:
    """Find the one completed run that is meant."""
    store = Store.open_readonly(lab.store_url)
    found = [run for run in store.finished() if chosen(run)] if store is not None else []
    if len(found) != 1:
        raise UserError(
            f"found {len(found)} completed runs {meant} in {lab.address}: "
            "expected a path, or EXPERIMENT/RUN/SEED"
        )
    return found[0]


def _towers(run: FinishedRun) -> TwoTowers:
    """Read the sizes of a run's towers; UserError if its program has none."""
    program = programs.get(run.program)
    model = getattr(program.read(run.config), "model", None) if program.schema is not None else None
    if model is None:
        raise UserError(f"{run.directory}: runs of the program {run.program!r} have no image and text towers")
    towers: TwoTowers = model
    for tower in (towers.vision, towers.text):
        if tower.is_own:
            raise UserError(
                f"{run.directory}: no format of weights holds {tower.architecture}, a tower of your own: its "
                "parameters are in the run's checkpoints"
            )
    return towers


def _about(weights: Weights) -> dict[str, Any]:
    """Collect what `inspect` shows, as plain data."""
    tensors = weights.tensors()
    sizes = {"image": 0, "text": 0}
    for name, tensor in tensors.items():
        if "/" in name:
            sizes["image" if name.startswith("img/") else "text"] += tensor.size
    return {
        "path": str(weights.path),
        "format": weights.format,
        "digest": weights.digest(),
        "model": weights.model.model_dump(mode="json", exclude={"variant", "compute_dtype"}),
        "parameters": sizes | {"all": sum(tensor.size for tensor in tensors.values())},
        "temperature": math.exp(tensors["t"].item()) if tensors["t"] < 700 else math.inf,
        "bias": tensors["b"].item(),
        "tokenizer": str(weights.tokenizer) if weights.tokenizer else None,
        "tokenizer_digest": (
            hashlib.sha256(weights.tokenizer.read_bytes()).hexdigest() if weights.tokenizer else None
        ),
    }


def _lines(about: dict[str, Any]) -> list[Block]:
    vision, text, parameters = about["model"]["vision"], about["model"]["text"], about["parameters"]
    sizes = ("width", "depth", "heads", "mlp_dim", "pooling")
    rows = [
        [
            tower,
            f"{parameters[tower]:,}",
            *(str(section[size] or 4 * section["width"]) for size in sizes),
            reads,
        ]
        for tower, section, reads in (
            ("image", vision, f"{vision['image_size']} px in patches of {vision['patch_size']}"),
            ("text", text, f"{text['length']} tokens of {text['vocabulary_size']:,}"),
        )
    ]
    return [
        f"{about['path']}: {about['format']}, {parameters['all']:,} parameters, "
        f"embeddings of {about['model']['embedding_dim']}",
        table(
            ("TOWER", "PARAMETERS", *(size.upper() for size in sizes), "READS"), rows, right=(1, 2, 3, 4, 5)
        ),
        f"temperature {about['temperature']:.4g}, bias {about['bias']:.4g}",
        f"content {about['digest']}",
        f"tokenizer {about['tokenizer'] or 'none: give one where these weights are used'}",
    ]
