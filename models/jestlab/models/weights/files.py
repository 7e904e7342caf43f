"""Read the headers of .npz and safetensors files first, and tensors on demand, as float32.

Files aren't trusted: no pickles, and no sizes beyond those of the file.
"""

import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy
from safetensors import SafetensorError, safe_open

from jestlab.models.weights.parameters import Shape

Tensor = npt.NDArray[np.float32]

_CHECKPOINT = "params/"  # prefix of the names in a checkpoint that also holds the state of the optimizer
_LONGEST_NAME = 200
_LARGEST_RATIO = 100  # of size to compressed size: trained weights hardly shrink, zip bombs do
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    SafetensorError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)
"""What libraries raise for damaged files."""
_EXACT = (np.dtype(np.float32), np.dtype(np.float16), _BFLOAT16)  # can become float32 without rounding


@dataclass(frozen=True)
class Archive:
    """Named tensors in files.

    Attributes:
        files: The files.
        shapes: Name → shape of each tensor.
        read: Yields the name and the value, as float32, of each tensor. Raises ValueError if a tensor is
            damaged or isn't float32, float16, or bfloat16.
    """

    files: Sequence[Path]
    shapes: Mapping[str, Shape]
    read: Callable[[], Iterator[tuple[str, Tensor]]]


def shortened(text: object, most: int = 200) -> str:
    """Return a text on one short line, because messages of libraries quote the file."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else f"{line[:most]} …"


@contextmanager
def _explained(problem: str) -> Iterator[None]:
    """Raise ValueError with this problem for any error of a library that reads a damaged file."""
    try:
        yield
    except _DAMAGED as error:
        raise ValueError(f"{problem} ({shortened(error)}): copy the file again") from error


def _check_names(path: Path, names: Iterable[str]) -> None:
    """Raise ValueError for a name that isn't plausible and can't be quoted in a message."""
    for name in names:
        if not name.isprintable() or len(name) > _LONGEST_NAME:
            raise ValueError(
                f"{path}: {name[:60]!r}, of {len(name):,} characters, is not plausible as a tensor's name"
            )


# ---- .npz


def open_npz(path: Path) -> Archive:
    """Read the headers of the arrays in an .npz file; of a checkpoint, only those of the parameters.

    Raises:
        ValueError: The file isn't a complete .npz file, contains pickled objects, or declares wrong sizes.
    """
    with _unzipped(path) as archive:
        infos = {
            i.filename.removesuffix(".npy"): i for i in archive.infolist() if i.filename.endswith(".npy")
        }
        _check_names(path, infos)
        prefixed = [name for name in infos if name.startswith(_CHECKPOINT)]
        members = {name.removeprefix(_CHECKPOINT): infos[name] for name in prefixed or infos}
        packed = sum(info.compress_size for info in members.values())
        unpacked = sum(info.file_size for info in members.values())
        if unpacked > _LARGEST_RATIO * packed:
            raise ValueError(
                f"{path}: would grow from {packed:,} to {unpacked:,} bytes: not plausible for weights"
            )
        shapes = {name: _npy_shape(f"{path}: {name}", archive, info) for name, info in members.items()}

    def read() -> Iterator[tuple[str, Tensor]]:
        with _unzipped(path) as archive:
            for name, info in members.items():
                with _explained(f"{path}: {name} is damaged"), archive.open(info) as stream:
                    array = npy.read_array(stream, allow_pickle=False)
                if array.dtype == np.dtype("V2"):
                    array = array.view(_BFLOAT16)  # NumPy files can't store this type, only its bytes
                if array.dtype.newbyteorder("=") not in _EXACT:
                    raise ValueError(
                        f"{path}: {name} is {array.dtype}: only float32, float16 and bfloat16 are read"
                    )
                yield name, array.astype(np.float32, copy=False)

    return Archive([path], shapes, read)


def _unzipped(path: Path) -> zipfile.ZipFile:
    with _explained(f"{path}: not a complete .npz file"):
        return zipfile.ZipFile(path)


def _npy_shape(place: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Shape:
    """Return the shape in an array's header, after checking it against the array's size."""
    with _explained(f"{place} is damaged"), archive.open(info) as stream:
        is_first = npy.read_magic(stream) == (1, 0)
        read_header = npy.read_array_header_1_0 if is_first else npy.read_array_header_2_0
        shape, _, dtype = read_header(stream)
        size = info.file_size - stream.tell()
    if dtype.hasobject:
        raise ValueError(f"{place} holds pickled objects, which are never loaded")
    if (declared := math.prod(shape) * dtype.itemsize) != size:
        raise ValueError(f"{place} claims {declared:,} bytes, but has {size:,}")
    return tuple(shape)


# ---- safetensors


def open_safetensors(files: Sequence[Path]) -> Archive:
    """Read the headers of safetensors files.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file isn't a complete safetensors file, or two contain the same tensor.
    """
    shapes: dict[str, Shape] = {}
    for path in files:
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file")
        with _safely_opened(path) as archive:
            names = _parameters(archive)
            _check_names(path, names)
            for name in names:
                header = archive.get_slice(name)
                if name in shapes:
                    raise ValueError(f"{path}: {name} is in another file too")
                if (dtype := header.get_dtype()) not in ("F32", "F16", "BF16"):
                    raise ValueError(f"{path}: {name} is {dtype}: only F32, F16 and BF16 are read")
                shapes[name] = tuple(header.get_shape())

    def read() -> Iterator[tuple[str, Tensor]]:
        for path in files:
            with _safely_opened(path) as archive:
                for name in _parameters(archive):
                    yield name, archive.get_tensor(name).astype(np.float32, copy=False)

    return Archive(files, shapes, read)


def _safely_opened(path: Path) -> Any:
    with _explained(f"{path}: not a complete safetensors file"):
        return safe_open(path, framework="numpy")


def _parameters(archive: Any) -> list[str]:
    """Return the names of parameters: older versions of transformers also saved the numbers of positions."""
    return [name for name in archive.keys() if not name.endswith(".position_ids")]  # noqa: SIM118


def shards(index: Path) -> list[Path]:
    """Return the files that an index (`model.safetensors.index.json`) lists, all in the index's folder.

    Raises:
        ValueError: It isn't such an index, or it lists files in other folders.
    """
    listed = read_json(index).get("weight_map")
    names = {*map(str, listed.values())} if isinstance(listed, dict) else {""}
    if any(not name or Path(name).name != name for name in names):
        raise ValueError(f"{index}: weight_map must list the file of each tensor, in the same folder")
    _check_names(index, names)
    return [index.parent / name for name in sorted(names)]


def read_json(path: Path) -> dict[str, Any]:
    """Read a mapping from a JSON file; ValueError if the file has other content."""
    with _explained(f"{path}: not a JSON file"):
        content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path}: must be a mapping")
    return content
