"""Configs of the data for training and evaluation, and the base class of configs of runs that read data."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationInfo, field_validator, model_validator

from jestlab.models.config.base import (
    NO_OPTIONS,
    Code,
    Extension,
    Fraction,
    LocalPath,
    NamesCode,
    Options,
    RunConfig,
    ScoresName,
    Section,
    Seed,
    custom_code,
)
from jestlab.models.data.filters import Filter, missing_column
from jestlab.models.extensions.references import without_folder


class NoiseRates(Section):
    """Shares of the pairs of the synthetic web with each kind of noise. The remaining pairs are clean.

    Attributes:
        mismatched: Share of pairs with the caption of another image.
        alt_text: Share of pairs with a caption such as "IMG_2041.jpg" or "click to enlarge".
        noise_image: Share of pairs whose image is random noise.
        blank: Share of pairs whose image has a single color.
        vague: Share of pairs with a caption such as "a picture of a thing".
        near_duplicate: Share of pairs that are almost copies of one of a few templates.
    """

    mismatched: Fraction = 0.25
    alt_text: Fraction = 0.10
    noise_image: Fraction = 0.05
    blank: Fraction = 0.05
    vague: Fraction = 0.05
    near_duplicate: Fraction = 0.10

    @model_validator(mode="after")
    def _check_sum(self) -> "NoiseRates":
        total = sum(getattr(self, name) for name in type(self).model_fields)
        if total > 1 + 1e-9:
            raise ValueError(f"noise rates sum to {total:.3g}, above 1")
        return self


SHAPES_GENERATOR = 2
"""Version of the synthetic data in identities. Increase it if the same settings give other bytes."""

SYNTHETIC_CAPTION = "synthetic_caption"
"""The metadata column with the captions that `recaption` uses."""

SHAPES_COLUMNS = (
    *("url", "caption", "key", "status", "error_message", "width", "height", "original_width"),
    *("original_height", "sha256", "similarity", "aesthetic", "text_quality", "uniqueness", "punsafe"),
    *(SYNTHETIC_CAPTION, "noise", "label", "size", "position", "background"),
)
"""Columns of the metadata of the synthetic web."""

SCORES = ("clip_score", "negcliploss", "semdedup", "normsim")

SCORE_COLUMNS = (*SCORES, *(f"{name}_rank" for name in SCORES), "soft_cap")
"""Columns that a run of `score` can write."""


class ShapesWeb(Section):
    """The synthetic web: images of shapes with captions and noise, generated from these settings.

    Attributes:
        examples: Number of image–text pairs.
        seed: Seed of the generator; null for the seed of the run: each replicate then has different data.
        image_size: Side of the square images in pixels.
        shard_size: Number of examples in a tar file.
        duplicate_templates: Number of templates of the near-duplicates.
    """

    kind: Literal["shapes"] = "shapes"
    examples: PositiveInt = 24_576
    seed: Seed | None = None
    image_size: PositiveInt = 32
    shard_size: PositiveInt = 4_096
    duplicate_templates: PositiveInt = 24
    noise: NoiseRates = NoiseRates()


class ShardFolder(Section):
    """A folder of tar shards with image–text pairs, in the format of img2dataset.

    Attributes:
        path: Folder of tar shards with image–text pairs, in the format of img2dataset.
        digest: Digest of the content, which identifies the data instead of the path. The plan adds it.
        examples: Approximate number of examples, to estimate costs if the folder isn't on this machine.
    """

    kind: Literal["folder"] = "folder"
    path: LocalPath
    digest: str | None = None
    examples: PositiveInt | None = None


class CustomReader(Section):
    """Image–text pairs from a custom function. They are written as shards once, before training.

    Attributes:
        function: Custom function that reads the pairs.
        options: Keyword arguments of the function.
        path: File or folder that the function reads: its argument `path`.
        path_digest: Digest of the content of `path`, which identifies the data. The plan adds it.
        examples: Approximate number of examples, to estimate costs before the data are read.
    """

    kind: Literal["reader"] = "reader"
    function: Annotated[str, NamesCode("reader")]
    options: Options = NO_OPTIONS
    path: LocalPath | None = None
    path_digest: str | None = None
    examples: PositiveInt | None = None


class ShapesBenchmark(Section):
    """Clean images of the synthetic world that aren't in the training data, as a CLIP_benchmark folder.

    Attributes:
        seed: Seed of the generator, the same for all runs.
        classification_examples: Number of images for classification.
        retrieval_examples: Number of image–text pairs for retrieval.
        image_size: Side of the square images in pixels.
    """

    kind: Literal["shapes"] = "shapes"
    seed: Seed = 1_000_003
    classification_examples: PositiveInt = 1_024
    retrieval_examples: PositiveInt = 256
    image_size: PositiveInt = 32


class BenchmarkFolder(Section):
    """A folder with one CLIP_benchmark webdataset folder per dataset.

    Attributes:
        path: Folder with one CLIP_benchmark webdataset folder per dataset.
        digest: Digest of the content, which identifies the benchmark instead of the path. The plan adds it.
    """

    kind: Literal["folder"] = "folder"
    path: LocalPath
    digest: str | None = None


class Data(Section):
    """The data for training and evaluation.

    Attributes:
        scores: Run of `score` whose columns `filter` and `repeat` can use in addition to the metadata.
        filter: Condition on metadata, such as "similarity > 0.3 and aesthetic > 5"; null for all examples.
        recaption: Condition on metadata. Examples that satisfy it are read with their `synthetic_caption`, or
            left out if they don't have one; null for no examples.
        repeat: Column with the number of times that an example is read per epoch; null for once.
    """

    train: ShapesWeb | ShardFolder | CustomReader = Field(default=ShapesWeb(), discriminator="kind")
    scores: ScoresName | None = None
    filter: str | None = None
    recaption: str | None = None
    repeat: str | None = None
    benchmark: ShapesBenchmark | BenchmarkFolder = Field(default=ShapesBenchmark(), discriminator="kind")

    @field_validator("filter", "recaption", "repeat")
    @classmethod
    def _check_columns(cls, text: str | None, given: ValidationInfo) -> str | None:
        """Check the syntax of a condition and, for the synthetic web, its columns."""
        if text is None:
            return None
        columns = [text] if given.field_name == "repeat" else Filter.parse(text).columns
        reads_scores = given.field_name != "recaption" and given.data.get("scores") is not None
        missing = missing_column(columns, SHAPES_COLUMNS + (SCORE_COLUMNS if reads_scores else ()))
        if missing and isinstance(given.data.get("train"), ShapesWeb):
            raise ValueError(f"no {missing}")
        return text

    @field_validator("train", "benchmark", mode="before")
    @classmethod
    def _add_kind(cls, value: Any) -> Any:
        """Settings without a `kind` are those of the synthetic data."""
        return {"kind": "shapes", **value} if isinstance(value, dict) else value

    @property
    def reads_scores(self) -> bool:
        """Whether `filter` or `repeat` may use scores."""
        return self.scores is not None and (self.filter is not None or self.repeat is not None)


class DataConfig(RunConfig):
    """The config of a run that reads training data.

    Attributes:
        code: Name → custom code. The plan adds it; digests replace the names in identities.
        seed: Number of the replicate. Set `seeds` of the study instead: a run with a fixed seed is one run
            for all replicates.
    """

    code: dict[str, Code] = Field(default={})
    data: Data = Data()
    seed: Seed = 0

    @property
    def web_seed(self) -> int:
        """The seed of the synthetic web: `data.train.seed`, or the seed of the run."""
        train = self.data.train
        return self.seed if not isinstance(train, ShapesWeb) or train.seed is None else train.seed

    def extensions(self) -> Iterator[Extension]:
        """Yield the custom code that the config names."""
        yield from custom_code(self)

    def _plain(self) -> dict[str, Any]:
        plain = super()._plain()
        data = plain.setdefault("data", {})
        if isinstance(self.data.train, ShapesWeb):
            data.setdefault("train", {}).update(seed=self.web_seed, generator=SHAPES_GENERATOR)
        if isinstance(self.data.benchmark, ShapesBenchmark):
            data.setdefault("benchmark", {}).update(generator=SHAPES_GENERATOR)
        for extension in self.extensions():
            *heads, last = extension.path
            section = plain
            for head in heads:
                section = section[head]
            name, code = without_folder(extension.name), self.code.get(extension.name)
            section[last] = f"{name.rpartition(':')[2]} {code.digest}" if code else name
        return plain

    def _inert(self) -> Iterable[str]:
        yield from ("code", "runtime")
        if not self.data.reads_scores:
            yield "data.scores"
        for name, source in (("train", self.data.train), ("benchmark", self.data.benchmark)):
            if isinstance(source, ShardFolder | CustomReader):
                yield f"data.{name}.examples"
            if getattr(source, "digest", None) or getattr(source, "path_digest", None):
                yield f"data.{name}.path"
