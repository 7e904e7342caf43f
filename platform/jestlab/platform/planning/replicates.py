"""Part of a plan: the first seeds of each label, with the runs that those need."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from jestlab.platform.planning.plan import Plan


def some(plan: Plan, seeds: Callable[[str], int], besides: Collection[str] = ()) -> Plan:
    """Choose the first seeds of each label, and what they need.

    Args:
        plan: With all replicates.
        seeds: Label → how many of its seeds; in a union labels are "study/label".
        besides: Fingerprints of runs that are chosen anyway.
    """
    runs = {run.fingerprint: run for run in plan.runs}
    counts: dict[str, int] = {}
    chosen: set[str] = set()
    for run in plan.runs:  # replicate by replicate
        for label in {run.label, *(alias.label for alias in run.aliases)}:
            counts[label] = counts.get(label, 0) + 1
            if counts[label] <= seeds(label):
                chosen.add(run.fingerprint)
    ahead = [*chosen, *(set(besides) & runs.keys())]
    chosen.clear()
    while ahead:
        if (fingerprint := ahead.pop()) not in chosen:
            chosen.add(fingerprint)
            ahead += runs[fingerprint].needs.values()
    return _kept(plan, chosen, seeds)


def without(plan: Plan, fingerprints: Collection[str]) -> Plan:
    """Leave some runs of a plan as the store has them; they stay members of their studies."""
    left = frozenset(fingerprints)
    return replace(
        plan,
        runs=tuple(run for run in plan.runs if run.fingerprint not in left),
        parts=tuple(without(part, left) for part in plan.parts),
        later=plan.later | left.intersection(plan.fingerprints),
    )


def _of_part(study: str, seeds: Callable[[str], int], label: str) -> int:
    return seeds(f"{study}/{label}")


def _kept(plan: Plan, chosen: Collection[str], seeds: Callable[[str], int]) -> Plan:
    labels = [its.label for its in plan.waiting]  # one for each seed, in their order
    waiting = (its for i, its in enumerate(plan.waiting) if labels[:i].count(its.label) < seeds(its.label))
    return replace(
        plan,
        runs=tuple(run for run in plan.runs if run.fingerprint in chosen),
        parts=tuple(_kept(part, chosen, partial(_of_part, part.study.name, seeds)) for part in plan.parts),
        waiting=tuple(waiting),
        later=frozenset(plan.fingerprints) - frozenset(chosen),
    )
