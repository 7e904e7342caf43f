"""Files of named tensors, of which the headers are read first and the tensors when they are asked for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .tree import Shape, Tensor

BFLOAT16: np.dtype[ml_dtypes.bfloat16] = np.dtype(ml_dtypes.bfloat16)
READABLE = frozenset({np.dtype(np.float32), np.dtype(np.float16), BFLOAT16})
"""What becomes float32 without rounding."""


class Archive(Protocol):
    """Named tensors somewhere."""

    @property
    def files(self) -> tuple[Path, ...]:
        """What it is made of: while none of them changes, neither do the tensors."""

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Name → shape of each tensor."""

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Tensors, one after another, as float32.

        Raises:
            ValueError: One is damaged, or neither float32, float16 nor bfloat16; file and name are said.
        """


class Memory:
    """Tensors in memory."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.files: tuple[Path, ...] = ()
        self.shapes = {name: tensor.shape for name, tensor in tensors.items()}
        self._tensors = tensors

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Tensors, one after another."""
        return ((name, self._tensors[name]) for name in names)


def readable(where: str, dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """The type as which a tensor is read.

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


def as_float32(array: npt.NDArray[np.generic]) -> Tensor:
    """The same numbers as float32."""
    return array.astype(np.float32, copy=False)


def size_of(shape: Shape, dtype: np.dtype[np.generic]) -> int:
    """Bytes of a tensor."""
    return math.prod(shape) * dtype.itemsize
