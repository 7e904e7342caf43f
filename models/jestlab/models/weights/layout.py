"""How the parameters lie in somebody else's file: a table of its tensors, each made of one or more of ours.

Formats give such a table (`big_vision.py`, `huggingface.py`); reading, writing and checking follow from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .tree import Shape, Tensor

_NAMED = 10  # tensors in a list of an error


@dataclass(frozen=True)
class Part:
    """One of our parameters as another layout holds it: reshaped, then its axes permuted.

    Attributes:
        name: Ours.
        shape: Ours.
        reshaped: Shape before the axes are permuted; None for ours.
        axes: Their order; None for as they are.
    """

    name: str
    shape: Shape
    reshaped: Shape | None = None
    axes: tuple[int, ...] | None = None

    @property
    def their_shape(self) -> Shape:
        """Shape in the other layout."""
        shape = self.reshaped or self.shape
        return shape if self.axes is None else tuple(shape[axis] for axis in self.axes)

    def to_theirs(self, ours: Tensor) -> Tensor:
        """Our parameter, laid out as they do."""
        array = ours.reshape(self.reshaped or self.shape)
        return array if self.axes is None else array.transpose(self.axes)

    def to_ours(self, theirs: Tensor) -> Tensor:
        """Their tensor, laid out as we do."""
        array = (
            theirs if self.axes is None else theirs.transpose([int(axis) for axis in np.argsort(self.axes)])
        )
        return array.reshape(self.shape)


@dataclass(frozen=True)
class Entry:
    """One tensor of another layout.

    Attributes:
        name: Theirs.
        parts: Our parameters in it.
        stacked: Whether they lie along a new first axis, rather than one after another along the first.
    """

    name: str
    parts: tuple[Part, ...]
    stacked: bool = False

    @property
    def shape(self) -> Shape:
        """Its shape."""
        first, *rest = self.parts[0].their_shape
        count = len(self.parts)
        return (count, first, *rest) if self.stacked else (count * first, *rest)

    def read(self, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Our parameters in their tensor."""
        pieces = tensor if self.stacked else np.split(tensor, len(self.parts))
        for part, piece in zip(self.parts, pieces, strict=True):
            yield part.name, part.to_ours(piece)

    def write(self, ours: Mapping[str, Tensor]) -> Tensor:
        """Their tensor, contiguous, of our parameters."""
        pieces = [part.to_theirs(ours[part.name]) for part in self.parts]
        if self.stacked:
            return np.stack(pieces)
        return np.ascontiguousarray(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))


def check(found: Mapping[str, Shape], entries: Sequence[Entry]) -> None:
    """Compare the tensors of a file with a layout.

    Args:
        found: Name → shape of each tensor in the file.
        entries: The layout.

    Raises:
        ValueError: Names what is missing, unexpected, or of the wrong shape.
    """
    expected = {entry.name: entry.shape for entry in entries}
    wrong = [
        f"{name} {found[name]}, should be {expected[name]}"
        for name in expected
        if name in found and found[name] != expected[name]
    ]
    problems = {
        "missing": [name for name in expected if name not in found],
        "unexpected": [name for name in found if name not in expected],
        "wrong shape": wrong,
    }
    if any(problems.values()):
        said = "; ".join(f"{problem}: {named(names)}" for problem, names in problems.items() if names)
        raise ValueError(f"does not hold the weights of two towers: {said}")


def require(found: Mapping[str, Shape], ranks: Mapping[str, int]) -> None:
    """Check for the tensors whose shapes tell the architecture.

    Args:
        found: Name → shape of each tensor in the file.
        ranks: Name → number of axes of each that must be there.

    Raises:
        ValueError: Names those that are missing or have another number of axes.
    """
    if not any(name in found for name in ranks):
        raise ValueError(f"holds no weights of two SigLIP towers, but {named(list(found)) or 'nothing'}")
    missing = [name for name in ranks if name not in found]
    if missing:
        raise ValueError(f"does not hold the weights of two towers: missing: {named(missing)}")
    wrong = [
        f"{name} {found[name]}, should have {rank} axes"
        for name, rank in ranks.items()
        if len(found[name]) != rank
    ]
    if wrong:
        raise ValueError(f"does not hold the weights of two towers: wrong shape: {named(wrong)}")


def named(names: Sequence[str]) -> str:
    """A list for an error, cut to the first ones and a count of the others."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def side_of(positions: int) -> int:
    """Side of a square grid of image positions.

    Raises:
        ValueError: It is not square.
    """
    side = math.isqrt(positions)
    if side * side != positions:
        raise ValueError(f"has {positions} image positions, which are no square grid: not supported")
    return side


_HEADS = {192: 3, 384: 6, 512: 8, 768: 12, 1024: 16, 1152: 16, 1280: 16, 1408: 16, 1664: 16, 1792: 16}


def usual_heads(width: int) -> int:
    """Heads of a published tower of this width (big_vision's `models/vit.py`), else one for every 64.

    Raises:
        ValueError: That is no whole number.
    """
    if width not in _HEADS and width % 64:
        raise ValueError(f"does not say the number of heads of width {width}: put its config.json beside it")
    return _HEADS.get(width, width // 64)
