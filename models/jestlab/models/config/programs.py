"""Configs of the other programs: `embed`, `score`, `diagnose`, and `weights`."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from jestlab.models.config.base import (
    NO_OPTIONS,
    SCORING_LOSSES,
    EmbeddingsName,
    Extension,
    LoaderRuntime,
    LocalPath,
    Options,
    ReferenceName,
    RunConfig,
    Section,
    Seed,
    TowersName,
    takes,
)
from jestlab.models.config.data import SCORES, DataConfig
from jestlab.models.config.selection import (
    FILTERING_RATIO,
    CriterionName,
    FilteringRatio,
    Gain,
    LossName,
    contains_reference,
    scoring_loss_of,
)
from jestlab.models.config.towers import TwoTowers
from jestlab.models.data.filters import missing_column


class EmbedRuntime(LoaderRuntime):
    """How to compute. Not part of a run's identity.

    Attributes:
        batch_size: Number of examples per forward pass.
        save_every_batches: Number of batches between saves, from which interrupted runs resume.
        decoded_megabytes: Largest size, in megabytes, of decoded images that are stored for all runs. Larger
            sets are decoded in each run.
    """

    batch_size: PositiveInt = 256
    save_every_batches: PositiveInt = 16
    decoded_megabytes: NonNegativeInt = 256


class EmbedConfig(DataConfig):
    """The reference's image and text embeddings of all examples in `data`, computed once.

    They are stored by the global number of the example, so that any run on the same data can select with
    them, in any order (paper, appendix, "Caching reference model scores").

    Attributes:
        reference: Run whose towers embed the data.
        precision: Type of the stored embeddings. float16 takes half the space and changes scores slightly.
        seed: Number of the replicate. It only affects the synthetic web. Set `seeds` of the study instead.
    """

    reference: TowersName
    precision: Literal["float32", "float16"] = "float32"
    runtime: EmbedRuntime = EmbedRuntime()

    def _inert(self) -> Iterable[str]:
        yield from (*super()._inert(), "seed", "data.benchmark", "data.repeat")
        if self.data.filter is None:
            yield "data.scores"


class NegClipLoss(Section):
    """Settings of `negcliploss`: the cosine of a pair, minus its similarity to other pairs in random batches.

    Attributes:
        batch_size: Number of pairs that are compared with each other.
        repeats: Number of random divisions into batches. Scores are means over them.
        temperature: Temperature of the softmax over a batch; null for that of the reference.
    """

    batch_size: PositiveInt = 32_768
    repeats: PositiveInt = 10
    temperature: PositiveFloat | None = None


class NormSim(Section):
    """Settings of `normsim`: the similarity of an image to the images of the target set.

    Attributes:
        norm: Norm over the target set. "inf" is the largest cosine.
    """

    norm: Literal[2, "inf"] = "inf"


class SemDeDup(Section):
    """Settings of `semdedup`: the similarity of an image to the most similar earlier image of its cluster.

    Attributes:
        clusters: Number of clusters; null for the square root of the number of examples.
        iterations: Number of iterations of k-means.
    """

    clusters: PositiveInt | None = None
    iterations: PositiveInt = 20

    def clusters_of(self, examples: int) -> int:
        """Return the number of clusters for a number of examples."""
        return min(self.clusters or max(1, round(examples**0.5)), examples)


class SoftCap(Section):
    """Settings of `soft_cap`: how often each example is drawn, for `data.repeat`.

    Attributes:
        of: Column of scores for the draws; null to write no column `soft_cap`.
        size: Total number of draws; null for the number of examples.
        penalty: Decrease of an example's score each time that the example is drawn.
        batch_size: Number of draws, without replacement, between penalties.
        gain: Factor on scores before sampling.
    """

    of: str | None = None
    size: PositiveInt | None = None
    penalty: PositiveFloat = 0.15
    batch_size: PositiveInt = 1_000
    gain: PositiveFloat = 100.0


class ScoreConfig(RunConfig):
    """Scores of a data set from a reference's cached embeddings: columns that `data.filter` can use.

    The columns are `clip_score`, `negcliploss`, and `semdedup`; with a target set, also `normsim`; with
    `soft_cap.of`, also `soft_cap`, the number of draws of an example. For each score, `<name>_rank` is the
    share of examples with a lower score.

    Attributes:
        embeddings: Run of `embed` whose data are scored.
        target: Run of `embed` for a target set, with the same reference.
        seed: Number of the replicate. Set `seeds` of the study instead.
    """

    embeddings: EmbeddingsName
    target: EmbeddingsName | None = None
    negcliploss: NegClipLoss = NegClipLoss()
    normsim: NormSim = NormSim()
    semdedup: SemDeDup = SemDeDup()
    soft_cap: SoftCap = SoftCap()
    seed: Seed = 0

    def _inert(self) -> Iterable[str]:
        if self.target is None:
            yield "normsim"
        if self.soft_cap.of is None:
            yield "soft_cap"

    @model_validator(mode="after")
    def _check_soft_cap(self) -> "ScoreConfig":
        scores = [name for name in SCORES if name != "normsim" or self.target is not None]
        columns = [*scores, *(f"{name}_rank" for name in scores)]
        if self.soft_cap.of is not None and (missing := missing_column([self.soft_cap.of], columns)):
            raise ValueError(f"soft_cap.of: no {missing}")
        return self


class DiagnoseConfig(DataConfig):
    """Diagnosis of selection with a trained learner (paper, Sec. 4.1, Figure 2).

    Every rule selects a sub-batch of b examples from each of a few super-batches. As in the paper, b is fixed
    and the super-batch grows with the filtering ratio: B = round(b / (1 − f)). Smaller super-batches are the
    first examples of the largest.

    Attributes:
        learner: Run whose towers are diagnosed, in their final state.
        reference: Run that provides the reference model: a run with towers, or a run of `embed`.
        criterion: How examples are scored.
        criterion_options: Keyword arguments of a custom criterion.
        loss: Loss for scoring. A custom loss is replaced by "sigmoid".
        gain: Factor on scores before sampling.
        batch_size: The sub-batch size b.
        filtering_ratio: The filtering ratio f of results that aren't plotted over it.
        filtering_ratios: Filtering ratios at which joint selection is compared with other rules.
        chunks: Numbers of chunks N of joint selection to compare at each ratio. 1 is independent selection.
        joint_chunks: Number of chunks N of results that aren't plotted over it.
        sweeps: Number of sweeps of Gibbs sampling, each with b draws.
        draws: Number of super-batches. Results are means over them.
        matrix_size: Number of pairs of the first super-batch in the matrix of scores.
        columns: Metadata columns. The selected examples are counted by their values.
    """

    learner: TowersName
    reference: ReferenceName | None = None
    criterion: CriterionName = "learnability"
    criterion_options: Options = NO_OPTIONS
    loss: LossName = "sigmoid"
    gain: Gain = 100.0
    batch_size: PositiveInt = 128
    filtering_ratio: FilteringRatio = FILTERING_RATIO
    filtering_ratios: tuple[FilteringRatio, ...] = (0.5, 0.8, 0.9)
    chunks: tuple[PositiveInt, ...] = (2, 4, 8, 16, 32)
    joint_chunks: PositiveInt = 16
    sweeps: PositiveInt = 16
    draws: PositiveInt = 4
    matrix_size: Annotated[int, Field(gt=0, le=256)] = 64
    columns: tuple[str, ...] = ("noise", "label")
    runtime: LoaderRuntime = LoaderRuntime()

    @field_validator("filtering_ratios", "chunks")
    @classmethod
    def _sort(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        """Sort the values and drop duplicates, because their order has no effect."""
        return tuple(sorted(set(values)))

    @model_validator(mode="after")
    def _check_sizes(self) -> "DiagnoseConfig":
        if self.needs_reference and self.reference is None:
            raise ValueError(f"criterion {self.criterion!r} needs a reference: set reference")
        largest = self.super_batch_size()
        for name, chunks in (("joint_chunks", self.joint_chunks), ("chunks", max(self.chunks, default=1))):
            if chunks > self.batch_size:
                raise ValueError(f"{name} {chunks} is above batch_size {self.batch_size}")
        if self.matrix_size > largest:
            raise ValueError(f"matrix_size {self.matrix_size} is above the largest super-batch, {largest}")
        return self

    def super_batch_size(self, filtering_ratio: float | None = None) -> int:
        """Return B = round(b / (1 − f)); without f, the size of the largest super-batch."""
        if filtering_ratio is None:
            filtering_ratio = max((self.filtering_ratio, *self.filtering_ratios))
        return round(self.batch_size / (1.0 - filtering_ratio))

    @property
    def needs_reference(self) -> bool:
        """Whether the scores contain the loss of a reference model."""
        return contains_reference(self.criterion, self.reference)

    @property
    def scoring_loss(self) -> str:
        """The loss for scoring."""
        return scoring_loss_of(self.loss)

    @property
    def scores_learner(self) -> bool:
        """Whether the scores contain the loss of the learner."""
        return takes(self.code, "criterion", self.criterion, "learner")

    def extensions(self) -> Iterator[Extension]:
        """Yield the custom code that the config names and uses."""
        return (extension for extension in super().extensions() if extension.kind != "loss")

    def _inert(self) -> Iterable[str]:
        yield from (*super()._inert(), "data.benchmark")
        if not self.needs_reference:
            yield "reference"
        if self.loss == "softmax":  # without a matrix of scores
            yield "matrix_size"
        if self.loss not in SCORING_LOSSES:
            yield "loss"


class WeightsConfig(RunConfig):
    """Import of weights: a `.npz` of big_vision, SigLIP of Hugging Face, or output of `weights import`.

    The plan adds `digest`, `tokenizer_digest`, and `model` from the files. If a config sets one of these, the
    files must match it.

    Attributes:
        path: A `.npz` of big_vision, a folder of Hugging Face, or the output of `jestlab weights import`.
        tokenizer: The tokenizer of the weights; null for the one next to the weights.
        digest: Digest of the parameters, the same in any format. The plan adds it.
        tokenizer_digest: Digest of the tokenizer. The plan adds it.
        model: Architecture of the towers. The plan adds it.
        compute_dtype: Type of the activations in runs that score with these weights.
        seed: Has no effect: all replicates are one run.
    """

    path: LocalPath
    tokenizer: LocalPath | None = None
    digest: str | None = None
    tokenizer_digest: str | None = None
    model: TwoTowers | None = None
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    seed: Seed = 0

    def _inert(self) -> Iterable[str]:
        yield from ("model", "seed")
        for path, digest in (("path", self.digest), ("tokenizer", self.tokenizer_digest)):
            if digest:
                yield path
