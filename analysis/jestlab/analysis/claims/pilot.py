"""A pilot says beforehand in which order claims are tested, and which verdict each is tested for.

The seeds that a study has before it is registered are its pilot: claims that were chosen by looking at them
cannot be decided by them. But they show which claims are clear, and on which side. With that written down,
claims need not share the error among all of them:

- Each claim is tested for one verdict only, the one that the pilot leans to. So a claim that is decided has
  used its error rightly or was wrong already, and its error goes on to those that are left.
- They are tested in the order of the pilot, the clearest first, `AT_ONCE` at a time, each with error /
  `AT_ONCE`. A claim that is decided makes room for the next.

Why any verdict is wrong with at most the error: let J be the claims whose verdict is wrong. Before one of
them is decided wrongly for the first time, only claims outside J were, so the first `AT_ONCE` of J in the
order have at most error / `AT_ONCE` each at that moment, and no other claim of J has any: by Bonferroni the
chance of that moment is at most the error, whenever one looks and however the claims depend on each other.

With as many at once as there are claims this is Holm's procedure, with one at a time testing in a fixed
sequence (Maurer, Hothorn and Lehmacher, 1995). Both are sequentially rejective weighted Bonferroni tests
(Hommel, Bretz and Maurer, 2007, Stat. Med. 26; Bretz et al., 2009, Stat. Med. 28), whose condition is met: a
claim's share of the error never shrinks when others are decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .evidence import Verdict

AT_ONCE = 8
"""Claims that share the error at a time.

With fewer each has more of it, but as many that cannot be decided block all after them. Of 55 claims, 40 of
which differ by two standard deviations and 15 not at all, 8 at once decide 26.5 by 8 seeds and 39.6 by 21;
4 at once 16.6 and 36.4, 55 at once none and 39.8 (`python -m tests.simulation`, normal differences).
"""


class Expected(NamedTuple):
    """A claim and the verdict that it is tested for.

    Attributes:
        study: Whose claim it is.
        statement: Of the claim.
        verdict: "holds" or "does not hold".
    """

    study: str
    statement: str
    verdict: Verdict


@dataclass(frozen=True)
class Pilot:
    """What is registered of a pilot.

    Attributes:
        seeds: How many seeds it had: those from 0 on, which decide nothing.
        order: Its claims, in the order in which they are tested.
    """

    seeds: int
    order: tuple[Expected, ...]

    @classmethod
    def parse(cls, written: Mapping[str, Any] | None) -> Pilot | None:
        """Parse what `written` wrote; None if there was no pilot."""
        if not written:
            return None
        return cls(int(written["seeds"]), tuple(Expected(*each) for each in written["order"]))

    def written(self) -> dict[str, Any]:
        """Write it as plain data."""
        return {"seeds": self.seeds, "order": [list(each) for each in self.order]}

    def place(self, study: str, statement: str) -> int:
        """Return the place of a claim in the order; after all others for one that the pilot did not have."""
        named = [(each.study, each.statement) for each in self.order]
        return named.index((study, statement)) if (study, statement) in named else len(named)

    def verdict(self, study: str, statement: str) -> Verdict:
        """Return the verdict that a claim is tested for."""
        place = self.place(study, statement)
        return self.order[place].verdict if place < len(self.order) else "holds"


class Turn(NamedTuple):
    """How a claim is tested when its turn comes.

    Attributes:
        at_once: Among how many the error is shared then, it included.
        chance: Error of the family with which it is decided, at most 1.
        waits: Whether those that are before it are not decided, so that its turn has not come.
    """

    at_once: int
    chance: float
    waits: bool


def turns(chances: Sequence[float], error: float) -> list[Turn]:
    """Test claims in their order.

    Args:
        chances: Of each claim, with which its evidence would come up if its verdict were wrong.
        error: Of the family.

    Returns:
        One a claim, in the same order.
    """
    found: dict[int, Turn] = {}
    left = list(range(len(chances)))
    undecided: list[int] | None = None  # once no more can be decided
    chance = 0.0
    while left:
        now = left[:AT_ONCE]
        clearest = min(now, key=lambda claim: chances[claim])
        chance = min(1.0, max(chance, len(now) * chances[clearest]))
        if undecided is None and chance > error:
            undecided = list(left)
        at_once = min(AT_ONCE, len(undecided or left))
        waits = undecided is not None and clearest not in undecided[:AT_ONCE]
        found[clearest] = Turn(at_once, chance, waits)
        left.remove(clearest)
    return [found[claim] for claim in range(len(chances))]
