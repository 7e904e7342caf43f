"""Options of figures and tables: one model per kind.

The models are the only declaration of an option. The keys under `reports` in a spec, the flags of `jestlab
table` and `jestlab plot`, the arguments of `Results.table` and `Results.figure`, and the key reference come
from them.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

from jestlab.analysis.costs import Scope
from jestlab.analysis.efforts import Effort, Over
from jestlab.analysis.shape import Names, Shape
from jestlab.analysis.sheet import Sheet
from jestlab.models import extensions
from jestlab.models.extensions import references
from jestlab.platform.errors import SpecError, nearest, shown
from jestlab.platform.spec.fields import validated
from jestlab.platform.spec.tree import KIND

PaperTable = Literal["comparison", "longer_training", "specialists", "laion", "raw_vs_filtered"]
TABLES: tuple[str, ...] = ("summary", "speedups", "scaling", "claims", *get_args(PaperTable))
CodeKind = Literal["figure", "table"]


def option(description: str, default: Any = None) -> Any:
    """Declare an option; the command line, the Python API, and the key reference show its description."""
    return Field(default, description=description)


Baseline = Annotated[
    str | None,
    option("Run or label to compare with; default: the first run that is not a reference."),
]
Runs = Annotated[Names, option("Runs or labels to show; default: all.")]
Score = Annotated[
    Names,
    option("Evaluation to use as the score; several are averaged; default: the study's score."),
]
FlopsScope = Annotated[Scope, option("FLOPs that count; each scope includes the previous ones.")]
Factor = Annotated[float, Field(gt=1, allow_inf_nan=False)]
Source = Annotated[str | None, option("Source of the published table; default: the one with most points.")]


class Options(BaseModel):
    """Options of a figure or table."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BestOf(Options):
    """The best of several runs in each seed.

    Attributes:
        of: Runs or labels to choose from.
        by: The metric that chooses; its goal defines "best". It can't be part of the score.
    """

    of: Annotated[Names, Field(min_length=1)]
    by: Annotated[str, Field(pattern=r"\S")]


Best = Annotated[
    dict[str, BestOf],
    option("New rows, such as tuned={of: RUN, by: METRIC}: the best run of each seed, in place of RUN."),
]


class _Comparison(Options):
    """Options of reports that compare runs."""

    baseline: Baseline = None
    runs: Runs = ()
    score: Score = ()


class _CostComparison(_Comparison):
    """Options of reports that compare runs by their costs as well."""

    best: Best = {}
    scope: FlopsScope = "scoring"


class _Printed(Options):
    """Options of every figure."""

    figure: Sheet | None = option("How the figure is printed; overrides the study's `figure`.")


class _TableContent(Options):
    """The options of tables that decide what they contain."""

    kind: Literal["table"]
    name: Annotated[str, AfterValidator(lambda name: extensions.check_name("table", name, TABLES))] = option(
        "Table to show; or a custom one, such as file.py:function.", "summary"
    )
    baseline: Baseline = None
    score: Score = ()
    best: Best = {}
    scope: FlopsScope = "scoring"
    published: bool = option("Show published rows in the paper's tables.", True)


class CostOptions(Options):
    """How the costs of runs are compared; `jestlab costs` has a flag for each option."""

    baseline: Baseline = None
    scope: FlopsScope = "scoring"


class PageOptions(Options):
    """Options of the page of an experiment."""

    baseline: str | None = option(
        "Run or label to compare with; default: that of the study's reports, else the first run that is no "
        "reference."
    )
    scope: Scope | None = option(
        "FLOPs that count, each scope with the previous ones; default: that of the study's reports, else "
        "scoring."
    )


class TableOptions(Shape, _TableContent):
    """A table of the study's runs.

    `summary` shows the final scores of all runs, `speedups` the cost to match the baseline, `scaling` power
    laws, and `claims` the study's claims with verdicts. The others are the paper's tables with its runs.
    """

    model_config = ConfigDict(extra="forbid")

    x: str | None = option("Of scaling: config key of the size, or an effort: flops, examples_seen.")
    by: Names = option("Of scaling: config keys whose values are lines; default: a line for each run.", ())
    to: Factor = option("Of scaling: extrapolate to this many times the largest size.", 10.0)
    options: dict[str, Any] = option("Arguments of a custom table.", {})

    @property
    def rows_of_runs(self) -> tuple[str, ...]:
        """The rows that must be runs."""
        return () if self.is_the_papers or self.name == "claims" else self.rows

    @property
    def is_the_papers(self) -> bool:
        """Whether the table has the layout of one of the paper's."""
        return self.name in get_args(PaperTable)

    @model_validator(mode="after")
    def _check(self) -> "TableOptions":
        if self.name == "scaling" and self.x is None:
            raise ValueError("the table scaling needs x, the config key of the size: x: KEY, or --x KEY")
        if self.name != "scaling" and (self.x, self.by, self.to) != (None, (), 10.0):  # as in a full dump
            raise ValueError("x, by, and to are options of the table scaling: leave them out")
        if self.options and self.name in TABLES:
            raise ValueError(f"the table {self.name} is built in: leave out `options`")
        if self.name == "claims" and (self.score or self.best):
            raise ValueError("claims name their runs and measures: leave out `score` and `best`")
        return self


class CurvesOptions(_CostComparison, _Printed):
    """Learning curves: the mean score, or other metrics, during training."""

    kind: Literal["curves"]
    over: Over | None = option("Horizontal axis; default: examples_seen, else seconds, else steps.")
    metric: Names = option("Recorded metric to show instead of the score; one panel each.", ())
    smooth: Annotated[int, Field(ge=2)] | None = option("Points in a running mean; if even, one more.")
    highlight: Names = option("Runs or labels to show in color; default: the best, if there are many.", ())


class ParetoOptions(_CostComparison, _Printed):
    """Final score against the cost of training, with the Pareto front."""

    kind: Literal["pareto"]
    over: Effort | None = option("Cost of training; default: flops, else seconds.")
    trajectories: bool | None = option("Show how runs move during training; default: if they are few.")


class SpeedupOptions(_CostComparison, _Printed):
    """How many fewer examples and FLOPs runs need to match the baseline's final score."""

    kind: Literal["speedup"]


class AgainstOptions(_Comparison, _Printed):
    """Final scores against any key of the config."""

    kind: Literal["against"]
    x: str = option("Config key on the horizontal axis, or an effort: flops, examples_seen.", ...)
    by: Names = option("Config keys whose values are lines.", ("selection.rule",))
    split: str | None = option("Config key whose values are panels.")


class ScalingOptions(_Comparison, _Printed):
    """Final scores over sizes, with a fitted power law for each line that is extrapolated."""

    kind: Literal["scaling"]
    x: str = option("Config key of the size, or an effort: flops, examples_seen.", ...)
    by: Names = option("Config keys whose values are lines; default: a line for each run.", ())
    to: Factor = option("Extrapolate to this many times the largest size.", 10.0)


class PaperFigureOptions(_Comparison, _Printed):
    """A figure of the paper that compares final scores or costs."""

    kind: Literal[
        "step_costs",
        "filtering_ratio",
        "approximation_share",
        "batch_size",
        "loss_comparison",
        "against_reference",
    ]


class SpikesOptions(_Printed):
    """A training metric over steps, with its spikes."""

    kind: Literal["optimizer_spikes"]
    metric: Annotated[Names, Field(max_length=1)] = option("Training metric to show.", ("loss",))
    x: str = option("Config key whose values are compared.", "optimizer.beta2")
    baseline: Baseline = None


class PublishedOptions(_Comparison, _Printed):
    """Published methods, and the study's runs where they have the same scores."""

    kind: Literal["published"]
    source: Source = None


class LearnabilityOptions(_Printed):
    """How learnable the batches are that each rule selects."""

    kind: Literal["learnability"]
    run: str | None = option("Run of `diagnose`; default: the first.")


class CompositionOptions(_Printed):
    """The share of each value of a metadata column in the batches of each run."""

    kind: Literal["composition"]
    x: str | None = option("Metadata column of `runtime.diagnostics.columns`; default: the first.")
    runs: Runs = ()


class SelectedOptions(_Printed):
    """Images that each run selected at the start, after a quarter of its steps, and at the end."""

    kind: Literal["selected"]
    runs: Runs = ()


class CustomFigureOptions(_CostComparison, _Printed):
    """A figure made by the user's code, such as `- {"mine.py:scatter": {options: {x: width}}}`."""

    kind: str
    options: dict[str, Any] = option("Arguments of a custom figure.", {})


class EveryFigureOptions(CurvesOptions, SpikesOptions, ParetoOptions, SpeedupOptions, LearnabilityOptions):
    """All figures for which an experiment has the results."""

    kind: Literal["all"]  # type: ignore[assignment]


_AnyReport = (
    TableOptions
    | CurvesOptions
    | ParetoOptions
    | SpeedupOptions
    | AgainstOptions
    | ScalingOptions
    | PaperFigureOptions
    | SpikesOptions
    | PublishedOptions
    | LearnabilityOptions
    | CompositionOptions
    | SelectedOptions
)
Report = Annotated[_AnyReport, Field(discriminator="kind")] | CustomFigureOptions

REPORTS: dict[str, type[Options]] = {
    kind: model for model in get_args(_AnyReport) for kind in get_args(model.model_fields["kind"].annotation)
}
"""Kind → its options."""

FIGURES: dict[str, type[Options]] = {kind: model for kind, model in REPORTS.items() if kind != "table"}


def flat_fields(*models: type[Options]) -> dict[str, FieldInfo]:
    """Return the fields of several models but `kind`, with those of `Sheet` in place of `figure`."""
    fields: dict[str, FieldInfo] = {}
    for model in models:
        for name, info in model.model_fields.items():
            if name not in ("kind", "figure"):
                fields.setdefault(name, info)
    if any("figure" in model.model_fields for model in models):
        fields |= Sheet.model_fields
    return fields


def parse_options(kind: str, given: Mapping[str, Any]) -> Any:
    """Validate the options of a kind.

    Args:
        kind: One of `REPORTS`, "all", or a custom figure.
        given: Option → value; those of `Sheet` may be given flat or under `figure`.

    Raises:
        SpecError: The kind or an option is unknown or invalid; the path names it.
    """
    model: type[Options] | None = EveryFigureOptions if kind == "all" else REPORTS.get(kind)
    if model is None:
        known = (*REPORTS, *extensions.installed("figure"))
        if kind not in known and not references.is_reference(kind):
            custom = f"file.py:function, module:function, or an entry point of {extensions.GROUPS['figure']}"
            problem = f"no report {shown(kind)}: {nearest(kind, known)}; a custom figure is {custom}"
            raise SpecError((KIND,), problem)
        model = CustomFigureOptions
    given = dict(given)
    flat = [key for key in Sheet.model_fields if key in given]
    if "figure" in model.model_fields and flat:
        given["figure"] = {key: given.pop(key) for key in flat} | (given.get("figure") or {})
    return validated(model, {**given, KIND: kind})


# ---- custom figures and tables


def custom_code(report: Options | Mapping[str, Any]) -> tuple[CodeKind, str, Mapping[str, Any]] | None:
    """Return the kind, name, and options of a report's custom code; None for a built-in report."""
    given = report if isinstance(report, Mapping) else dict(report)
    kind, name = str(given.get(KIND) or ""), str(given.get("name") or "summary")
    if (name in TABLES) if kind == "table" else (kind in REPORTS):
        return None
    used: CodeKind = "table" if kind == "table" else "figure"
    return used, name if used == "table" else kind, given.get("options") or {}


def custom_code_in(spec: Mapping[str, Any]) -> Iterator[tuple[CodeKind, str, Mapping[str, Any]]]:
    """Yield the kind, name, and options of all custom code in the reports of a stored spec."""
    reports = (report for report in spec.get("reports") or () if isinstance(report, dict))
    yield from filter(None, map(custom_code, reports))
