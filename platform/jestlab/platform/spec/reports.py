"""The `reports` of a spec: which tables and figures a study asks for, with their options."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from jestlab.analysis.costs import Scope
from jestlab.analysis.efforts import Effort
from jestlab.analysis.tables.latex import parse_width
from jestlab.analysis.tables.shape import Shape
from jestlab.platform.errors import shown
from jestlab.platform.spec.config_tree import flatten

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


def _listed(names: Any) -> Any:
    """A name by itself is a list of one."""
    return (names,) if isinstance(names, str) else names


_MOST_DIGITS = 12


def _checked_digits(digits: Any) -> Any:
    """A number, or a mapping by column, whose keys may have been taken for dotted ones, as it was written."""
    by_column = flatten(digits) if isinstance(digits, dict) else None
    for number in [] if digits is None else by_column.values() if by_column is not None else [digits]:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MOST_DIGITS:
            raise ValueError(
                f"must be a whole number from 0 to {_MOST_DIGITS}, or a mapping of such by column, not "
                f"{shown(digits)}"
            )
    return digits if by_column is None else by_column


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Comparison(_Report):
    """Options of reports that compare runs.

    Attributes:
        baseline: Name or label of the run that others are compared with; None for the first that is not a
            reference.
        runs: Names or labels of the runs that are shown; None for all.
        score: Evaluations whose mean is the score here; None for the study's.
    """

    baseline: str | None = None
    runs: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    score: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_listed)] | None = None


class _CostComparison(_Comparison):
    """Options of reports that compare runs by their costs as well.

    Attributes:
        scope: What counts as FLOPs.
    """

    scope: Scope = "scoring"


def _checked_width(width: str) -> str:
    parse_width(width)
    return width


class TableReport(_Report):
    """A table of the study's runs.

    Attributes:
        baseline: As for other reports that compare runs.
        score: As for other reports that compare runs.
        scope: What counts as FLOPs.
        name: summary: final scores of every run with the difference to the baseline; speedups: what it takes
            to match the baseline; claims: what the study claims, with verdicts, shown in any case; or one of
            the paper's tables, with the study's runs in it.
        mean: The score is over all metrics, or over those that all runs have.
        crossing: When the baseline's score counts as reached: at first, or for good.
        published: Whether the paper's tables also show published rows, where the store has them.
        columns: Columns that are shown, in their order: keys, headings, or "scores", "costs", "factors".
        rows: Rows that are shown, in their order: names or labels of runs, or names as the table shows them.
            `runs` means the same.
        digits: Behind the decimal point: of scores and differences, or by column.
        sort: Column by which rows are sorted; "-score" for descending.
        caption: Instead of the table's own.
        label: LaTeX's label.
        notes: Whether notes are shown.
        width: How wide it may be in LaTeX: "auto", "column", "text", or a length such as "3.25in".
    """

    kind: Literal["table"]
    baseline: str | None = None
    score: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_listed)] | None = None
    scope: Scope = "scoring"
    name: TableName = "summary"
    mean: Literal["all", "shared"] = "all"
    crossing: Literal["first", "lasting"] = "first"
    published: bool = True
    columns: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_listed)] | None = None
    rows: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_listed)] | None = None
    digits: Annotated[int | dict[str, int] | None, BeforeValidator(_checked_digits)] = None
    sort: str = ""
    caption: str | None = None
    label: str = ""
    notes: Annotated[bool, Field(strict=True)] = True
    width: Annotated[str, AfterValidator(_checked_width)] = "auto"

    @property
    def shape(self) -> Shape:
        """What is shown of the table."""
        return Shape.of(self.model_dump())

    @property
    def rows_of_runs(self) -> tuple[str, ...]:
        """Rows that have to be runs: those of tables that show nothing else."""
        return () if self.is_the_papers or self.name == "claims" else self.rows or ()

    @property
    def is_the_papers(self) -> bool:
        """Whether the table is laid out as one of the paper's."""
        return self.name not in ("summary", "speedups", "claims")

    @model_validator(mode="after")
    def _is_of_claims(self) -> TableReport:
        if self.name == "claims" and self.score is not None:
            raise ValueError("claims say what they are measured by: leave out `score`, give them a `measure`")
        return self


class CurvesReport(_CostComparison):
    """Learning curves of every run.

    Attributes:
        effort: What the score is drawn over; None for examples seen, where no run's are known for seconds.
    """

    kind: Literal["curves"]
    effort: Effort | None = None


class ParetoReport(_CostComparison):
    """Score against what runs cost in all, with the front.

    Attributes:
        trajectories: Whether to show the paths that runs take during training.
        surfaces: Whether to show the attainment of the best, the median and the worst seed.
        cost: What runs cost; None for FLOPs, where no run's are known for seconds.
    """

    kind: Literal["pareto"]
    trajectories: bool = False
    surfaces: bool = False
    cost: Effort | None = None


class SpeedupReport(_CostComparison):
    """How much sooner, and at how much lower cost, runs reach the baseline's final score."""

    kind: Literal["speedup"]


class AgainstReport(_Comparison):
    """Final scores against any key of the config.

    Attributes:
        x: The key.
        by: Keys whose values make one line each.
        split: Key whose values make one panel each.
    """

    kind: Literal["against"]
    x: str
    by: tuple[str, ...] = ("selection.rule",)
    split: str | None = None


class FigureReport(_Comparison):
    """A figure of the paper that compares final scores or costs, without options of its own."""

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
        metric: Name of the metric.
        x: Key of the config whose values are compared.
        baseline: As for reports that compare runs.
    """

    kind: Literal["optimiser_spikes"]
    metric: str = "loss"
    x: str = "optimizer.beta2"
    baseline: str | None = None


class PublishedReport(_Comparison):
    """Published methods, beside the study's runs where these have the same scores.

    Attributes:
        group: Rows of the published table that share a baseline; None for the first group.
    """

    kind: Literal["published"]
    group: str | None = None


class LearnabilityReport(_Report):
    """How learnable the batches are that the rules select, or one panel of that figure.

    Attributes:
        run: Name or label of a `diagnose` run; None for the first.
    """

    kind: Literal["learnability", "learnability_matrix", "gibbs_comparison"]
    run: str | None = None


_AnyReport = (
    TableReport
    | CurvesReport
    | ParetoReport
    | SpeedupReport
    | AgainstReport
    | FigureReport
    | SpikesReport
    | PublishedReport
    | LearnabilityReport
)
Report = Annotated[_AnyReport, Field(discriminator="kind")]


def modern(kind: object, options: dict[str, Any]) -> dict[str, Any]:
    """Rename options of a report that once had another name: a table's `runs` are its `rows`."""
    if kind == "table" and "runs" in options and "rows" not in options:
        return {("rows" if key == "runs" else key): value for key, value in options.items()}
    return options


REPORTS: dict[str, type[BaseModel]] = {
    kind: report
    for report in get_args(_AnyReport)
    for kind in get_args(report.model_fields["kind"].annotation)
}
"""Kind → the report that has it."""
