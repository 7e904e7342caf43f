"""The config of one diagnosis: how learnable the batches are that the rules select from real data."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from .data import Data, ShapesWeb
from .section import Fraction, RunName, Section, Seed

FilteringRatio = Annotated[float, Field(ge=0.0, lt=1.0)]


class DiagnoseRuntime(Section):
    """How, not what: never part of a run's identity."""

    loader_threads: PositiveInt = 1
    damaged_share: Fraction = 0.01  # of the examples read that may be damaged before the run fails


class DiagnoseConfig(Section):
    """One diagnosis of selection with a learner as it stands (paper, Sec. 4.1, Figure 2).

    From each of a few super-batches, every rule selects a sub-batch of b examples. As in the paper b is fixed
    and the super-batch grows with the filtering ratio: B = round(b / (1 − f)). Smaller super-batches are the
    first examples of the largest.
    """

    version: ClassVar[int] = 1

    learner: RunName  # a run of towers, as it ended
    reference: RunName | None = None  # a run of towers, or an `embed` run's cached embeddings
    data: Data = Data()
    criterion: Literal["learnability", "easy_reference", "hard_learner"] = "learnability"
    loss: Literal["sigmoid", "softmax"] = "sigmoid"  # that scores
    gain: PositiveFloat = 100.0  # scores are multiplied by it before sampling
    batch_size: PositiveInt = 128  # b
    filtering_ratio: FilteringRatio = 0.8  # f, of all that is no function of it
    filtering_ratios: tuple[FilteringRatio, ...] = (0.5, 0.8, 0.9)  # at which joint selection is compared
    chunks: tuple[PositiveInt, ...] = (2, 4, 8, 16, 32)  # N, at each of them; 1 is independent selection
    joint_chunks: PositiveInt = 16  # N, of all that is no function of it
    sweeps: PositiveInt = 16  # of Gibbs sampling: b draws each
    draws: PositiveInt = 4  # super-batches, averaged over
    matrix_size: Annotated[int, Field(gt=0, le=256)] = (
        64  # pairs in the matrix that is shown, of the first super-batch
    )
    columns: tuple[str, ...] = ("noise", "label")  # of metadata, by which the selected are broken down
    runtime: DiagnoseRuntime = DiagnoseRuntime()
    seed: Seed = 0

    @field_validator("filtering_ratios", "chunks")
    @classmethod
    def _ascending(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        """Each once, in order: in what order they are given decides nothing."""
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
        """B = round(b / (1 − f)); without f, of the largest super-batch."""
        if filtering_ratio is None:
            filtering_ratio = max((self.filtering_ratio, *self.filtering_ratios))
        return round(self.batch_size / (1.0 - filtering_ratio))

    @property
    def needs_reference(self) -> bool:
        """Whether the scores contain the loss of a reference model."""
        return self.criterion != "hard_learner"

    @property
    def scores_learner(self) -> bool:
        """Whether they contain the loss of the learner."""
        return self.criterion != "easy_reference"

    @property
    def web_seed(self) -> int:
        """The seed of the synthetic web: its own, or the run's."""
        return self.data.web_seed(self.seed)

    def identity(self) -> dict[str, Any]:
        """What decides the result: not the benchmark, and the reference only where it scores."""
        inert = {"runtime"} if self.needs_reference else {"runtime", "reference"}
        if self.loss == "softmax":  # no matrix
            inert |= {"matrix_size"}
        identity = self.model_dump(mode="json", exclude_defaults=True, exclude=inert)
        data = self.data.identity(self.web_seed)
        data.pop("benchmark", None)
        return identity | {"data": data}
