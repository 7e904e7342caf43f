"""Configs of the selection of batches, and of the approximation that makes it cheaper."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from jestlab.models.config.base import (
    CRITERIA,
    LOSSES,
    NO_OPTIONS,
    RULES,
    SCORING_LOSSES,
    Fraction,
    NamesCode,
    Options,
    ReferenceName,
    ScoringLoss,
    Section,
    takes,
)

CriterionName = Annotated[str, NamesCode("criterion", CRITERIA)]
LossName = Annotated[str, NamesCode("loss", LOSSES)]
FilteringRatio = Annotated[float, Field(ge=0.0, lt=1.0)]
Gain = Annotated[float, Field(gt=0.0, le=3.4028234663852886e38)]  # finite in float32
FILTERING_RATIO = 0.8  # the default of training and diagnosis: another one raises the `version` of both


def scoring_loss_of(loss: str) -> str:
    """Return the loss that scores in a run with a training loss: itself if it can score, else "sigmoid"."""
    return loss if loss in SCORING_LOSSES else "sigmoid"


def contains_reference(criterion: str, reference: str | None) -> bool:
    """Whether scores contain the loss of a reference model: for a custom criterion, if there is one."""
    return "reference" in CRITERIA[criterion] if criterion in CRITERIA else reference is not None


class Selection(Section):
    """How the sub-batch (size b) is selected from the super-batch (size B = b / (1 − f)).

    Attributes:
        rule: How the sub-batch is selected. "uniform" is training without selection. "independent" samples
            examples by their scores. "joint" samples chunk by chunk, given the previous chunks (JEST).
            "greedy" adds the best example one at a time. "gibbs" is Gibbs sampling. Or a custom rule.
        rule_options: Keyword arguments of a custom rule.
        criterion: How examples are scored. "learnability" is the learner's loss minus the reference's loss,
            "easy_reference" is minus the reference's loss, "hard_learner" is the learner's loss. Or a custom
            criterion.
        criterion_options: Keyword arguments of a custom criterion.
        loss: Loss for scoring; null for the training loss, or for "sigmoid" if that loss is custom.
        filtering_ratio: The filtering ratio f: the share of the super-batch that isn't selected.
        chunks: Number of chunks N of rule "joint".
        gain: Factor on scores before sampling (`softmax_score_gain`).
        sweeps: Number of sweeps of rule "gibbs". Each sweep has b draws and costs as much as rule "joint".
        concepts: Metadata columns with the concept or concepts of each example, for rules that use them.
        until: Share of the training steps with selection. The remaining steps train on uniform batches.
        reference: Run that provides the reference model for scores and losses: a run of `train` or `weights`,
            or a run of `embed`, which caches embeddings.
    """

    rule: Annotated[str, NamesCode("rule", RULES)] = "uniform"
    rule_options: Options = NO_OPTIONS
    criterion: CriterionName = "learnability"
    criterion_options: Options = NO_OPTIONS
    loss: ScoringLoss | None = None
    filtering_ratio: FilteringRatio = FILTERING_RATIO
    chunks: PositiveInt = 16
    gain: Gain = 100.0
    sweeps: PositiveInt = 4
    concepts: tuple[str, ...] = ()
    until: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    reference: ReferenceName | None = None

    @model_validator(mode="after")
    def _check_reference(self) -> "Selection":
        lacks_reference = self.reference is None and contains_reference(self.criterion, None)
        if lacks_reference and takes({}, "rule", self.rule, "batch"):
            raise ValueError(f"criterion {self.criterion!r} needs a reference: set selection.reference")
        return self


class Approximation(Section):
    """A cheaper view of images for scoring and training, with the same parameters (paper, Sec. 3.3).

    Flexi-JEST is `{score: true, share: 0.5}`: the super-batch is scored with patches of twice the size, and
    so is half of the sub-batch trained.

    Attributes:
        method: How images become cheaper: "flexi" uses larger patches, "patch_drop" drops random patches.
        patch_size: Patch size of "flexi" in pixels; null for twice the patch size of the tower.
        keep: Share of the patches that "patch_drop" keeps.
        score: Whether the super-batch is scored with the approximation.
        share: The share λ of the sub-batch that is trained with the approximation.
    """

    method: Literal["flexi", "patch_drop"] = "flexi"
    patch_size: PositiveInt | None = None
    keep: Annotated[float, Field(gt=0.0, le=1.0)] = 0.25
    score: bool = False
    share: Fraction = 0.0
