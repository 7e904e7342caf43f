"""Families of claims, which share one chance of a wrong verdict.

Of 55 claims that are judged with an error of 5% each, some verdict is wrong in 94 of 100 studies (.94 = 1 −
.95^55, were they independent). So the claims of a study, or of a union, share one error: each of m claims may
be wrong with a probability of error / m, and then any of them is with at most `error`, however the claims
depend on each other (Bonferroni).

Holm's steps, which give the claims that are left the error of those that are decided, would not be allowed
here: a verdict says on which side a difference lies, so that each claim, decided or not, is one that can be
wrong (Shaffer, 1986, J. Am. Stat. Assoc. 81, with "the other side" as the hypothesis that is always true).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..written import Path, WrittenError, given, is_number, shown

Adjust = Literal["bonferroni", "none"]
"""How claims share the error: each has error / m; or each has all of it."""

_KEYS = ("error", "adjust")


@dataclass(frozen=True)
class Family:
    """How the claims of a study, or of a union, are judged together.

    Attributes:
        error: Probability with which any of the verdicts "holds" and "does not hold" is wrong; in (0, 0.5).
        adjust: "bonferroni", or "none": then each verdict is wrong with this probability by itself.
    """

    error: float = 0.05
    adjust: Adjust = "bonferroni"

    @classmethod
    def parse(cls, written: Any, path: Path = ("family",)) -> Family:
        """Parse the form that a spec has it in: `{error: 0.05}`, or `none`.

        Raises:
            WrittenError: It has another form; the place is named.
        """
        if isinstance(written, Family):
            return written
        if written is None:
            return cls()
        if written == "none":
            return cls(adjust="none")
        if not isinstance(written, Mapping):
            raise WrittenError(path, f"must be {{error: 0.05}} or none, not {shown(written)}")
        found = given(written, _KEYS, path)
        error, adjust = found.get("error", cls.error), found.get("adjust", cls.adjust)
        if not is_number(error) or not 0 < error < 0.5:
            raise WrittenError((*path, "error"), f"must be between 0 and 0.5, not {shown(error)}")
        if adjust not in get_args(Adjust):
            raise WrittenError(
                (*path, "adjust"), f"must be {' or '.join(get_args(Adjust))}, not {shown(adjust)}"
            )
        return cls(float(error), adjust)

    def written(self) -> dict[str, Any]:
        """Write it as a spec has it, without defaults."""
        plain = Family()
        return {key: value for key in _KEYS if (value := getattr(self, key)) != getattr(plain, key)}

    def share(self, claims: int) -> float:
        """Return with which probability a claim may be judged wrongly, of so many claims."""
        return self.error if self.adjust == "none" else self.error / max(1, claims)
