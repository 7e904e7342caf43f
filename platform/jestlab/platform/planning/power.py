"""What is to be expected of a study's claims before a launch: of so many seeds, or until they are decided."""

from __future__ import annotations

import math
from collections.abc import Iterator

from jestlab.analysis import units
from jestlab.analysis.claims import looks
from jestlab.analysis.claims.power import power
from jestlab.analysis.claims.rounds import ahead
from jestlab.analysis.claims.stopping import Until
from jestlab.platform.planning.survey import Survey
from jestlab.platform.spec.schema import Study
from jestlab.platform.words import counted

_EFFECTS = (1, 2, 3)


def lines(found: Survey) -> Iterator[str]:
    """Write what the seeds of a study will tell of its claims; nothing if it claims nothing."""
    study = found.plan.study
    whole = (study, *study.studies.values())
    parts = [part for part in whole if part.claims]
    for part in whole:
        if isinstance(part.seeds, Until) and not part.claims:
            yield f"{part.name} claims nothing that seeds could decide: it has {part.seeds.at_least} seeds."
    claims = sum(len(part.claims) for part in parts)
    if not claims:
        return
    error = study.family.share(claims)
    fixed = [part for part in parts if not isinstance(part.seeds, Until)]
    if fixed:
        yield from _of_fixed(fixed, claims, error)
    if len(fixed) < len(parts):
        rules = [part.seeds for part in parts if isinstance(part.seeds, Until)]
        yield from _until_decided(found, rules, claims, error)


def _of_fixed(parts: list[Study], claims: int, error: float) -> Iterator[str]:
    """Write how likely a fixed number of seeds decides a claim; one seed decides none."""
    parts = [part for part in parts if part.runs]  # of adopted runs the seeds are what they are
    single = sum(len(part.claims) for part in parts if len(part.replicates) < 2)
    if single:
        yield (
            f"{counted(single, 'claim')} cannot be decided with one seed: "
            "--set seeds=3 gives intervals and verdicts."
        )
    for seeds in sorted({len(part.replicates) for part in parts} - {1}):
        chances = [f"{_percent(power(effect, seeds, error))} at {effect}" for effect in _EFFECTS]
        family = f" in a family of {claims}" if claims > 1 and error < 0.05 else ""
        yield (
            f"{seeds} seeds decide a claim{family} with a chance of {', '.join(chances)} standard deviations "
            "between the sides; --decide adds seeds until claims are decided."
        )


def _until_decided(found: Survey, rules: list[Until], claims: int, error: float) -> Iterator[str]:
    """Write how many seeds a study takes that goes on until its claims are decided."""
    least, most = min(each.at_least for each in rules), max(each.at_most for each in rules)
    standing = found.standing
    if standing is None:
        told = []
        for effect in _EFFECTS:
            its = looks.expected(effect, error, most)
            told.append(f"{its.expected:.0f} at {effect} (decided in {_percent(its.decided)})")
        what = "1 claim is" if claims == 1 else f"{claims} claims are"
        yield (
            f"From {least} to {most} seeds, until {what} decided: on average {', '.join(told)} standard "
            "deviations between the sides."
        )
        return
    yield f"So far {standing}."
    left = ahead(standing.judged, standing.hours)
    if left.claims:
        hours = "" if math.isnan(left.hours) else f", {units.duration(left.hours)} of runs one at a time"
        yield (
            f"By the seeds so far, {left.decided:.0f} of {counted(left.claims, 'open claim')} will be "
            f"decided by about {left.runs:.0f} more runs{hours}."
        )


def _percent(chance: float) -> str:
    return "under 1%" if chance < 0.01 else "over 99%" if chance > 0.99 else f"{chance:.0%}"
