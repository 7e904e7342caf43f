"""A claim with its verdict, and the words that describe it."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from .claim import Claim, Until
from .contrast import Contrast
from .evidence import VERDICTS, Evidence, Relation, Sample, Verdict, agreeing
from .family import USUAL_SEEDS, Family
from .registration import Registration

Label = tuple[str, str]
"""A study and the label of one of its runs."""

FUTILE = 0.05
"""A claim is out of reach if the probability of a decision is below this value."""

_PLURALS = {"holds": "hold", "does not hold": "do not hold"}


@dataclass(frozen=True)
class Judging:
    """How a claim of a study is judged.

    Attributes:
        family: The error rate that the claims share.
        claims: Number of claims in the family.
        until: The rule that adds seeds; None if the number of seeds is fixed, so that there is one look.
        decided: Number of decided claims in the family, including this one if it is undecided.
        ahead: Forecast of this number at the end of the study.
    """

    family: Family = field(default_factory=Family)
    claims: int = 1
    until: Until | None = None
    decided: int = 1
    ahead: int = 1

    @property
    def level(self) -> float:
        """The level of the claim."""
        return self.family.level(self.claims, self.decided)

    @property
    def limit(self) -> float:
        """The highest level that the claim may have."""
        return self.family.level(self.claims, self.claims)

    @property
    def most(self) -> int:
        """Maximum number of seeds with a look after every seed."""
        return min(self.until.at_most if self.until else USUAL_SEEDS, self.family.most_seeds)

    def sample(self, differences: Sequence[float], relation: Relation, within: float) -> Sample:
        """Return the differences of a claim, one for each seed in the order of the seeds, with their test."""
        at_most = None if self.until is None else self.most
        return Sample(differences, relation, within, self.limit, at_most, self.family.test)

    def evidence(self, sample: Sample) -> Evidence:
        """Decide a claim by its differences."""
        return sample.evidence(self.level, self.family.level(self.claims, max(self.ahead, self.decided)))


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict.

    Attributes:
        contrast: The difference between its sides in the seeds that decide it, or in all seeds.
        evidence: The result of the test, with the error of the family.
        spent: Whether the budget of the study is spent.
        registered: The registration before the first run; None if the study is not registered.
        exploratory: The changes since the registration that affect the claim; often empty.
    """

    contrast: Contrast
    judging: Judging
    evidence: Evidence
    spent: bool = False
    registered: Registration | None = None
    exploratory: str = ""

    @property
    def claim(self) -> Claim:
        """The claim."""
        return self.contrast.claim

    @property
    def places(self) -> list[Label]:
        """The study and label of each run that the claim compares."""
        return [(self.contrast.experiment, label) for label in self.contrast.members]

    @property
    def verdict(self) -> Verdict:
        """The verdict; "not run" if no seed has completed."""
        return self.evidence.verdict if self.contrast.completed else "not run"

    @property
    def seeds(self) -> int:
        """Number of seeds used."""
        return self.evidence.seeds

    @property
    def verdict_text(self) -> str:
        """The verdict, with the scale if the claim doesn't hold."""
        scale = self.contrast.study.scale
        is_scaled = scale and self.verdict == "does not hold"
        return f"{self.verdict} at this scale ({scale})" if is_scaled else self.verdict

    @property
    def chance(self) -> float:
        """The p-value of the more likely verdict, corrected for the number of claims in the family."""
        return min(
            1.0, self.evidence.chance * self.judging.family.bound(self.judging.claims) / self.judging.level
        )

    @property
    def points_to_claim(self) -> bool:
        """Whether the mean so far agrees with the claim; without a mean, whether most seeds agree."""
        mean = self.contrast.difference.mean
        if math.isnan(mean):
            return 2 * self.evidence.agree > self.seeds
        return agreeing([mean], self.contrast.relation, self.claim.within or 0.0) == 1

    @property
    def reason(self) -> str:
        """The likely reason why the claim doesn't hold or is undecided; empty if it holds."""
        if self.verdict == "holds":
            return ""
        if self.seeds < 2:
            return self.contrast.gap or self.contrast.lost
        clauses = [self.contrast.lost]
        if self.verdict == "undecided":
            clauses.append(f"currently points {'to' if self.points_to_claim else 'against'} the claim")
            clauses.append(self._outlook)
        if self.verdict == "does not hold" or not self.points_to_claim:
            clauses.append(self.claim.unless)
        return "; ".join(filter(None, clauses))

    @property
    def _outlook(self) -> str:
        """The chance that more seeds decide an undecided claim, in words; empty if no more are possible."""
        is_fixed, most = self.judging.until is None, self.judging.most
        if self.seeds >= most or not (is_fixed or self.is_open):
            return ""
        how = ", with --decide," if is_fixed else ""
        return f"the chance of a decision by {most} seeds{how} is {self.evidence.forecast.decided:.0%}"

    @property
    def is_decided(self) -> bool:
        """Whether the verdict is "holds" or "does not hold"."""
        return self.verdict in ("holds", "does not hold")

    @property
    def is_futile(self) -> bool:
        """Whether the claim is unlikely to be decided within the maximum number of seeds of the study."""
        until = self.judging.until
        if until is None or self.verdict != "undecided":
            return False
        is_unlikely = self.seeds >= until.at_least and self.evidence.forecast.decided < FUTILE
        return bool(self.contrast.problem) or is_unlikely

    @property
    def is_open(self) -> bool:
        """Whether the study adds seeds for this claim if its budget allows."""
        has_more = self.judging.until is not None and self.seeds < self.judging.most
        return has_more and not (self.is_decided or self.is_futile)

    @property
    def stopped(self) -> str:
        """The reason why no more seeds are run for the claim; "continues" if more are run."""
        until = self.judging.until
        if until is None:
            planned = len(self.contrast.planned)
            return f"{planned} seeds planned" if planned != 1 else "one seed planned"
        if self.is_decided:
            return "decided"
        if self.seeds >= self.judging.most:
            return f"{self.judging.most} seeds, the maximum"
        if self.is_futile:
            return f"out of reach (under {FUTILE:.0%} chance of a decision by {self.judging.most} seeds)"
        return "budget spent" if self.spent else "continues"


def count_verdicts(judged: Sequence[Judged], with_scale: bool = True) -> str:
    """Count the verdicts in a sentence: "At scale smoke, 3 claims: 2 hold, 1 undecided."."""
    counts = Counter(each.verdict for each in judged)
    scales = dict.fromkeys(each.contrast.study.scale for each in judged if with_scale)
    named = " and ".join(filter(None, scales))
    where = f"At scale {named}, " if named else ""
    if len(judged) == 1:
        return f"{where}1 claim: {judged[0].verdict}."
    parts = [
        f"{counts[each]} {_PLURALS.get(each, each) if counts[each] > 1 else each}"
        for each in VERDICTS
        if counts[each]
    ]
    return f"{where}{len(judged)} claims: {', '.join(parts)}."
