"""Names and shapes of our parameters, and how they are laid out in another format's file.

A parameter is named by its path in the tree of `two_towers.Parameters`: `img/embedding/kernel`. Another
format is a table of its tensors, each made of one or more of our parameters (`big_vision.py`,
`huggingface.py`); reading, writing and checking follow from the table. Nothing here needs JAX, because plans
read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jestlab.models.config import TwoTowers

Shape = tuple[int, ...]
Tensor = npt.NDArray[np.float32]

ENCODERS = {"img": "img/Transformer", "txt": "txt/Encoder_0"}
"""Tower → its encoder."""

MAP_HEAD = "img/MAPHead_0"
ATTENTION, MLP = "MultiHeadDotProductAttention_0", "MlpBlock_0"


def parameter_shapes(config: TwoTowers) -> dict[str, Shape]:
    """Return the shape of every parameter by its name; all are float32."""
    vision, text, embedding = config.vision, config.text, config.embedding_dim
    d, patch = vision.width, vision.patch_size
    shapes = {
        "t": (1,),
        "b": (1,),
        "img/pos_embedding": (1, (vision.image_size // patch) ** 2, d),
        **_affine("img/embedding", (patch, patch, 3), (d,)),
        **_encoder(ENCODERS["img"], d, vision.depth, vision.heads, vision.mlp_dim or 4 * d),
    }
    if vision.pooling == "map":
        shapes |= {
            f"{MAP_HEAD}/probe": (1, 1, d),
            **_attention(f"{MAP_HEAD}/{ATTENTION}", d, vision.heads),
            **_norm(f"{MAP_HEAD}/LayerNorm_0", d),
            **_mlp(f"{MAP_HEAD}/{MLP}", d, vision.mlp_dim or 4 * d),
        }
    if embedding != d:
        shapes |= _affine("img/head", (d,), (embedding,))
    d = text.width
    return shapes | {
        "txt/Embed_0/embedding": (text.vocabulary_size, d),
        "txt/pos_embedding": (1, text.length, d),
        **_encoder(ENCODERS["txt"], d, text.depth, text.heads, text.mlp_dim or 4 * d),
        **_affine("txt/head", (d,), (embedding,)),
    }


def _encoder(name: str, d: int, depth: int, heads: int, mlp_dim: int) -> dict[str, Shape]:
    shapes = _norm(f"{name}/encoder_norm", d)
    for layer in range(depth):
        block = f"{name}/encoderblock_{layer}"
        shapes |= {
            **_norm(f"{block}/LayerNorm_0", d),
            **_norm(f"{block}/LayerNorm_1", d),
            **_attention(f"{block}/{ATTENTION}", d, heads),
            **_mlp(f"{block}/{MLP}", d, mlp_dim),
        }
    return shapes


def _attention(name: str, d: int, heads: int) -> dict[str, Shape]:
    per_head = (heads, d // heads)
    shapes = _affine(f"{name}/out", per_head, (d,))
    for part in ("query", "key", "value"):
        shapes |= _affine(f"{name}/{part}", (d,), per_head)
    return shapes


def _mlp(name: str, d: int, mlp_dim: int) -> dict[str, Shape]:
    return _affine(f"{name}/Dense_0", (d,), (mlp_dim,)) | _affine(f"{name}/Dense_1", (mlp_dim,), (d,))


def _norm(name: str, d: int) -> dict[str, Shape]:
    return {f"{name}/scale": (d,), f"{name}/bias": (d,)}


def _affine(name: str, inputs: Shape, outputs: Shape) -> dict[str, Shape]:
    return {f"{name}/kernel": (*inputs, *outputs), f"{name}/bias": outputs}


def flatten(tree: Mapping[str, Any], prefix: str = "", separator: str = "/") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a nested tree with their names: {"a": {"b": 1}} → ("a/b", 1)."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}{separator}", separator)
        else:
            yield f"{prefix}{key}", value


def unflatten(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Build the nested tree of named leaves."""
    tree: dict[str, Any] = {}
    for name, value in leaves.items():
        *path, last = name.split("/")
        node = tree
        for key in path:
            node = node.setdefault(key, {})
        node[last] = value
    return tree


_NAMED = 10  # tensors in a list of an error


@dataclass(frozen=True)
class Part:
    """One of our parameters as another layout stores it: reshaped, then its axes permuted.

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
        """The shape in the other layout."""
        shape = self.reshaped or self.shape
        return shape if self.axes is None else tuple(shape[axis] for axis in self.axes)

    def to_theirs(self, ours: Tensor) -> Tensor:
        """Convert our parameter to their layout."""
        array = ours.reshape(self.reshaped or self.shape)
        return array if self.axes is None else array.transpose(self.axes)

    def to_ours(self, theirs: Tensor) -> Tensor:
        """Convert their tensor to our layout."""
        array = theirs if self.axes is None else theirs.transpose(np.argsort(self.axes).tolist())
        return array.reshape(self.shape)


@dataclass(frozen=True)
class Entry:
    """One tensor of another layout, made of one or more of our parameters.

    Attributes:
        name: Theirs.
        parts: Our parameters in it.
        stacked: Whether they are stacked along a new first axis, rather than concatenated along the first.
    """

    name: str
    parts: tuple[Part, ...]
    stacked: bool = False

    @property
    def shape(self) -> Shape:
        """The shape of their tensor."""
        first, *rest = self.parts[0].their_shape
        count = len(self.parts)
        return (count, first, *rest) if self.stacked else (count * first, *rest)

    def read(self, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield our parameters from their tensor."""
        pieces = tensor if self.stacked else np.split(tensor, len(self.parts))
        for part, piece in zip(self.parts, pieces, strict=True):
            yield part.name, part.to_ours(piece)

    def write(self, ours: Mapping[str, Tensor]) -> Tensor:
        """Make their tensor, contiguous, from our parameters."""
        pieces = [part.to_theirs(ours[part.name]) for part in self.parts]
        if self.stacked:
            return np.stack(pieces)
        return np.ascontiguousarray(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))


def check(found: Mapping[str, Shape], entries: Sequence[Entry]) -> None:
    """Compare the tensors of a file with a layout.

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
    """Check for the tensors whose shapes determine the architecture.

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
    """Join names for an error: the first ones, and a count of the others."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def side_of(positions: int) -> int:
    """Return the side of a square grid of image positions.

    Raises:
        ValueError: It is not square.
    """
    side = math.isqrt(positions)
    if side * side != positions:
        raise ValueError(f"{positions} image positions, which do not form a square grid: not supported")
    return side


_HEADS = {192: 3, 384: 6, 512: 8, 768: 12, 1024: 16, 1152: 16, 1280: 16, 1408: 16, 1664: 16, 1792: 16}


def usual_heads(width: int) -> int:
    """Return the heads of a published tower of this width (big_vision's `models/vit.py`), else width / 64.

    Raises:
        ValueError: The number of heads is unknown: 64 does not divide the width.
    """
    if width not in _HEADS and width % 64:
        raise ValueError(f"number of heads unknown for width {width}: put its config.json beside it")
    return _HEADS.get(width, width // 64)
