"""Content of a study's registration, and how a launch would change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jestlab.analysis.claims.registration import Registration, compare, content_of
from jestlab.platform.planning.plan import Plan

if TYPE_CHECKING:
    from jestlab.platform.store.store import Store

_MOST = 3  # named changes


def content(plan: Plan) -> dict[str, Any]:
    """Return the content of a registration: claims, rules, and the first run of each label."""
    name, is_union = plan.study.name, bool(plan.study.studies)
    runs: dict[tuple[str, str], str] = {}
    for run in plan.runs:  # seed by seed
        for label in (run.label, *(alias.label for alias in run.aliases)):
            study, _, short = label.partition("/")
            runs.setdefault((study, short) if is_union else (name, label), run.fingerprint)
    return content_of(name, plan.study.to_dict(), runs)


def remarks(store: Store, plan: Plan) -> list[str]:
    """Return how a launch would change a registered study; empty if nothing changes."""
    with store.reading() as connection:
        registered = Registration.load(connection, plan.study.name)
    if registered is None:
        return []
    lines = list(compare(registered.content, content(plan)).lines())
    if not lines:
        return []
    more = f" and {len(lines) - _MOST} more" if len(lines) > _MOST else ""
    changed = "; ".join(lines[:_MOST])
    return [f"{plan.study.name} was {registered}; changed since, and exploratory: {changed}{more}"]
