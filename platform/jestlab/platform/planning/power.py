"""How likely the seeds of a plan decide its claims, for `jestlab plan`."""

from __future__ import annotations

import math
from collections.abc import Iterator

from jestlab.analysis import units
from jestlab.analysis.claims import looks
from jestlab.analysis.claims.power import power
from jestlab.analysis.claims.rounds import ahead
from jestlab.analysis.claims.stopping import Until
from jestlab.platform.planning.survey import Survey
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.words import counted

_EFFECTS = (1, 2, 3)  # standard deviations between the sides of a claim


def lines(found: Survey) -> Iterator[str]:
    """Yield the power of a plan's seeds; nothing if the study has no claims."""
    study = found.plan.study
    whole = (study, *study.studies.values())
    parts = [part for part in whole if part.claims]
    for part in whole:
        if isinstance(part.seeds, Until) and not part.claims:
            yield f"{part.name} has no claims to decide, so it has {part.seeds.at_least} seeds."
    claims = sum(len(part.claims) for part in parts)
    if not claims:
        return
    error = study.family.share(claims)
    fixed = [part for part in parts if not isinstance(part.seeds, Until)]
    yield from _with_fixed_seeds(fixed, claims, error)
    rules = [part.seeds for part in parts if isinstance(part.seeds, Until)]
    if rules:
        yield from _until_decided(found, rules, claims, error)


def _with_fixed_seeds(parts: list[StudySpec], claims: int, error: float) -> Iterator[str]:
    """Yield the power of a fixed number of seeds; one seed has none."""
    parts = [part for part in parts if part.runs]  # imported runs have the seeds that they have
    single = sum(len(part.claims) for part in parts if len(part.replicates) < 2)
    if single:
        yield f"{counted(single, 'claim')} cannot be decided with one seed: add --set seeds=3."
    for seeds in sorted({len(part.replicates) for part in parts} - {1}):
        chances = [f"{_percent(power(effect, seeds, error))} at {effect}" for effect in _EFFECTS]
        family = f" in a family of {claims}" if claims > 1 and error < 0.05 else ""
        yield (
            f"{seeds} seeds decide a claim{family} with a probability of {', '.join(chances)} standard "
            "deviations between its sides; --decide adds seeds until all claims are decided."
        )


def _until_decided(found: Survey, rules: list[Until], claims: int, error: float) -> Iterator[str]:
    """Yield the expected number of seeds of a study that runs until its claims are decided."""
    least, most = min(rule.at_least for rule in rules), max(rule.at_most for rule in rules)
    status = found.standing
    if status is None:
        looked = {effect: looks.expected(effect, error, most) for effect in _EFFECTS}
        expected = [
            f"{each.expected:.0f} at {effect} (decided in {_percent(each.decided)})"
            for effect, each in looked.items()
        ]
        what = "1 claim is" if claims == 1 else f"{claims} claims are"
        yield (
            f"From {least} to {most} seeds, until {what} decided: on average {', '.join(expected)} standard "
            "deviations between the sides."
        )
        return
    yield f"So far {status}."
    left = ahead(status.judged, status.hours)
    if left.claims:
        hours = "" if math.isnan(left.hours) else f", {units.duration(left.hours)} in sequence"
        yield (
            f"At these effect sizes, {left.decided:.0f} of {counted(left.claims, 'open claim')} will be "
            f"decided by about {left.runs:.0f} more runs{hours}."
        )


def _percent(chance: float) -> str:
    return "under 1%" if chance < 0.01 else "over 99%" if chance > 0.99 else f"{chance:.0%}"
