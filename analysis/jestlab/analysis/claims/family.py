"""How the claims of a study share an error rate: the key `family` of a spec."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

MANY = 10
"""Number of claims from which the false discovery rate is the default."""

TestName = Literal["sign", "signed_rank"]
"""The test after every seed: the sign test or Wilcoxon's signed-rank test."""

MOST_SEEDS = 100
"""The maximum number of seeds that a study may add until its claims are decided."""

MOST_RANKED = 20
"""The same by the signed-rank test, whose time doubles with every seed."""

USUAL_SEEDS = 24
"""The default of this number."""

_Rate = Annotated[float, Field(gt=0, lt=0.5)]

_DEFAULT = 0.05


class Part(BaseModel):
    """A part of a spec; a key without a value has its default."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        known = cls.model_fields
        return {key: value for key, value in data.items() if value is not None or key not in known}


class Family(Part):
    """How the claims of a study or of a union share an error rate, and by which test they are judged.

    With an `error`, each of m claims has the level error / m (Bonferroni), which bounds the family-wise error
    however the claims depend on each other. Holm's procedure would not: a verdict states the direction of a
    difference, which can be wrong even if a difference exists (Shaffer, 1986, J. Am. Stat. Assoc. 81).

    With a `rate`, k decided claims of m have the level k · rate / m, for the largest such k (Benjamini and
    Hochberg, 1995, J. R. Stat. Soc. B 57). This bounds the false discovery rate for independent claims. Each
    claim has one wrong verdict, whose p-value counts, so the bound includes wrong directions (Benjamini and
    Yekutieli, 2005, J. Am. Stat. Assoc. 100).

    Attributes:
        error: Maximum probability that any verdict is wrong. The default of fewer than ten claims is 0.05.
        rate: Maximum expected share of wrong verdicts among "holds" and "does not hold" (false discovery
            rate). The default of ten claims or more is 0.05.
        adjust: "bonferroni" divides the error among the claims; "none" gives each claim all of it.
        test: "sign" assumes only independent seeds; "signed_rank" also assumes symmetric differences, and
            decides sooner. The default is Student's t for a fixed number of seeds, else "sign".
    """

    error: _Rate | None = None
    rate: _Rate | None = None
    adjust: Literal["bonferroni", "none"] = "bonferroni"
    test: TestName | None = None

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, data: Any) -> Any:
        return {"adjust": data} if data == "none" else {} if data is None else data

    @model_validator(mode="after")
    def _check(self) -> "Family":
        if self.rate is not None and (self.error is not None or self.adjust == "none"):
            raise ValueError("has a rate and an error: keep `rate` for many claims, `error` for few")
        return self

    @property
    def most_seeds(self) -> int:
        """Maximum number of seeds of a study that adds seeds until its claims are decided."""
        return MOST_RANKED if self.test == "signed_rank" else MOST_SEEDS

    def has_rate(self, claims: int) -> bool:
        """Return whether the false discovery rate of this number of claims is bounded."""
        is_default = self.rate is None and self.error is None and self.adjust == "bonferroni"
        return self.rate is not None or (is_default and claims >= MANY)

    def bound(self, claims: int) -> float:
        """Return the family-wise error or false discovery rate; with `adjust: none`, the error of a claim."""
        return (self.rate if self.has_rate(claims) else self.error) or _DEFAULT

    def level(self, claims: int, decided: int) -> float:
        """Return the level at which each claim is tested if this number of the claims is decided."""
        if self.adjust == "none":
            return self.bound(claims)
        return self.bound(claims) * (max(1, decided) if self.has_rate(claims) else 1) / max(1, claims)

    def decided(self, p_values: Sequence[float]) -> int:
        """Return the number of claims that are decided, given their p-values."""
        claims, ranked = len(p_values), sorted(p_values)
        if not self.has_rate(claims):
            return sum(p <= self.level(claims, 1) for p in ranked)
        counts = (k for k in range(claims, 0, -1) if ranked[k - 1] <= self.level(claims, k))
        return next(counts, 0)

    def text(self, claims: int) -> str:
        """Write the rule: "an error rate of at most 5% for all together"."""
        kind = "a false discovery rate" if self.has_rate(claims) else "an error rate"
        share = "" if claims == 1 else " per claim" if self.adjust == "none" else " for all together"
        test = f", by the test {self.test}" if self.test else ""
        return f"{kind} of at most {100 * self.bound(claims):g}%{share}{test}"
