"""Config of one training run: a reference model or a learner."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from jestlab.models.config.code import (
    NO_OPTIONS,
    Code,
    Extended,
    Extension,
    Options,
    Section,
    known,
    names_code,
    uses,
)
from jestlab.models.config.data import Data
from jestlab.models.config.towers import Fraction, RunName, Seed, TwoTowers

RULES = ("uniform", "independent", "joint", "greedy", "gibbs")
CRITERIA = ("learnability", "easy_reference", "hard_learner")
LOSSES = ("sigmoid", "softmax")

RuleName = Annotated[str, names_code("rule", RULES), known("rule", RULES)]
CriterionName = Annotated[str, names_code("criterion", CRITERIA), known("criterion", CRITERIA)]
LossName = Annotated[str, names_code("loss", LOSSES), known("loss", LOSSES)]


class Selection(Section):
    """How the sub-batch (size b) is chosen from the super-batch (size B = b / (1 − f)).

    Attributes:
        rule: How the sub-batch is chosen: "uniform" trains on all that is read; "independent" samples each
            example by its own score; "joint" samples chunk by chunk, given the chunks before; "greedy" takes
            the best one by one; "gibbs" is Gibbs sampling; or a rule of one's own.
        rule_options: Keyword arguments of a rule of one's own.
        criterion: What examples are scored by: "learnability" is the learner's loss minus the reference's,
            "easy_reference" minus the reference's loss, "hard_learner" the learner's; or a criterion of one's
            own.
        criterion_options: Keyword arguments of a criterion of one's own.
        loss: The loss that scores; null for the one that is trained with.
        filtering_ratio: The share f of the super-batch that is left out.
        chunks: The number of chunks N of rule "joint".
        gain: Factor by which scores are multiplied before sampling (`softmax_score_gain`).
        sweeps: Number of sweeps of rule "gibbs", of b draws each, each as costly as joint selection.
        concepts: Columns of metadata whose values are the concepts of an example, for rules that look at
            concepts; a column may hold one value or a list.
        until: The share of the training steps in which batches are chosen; after them examples are read
            uniformly, b at a time.
        reference: The run that guides the selection, and a loss that looks at a reference: one that trains
            towers or imports weights, or one of `embed`, which caches its embeddings.
    """

    rule: RuleName = "uniform"
    rule_options: Options = NO_OPTIONS
    criterion: CriterionName = "learnability"
    criterion_options: Options = NO_OPTIONS
    loss: Literal["sigmoid", "softmax"] | None = None
    filtering_ratio: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.8
    chunks: PositiveInt = 16
    gain: PositiveFloat = 100.0
    sweeps: PositiveInt = 4
    concepts: tuple[str, ...] = ()
    until: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    reference: RunName | None = None

    def scores(self, code: Mapping[str, Code]) -> bool:
        """Return whether the rule looks at scores: not the uniform one, nor one that knows concepts alone."""
        if self.rule in RULES:
            return self.rule != "uniform"
        takes = uses(code, "rule", self.rule)
        return takes is None or "batch" in takes

    def looks_at_concepts(self, code: Mapping[str, Code]) -> bool:
        """Return whether the rule looks at the concepts of examples."""
        if self.rule in RULES or not self.concepts:
            return False
        takes = uses(code, "rule", self.rule)
        return takes is None or "concepts" in takes

    def needs_reference(self, code: Mapping[str, Code]) -> bool:
        """Return whether the scores contain the loss of a reference model."""
        if not self.scores(code) or self.criterion == "hard_learner":
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
        if self.reference is None and self.needs_reference({}):
            raise ValueError(
                f"rule {self.rule!r} by {self.criterion!r} needs a reference: set selection.reference"
            )
        return self


class Approximation(Section):
    """A cheaper view of images with the same parameters, to score with and to train on (paper, Sec. 3.3).

    Flexi-JEST is `{score: true, share: 0.5}`: the super-batch is scored at twice the patch size, and half of
    the sub-batch is trained on at it.

    Attributes:
        method: How images are made cheaper: "flexi" by larger patches, "patch_drop" by a random part of them.
        patch_size: Patch size of "flexi" in pixels; null for twice the tower's own.
        keep: Share of the patches that "patch_drop" looks at.
        score: Whether the super-batch is scored with the cheaper view.
        share: The share λ of the sub-batch that is trained on with the cheaper view.
    """

    method: Literal["flexi", "patch_drop"] = "flexi"
    patch_size: PositiveInt | None = None
    keep: Annotated[float, Field(gt=0.0, le=1.0)] = 0.25
    score: bool = False
    share: Fraction = 0.0


class Augmentation(Section):
    """Random changes of the images that are trained on and scored; the benchmark's stay as they are.

    Attributes:
        flip: Chance of an image to be mirrored, left and right exchanged.
        crop: Smallest side of the random square that is cut out of an image and enlarged to the whole, as a
            share of the image's; 1 for no crops.
    """

    flip: Fraction = 0.0
    crop: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0


class Optimizer(Section):
    """Adam with decoupled weight decay, clipping, linear warm-up and cosine decay (paper, appendix).

    Attributes:
        learning_rate: Peak learning rate.
        beta1: Adam's β1, the decay of the mean of gradients.
        beta2: Adam's β2, the decay of the mean of their squares.
        weight_decay: Decoupled weight decay, which is not multiplied by the peak learning rate.
        decay_parameters: Regular expression over names of parameters, such as `img/embedding/kernel`: those
            that decay.
        clip_norm: Norm that the whole gradient is clipped to; null for no clipping.
        warmup_percent: Linear warm-up of the learning rate, in percent of the steps.
        decay: The learning rate after the warm-up: "cosine" falls to 0.
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
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"not a valid regular expression: {error}") from None
        return pattern


class Schedule(Section):
    """How long to train, and in steps of what size.

    Attributes:
        batch_size: The sub-batch size b: the number of examples that the learner trains on in one step.
        super_batch_size: The super-batch size B, from which b is selected; if given, b = round(B (1 − f)),
            and batch_size is not used. Null for B = round(b / (1 − f)).
        examples_seen: Number of examples that the learner trains on in all; the number of steps is this over
            b, rounded up.
    """

    batch_size: PositiveInt = 64
    super_batch_size: PositiveInt | None = None
    examples_seen: PositiveInt = 9_600


class ExtraEvaluation(Section):
    """An evaluation of one's own.

    Attributes:
        function: Function of one's own that evaluates the learner.
        options: Keyword arguments of the function.
    """

    function: Annotated[str, names_code("evaluation"), known("evaluation")]
    options: Options = NO_OPTIONS


class Evaluation(Section):
    """When and how the learner is evaluated.

    Attributes:
        points: Number of evaluations, evenly spaced over training; the last is at its end.
        shots: Number of examples of each class that the few-shot probe learns from.
        shot_seeds: Number of draws of these few examples, over which results are averaged.
        extra: Evaluations of one's own, by the first part of the names of what they measure.
    """

    points: PositiveInt = 10
    shots: PositiveInt = 10
    shot_seeds: PositiveInt = 3
    extra: dict[str, ExtraEvaluation] = Field(default={}, json_schema_extra={"names_code": "evaluation"})

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
    """What is recorded about the selected examples, besides the metrics of every step.

    Attributes:
        every_steps: Number of steps between examinations of the selected examples; null for none.
        columns: Columns of metadata by whose values the selected examples are counted.
    """

    every_steps: PositiveInt | None = None
    columns: tuple[str, ...] = ("noise", "label")


class Runtime(Section):
    """How to compute, not what: never part of a run's identity, since no value here changes a result beyond
    rounding.

    Attributes:
        log_every_steps: Number of steps between recorded metrics.
        checkpoint_every_steps: Number of steps between checkpoints, from which an interrupted run resumes.
        keep_checkpoints: Number of the newest checkpoints that are kept.
        keep_best: Whether every evaluation saves a checkpoint, too, and the best of them is kept; in runs of
            seconds, saving takes longer than evaluating.
        steps_per_dispatch: Number of steps between round trips of the host; a divisor of log_every_steps.
        microbatches: Number of parts that the sub-batch is trained on in, one after the other, so that the
            activations of one part alone take memory.
        reuse_scoring: Whether the gradient uses what the learner computed when it scored the super-batch, in
            place of another forward pass: an example costs F(2 + B/b), not F(3 + B/b), and activations of
            the whole super-batch take memory. Without effect where the approximation scores or trains.
        remat: What the backward pass computes again instead of keeping it in memory: "dots" keeps matrix
            products alone, "all" keeps nothing.
        scan_layers: Whether one compiled block serves all layers, which is faster to compile.
        selection_kernel: What sums over pairs of examples when they are selected; "fused" is for TPUs alone.
        loader_threads: Number of threads that read and decode examples.
        damaged_share: Share of the examples read that may be damaged before the run fails.
        decoded_megabytes: Images that are decoded once for all runs, if they take no more than this; a
            larger set is decoded each time. Those of the benchmark have as much again.
    """

    log_every_steps: PositiveInt = 10
    checkpoint_every_steps: PositiveInt = 50
    keep_checkpoints: PositiveInt = 2
    keep_best: bool = True
    steps_per_dispatch: PositiveInt = 1
    microbatches: PositiveInt = 1
    reuse_scoring: bool = False
    remat: Literal["none", "dots", "all"] = "none"
    scan_layers: bool = False
    selection_kernel: Literal["auto", "blocks", "fused"] = "auto"
    loader_threads: PositiveInt = 1
    damaged_share: Fraction = 0.01
    decoded_megabytes: NonNegativeInt = 256
    diagnostics: Diagnostics = Diagnostics()


class TrainConfig(Extended):
    """One training run: a reference model or a learner.

    Attributes:
        loss: The contrastive loss that is trained with: "sigmoid" as SigLIP, "softmax" as CLIP, or a loss of
            one's own.
        loss_options: Keyword arguments of a loss of one's own.
        seed: Replicate. Set `seeds` of the study instead; a run that sets it is one run, which all
            replicates share.
        initialization: Decides the initial parameters, beside the seed: give a reference another value than
            its learners, or it starts where they start.
    """

    # Raise it when a default or its meaning changes: identities leave defaults out.
    version: ClassVar[int] = 3

    model: TwoTowers = TwoTowers()
    data: Data = Data()
    augmentation: Augmentation = Augmentation()
    loss: LossName = "sigmoid"
    loss_options: Options = NO_OPTIONS
    selection: Selection = Selection()
    approximation: Approximation = Approximation()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    evaluation: Evaluation = Evaluation()
    runtime: Runtime = Runtime()
    seed: Seed = 0
    initialization: Seed = 0

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
    def scores_reference(self) -> bool:
        """Whether a reference model scores the super-batch."""
        return self.selects and self.selection.needs_reference(self.code)

    @property
    def scores_learner(self) -> bool:
        """Whether the learner scores the super-batch."""
        return self.selects and self.selection.scores(self.code) and "learner" in self._scores_with

    @property
    def compares_with_reference(self) -> bool:
        """Whether the loss looks at the reference, too; taken for true where that is not known."""
        if self.loss in LOSSES or self.selection.reference is None:
            return False
        takes = uses(self.code, "loss", self.loss)
        return takes is None or "reference" in takes

    @property
    def needs_reference(self) -> bool:
        """Whether a reference model scores the super-batch, or is part of the loss."""
        return self.scores_reference or self.compares_with_reference

    @property
    def problem_with_cache(self) -> str | None:
        """Why the run cannot use a reference's cached embeddings; None if it can."""
        if self.augmentation == Augmentation():
            return None
        return (
            "augmentation: the reference's cached embeddings are of the images as they are, and the learner "
            "would see them changed: name the reference itself in selection.reference, not its cache"
        )

    @property
    def selecting_steps(self) -> int:
        """The number of steps in which batches are chosen, the first of all; 0 if nothing is selected."""
        return round(self.selection.until * self.total_steps) if self.selects else 0

    @property
    def reuses_scoring(self) -> bool:
        """Whether the pass that scores is kept for the gradient: if so asked, and if it is the same pass."""
        return self.runtime.reuse_scoring and self.scores_learner and not self._approximates

    @property
    def _scores_with(self) -> Sequence[str]:
        """The models that the criterion looks at, as far as that is known."""
        if self.selection.criterion == "easy_reference":
            return ("reference",)
        if self.selection.criterion in CRITERIA:
            return ("learner", "reference") if self.selection.criterion == "learnability" else ("learner",)
        takes = uses(self.code, "criterion", self.selection.criterion)
        return ("learner", "reference") if takes is None else takes

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
        """Return whether the selected examples are examined after a step (number or array); None: never."""
        every = self.runtime.diagnostics.every_steps
        if every is None or not self.selects:
            return None
        last = self.selecting_steps
        return ((step % every == 0) & (step < last)) | (step == last)

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
        if self.selects and not self.selecting_steps:
            raise ValueError(
                f"selection.until {self.selection.until:g} of {self.total_steps} steps is none: raise it, or "
                "set selection.rule to uniform"
            )
        if self.runtime.reuse_scoring and self.runtime.microbatches > 1:
            raise ValueError(
                "runtime.reuse_scoring keeps the activations of all rows at once, and runtime.microbatches "
                f"{self.runtime.microbatches} those of a part: set one of them alone"
            )
        if self.reuses_scoring and (self.model.vision.is_own or self.model.text.is_own):
            raise ValueError("runtime.reuse_scoring needs the built-in towers: drop it, or the architecture")
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
        with_reference = set() if self.needs_reference else {"reference"}
        if not self.selects:
            return set(Selection.model_fields) - {"reference"} | with_reference
        rule = self.selection.rule
        inert = {name for name, only in (("chunks", "joint"), ("sweeps", "gibbs")) if rule != only}
        inert |= with_reference
        if rule == "greedy":
            inert |= {"gain"}
        if not self.selection.looks_at_concepts(self.code):
            inert |= {"concepts"}
        if not self.selection.scores(self.code):
            inert |= {"gain", "loss", "criterion", "criterion_options"}
        if self.selection.loss == (self.loss if self.loss in LOSSES else "sigmoid"):
            inert |= {"loss"}
        return inert

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
