"""The content hash of weights: what they are, in whatever format and wherever they lie.

It is taken over the parameters in our own tree, not over a file's bytes: so the same weights as .npz, scanned
or not, as safetensors in float32 or another exact type, are the same reference, and what was trained with the
one is not trained again with the other. The price is that the tensors must be read once; the hash is kept
beside the file, as those of data folders are, and taken anew when size or time of a file changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..config import TwoTowers
from ..data.files import derived_path, write_whole
from .tree import Tensor

_VERSION = 1  # of the recipe below


def content_hash(tensors: Iterable[tuple[str, Tensor]], model: TwoTowers) -> str:
    """SHA-256 over names, shapes and bytes of the parameters, whatever their order.

    Args:
        tensors: Name and value, float32, of each parameter.
        model: Their towers: how texts and images are pooled is part of what they are, and in no shape.

    Returns:
        64 hex digits.
    """
    lines = []
    for name, tensor in tensors:
        content = np.ascontiguousarray(tensor, np.dtype("<f4"))
        lines.append(f"{hashlib.sha256(content.data).hexdigest()}  {name} {list(content.shape)} float32\n")
    whole = f"{_VERSION} {model.vision.pooling} {model.text.pooling}\n" + "".join(sorted(lines))
    return hashlib.sha256(whole.encode()).hexdigest()


def kept(path: Path, files: Sequence[Path], model: TwoTowers, compute: Callable[[], str]) -> str:
    """A hash that is computed once and kept beside what it is of.

    Args:
        path: What lies there, a file or a folder.
        files: What it is made of.
        model: Its towers.
        compute: Computes the hash.

    Returns:
        64 hex digits.
    """
    folder = path if path.is_dir() else path.parent
    record = derived_path(folder, f"{path.name}-digest.json" if path != folder else "weights-digest.json")
    about: dict[str, Any] = {"version": _VERSION, "model": model.model_dump(mode="json"), "files": {}}
    for file in files:
        stat = file.stat()
        about["files"][file.name] = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    try:
        known = json.loads(record.read_text())
    except (FileNotFoundError, ValueError):
        known = {}
    if known.get("of") == about and isinstance(known.get("digest"), str):
        return str(known["digest"])
    digest = compute()
    write_whole(record, json.dumps({"digest": digest, "of": about}, indent=1).encode())
    return digest
