"""Configs of the other programs: embedding and diagnosis and import of weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from jestlab.models.config.code import NO_OPTIONS, Extended, Extension, Options, Section
from jestlab.models.config.data import Data, ShapesWeb
from jestlab.models.config.towers import Fraction, LocalPath, RunName, Seed, TwoTowers
from jestlab.models.config.train import CRITERIA, LOSSES, CriterionName, LossName


class EmbedRuntime(Section):
    """How to compute, not what: never part of a run's identity."""

    batch_size: PositiveInt = 256  # examples a forward pass
    save_every_batches: PositiveInt = 16  # between saves, from which an interrupted run resumes
    loader_threads: PositiveInt = 1
    decoded_megabytes: NonNegativeInt = 256  # of images decoded once for all runs; larger sets: each time
    damaged_share: Fraction = 0.01  # of the examples that may be damaged before the run fails


class EmbedConfig(Extended):
    """One embedding run: the reference's image and text embeddings of every example that `data` holds.

    Stored by the example's global number, so that any run on the same data can select with them, in whatever
    order it reads (paper, appendix, "Caching reference model scores").
    """

    version: ClassVar[int] = 1

    reference: RunName
    data: Data = Data()
    precision: Literal["float32", "float16"] = "float32"  # as stored; float16 shifts the scores
    runtime: EmbedRuntime = EmbedRuntime()
    seed: Seed = 0

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
        data = self.data.identity(self.web_seed)
        data.pop("benchmark", None)
        return self.identified(identity | {"data": data}, self.extensions())


FilteringRatio = Annotated[float, Field(ge=0.0, lt=1.0)]


class DiagnoseRuntime(Section):
    """How to compute, not what: never part of a run's identity."""

    loader_threads: PositiveInt = 1
    damaged_share: Fraction = 0.01  # of the examples read that may be damaged before the run fails


class DiagnoseConfig(Extended):
    """One diagnosis of selection with a finished learner (paper, Sec. 4.1, Figure 2).

    From each of a few super-batches, every rule selects a sub-batch of b examples. As in the paper, b is
    fixed and the super-batch grows with the filtering ratio: B = round(b / (1 − f)). Smaller super-batches
    are the first examples of the largest.
    """

    version: ClassVar[int] = 1

    learner: RunName  # a run of towers, as it ended
    reference: RunName | None = None  # a run of towers, or an `embed` run's cached embeddings
    data: Data = Data()
    criterion: CriterionName = "learnability"
    criterion_options: Options = NO_OPTIONS  # keyword arguments of a criterion of one's own
    loss: LossName = "sigmoid"  # that scores; for one of one's own, sigmoid
    gain: PositiveFloat = 100.0  # scores are multiplied by it before sampling
    batch_size: PositiveInt = 128  # b
    filtering_ratio: FilteringRatio = 0.8  # f, of everything that is not plotted over it
    filtering_ratios: tuple[FilteringRatio, ...] = (0.5, 0.8, 0.9)  # at which joint selection is compared
    chunks: tuple[PositiveInt, ...] = (2, 4, 8, 16, 32)  # N at each ratio; 1 is independent
    joint_chunks: PositiveInt = 16  # N, of everything that is not plotted over it
    sweeps: PositiveInt = 16  # of Gibbs sampling: b draws each
    draws: PositiveInt = 4  # super-batches, averaged over
    matrix_size: Annotated[int, Field(gt=0, le=256)] = 64  # pairs of the first super-batch that are shown
    columns: tuple[str, ...] = ("noise", "label")  # of metadata, by which the selected are broken down
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
    """

    version: ClassVar[int] = 1

    path: LocalPath
    tokenizer: LocalPath | None = None  # sentencepiece model; None: the one beside the weights
    digest: str | None = None  # of the parameters' content, in any format
    tokenizer_digest: str | None = None
    model: TwoTowers | None = None  # architecture
    compute_dtype: Literal["float32", "bfloat16"] = "float32"  # of the towers, wherever these weights score
    seed: Seed = 0  # nothing here is random: all replicates are one run

    def identity(self) -> dict[str, Any]:
        """Return what decides the result: the content of weights and tokenizer, never their location."""
        identity = self.model_dump(mode="json", exclude_defaults=True, exclude={"model", "seed"})
        for path, digest in (("path", "digest"), ("tokenizer", "tokenizer_digest")):
            if identity.get(digest):
                identity.pop(path, None)
        return identity
