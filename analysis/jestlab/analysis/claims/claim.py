"""The keys of a spec that make claims: `claims`, `family`, and `seeds: {until: decided}`; stored studies."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    model_serializer,
    model_validator,
)

from ..costs import Scope
from ..results import Snapshot, opens_store
from .family import MOST_SEEDS, USUAL_SEEDS, Family, Part

SCORE = "score"
AT_FLOPS = "score_at_flops"
AT_SECONDS = "score_at_seconds"
SPIKES = "loss_spikes"
LOSS = "loss"  # the metric in which spikes are counted
AFTER = re.compile(r"score_after_(0?\.[0-9]+|1(?:\.0*)?)")
"""Pattern of measures such as "score_after_0.5": the score after half of the examples."""

Comparison = Literal["above", "below", "better_than", "near"]
"""The relation that a claim states between its two sides. The metric's goal defines "better"."""

COMPARISONS: tuple[Comparison, ...] = get_args(Comparison)


def is_score(measure: str) -> bool:
    """Return whether a measure is the score at the end of training or earlier."""
    return measure in (SCORE, AT_FLOPS, AT_SECONDS) or AFTER.fullmatch(measure) is not None


BOTH = (
    "The best of several values is too good by chance: choose by one metric, such as a validation loss, and "
    "report another"
)
"""Why a metric can't both choose the best run and be reported."""


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if repeated := [name for i, name in enumerate(names) if name in names[:i]]:
        raise ValueError(f"duplicate run {repeated[0]!r}: give each run once")
    return names


_Text = Annotated[str, StringConstraints(pattern=r"\S")]
_Names = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    Field(min_length=1),
    BeforeValidator(lambda names: (names,) if isinstance(names, str) else names),
    AfterValidator(_distinct),
]


class Side(Part):
    """One side of a claim: the mean over some runs, optionally minus the mean over other runs.

    In a spec, a side is a name, a list of names, or a mapping: `{of: small, minus: large}` is a difference
    between runs; `{of: small, measure: loss}` replaces the measure of the claim;
    `{best: small, by: dev/loss}` is one run in each seed, the one with the best value of a metric.

    Attributes:
        of: Labels or names of runs. The name of a run selects all its points.
        best: Labels or names of runs, in place of `of`. In each seed, the best of them by `by` counts.
        by: The metric that chooses the best run; its goal defines "best".
        minus: Labels or names of the runs whose mean is subtracted.
        measure: The measure of this side; the claim's `measure` by default.
    """

    of: _Names = ()
    best: _Names = ()
    by: _Text = ""
    minus: Annotated[_Names, Field(min_length=0)] = ()
    measure: _Text | Literal[""] = ""

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, data: Any) -> Any:
        return data if isinstance(data, Side | Mapping) else {"of": data}

    @model_validator(mode="after")
    def _check(self) -> Side:
        if bool(self.of) == bool(self.best):
            raise ValueError("must have exactly one of `of` and `best`")
        if bool(self.best) != bool(self.by) or is_score(self.by):
            raise ValueError("must be {best: RUN, by: METRIC}, with a metric that is not a score")
        return self

    @model_serializer
    def _shorten(self) -> Any:
        def short(names: tuple[str, ...]) -> str | list[str]:
            return names[0] if len(names) == 1 else list(names)

        options: dict[str, Any] = {"minus": short(self.minus)} if self.minus else {}
        options |= {"measure": self.measure} if self.measure else {}
        if self.best:
            return {"best": short(self.best), "by": self.by, **options}
        return {"of": short(self.of), **options} if options else short(self.of)

    def named(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield each name on this side, preceded by its path in the spec, relative to the side."""
        is_short = not (self.best or self.minus or self.measure)
        for key, names in (("of", self.of), ("best", self.best), ("minus", self.minus)):
            for i, name in enumerate(names):
                yield (() if is_short else (key,)) + ((str(i),) if len(names) > 1 else ()), name

    def best_run(self, shown: Mapping[str, str]) -> str:
        """Describe the run that counts in each seed, with the display names of runs and labels."""
        return f"best {', '.join(shown.get(name, name) for name in self.best)} by {self.by}"

    def text(self, shown: Mapping[str, str]) -> str:
        """Write the side, with the display names of runs and labels."""
        of, minus = (
            "mean of " * (len(names) > 1) + ", ".join(shown.get(name, name) for name in names)
            for names in (self.of, self.minus)
        )
        of = of or self.best_run(shown)
        side = f"({of}) − ({minus})" if minus else of
        return f"{side} ({self.measure})" if self.measure else side


class Claim(Part):
    """A statement that the runs of a study confirm or refute, seed by seed.

    Attributes:
        statement: The claim in words.
        of: The runs that the claim is about.
        above: The runs to compare with, if `of` has the higher value.
        below: The runs to compare with, if `of` has the lower value.
        better_than: The runs to compare with, if `of` is better by the metric's goal.
        near: The runs to compare with, if `of` differs from them by at most `within`.
        exponent_above: A number, if the points of `of` follow a power law c + a · x^(−b) whose exponent b is
            higher. The metric must improve with the size x.
        over: The config key of the size x. Required with `exponent_above`.
        within: The tolerance, in the metric's own unit: 0.02 means two percentage points. Required with
            `near`. With the other comparisons, the claim also holds if `of` is worse by less than this.
        measure: The value to compare: `score` (mean of the final evaluations), `score_at_flops` or
            `score_at_seconds` (score at the FLOPs or seconds of the cheapest run with that seed),
            `score_after_0.5` (score after half of the examples), `loss_spikes` (number of spikes), or the
            name of an evaluation or a training metric (its final value).
        source: The source of the claim, such as a figure of a paper.
        unless: An explanation to show if the claim does not hold.
    """

    statement: _Text
    of: Side
    above: Side | None = None
    below: Side | None = None
    better_than: Side | None = None
    near: Side | None = None
    exponent_above: Annotated[float, Field(gt=0)] | None = None
    over: _Text | Literal[""] = ""
    within: Annotated[float, Field(gt=0)] | None = None
    measure: _Text = SCORE
    source: str = ""
    unless: str = ""

    @model_validator(mode="after")
    def _check(self) -> Claim:
        keys = (*COMPARISONS, "exponent_above")
        given = [name for name in keys if getattr(self, name) is not None]
        if len(given) != 1:
            names = " and ".join(given) or "none"
            raise ValueError(f"must have exactly one of {', '.join(keys)}, not {names}")
        if self.is_ladder != bool(self.over):
            raise ValueError("exponent_above and over belong together: exponent_above: 0.3, over: CONFIG_KEY")
        if self.is_ladder and (self.of.by or self.of.minus or self.within):
            raise ValueError("exponent_above takes runs, without best, minus, or within")
        if self.of == self.other:
            raise ValueError(f"{given[0]} equals `of`: name another run or another measure")
        for key, side, measure in zip(self.keys, self.sides, self.measures, strict=True):
            if side.by == measure:
                raise ValueError(f"{key}: {side.by} chooses the best run and is also the measure. {BOTH}")
        if self.near is not None and self.within is None:
            raise ValueError("within is missing: near requires a tolerance (0.02 means two points)")
        return self

    @property
    def comparison(self) -> Comparison:
        """The relation between both sides; for an exponent, the goal of the metric decides it."""
        given = (name for name in COMPARISONS if getattr(self, name) is not None)
        return next(given, "better_than")

    @property
    def is_ladder(self) -> bool:
        """Whether the claim is about the exponent of a power law over the points of `of`."""
        return self.exponent_above is not None

    @property
    def other(self) -> Side | None:
        """The side to compare with; None for an exponent."""
        side: Side | None = getattr(self, self.comparison)
        return side

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the sides in a spec."""
        return ("of", self.comparison) if self.other else ("of",)

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides: `of` and, except for an exponent, `other`."""
        return (self.of, self.other) if self.other else (self.of,)

    @property
    def measures(self) -> tuple[str, ...]:
        """The measure of each side."""
        return tuple(side.measure or self.measure for side in self.sides)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The measures of both sides, and the metrics that choose the best runs."""
        return *self.measures, *(side.by for side in self.sides if side.by)

    @property
    def unit(self) -> str:
        """Name of the difference: the measure of both sides, "score" for two kinds of score, the folder that
        both names start with, or both names."""
        first, second = self.measures[0], self.measures[-1]
        if first != second and is_score(first) and is_score(second):
            return SCORE
        return first if first == second else posixpath.commonpath((first, second)) or f"{first} − {second}"

    def text(self, shown: Mapping[str, str]) -> str:
        """Write the comparison, with the display names of runs and labels."""
        within = "" if self.within is None else f" within {self.within:g}"
        by = "" if all(side.measure for side in self.sides) else f", by {self.measure}"
        if self.other is None:
            law = f"exponent over {self.over} above {self.exponent_above:g}"
            return f"{self.of.text(shown)}: {law}{by}"
        relation = self.comparison.replace("_", " ")
        return f"{self.of.text(shown)} {relation} {self.other.text(shown)}{within}{by}"


def parse_claims(claims: Iterable[Any] | None) -> list[Claim]:
    """Parse the claims of a stored spec."""
    return [Claim.model_validate(claim) for claim in claims or ()]


class Budget(Part):
    """A limit on the cost of a study.

    Attributes:
        hours: Maximum sum of the hours of all runs, including runs that execute at the same time.
    """

    hours: Annotated[float, Field(gt=0)]


class Until(Part):
    """The rule by which a study adds seeds until each claim is decided, out of reach, or over budget.

    Attributes:
        until: Always "decided".
        at_least: Number of seeds in the first round.
        at_most: Number of seeds at which the study ends.
        budget: Limit on the sum of the hours of all runs; None for no limit.
    """

    until: Literal["decided"]
    at_least: Annotated[int, Field(ge=1, le=MOST_SEEDS)] = 3
    at_most: Annotated[int, Field(ge=1, le=MOST_SEEDS)] = USUAL_SEEDS
    budget: Budget | None = None

    @model_validator(mode="after")
    def _check(self) -> Until:
        if self.at_least > self.at_most:
            raise ValueError(f"at_least {self.at_least} is above at_most {self.at_most}")
        return self


# ---- studies in a store

_STUDIES = "SELECT experiment, spec, scale FROM v_experiments"


@dataclass(frozen=True)
class Study:
    """The spec of a study in a store.

    Attributes:
        spec: The resolved spec.
        scale: The scale of the last launch; empty if the study has no scales.
    """

    spec: Mapping[str, Any]
    scale: str

    @property
    def claims(self) -> list[Claim]:
        """The claims of the study."""
        return parse_claims(self.spec.get("claims"))

    @property
    def parts(self) -> dict[str, dict[str, Any]]:
        """Specs of the studies in a union, by name; empty for an ordinary study."""
        return dict(self.spec.get("studies") or {})

    @property
    def family(self) -> Family:
        """The error rate that the claims of the study and its parts share."""
        return Family.model_validate(self.spec.get("family"))

    @property
    def until(self) -> Until | None:
        """The rule that adds seeds; None if the number of seeds is fixed."""
        seeds = self.spec.get("seeds")
        return Until.model_validate(seeds) if isinstance(seeds, Mapping) else None

    @property
    def baseline(self) -> str | None:
        """Label or run that the reports compare with; None if no report names a baseline."""
        baseline: str | None = self._report_option("baseline")
        return baseline

    @property
    def scope(self) -> Scope:
        """Which FLOPs the reports count: "scoring" unless a report names a scope."""
        return self._report_option("scope") or "scoring"

    def _report_option(self, option: str) -> Any:
        reports = self.spec.get("reports") or []
        return next((report[option] for report in reports if report.get(option)), None)


@opens_store
def studies(store: Snapshot) -> dict[str, Study]:
    """Read all studies of a store, by name in alphabetical order."""
    rows = sorted(store.rows(_STUDIES), key=lambda row: row["experiment"])
    return {row["experiment"]: Study(json.loads(row["spec"]), row["scale"] or "") for row in rows}


@opens_store
def parts_of(store: Snapshot, experiment: str) -> dict[str, dict[str, Any]]:
    """Read the specs of the studies in a union, by name; empty if the experiment is not a union."""
    study = store.once(studies).get(experiment)
    return {} if study is None else study.parts
