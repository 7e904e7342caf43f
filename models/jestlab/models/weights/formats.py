"""The formats of weight files: under which names and shapes each stores our parameters.

A layout is one table of substitutions, which turn our names into the file's names. Reading, writing, and
checking follow from the table. To add a format, add its `TensorLayout` to `LAYOUTS`, its transposes and
merged axes to `_storage` if they are new, what it can't represent to `entries`, and a branch to `detect` if
another format has its container. If its files don't describe the towers, `infer` must fit it. A new container
needs a branch in `sources.open_weights` and in `sources.write`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from jestlab.models.config import TwoTowers
from jestlab.models.weights.parameters import ATTENTION, ENCODERS, MAP_HEAD, MLP, Shape, parameter_shapes

if TYPE_CHECKING:  # `LAYOUTS` can be read without the extra jax
    from jestlab.models.weights.files import Tensor

_PATCHES = "img/embedding/kernel"

Container = Literal["npz file", "safetensors folder", "jestlab folder"]
"""One .npz file; model.safetensors with the files of `huggingface`; or weights.npz with model.json."""


@dataclass(frozen=True)
class TensorLayout:
    """The names and the storage of tensors in a file.

    Attributes:
        name: The name of the format.
        container: The files that hold the tensors.
        renames: Pairs of a regular expression and its replacement, applied to our names in this order. If
            several of our parameters get the same name, one tensor holds them all.
        torch: Whether tensors are stored as PyTorch's modules store them (see `_storage`), and
            parameters in one tensor are concatenated; otherwise as in our tree, and stacked.
        flat_patches: Whether PyTorch's patch kernel is dense, because the model gets patches, not images.
    """

    name: str
    container: Container
    renames: tuple[tuple[str, str], ...] = ()
    torch: bool = False
    flat_patches: bool = False

    def source(self, name: str) -> str:
        """Return the file's name of one of our parameters."""
        for pattern, replacement in self.renames:
            name = re.sub(pattern, replacement, name)
        return name


BIG_VISION = TensorLayout("big_vision", "npz file")
"""Our names and shapes: `models/vit.py` and `models/proj/image_text/two_towers.py` of big_vision."""

_SCANNED = tuple((rf"^{tower}/encoderblock_\d+/", f"{tower}/encoderblock/") for tower in ENCODERS.values())

BIG_VISION_SCANNED = TensorLayout("big_vision-scanned", "npz file", _SCANNED)
"""The blocks of each tower are stacked along a first axis, as `flax.linen.scan` does."""

SIGLIP = TensorLayout(
    "huggingface",
    "safetensors folder",
    (
        ("^img/embedding/", "vision_model.embeddings.patch_embedding."),
        ("^img/pos_embedding", "vision_model.embeddings.position_embedding.weight"),
        ("^img/Transformer/encoder_norm/", "vision_model.post_layernorm."),
        (r"^img/Transformer/encoderblock_(\d+)/", r"vision_model.encoder.layers.\1."),
        (f"^{MAP_HEAD}/{ATTENTION}/(query|key|value)/", "vision_model.head.attention.in_proj_"),
        (f"^{MAP_HEAD}/{ATTENTION}/out/", "vision_model.head.attention.out_proj."),
        (f"^{MAP_HEAD}/LayerNorm_0/", "vision_model.head.layernorm."),
        (f"^{MAP_HEAD}/", "vision_model.head."),
        ("^txt/Embed_0/", "text_model.embeddings.token_embedding."),
        ("^txt/pos_embedding", "text_model.embeddings.position_embedding.weight"),
        ("^txt/Encoder_0/encoder_norm/", "text_model.final_layer_norm."),
        (r"^txt/Encoder_0/encoderblock_(\d+)/", r"text_model.encoder.layers.\1."),
        ("^txt/head/", "text_model.head."),
        ("LayerNorm_0/", "layer_norm1."),
        ("LayerNorm_1/", "layer_norm2."),
        (f"{MLP}/Dense_0/", "mlp.fc1."),
        (f"{MLP}/Dense_1/", "mlp.fc2."),
        (f"{ATTENTION}/query/", "self_attn.q_proj."),
        (f"{ATTENTION}/key/", "self_attn.k_proj."),
        (f"{ATTENTION}/value/", "self_attn.v_proj."),
        (f"{ATTENTION}/out/", "self_attn.out_proj."),
        ("(kernel|scale|embedding)$", "weight"),
        ("^t$", "logit_scale"),
        ("^b$", "logit_bias"),
    ),
    torch=True,
)
"""Hugging Face's SigLIP and SigLIP 2 (`transformers.SiglipModel`).

SigLIP 2 has the same towers. Its models of any image size (NaFlex, `Siglip2Model`) get patches, not images:
`flat_patches`. Here they read square images with as many patches as the model has positions, so that no
position is interpolated. CLIP has no layout: two_towers has no class token, causal mask, or quick GELU.
"""

JESTLAB = TensorLayout("jestlab", "jestlab folder")  # our names and shapes

LAYOUTS = {layout.name: layout for layout in (BIG_VISION, BIG_VISION_SCANNED, SIGLIP, JESTLAB)}
"""Name of a format → its layout. The first with a container is the one that `detect` assumes."""


@dataclass(frozen=True)
class Entry:
    """One tensor of a file, made of one or more of our parameters, which all have the same shape.

    Attributes:
        name: The file's name of the tensor.
        shape: The shape of the tensor.
        parts: Our names of the parameters.
        ours: Our shape of each parameter.
        merged: The shape of each after axes are merged, before they are permuted.
        axes: The permutation.
    """

    name: str
    shape: Shape
    parts: tuple[str, ...]
    ours: Shape
    merged: Shape
    axes: tuple[int, ...]

    def read(self, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield the name and the value of each of our parameters in the tensor."""
        pieces = tensor.reshape(len(self.parts), *(self.merged[axis] for axis in self.axes))
        for name, piece in zip(self.parts, pieces, strict=True):
            yield name, piece.transpose(np.argsort(self.axes)).reshape(self.ours)

    def write(self, ours: Mapping[str, Tensor]) -> Tensor:
        """Make the tensor from our parameters."""
        pieces = [ours[name].reshape(self.merged).transpose(self.axes) for name in self.parts]
        # NOTE: safetensors writes memory in its physical order, so a transposed view would be saved wrong.
        return np.ascontiguousarray(np.stack(pieces).reshape(self.shape))


def entries(model: TwoTowers, layout: TensorLayout) -> tuple[Entry, ...]:
    """Return all tensors of a file with the weights of these towers.

    Raises:
        ValueError: The format has no tensor for a parameter, or can't represent how the towers pool.
    """
    if layout.torch and (model.vision.pooling, model.text.pooling) != ("map", "last"):
        raise ValueError("Hugging Face's SigLIP supports only vision.pooling map and text.pooling last")
    shapes = parameter_shapes(model)
    parts: dict[str, list[str]] = {}
    for name in shapes:
        parts.setdefault(layout.source(name), []).append(name)
    if layout.torch and (uncovered := [names[0] for source, names in parts.items() if "/" in source]):
        raise ValueError(
            f"Hugging Face's SigLIP has no tensor for {named(uncovered)}: it has no head after the image "
            f"tower, so embedding_dim {model.embedding_dim} must equal vision.width {model.vision.width}"
        )
    found = []
    for source, names in parts.items():
        ours = shapes[names[0]]
        merged, axes = _storage(names[0], shapes, layout)
        first, *rest = (merged[axis] for axis in axes)
        is_stacked = not layout.torch and source not in shapes
        shape = (len(names), first, *rest) if is_stacked else (len(names) * first, *rest)
        found.append(Entry(source, shape, tuple(names), ours, merged, axes))
    return tuple(found)


def _storage(name: str, shapes: Mapping[str, Shape], layout: TensorLayout) -> tuple[Shape, tuple[int, ...]]:
    """Return how a file stores one of our parameters: the shape with merged axes, then their permutation."""
    shape = shapes[name]
    if layout.torch and name == _PATCHES and not layout.flat_patches:
        return shape, (3, 2, 0, 1)  # [h, w, in, out] → [out, in, h, w]
    if layout.torch and name.endswith("/kernel"):
        outputs = math.prod(shapes[name.removesuffix("kernel") + "bias"])
        return (math.prod(shape) // outputs, outputs), (1, 0)  # heads are merged, [in, out] → [out, in]
    if layout.torch and name.endswith("/bias"):
        shape = (math.prod(shape),)
    if layout.torch and name.endswith("/pos_embedding"):
        shape = shape[1:]  # [1, n, D] → [n, D]
    return shape, tuple(range(len(shape)))


def check(found: Mapping[str, Shape], expected: Sequence[Entry]) -> None:
    """Compare the tensors of a file with those of a layout.

    Raises:
        ValueError: Tensors are missing, unexpected, or of the wrong shape; names them.
    """
    shapes = {entry.name: entry.shape for entry in expected}
    problems = {
        "missing": [name for name in shapes if name not in found],
        "unexpected": [name for name in found if name not in shapes],
        "wrong shape": [
            f"{name} {found[name]}, should be {shape}"
            for name, shape in shapes.items()
            if found.get(name, shape) != shape
        ],
    }
    listed = "; ".join(f"{problem}: {named(names)}" for problem, names in problems.items() if names)
    if listed:
        raise ValueError(f"does not hold the weights of two towers: {listed}")


def named(names: Sequence[str], most: int = 10) -> str:
    """Join names for a message: the first ones, and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def detect(found: Mapping[str, Shape], container: Container) -> TensorLayout:
    """Return the layout of the tensors found (name → shape) in files of a container."""
    layout = next(layout for layout in LAYOUTS.values() if layout.container == container)
    if layout.torch:
        return replace(layout, flat_patches=len(found.get(layout.source(_PATCHES), ())) == 2)
    if rules := tuple(rule for rule in _SCANNED if any(name.startswith(rule[1]) for name in found)):
        return replace(BIG_VISION_SCANNED if layout is BIG_VISION else layout, renames=rules)
    return layout


def infer(found: Mapping[str, Shape], layout: TensorLayout) -> TwoTowers:
    """Infer the towers from the tensors found (name → shape), in a layout of big_vision.

    Without a MAP head, images are pooled by their mean. No shape shows how texts are pooled: at their last
    token, as in SigLIP.

    Raises:
        ValueError: A tensor is missing or has the wrong number of axes, or no towers have such shapes.
    """

    def shape(name: str, rank: int) -> Shape:
        source = layout.source(name)
        if source not in found:
            held = named([*found]) or "nothing"
            raise ValueError(f"does not hold the weights of two towers: missing: {source}; holds {held}")
        rank += source != name  # blocks are stacked
        if len(found[source]) != rank:
            raise ValueError(f"wrong shape: {source} {found[source]}, should have {rank} axes")
        return found[source]

    def encoder(tower: str) -> dict[str, int]:
        block, hidden = f"{ENCODERS[tower]}/encoderblock", f"{MLP}/Dense_0/kernel"
        first = shape(f"{block}_0/{hidden}", 2)
        blocks = [int(match[1]) for name in found if (match := re.match(rf"{block}_(\d+)/", name))]
        depth = max(blocks) + 1 if blocks else first[0]  # `check` then reports what is missing
        heads = shape(f"{block}_0/{ATTENTION}/query/kernel", 3)[-2]
        return {"width": first[-2], "mlp_dim": first[-1], "depth": depth, "heads": heads}

    patch_size, positions = shape(_PATCHES, 4)[0], shape("img/pos_embedding", 3)[1]
    vision = {
        "image_size": patch_size * math.isqrt(positions),
        "patch_size": patch_size,
        "pooling": "map" if any(name.startswith(MAP_HEAD) for name in found) else "mean",
        **encoder("img"),
    }
    text = {
        "vocabulary_size": shape("txt/Embed_0/embedding", 2)[0],
        "length": shape("txt/pos_embedding", 3)[1],
        **encoder("txt"),
    }
    embedding_dim = shape("txt/head/kernel", 2)[1]
    return TwoTowers.model_validate({"vision": vision, "text": text, "embedding_dim": embedding_dim})
