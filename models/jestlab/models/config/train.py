"""Config of one training run: a reference model or a learner."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from jestlab.models.config.code import NO_OPTIONS, Extended, Extension, Options, Section, known, names_code
from jestlab.models.config.data import Data
from jestlab.models.config.towers import Fraction, RunName, Seed, TwoTowers

RULES = ("uniform", "independent", "joint", "greedy", "gibbs")
CRITERIA = ("learnability", "easy_reference", "hard_learner")
LOSSES = ("sigmoid", "softmax")

RuleName = Annotated[str, names_code("rule", RULES), known("rule", RULES)]
CriterionName = Annotated[str, names_code("criterion", CRITERIA), known("criterion", CRITERIA)]
LossName = Annotated[str, names_code("loss", LOSSES), known("loss", LOSSES)]


class Selection(Section):
    """How the sub-batch (size b) is chosen from the super-batch (size B = b / (1 − f))."""

    rule: RuleName = "uniform"
    rule_options: Options = NO_OPTIONS  # keyword arguments of a rule of one's own
    criterion: CriterionName = "learnability"
    criterion_options: Options = NO_OPTIONS  # keyword arguments of a criterion of one's own
    loss: Literal["sigmoid", "softmax"] | None = None  # that scores; None: the one that is trained with
    filtering_ratio: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.8  # f
    chunks: PositiveInt = 16  # N, of rule "joint"
    gain: PositiveFloat = 100.0  # scores are multiplied by it before sampling (`softmax_score_gain`)
    sweeps: PositiveInt = 4  # of rule "gibbs": b draws each, each as costly as joint selection
    reference: RunName | None = None

    @property
    def needs_reference(self) -> bool:
        """Whether the scores contain the loss of a reference model."""
        if self.rule == "uniform" or self.criterion == "hard_learner":
            return False
        return self.criterion in CRITERIA or self.reference is not None

    def extensions(self, path: tuple[str, ...]) -> Iterator[Extension]:
        """Yield a rule and a criterion of one's own; `path` is the place of this section in the config."""
        if self.rule not in RULES:
            yield Extension((*path, "rule"), "rule", self.rule, self.rule_options)
        if self.criterion not in CRITERIA:
            yield Extension((*path, "criterion"), "criterion", self.criterion, self.criterion_options)

    @model_validator(mode="after")
    def _reference(self) -> Selection:
        if self.needs_reference and self.reference is None:
            raise ValueError(
                f"rule {self.rule!r} by {self.criterion!r} needs a reference: set selection.reference"
            )
        return self


class Approximation(Section):
    """A cheaper view of images with the same parameters, to score with and to train on (paper, Sec. 3.3).

    Flexi-JEST is `{score: true, share: 0.5}`: the super-batch is scored at twice the patch size, and half of
    the sub-batch is trained on at it.
    """

    method: Literal["flexi", "patch_drop"] = "flexi"  # larger patches, or a random part of the patches
    patch_size: PositiveInt | None = None  # pixels, of "flexi"; None: twice the tower's own
    keep: Annotated[float, Field(gt=0.0, le=1.0)] = 0.25  # share of the patches that "patch_drop" looks at
    score: bool = False  # whether the super-batch is scored with it
    share: Fraction = 0.0  # λ, of the sub-batch that is trained on with it


class Optimizer(Section):
    """Adam with decoupled weight decay, clipping, linear warm-up and cosine decay (paper, appendix)."""

    learning_rate: PositiveFloat = 1e-3
    beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.95
    weight_decay: Annotated[float, Field(ge=0.0)] = 1e-4  # not multiplied by the peak rate
    decay_parameters: str = ".*/kernel$"  # regular expression over their names, as `img/embedding/kernel`
    clip_norm: PositiveFloat | None = 1.0  # of the whole gradient
    warmup_percent: Annotated[float, Field(ge=0.0, le=100.0)] = 1.0
    decay: Literal["cosine", "constant"] = "cosine"  # of the learning rate after the warm-up, to 0
    temperature_multiplier: PositiveFloat = 1.0  # on the updates of t and b

    @field_validator("decay_parameters")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"not a valid regular expression: {error}") from None
        return pattern


class Schedule(Section):
    """How long to train, and in steps of what size."""

    batch_size: PositiveInt = 64  # b, what the learner trains on in one step
    super_batch_size: PositiveInt | None = None  # B; if given, b = round(B (1 − f)) and batch_size is unused
    examples_seen: PositiveInt = 9_600  # by the learner; the number of steps is this over b, rounded up


class ExtraEvaluation(Section):
    """An evaluation of one's own."""

    function: Annotated[str, names_code("evaluation"), known("evaluation")]
    options: Options = NO_OPTIONS  # its keyword arguments


class Evaluation(Section):
    """When and how the learner is evaluated."""

    points: PositiveInt = 10  # evenly spaced over training; the last is at its end
    shots: PositiveInt = 10  # per class, for the ridge probe
    shot_seeds: PositiveInt = 3  # draws of the few examples, averaged
    extra: dict[str, ExtraEvaluation] = Field(
        default={}, json_schema_extra={"names_code": "evaluation"}
    )  # of one's own, by the first part of their names

    def extensions(self, path: tuple[str, ...]) -> Iterator[Extension]:
        """Yield the evaluations of one's own; `path` is the place of this section in the config."""
        for name, extra in self.extra.items():
            yield Extension((*path, "extra", name, "function"), "evaluation", extra.function, extra.options)

    @field_validator("extra", mode="before")
    @classmethod
    def _functions(cls, extra: Any) -> Any:
        """A function alone is one without options."""
        if not isinstance(extra, dict):
            return extra
        return {name: {"function": one} if isinstance(one, str) else one for name, one in extra.items()}


class Diagnostics(Section):
    """What is recorded about the selected examples, besides the metrics of every step."""

    every_steps: PositiveInt | None = None  # None: nothing
    columns: tuple[str, ...] = ("noise", "label")  # of metadata, by whose values examples are counted


class Runtime(Section):
    """How to compute, not what: never part of a run's identity, since no value here changes a result beyond
    rounding."""

    log_every_steps: PositiveInt = 10
    checkpoint_every_steps: PositiveInt = 50
    keep_checkpoints: PositiveInt = 2  # the newest; the best is kept as well
    steps_per_dispatch: PositiveInt = 1  # between round trips of the host; a divisor of log_every_steps
    microbatches: PositiveInt = 1  # parts of the sub-batch whose activations are held at a time
    remat: Literal["none", "dots", "all"] = "none"  # what is computed again: all but products, or all
    scan_layers: bool = False  # one compiled block for all layers: faster to compile
    selection_kernel: Literal["auto", "blocks", "fused"] = "auto"  # what sums over pairs; fused: TPU alone
    loader_threads: PositiveInt = 1
    damaged_share: Fraction = 0.01  # of the examples read that may be damaged before the run fails
    decoded_megabytes: NonNegativeInt = 256  # of images decoded once for all runs; larger sets: each time
    diagnostics: Diagnostics = Diagnostics()


class TrainConfig(Extended):
    """One training run: a reference model or a learner."""

    # Raise it when a default or its meaning changes: identities leave defaults out.
    version: ClassVar[int] = 3

    model: TwoTowers = TwoTowers()
    data: Data = Data()
    loss: LossName = "sigmoid"
    loss_options: Options = NO_OPTIONS  # keyword arguments of a loss of one's own
    selection: Selection = Selection()
    approximation: Approximation = Approximation()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    evaluation: Evaluation = Evaluation()
    runtime: Runtime = Runtime()
    seed: Seed = 0
    initialization: Seed = 0  # another value, other initial parameters: a reference's are not its learner's

    @property
    def batch_size(self) -> int:
        """The sub-batch size b: as given, or what the filtering ratio leaves of a given super-batch."""
        if self.schedule.super_batch_size is None:
            return self.schedule.batch_size
        return max(1, round(self.schedule.super_batch_size * (1.0 - self.selection.filtering_ratio)))

    @property
    def super_batch_size(self) -> int:
        """The super-batch size B: as given, or round(b / (1 − f)); b itself under uniform selection."""
        if self.selection.rule == "uniform":
            return self.batch_size
        return self.schedule.super_batch_size or round(
            self.batch_size / (1.0 - self.selection.filtering_ratio)
        )

    @property
    def approximate_size(self) -> int:
        """How many of the sub-batch are trained on approximately: round(λ b)."""
        return round(self.approximation.share * self.batch_size)

    @property
    def selects(self) -> bool:
        """Whether there is anything to select: with B = b every rule chooses all."""
        return self.super_batch_size > self.batch_size

    @property
    def needs_reference(self) -> bool:
        """Whether a reference model scores the super-batch."""
        return self.selects and self.selection.needs_reference

    @property
    def scores_learner(self) -> bool:
        """Whether the learner scores the super-batch."""
        return self.selects and "learner" in self._scores_with

    @property
    def _scores_with(self) -> Sequence[str]:
        """The models that the criterion looks at, as far as that is known."""
        if self.selection.criterion == "easy_reference":
            return ("reference",)
        code = self.code.get(self.selection.criterion)
        return ("learner", "reference") if code is None or code.uses is None else code.uses

    @property
    def scoring_loss(self) -> str:
        """The loss that scores: the one that is trained with, if it is built in and nothing else is said."""
        return self.selection.loss or (self.loss if self.loss in LOSSES else "sigmoid")

    @property
    def approximate_patch_size(self) -> int:
        """The patch size of approximation "flexi", in pixels."""
        return self.approximation.patch_size or 2 * self.model.vision.patch_size

    @property
    def total_steps(self) -> int:
        """The number of training steps: examples seen over b, rounded up."""
        return -(-self.schedule.examples_seen // self.batch_size)

    def diagnoses(self, step: Any) -> Any:
        """Return whether the selected examples are examined after a step; step and result may be arrays."""
        every = self.runtime.diagnostics.every_steps
        if every is None or not self.selects:
            return False
        return (step % every == 0) | (step == self.total_steps)

    @property
    def web_seed(self) -> int:
        """The seed of the synthetic web: its own, or the run's."""
        return self.data.web_seed(self.seed)

    @model_validator(mode="after")
    def _fits(self) -> TrainConfig:
        b = self.batch_size
        if self.selection.rule == "joint" and self.selection.chunks > b:
            size = "schedule.batch_size" if self.schedule.super_batch_size is None else "the batch size b ="
            raise ValueError(f"selection.chunks {self.selection.chunks} is above {size} {b}")
        image_size, patch_size = self.model.vision.image_size, self.approximate_patch_size
        if self._approximates and self.model.vision.is_own:
            raise ValueError("approximation needs the built-in image tower: drop it, or the architecture")
        if self._approximates and self.approximation.method == "flexi" and image_size % patch_size:
            raise ValueError(
                f"approximation.patch_size {patch_size} does not divide model.vision.image_size {image_size}"
            )
        return self

    @property
    def _approximates(self) -> bool:
        """Whether the approximation has any effect on the run."""
        return self.approximate_size > 0 or (self.approximation.score and self.scores_learner)

    def extensions(self) -> Iterator[Extension]:
        """Yield the code of one's own that the config names."""
        yield from self.model.extensions(("model",))
        yield from self.data.extensions(("data",))
        if self.loss not in LOSSES:
            yield Extension(("loss",), "loss", self.loss, self.loss_options)
        if self.selects:
            yield from self.selection.extensions(("selection",))
        yield from self.evaluation.extensions(("evaluation",))

    def identity(self) -> dict[str, Any]:
        """Return what decides the result, as plain data: without fields at their default or without effect.

        Without selection, criterion, ratio, chunks, gain and reference have no effect, so one uniform
        baseline serves every study; a variant counts as its sizes; data counts by content, so a folder's
        digest replaces its path; code of one's own counts by content, too.
        """
        identity = self.model_dump(
            mode="json", exclude_defaults=True, exclude={"runtime": True, "model": {"variant"}}
        )
        for name, inert in (
            ("selection", self._inert_in_selection()),
            ("approximation", self._inert_in_approximation()),
        ):
            identity[name] = {k: v for k, v in identity.get(name, {}).items() if k not in inert}
        identity["schedule"] = self._schedule_identity(identity.get("schedule", {}))
        for name in ("model", "selection", "approximation", "schedule"):
            if not identity.get(name):
                identity.pop(name, None)
        return self.identified(identity | {"data": self.data.identity(self.web_seed)}, self.extensions())

    def _inert_in_selection(self) -> set[str]:
        if not self.selects:
            return set(Selection.model_fields)
        rule = self.selection.rule
        inert = {name for name, only in (("chunks", "joint"), ("sweeps", "gibbs")) if rule != only}
        if rule == "greedy":
            inert |= {"gain"}
        if self.selection.loss == (self.loss if self.loss in LOSSES else "sigmoid"):
            inert |= {"loss"}
        return inert if self.needs_reference else inert | {"reference"}

    def _inert_in_approximation(self) -> set[str]:
        if not self._approximates:
            return set(Approximation.model_fields)
        inert = {"keep"} if self.approximation.method == "flexi" else {"patch_size"}
        if self.approximation.patch_size == 2 * self.model.vision.patch_size:
            inert |= {"patch_size"}
        return inert if self.scores_learner else inert | {"score"}

    def _schedule_identity(self, schedule: dict[str, Any]) -> dict[str, Any]:
        """Identify the schedule by b, and by B only where it does not follow from b and f."""
        schedule = {k: v for k, v in schedule.items() if k not in ("batch_size", "super_batch_size")}
        if self.batch_size != Schedule().batch_size:
            schedule["batch_size"] = self.batch_size
        follows = round(self.batch_size / (1.0 - self.selection.filtering_ratio))
        if self.selects and self.super_batch_size != follows:
            schedule["super_batch_size"] = self.super_batch_size
        return schedule
