"""The layout of Hugging Face's SigLIP: names and shapes and config.json (`transformers.SiglipModel`).

Dense weights are [out, in], the patch kernel is [out, in, h, w], heads are folded into the width, and the
MAP head keeps query, key and value in one tensor.

SigLIP 2 has the same towers. Its models of one image size are a `SiglipModel`, too. Those of any size
(NaFlex, `Siglip2Model`) get patches in place of images, so that their patch kernel is dense, [out, h · w ·
in]; here they read squares of the grid that their positions are given for, on which nothing is interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from jestlab.models.config import TextTower, TwoTowers, VisionTower
from jestlab.models.weights.layout import (
    ATTENTION,
    ENCODERS,
    MAP_HEAD,
    MLP,
    Entry,
    Part,
    Shape,
    parameter_shapes,
    require,
    side_of,
    usual_heads,
)

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
"""Files of a folder: all tensors, or a list of the files that share them; the architecture."""

TOWERS = {"img": "vision_model", "txt": "text_model"}


def ignored(name: str) -> bool:
    """Return whether a tensor is not a parameter: older versions also saved the numbers of the positions."""
    return name.endswith(".position_ids")


PATCHES = "vision_model.embeddings.patch_embedding.weight"


def cuts_patches(found: Mapping[str, Shape]) -> bool:
    """Return whether tensors are those of a model that gets patches in place of images."""
    return len(found.get(PATCHES, ())) == 2


def entries(config: TwoTowers, *, cuts_patches: bool = False) -> tuple[Entry, ...]:
    """Return the layout of these towers.

    Args:
        config: The towers.
        cuts_patches: Whether the patch kernel is dense.

    Raises:
        ValueError: `SiglipModel` cannot have such towers.
    """
    if config.vision.pooling != "map" or config.text.pooling != "last":
        raise ValueError("Hugging Face's SigLIP pools images by a MAP head and texts at the last token only")
    if config.vision.width != config.embedding_dim:
        raise ValueError(
            "Hugging Face's SigLIP has no head after the image tower: "
            f"its width {config.vision.width} would have to be embedding_dim {config.embedding_dim}"
        )
    return tuple(_entries(config, cuts_patches))


def _entries(config: TwoTowers, cuts_patches: bool) -> Iterator[Entry]:
    part = _Parts(parameter_shapes(config))
    yield Entry("logit_scale", (part.same("t"),))
    yield Entry("logit_bias", (part.same("b"),))
    image, text = (f"{TOWERS[tower]}.embeddings" for tower in ("img", "txt"))
    patches = part.pixels if cuts_patches else part.patches
    yield Entry(PATCHES, (patches("img/embedding/kernel"),))
    yield Entry(f"{image}.patch_embedding.bias", (part.same("img/embedding/bias"),))
    yield Entry(f"{image}.position_embedding.weight", (part.rows("img/pos_embedding"),))
    yield Entry(f"{text}.token_embedding.weight", (part.same("txt/Embed_0/embedding"),))
    yield Entry(f"{text}.position_embedding.weight", (part.rows("txt/pos_embedding"),))
    yield from part.dense("text_model.head", "txt/head")

    for tower, depth in (("img", config.vision.depth), ("txt", config.text.depth)):
        for layer in range(depth):
            theirs = f"{TOWERS[tower]}.encoder.layers.{layer}"
            ours = f"{ENCODERS[tower]}/encoderblock_{layer}"
            yield from part.norm(f"{theirs}.layer_norm1", f"{ours}/LayerNorm_0")
            yield from part.norm(f"{theirs}.layer_norm2", f"{ours}/LayerNorm_1")
            yield from part.mlp(f"{theirs}.mlp", f"{ours}/{MLP}")
            for short, name in (("q", "query"), ("k", "key"), ("v", "value"), ("out", "out")):
                yield from part.dense(f"{theirs}.self_attn.{short}_proj", f"{ours}/{ATTENTION}/{name}")
    yield from part.norm("vision_model.post_layernorm", f"{ENCODERS['img']}/encoder_norm")
    yield from part.norm("text_model.final_layer_norm", f"{ENCODERS['txt']}/encoder_norm")

    head = "vision_model.head"
    yield Entry(f"{head}.probe", (part.same(f"{MAP_HEAD}/probe"),))
    projections = [f"{MAP_HEAD}/{ATTENTION}/{name}" for name in ("query", "key", "value")]
    yield Entry(
        f"{head}.attention.in_proj_weight", tuple(part.matrix(f"{name}/kernel") for name in projections)
    )
    yield Entry(f"{head}.attention.in_proj_bias", tuple(part.vector(f"{name}/bias") for name in projections))
    yield from part.dense(f"{head}.attention.out_proj", f"{MAP_HEAD}/{ATTENTION}/out")
    yield from part.norm(f"{head}.layernorm", f"{MAP_HEAD}/LayerNorm_0")
    yield from part.mlp(f"{head}.mlp", f"{MAP_HEAD}/{MLP}")


class _Parts:
    """Creates parts that are laid out as in Hugging Face's files.

    Attributes:
        shapes: Name → shape of each of ours.
    """

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self.shapes = shapes

    def same(self, name: str) -> Part:
        return Part(name, self.shapes[name])

    def vector(self, name: str) -> Part:
        """[heads, D / heads] → [D]."""
        shape = self.shapes[name]
        return Part(name, shape, reshaped=(math.prod(shape),))

    def rows(self, name: str) -> Part:
        """[1, n, D] → [n, D]."""
        shape = self.shapes[name]
        return Part(name, shape, reshaped=shape[1:])

    def patches(self, name: str) -> Part:
        """[h, w, in, out] → [out, in, h, w]."""
        return Part(name, self.shapes[name], axes=(3, 2, 0, 1))

    def pixels(self, name: str) -> Part:
        """[h, w, in, out] → [out, h · w · in]."""
        shape = self.shapes[name]
        return Part(name, shape, reshaped=(math.prod(shape[:3]), shape[3]), axes=(1, 0))

    def matrix(self, name: str) -> Part:
        """A kernel, heads folded, [in, out] → [out, in]."""
        shape = self.shapes[name]
        outputs = math.prod(self.shapes[name.removesuffix("kernel") + "bias"])
        return Part(name, shape, reshaped=(math.prod(shape) // outputs, outputs), axes=(1, 0))

    def dense(self, theirs: str, ours: str) -> Iterator[Entry]:
        yield Entry(f"{theirs}.weight", (self.matrix(f"{ours}/kernel"),))
        yield Entry(f"{theirs}.bias", (self.vector(f"{ours}/bias"),))

    def mlp(self, theirs: str, ours: str) -> Iterator[Entry]:
        yield from self.dense(f"{theirs}.fc1", f"{ours}/Dense_0")
        yield from self.dense(f"{theirs}.fc2", f"{ours}/Dense_1")

    def norm(self, theirs: str, ours: str) -> Iterator[Entry]:
        yield Entry(f"{theirs}.weight", (self.same(f"{ours}/scale"),))
        yield Entry(f"{theirs}.bias", (self.same(f"{ours}/bias"),))


def infer(found: Mapping[str, Shape], config: Mapping[str, Any] | None) -> TwoTowers:
    """Infer the towers whose weights a file holds, from shapes, and from config.json where shapes do not
    tell.

    Image size is patch size × side of the position grid: a model of 384 px in patches of 14 reads 378 px.

    Args:
        found: Name → shape of each tensor in the file.
        config: The content of config.json; without it, the number of heads is the usual one for the width.

    Raises:
        ValueError: It is not such a file, or the model is not supported; says what and where.
    """
    said = {tower: _supported(config, tower) if config is not None else None for tower in TOWERS}
    grid = "vision_model.embeddings.position_embedding.weight"
    words, places = (f"text_model.embeddings.{x}_embedding.weight" for x in ("token", "position"))
    hidden = {tower: f"{prefix}.encoder.layers.0.mlp.fc1.weight" for tower, prefix in TOWERS.items()}
    ranks = {PATCHES: 2 if cuts_patches(found) else 4, grid: 2, words: 2, places: 2}
    require(found, ranks | {"text_model.head.weight": 2} | dict.fromkeys(hidden.values(), 2))

    vision_width = found[PATCHES][0]
    patch_size = math.isqrt(math.prod(found[PATCHES][1:]) // _CHANNELS)
    vocabulary_size, text_width = found[words]
    projection = found["text_model.head.weight"][0]
    if projection != vision_width:
        raise ValueError(
            f"embeds texts in {projection} dimensions (projection_size) and images in {vision_width}: "
            "not supported"
        )
    towers = TwoTowers(
        vision=VisionTower(
            image_size=patch_size * side_of(found[grid][0]),
            patch_size=patch_size,
            width=vision_width,
            depth=_depth(found, "img"),
            heads=_heads(said["img"], vision_width),
            mlp_dim=found[hidden["img"]][0],
            pooling="map",
        ),
        text=TextTower(
            vocabulary_size=vocabulary_size,
            length=found[places][0],
            width=text_width,
            depth=_depth(found, "txt"),
            heads=_heads(said["txt"], text_width),
            mlp_dim=found[hidden["txt"]][0],
            pooling="last",
        ),
        embedding_dim=vision_width,
    )
    if config is not None:
        _check_against(config, towers)
    return towers


def _depth(found: Mapping[str, Shape], tower: str) -> int:
    prefix = f"{TOWERS[tower]}.encoder.layers."
    keys = [name.removeprefix(prefix).partition(".")[0] for name in found if name.startswith(prefix)]
    return 1 + max(int(key) for key in keys if key.isdecimal())


_DEFAULT_HEADS = 12  # of SiglipVisionConfig and SiglipTextConfig, which leave defaults out of config.json


def _heads(section: Mapping[str, Any] | None, width: int) -> int:
    if section is None:
        return usual_heads(width)
    heads = section.get("num_attention_heads", _DEFAULT_HEADS)
    if not isinstance(heads, int) or heads < 1 or width % heads:
        raise ValueError(f"config.json: num_attention_heads {heads!r} does not divide hidden_size {width}")
    return heads


_SECTIONS = {"img": "vision_config", "txt": "text_config"}
_CHANNELS = 3
_KINDS = ("siglip", "siglip2")
_SUPPORTED = {
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
    "num_channels": _CHANNELS,
    "vision_use_head": True,
}


def _supported(config: Mapping[str, Any], tower: str) -> Mapping[str, Any]:
    """Return the section of a tower, if our towers can be what it describes."""
    if (kind := config.get("model_type")) not in _KINDS:
        known = " and ".join(map(repr, _KINDS))
        raise ValueError(f"config.json: model_type {kind!r} is not supported, only {known} are")
    section = config.get(_SECTIONS[tower], {})
    if not isinstance(section, Mapping):
        raise ValueError(f"config.json: {_SECTIONS[tower]} must be a mapping")
    for key, supported in _SUPPORTED.items():
        if (value := section.get(key, supported)) != supported:
            where = f"{_SECTIONS[tower]}.{key}"
            raise ValueError(f"config.json: {where} {value!r} is not supported, only {supported!r} is")
    return section


def _check_against(config: Mapping[str, Any], towers: TwoTowers) -> None:
    """Check that the sizes in config.json are those of the tensors."""
    ours = config_json(towers)
    for section in _SECTIONS.values():
        for key in _SIZES & ours[section].keys():
            said, found = config.get(section, {}).get(key), ours[section][key]
            if key == "image_size" and isinstance(said, int):
                said -= said % towers.vision.patch_size  # pixels beyond the last whole patch are not seen
            if said is not None and said != found:
                raise ValueError(f"config.json: {section}.{key} is {said!r}, but the tensors have {found}")


_SIZES = frozenset(
    ("hidden_size", "intermediate_size", "num_hidden_layers", "image_size", "patch_size", "vocab_size")
) | {"max_position_embeddings", "projection_size"}


def config_json(config: TwoTowers) -> dict[str, Any]:
    """Return the content of the config.json that `SiglipModel.from_pretrained` reads beside the tensors.

    Args:
        config: Towers that `entries` accepts.
    """
    vision, text = config.vision, config.text
    common = {key: _SUPPORTED[key] for key in ("hidden_act", "layer_norm_eps")} | {"attention_dropout": 0.0}
    return {
        "architectures": ["SiglipModel"],
        "model_type": "siglip",
        "dtype": "float32",
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": vision.width,
            "intermediate_size": vision.mlp_dim or 4 * vision.width,
            "num_hidden_layers": vision.depth,
            "num_attention_heads": vision.heads,
            "num_channels": 3,
            "image_size": vision.image_size,
            "patch_size": vision.patch_size,
            "vision_use_head": True,
            **common,
        },
        "text_config": {
            "model_type": "siglip_text_model",
            "hidden_size": text.width,
            "intermediate_size": text.mlp_dim or 4 * text.width,
            "num_hidden_layers": text.depth,
            "num_attention_heads": text.heads,
            "vocab_size": text.vocabulary_size,
            "max_position_embeddings": text.length,
            "projection_size": config.embedding_dim,
            "pad_token_id": 1,  # SigLIP pads with the end token
            "bos_token_id": None,
            "eos_token_id": 1,
            **common,
        },
    }
