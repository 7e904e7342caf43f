"""Config of a training run: augmentation, optimizer, schedule, evaluation, runtime; what fits together."""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from jestlab.models.config.base import (
    NO_OPTIONS,
    Extension,
    Fraction,
    LoaderRuntime,
    NamesCode,
    Options,
    Section,
    Seed,
    takes,
)
from jestlab.models.config.data import DataConfig
from jestlab.models.config.selection import (
    Approximation,
    LossName,
    Selection,
    contains_reference,
    scoring_loss_of,
)
from jestlab.models.config.towers import TwoTowers


class Augmentation(Section):
    """Random changes of the images for training and scoring. Images of the benchmark aren't changed.

    Attributes:
        flip: Probability that an image is mirrored horizontally.
        crop: Smallest side of random square crops, as a share of the side of the image; 1 for no crops.
    """

    flip: Fraction = 0.0
    crop: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0


class Optimizer(Section):
    """Adam with decoupled weight decay, clipping, linear warm-up, and cosine decay (paper, appendix).

    Attributes:
        learning_rate: Peak learning rate.
        beta1: Adam's β1, the decay rate of the mean of the gradients.
        beta2: Adam's β2, the decay rate of the mean of the squared gradients.
        weight_decay: Decoupled weight decay. It isn't multiplied by the peak learning rate.
        decay_parameters: Regular expression for the names of decayed parameters, as `img/embedding/kernel`.
        clip_norm: Largest global norm of the gradient; null for no clipping.
        warmup_percent: Length of the linear warm-up of the learning rate, in percent of the steps.
        decay: Schedule of the learning rate after the warm-up. "cosine" decays to 0.
        temperature_multiplier: Factor on the updates of the learned temperature and bias.
    """

    learning_rate: PositiveFloat = 1e-3
    beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.95
    weight_decay: Annotated[float, Field(ge=0.0)] = 1e-4
    decay_parameters: str = ".*/kernel$"
    clip_norm: PositiveFloat | None = 1.0
    warmup_percent: Annotated[float, Field(ge=0.0, le=100.0)] = 1.0
    decay: Literal["cosine", "constant"] = "cosine"
    temperature_multiplier: PositiveFloat = 1.0

    @field_validator("decay_parameters")
    @classmethod
    def _check_pattern(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"not a valid regular expression: {error}") from None
        return pattern


class Schedule(Section):
    """Length of the training, and the sizes of batches.

    Attributes:
        batch_size: The sub-batch size b: the number of examples that the learner trains on in each step.
        super_batch_size: The super-batch size B; null for round(b / (1 − f)). If set, b = round(B (1 − f))
            and `batch_size` has no effect.
        examples_seen: Number of examples that the learner trains on in all steps.
    """

    batch_size: PositiveInt = 64
    super_batch_size: PositiveInt | None = None
    examples_seen: PositiveInt = 9_600


class ExtraEvaluation(Section):
    """A custom evaluation.

    Attributes:
        function: Custom function that evaluates the learner.
        options: Keyword arguments of the function.
    """

    function: Annotated[str, NamesCode("evaluation")]
    options: Options = NO_OPTIONS


class Evaluation(Section):
    """When and how the learner is evaluated.

    Attributes:
        points: Number of evaluations, evenly spaced over training. The last is at the end.
        shots: Number of examples per class for the few-shot probe.
        shot_seeds: Number of random draws of these examples. Results are means over the draws.
        extra: Custom evaluations by name. The name is the first part of the names of their metrics.
    """

    points: PositiveInt = 10
    shots: PositiveInt = 10
    shot_seeds: PositiveInt = 3
    extra: dict[str, ExtraEvaluation] = Field(default={}, json_schema_extra={"names_code": "evaluation"})

    @field_validator("extra", mode="before")
    @classmethod
    def _add_options(cls, extra: Any) -> Any:
        """A config may give a function without options."""
        if not isinstance(extra, dict):
            return extra
        return {name: {"function": one} if isinstance(one, str) else one for name, one in extra.items()}


class Diagnostics(Section):
    """Records about the selected examples, in addition to the metrics of every step.

    Attributes:
        every_steps: Number of steps between records; null for none.
        columns: Metadata columns. The selected examples are counted by their values.
    """

    every_steps: PositiveInt | None = None
    columns: tuple[str, ...] = ("noise", "label")


class Runtime(LoaderRuntime):
    """How to compute. Not part of a run's identity, because it changes results only by rounding.

    Attributes:
        log_every_steps: Number of steps between recorded metrics.
        checkpoint_every_steps: Number of steps between checkpoints, from which interrupted runs resume.
        keep_checkpoints: Number of most recent checkpoints to keep.
        keep_best: Whether to save a checkpoint at every evaluation and keep the best one.
        microbatches: Number of parts of the sub-batch that are trained one after another, to save memory.
        reuse_scoring: Whether the gradient reuses the learner's forward pass from scoring: an example costs
            F(2 + B/b) instead of F(3 + B/b), but takes more memory. No effect if the approximation is used.
        remat: Activations that the backward pass recomputes to save memory. "dots": all but matrix products.
        scan_layers: Whether all layers share one compiled block, which compiles faster.
        decoded_megabytes: Largest size, in megabytes, of decoded images that are stored for all runs. Larger
            sets are decoded in each run. The limit applies to training data and benchmark separately.
    """

    log_every_steps: PositiveInt = 10
    checkpoint_every_steps: PositiveInt = 50
    keep_checkpoints: PositiveInt = 2
    keep_best: bool = True
    microbatches: PositiveInt = 1
    reuse_scoring: bool = False
    remat: Literal["none", "dots", "all"] = "none"
    scan_layers: bool = False
    decoded_megabytes: NonNegativeInt = 256
    diagnostics: Diagnostics = Diagnostics()


class TrainConfig(DataConfig):
    """One training run: a reference model or a learner.

    Attributes:
        loss: The contrastive training loss: "sigmoid" as in SigLIP, "softmax" as in CLIP, or a custom loss.
        loss_options: Keyword arguments of a custom loss.
        initialization: Second seed of the initial parameters. A reference with the `initialization` of its
            learners starts from the same parameters.
    """

    version: ClassVar[int] = 3

    model: TwoTowers = TwoTowers()
    augmentation: Augmentation = Augmentation()
    loss: LossName = "sigmoid"
    loss_options: Options = NO_OPTIONS
    selection: Selection = Selection()
    approximation: Approximation = Approximation()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    evaluation: Evaluation = Evaluation()
    runtime: Runtime = Runtime()
    initialization: Seed = 0

    @property
    def batch_size(self) -> int:
        """The sub-batch size b: as configured, or round(B (1 − f)) if B is configured."""
        if self.schedule.super_batch_size is None:
            return self.schedule.batch_size
        return max(1, round(self.schedule.super_batch_size * (1.0 - self.selection.filtering_ratio)))

    @property
    def super_batch_size(self) -> int:
        """The super-batch size B: as configured, or round(b / (1 − f)); b for rule "uniform"."""
        if self.selection.rule == "uniform":
            return self.batch_size
        proportional = round(self.batch_size / (1.0 - self.selection.filtering_ratio))
        return self.schedule.super_batch_size or proportional

    @property
    def approximate_size(self) -> int:
        """The number of examples of the sub-batch that are trained with the approximation: round(λ b)."""
        return round(self.approximation.share * self.batch_size)

    @property
    def approximate_patch_size(self) -> int:
        """The patch size of approximation "flexi", in pixels."""
        return self.approximation.patch_size or 2 * self.model.vision.patch_size

    @property
    def total_steps(self) -> int:
        """The number of training steps."""
        return -(-self.schedule.examples_seen // self.batch_size)

    @property
    def selects(self) -> bool:
        """Whether examples are selected: with B = b, every rule selects all examples."""
        return self.super_batch_size > self.batch_size

    @property
    def selecting_steps(self) -> int:
        """The number of steps with selection, which come first."""
        return round(self.selection.until * self.total_steps) if self.selects else 0

    @property
    def uses_scores(self) -> bool:
        """Whether the super-batch is scored."""
        return self.selects and takes(self.code, "rule", self.selection.rule, "batch")

    @property
    def uses_concepts(self) -> bool:
        """Whether the rule uses the concepts of examples."""
        has_concepts = self.selects and bool(self.selection.concepts)
        return has_concepts and takes(self.code, "rule", self.selection.rule, "concepts")

    @property
    def scores_learner(self) -> bool:
        """Whether the learner scores the super-batch."""
        return self.uses_scores and takes(self.code, "criterion", self.selection.criterion, "learner")

    @property
    def scores_reference(self) -> bool:
        """Whether a reference model scores the super-batch."""
        return self.uses_scores and contains_reference(self.selection.criterion, self.selection.reference)

    @property
    def compares_with_reference(self) -> bool:
        """Whether the loss uses a reference model."""
        return self.selection.reference is not None and takes(self.code, "loss", self.loss, "reference")

    @property
    def needs_reference(self) -> bool:
        """Whether scores or the loss use a reference model."""
        return self.scores_reference or self.compares_with_reference

    @property
    def reuses_scoring(self) -> bool:
        """Whether the gradient reuses the forward pass from scoring."""
        return self.runtime.reuse_scoring and self.scores_learner and not self._approximates

    @property
    def scoring_loss(self) -> str:
        """The loss for scoring."""
        return self.selection.loss or scoring_loss_of(self.loss)

    @property
    def _approximates(self) -> bool:
        """Whether the approximation has an effect."""
        return self.approximate_size > 0 or (self.approximation.score and self.scores_learner)

    def diagnoses(self, step: Any) -> Any:
        """Return whether diagnostics are recorded after a step (number or array); None: never."""
        every = self.runtime.diagnostics.every_steps
        if every is None or not self.selects:
            return None
        last = self.selecting_steps
        return ((step % every == 0) & (step < last)) | (step == last)

    @model_validator(mode="after")
    def _check_combinations(self) -> "TrainConfig":
        selection, vision = self.selection, self.model.vision
        if selection.rule == "joint" and selection.chunks > self.batch_size:
            raise ValueError(f"selection.chunks {selection.chunks} is above the batch size {self.batch_size}")
        if self.selects and not self.selecting_steps:
            until, steps = selection.until, self.total_steps
            raise ValueError(f"selection.until {until:g} of {steps} steps is less than one step: raise it")
        if self.runtime.reuse_scoring and self.runtime.microbatches > 1:
            raise ValueError("runtime.reuse_scoring and runtime.microbatches can't be combined")
        if self.reuses_scoring and (vision.is_custom or self.model.text.is_custom):
            raise ValueError("runtime.reuse_scoring requires built-in towers: remove it or the architecture")
        if self._approximates and vision.is_custom:
            raise ValueError("approximation requires the built-in image tower: remove it or the architecture")
        size, patch = vision.image_size, self.approximate_patch_size
        if self._approximates and self.approximation.method == "flexi" and size % patch:
            raise ValueError(f"approximation.patch_size {patch} does not divide image_size {size}")
        return self

    def extensions(self) -> Iterator[Extension]:
        """Yield the custom code that the config names and uses."""
        return (each for each in super().extensions() if self.selects or each.path[0] != "selection")

    def _plain(self) -> dict[str, Any]:
        """Identify the schedule by b, and by B only if it doesn't follow from b and f."""
        plain = super()._plain()
        b, B = self.batch_size, self.super_batch_size
        is_free = self.selects and round(b / (1.0 - self.selection.filtering_ratio)) != B
        schedule = self.schedule.model_copy(
            update={"batch_size": b, "super_batch_size": B if is_free else None}
        )
        return plain | {"schedule": schedule.model_dump(mode="json", exclude_defaults=True)}

    def _inert(self) -> Iterable[str]:
        """Without selection, all of its fields are inert, so that all studies share one uniform baseline."""
        selection, method = self.selection, self.approximation.method
        has_effect = {
            "model.variant": False,  # its sizes count
            "selection.rule": self.selects,
            "selection.rule_options": self.selects,
            "selection.criterion": self.uses_scores,
            "selection.criterion_options": self.uses_scores,
            "selection.loss": self.uses_scores and selection.loss != scoring_loss_of(self.loss),
            "selection.filtering_ratio": self.selects,
            "selection.chunks": self.selects and selection.rule == "joint",
            "selection.gain": self.uses_scores and selection.rule != "greedy",
            "selection.sweeps": self.selects and selection.rule == "gibbs",
            "selection.concepts": self.uses_concepts,
            "selection.until": self.selects,
            "selection.reference": self.needs_reference,
            "approximation.method": self._approximates,
            "approximation.patch_size": self._approximates
            and method == "flexi"
            and self.approximation.patch_size != 2 * self.model.vision.patch_size,
            "approximation.keep": self._approximates and method != "flexi",
            "approximation.score": self.scores_learner,
            "approximation.share": self._approximates,
        }
        return (*super()._inert(), *(path for path, has in has_effect.items() if not has))
