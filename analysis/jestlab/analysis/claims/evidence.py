"""Decide a claim by the paired differences of its seeds.

A test of the seeds so far is called a look. A study with a fixed number of seeds takes one look, after all
seeds: Student's t-test of the mean. It assumes normal differences, and adding seeds after the look would
inflate the error. A study that adds seeds until its claims are decided takes a look after every seed, by the
sign test of the median in `sign_test`, which has neither limit.

In both cases, the error of a claim bounds the probability that "holds" is wrong, and also the probability
that "does not hold" is wrong. Each of the two verdicts has a one-sided test at that level.

A difference is infinite if a run of one side diverged. Then a study with one look uses the sign test too. A
difference is NaN if its value is unknown, for example because a run failed. NaN counts against both verdicts.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from ..intervals import half_widths, moments, tail
from . import sign_test
from .claim import MOST_SEEDS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Test = Callable[[Floats, float, bool], Floats]
    """(differences, threshold, whether a difference equal to it counts as above) → p-value of each look."""

Verdict = Literal["holds", "does not hold", "undecided", "not run"]

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

Relation = Literal["above", "below", "near"]
"""The range that a claim states for its difference: above −within, below within, or between both."""

_GRID = 15  # number of quantiles of each posterior


@dataclass(frozen=True)
class Evidence:
    """The result of testing a claim.

    Attributes:
        verdict: The decision at the given error.
        seeds: Number of seeds up to the decision; all seeds if there is no decision.
        chance: The p-value of the more likely verdict; at most the error if the claim is decided.
        agree: Number of seeds whose difference agrees with the claim.
        low: Lower bound of the mean (t-test) or of the median (sign test) at the given error; infinite or NaN
            with too few seeds. `high` is the upper bound.
        forecast: The expected course of a test after every seed, if it is undecided; else `NO_FORECAST`.
        needed: Number of seeds that would have a 50% chance to decide a claim that one look left undecided;
            more than `MOST_SEEDS` if that many are too few; None for other claims, or if unknown.
    """

    verdict: Verdict
    seeds: int
    chance: float
    agree: int
    low: float = math.nan
    high: float = math.nan
    forecast: sign_test.Forecast = sign_test.NO_FORECAST
    needed: int | None = None


def evidence_of(
    differences: Sequence[float], relation: Relation, within: float, error: float, at_most: int | None = None
) -> Evidence:
    """Test a claim either once, after all seeds, or after every seed. The first decision is final.

    Args:
        differences: One for each seed, in the order of the seeds.
        within: The tolerance of the claim.
        error: Maximum probability that a verdict is wrong at any look.
        at_most: Maximum number of seeds if the claim is tested after every seed; None for one look.
    """
    import numpy as np

    values = np.array(differences[:at_most], float)
    n = len(values)
    if at_most is None:
        mean, std = moments(differences) if n else (math.nan, math.nan)
        if n < 2 or math.isfinite(std):
            half = float(half_widths([std], [n], 1 - 2 * error)[0])
            evidence = _evidence(_student, values, relation, within, error)
            evidence = replace(evidence, low=mean - half, high=mean + half)
            if n < 2 or evidence.verdict != "undecided":
                return evidence
            shift = mean if relation == "above" else -mean if relation == "below" else -abs(mean)
            is_far = relation == "near" and shift < -within
            seeds = needed(abs(shift + within), std, n, error / 2 if is_far else error)
            return replace(evidence, needed=seeds)
        p_values = sign_test.one_look(n)
        p_values[:n] = 1.0  # no earlier look
    else:
        p_values = sign_test.all_looks(at_most)

    def by_signs(values: Floats, threshold: float, inclusive: bool) -> Floats:
        against = np.cumsum(~(values >= threshold if inclusive else values > threshold))
        return np.minimum.accumulate(p_values[np.arange(1, n + 1), against])

    evidence = _evidence(by_signs, values, relation, within, error)
    against = sign_test.most_against(p_values, error)
    low, high = sign_test.median_interval(values[: evidence.seeds].tolist(), against)
    evidence = replace(evidence, low=low, high=high)
    if at_most is None or evidence.verdict != "undecided":
        return evidence
    if relation != "near":
        return replace(evidence, forecast=sign_test.forecast(error, at_most, n, n - evidence.agree))
    # Forecast the more likely verdict. A difference that isn't near may be on either side.
    beyond = max(int((values > within).sum()), int((values < -within).sum()))
    near = sign_test.forecast(error, at_most, n, beyond + int(np.isnan(values).sum()))
    far = sign_test.forecast(error / 2, at_most, n, n - beyond)
    likely = max(near, far, key=lambda each: each.decided)
    return replace(evidence, forecast=likely._replace(earliest=min(near.earliest, far.earliest)))


def _student(values: Floats, threshold: float, inclusive: bool) -> Floats:
    """Test by Student's t if the mean is above a threshold: the p-value after all seeds, 1 at other looks."""
    import numpy as np

    p_values = np.ones(len(values))
    if len(values) > 1:
        mean, std = moments(values.tolist())
        is_equal = inclusive and std == 0 and mean == threshold
        p_values[-1] = 0.0 if is_equal else tail(mean - threshold, std, len(values))
    return p_values


def _evidence(test: Test, values: Floats, relation: Relation, within: float, error: float) -> Evidence:
    """Decide a claim at the first look whose p-value is at most the error. The bounds are not set.

    A difference that isn't near may be on either side, so the p-value of "not near" is doubled.
    """
    import numpy as np

    if relation == "near":
        holds = np.maximum(test(values, -within, True), test(-values, -within, True))
        fails = 2 * np.minimum(test(values, within, False), test(-values, within, False))
    else:
        above = -values if relation == "below" else values
        holds, fails = test(above, -within, False), test(-above, within, False)
    p_values = np.minimum(holds, fails)
    decided = np.flatnonzero(p_values <= error)
    n = int(decided[0]) + 1 if len(decided) else len(values)
    verdict: Verdict = "undecided"
    if len(decided):
        verdict = "holds" if holds[n - 1] <= error else "does not hold"
    chance = float(p_values[n - 1]) if n else 1.0
    return Evidence(verdict, n, chance, agreeing(values[:n], relation, within))


def agreeing(differences: Sequence[float] | Floats, relation: Relation, within: float) -> int:
    """Count the differences that agree with a claim."""
    import numpy as np

    values = np.asarray(differences, float)
    if relation == "near":
        return int((abs(values) <= within).sum())
    return int((values > -within if relation == "above" else values < within).sum())


# ---- the power of one look


def power(effect: npt.ArrayLike, n: int, error: float = 0.05) -> npt.NDArray[np.float64]:
    """Return the probability that a t-test of n seeds finds that the mean of paired differences is positive.

    Args:
        effect: Mean of the differences divided by their standard deviation.
        n: Number of seeds, at least 2.
        error: Level of the one-sided test.
    """
    import numpy as np
    from scipy.special import nctdtr, stdtrit

    shift = np.multiply(effect, math.sqrt(n))
    probability = 1.0 - nctdtr(n - 1, shift, stdtrit(n - 1, 1 - error))
    return np.where(np.isnan(probability), shift > 0, probability)  # SciPy returns NaN in some far tails


def needed(margin: float, std: float, n: int, error: float) -> int:
    """Predict the number of seeds that have a 50% chance to decide a claim that n seeds did not decide.

    The true mean and deviation differ from those of n seeds. Both are drawn from their posterior with
    Jeffreys' prior (σ² = (n − 1)·s²/χ², μ = margin + z·σ/√n). The probability of a decision by one look at N
    new seeds is averaged over these draws.

    Args:
        margin: Distance of the mean from the threshold of the claim, at least 0.
        std: Standard deviation of the differences (divisor n − 1).
        n: Number of seeds so far, at least 2.
        error: Level of each one-sided test.

    Returns:
        The total number of seeds; more than `MOST_SEEDS` if that many are too few.
    """
    import numpy as np
    from scipy.special import chdtri, ndtri

    if std == 0:
        return MOST_SEEDS + 1
    quantiles = (np.arange(_GRID) + 0.5) / _GRID
    sigma = std * np.sqrt((n - 1) / chdtri(n - 1, quantiles))[:, None]
    effect = (margin + ndtri(quantiles) * sigma / math.sqrt(n)) / sigma

    def chance(size: int) -> float:
        return float((power(effect, size, error) + power(-effect, size, error)).mean())

    return n + 1 + bisect_left(range(n + 1, MOST_SEEDS + 1), 0.5, key=chance)
