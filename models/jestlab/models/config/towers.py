"""The base class and the field types of all sections of a config; the two towers and their variants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field, PositiveFloat, PositiveInt, model_validator

from jestlab.models.config.code import NO_OPTIONS, Extension, Options, Section, known, names_code

RunName = Annotated[str, Field(min_length=1, json_schema_extra={"names_a_run": True})]
"""Another run of the study: the plan resolves the name, runs it first and hashes it by its fingerprint."""

LocalPath = Annotated[str, Field(min_length=1, json_schema_extra={"is_path": True})]
"""A file or folder: where it is relative in a YAML spec, it counts from the spec's folder."""

Seed = Annotated[int, Field(ge=0, lt=2**32)]
"""JAX's keys are made of 32 bits of a seed: beyond them, seeds would repeat."""

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]

Depth = Annotated[int, Field(gt=0, le=1_000)]
"""Blocks of a transformer. Their parameters are listed one by one, also of towers that a file claims."""


class Size(NamedTuple):
    """The sizes of a transformer; both towers of a variant have the same."""

    width: int
    depth: int
    heads: int
    mlp_dim: int


SIZES = {
    "Ti": Size(192, 12, 3, 768),
    "S": Size(384, 12, 6, 1536),
    "B": Size(768, 12, 12, 3072),
    "L": Size(1024, 24, 16, 4096),
}
"""Zhai et al. (2022), Table 2, as in big_vision's `models/vit.py`."""

Variant = Literal["Ti/16", "S/16", "B/16", "B/32", "L/16"]

IMAGE_SIZES: dict[Variant, int] = {"Ti/16": 256, "S/16": 256, "B/16": 256, "B/32": 224, "L/16": 256}
"""Pixels. The paper trains B/16 and L/16 at 256 px, and B/32 at 224 px for the transfer to LAION."""


VISION_TOWERS, TEXT_TOWERS = ("vit",), ("transformer",)
"""Architectures that are built in."""

VisionArchitecture = Annotated[str, names_code("tower", VISION_TOWERS), known("tower", VISION_TOWERS)]
TextArchitecture = Annotated[str, names_code("tower", TEXT_TOWERS), known("tower", TEXT_TOWERS)]


class VisionTower(Section):
    """A Vision Transformer (`two_towers.py`); the defaults are small enough for two CPU cores.

    Attributes:
        image_size: Side of the images in pixels; they are square, and data are resized to it.
        patch_size: Side of the patches in pixels.
        width: Width of the transformer's layers.
        depth: Number of blocks.
        heads: Number of attention heads.
        mlp_dim: Width of the MLP between its two layers; null for 4 × width.
        pooling: How patches become one embedding: "map" is attention with a learned query, "mean" their mean.
        architecture: "vit", or a tower of one's own.
        options: Keyword arguments of an architecture of one's own.
    """

    image_size: PositiveInt = 16
    patch_size: PositiveInt = 4
    width: PositiveInt = 64
    depth: Depth = 2
    heads: PositiveInt = 4
    mlp_dim: PositiveInt | None = None
    pooling: Literal["map", "mean"] = "map"
    architecture: VisionArchitecture = "vit"
    options: Options = NO_OPTIONS

    @property
    def is_own(self) -> bool:
        """Whether the architecture is of one's own."""
        return self.architecture not in VISION_TOWERS

    @model_validator(mode="after")
    def _divides(self) -> VisionTower:
        if self.is_own:
            return self
        if self.image_size % self.patch_size:
            raise ValueError(f"patch_size {self.patch_size} does not divide image_size {self.image_size}")
        if self.width % self.heads:
            raise ValueError(f"heads {self.heads} does not divide width {self.width}")
        return self


class TextTower(Section):
    """A text transformer without mask (`two_towers.py`).

    Attributes:
        vocabulary_size: Number of different tokens.
        length: Number of tokens of a text, the end token included; longer texts are cut.
        width: Width of the transformer's layers.
        depth: Number of blocks.
        heads: Number of attention heads.
        mlp_dim: Width of the MLP between its two layers; null for 4 × width.
        pooling: How tokens become one embedding: "last" takes the last of them, "mean" their mean.
        architecture: "transformer", or a tower of one's own.
        options: Keyword arguments of an architecture of one's own.
    """

    vocabulary_size: PositiveInt = 256
    length: PositiveInt = 12
    width: PositiveInt = 48
    depth: Depth = 1
    heads: PositiveInt = 4
    mlp_dim: PositiveInt | None = None
    pooling: Literal["last", "mean"] = "last"
    architecture: TextArchitecture = "transformer"
    options: Options = NO_OPTIONS

    @property
    def is_own(self) -> bool:
        """Whether the architecture is of one's own."""
        return self.architecture not in TEXT_TOWERS

    @model_validator(mode="after")
    def _divides(self) -> TextTower:
        if not self.is_own and self.width % self.heads:
            raise ValueError(f"heads {self.heads} does not divide width {self.width}")
        return self


class TwoTowers(Section):
    """An image tower and a text tower that share an embedding space, with a learned temperature and bias.

    `variant` selects SigLIP's towers of that size: `B/16` is both towers of size B, patches of 16 pixels,
    images of 256, MAP pooling, the last of 64 tokens of a vocabulary of 32,000. A size that is given as
    well overrides the variant's.

    Attributes:
        variant: SigLIP's towers of that size, which fill in all sizes that are not given; null for the sizes
            below.
        embedding_dim: Dimensions of the space that both towers embed in.
        initial_temperature: The learned temperature t at the start, in z_img · z_txt · t + b (the paper's α).
        initial_bias: The learned bias b at the start (minus the β of the paper's Eq. 2).
        compute_dtype: Type of numbers that the towers compute in; parameters and loss are float32.
    """

    variant: Variant | None = None
    vision: VisionTower = VisionTower()
    text: TextTower = TextTower()
    embedding_dim: PositiveInt = 48
    initial_temperature: PositiveFloat = 10.0
    initial_bias: float = -10.0
    compute_dtype: Literal["float32", "bfloat16"] = "float32"

    def extensions(self, path: tuple[str, ...]) -> Iterator[Extension]:
        """Yield the architectures of one's own; `path` is the place of this section in the config."""
        for name, tower in (("vision", self.vision), ("text", self.text)):
            if tower.is_own:
                yield Extension((*path, name, "architecture"), "tower", tower.architecture, tower.options)

    @model_validator(mode="before")
    @classmethod
    def _of_variant(cls, given: Any) -> Any:
        """Fill in the sizes of a variant where none are given."""
        if not isinstance(given, dict) or given.get("variant") not in [*IMAGE_SIZES]:
            return given
        if not all(isinstance(given.get(tower), dict | BaseModel | None) for tower in ("vision", "text")):
            return given  # which is refused
        size, patch_size = given["variant"].split("/")
        width, depth, heads, mlp_dim = SIZES[size]
        both = {"width": width, "depth": depth, "heads": heads, "mlp_dim": mlp_dim}
        image_size = IMAGE_SIZES[given["variant"]]
        vision = {**both, "patch_size": int(patch_size), "image_size": image_size, "pooling": "map"}
        text = {**both, "vocabulary_size": 32_000, "length": 64, "pooling": "last"}
        return {
            **given,
            "vision": vision | _written(given.get("vision")),
            "text": text | _written(given.get("text")),
            "embedding_dim": given.get("embedding_dim", width),
        }


def _written(section: Any) -> dict[str, Any]:
    """Return the fields of a section that were set explicitly."""
    if isinstance(section, BaseModel):
        return section.model_dump(exclude_unset=True)
    return section or {}
