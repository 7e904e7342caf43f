"""What is registered of a study that is planned, and what has changed since."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jestlab.analysis.claims.pilot import Expected, Pilot
from jestlab.analysis.claims.registration import Registration, compare, content_of
from jestlab.analysis.claims.stopping import Until
from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import Plan, PlannedRun
from jestlab.platform.store.records import WAITING

if TYPE_CHECKING:
    from jestlab.platform.store.store import Store

_MOST = 3  # changes that are named


def content(plan: Plan, pilot: Pilot | None = None) -> dict[str, Any]:
    """Collect what is registered of a planned study: claims, rules, first run of each label, its pilot."""
    runs: dict[tuple[str, str], str] = {}
    for run, place in _places(plan):  # replicate by replicate
        runs.setdefault(place, run.fingerprint)
    return content_of(plan.study.name, plan.study.to_dict(), runs, pilot)


def pilot(store: Store, plan: Plan) -> Pilot:
    """Say how the claims of a study are tested, by the seeds that it has so far.

    The clearest are first: those of which Student's t, by one look, says with the least chance of an error
    that they hold, or that they do not.

    Raises:
        UserError: It was not launched yet, or has no seeds left to decide.
    """
    # Who registers without a pilot needs none of it.
    from jestlab.analysis.claims import studies, verdicts

    name = plan.study.name
    states = store.states(plan.fingerprints)
    begun = {fingerprint for fingerprint, state in states.items() if state not in WAITING}
    seeds = max((run.seed + 1 for run in _of_claims(plan) if run.fingerprint in begun), default=0)
    with store.reading() as connection:
        known = studies(connection)
        judged = verdicts.load(connection, name, known) if name in known else []
    if not seeds or not judged:
        raise UserError(f"{name} has no runs that could be a pilot: launch it first")
    for part in (plan.study, *plan.study.studies.values()):
        most = part.seeds.at_most if isinstance(part.seeds, Until) else 0
        if part.claims and most <= seeds:
            raise UserError(
                f"{part.name} has no seeds left to decide after a pilot of {seeds}: register it with --decide"
                + (f" and an `at_most` above {most}" if most else "")
            )
    order = [
        Expected(
            each.experiment,
            each.claim.statement,
            "holds" if each.seeds == 0 or each.leans_towards else "does not hold",
        )
        for each in sorted(judged, key=lambda each: each.evidence.chance)
    ]
    return Pilot(seeds, tuple(order))


def deciding(plan: Plan, pilot: Pilot | None) -> set[str]:
    """Return the fingerprints of the runs none of which may have begun."""
    if pilot is None:
        return set(plan.fingerprints)
    return {run.fingerprint for run in _of_claims(plan) if run.seed >= pilot.seeds}


def _of_claims(plan: Plan) -> Iterator[PlannedRun]:
    """List the runs of studies that claim something, as often as they appear there."""
    claiming = {each.name for each in (plan.study, *plan.study.studies.values()) if each.claims}
    return (run for run, (study, _) in _places(plan) if study in claiming)


def _places(plan: Plan) -> Iterator[tuple[PlannedRun, tuple[str, str]]]:
    """List each run with the study and the label at which it appears."""
    name, is_union = plan.study.name, bool(plan.study.studies)
    for run in plan.runs:
        for label in (run.label, *(alias.label for alias in run.aliases)):
            study, _, short = label.partition("/")
            yield run, (study, short) if is_union else (name, label)


def remarks(store: Store, plan: Plan) -> list[str]:
    """Say what a launch would change of what was registered; nothing if nothing was, or nothing would."""
    with store.reading() as connection:
        registered = Registration.load(connection, plan.study.name)
    if registered is None:
        return []
    lines = list(compare(registered.content, content(plan)).lines())
    if not lines:
        return []
    more = f" and {len(lines) - _MOST} more" if len(lines) > _MOST else ""
    told = "; ".join(lines[:_MOST])
    return [f"{plan.study.name} was {registered}; changed since, and exploratory: {told}{more}"]
