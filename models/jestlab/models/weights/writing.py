"""Weights written to disk in any format, whole or not at all."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from ..config import TwoTowers
from . import big_vision, huggingface, npz, tensor_files, tokenizers
from .layout import Entry
from .sources import OWN_MODEL, OWN_TOKENIZER, OWN_WEIGHTS, Weights
from .tree import ENCODERS, Tensor

FORMATS = ("big_vision", "big_vision-scanned", "huggingface", "jestlab")
"""The first two are a file, the others a folder."""

_OURS = frozenset(
    {OWN_WEIGHTS, OWN_MODEL, OWN_TOKENIZER, huggingface.WEIGHTS, huggingface.CONFIG, tokenizers.NAMES[0]}
    | {".jestlab"}
)
"""What a folder that is replaced may hold."""


def write(
    weights: Weights, destination: Path, form: str, *, tokenizer: bytes | None = None, force: bool = False
) -> None:
    """Write weights in a format; nothing appears before it is whole.

    Args:
        weights: The weights.
        destination: An .npz file for big_vision, else a folder.
        form: One of `FORMATS`.
        tokenizer: Serialised sentencepiece model, written beside into a folder.
        force: Replace what lies there, if it is such weights.

    Raises:
        ValueError: The format has no such towers, or something else lies there.
    """
    model, folder = weights.model, form not in ("big_vision", "big_vision-scanned")
    if form not in FORMATS:
        raise ValueError(f"no format {form!r}: known: {', '.join(FORMATS)}")
    _check_place(destination, folder, force)
    if not folder:
        scanned = ENCODERS.keys() if form == "big_vision-scanned" else frozenset[str]()
        tensors = _lay_out(weights.tensors(), big_vision.entries(model, scanned))
        _appear(destination, lambda partial: _write_npz(partial, tensors))
    elif form == "huggingface":
        tensors = _lay_out(weights.tensors(), huggingface.entries(model))
        _appear(destination, lambda partial: _write_huggingface(partial, tensors, model, tokenizer))
    else:
        tensors = _lay_out(weights.tensors(), big_vision.entries(model))
        _appear(destination, lambda partial: _write_own(partial, tensors, model, tokenizer))


def _lay_out(ours: Mapping[str, Tensor], entries: tuple[Entry, ...]) -> dict[str, Tensor]:
    return {entry.name: entry.write(ours) for entry in entries}


def _write_npz(path: Path, tensors: Mapping[str, Tensor]) -> None:
    with path.open("wb") as stream:
        npz.write(stream, tensors)


def _write_huggingface(
    folder: Path, tensors: Mapping[str, Tensor], model: TwoTowers, tokenizer: bytes | None
) -> None:
    folder.mkdir()
    tensor_files.write(folder / huggingface.WEIGHTS, tensors)
    (folder / huggingface.CONFIG).write_text(json.dumps(huggingface.config_json(model), indent=2) + "\n")
    if tokenizer is not None:
        (folder / tokenizers.NAMES[0]).write_bytes(tokenizer)


def _write_own(
    folder: Path, tensors: Mapping[str, Tensor], model: TwoTowers, tokenizer: bytes | None
) -> None:
    folder.mkdir()
    _write_npz(folder / OWN_WEIGHTS, tensors)
    (folder / OWN_MODEL).write_text(model.model_dump_json(indent=2) + "\n")
    if tokenizer is not None:
        (folder / OWN_TOKENIZER).write_bytes(tokenizer)


def _check_place(destination: Path, folder: bool, force: bool) -> None:
    """Whether something may be written there."""
    if not folder and destination.suffix != ".npz":
        raise ValueError(f"{destination}: big_vision's weights are one file: give a name that ends in .npz")
    if not destination.exists():
        return
    if folder and destination.is_dir() and not any(destination.iterdir()):
        return
    if not force:
        raise ValueError(f"{destination}: exists already: choose another name, or replace it by --force")
    if destination.is_dir() != folder:
        raise ValueError(f"{destination}: is {'no' if folder else 'a'} folder: choose another name")
    if folder and (others := {entry.name for entry in destination.iterdir()} - _OURS):
        raise ValueError(f"{destination}: holds {min(others)}, which is no weights: choose another name")


def _appear(destination: Path, build: Callable[[Path], None]) -> None:
    """Build under another name, then put it in place of what lies there."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    partial = destination.with_name(f".{destination.name}.{uuid.uuid4().hex}.part")
    try:
        build(partial)
        if destination.is_dir():
            shutil.rmtree(destination)
        partial.replace(destination)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        partial.unlink(missing_ok=True)
