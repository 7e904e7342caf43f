"""The `reports` of a spec: which tables and figures a study asks for, with their options."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from jestlab.analysis.costs import Scope
from jestlab.analysis.efforts import Effort, Over
from jestlab.analysis.metrics import Scale
from jestlab.analysis.smoothing import Smoothing
from jestlab.analysis.tables.latex import parse_width
from jestlab.analysis.tables.shape import Shape
from jestlab.models import extensions
from jestlab.models.extensions import references
from jestlab.platform.errors import nearest, shown
from jestlab.platform.spec.figure import FigureOptions
from jestlab.platform.spec.tree import flatten, listed

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


_Names = Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(listed)]


def _table_name(name: str) -> str:
    return extensions.check_name("table", name, get_args(TableName))


def _window(written: Any) -> Any:
    Smoothing.parse(written)
    return written


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
        baseline: Name or label of the run that others are compared with; null for the first that is not a
            reference.
        runs: Names or labels of the runs that are shown; null for all.
        score: Evaluations whose mean is the score here; null for the study's.
    """

    baseline: str | None = None
    runs: _Names | None = None
    score: _Names | None = None


class _CostComparison(_Comparison):
    """Options of reports that compare runs by their costs as well.

    Attributes:
        scope: What counts as FLOPs; each scope includes the ones before it.
    """

    scope: Scope = "scoring"


class _Printed(_Report):
    """Options of every figure.

    Attributes:
        figure: Size, words, font and legend, over those of the study.
    """

    figure: FigureOptions | None = None


def _checked_width(width: str) -> str:
    parse_width(width)
    return width


class TableReport(_Report):
    """A table of the study's runs.

    Attributes:
        baseline: Name or label of the run that others are compared with; null for the first that is not a
            reference.
        score: Evaluations whose mean is the score here; null for the study's.
        scope: What counts as FLOPs.
        name: Which table: summary shows final scores of every run with the difference to the baseline;
            speedups what it takes to match the baseline; claims what the study claims, with verdicts, which
            is shown in any case; the others are the paper's tables, with the study's runs in them, or a table
            of one's own: `file.py:function`, `package.module:function`, or an entry point of
            `jestlab.tables`.
        options: Keyword arguments of a table of one's own.
        mean: Whether the score is over all metrics, or over those that all runs have.
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
    score: _Names | None = None
    scope: Scope = "scoring"
    name: Annotated[str, AfterValidator(_table_name)] = "summary"
    options: dict[str, Any] = {}
    mean: Literal["all", "shared"] = "all"
    crossing: Literal["first", "lasting"] = "first"
    published: bool = True
    columns: _Names | None = None
    rows: _Names | None = None
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
        return self.name not in ("summary", "speedups", "claims") and not self.is_own

    @property
    def is_own(self) -> bool:
        """Whether code of one's own makes it."""
        return self.name not in get_args(TableName)

    @model_validator(mode="after")
    def _has_no_options(self) -> TableReport:
        if self.options and not self.is_own:
            raise ValueError(f"the table {self.name} is no code of your own: leave out `options`")
        return self

    @model_validator(mode="after")
    def _is_of_claims(self) -> TableReport:
        if self.name == "claims" and self.score is not None:
            raise ValueError("claims say what they are measured by: leave out `score`, give them a `measure`")
        return self


class CurvesReport(_CostComparison, _Printed):
    """Learning curves of every run.

    Attributes:
        effort: What curves are drawn over: an effort, or steps; null for examples seen, where no run's are
            known for seconds, else steps.
        metric: What is drawn in place of the score: an evaluation, or any training metric, such as loss.
        metrics: Several metrics, with a panel each.
        smooth: Width of a running mean over each seed's curve: a number of recorded points (5), or a share of
            them (10%).
        scale: Scale of the axis of the metrics, linear or log; null for what they declare.
        highlight: Names or labels of runs that are coloured beside the baseline; the others are grey.
    """

    kind: Literal["curves"]
    effort: Over | None = None
    metric: str | None = None
    metrics: Annotated[tuple[str, ...], BeforeValidator(listed)] = ()
    smooth: Annotated[int | str, BeforeValidator(_window)] | None = None
    scale: Scale | None = None
    highlight: Annotated[tuple[str, ...], BeforeValidator(listed)] = ()

    @model_validator(mode="after")
    def _scales_metrics(self) -> CurvesReport:
        if self.scale is not None and self.metric is None and not self.metrics:
            raise ValueError("scale is of a metric: add `metric`, or declare the scale in `metrics`")
        return self


class ParetoReport(_CostComparison, _Printed):
    """Score against what runs cost in all, with the front.

    Attributes:
        trajectories: Whether to show the paths that runs take during training.
        surfaces: Whether to show the attainment of the best, the median and the worst seed.
        cost: What runs cost; null for FLOPs, where no run's are known for seconds.
    """

    kind: Literal["pareto"]
    trajectories: bool = False
    surfaces: bool = False
    cost: Effort | None = None


class SpeedupReport(_CostComparison, _Printed):
    """How much sooner, and at how much lower cost, runs reach the baseline's final score."""

    kind: Literal["speedup"]


class AgainstReport(_Comparison, _Printed):
    """Final scores against any key of the config.

    Attributes:
        x: Key of the config whose values are on the x-axis.
        by: Keys of the config whose values make one line each.
        split: Key of the config whose values make one panel each; null for one panel.
    """

    kind: Literal["against"]
    x: str
    by: Annotated[tuple[str, ...], BeforeValidator(listed)] = ("selection.rule",)
    split: str | None = None


class FigureReport(_Comparison, _Printed):
    """A figure of the paper that compares final scores or costs, without options of its own."""

    kind: Literal[
        "step_costs",
        "filtering_ratio",
        "approximation_share",
        "batch_size",
        "loss_comparison",
        "against_reference",
    ]


class SpikesReport(_Printed):
    """A training metric over steps, with its spikes.

    Attributes:
        metric: Name of the training metric.
        x: Key of the config whose values are compared.
        baseline: Name or label of the run that others are compared with; null for the first that is not a
            reference.
    """

    kind: Literal["optimiser_spikes"]
    metric: str = "loss"
    x: str = "optimizer.beta2"
    baseline: str | None = None


class PublishedReport(_Comparison, _Printed):
    """Published methods, beside the study's runs where these have the same scores.

    Attributes:
        group: Rows of the published table that share a baseline; null for the first
            group.
    """

    kind: Literal["published"]
    group: str | None = None


class LearnabilityReport(_Printed):
    """How learnable the batches are that the rules select, or one panel of that figure.

    Attributes:
        run: Name or label of a `diagnose` run; null for the first.
    """

    kind: Literal["learnability", "learnability_matrix", "gibbs_comparison"]
    run: str | None = None


class CompositionReport(_Printed):
    """What the batches of each run were made of, beside what they were chosen from.

    Attributes:
        x: Column of metadata whose values are counted, one of `runtime.diagnostics.columns`; null for the
            first that was.
        runs: Names or labels of the runs that are shown; null for all but references.
    """

    kind: Literal["composition"]
    x: str | None = None
    runs: _Names | None = None


class SelectedReport(_Printed):
    """Pictures of what each run selected at the beginning, after a quarter of its steps, and at the end.

    Attributes:
        runs: Names or labels of the runs that are shown; null for all but references.
    """

    kind: Literal["selected"]
    runs: _Names | None = None


class OwnFigureReport(_CostComparison, _Printed):
    """A figure of one's own, such as `- {"mine.py:scatter": {options: {x: width}}}`.

    Attributes:
        kind: Where its function is: `path/to/file.py:function`, `package.module:function`, or the name of an
            entry point of `jestlab.figures`.
        options: Arguments of the function, besides the results.
    """

    kind: str
    options: dict[str, Any] = {}


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
    | CompositionReport
    | SelectedReport
)
Report = Annotated[_AnyReport, Field(discriminator="kind")] | OwnFigureReport


def modern(kind: object, options: dict[str, Any]) -> dict[str, Any]:
    """Rename options that have another name elsewhere: a table's `runs`, and `over` of the command line."""
    names = {"table": {"runs": "rows"}, "curves": {"over": "effort"}, "pareto": {"over": "cost"}}
    renamed = {old: new for old, new in names.get(str(kind), {}).items() if new not in options}
    return {renamed.get(key, key): value for key, value in options.items()}


REPORTS: dict[str, type[BaseModel]] = {
    kind: report
    for report in get_args(_AnyReport)
    for kind in get_args(report.model_fields["kind"].annotation)
}
"""Kind → the report that has it."""


def report_of(kind: str) -> type[BaseModel]:
    """Return the report that has a kind: one of `REPORTS`, or a figure of one's own.

    Raises:
        ValueError: There is no such kind; names the nearest.
    """
    if kind in REPORTS:
        return REPORTS[kind]
    known = (*REPORTS, *extensions.installed("figure"))
    if kind not in known and not references.is_reference(kind):
        hint = nearest(kind, known)
        own = "; of your own: path/to/file.py:function, package.module:function, or an entry point of "
        own = "" if hint.startswith("did") else own + extensions.GROUPS["figure"]
        raise ValueError(f"no report {shown(kind)}: {hint}{own}")
    return OwnFigureReport


def own_code(report: BaseModel) -> tuple[Literal["figure", "table"], str] | None:
    """Return what code of one's own a report names, and as what; None if it names none."""
    if isinstance(report, OwnFigureReport):
        return "figure", report.kind
    if isinstance(report, TableReport) and report.is_own:
        return "table", report.name
    return None
