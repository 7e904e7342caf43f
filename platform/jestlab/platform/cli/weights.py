"""`jestlab weights`: public weights in and out."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jestlab.platform.cli.common import lab_options
from jestlab.platform.errors import UserError
from jestlab.platform.lab import Lab

if TYPE_CHECKING:
    from jestlab.models.config import TwoTowers
    from jestlab.models.weights import Weights
    from jestlab.platform.store.records import FinishedRun

_EPILOG = """\b
SOURCE is big_vision's .npz, Hugging Face's SigLIP (.safetensors, or its folder),
an imported folder, a run's folder, experiment/run (with /seed where there are
several), or the first characters of a run's fingerprint.

\b
Examples:
  jestlab weights inspect siglip.npz
  jestlab weights import siglip-base-patch16-256/ siglip/
  jestlab weights export quickstart/reference model/ --seed 0 --format huggingface
"""
_FORMATS = (
    "big_vision",
    "big_vision-scanned",
    "huggingface",
)  # of `jestlab.models.weights`, which loads slowly

_source = click.argument("source", metavar="SOURCE")
_destination = click.argument("destination", metavar="DEST", type=click.Path(path_type=Path))
_seed = click.option("--seed", type=int, help="Replicate, where a run has several.")
_tokenizer = click.option(
    "--tokenizer",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Sentencepiece model.  [default: the one beside SOURCE]",
)
_force = click.option("--force", is_flag=True, help="Replace the weights at DEST.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("weights", epilog=_EPILOG)
def command() -> None:
    """Public weights, and those of runs: in and out."""


@command.command("inspect", epilog=_EPILOG)
@_source
@_seed
@_json
@lab_options
def inspect(source: str, seed: int | None, as_json: bool, lab: Lab) -> None:
    """Show format, towers, parameters and content hash."""
    about = _about(_find(source, seed, lab))
    click.echo(json.dumps(about, indent=2) if as_json else "\n".join(_lines(about)))


@command.command("import", epilog=_EPILOG)
@_source
@_destination
@_seed
@_tokenizer
@_force
@_json
@lab_options
def import_(
    source: str,
    destination: Path,
    seed: int | None,
    tokenizer: Path | None,
    force: bool,
    as_json: bool,
    lab: Lab,
) -> None:
    """Check weights and write a folder for `program: weights`."""
    _convert(_find(source, seed, lab), destination, "jestlab", tokenizer, force, as_json)


@command.command("export", epilog=_EPILOG)
@_source
@_destination
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), required=True, help="A folder, or an .npz file."
)
@_seed
@_tokenizer
@_force
@_json
@lab_options
def export(
    source: str,
    destination: Path,
    form: str,
    seed: int | None,
    tokenizer: Path | None,
    force: bool,
    as_json: bool,
    lab: Lab,
) -> None:
    """Write weights for big_vision or transformers."""
    _convert(_find(source, seed, lab), destination, form, tokenizer, force, as_json)


_SAY = "give `model` beside its path where it is used"


def _convert(
    weights: Weights, destination: Path, form: str, tokenizer: Path | None, force: bool, as_json: bool
) -> None:
    from jestlab.models.weights import open_weights, read_tokenizer, write

    tokenizer = tokenizer or weights.tokenizer
    pieces = read_tokenizer(tokenizer, weights.model) if tokenizer is not None else None
    write(weights, destination, form, tokenizer=pieces, force=force)
    written = open_weights(destination, weights.model)
    if (found := written.digest()) != (wanted := weights.digest()):
        raise UserError(f"{destination}: was written with digest {found[:12]}, not {wanted[:12]}: try again")
    kept = pieces is not None and destination.is_dir()
    if as_json:
        click.echo(json.dumps({"path": str(destination), "digest": found, "tokenizer": kept}))
        return
    missing = "" if kept else ", without a tokenizer"
    click.echo(f"{destination}: {form}, content {found[:12]}{missing}")
    if open_weights(destination).model.text.pooling != weights.model.text.pooling:
        click.echo(f"{destination}: does not say how texts are pooled ({weights.model.text.pooling}): {_SAY}")


def _find(source: str, seed: int | None, lab: Lab) -> Weights:
    """Weights by their path, or by the run they are of."""
    from jestlab.models.weights import CHECKPOINTS, open_weights, run_weights
    from jestlab.platform import mirror

    path = Path(source)
    if path.exists() and not (path / CHECKPOINTS).is_dir():
        return open_weights(path)
    if path.exists():
        root, name = path.absolute().parent.parent, path.absolute().name
        own = Lab.find(root) if (root / "results.db").exists() else lab
        run = _run(own, lambda run: Path(run.directory).name == name, f"of the folder {path}")
        return run_weights(path, _towers(run))
    fingerprint = _fingerprint(source, seed, lab)
    run = _run(lab, lambda run: run.fingerprint == fingerprint, source)
    return run_weights(mirror.fetched(lab, run.directory), _towers(run))


def _fingerprint(source: str, seed: int | None, lab: Lab) -> str:
    """Of the run that is meant."""
    from jestlab.platform.cli import naming
    from jestlab.platform.store.store import Store

    store = Store.open_readonly(lab.store_url)
    if store is None or not ("/" in source or naming.is_fingerprint(source)):
        raise UserError(f"no file, folder or finished run {source!r}: give a path, or experiment/run")
    return naming.run(store, source, seed=seed).fingerprint


def _run(lab: Lab, chosen: Callable[[FinishedRun], bool], meant: str) -> FinishedRun:
    """The one finished run that is meant."""
    from jestlab.platform.store.store import Store

    store = Store.open_readonly(lab.store_url)
    found = [run for run in store.finished() if chosen(run)] if store is not None else []
    if len(found) != 1:
        raise UserError(
            f"{len(found) or 'no'} finished runs {meant} in {lab.address}: give a path, or experiment/run"
        )
    return found[0]


def _towers(run: FinishedRun) -> TwoTowers:
    """The towers of a run that has some."""
    from jestlab.platform import programs

    schema = programs.get(run.program).schema
    model = getattr(schema.model_validate(run.config), "model", None) if schema is not None else None
    if model is None:
        raise UserError(f"{run.directory}: a run of the program {run.program!r} has no weights of two towers")
    towers: TwoTowers = model
    return towers


def _about(weights: Weights) -> dict[str, Any]:
    """What `inspect` shows, as plain data."""
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


def _lines(about: dict[str, Any]) -> list[str]:
    from jestlab.platform.cli.text import table

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
        f"tokenizer {about['tokenizer'] or 'none: give one where the weights are used'}",
    ]
