"""Configs of the image tower and the text tower, and the sizes of SigLIP's towers."""

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from jestlab.models.config.base import NO_OPTIONS, NamesCode, Options, Section

_SIZES = {
    "Ti": {"width": 192, "depth": 12, "heads": 3, "mlp_dim": 768},
    "S": {"width": 384, "depth": 12, "heads": 6, "mlp_dim": 1536},
    "B": {"width": 768, "depth": 12, "heads": 12, "mlp_dim": 3072},
    "L": {"width": 1024, "depth": 24, "heads": 16, "mlp_dim": 4096},
}
"""Both towers of a variant: Zhai et al. (2022), Table 2, as in big_vision's `models/vit.py`."""

Variant = Literal["Ti/16", "S/16", "B/16", "B/32", "L/16"]


Depth = Annotated[int, Field(gt=0, le=1_000)]
"""Number of blocks. `weights.parameters` lists the parameters of each, also those of untrusted weights."""


class Tower(Section):
    """A tower: a transformer, or custom code.

    Attributes:
        width: Width of the layers.
        depth: Number of blocks.
        heads: Number of attention heads.
        mlp_dim: Hidden width of the MLPs; null for 4 × width.
        options: Keyword arguments of a custom architecture.
    """

    width: PositiveInt
    depth: Depth
    heads: PositiveInt = 4
    mlp_dim: PositiveInt | None = None
    architecture: str
    options: Options = NO_OPTIONS

    @property
    def is_custom(self) -> bool:
        """Whether the architecture is custom code. The default is the built-in one."""
        return bool(self.architecture != type(self).model_fields["architecture"].default)

    @model_validator(mode="after")
    def _check_heads(self) -> "Tower":
        if not self.is_custom and self.width % self.heads:
            raise ValueError(f"heads {self.heads} does not divide width {self.width}")
        return self


class VisionTower(Tower):
    """A Vision Transformer (`two_towers.py`). The defaults are small enough for two CPU cores.

    Attributes:
        image_size: Side of the square images in pixels. All images are resized to it.
        patch_size: Side of the patches in pixels.
        pooling: How patches become one embedding: by attention with a learned query ("map"), or "mean".
        architecture: "vit", or a custom tower.
    """

    image_size: PositiveInt = 16
    patch_size: PositiveInt = 4
    width: PositiveInt = 64
    depth: Depth = 2
    pooling: Literal["map", "mean"] = "map"
    architecture: Annotated[str, NamesCode("tower", ("vit",))] = "vit"

    @model_validator(mode="after")
    def _check_patches(self) -> "VisionTower":
        if not self.is_custom and self.image_size % self.patch_size:
            raise ValueError(f"patch_size {self.patch_size} does not divide image_size {self.image_size}")
        return self


class TextTower(Tower):
    """A text transformer without an attention mask (`two_towers.py`).

    Attributes:
        vocabulary_size: Number of distinct tokens.
        length: Number of tokens of a text, including the end token. Longer texts are cut.
        pooling: How tokens become one embedding: the "last" token, or the "mean" of all.
        architecture: "transformer", or a custom tower.
    """

    vocabulary_size: PositiveInt = 256
    length: PositiveInt = 12
    width: PositiveInt = 48
    depth: Depth = 1
    pooling: Literal["last", "mean"] = "last"
    architecture: Annotated[str, NamesCode("tower", ("transformer",))] = "transformer"


class TwoTowers(Section):
    """An image tower and a text tower with a shared embedding space, a learned temperature, and a bias.

    `variant` selects SigLIP's towers of that size. `B/16`, for example, has two towers of size B, patches of
    16 pixels, images of 256 pixels, MAP pooling, and texts of 64 tokens from a vocabulary of 32,000. Sizes
    that a config sets override those of the variant.

    Attributes:
        variant: SigLIP's towers, which provide all sizes that the config doesn't set; null for defaults.
        embedding_dim: Number of dimensions of the shared embedding space.
        initial_temperature: Initial temperature t in z_img · z_txt · t + b (the paper's α).
        initial_bias: Initial bias b (minus the β of the paper's Eq. 2).
        compute_dtype: Type of the activations. Parameters and losses are float32.
    """

    variant: Variant | None = None
    vision: VisionTower = VisionTower()
    text: TextTower = TextTower()
    embedding_dim: PositiveInt = 48
    initial_temperature: PositiveFloat = 10.0
    initial_bias: float = -10.0
    compute_dtype: Literal["float32", "bfloat16"] = "float32"

    @model_validator(mode="before")
    @classmethod
    def _add_sizes_of_variant(cls, given: Any) -> Any:
        variant = given.get("variant") if isinstance(given, dict) else None
        if variant is None or variant not in get_args(Variant):
            return given
        size, patch_size = variant.split("/")
        # The paper trains B/32 at 224 pixels for the transfer to LAION.
        image_size = 224 if variant == "B/32" else 256
        sizes: dict[str, dict[str, int]] = {
            "vision": {**_SIZES[size], "patch_size": int(patch_size), "image_size": image_size},
            "text": {**_SIZES[size], "vocabulary_size": 32_000, "length": 64},
        }
        towers = {name: given.get(name, {}) for name in sizes}
        written = {
            name: tower.model_dump(exclude_unset=True) if isinstance(tower, Section) else tower
            for name, tower in towers.items()
        }
        merged = {name: sizes[name] | tower for name, tower in written.items() if isinstance(tower, dict)}
        return {"embedding_dim": _SIZES[size]["width"], **given, **merged}
