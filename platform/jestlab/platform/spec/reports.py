"""What a study ends in: tables and figures, each with what it needs to know."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from jestlab.analysis.costs import Scope


class _Report(BaseModel):
    """What all reports can be told.

    Attributes:
        baseline: Name or label of the run that others are compared with; None for the first that is no
            reference.
        scope: What counts as FLOPs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    baseline: str | None = None
    scope: Scope = "scoring"


class TableReport(_Report):
    """Final scores of every run, mean ± std over seeds, with the difference to the baseline."""

    kind: Literal["table"]


class CurvesReport(_Report):
    """Learning curves of every run.

    Attributes:
        effort: What the score is drawn over.
    """

    kind: Literal["curves"]
    effort: Literal["examples_seen", "flops"] = "examples_seen"


class ParetoReport(_Report):
    """Score against total training FLOPs, with the front."""

    kind: Literal["pareto"]


Report = Annotated[TableReport | CurvesReport | ParetoReport, Field(discriminator="kind")]

REPORTS: dict[str, type[BaseModel]] = {"table": TableReport, "curves": CurvesReport, "pareto": ParetoReport}
