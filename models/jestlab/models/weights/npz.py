"""NumPy's .npz files, read with suspicion: no pickles, nothing larger than it says, nothing cut off."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from .archive import as_float32, readable, size_of
from .tree import Shape, Tensor

_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)
_LARGEST_RATIO = 100
"""Of bytes to compressed bytes, over the whole file: trained weights hardly shrink, zip bombs do."""


class Npz:
    """The arrays of an .npz file.

    Attributes:
        files: The file.
        shapes: Name → shape of each array.
    """

    def __init__(self, path: Path, prefix: str = "") -> None:
        """Read the headers.

        Args:
            path: The file.
            prefix: Where any name begins with it, only such arrays count, without it.

        Raises:
            ValueError: It is no such file, is cut off, holds pickled objects, or other sizes than it says.
        """
        self.files = (path,)
        self._path = path
        with self._open() as archive:
            members = {
                info.filename.removesuffix(".npy"): info
                for info in archive.infolist()
                if info.filename.endswith(".npy")
            }
            chosen = [name for name in members if prefix and name.startswith(prefix)]
            self._members = {name.removeprefix(prefix): members[name] for name in chosen or members}
            packed = sum(info.compress_size for info in self._members.values())
            unpacked = sum(info.file_size for info in self._members.values())
            if unpacked > _LARGEST_RATIO * packed:
                raise ValueError(
                    f"{path}: would grow from {packed:,} to {unpacked:,} bytes: no weights do that"
                )
            self.shapes = {name: self._header(archive, name) for name in self._members}

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Arrays, one after another, as float32.

        Raises:
            ValueError: One is damaged, or neither float32, float16 nor bfloat16; file and name are said.
        """
        with self._open() as archive:
            for name in names:
                try:
                    with archive.open(self._members[name]) as stream:
                        array = npy.read_array(stream, allow_pickle=False)
                except _DAMAGED as error:
                    raise ValueError(
                        f"{self._path}: {name} is damaged ({error}): copy the file again"
                    ) from error
                yield name, as_float32(array.view(readable(self._where(name), array.dtype)))

    def _open(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self._path)
        except _DAMAGED as error:
            raise ValueError(f"{self._path}: is no whole .npz file ({error}): copy it again") from error

    def _header(self, archive: zipfile.ZipFile, name: str) -> Shape:
        """The shape that an array's header says, held against its size."""
        info = self._members[name]
        try:
            with archive.open(info) as stream:
                shape, dtype = _read_header(stream)
                begin = stream.tell()
        except _DAMAGED as error:
            raise ValueError(f"{self._path}: {name} is damaged ({error}): copy the file again") from error
        if dtype.hasobject:
            raise ValueError(f"{self._path}: {name} holds pickled objects, which are never loaded")
        said, found = size_of(shape, dtype), info.file_size - begin
        if said != found:
            raise ValueError(f"{self._path}: {name} says that it has {said:,} bytes, but has {found:,}")
        return shape

    def _where(self, name: str) -> str:
        return f"{self._path}: {name}"


def _read_header(stream: IO[bytes]) -> tuple[Shape, np.dtype[np.generic]]:
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"format {version[0]}.{version[1]} is not known")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(stream)
    return tuple(shape), dtype


def write(stream: IO[bytes], tensors: Mapping[str, Tensor]) -> None:
    """Write arrays, uncompressed."""
    np.savez(stream, allow_pickle=False, **dict(tensors))
