"""Weights that lie somewhere, in any format: recognised, checked by their headers, read when asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from ..config import TwoTowers
from . import big_vision, huggingface, tokenizers
from .archive import Archive, Memory
from .digest import content_hash, kept
from .layout import Entry, check, named
from .npz import Npz
from .tensor_files import TensorFiles, shards
from .tree import Tensor, flatten

OWN_WEIGHTS, OWN_MODEL, OWN_TOKENIZER = "weights.npz", "model.json", "tokenizer.model"
"""Files of a folder in our own form: big_vision's layout, the towers, the tokenizer."""

CHECKPOINTS = "checkpoints"
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@dataclass(frozen=True)
class Weights:
    """Weights of two towers, not loaded yet.

    Attributes:
        path: Where they lie.
        format: "big_vision", "big_vision-scanned", "huggingface", "jestlab" (our own folder) or "run".
        model: The towers.
        tokenizer: Their sentencepiece model, if one lies beside them.
    """

    path: Path
    format: str
    model: TwoTowers
    tokenizer: Path | None
    _archive: Archive = field(repr=False)
    _entries: tuple[Entry, ...] = field(repr=False)

    def tensors(self) -> dict[str, Tensor]:
        """Every parameter by its name in our tree, float32.

        Raises:
            ValueError: Some are damaged or not finite; their names are said.
        """
        tensors = dict(self._read())
        if broken := [name for name in sorted(tensors) if not np.isfinite(tensors[name]).all()]:
            raise ValueError(f"{self.path}: holds numbers that are not finite: {named(broken)}")
        return tensors

    def digest(self) -> str:
        """Content hash, the same in every format; see `digest.py`. Reads the tensors, the first time.

        Returns:
            64 hex digits.
        """
        if not self._archive.files:
            return content_hash(self._read(), self.model)
        return kept(
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
        FileNotFoundError: Nothing lies there.
        ValueError: It is no such file or folder, damaged, or of other towers: tensors are named.
    """
    path = _whole(path)
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
    raise ValueError(f"{path}: is neither .npz (big_vision) nor .safetensors (Hugging Face)")


def _whole(path: Path) -> Path:
    """Our own folder for the weights file in it, which does not say everything alone."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder of weights")
    return path.parent if path.name == OWN_WEIGHTS and (path.parent / OWN_MODEL).is_file() else path


def _what_else(folder: Path) -> str:
    if (folder / CHECKPOINTS).is_dir():
        return "is the folder of a run: take its weights out with `jestlab weights import`"
    if any(entry.suffix in _PICKLED for entry in folder.iterdir()):
        return "holds pickled weights, which are never loaded: save them as model.safetensors"
    return f"holds neither {huggingface.WEIGHTS} nor {OWN_WEIGHTS} with {OWN_MODEL}"


@contextmanager
def _at(path: Path) -> Iterator[None]:
    """Errors name the file."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the towers"
        raise ValueError(f"{path}: describes no two towers: {place}: {first['msg']}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _big_vision(path: Path, model: TwoTowers | None) -> Weights:
    archive = Npz(path, big_vision.PREFIX)
    with _at(path):
        scanned = big_vision.scanned_towers(archive.shapes)
        model = model or big_vision.infer(archive.shapes)
        entries = big_vision.entries(model, scanned)
        check(archive.shapes, entries)
    form = "big_vision-scanned" if scanned else "big_vision"
    return Weights(path, form, model, tokenizers.beside(path.parent), archive, entries)


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
        entries = huggingface.entries(model or found)
        check(archive.shapes, entries)
    return Weights(path, "huggingface", model or found, tokenizers.beside(folder), archive, entries)


def run_weights(directory: Path, model: TwoTowers) -> Weights:
    """The weights of a finished run of ours, loaded.

    Args:
        directory: The run's folder, with `checkpoints/` and `tokenizer.model`.
        model: Its towers.

    Raises:
        FileNotFoundError: There is no checkpoint.
    """
    from ..training.checkpoints import load_parameters

    parameters = load_parameters(directory / CHECKPOINTS, model)
    tensors = {name: np.asarray(leaf, np.float32) for name, leaf in flatten(parameters)}
    entries = big_vision.entries(model)
    return Weights(directory, "run", model, tokenizers.beside(directory), Memory(tensors), entries)
