"""Open, check, hash, and write weights in any format.

The content hash covers the parameters in our tree, not a file's bytes. Therefore the same weights are the
same reference as .npz (scanned or not) and as safetensors (in float32 or another exact type), and a run that
was trained with one file isn't trained again with the other. The hash requires reading all tensors, so it is
cached next to the file until the file's size or time changes.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import assert_never

import numpy as np
from pydantic import ValidationError
from safetensors.numpy import save_file

from jestlab.models.config import TwoTowers
from jestlab.models.data.files import derived_path, write_whole
from jestlab.models.data.tokenizer import EOS, PAD, Tokenizer
from jestlab.models.weights import formats, huggingface
from jestlab.models.weights.files import Tensor, open_npz, open_safetensors, read_json, shards, shortened
from jestlab.models.weights.parameters import flatten

OWN_WEIGHTS, OWN_MODEL, OWN_TOKENIZER = "weights.npz", "model.json", "tokenizer.model"
"""Files of a folder in jestlab's format: weights in big_vision's layout, the towers, the tokenizer."""

_CHECKPOINTS = "checkpoints"
TOKENIZERS = (huggingface.SENTENCEPIECE, OWN_TOKENIZER, "sentencepiece.model", huggingface.TOKENIZER)
"""Names of tokenizers next to weights: SigLIP's, jestlab's and Gemma's, T5's, and SigLIP 2's."""

_REPLACEABLE = {OWN_WEIGHTS, OWN_MODEL, *TOKENIZERS, *huggingface.FILES, ".jestlab"}
_VERSION = 1  # of the content hash


# ---- tokenizers


def _tokenizer_in(folder: Path) -> Path | None:
    return next((folder / name for name in TOKENIZERS if (folder / name).is_file()), None)


def read_tokenizer(path: Path, model: TwoTowers) -> bytes:
    """Read a tokenizer and check that it fits the towers, and SigLIP's or SigLIP 2's use of special pieces.

    Returns:
        The content of the file: a sentencepiece model, or a `tokenizer.json`.

    Raises:
        FileNotFoundError: The file is missing.
        ValueError: It isn't a tokenizer, has more pieces than the text tower has embeddings, or has other
            special pieces.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such tokenizer (a sentencepiece .model, or a tokenizer.json)")
    content = path.read_bytes()
    with _located(path):
        pieces, embeddings = Tokenizer(content).pieces, model.text.vocabulary_size
        if pieces.size > embeddings:
            raise ValueError(f"has {pieces.size} pieces, but the text tower has {embeddings} embeddings")
        padding = EOS if pieces.begin == -1 else PAD
        if (pieces.end, pieces.pad) != (EOS, padding):
            raise ValueError(
                f"not a tokenizer of SigLIP or SigLIP 2: its end piece is {pieces.end}, should be {EOS}; it "
                f"pads with {pieces.pad}, should be {padding}"
            )
    return content


# ---- opened weights


def content_hash(tensors: Iterable[tuple[str, Tensor]], model: TwoTowers) -> str:
    """Return the SHA-256, 64 hex digits, of names, shapes, and bytes of the parameters, in any order.

    Args:
        tensors: Name and value, float32, of each parameter.
        model: Their towers. How they pool images and texts is hashed too, because no shape shows it.
    """
    lines = []
    for name, tensor in tensors:
        content = np.ascontiguousarray(tensor, np.dtype("<f4"))
        lines.append(f"{hashlib.sha256(content.data).hexdigest()}  {name} {list(content.shape)} float32\n")
    whole = f"{_VERSION} {model.vision.pooling} {model.text.pooling}\n" + "".join(sorted(lines))
    return hashlib.sha256(whole.encode()).hexdigest()


@dataclass(frozen=True)
class Weights:
    """Weights of two towers, whose tensors are read on demand.

    Attributes:
        path: The file or folder.
        format: One of `formats.LAYOUTS`, or "run".
        model: The towers.
        tokenizer: The tokenizer next to the weights, if any.
        read: Yields each parameter, float32, with its name in our tree.
        files: The files with the tensors; empty if the content hash isn't cached.
    """

    path: Path
    format: str
    model: TwoTowers
    tokenizer: Path | None
    read: Callable[[], Iterable[tuple[str, Tensor]]] = field(repr=False)
    files: Sequence[Path] = ()

    def tensors(self) -> dict[str, Tensor]:
        """Load every parameter, float32, by its name in our tree.

        Raises:
            ValueError: Tensors are damaged or not finite; names them.
        """
        tensors = dict(self.read())
        if broken := [name for name in sorted(tensors) if not np.isfinite(tensors[name]).all()]:
            raise ValueError(f"{self.path}: holds numbers that are not finite: {formats.named(broken)}")
        return tensors

    def digest(self) -> str:
        """Return the content hash, the same in every format; read the tensors unless it is cached."""
        if not self.files:
            return content_hash(self.read(), self.model)
        stats = {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in self.files}
        state = json.dumps([_VERSION, self.model.model_dump(mode="json"), stats], sort_keys=True)
        key = hashlib.sha256(state.encode()).hexdigest()
        folder = self.path if self.path.is_dir() else self.path.parent
        record = derived_path(folder, f"{self.path.name}-digest")
        cached = record.read_bytes().decode(errors="replace").split() if record.is_file() else []
        if len(cached) == 2 and cached[0] == key:
            return cached[1]
        digest = content_hash(self.read(), self.model)
        write_whole(record, f"{key} {digest}\n".encode())
        return digest


def open_weights(path: Path, model: TwoTowers | None = None) -> Weights:
    """Recognize weights and check the headers of their files. Imports no JAX.

    Args:
        path: An .npz file of big_vision; a .safetensors file of Hugging Face, or a folder with
            model.safetensors (or its index) and config.json; a folder that `jestlab weights import` wrote.
        model: The expected towers; None to infer them from shapes and config.json.

    Raises:
        FileNotFoundError: The path doesn't exist.
        ValueError: It isn't such a file or folder, is damaged, or has the weights of other towers; names the
            tensors.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder of weights")
    if path.name == OWN_WEIGHTS and (path.parent / OWN_MODEL).is_file():
        path = path.parent  # the file alone doesn't describe the towers
    file = _file_in(path) if path.is_dir() else path
    container: formats.Container
    if file.suffix == ".npz":
        container, archive = ("jestlab folder" if path.is_dir() else "npz file"), open_npz(file)
        if container == "jestlab folder" and model is None:
            with _located(path / OWN_MODEL):
                model = TwoTowers.model_validate_json((path / OWN_MODEL).read_bytes())
    elif file.suffix == ".safetensors" or file.name == huggingface.INDEX:
        container = "safetensors folder"
        archive = open_safetensors(shards(file) if file.name == huggingface.INDEX else [file])
        config = file.with_name(huggingface.CONFIG)
        if model is None or config.is_file():
            if not config.is_file():
                raise FileNotFoundError(
                    f"{config}: no such file: copy it from the model's page; shapes don't show how many "
                    "attention heads the towers have"
                )
            content = read_json(config)
            with _located(config):
                described = huggingface.read_config(content)
                heads = (described.vision.heads, described.text.heads)
                if model is not None and (model.vision.heads, model.text.heads) != heads:
                    raise ValueError(f"num_attention_heads is {heads[0]} and {heads[1]}, not as in `model`")
            model = model or described
    else:
        raise ValueError(
            f"{path}: neither .npz nor .safetensors; pickled weights are never loaded: "
            "save them as .safetensors"
        )

    layout = formats.detect(archive.shapes, container)
    with _located(path):
        model = model or formats.infer(archive.shapes, layout)
        entries = {entry.name: entry for entry in formats.entries(model, layout)}
        formats.check(archive.shapes, [*entries.values()])

    def read() -> Iterator[tuple[str, Tensor]]:
        for name, tensor in archive.read():
            yield from entries[name].read(tensor)

    return Weights(path, layout.name, model, _tokenizer_in(file.parent), read, archive.files)


def _file_in(folder: Path) -> Path:
    """Return the file with the tensors, or their index, in a folder; ValueError if missing."""
    if (folder / OWN_WEIGHTS).is_file() and (folder / OWN_MODEL).is_file():
        return folder / OWN_WEIGHTS
    for name in (huggingface.INDEX, huggingface.WEIGHTS):
        if (folder / name).is_file():
            return folder / name
    if (folder / _CHECKPOINTS).is_dir():
        raise ValueError(f"{folder}: the folder of a run: give the run's name instead")
    raise ValueError(
        f"{folder}: holds neither {huggingface.WEIGHTS} nor {OWN_WEIGHTS} with {OWN_MODEL}; pickled weights "
        f"are never loaded: save them as {huggingface.WEIGHTS}"
    )


@contextmanager
def _located(path: Path) -> Iterator[None]:
    """Add the path to errors, and shorten them."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = shortened(".".join(map(str, first["loc"]))) or "the file"
        raise ValueError(f"{path}: does not describe two towers: {place}: {first['msg']}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {shortened(error, 1_000)}") from error


def run_weights(directory: Path, model: TwoTowers) -> Weights:
    """Load the weights of a completed run from its folder, with `checkpoints/` and `tokenizer.model`.

    Raises:
        FileNotFoundError: The checkpoint is missing.
    """
    from jestlab.models.training.checkpoints import load_parameters

    parameters = load_parameters(directory / _CHECKPOINTS, model)
    tensors = [(name, np.asarray(leaf, np.float32)) for name, leaf in flatten(parameters)]
    return Weights(directory, "run", model, _tokenizer_in(directory), lambda: tensors)


# ---- writing


def write(
    weights: Weights, destination: Path, form: str, *, tokenizer: bytes | None = None, force: bool = False
) -> None:
    """Write weights in a format, atomically.

    Args:
        destination: A file or a folder, by the `container` of the format.
        form: One of `formats.LAYOUTS`.
        tokenizer: The tokenizer, as returned by `read_tokenizer`; it is written into folders.
        force: Whether to replace existing weights.

    Raises:
        ValueError: The format can't represent these towers, or the destination exists and can't be replaced.
    """
    if form not in formats.LAYOUTS:
        raise ValueError(f"unknown format {form!r}: expected one of {', '.join(formats.LAYOUTS)}")
    layout = formats.LAYOUTS[form]
    _check_destination(destination, layout, force)
    entries = formats.entries(weights.model, layout)
    ours = weights.tensors()
    tensors = {entry.name: entry.write(ours) for entry in entries}

    destination.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{destination.name}.", dir=destination.parent) as temporary:
        built = Path(temporary) / destination.name
        if layout.container == "npz file":
            np.savez(built, allow_pickle=False, **tensors)
        elif layout.container == "safetensors folder":
            built.mkdir()
            save_file(tensors, built / huggingface.WEIGHTS, metadata={"format": "pt"})
            huggingface.write_files(built, weights.model, tokenizer)
        elif layout.container == "jestlab folder":
            built.mkdir()
            np.savez(built / OWN_WEIGHTS, allow_pickle=False, **tensors)
            (built / OWN_MODEL).write_text(weights.model.model_dump_json(indent=2) + "\n")
            if tokenizer is not None:
                (built / OWN_TOKENIZER).write_bytes(tokenizer)
        else:
            assert_never(layout.container)
        if destination.is_dir():
            shutil.rmtree(destination)
        built.replace(destination)


def _check_destination(destination: Path, layout: formats.TensorLayout, force: bool) -> None:
    """Raise ValueError if weights can't be written there."""
    is_folder = layout.container != "npz file"
    if not is_folder and destination.suffix != ".npz":
        raise ValueError(f"{destination}: {layout.name} is one file: give a name that ends in .npz")
    if not destination.exists():
        return
    held = {entry.name for entry in destination.iterdir()} if destination.is_dir() else set()
    if destination.is_dir() != is_folder or held - _REPLACEABLE:
        raise ValueError(f"{destination}: already exists, with other content: choose another name")
    if not force and (held or not is_folder):
        raise ValueError(f"{destination}: already exists: choose another name, or replace it with --force")
