"""Claims: a statement, the runs that decide it, and by what they are compared; parsed here and nowhere else.

A spec lists claims (`study.claims`), and the store keeps the spec.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..results import Snapshot, opens_store
from ..written import Path, WrittenError, is_number, no_string, shown
from ..written import given as given_in
from .families import Family
from .measures import SCORE, is_score
from .stopping import Until

if TYPE_CHECKING:
    from ..costs import Scope

Comparison = Literal["above", "below", "better_than", "near"]
"""What a claim says of its side, compared with the other side: exactly one. Which of above and below is
better says the metric (`Metric.goal`)."""

COMPARISONS: tuple[Comparison, ...] = get_args(Comparison)

MEANINGS: dict[Comparison, str] = {
    "above": "The other side, if the claim is that `of` lies above it.",
    "below": "The other side, if the claim is that `of` lies below it.",
    "better_than": "The other side, if the claim is that `of` is better by the metric's goal.",
    "near": "The other side, if the claim is that `of` differs from it by no more than `within`.",
}
"""What is given under each comparison."""

_STUDIES = "SELECT experiment, spec, scale FROM v_experiments"

_SIDE = ("of", "minus", "measure")
_CLAIM = ("statement", "of", *COMPARISONS, "within", "measure", "source", "unless")


class ClaimError(WrittenError):
    """An invalid claim."""


@dataclass(frozen=True)
class Side:
    """One side of a claim: the mean over some runs, perhaps minus the mean over others.

    Written as a name, a list of names, or {of: …, minus: …, measure: …}: a difference itself, such as what a
    smaller batch costs, or a side that is measured in another way than the other side.

    Attributes:
        of: Labels or names of runs; a name means all points of that run.
        minus: Labels or names of runs whose mean is subtracted; empty for nothing.
        measure: What this side is measured by, where that is not the claim's `measure`.
    """

    of: tuple[str, ...]
    minus: tuple[str, ...] = ()
    measure: str = ""

    @classmethod
    def parse(cls, written: Any, path: Path = ()) -> Side:
        """Parse the form that a spec has it in.

        Raises:
            ClaimError: It has another form; the place is named, below `path`.
        """
        if not isinstance(written, Mapping):
            return cls(_names(written, path))
        given = given_in(written, _SIDE, path, ClaimError)
        if "of" not in given:
            raise ClaimError((*path, "of"), "is missing: a side is {of: …, minus: …} or {of: …, measure: …}")
        if len(given) == 1:
            raise ClaimError(path, "has nothing but `of`: write the name alone, or add minus or measure")
        minus = _names(given["minus"], (*path, "minus")) if "minus" in given else ()
        measure = _text(given, "measure", path) if "measure" in given else ""
        return cls(_names(given["of"], (*path, "of")), minus, measure)

    def written(self) -> Any:
        """Write the side as a spec has it."""
        of, minus = (names[0] if len(names) == 1 else list(names) for names in (self.of, self.minus))
        rest = {"minus": minus, "measure": self.measure}
        given = {key: value for key, value in rest.items() if value}
        return {"of": of} | given if given else of

    def named(self) -> Iterator[tuple[Path, str]]:
        """Yield the names on this side, each with its place below the side."""
        whole = not self.minus and not self.measure
        for key, names in (("of", self.of), ("minus", self.minus)):
            for i, name in enumerate(names):
                yield (() if whole else (key,)) + ((str(i),) if len(names) > 1 else ()), name

    def __str__(self) -> str:
        return self.told({})

    def told(self, shown: Mapping[str, str]) -> str:
        """Write the side with the names that are shown for runs and labels, where those differ."""
        of, minus = (
            "mean of " * (len(names) > 1) + ", ".join(shown.get(name, name) for name in names)
            for names in (self.of, self.minus)
        )
        side = f"({of}) − ({minus})" if minus else of
        return f"{side} ({self.measure})" if self.measure else side


@dataclass(frozen=True)
class Claim:
    """A statement that a study's runs decide, seed by seed.

    Attributes:
        statement: What is claimed, in words.
        of: The side that the claim is about.
        comparison: Whether that lies above, below or near the other side, or is better than it.
        other: What it is compared with.
        within: How far from the other side at most where it is near; or how far on the wrong side of it is
            still as good where it is above, below or better; in the measure's own unit (.02 are two points
            of a score). Null for not at all.
        measure: What is compared, where a side does not say otherwise: "score" (mean of the final
            evaluations), "score_at_flops" (where the learning curves are at the least FLOPs that any of the
            runs of that seed ends at), "score_at_seconds" (at the least seconds of training),
            "score_after_0.5" (where a run has seen half of its examples, or another share), the name of one
            evaluation, the name of a training metric (its last value), or "loss_spikes" (how many).
        source: Where it is claimed, such as a figure of a paper.
        unless: The likely reason where it does not hold.
    """

    statement: str
    of: Side
    comparison: Comparison
    other: Side
    within: float | None = None
    measure: str = SCORE
    source: str = ""
    unless: str = ""

    @classmethod
    def parse(cls, written: Any, path: Path = ()) -> Claim:
        """Parse the form that a spec, or the spec that a store keeps, has it in.

        Raises:
            ClaimError: It has another form; the place is named, below `path`.
        """
        if isinstance(written, Claim):
            return written
        if not isinstance(written, Mapping):
            raise ClaimError(path, f"must be a mapping of {', '.join(_CLAIM)}, not {shown(written)}")
        given = given_in(written, _CLAIM, path, ClaimError)
        for key in ("statement", "of"):
            if key not in given:
                raise ClaimError((*path, key), "is missing")
        texts = {
            key: _text(given, key, path)
            for key in ("statement", "measure", "source", "unless")
            if key in given
        }
        kinds = [kind for kind in COMPARISONS if kind in given]
        if len(kinds) != 1:
            found = " and ".join(kinds) or "none"
            raise ClaimError(path, f"must have exactly one of {', '.join(COMPARISONS)}, not {found}")
        within = _within(given, kinds[0], path)
        of, other = (Side.parse(given[key], (*path, key)) for key in ("of", kinds[0]))
        if of == other:
            raise ClaimError(
                (*path, kinds[0]), "is what the claim is of: name another run, or another measure"
            )
        return cls(of=of, comparison=kinds[0], other=other, within=within, **texts)

    def written(self) -> dict[str, Any]:
        """Write the claim as a spec has it, without defaults."""
        whole = {
            "statement": self.statement,
            "of": self.of.written(),
            self.comparison: self.other.written(),
            "within": self.within,
            "measure": self.measure if self.measure != SCORE else None,
            "source": self.source or None,
            "unless": self.unless or None,
        }
        return {key: value for key, value in whole.items() if value is not None}

    @property
    def tolerance(self) -> float:
        """`within` as a number: 0 for not at all."""
        return 0.0 if self.within is None else self.within

    @property
    def measures(self) -> tuple[str, str]:
        """Names of the measures of both sides."""
        return self.of.measure or self.measure, self.other.measure or self.measure

    @property
    def unit(self) -> str:
        """What the difference is measured in: the measure of both sides; or what their names have in common,
        such as `learnability` of `learnability/joint` and `learnability/gibbs`; or both names. Scores at two
        moments differ in score."""
        of, other = self.measures
        if of != other and is_score(of) and is_score(other):
            return SCORE
        return of if of == other else posixpath.commonpath((of, other)) or f"{of} − {other}"

    def __str__(self) -> str:
        return self.told({})

    def told(self, shown: Mapping[str, str]) -> str:
        """Write what is compared with the names that are shown for runs and labels, where those differ."""
        within = "" if self.within is None else f" within {self.within:g}"
        by = "" if self.of.measure and self.other.measure else f", by {self.measure}"
        of, other = self.of.told(shown), self.other.told(shown)
        return f"{of} {self.comparison.replace('_', ' ')} {other}{within}{by}"


def parse_claims(written: Any) -> tuple[Claim, ...]:
    """Parse the claims of a spec.

    Args:
        written: A list of them; None for none.

    Raises:
        ClaimError: It has another form, or a statement occurs twice; the place is named.
    """
    if written is None:
        return ()
    if not isinstance(written, list | tuple):
        raise ClaimError(("claims",), f"must be a list of claims, not {shown(written)}")
    claims = tuple(Claim.parse(each, ("claims", str(i))) for i, each in enumerate(written))
    for i, claim in enumerate(claims):
        if claim.statement in {each.statement for each in claims[:i]}:
            raise ClaimError(("claims", str(i), "statement"), "duplicate statement: give each statement once")
    return claims


@dataclass(frozen=True)
class Study:
    """A study as the store keeps it, besides its runs.

    Attributes:
        spec: The resolved spec; empty where the store does not know it.
        scale: The scale it was last launched at; empty if it has none.
    """

    spec: Mapping[str, Any]
    scale: str

    @property
    def claims(self) -> list[Claim]:
        """Claims of the study, parsed."""
        return [Claim.parse(written) for written in self.spec.get("claims") or []]

    @property
    def parts(self) -> dict[str, dict[str, Any]]:
        """Specs of the studies in a union, by name; empty for an ordinary study."""
        return dict(self.spec.get("studies") or {})

    @property
    def family(self) -> Family:
        """How its claims, and those of its parts, are judged together."""
        return Family.parse(self.spec.get("family"))

    @property
    def until(self) -> Until | None:
        """When it has enough seeds; None where their number is fixed."""
        seeds = self.spec.get("seeds")
        return Until.parse(seeds) if isinstance(seeds, Mapping) else None

    @property
    def baseline(self) -> str | None:
        """Label or run that the reports compare others with; None if they do not say."""
        named: str | None = self._said("baseline")
        return named

    @property
    def scope(self) -> Scope:
        """Scope of FLOPs that the reports count."""
        scope: Scope = self._said("scope") or "scoring"
        return scope

    def _said(self, option: str) -> Any:
        """An option of the first report that sets it."""
        reports = self.spec.get("reports") or []
        return next((report[option] for report in reports if report.get(option)), None)


@opens_store
def studies(store: Snapshot) -> dict[str, Study]:
    """Read every study of a store, by name in alphabetical order.

    Args:
        store: The store.
    """
    rows = store.select(_STUDIES).itertuples(index=False)
    found = {str(name): Study(json.loads(spec), str(scale or "")) for name, spec, scale in rows}
    return dict(sorted(found.items()))


@opens_store
def parts_of(store: Snapshot, experiment: str) -> dict[str, dict[str, Any]]:
    """Read the specs of the studies in a union, which are experiments of the store themselves, by name; empty
    for an ordinary study, or one that the store does not know."""
    found = store.once(studies).get(experiment)
    return found.parts if found is not None else {}


def _within(given: Mapping[str, Any], kind: str, path: Path) -> float | None:
    within = given.get("within")
    if within is None:
        if kind != "near":
            return None
        raise ClaimError((*path, "within"), "is missing: near is how near? (.02 are two points of a score)")
    if not is_number(within) or within <= 0:
        raise ClaimError((*path, "within"), f"must be a number above 0, not {shown(within)}")
    return float(within)


def _text(given: Mapping[str, Any], key: str, path: Path) -> str:
    text = given[key]
    if not isinstance(text, str) or not text.strip():
        raise ClaimError((*path, key), f"must be a string, not {no_string(text)}")
    return text


def _names(given: Any, path: Path) -> tuple[str, ...]:
    if isinstance(given, str) and given:
        return (given,)
    if not isinstance(given, list | tuple) or not given:
        raise ClaimError(path, f"must name a run, by label or name, or list several, not {no_string(given)}")
    for i, name in enumerate(given):
        if not isinstance(name, str) or not name:
            raise ClaimError((*path, str(i)), f"must name a run, by label or name, not {no_string(name)}")
        if name in given[:i]:
            raise ClaimError((*path, str(i)), f"duplicate run {name!r}: give each run once")
    return tuple(given)
