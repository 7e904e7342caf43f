"""safetensors files: one, or several that share the tensors of a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from .archive import as_float32, readable
from .tree import Shape, Tensor

_DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}


class TensorFiles:
    """The tensors of safetensors files.

    Attributes:
        files: The files.
        shapes: Name → shape of each tensor.
    """

    def __init__(self, files: Iterable[Path], ignored: Callable[[str], bool]) -> None:
        """Read the headers.

        Args:
            files: One or more.
            ignored: Whether a tensor is left out.

        Raises:
            ValueError: One is no such file or cut off, or two hold the same tensor.
        """
        self.files = tuple(files)
        self.shapes: dict[str, Shape] = {}
        self._places: dict[str, tuple[Path, np.dtype[np.generic], int]] = {}
        for path in self.files:
            for name, (shape, kind, begin) in _headers(path).items():
                if ignored(name):
                    continue
                if name in self.shapes:
                    raise ValueError(f"{path}: {name} is in {self._places[name][0].name} too")
                dtype = readable(f"{path}: {name}", _DTYPES[kind]) if kind in _DTYPES else None
                if dtype is None:
                    raise ValueError(f"{path}: {name} is {kind}: only F32, F16 and BF16 are read")
                self.shapes[name] = shape
                self._places[name] = (path, dtype, begin)

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Tensors, one after another, as float32."""
        for name in names:
            path, dtype, begin = self._places[name]
            shape = self.shapes[name]
            with path.open("rb") as stream:
                stream.seek(begin)
                array = np.fromfile(stream, dtype, count=int(np.prod(shape)))
            yield name, as_float32(array.reshape(shape))


def _headers(path: Path) -> dict[str, tuple[Shape, str, int]]:
    """Name → shape, type and first byte of each tensor.

    The library checks that the header is sound and the file whole. It does not hand out bfloat16 to NumPy,
    so the tensors' bytes are found and read here.
    """
    try:
        with safe_open(path, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file") from error
        raise ValueError(f"{path}: is no whole safetensors file ({error}): copy it again") from error
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
    return {
        name: (tuple(about["shape"]), about["dtype"], 8 + length + about["data_offsets"][0])
        for name, about in header.items()
        if name != "__metadata__"
    }


def shards(index: Path) -> list[Path]:
    """The files that an index (`model.safetensors.index.json`) names, all in its own folder.

    Raises:
        ValueError: It is no such index.
    """
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = sorted(set(weight_map.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index}: is no index of safetensors files: weight_map is missing") from error
    if any(not isinstance(name, str) or Path(name).name != name for name in names):
        raise ValueError(f"{index}: names files outside its folder")
    return [index.parent / name for name in names]


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors into one file, which transformers takes for PyTorch's."""
    from safetensors.numpy import save_file

    # NOTE: footgun: save_file writes the memory as it lies, so a transposed view would be saved untransposed.
    save_file({name: np.ascontiguousarray(x) for name, x in tensors.items()}, path, metadata={"format": "pt"})
