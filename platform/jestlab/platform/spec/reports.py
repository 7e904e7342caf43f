"""What a study ends in: tables and figures, each with what it needs to know."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from jestlab.analysis.costs import Scope

TableName = Literal[
    "summary",
    "speedups",
    "claims",
    "comparison",
    "longer_training",
    "specialists",
    "laion",
    "raw_vs_filtered",
]


class _Report(BaseModel):
    """A report."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class _Comparison(_Report):
    """What reports that compare runs can be told.

    Attributes:
        baseline: Name or label of the run that others are compared with; None for the first that is no
            reference.
        runs: Names or labels of the runs that are shown; None for all.
    """

    baseline: str | None = None
    runs: Annotated[tuple[str, ...], Field(min_length=1)] | None = None


class _CostComparison(_Comparison):
    """What reports that compare runs by their costs, too, can be told.

    Attributes:
        scope: What counts as FLOPs.
    """

    scope: Scope = "scoring"


class TableReport(_CostComparison):
    """A table of the study's runs.

    Attributes:
        name: summary: final scores of every run with the difference to the baseline; speedups: what it takes
            to match the baseline; claims: what the study claims, with verdicts, which is shown anyway; or one
            of the paper's tables, with the study's runs in it.
        mean: The score is over all metrics, or over those that all runs have.
        crossing: When the baseline's score is reached: first, or lastingly.
        published: Whether published rows stand in the paper's tables, too, where the store has them.
    """

    kind: Literal["table"]
    name: TableName = "summary"
    mean: Literal["all", "shared"] = "all"
    crossing: Literal["first", "lasting"] = "first"
    published: bool = True

    @property
    def is_the_papers(self) -> bool:
        """Whether it is laid out as a table of the paper."""
        return self.name not in ("summary", "speedups", "claims")

    @model_validator(mode="after")
    def _can_be_told(self) -> TableReport:
        if self.name == "claims" and self.runs is not None:
            raise ValueError("a table of claims shows no runs: leave out `runs`")
        return self


class CurvesReport(_CostComparison):
    """Learning curves of every run.

    Attributes:
        effort: What the score is drawn over.
    """

    kind: Literal["curves"]
    effort: Literal["examples_seen", "flops"] = "examples_seen"


class ParetoReport(_CostComparison):
    """Score against total training FLOPs, with the front.

    Attributes:
        trajectories: Whether to show the way there in training.
        surfaces: Whether to show what the best, the median and the worst seed attain.
    """

    kind: Literal["pareto"]
    trajectories: bool = False
    surfaces: bool = False


class SpeedupReport(_CostComparison):
    """How much sooner, and for how much less, runs reach what the baseline ends at."""

    kind: Literal["speedup"]


class AgainstReport(_Comparison):
    """Final scores against any key of the config.

    Attributes:
        x: The key.
        by: Keys whose values make a line.
        split: Key whose values make a panel.
    """

    kind: Literal["against"]
    x: str
    by: tuple[str, ...] = ("selection.rule",)
    split: str | None = None


class FigureReport(_Comparison):
    """A figure of the paper that compares final scores, or costs, and needs to know nothing else."""

    kind: Literal[
        "step_costs",
        "filtering_ratio",
        "approximation_share",
        "batch_size",
        "loss_comparison",
        "against_reference",
    ]


class SpikesReport(_Report):
    """A training metric over steps, with its spikes.

    Attributes:
        metric: What is drawn.
        x: Key of the config whose values are compared.
        baseline: As of reports that compare.
    """

    kind: Literal["optimiser_spikes"]
    metric: str = "loss"
    x: str = "optimizer.beta2"
    baseline: str | None = None


class PublishedReport(_Comparison):
    """Published methods, and the study's runs beside them where they have the same scores.

    Attributes:
        group: Rows of the published table that are compared with one baseline; None for the first.
    """

    kind: Literal["published"]
    group: str | None = None


class LearnabilityReport(_Report):
    """How learnable the batches are that the rules select; or one panel of that figure.

    Attributes:
        run: Name or label of a `diagnose` run; None for the first.
    """

    kind: Literal["learnability", "learnability_matrix", "gibbs_comparison"]
    run: str | None = None


Report = Annotated[
    TableReport
    | CurvesReport
    | ParetoReport
    | SpeedupReport
    | AgainstReport
    | FigureReport
    | SpikesReport
    | PublishedReport
    | LearnabilityReport,
    Field(discriminator="kind"),
]

_ALL: tuple[type[BaseModel], ...] = (
    TableReport,
    CurvesReport,
    ParetoReport,
    SpeedupReport,
    AgainstReport,
    FigureReport,
    SpikesReport,
    PublishedReport,
    LearnabilityReport,
)

REPORTS: dict[str, type[BaseModel]] = {
    kind: report for report in _ALL for kind in get_args(report.model_fields["kind"].annotation)
}
"""Kind → the report that has it."""
