"""The reference's embeddings in files, written once and looked up by the examples' keys.

A file is in the safetensors format, with any number of examples:

    image, text        float16 or float32 [n, E], unit length
    temperature, bias  float32 []
    keys               uint8 [bytes]: the examples' keys in UTF-8, separated by a zero byte

Reading maps the files into memory and copies only the rows that are asked for.
"""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .criteria import Embeddings

__all__ = ["ReferenceCache", "write_embeddings"]

SUFFIX = ".safetensors"


def write_embeddings(
    path: str | os.PathLike[str], keys: Iterable[str], embeddings: Embeddings | tuple[Any, ...]
) -> None:
    """Write a file of embeddings. An interrupted call leaves no file, so a file that exists is complete.

    Args:
        path: The file, `….safetensors`; an existing one is replaced.
        keys: The keys of the n examples, such as `__key__` of a WebDataset: any text without zero bytes.
        embeddings: By the reference: image [n, E], text [n, E], t, and bias, as arrays of NumPy or tensors on
            the CPU. They are stored as float16 if they are, else as float32.

    Raises:
        ValueError: The path has another suffix, there are not n different keys, or one has a zero byte.
    """
    from safetensors.numpy import save_file

    path, keys = Path(path), list(keys)
    image, text, temperature, bias = Embeddings(*embeddings)
    rows = {name: _as_stored(x) for name, x in (("image", image), ("text", text))}
    if path.suffix != SUFFIX:
        raise ValueError(f"{path}: name the file …{SUFFIX}")
    if len(set(keys)) != len(keys) or any("\0" in key for key in keys):
        raise ValueError(f"{path}: keys must be different and have no zero bytes")
    if any(len(x) != len(keys) for x in rows.values()):
        raise ValueError(
            f"{path}: {len(keys)} keys, but {len(rows['image'])} images and {len(rows['text'])} texts"
        )
    scalars = {"temperature": np.float32(temperature), "bias": np.float32(bias)}
    tensors = {
        **rows,
        **{name: np.asarray(x) for name, x in scalars.items()},
        "keys": np.frombuffer("\0".join(keys).encode(), np.uint8),
    }
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(tensors, unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


class ReferenceCache:
    """The embeddings in one or several files, looked up by key."""

    def __init__(self, *paths: str | os.PathLike[str]) -> None:
        """Open files, and all files in folders.

        Raises:
            FileNotFoundError: There are no such files.
            ValueError: A file is damaged or holds something else, files are of different references, or a key
                is in two of them.
        """
        files = [
            file
            for path in map(Path, paths)
            for file in (sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path])
        ]
        if not files:
            raise FileNotFoundError(f"no {SUFFIX} files in {', '.join(map(str, paths))}")
        self._places: dict[str, tuple[int, int]] = {}
        self._rows: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = []
        scalars: dict[tuple[float, float, int], Path] = {}
        for file in files:
            tensors = _mapped(file)
            keys = tensors["keys"].tobytes().decode().split("\0") if len(tensors["keys"]) else []
            for row, key in enumerate(keys):
                if key in self._places:
                    raise ValueError(f"{file}: key {key!r} is also in {files[self._places[key][0]]}")
                self._places[key] = len(self._rows), row
            self._rows.append((tensors["image"], tensors["text"]))
            about = float(tensors["temperature"]), float(tensors["bias"]), tensors["image"].shape[1]
            scalars.setdefault(about, file)
        if len(scalars) > 1:
            one, other, *_ = scalars.values()
            raise ValueError(f"{one} and {other}: embeddings of different references")
        [(self.temperature, self.bias, self.width)] = scalars

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def __getitem__(self, keys: Sequence[str]) -> Embeddings:
        """Look up examples: float32 [n, E], in the order of their keys.

        Raises:
            KeyError: Examples are missing; the message has their number and the first.
        """
        if missing := [key for key in keys if key not in self._places]:
            raise KeyError(
                f"{len(missing)} of {len(keys)} examples have no embeddings, such as {missing[0]!r}"
            )
        places = np.array([self._places[key] for key in keys], np.int64).reshape(-1, 2)
        image, text = (np.empty((len(keys), self.width), np.float32) for _ in range(2))
        for number in np.unique(places[:, 0]):
            is_here = places[:, 0] == number
            for into, stored in zip((image, text), self._rows[number], strict=True):
                into[is_here] = stored[places[is_here, 1]]
        return Embeddings(image, text, self.temperature, self.bias)


def _as_stored(x: Any) -> npt.NDArray[Any]:
    """Return float16 or float32 [n, E]."""
    array = np.asarray(x.detach().float() if str(getattr(x, "dtype", "")) == "torch.bfloat16" else x)
    return np.ascontiguousarray(array, np.float16 if array.dtype == np.float16 else np.float32)


def _mapped(file: Path) -> dict[str, npt.NDArray[Any]]:
    """Map the tensors of a file into memory. (`safetensors.safe_open` would copy whole tensors.)

    The format: the header's length as uint64, the header in JSON, and the data that it describes.
    """
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if length > file.stat().st_size:
                raise ValueError("its header is incomplete")
            header = json.loads(opened.read(length))
        data = np.memmap(file, np.uint8, "r", offset=8 + length)
        types = {"F16": np.float16, "F32": np.float32, "U8": np.uint8}
        return {
            name: data[slice(*header[name]["data_offsets"])]
            .view(types[header[name]["dtype"]])
            .reshape(header[name]["shape"])
            for name in ("image", "text", "temperature", "bias", "keys")
        }
    except (ValueError, KeyError, OverflowError, MemoryError) as error:
        raise ValueError(f"{file}: damaged, or not written by write_embeddings ({error})") from None
