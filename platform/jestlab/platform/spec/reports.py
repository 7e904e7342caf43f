"""What a study ends in: tables and figures, each with what it needs to know."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from jestlab.analysis.costs import Scope


class _Report(BaseModel):
    """A report."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class _Comparison(_Report):
    """What reports that compare runs can be told.

    Attributes:
        baseline: Name or label of the run that others are compared with; None for the first that is no
            reference.
        scope: What counts as FLOPs.
    """

    baseline: str | None = None
    scope: Scope = "scoring"


class TableReport(_Comparison):
    """Final scores of every run, mean ± std over seeds, with the difference to the baseline."""

    kind: Literal["table"]


class CurvesReport(_Comparison):
    """Learning curves of every run.

    Attributes:
        effort: What the score is drawn over.
    """

    kind: Literal["curves"]
    effort: Literal["examples_seen", "flops"] = "examples_seen"


class ParetoReport(_Comparison):
    """Score against total training FLOPs, with the front."""

    kind: Literal["pareto"]


class LearnabilityReport(_Report):
    """How learnable the batches are that the rules select.

    Attributes:
        run: Name or label of a `diagnose` run; None for the first.
    """

    kind: Literal["learnability"]
    run: str | None = None


Report = Annotated[
    TableReport | CurvesReport | ParetoReport | LearnabilityReport, Field(discriminator="kind")
]

REPORTS: dict[str, type[BaseModel]] = {
    "table": TableReport,
    "curves": CurvesReport,
    "pareto": ParetoReport,
    "learnability": LearnabilityReport,
}
