"""Names and shapes of our parameters. Imports neither JAX nor NumPy, because plans read it.

A parameter's name is its path in the tree of `two_towers.Parameters`, such as `img/embedding/kernel`.
"""

import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from jestlab.models.config import TextTower, TwoTowers, VisionTower

Shape = tuple[int, ...]

ENCODERS = {"img": "img/Transformer", "txt": "txt/Encoder_0"}
"""Tower → its encoder."""

MAP_HEAD = "img/MAPHead_0"
ATTENTION, MLP = "MultiHeadDotProductAttention_0", "MlpBlock_0"


def parameter_shapes(config: TwoTowers) -> dict[str, Shape]:
    """Return the shape of every parameter by its name. All parameters are float32."""
    vision, text, embedding = config.vision, config.text, config.embedding_dim
    d, patch = vision.width, vision.patch_size
    image: dict[str, Any] = {
        "pos_embedding": (1, (vision.image_size // patch) ** 2, d),
        "embedding": _affine((patch, patch, 3), (d,)),
        "Transformer": _encoder(vision),
    }
    if vision.pooling == "map":
        image["MAPHead_0"] = {
            "probe": (1, 1, d),
            ATTENTION: _attention(d, vision.heads),
            "LayerNorm_0": _norm(d),
            MLP: _mlp(d, vision.mlp_dim),
        }
    if embedding != d:
        image["head"] = _affine((d,), (embedding,))
    d = text.width
    words = {
        "Embed_0": {"embedding": (text.vocabulary_size, d)},
        "pos_embedding": (1, text.length, d),
        "Encoder_0": _encoder(text),
        "head": _affine((d,), (embedding,)),
    }
    return dict(flatten({"t": (1,), "b": (1,), "img": image, "txt": words}))


@functools.cache
def parameter_counts(config: TwoTowers) -> dict[str, int]:
    """Count the parameters of the "image" and "text" towers, and of "all" of the model, with t and b."""
    sizes = {name: math.prod(shape) for name, shape in parameter_shapes(config).items()}
    towers = {"image": "img/", "text": "txt/", "all": ""}
    return {
        tower: sum(size for name, size in sizes.items() if name.startswith(prefix))
        for tower, prefix in towers.items()
    }


def _encoder(tower: VisionTower | TextTower) -> dict[str, Any]:
    d = tower.width
    block = {
        "LayerNorm_0": _norm(d),
        "LayerNorm_1": _norm(d),
        ATTENTION: _attention(d, tower.heads),
        MLP: _mlp(d, tower.mlp_dim),
    }
    return {"encoder_norm": _norm(d)} | {f"encoderblock_{layer}": block for layer in range(tower.depth)}


def _attention(d: int, heads: int) -> dict[str, Any]:
    per_head = (heads, d // heads)
    inputs = {name: _affine((d,), per_head) for name in ("query", "key", "value")}
    return {"out": _affine(per_head, (d,)), **inputs}


def _mlp(d: int, hidden: int | None) -> dict[str, Any]:
    hidden = hidden or 4 * d
    return {"Dense_0": _affine((d,), (hidden,)), "Dense_1": _affine((hidden,), (d,))}


def _norm(d: int) -> dict[str, Shape]:
    return {"scale": (d,), "bias": (d,)}


def _affine(inputs: Shape, outputs: Shape) -> dict[str, Shape]:
    return {"kernel": (*inputs, *outputs), "bias": outputs}


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
