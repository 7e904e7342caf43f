"""Weights on disk in any format: recognised and checked and hashed and read and written.

The content hash is taken over the parameters in our own tree, not over a file's bytes. So the same weights as
.npz (scanned or not) or as safetensors (in float32 or another exact type) are the same reference, and a run
that was trained with one is not trained again with the other. The price is that the tensors have to be read
once; the hash is kept beside the file and recomputed when the file's size or time changes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from jestlab.models.config import TwoTowers
from jestlab.models.data.files import derived_path, write_whole
from jestlab.models.data.tokenizer import EOS, PAD, Tokenizer
from jestlab.models.weights import big_vision, huggingface, processor
from jestlab.models.weights.files import (
    Archive,
    Memory,
    Npz,
    TensorFiles,
    shards,
    shortened,
    write_npz,
    write_safetensors,
)
from jestlab.models.weights.layout import ENCODERS, Entry, Tensor, check, flatten, named

TOKENIZERS = ("spiece.model", "tokenizer.model", "sentencepiece.model", "tokenizer.json")
"""Names of tokenizers beside weights: of Hugging Face's SigLIP, of jestlab and Gemma, of T5's vocabularies,
of Hugging Face's SigLIP 2."""


def tokenizer_beside(folder: Path) -> Path | None:
    """Return the tokenizer in a folder, if there is one."""
    return next((folder / name for name in TOKENIZERS if (folder / name).is_file()), None)


def read_tokenizer(path: Path, model: TwoTowers) -> bytes:
    """Read a tokenizer, and check that it fits the towers and reads captions as SigLIP or SigLIP 2 does.

    Returns:
        What the file holds: a sentencepiece model, or a `tokenizer.json`.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no tokenizer, has more pieces than the text tower has embeddings, or differs from
            both in its special pieces.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such tokenizer (a sentencepiece .model, or a tokenizer.json)")
    content = path.read_bytes()
    try:
        pieces = Tokenizer(content).pieces
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    embeddings = model.text.vocabulary_size
    if pieces.size > embeddings:
        raise ValueError(f"{path}: has {pieces.size} pieces, but the text tower has {embeddings} embeddings")
    if pieces.end != EOS or (pieces.begin != -1 and pieces.pad != PAD):
        raise ValueError(
            f"{path}: the tokenizer of neither SigLIP nor SigLIP 2: its end piece is {pieces.end}, should be "
            f"{EOS}; it has a begin piece, {pieces.begin}, and pads with {pieces.pad}, should be {PAD}"
            if pieces.begin != -1
            else f"{path}: not a SigLIP tokenizer: its end piece is {pieces.end}, should be {EOS}"
        )
    return content


_VERSION = 1  # of the recipe below


def content_hash(tensors: Iterable[tuple[str, Tensor]], model: TwoTowers) -> str:
    """Compute the SHA-256 over names, shapes and bytes of the parameters, in any order.

    Args:
        tensors: Name and value, float32, of each parameter.
        model: Their towers: how they pool texts and images is part of them, but visible in no shape.

    Returns:
        64 hex digits.
    """
    lines = []
    for name, tensor in tensors:
        content = np.ascontiguousarray(tensor, np.dtype("<f4"))
        lines.append(f"{hashlib.sha256(content.data).hexdigest()}  {name} {list(content.shape)} float32\n")
    whole = f"{_VERSION} {model.vision.pooling} {model.text.pooling}\n" + "".join(sorted(lines))
    return hashlib.sha256(whole.encode()).hexdigest()


def _kept_digest(path: Path, files: Sequence[Path], model: TwoTowers, compute: Callable[[], str]) -> str:
    """Return a hash that is computed once and kept beside the files that it is of."""
    folder = path if path.is_dir() else path.parent
    record = derived_path(folder, f"{path.name}-digest.json" if path != folder else "weights-digest.json")
    about: dict[str, Any] = {"version": _VERSION, "model": model.model_dump(mode="json"), "files": {}}
    for file in files:
        stat = file.stat()
        about["files"][file.name] = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    try:
        known = json.loads(record.read_text())
    except (FileNotFoundError, ValueError, RecursionError):
        known = None
    if isinstance(known, dict) and known.get("of") == about and isinstance(known.get("digest"), str):
        return str(known["digest"])
    digest = compute()
    write_whole(record, json.dumps({"digest": digest, "of": about}, indent=1).encode())
    return digest


OWN_WEIGHTS, OWN_MODEL, OWN_TOKENIZER = "weights.npz", "model.json", "tokenizer.model"
"""Files of a folder in our own form: big_vision's layout, the towers, the tokenizer."""

CHECKPOINTS = "checkpoints"
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@dataclass(frozen=True)
class Weights:
    """Weights of two towers, not loaded yet.

    Attributes:
        path: The file or folder that holds them.
        format: "big_vision", "big_vision-scanned", "huggingface", "jestlab" (our own folder) or "run".
        model: The towers.
        tokenizer: Their sentencepiece model, if there is one beside them.
    """

    path: Path
    format: str
    model: TwoTowers
    tokenizer: Path | None
    _archive: Archive = field(repr=False)
    _entries: tuple[Entry, ...] = field(repr=False)

    def tensors(self) -> dict[str, Tensor]:
        """Load every parameter by its name in our tree, float32.

        Raises:
            ValueError: Some are damaged or not finite; names them.
        """
        tensors = dict(self._read())
        if broken := [name for name in sorted(tensors) if not np.isfinite(tensors[name]).all()]:
            raise ValueError(f"{self.path}: holds numbers that are not finite: {named(broken)}")
        return tensors

    def digest(self) -> str:
        """Return the content hash, the same in every format; reads the tensors the first time."""
        if not self._archive.files:
            return content_hash(self._read(), self.model)
        return _kept_digest(
            self.path, self._archive.files, self.model, lambda: content_hash(self._read(), self.model)
        )

    def _read(self) -> Iterator[tuple[str, Tensor]]:
        for entry, (_, tensor) in zip(
            self._entries, self._archive.read(entry.name for entry in self._entries), strict=True
        ):
            yield from entry.read(tensor)


def open_weights(path: Path, model: TwoTowers | None = None) -> Weights:
    """Recognise weights and check them by their headers. Needs no JAX.

    Args:
        path: big_vision's .npz; Hugging Face's .safetensors, or a folder with model.safetensors (or its
            index) and config.json; a folder that `jestlab weights import` wrote.
        model: The towers that they must be of; None to tell them from shapes and config.json.

    Raises:
        FileNotFoundError: There is nothing at the path.
        ValueError: It is not such a file or folder, is damaged, or is of other towers; names the tensors.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder of weights")
    if path.name == OWN_WEIGHTS and (path.parent / OWN_MODEL).is_file():
        path = path.parent  # the file alone lacks the towers
    if path.is_dir():
        if (path / OWN_WEIGHTS).is_file() and (path / OWN_MODEL).is_file():
            return _own(path, model)
        for name in (huggingface.INDEX, huggingface.WEIGHTS):
            if (path / name).is_file():
                return _huggingface(path, path / name, model)
        raise ValueError(f"{path}: {_what_else(path)}")
    if path.suffix == ".npz":
        return _big_vision(path, model)
    if path.suffix == ".safetensors" or path.name == huggingface.INDEX:
        return _huggingface(path, path, model)
    if path.suffix in _PICKLED:
        raise ValueError(f"{path}: pickled weights are never loaded: save them as .safetensors")
    raise ValueError(f"{path}: neither .npz (big_vision) nor .safetensors (Hugging Face)")


def _what_else(folder: Path) -> str:
    if (folder / CHECKPOINTS).is_dir():
        return "is the folder of a run: take its weights out with `jestlab weights import`"
    if any(entry.suffix in _PICKLED for entry in folder.iterdir()):
        return "holds pickled weights, which are never loaded: save them as model.safetensors"
    return f"holds neither {huggingface.WEIGHTS} nor {OWN_WEIGHTS} with {OWN_MODEL}"


@contextmanager
def _at(path: Path) -> Iterator[None]:
    """Name the file in errors."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = shortened(".".join(map(str, first["loc"]))) or "the towers"
        raise ValueError(f"{path}: does not describe two towers: {place}: {first['msg']}") from error
    except RecursionError:
        raise ValueError(f"{path}: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: {shortened(error, 1_000)}") from error


def _big_vision(path: Path, model: TwoTowers | None) -> Weights:
    archive = Npz(path, big_vision.PREFIX)
    with _at(path):
        scanned = big_vision.scanned_towers(archive.shapes)
        model = model or big_vision.infer(archive.shapes)
        entries = big_vision.entries(model, scanned)
        check(archive.shapes, entries)
    form = "big_vision-scanned" if scanned else "big_vision"
    return Weights(path, form, model, tokenizer_beside(path.parent), archive, entries)


def _own(folder: Path, model: TwoTowers | None) -> Weights:
    with _at(folder / OWN_MODEL):
        recorded = TwoTowers.model_validate_json((folder / OWN_MODEL).read_bytes())
    inner = _big_vision(folder / OWN_WEIGHTS, model or recorded)
    return replace(inner, path=folder, format="jestlab")


def _huggingface(path: Path, tensors: Path, model: TwoTowers | None) -> Weights:
    files = shards(tensors) if tensors.name == huggingface.INDEX else [tensors]
    archive = TensorFiles(files, huggingface.ignored)
    folder = tensors.parent
    about, config = folder / huggingface.CONFIG, None
    if about.is_file():
        with _at(about):
            config = json.loads(about.read_text(encoding="utf-8"))
            if not isinstance(config, dict):
                raise ValueError("must be a mapping")
    with _at(path):
        found = huggingface.infer(archive.shapes, config)
        entries = huggingface.entries(model or found, cuts_patches=huggingface.cuts_patches(archive.shapes))
        check(archive.shapes, entries)
    return Weights(path, "huggingface", model or found, tokenizer_beside(folder), archive, entries)


def run_weights(directory: Path, model: TwoTowers) -> Weights:
    """Load the weights of a finished run from its folder, with `checkpoints/` and `tokenizer.model`.

    Raises:
        FileNotFoundError: There is no checkpoint.
    """
    from jestlab.models.training.checkpoints import load_parameters

    parameters = load_parameters(directory / CHECKPOINTS, model)
    tensors = {name: np.asarray(leaf, np.float32) for name, leaf in flatten(parameters)}
    entries = big_vision.entries(model)
    return Weights(directory, "run", model, tokenizer_beside(directory), Memory(tensors), entries)


FORMATS = ("big_vision", "big_vision-scanned", "huggingface", "jestlab")
"""The first two are a file, the others a folder."""

_OURS = frozenset(
    (
        OWN_WEIGHTS,
        OWN_MODEL,
        OWN_TOKENIZER,
        huggingface.WEIGHTS,
        huggingface.CONFIG,
        *TOKENIZERS,
        *processor.FILES,
        ".jestlab",
    )
)
"""What a folder that is replaced may hold."""


def write(
    weights: Weights, destination: Path, form: str, *, tokenizer: bytes | None = None, force: bool = False
) -> None:
    """Write weights in a format, atomically.

    Args:
        weights: The weights.
        destination: An .npz file for big_vision, else a folder.
        form: One of `FORMATS`.
        tokenizer: As `read_tokenizer` returns it, written beside into a folder.
        force: Whether to replace existing weights.

    Raises:
        ValueError: The format cannot hold such towers, or the destination exists and is not replaced.
    """
    model, folder = weights.model, form not in ("big_vision", "big_vision-scanned")
    if form not in FORMATS:
        raise ValueError(f"unknown format {form!r}: expected one of {', '.join(FORMATS)}")
    _check_place(destination, folder, force)
    if form == "huggingface":
        entries = huggingface.entries(model)
    else:
        entries = big_vision.entries(model, ENCODERS.keys() if form == "big_vision-scanned" else frozenset())
    ours = weights.tensors()
    tensors = {entry.name: entry.write(ours) for entry in entries}

    def build(partial: Path) -> None:
        if not folder:
            write_npz(partial, tensors)
            return
        partial.mkdir()
        if form == "huggingface":
            write_safetensors(partial / huggingface.WEIGHTS, tensors)
            about = json.dumps(huggingface.config_json(model), indent=2)
            (partial / huggingface.CONFIG).write_text(about + "\n")
            processor.write(partial, model, tokenizer)
        else:
            write_npz(partial / OWN_WEIGHTS, tensors)
            (partial / OWN_MODEL).write_text(model.model_dump_json(indent=2) + "\n")
        if tokenizer is not None and not (form == "huggingface" and Tokenizer(tokenizer).is_json):
            (partial / (TOKENIZERS[0] if form == "huggingface" else OWN_TOKENIZER)).write_bytes(tokenizer)

    _appear(destination, build)


def _check_place(destination: Path, folder: bool, force: bool) -> None:
    """Raise ValueError if nothing may be written there."""
    if not folder and destination.suffix != ".npz":
        raise ValueError(f"{destination}: big_vision's weights are one file: give a name that ends in .npz")
    if not destination.exists():
        return
    if folder and destination.is_dir() and not any(destination.iterdir()):
        return
    if not force:
        raise ValueError(f"{destination}: already exists: choose another name, or replace it with --force")
    if destination.is_dir() != folder:
        raise ValueError(f"{destination}: {'not a' if folder else 'is a'} folder: choose another name")
    if folder and (others := {entry.name for entry in destination.iterdir()} - _OURS):
        raise ValueError(
            f"{destination}: holds {min(others)}, which is not part of weights: choose another name"
        )


def _appear(destination: Path, build: Callable[[Path], None]) -> None:
    """Build under another name, then put it in place of what is there."""
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
