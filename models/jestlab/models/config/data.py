"""Config of the data that are trained on and evaluated on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationInfo, field_validator, model_validator

from jestlab.models.config.code import NO_OPTIONS, Extension, Options, Section, known, names_code
from jestlab.models.config.towers import Fraction, LocalPath, RunName, Seed
from jestlab.models.data.filters import Filter, missing_column


class NoiseRates(Section):
    """The share of the synthetic web's pairs with each kind of web noise; the rest is clean.

    Attributes:
        mismatched: Share of the pairs with the caption of another image.
        alt_text: Share with an alternative text such as "IMG_2041.jpg" or "click to enlarge" as caption.
        noise_image: Share with static under an honest caption.
        blank: Share with one flat colour under an honest caption.
        vague: Share with a caption such as "a picture of a thing".
        near_duplicate: Share that are one of a few templates, hardly changed.
    """

    mismatched: Fraction = 0.25
    alt_text: Fraction = 0.10
    noise_image: Fraction = 0.05
    blank: Fraction = 0.05
    vague: Fraction = 0.05
    near_duplicate: Fraction = 0.10

    @model_validator(mode="after")
    def _sum(self) -> NoiseRates:
        total = sum(getattr(self, name) for name in type(self).model_fields)
        if total > 1 + 1e-9:
            raise ValueError(f"noise rates sum to {total:.3g}, above 1")
        return self


SHAPES_GENERATOR = 2
"""Raise it whenever the same settings and seed would give other bytes: it is part of the data's identity."""


SYNTHETIC_CAPTION = "synthetic_caption"
"""The metadata column that `recaption` reads."""


SHAPES_COLUMNS = (
    *("url", "caption", "key", "status", "error_message", "width", "height", "original_width"),
    *("original_height", "sha256", "similarity", "aesthetic", "text_quality", "uniqueness", "punsafe"),
    *(SYNTHETIC_CAPTION, "noise", "label", "size", "position", "background"),
)
"""Columns of the synthetic web's metadata, for filters."""


SCORES = ("clip_score", "negcliploss", "semdedup", "normsim")

SCORE_COLUMNS = (*SCORES, *(f"{name}_rank" for name in SCORES), "soft_cap")
"""Columns that a run of `score` may make."""


class ShapesWeb(Section):
    """The synthetic web: rendered shapes with captions and web noise, made from these settings alone.

    Attributes:
        kind: What the data are.
        examples: Number of image–text pairs of the synthetic web.
        seed: Seed that the web is made from; null for the run's seed, so that replicates see different webs.
        image_size: Side of the images in pixels; they are square.
        shard_size: Number of examples in a tar file.
        duplicate_templates: Number of templates that near-duplicates are made of.
    """

    kind: Literal["shapes"] = "shapes"
    examples: PositiveInt = 24_576
    seed: Seed | None = None
    image_size: PositiveInt = 32
    shard_size: PositiveInt = 4_096
    duplicate_templates: PositiveInt = 24
    noise: NoiseRates = NoiseRates()


class ShardFolder(Section):
    """A folder of image–text tar shards as img2dataset writes them.

    Attributes:
        kind: What the data are.
        path: Folder of image–text tar shards, as img2dataset writes them.
        digest: Digest of the content, which identifies the data in place of the path. The plan fills it in.
        examples: About how many examples the folder holds: for prices, while it is not on this machine.
    """

    kind: Literal["folder"] = "folder"
    path: LocalPath
    digest: str | None = None
    examples: PositiveInt | None = None


class OwnReader(Section):
    """Image–text pairs that a function of one's own reads: written as shards once, and then trained on.

    Attributes:
        kind: What the data are.
        function: Function of one's own that reads the pairs.
        options: Keyword arguments of the function.
        path: File or folder that it reads, its argument `path`.
        path_digest: Digest of the content there, which identifies the data. The plan fills it in.
        examples: About how many examples it gives: for prices, while that is not known.
    """

    kind: Literal["reader"] = "reader"
    function: Annotated[str, names_code("reader"), known("reader")]
    options: Options = NO_OPTIONS
    path: LocalPath | None = None
    path_digest: str | None = None
    examples: PositiveInt | None = None


class ShapesBenchmark(Section):
    """Clean held-out images of the synthetic world, as CLIP_benchmark webdataset folders.

    Attributes:
        kind: What is evaluated on.
        seed: Seed that the benchmark is made from, the same for all runs.
        classification_examples: Number of images to classify.
        retrieval_examples: Number of image–text pairs to retrieve from.
        image_size: Side of the images in pixels; they are square.
    """

    kind: Literal["shapes"] = "shapes"
    seed: Seed = 1_000_003
    classification_examples: PositiveInt = 1_024
    retrieval_examples: PositiveInt = 256
    image_size: PositiveInt = 32


class BenchmarkFolder(Section):
    """A folder that holds CLIP_benchmark webdataset folders, one a dataset.

    Attributes:
        kind: What is evaluated on.
        path: Folder that holds CLIP_benchmark webdataset folders, one for each dataset.
        digest: Digest of the content, which identifies the benchmark in place of the path.
    """

    kind: Literal["folder"] = "folder"
    path: LocalPath
    digest: str | None = None


class Data(Section):
    """The data to train on and to test on.

    Attributes:
        train: What is trained on.
        scores: The run of `score` whose columns the filter and `repeat` can read beside the metadata; one of
            a name that metadata have, too, is the one that counts.
        filter: Condition over the metadata that examples have to satisfy to be read, such as
            "similarity > 0.3 and aesthetic > 5"; null for all examples.
        recaption: Condition over the metadata: examples that satisfy it are read with their
            `synthetic_caption` as caption, or left out if they have none; null for no examples.
        repeat: Column that says how many times an example is read in an epoch, 0 for never; null for once.
        benchmark: What is evaluated on.
    """

    train: ShapesWeb | ShardFolder | OwnReader = Field(default=ShapesWeb(), discriminator="kind")
    scores: RunName | None = None
    filter: str | None = None
    recaption: str | None = None
    repeat: str | None = None
    benchmark: ShapesBenchmark | BenchmarkFolder = Field(default=ShapesBenchmark(), discriminator="kind")

    @field_validator("filter", "recaption", "repeat")
    @classmethod
    def _reads(cls, text: str | None, given: ValidationInfo) -> str | None:
        """Reject a filter that is invalid, or not valid for these data, before anything runs."""
        if text is not None:
            known: tuple[str, ...] = SHAPES_COLUMNS
            if given.field_name == "repeat":
                columns = [text]
            else:
                columns = Filter.parse(text).columns
            if given.field_name == "recaption":
                columns = [*columns, SYNTHETIC_CAPTION]
            elif given.data.get("scores") is not None:
                known = (*known, *SCORE_COLUMNS)
            missing = missing_column(columns, known)
            if missing and isinstance(given.data.get("train"), ShapesWeb):
                raise ValueError(f"no {missing}")
        return text

    @field_validator("train", "benchmark", mode="before")
    @classmethod
    def _shapes_unless_said(cls, value: Any) -> Any:
        """Take settings without a `kind` for the synthetic world, so that one of them can be set alone."""
        return {"kind": "shapes", **value} if isinstance(value, dict) else value

    def extensions(self, path: tuple[str, ...]) -> Iterator[Extension]:
        """Yield a reader of one's own; `path` is the place of this section in the config."""
        if isinstance(self.train, OwnReader):
            yield Extension((*path, "train", "function"), "reader", self.train.function, self.train.options)

    @property
    def reads_scores(self) -> bool:
        """Whether a filter or the repetitions may depend on scores."""
        return self.scores is not None and (self.filter is not None or self.repeat is not None)

    def web_seed(self, seed: int) -> int:
        """Return the seed of the synthetic web: its own, or that of the run that reads it."""
        own = self.train.seed if isinstance(self.train, ShapesWeb) else None
        return seed if own is None else own

    def identity(self, web_seed: int) -> dict[str, Any]:
        """Return what identifies the data: content, not location; for a made web its settings and seed."""
        inert = set() if self.reads_scores else {"scores"}
        identity = self.model_dump(mode="json", exclude_defaults=True, exclude=inert)
        for part in ("train", "benchmark"):
            folder = identity.get(part)
            if folder and isinstance(getattr(self, part), ShardFolder | OwnReader | BenchmarkFolder):
                folder.pop("examples", None)
                if folder.get("digest") or folder.get("path_digest"):
                    folder.pop("path")
        if isinstance(self.train, ShapesWeb):
            identity.setdefault("train", {}).update(seed=web_seed, generator=SHAPES_GENERATOR)
        if isinstance(self.benchmark, ShapesBenchmark):
            identity.setdefault("benchmark", {}).update(generator=SHAPES_GENERATOR)
        return identity
