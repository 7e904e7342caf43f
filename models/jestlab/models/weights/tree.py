"""Names and shapes of the parameters of two towers, known without JAX: plans read them.

A parameter is named by its path in the tree of `two_towers.Parameters`: `img/embedding/kernel`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..config import TwoTowers

Shape = tuple[int, ...]
Tensor = npt.NDArray[np.float32]

ENCODERS = {"img": "img/Transformer", "txt": "txt/Encoder_0"}
"""Tower → its encoder."""

MAP_HEAD = "img/MAPHead_0"
ATTENTION, MLP = "MultiHeadDotProductAttention_0", "MlpBlock_0"


def parameter_shapes(config: TwoTowers) -> dict[str, Shape]:
    """Name → shape of every parameter; all are float32."""
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


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a nested tree, with their names."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def unflatten(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """The nested tree of named leaves."""
    tree: dict[str, Any] = {}
    for name, value in leaves.items():
        *path, last = name.split("/")
        node = tree
        for key in path:
            node = node.setdefault(key, {})
        node[last] = value
    return tree
