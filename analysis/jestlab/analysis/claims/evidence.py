"""Decide a claim by the paired differences of its seeds.

A study with a fixed number of seeds takes one look: Student's t-test of the mean. It assumes normal
differences, and adding seeds after the look would inflate the error. A study that adds seeds until its claims
are decided takes a look after every seed: the sign test of the median in `sign_test`, which assumes neither.

The error of a claim is the same in both: the maximum probability that "holds" is wrong, and the maximum
probability that "does not hold" is wrong. Each of these verdicts has a one-sided test at that level.

A difference is infinite if a run of one side diverged. Then one look also uses the sign test. A difference is
NaN if its value is unknown, for example because a run failed. It counts against both verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..intervals import half_widths, moments, tail
from . import sign_test
from .power import needed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Test = Callable[[Floats, float, bool], Any]  # differences, threshold, whether it counts → p-values

Verdict = Literal["holds", "does not hold", "undecided", "not run"]

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

Relation = Literal["above", "below", "near"]
"""The stated range of a difference: above −within, below within, or between these."""


@dataclass(frozen=True)
class Evidence:
    """The result of testing a claim.

    Attributes:
        verdict: The decision at the given error.
        seeds: Number of seeds used: the first ones, up to the decision.
        low: Lower bound of the mean (t-test) or of the median (sign test) at the given error. It is infinite
            or NaN without enough seeds.
        high: Upper bound.
        chance: The p-value of the more likely verdict; at most the error if the claim is decided.
        agree: Number of seeds whose difference agrees with the claim.
        forecast: The expected course of an undecided sequence.
        needed: Number of seeds that would have a 50% chance to decide what one look left undecided; more than
            `MOST_SEEDS` if so many are not enough; None if a difference isn't finite.
    """

    verdict: Verdict
    seeds: int
    low: float
    high: float
    chance: float
    agree: int
    forecast: sign_test.Forecast | None = None
    needed: int | None = None


def one_look(differences: Sequence[float], relation: Relation, within: float, error: float) -> Evidence:
    """Test a claim once: by Student's t, or by the sign test if a difference isn't finite.

    Args:
        differences: One for each seed.
        relation: The stated range.
        within: The tolerance of the claim.
        error: Maximum probability that a verdict is wrong.
    """
    import numpy as np

    n, values = len(differences), np.array(differences, float)
    agree = _agreeing(values, relation, within)
    if n < 2:
        return Evidence("undecided", n, math.nan, math.nan, 1.0, agree)
    mean, std = moments(differences)
    if not math.isfinite(std):
        p_values = sign_test.one_look(n)
        p_values[:n] = 1.0  # no earlier look
        return _by_signs(values, relation, within, error, p_values)
    half = float(half_widths([std], [n], 1 - 2 * error)[0])
    verdict, chance = _decide(*_chances(_student, values, relation, within), error)
    found = Evidence(verdict, n, mean - half, mean + half, chance, agree)
    if verdict != "undecided":
        return found
    shift = mean if relation == "above" else -mean if relation == "below" else -abs(mean)
    is_far = relation == "near" and shift < -within
    return replace(found, needed=needed(abs(shift + within), std, n, error / 2 if is_far else error))


def any_look(
    differences: Sequence[float], relation: Relation, within: float, error: float, at_most: int
) -> Evidence:
    """Test a claim after every seed; the first decision is final.

    Args:
        differences: One for each seed, in the order of the seeds.
        relation: The stated range.
        within: The tolerance of the claim.
        error: Maximum probability that a verdict is wrong at any look.
        at_most: Number of seeds at which the study ends.
    """
    import numpy as np

    values = np.array(differences[:at_most], float)
    found = _by_signs(values, relation, within, error, sign_test.all_looks(at_most))
    if found.verdict != "undecided":
        return found
    return replace(found, forecast=_forecast(values, relation, within, error, at_most))


def _by_signs(values: Floats, relation: Relation, within: float, error: float, p_values: Floats) -> Evidence:
    """Test the median of differences by the p-values of each look, from `sign_test`."""
    import numpy as np

    def test(values: Floats, threshold: float, inclusive: bool) -> Floats:
        against = np.cumsum(~(values >= threshold if inclusive else values > threshold))
        return np.minimum.accumulate(p_values[np.arange(1, len(values) + 1), against])

    holds, fails = _chances(test, values, relation, within)
    decided = np.flatnonzero(np.minimum(holds, fails) <= error)
    values = values[: int(decided[0]) + 1] if len(decided) else values
    n = len(values)
    verdict, chance = _decide(holds[n - 1], fails[n - 1], error) if n else ("undecided", 1.0)
    bounds = sign_test.median_interval(values.tolist(), sign_test.most_against(p_values, error))
    return Evidence(verdict, n, *bounds, chance, _agreeing(values, relation, within))


def _chances(test: Test, values: Floats, relation: Relation, within: float) -> tuple[Any, Any]:
    """Return the p-values of "holds" and of "does not hold".

    A difference that isn't near may be on either side, so the p-value of "not near" is doubled.
    """
    import numpy as np

    if relation == "near":
        holds = np.maximum(test(values, -within, True), test(-values, -within, True))
        return holds, 2 * np.minimum(test(values, within, False), test(-values, within, False))
    sign = 1 if relation == "above" else -1
    return test(sign * values, -within, False), test(-sign * values, within, False)


def _decide(holds: float, fails: float, error: float) -> tuple[Verdict, float]:
    """Return the verdict and the smaller p-value."""
    verdict: Verdict = "holds" if holds <= error else "does not hold" if fails <= error else "undecided"
    return verdict, min(float(holds), float(fails))


def _student(values: Floats, threshold: float, inclusive: bool) -> float:
    """Return the p-value of a mean above a threshold, by Student's t."""
    mean, std = moments(values.tolist())
    if inclusive and std == 0 and mean == threshold:
        return 0.0
    return tail(mean - threshold, std, len(values))


def _agreeing(values: Floats, relation: Relation, within: float) -> int:
    """Count the differences that agree with the claim."""
    if relation == "near":
        return int((abs(values) <= within).sum())
    return int((values > -within if relation == "above" else values < within).sum())


def _forecast(
    values: Floats, relation: Relation, within: float, error: float, at_most: int
) -> sign_test.Forecast:
    """Predict how the test of an undecided claim continues; of "near", by the more likely verdict."""
    n = len(values)
    if relation != "near":
        return sign_test.forecast(n, n - _agreeing(values, relation, within), error, at_most)
    beyond = max(int((values > within).sum()), int((values < -within).sum()))
    lost = int((values != values).sum())
    near = sign_test.forecast(n, beyond + lost, error, at_most)
    far = sign_test.forecast(n, n - beyond, error / 2, at_most)
    likely = max(near, far, key=lambda each: each.decided)
    return likely._replace(earliest=min(near.earliest, far.earliest))
