"""Plan a study in rounds until its claims are decided, and compare it with its registration.

The next round depends only on the store (`jestlab.analysis.claims.rounds`). So a launch that was killed
resumes in the same round, and two concurrent launches share the work of the same rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jestlab.analysis.claims import Until
from jestlab.analysis.claims.registration import Registration, compare, content_of
from jestlab.platform.planning.plan import Plan
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.words import counted

if TYPE_CHECKING:
    from jestlab.analysis.claims.judged import Judged
    from jestlab.analysis.claims.rounds import Round
    from jestlab.platform.store.store import Store

_MOST_CHANGES = 3  # maximum number of changes in a message


def has_open_seeds(study: StudySpec) -> bool:
    """Return whether a study, or a part of it, adds seeds until its claims are decided."""
    return any(isinstance(each.seeds, Until) for each in (study, *study.studies.values()))


@dataclass(frozen=True)
class ClaimsStatus:
    """Status of a study's claims between two rounds.

    Attributes:
        judged: The claims with their verdicts.
        next: The next round.
    """

    judged: tuple[Judged, ...]
    next: Round

    def __str__(self) -> str:
        decided = sum(each.is_decided for each in self.judged)
        futile = sum(each.is_futile for each in self.judged)
        parts = [f"{decided} of {counted(len(self.judged), 'claim')} decided"]
        if futile:
            parts.append(f"{futile} out of reach")
        if self.next.left_out:
            parts.append(f"{len(self.next.left_out)} over budget")
        if self.next.claims:
            parts.append(f"{len(self.next.claims)} open")
        return ", ".join(parts)


def claims_status(store_url: str, experiment: str) -> ClaimsStatus:
    """Judge the claims of a recorded study and choose its next round."""
    # Only studies that are planned in rounds need these modules.
    from jestlab.analysis.claims import verdicts
    from jestlab.analysis.claims.rounds import Hours, next_round
    from jestlab.analysis.results import opened

    with opened(store_url) as store:
        judged = verdicts.load(store, experiment)
        hours = Hours.load(store, experiment)
    return ClaimsStatus(tuple(judged), next_round(judged, hours))


def first_round(plan: Plan, store: Store | None) -> Plan:
    """Reduce a plan with all seeds to the runs of the first round and the runs that were launched earlier."""
    launched = set() if store is None else {run for name in plan.by_study for run in store.members(name)}
    fixed = {each.name: _first_seeds(each) for each in (plan.study, *plan.study.studies.values())}

    def seeds(label: str) -> int:
        study, slash, _ = label.partition("/")
        return fixed[study] if slash and study in plan.study.studies else fixed[plan.study.name]

    return first_seeds(plan, seeds, launched)


def add_round(plan: Plan, before: Plan, ahead: Round) -> Plan:
    """Reduce a plan with all seeds to the runs of the plan `before` and those of the next round, `ahead`."""
    wanted = {
        label if study == plan.study.name else f"{study}/{label}": count
        for (study, label), count in ahead.seeds.items()
    }
    return first_seeds(plan, lambda label: wanted.get(label, 0), before.fingerprints)


def first_seeds(plan: Plan, seeds: Callable[[str], int], others: Collection[str] = ()) -> Plan:
    """Return the part of a plan with the first seeds of each label, and their dependencies.

    Args:
        plan: Plan with all seeds.
        seeds: Label → number of seeds; in a union, labels are "study/label".
        others: Fingerprints of further runs to include.
    """
    runs = {run.fingerprint: run for run in plan.runs}
    counts: dict[str, int] = {}
    open_ = set(others) & runs.keys()
    for run in plan.runs:  # in the order of seeds
        for label in {place.label for place in run.places}:
            counts[label] = counts.get(label, 0) + 1
            if counts[label] <= seeds(label):
                open_.add(run.fingerprint)
    chosen: set[str] = set()
    while open_:
        if (fingerprint := open_.pop()) not in chosen:
            chosen.add(fingerprint)
            open_.update(runs[fingerprint].needs.values())
    labels = [one.label for one in plan.waiting]  # one for each seed, in order
    waiting = (one for i, one in enumerate(plan.waiting) if labels[:i].count(one.label) < seeds(one.label))
    return replace(without(plan, runs.keys() - chosen), waiting=tuple(waiting))


def without(plan: Plan, fingerprints: Collection[str]) -> Plan:
    """Return a plan without some runs. They remain members of their studies when this plan is recorded."""
    left_out = set(plan.fingerprints).intersection(fingerprints)
    return replace(
        plan,
        runs=tuple(run for run in plan.runs if run.fingerprint not in left_out),
        parts=tuple(without(part, fingerprints) for part in plan.parts),
        later=plan.later | left_out,
    )


def _first_seeds(study: StudySpec) -> int:
    return study.seeds.at_least if isinstance(study.seeds, Until) else len(study.seeds)


# ---- registrations


def registered_content(plan: Plan) -> dict[str, Any]:
    """Return the content of a registration: claims, rules, and the first run of each label."""
    name = plan.study.name
    prefix = "" if plan.study.studies else f"{name}/"  # labels in a union name their study
    runs: dict[str, str] = {}
    for run in plan.runs:  # in the order of seeds
        for place in run.places:
            runs.setdefault(prefix + place.label, run.fingerprint)
    return content_of(name, plan.study.to_dict(), runs)


def deviations(store: Store, plan: Plan) -> list[str]:
    """Return how a launch would change a registered study; empty if nothing changes."""
    with store.reading() as connection:
        registered = Registration.load(connection, plan.study.name)
    if registered is None:
        return []
    lines = [str(change) for change in compare(registered.content, registered_content(plan))]
    if not lines:
        return []
    more = f" and {len(lines) - _MOST_CHANGES} more" if len(lines) > _MOST_CHANGES else ""
    changed = "; ".join(lines[:_MOST_CHANGES])
    return [f"{plan.study.name} was {registered}; changed since, and exploratory: {changed}{more}"]
