"""Plan a study in rounds, until its claims are decided.

What is next follows from the store alone (`jestlab.analysis.claims.rounds`): the launcher remembers nothing.
So a launch that was killed goes on where it was, and two at once run the same rounds together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jestlab.analysis.claims.hours import Hours
from jestlab.analysis.claims.rounds import Round, next_round
from jestlab.analysis.claims.stopping import Until
from jestlab.platform.planning.plan import Plan
from jestlab.platform.planning.replicates import some
from jestlab.platform.spec.schema import Study
from jestlab.platform.words import counted

if TYPE_CHECKING:
    from jestlab.analysis.claims.verdicts import Judged
    from jestlab.platform.store.store import Store


def goes_on(study: Study) -> bool:
    """Whether the number of seeds of the study, or of a part of it, is not fixed."""
    return any(isinstance(each.seeds, Until) for each in (study, *study.studies.values()))


@dataclass(frozen=True)
class Standing:
    """Where a study stands between two rounds.

    Attributes:
        judged: Its claims.
        hours: What its runs have taken.
        next: What to run next.
    """

    judged: tuple[Judged, ...]
    hours: Hours
    next: Round

    def __str__(self) -> str:
        decided = sum(each.is_decided for each in self.judged)
        hopeless = sum(each.is_futile and not each.is_open for each in self.judged)
        parts = [f"{decided} of {counted(len(self.judged), 'claim')} decided"]
        if hopeless:
            parts.append(f"{hopeless} hopeless")
        if self.next.left_out:
            parts.append(f"{len(self.next.left_out)} beyond the budget")
        if not self.next.is_last:
            parts.append(f"{len(self.next.claims)} go on")
        return ", ".join(parts)


def standing(store_url: str, experiment: str) -> Standing:
    """Judge a study that has been recorded, and choose its next round.

    Args:
        store_url: SQLAlchemy URL of the store.
        experiment: Name of the study.
    """
    # Plans of other studies need none of it.
    from jestlab.analysis.claims import studies, verdicts
    from jestlab.analysis.connection import connect

    with connect(store_url) as connection:
        judged = verdicts.load(connection, experiment, studies(connection))
        hours = Hours.load(connection, experiment)
    return Standing(tuple(judged), hours, next_round(judged, hours))


def begun(plan: Plan, store: Store | None) -> Plan:
    """Choose the runs with which a study begins, and all that earlier rounds have begun.

    Args:
        plan: With all replicates.
        store: Where it was launched before; None if there is none.
    """
    ours = set() if store is None else {run for name in plan.by_study for run in store.members(name)}
    fixed = {each.name: _first(each) for each in (plan.study, *plan.study.studies.values())}

    def seeds(label: str) -> int:
        study, slash, _ = label.partition("/")
        return fixed[study] if slash and study in plan.study.studies else fixed[plan.study.name]

    return some(plan, seeds, ours)


def further(plan: Plan, before: Plan, ahead: Round) -> Plan:
    """Add a round to the runs that have been begun.

    Args:
        plan: With all replicates.
        before: What has been begun of it.
        ahead: The round.
    """
    wanted = {
        label if study == plan.study.name else f"{study}/{label}": count
        for (study, label), count in ahead.seeds.items()
    }
    return some(plan, lambda label: wanted.get(label, 0), before.fingerprints)


def _first(study: Study) -> int:
    return study.seeds.at_least if isinstance(study.seeds, Until) else len(study.seeds)
