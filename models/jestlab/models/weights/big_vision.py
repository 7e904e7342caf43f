"""big_vision's layout of weights: our own names and shapes or "scanned" with stacked blocks.

Keys as in its `models/vit.py` and `models/proj/image_text/two_towers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

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
)

PREFIX = "params/"
"""Prefix of the names in a checkpoint that also holds the optimiser's state."""


def entries(config: TwoTowers, scanned: Set[str] = frozenset()) -> tuple[Entry, ...]:
    """Return the layout of these towers.

    Args:
        config: The towers.
        scanned: Those of "img", "txt" whose blocks are stacked.
    """
    shapes = parameter_shapes(config)
    stacks: dict[str, list[Part]] = {}
    for name, shape in shapes.items():
        tower = name.partition("/")[0]
        stacks.setdefault(_stacked(name) if tower in scanned else name, []).append(Part(name, shape))
    return tuple(Entry(name, tuple(parts), stacked=name not in shapes) for name, parts in stacks.items())


def _stacked(name: str) -> str:
    """Rename `…/encoderblock_3/LayerNorm_0/bias` to `…/encoderblock/LayerNorm_0/bias`; keep other names."""
    return "/".join("encoderblock" if key.startswith("encoderblock_") else key for key in name.split("/"))


def scanned_towers(found: Mapping[str, Shape]) -> frozenset[str]:
    """Return the towers of a file whose blocks are stacked."""
    return frozenset(
        tower
        for tower, encoder in ENCODERS.items()
        if any(name.startswith(f"{encoder}/encoderblock/") for name in found)
    )


def infer(found: Mapping[str, Shape]) -> TwoTowers:
    """Infer the towers whose weights a file holds, from shapes alone.

    Attention kernels [D, heads, D / heads] give the heads. Without a MAP head images are pooled by their
    mean; that texts are pooled at their last token cannot be seen and is taken for granted, as in SigLIP.

    Args:
        found: Name → shape of each tensor in the file.

    Raises:
        ValueError: It is not such a file.
    """
    scanned = scanned_towers(found)
    block = {
        tower: f"{encoder}/encoderblock" if tower in scanned else f"{encoder}/encoderblock_0"
        for tower, encoder in ENCODERS.items()
    }
    query = {tower: f"{name}/{ATTENTION}/query/kernel" for tower, name in block.items()}
    hidden = {tower: f"{name}/{MLP}/Dense_0/kernel" for tower, name in block.items()}
    ranks = {"img/embedding/kernel": 4, "img/pos_embedding": 3, "txt/Embed_0/embedding": 2}
    ranks |= {"txt/pos_embedding": 3, "txt/head/kernel": 2}
    for tower in ENCODERS:
        ranks |= {query[tower]: 3 + (tower in scanned), hidden[tower]: 2 + (tower in scanned)}
    require(found, ranks)

    patch_size, _, _, vision_width = found["img/embedding/kernel"]
    vocabulary_size, text_width = found["txt/Embed_0/embedding"]
    return TwoTowers(
        vision=VisionTower(
            image_size=patch_size * side_of(found["img/pos_embedding"][1]),
            patch_size=patch_size,
            width=vision_width,
            depth=_depth(found, "img", scanned),
            heads=found[query["img"]][-2],
            mlp_dim=found[hidden["img"]][-1],
            pooling="map" if any(name.startswith(MAP_HEAD) for name in found) else "mean",
        ),
        text=TextTower(
            vocabulary_size=vocabulary_size,
            length=found["txt/pos_embedding"][1],
            width=text_width,
            depth=_depth(found, "txt", scanned),
            heads=found[query["txt"]][-2],
            mlp_dim=found[hidden["txt"]][-1],
        ),
        embedding_dim=found["txt/head/kernel"][1],
    )


def _depth(found: Mapping[str, Shape], tower: str, scanned: Set[str]) -> int:
    """Return the number of blocks, up to the last one found; `check` then names one that is missing."""
    prefix = f"{ENCODERS[tower]}/encoderblock"
    if tower in scanned:
        return found[f"{prefix}/{ATTENTION}/query/kernel"][0]
    keys = [
        name.removeprefix(f"{prefix}_").partition("/")[0] for name in found if name.startswith(f"{prefix}_")
    ]
    return 1 + max(int(key) for key in keys if key.isdecimal())
