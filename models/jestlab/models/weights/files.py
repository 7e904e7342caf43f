"""Files of named tensors: .npz and safetensors with headers read first and tensors on demand.

Files are read with suspicion: no pickles, nothing larger than it claims, nothing truncated.
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Protocol

import ml_dtypes
import numpy as np
from numpy.lib import format as npy
from safetensors import SafetensorError, safe_open

from jestlab.models.weights.layout import Shape, Tensor

BFLOAT16: np.dtype[ml_dtypes.bfloat16] = np.dtype(ml_dtypes.bfloat16)
READABLE = frozenset({np.dtype(np.float32), np.dtype(np.float16), BFLOAT16})
"""Types that can be converted to float32 without rounding."""


class Archive(Protocol):
    """A collection of named tensors."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files it is made of: while none of them changes, neither do the tensors."""

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shape of each tensor, by name."""

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Read tensors, one after another, as float32.

        Raises:
            ValueError: A tensor is damaged, or neither float32, float16 nor bfloat16; names file and tensor.
        """


class Memory:
    """An archive of tensors in memory."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.files: tuple[Path, ...] = ()
        self.shapes = {name: tensor.shape for name, tensor in tensors.items()}
        self._tensors = tensors

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Read tensors, as described at `Archive.read`."""
        return ((name, self._tensors[name]) for name in names)


def readable(where: str, dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return the type as which a tensor is read.

    Args:
        where: File and name, for the error.
        dtype: As stored. NumPy files know no bfloat16: big_vision's hold it as two bytes without a type.

    Raises:
        ValueError: It cannot become float32 without rounding.
    """
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None:
        return BFLOAT16
    if dtype.newbyteorder("=") not in READABLE:
        raise ValueError(f"{where} is {dtype}: only float32, float16 and bfloat16 are read")
    return dtype


_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)
_LONGEST_NAME = 200
_LARGEST_RATIO = 100
"""Maximum ratio of size to compressed size of a file: trained weights hardly shrink, zip bombs do."""


def shortened(said: object, most: int = 200) -> str:
    """Return what is said about damage, on a short line: some libraries, and we, quote the file."""
    line = " ".join(str(said).split())
    return line if len(line) <= most else f"{line[:most]} …"


def _check_names(path: Path, names: Iterable[str]) -> None:
    """Raise ValueError for names that no tensor and no file has, and that no message could quote."""
    names = list(names)
    if odd := [name for name in names if not name.isprintable()]:
        raise ValueError(f"{path}: {odd[0][:60]!r} is no name of a tensor or file: not plausible for weights")
    if (longest := max(map(len, names), default=0)) > _LONGEST_NAME:
        raise ValueError(
            f"{path}: a tensor's or file's name has {longest:,} letters: not plausible for weights"
        )


class Npz:
    """An archive of the arrays in an .npz file."""

    def __init__(self, path: Path, prefix: str = "") -> None:
        """Read the headers of the arrays.

        Args:
            path: The file.
            prefix: If any name begins with it, only such arrays count, without the prefix.

        Raises:
            ValueError: It is not an .npz file, is truncated, holds pickled objects, or sizes that differ from
                the claimed ones.
        """
        self.files = (path,)
        self._path = path
        with self._open() as archive:
            members = {
                info.filename.removesuffix(".npy"): info
                for info in archive.infolist()
                if info.filename.endswith(".npy")
            }
            _check_names(path, members)
            chosen = [name for name in members if prefix and name.startswith(prefix)]
            self._members = {name.removeprefix(prefix): members[name] for name in chosen or members}
            packed = sum(info.compress_size for info in self._members.values())
            unpacked = sum(info.file_size for info in self._members.values())
            if unpacked > _LARGEST_RATIO * packed:
                raise ValueError(
                    f"{path}: would grow from {packed:,} to {unpacked:,} bytes: not plausible for weights"
                )
            self.shapes = {name: self._header(archive, name) for name in self._members}

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Read tensors, as described at `Archive.read`."""
        with self._open() as archive:
            for name in names:
                try:
                    with archive.open(self._members[name]) as stream:
                        array = npy.read_array(stream, allow_pickle=False)
                except _DAMAGED as error:
                    raise ValueError(
                        f"{self._path}: {name} is damaged ({shortened(error)}): copy the file again"
                    ) from error
                dtype = readable(f"{self._path}: {name}", array.dtype)
                yield name, array.view(dtype).astype(np.float32, copy=False)

    def _open(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self._path)
        except _DAMAGED as error:
            raise ValueError(
                f"{self._path}: not a complete .npz file ({shortened(error)}): copy it again"
            ) from error

    def _header(self, archive: zipfile.ZipFile, name: str) -> Shape:
        """Return the shape in an array's header, checked against its size."""
        info = self._members[name]
        try:
            with archive.open(info) as stream:
                shape, dtype = _read_header(stream)
                begin = stream.tell()
        except _DAMAGED as error:
            raise ValueError(
                f"{self._path}: {name} is damaged ({shortened(error)}): copy the file again"
            ) from error
        if dtype.hasobject:
            raise ValueError(f"{self._path}: {name} holds pickled objects, which are never loaded")
        said, found = math.prod(shape) * dtype.itemsize, info.file_size - begin
        if said != found:
            raise ValueError(f"{self._path}: {name} claims {said:,} bytes, but has {found:,}")
        return shape


def _read_header(stream: IO[bytes]) -> tuple[Shape, np.dtype[np.generic]]:
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"format {version[0]}.{version[1]} is not known")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(stream)
    return tuple(shape), dtype


def write_npz(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write arrays to an uncompressed .npz file, whatever the file's name ends in."""
    with path.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **dict(tensors))


_DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}


class TensorFiles:
    """An archive of the tensors in safetensors files."""

    def __init__(self, files: Iterable[Path], ignored: Callable[[str], bool]) -> None:
        """Read the headers of the files, without the tensors that are `ignored`.

        Raises:
            ValueError: One is not such a file or is truncated, or two hold the same tensor.
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
        """Read tensors, as described at `Archive.read`."""
        for name in names:
            path, dtype, begin = self._places[name]
            shape = self.shapes[name]
            array = np.fromfile(path, dtype, count=math.prod(shape), offset=begin)
            yield name, array.reshape(shape).astype(np.float32, copy=False)


def _headers(path: Path) -> dict[str, tuple[Shape, str, int]]:
    """Return shape, type and first byte of each tensor, by name.

    The library checks that the header is sound and the file whole. It does not hand out bfloat16 to NumPy,
    so the tensors' bytes are found and read here.
    """
    try:
        with safe_open(path, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file") from error
        raise ValueError(
            f"{path}: not a complete safetensors file ({shortened(error)}): copy it again"
        ) from error
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
    _check_names(path, header)
    return {
        name: (tuple(about["shape"]), about["dtype"], 8 + length + about["data_offsets"][0])
        for name, about in header.items()
        if name != "__metadata__"
    }


def shards(index: Path) -> list[Path]:
    """Return the files that an index (`model.safetensors.index.json`) names, all in its own folder.

    Raises:
        ValueError: It is not such an index.
    """
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = sorted(set(weight_map.values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{index}: not an index of safetensors files: weight_map is missing") from error
    if any(not isinstance(name, str) or Path(name).name != name for name in names):
        raise ValueError(f"{index}: names files outside its folder")
    _check_names(index, names)
    return [index.parent / name for name in names]


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors into one file, marked as PyTorch's for transformers."""
    from safetensors.numpy import save_file

    # NOTE: footgun: save_file writes memory in its physical order, so a transposed view would be saved wrong.
    save_file({name: np.ascontiguousarray(x) for name, x in tensors.items()}, path, metadata={"format": "pt"})
