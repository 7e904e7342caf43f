"""Configs of the other programs: embedding and diagnosis and import of weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from jestlab.models.config.code import NO_OPTIONS, Extended, Extension, Options, Section
from jestlab.models.config.data import SCORES, Data, ShapesWeb
from jestlab.models.config.towers import Fraction, LocalPath, RunName, Seed, TwoTowers
from jestlab.models.config.train import CRITERIA, LOSSES, CriterionName, LossName
from jestlab.models.data.filters import missing_column


class EmbedRuntime(Section):
    """How to compute, not what: never part of a run's identity.

    Attributes:
        batch_size: Number of examples in a forward pass.
        save_every_batches: Number of batches between saves, from which an interrupted run resumes.
        loader_threads: Number of threads that read and decode examples.
        decoded_megabytes: Images that are decoded once for all runs, if they take no more than this; a
            larger set is decoded each time.
        damaged_share: Share of the examples read that may be damaged before the run fails.
    """

    batch_size: PositiveInt = 256
    save_every_batches: PositiveInt = 16
    loader_threads: PositiveInt = 1
    decoded_megabytes: NonNegativeInt = 256
    damaged_share: Fraction = 0.01


class EmbedConfig(Extended):
    """One embedding run: the reference's image and text embeddings of every example that `data` holds.

    Stored by the example's global number, so that any run on the same data can select with them, in whatever
    order it reads (paper, appendix, "Caching reference model scores").

    Attributes:
        reference: The run whose towers embed the data.
        precision: How embeddings are stored; float16 takes half the space and shifts the scores.
        seed: Replicate, which only decides the synthetic web. Set `seeds` of the study instead.
    """

    version: ClassVar[int] = 1

    reference: RunName
    data: Data = Data()
    precision: Literal["float32", "float16"] = "float32"
    runtime: EmbedRuntime = EmbedRuntime()
    seed: Seed = 0

    @property
    def read(self) -> Data:
        """The data as they are read here: each example once."""
        return self.data if self.data.repeat is None else self.data.model_copy(update={"repeat": None})

    @property
    def web_seed(self) -> int:
        """The seed of the synthetic web: its own, or the run's."""
        return self.data.web_seed(self.seed)

    def extensions(self) -> Iterator[Extension]:
        """Yield the code of one's own that the config names."""
        yield from self.data.extensions(("data",))

    def identity(self) -> dict[str, Any]:
        """Return what decides the result: the training data and the precision. The benchmark has no effect,
        and the seed only through the web that is made from it."""
        identity = self.model_dump(mode="json", exclude_defaults=True, exclude={"runtime", "seed"})
        data = self.read.identity(self.web_seed)
        data.pop("benchmark", None)
        return self.identified(identity | {"data": data}, self.extensions())


class NegClipLoss(Section):
    """How `negcliploss` is computed: the cosine of a pair, less what is alike to it in random batches.

    Attributes:
        batch_size: Number of pairs that meet each other.
        repeats: Number of random divisions into batches that it is averaged over.
        temperature: Temperature of the softmax over a batch; null for the reference's own.
    """

    batch_size: PositiveInt = 32_768
    repeats: PositiveInt = 10
    temperature: PositiveFloat | None = None


class NormSim(Section):
    """How `normsim` is computed: how alike an image is to those of the target set.

    Attributes:
        norm: Norm over the target set; "inf" is the largest cosine.
    """

    norm: Literal[2, "inf"] = "inf"


class SemDeDup(Section):
    """How `semdedup` is computed: how alike an image is to one of its cluster that comes before it.

    Attributes:
        clusters: Number of clusters; null for the root of the number of examples.
        iterations: Number of iterations of k-means.
    """

    clusters: PositiveInt | None = None
    iterations: PositiveInt = 20

    def clusters_of(self, examples: int) -> int:
        """Return the number of clusters of so many examples, at most one each."""
        return min(self.clusters or max(1, round(examples**0.5)), examples)


class SoftCap(Section):
    """How `soft_cap` is drawn: how often each example comes up, for `data.repeat`.

    Attributes:
        of: The column of scores to draw by; null for no such column.
        size: Number of draws in all; null for the number of examples.
        penalty: By how much a score falls each time its example is drawn.
        batch_size: Number of draws, without replacement, between penalties.
        gain: Factor by which scores are multiplied before sampling.
    """

    of: str | None = None
    size: PositiveInt | None = None
    penalty: PositiveFloat = 0.15
    batch_size: PositiveInt = 1_000
    gain: PositiveFloat = 100.0


class ScoreConfig(Section):
    """One scoring of a data set, from a reference's cached embeddings: columns that `data.filter` can read.

    `clip_score`, `negcliploss`, `semdedup`; with a target set `normsim`; with `soft_cap.of` also `soft_cap`,
    how often an example is drawn. Beside each score, `<name>_rank` is the share of the examples whose score
    is lower.

    Attributes:
        embeddings: The run of `embed` whose data are scored.
        target: The run of `embed` of a target set, by the same reference.
        negcliploss: How negCLIPLoss is computed.
        normsim: How NormSim is computed.
        semdedup: How SemDeDup is computed.
        soft_cap: How soft-capped sampling draws.
        seed: Replicate: of batches, first centroids and draws. Set `seeds` of the study instead.
    """

    version: ClassVar[int] = 1

    embeddings: RunName
    target: RunName | None = None
    negcliploss: NegClipLoss = NegClipLoss()
    normsim: NormSim = NormSim()
    semdedup: SemDeDup = SemDeDup()
    soft_cap: SoftCap = SoftCap()
    seed: Seed = 0

    def identity(self) -> dict[str, Any]:
        """Return what decides the result: not how that is computed which is not."""
        inert = {
            name for name, of in (("normsim", self.target), ("soft_cap", self.soft_cap.of)) if of is None
        }
        return self.model_dump(mode="json", exclude_defaults=True, exclude=inert)

    @model_validator(mode="after")
    def _draws(self) -> ScoreConfig:
        scores = [name for name in SCORES if name != "normsim" or self.target is not None]
        columns = [*scores, *(f"{name}_rank" for name in scores)]
        drawn = [] if self.soft_cap.of is None else [self.soft_cap.of]
        if missing := missing_column(drawn, columns):
            raise ValueError(f"soft_cap.of: no {missing}")
        return self


FilteringRatio = Annotated[float, Field(ge=0.0, lt=1.0)]


class DiagnoseRuntime(Section):
    """How to compute, not what: never part of a run's identity.

    Attributes:
        loader_threads: Number of threads that read and decode examples.
        damaged_share: Share of the examples read that may be damaged before the run fails.
    """

    loader_threads: PositiveInt = 1
    damaged_share: Fraction = 0.01


class DiagnoseConfig(Extended):
    """One diagnosis of selection with a finished learner (paper, Sec. 4.1, Figure 2).

    From each of a few super-batches, every rule selects a sub-batch of b examples. As in the paper, b is
    fixed and the super-batch grows with the filtering ratio: B = round(b / (1 − f)). Smaller super-batches
    are the first examples of the largest.

    Attributes:
        learner: The run of towers that is examined, as it ended.
        reference: The run that guides the selection: one of towers, or an `embed` run's cached embeddings.
        criterion: What examples are scored by.
        criterion_options: Keyword arguments of a criterion of one's own.
        loss: The loss that scores; in place of one of one's own, sigmoid.
        gain: Factor by which scores are multiplied before sampling.
        batch_size: The sub-batch size b.
        filtering_ratio: The filtering ratio f of everything that is not plotted over it.
        filtering_ratios: Filtering ratios at which joint selection is compared with the others.
        chunks: Numbers of chunks N of joint selection that are compared at each ratio; 1 is independent
            selection.
        joint_chunks: The number of chunks N of everything that is not plotted over it.
        sweeps: Number of sweeps of Gibbs sampling, of b draws each.
        draws: Number of super-batches that results are averaged over.
        matrix_size: Number of pairs of the first super-batch whose matrix of scores is shown.
        columns: Columns of metadata by which the selected examples are counted.
        seed: Replicate. Set `seeds` of the study instead; a run that sets it is one run, which all
            replicates share.
    """

    version: ClassVar[int] = 1

    learner: RunName
    reference: RunName | None = None
    data: Data = Data()
    criterion: CriterionName = "learnability"
    criterion_options: Options = NO_OPTIONS
    loss: LossName = "sigmoid"
    gain: PositiveFloat = 100.0
    batch_size: PositiveInt = 128
    filtering_ratio: FilteringRatio = 0.8
    filtering_ratios: tuple[FilteringRatio, ...] = (0.5, 0.8, 0.9)
    chunks: tuple[PositiveInt, ...] = (2, 4, 8, 16, 32)
    joint_chunks: PositiveInt = 16
    sweeps: PositiveInt = 16
    draws: PositiveInt = 4
    matrix_size: Annotated[int, Field(gt=0, le=256)] = 64
    columns: tuple[str, ...] = ("noise", "label")
    runtime: DiagnoseRuntime = DiagnoseRuntime()
    seed: Seed = 0

    @field_validator("filtering_ratios", "chunks")
    @classmethod
    def _ascending(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        """Sort the values and drop duplicates, because their order decides nothing."""
        return tuple(sorted(set(values)))

    @model_validator(mode="after")
    def _fits(self) -> DiagnoseConfig:
        if self.needs_reference and self.reference is None:
            raise ValueError(f"criterion {self.criterion!r} needs a reference: set reference")
        b, largest = self.batch_size, self.super_batch_size()
        for name, chunks in (("joint_chunks", self.joint_chunks), ("chunks", max(self.chunks, default=1))):
            if chunks > b:
                raise ValueError(f"{name} {chunks} is above batch_size {b}")
        if self.matrix_size > largest:
            raise ValueError(f"matrix_size {self.matrix_size} is above the largest super-batch, {largest}")
        if isinstance(self.data.train, ShapesWeb) and largest > self.data.train.examples:
            raise ValueError(
                f"the largest super-batch of {largest} is above data.train.examples "
                f"{self.data.train.examples}: lower batch_size or the filtering ratios"
            )
        return self

    def super_batch_size(self, filtering_ratio: float | None = None) -> int:
        """Return B = round(b / (1 − f)); without f, the size of the largest super-batch."""
        if filtering_ratio is None:
            filtering_ratio = max((self.filtering_ratio, *self.filtering_ratios))
        return round(self.batch_size / (1.0 - filtering_ratio))

    @property
    def needs_reference(self) -> bool:
        """Whether the scores contain the loss of a reference model."""
        if self.criterion in CRITERIA:
            return self.criterion != "hard_learner"
        return self.reference is not None

    @property
    def scoring_loss(self) -> str:
        """The loss that scores: sigmoid in place of one of one's own."""
        return self.loss if self.loss in LOSSES else "sigmoid"

    @property
    def scores_learner(self) -> bool:
        """Whether the scores contain the loss of the learner."""
        code = self.code.get(self.criterion)
        return self.criterion != "easy_reference" and (
            code is None or code.uses is None or "learner" in code.uses
        )

    @property
    def web_seed(self) -> int:
        """The seed of the synthetic web: its own, or the run's."""
        return self.data.web_seed(self.seed)

    def extensions(self) -> Iterator[Extension]:
        """Yield the code of one's own that the config names."""
        yield from self.data.extensions(("data",))
        if self.criterion not in CRITERIA:
            yield Extension(("criterion",), "criterion", self.criterion, self.criterion_options)

    def identity(self) -> dict[str, Any]:
        """Return what decides the result: not the benchmark, and the reference only if it scores."""
        inert = {"runtime"} if self.needs_reference else {"runtime", "reference"}
        if self.loss == "softmax":  # no matrix
            inert |= {"matrix_size"}
        if self.loss not in LOSSES:
            inert |= {"loss"}
        identity = self.model_dump(mode="json", exclude_defaults=True, exclude=inert)
        data = self.data.identity(self.web_seed)
        data.pop("benchmark", None)
        return self.identified(identity | {"data": data}, self.extensions())


class WeightsConfig(Section):
    """One import of weights: big_vision's `.npz`, Hugging Face's SigLIP, or what `weights import` wrote.

    `digest`, `tokenizer_digest` and `model` are filled in by the plan from the files at the paths; if
    given beforehand, they say what must be there.

    Attributes:
        path: The weights: a `.npz` of big_vision, a folder of Hugging Face, or what `jestlab weights import`
            wrote.
        tokenizer: Its sentencepiece model; null for the one beside the weights.
        digest: Digest of the parameters' content, in any format. The plan fills it in.
        tokenizer_digest: Digest of the tokenizer. The plan fills it in.
        model: Architecture of the towers. The plan fills it in.
        compute_dtype: Type of numbers that the towers compute in, wherever these weights score.
        seed: Without effect: nothing here is random, and all replicates are one run.
    """

    version: ClassVar[int] = 1

    path: LocalPath
    tokenizer: LocalPath | None = None
    digest: str | None = None
    tokenizer_digest: str | None = None
    model: TwoTowers | None = None
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    seed: Seed = 0

    def identity(self) -> dict[str, Any]:
        """Return what decides the result: the content of weights and tokenizer, never their location."""
        identity = self.model_dump(mode="json", exclude_defaults=True, exclude={"model", "seed"})
        for path, digest in (("path", "digest"), ("tokenizer", "tokenizer_digest")):
            if identity.get(digest):
                identity.pop(path, None)
        return identity
