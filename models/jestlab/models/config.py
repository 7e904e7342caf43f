"""The config of one training run: every field that decides its result, validated, frozen, with its default.

Nothing heavy is imported here: plans of thousands of runs read this module and little else of `models`.
Durations say their unit (`_examples`, `_steps`, `_percent`). Letters in comments are the paper's:
B super-batch, b sub-batch, f = 1 − b/B filtering ratio, N chunks.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from .data.filters import Filter, missing_column

RunName = Annotated[str, Field(min_length=1, json_schema_extra={"names_a_run": True})]
"""Another run of the study: the plan resolves the name, runs it first and hashes it by its fingerprint."""

Seed = Annotated[int, Field(ge=0, lt=2**32)]
"""JAX's keys are made of 32 bits of a seed: beyond them, seeds would repeat."""

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """A frozen part of a config; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class VisionTower(Section):
    """A Vision Transformer (`vit.py`). Defaults: small enough for two CPU cores."""

    image_size: PositiveInt = 16  # pixels, square
    patch_size: PositiveInt = 4  # pixels, square
    width: PositiveInt = 64
    depth: PositiveInt = 2
    heads: PositiveInt = 4
    mlp_dim: PositiveInt | None = None  # None: 4 × width
    pooling: Literal["map", "mean"] = "map"

    @model_validator(mode="after")
    def _divides(self) -> VisionTower:
        if self.image_size % self.patch_size:
            raise ValueError(f"patch_size {self.patch_size} does not divide image_size {self.image_size}")
        if self.width % self.heads:
            raise ValueError(f"heads {self.heads} does not divide width {self.width}")
        return self


class TextTower(Section):
    """A text transformer (`text.py`)."""

    vocabulary_size: PositiveInt = 256
    length: PositiveInt = 12  # tokens, the end token included
    width: PositiveInt = 48
    depth: PositiveInt = 1
    heads: PositiveInt = 4
    mlp_dim: PositiveInt | None = None  # None: 4 × width
    pooling: Literal["last", "mean"] = "last"

    @model_validator(mode="after")
    def _divides(self) -> TextTower:
        if self.width % self.heads:
            raise ValueError(f"heads {self.heads} does not divide width {self.width}")
        return self


class TwoTowers(Section):
    """An image tower and a text tower into one embedding space, with a learned temperature and bias."""

    vision: VisionTower = VisionTower()
    text: TextTower = TextTower()
    embedding_dim: PositiveInt = 48
    initial_temperature: PositiveFloat = 10.0  # t in z_img · z_txt · t + b (the paper's α)
    initial_bias: float = -10.0  # b (minus the β of the paper's Eq. 2)


class NoiseRates(Section):
    """Share of the synthetic web's pairs with each kind of web noise; what is left is clean."""

    mismatched: Fraction = 0.25  # the caption of another image
    alt_text: Fraction = 0.10  # "IMG_2041.jpg", "click to enlarge"
    noise_image: Fraction = 0.05  # static under an honest caption
    blank: Fraction = 0.05  # one flat colour under an honest caption
    vague: Fraction = 0.05  # "a picture of a thing"
    near_duplicate: Fraction = 0.10  # one of a few templates, hardly changed

    @model_validator(mode="after")
    def _sum(self) -> NoiseRates:
        total = sum(getattr(self, name) for name in type(self).model_fields)
        if total > 1 + 1e-9:
            raise ValueError(f"noise rates sum to {total:.3g}, above 1")
        return self


SHAPES_GENERATOR = 1
"""Raise it whenever the same settings and seed would give other bytes: it is part of the data's identity."""


SHAPES_COLUMNS = (
    *("url", "caption", "key", "status", "error_message", "width", "height", "original_width"),
    *("original_height", "sha256", "similarity", "aesthetic", "text_quality", "uniqueness", "punsafe"),
    *("noise", "label", "size", "position", "background"),
)
"""Columns of the synthetic web's metadata, for filters."""


class ShapesWeb(Section):
    """The synthetic web: rendered shapes with captions and web noise, made from these settings alone."""

    kind: Literal["shapes"] = "shapes"
    examples: PositiveInt = 24_576
    seed: Seed | None = None  # None: the run's seed, so that replicates see different webs
    image_size: PositiveInt = 32  # pixels, square
    shard_size: PositiveInt = 4_096  # examples a tar
    duplicate_templates: PositiveInt = 24
    noise: NoiseRates = NoiseRates()


class ShardFolder(Section):
    """A folder of image–text tar shards as img2dataset writes them."""

    kind: Literal["folder"] = "folder"
    path: str
    digest: str | None = (
        None  # of the shard index; filled in when planned, so that content and not place identifies
    )


class ShapesBenchmark(Section):
    """Clean held-out images of the synthetic world, as CLIP_benchmark webdataset folders."""

    kind: Literal["shapes"] = "shapes"
    seed: Seed = 1_000_003
    classification_examples: PositiveInt = 1_024
    retrieval_examples: PositiveInt = 256
    image_size: PositiveInt = 32


class BenchmarkFolder(Section):
    """A folder that holds CLIP_benchmark webdataset folders, one a dataset."""

    kind: Literal["folder"] = "folder"
    path: str
    digest: str | None = None


class Data(Section):
    """What is trained on and what is tested on."""

    train: ShapesWeb | ShardFolder = Field(default=ShapesWeb(), discriminator="kind")
    filter: str | None = (
        None  # over the metadata: "similarity > 0.3 and aesthetic > 5 and text_quality > 0.5"
    )
    benchmark: ShapesBenchmark | BenchmarkFolder = Field(default=ShapesBenchmark(), discriminator="kind")

    @field_validator("filter")
    @classmethod
    def _reads(cls, text: str | None, given: ValidationInfo) -> str | None:
        """A filter that cannot be read, or not on these data, is found before anything runs."""
        if text is not None:
            missing = missing_column(Filter.read(text).columns, SHAPES_COLUMNS)
            if missing and isinstance(given.data.get("train"), ShapesWeb):
                raise ValueError(f"no {missing}")
        return text

    @field_validator("train", "benchmark", mode="before")
    @classmethod
    def _shapes_unless_said(cls, value: Any) -> Any:
        """Settings without a `kind` are of the synthetic world, so that one of them can be set alone."""
        return {"kind": "shapes", **value} if isinstance(value, dict) else value


class Selection(Section):
    """How the sub-batch (size b) is chosen from the super-batch (size B = b / (1 − f))."""

    rule: Literal["uniform", "independent", "joint"] = "uniform"
    criterion: Literal["learnability", "easy_reference", "hard_learner"] = "learnability"
    filtering_ratio: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.8  # f
    chunks: PositiveInt = 16  # N, of rule "joint"
    gain: PositiveFloat = 100.0  # scores are multiplied by it before sampling (`softmax_score_gain`)
    reference: RunName | None = None

    @property
    def needs_reference(self) -> bool:
        """Whether the scores contain the loss of a reference model."""
        return self.rule != "uniform" and self.criterion != "hard_learner"

    @model_validator(mode="after")
    def _reference(self) -> Selection:
        if self.needs_reference and self.reference is None:
            raise ValueError(
                f"rule {self.rule!r} by {self.criterion!r} needs a reference: set selection.reference"
            )
        return self


class Optimizer(Section):
    """Adam with decoupled weight decay, clipping, linear warm-up and cosine decay (paper, appendix)."""

    learning_rate: PositiveFloat = 1e-3
    beta1: Fraction = 0.9
    beta2: Fraction = 0.95
    weight_decay: Annotated[float, Field(ge=0.0)] = 1e-4  # of kernels only; not multiplied by the peak rate
    clip_norm: PositiveFloat = 1.0
    warmup_percent: Annotated[float, Field(ge=0.0, le=100.0)] = 1.0
    temperature_multiplier: PositiveFloat = 1.0  # on the updates of t and b


class Schedule(Section):
    """How long and in what steps."""

    batch_size: PositiveInt = 64  # b, what the learner trains on in one step
    examples_seen: PositiveInt = 9_600  # by the learner; the number of steps is this over b, rounded up


class Evaluation(Section):
    """When and how the learner is tested."""

    points: PositiveInt = 10  # evenly spaced over training; the last is at its end
    shots: PositiveInt = 10  # per class, for the ridge probe
    shot_seeds: PositiveInt = 3  # draws of the few examples, averaged


class Runtime(Section):
    """How, not what: never part of a run's identity, since no value here changes a result."""

    log_every_steps: PositiveInt = 10
    checkpoint_every_steps: PositiveInt = 50
    keep_checkpoints: PositiveInt = 2


class TrainConfig(Section):
    """One training run: a reference model or a learner."""

    version: ClassVar[int] = (
        1  # raise it when a default or its meaning changes: identities leave defaults out
    )

    model: TwoTowers = TwoTowers()
    data: Data = Data()
    selection: Selection = Selection()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    evaluation: Evaluation = Evaluation()
    runtime: Runtime = Runtime()
    seed: Seed = 0
    initialization: Seed = 0  # another value, other initial parameters: a reference's are not its learner's

    @property
    def total_steps(self) -> int:
        """Training steps: examples seen over b, rounded up."""
        return -(-self.schedule.examples_seen // self.schedule.batch_size)

    @property
    def super_batch_size(self) -> int:
        """B = round(b / (1 − f)); b itself where nothing is selected."""
        if self.selection.rule == "uniform":
            return self.schedule.batch_size
        return round(self.schedule.batch_size / (1.0 - self.selection.filtering_ratio))

    @property
    def web_seed(self) -> int:
        """The seed of the synthetic web: its own, or the run's."""
        train = self.data.train
        return train.seed if isinstance(train, ShapesWeb) and train.seed is not None else self.seed

    @model_validator(mode="after")
    def _chunks(self) -> TrainConfig:
        if self.selection.rule == "joint" and self.selection.chunks > self.schedule.batch_size:
            b = self.schedule.batch_size
            raise ValueError(f"selection.chunks {self.selection.chunks} is above schedule.batch_size {b}")
        return self

    def identity(self) -> dict[str, Any]:
        """What decides the result, as plain data: fields at their default left out, and what has no effect.

        Uniform selection ignores criterion, ratio, chunks, gain and reference, so one uniform baseline serves
        every study; data counts by content, so a folder's digest stands for its path.
        """
        identity = self.model_dump(mode="json", exclude_defaults=True, exclude={"runtime"})
        rule = self.selection.rule
        inert = {
            "uniform": {"criterion", "filtering_ratio", "chunks", "gain", "reference"},
            "independent": {"chunks"},
            "joint": set(),
        }[rule]
        if rule != "uniform" and not self.selection.needs_reference:
            inert = inert | {"reference"}
        selection = {k: v for k, v in identity.get("selection", {}).items() if k not in inert}
        identity.pop("selection", None)
        if selection:
            identity["selection"] = selection
        for part in ("train", "benchmark"):
            folder = identity.get("data", {}).get(part)
            if folder and folder.get("digest"):
                folder.pop("path")
        data = identity.setdefault("data", {})
        if isinstance(self.data.train, ShapesWeb):
            data.setdefault("train", {}).update(seed=self.web_seed, generator=SHAPES_GENERATOR)
        if isinstance(self.data.benchmark, ShapesBenchmark):
            data.setdefault("benchmark", {}).update(generator=SHAPES_GENERATOR)
        return identity
