"""Decide a claim by the paired differences of its seeds.

A test of the seeds so far is called a look. A study with a fixed number of seeds takes one look, after all
seeds: Student's t-test of the mean. It assumes normal differences, and adding seeds after the look would
inflate the error. A study that adds seeds until its claims are decided takes a look after every seed, by the
sign test of the median in `sign_test`, which has neither limit, or by the test in `signed_rank`.

In all cases, the level of a claim bounds the probability that "holds" is wrong, and also the probability that
"does not hold" is wrong. Each of the two verdicts has a one-sided test at that level.

A difference is infinite if a run of one side diverged. Then a study with one look uses the sign test too. A
difference is NaN if its value is unknown, for example because a run failed. NaN counts against both verdicts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from ..intervals import moments, tail
from .count_test import CountTest, Floats
from .family import USUAL_SEEDS, TestName
from .forecast import NO_FORECAST, Forecast, ended, futures
from .sign_test import SIGN
from .signed_rank import SIGNED_RANK

Verdict = Literal["holds", "does not hold", "undecided", "not run"]

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

Relation = Literal["above", "below", "near"]
"""The range that a claim states for its difference: above −within, below within, or between both."""

TESTS: dict[TestName, CountTest] = {"sign": SIGN, "signed_rank": SIGNED_RANK}
"""Tests by their names in a spec."""


@dataclass(frozen=True)
class Evidence:
    """The result of testing a claim.

    Attributes:
        verdict: The decision at the given level.
        seeds: Number of seeds up to the decision; all seeds of an undecided claim.
        chance: The p-value of the more likely verdict; at most the level if the claim is decided.
        agree: Number of seeds whose difference agrees with the claim.
        forecast: The expected course of a test after every seed, if it is undecided; else `NO_FORECAST`.
    """

    verdict: Verdict
    seeds: int
    chance: float
    agree: int
    forecast: Forecast = NO_FORECAST


@dataclass(frozen=True)
class Sample:
    """The differences of a claim, with the test that decides it at any level.

    Attributes:
        differences: One for each seed, in the order of the seeds.
        within: The tolerance of the claim.
        limit: The highest level that the claim may have. The verdict whose p-value reaches it first is the
            only one that can be decided, so that no later seed and no other level reverses a verdict.
        at_most: Maximum number of seeds if the claim is tested after every seed, at most those of the test;
            None for one look.
        test: The test of one look or of every look; by default, Student's t and the sign test.
    """

    differences: Sequence[float]
    relation: Relation
    within: float = 0.0
    limit: float = 0.05
    at_most: int | None = None
    test: TestName | None = None

    @cached_property
    def values(self) -> Floats:
        """The differences of all seeds that count."""
        return np.array(self.differences[: self.at_most], float)

    @property
    def is_open(self) -> bool:
        """Whether further seeds are tested."""
        return self.at_most is not None and len(self.values) < self.at_most

    @property
    def p_value(self) -> float:
        """The p-value of the more likely verdict, at any look so far."""
        return float(self._p_values.min(initial=1.0))

    def evidence(self, level: float, outlook: float | None = None) -> Evidence:
        """Decide the claim at the first look whose p-value is at most a level.

        Args:
            level: Maximum probability that the verdict is wrong at any look, at most `limit`.
            outlook: The level that forecasts assume; `level` by default.
        """
        holds, fails = self._p_values
        p_values = np.minimum(holds, fails)
        decided = np.flatnonzero(p_values <= level)
        n = int(decided[0]) + 1 if len(decided) else len(p_values)
        verdict: Verdict = "undecided"
        if len(decided):
            verdict = "holds" if holds[n - 1] <= level else "does not hold"
        agree = agreeing(self.values[:n], self.relation, self.within)
        evidence = Evidence(verdict, n, float(p_values[n - 1]) if n else 1.0, agree)
        if verdict != "undecided":
            return evidence
        test = self if self.at_most else replace(self, at_most=min(USUAL_SEEDS, self._count_test.last))
        return replace(evidence, forecast=test.forecast(level if outlook is None else outlook))

    def forecast(self, level: float) -> Forecast:
        """Predict when the claim is decided at a level."""
        n = len(self.values)
        return ended(self._future, level, n) if n <= (self.at_most or 0) else NO_FORECAST

    @property
    def _count_test(self) -> CountTest:
        return TESTS[self.test or "sign"]

    @cached_property
    def _is_student(self) -> bool:
        """Whether the test is Student's t: one look at differences that are all finite."""
        n, is_default = len(self.values), self.at_most is None and self.test is None
        return is_default and (n < 2 or math.isfinite(moments(self.differences)[1]))

    @cached_property
    def _p_values(self) -> Floats:
        return self.test_all(self.values)

    @cached_property
    def _future(self) -> Floats:
        """The p-values of possible futures, [future, look]; see `forecast.futures`."""
        p_values: Floats = self.test_all(futures(self.values, self.at_most or 0)).min(axis=0)
        return p_values

    def test_all(self, values: Floats) -> Floats:
        """Test differences, [..., seeds].

        Returns:
            [2, ..., seeds]: the p-values of "holds" and "does not hold" at any look so far. A difference that
            isn't near may be on either side, so that p-value is doubled.
        """
        near = self.within
        if self.relation == "near":
            holds = np.maximum(self._above(values, -near, True), self._above(-values, -near, True))
            fails = 2 * np.minimum(self._above(values, near), self._above(-values, near))
        else:
            above = -values if self.relation == "below" else values
            holds, fails = self._above(above, -near), self._above(-above, near)
        waiting, other = (np.count_nonzero(p > self.limit, -1, keepdims=True) for p in (holds, fails))
        return np.stack([np.where(other < waiting, 1.0, holds), np.where(waiting < other, 1.0, fails)])

    def _above(self, values: Floats, threshold: float, is_inclusive: bool = False) -> Floats:
        """Test whether the mean or median is above a threshold, or equal to it if that is inclusive."""
        if self._is_student:
            return _student(values, threshold, is_inclusive)
        return self._count_test.p_values(values, threshold, is_inclusive, self.at_most is None)


def planned(effect: float, level: float, at_most: int, test: TestName | None) -> Forecast:
    """Predict when a test after every seed decides a claim.

    Args:
        effect: Mean of normal differences divided by their standard deviation.
        level: Level of the claim.
    """
    sample = Sample((), "above", limit=level, at_most=at_most, test=test)
    return ended(sample.test_all(futures(sample.values, at_most, effect)).min(axis=0), level, 0)


def power(effect: npt.ArrayLike, n: int, error: float = 0.05) -> npt.NDArray[np.float64]:
    """Return the probability that a t-test of n seeds finds that the mean of paired differences is positive.

    Args:
        effect: Mean of the differences divided by their standard deviation.
        n: Number of seeds, at least 2.
        error: Level of the one-sided test.
    """
    from scipy.special import nctdtr, stdtrit

    shift = np.multiply(effect, math.sqrt(n))
    probability = 1.0 - nctdtr(n - 1, shift, stdtrit(n - 1, 1 - error))
    return np.where(np.isnan(probability), shift > 0, probability)  # SciPy returns NaN in some far tails


def _student(values: Floats, threshold: float, is_inclusive: bool) -> Floats:
    """Test by Student's t if the mean is above a threshold: the p-value after all seeds, 1 at other looks."""
    p_values = np.ones(len(values))
    if len(values) > 1:
        mean, std = moments(values.tolist())
        is_equal = is_inclusive and std == 0 and mean == threshold
        p_values[-1] = 0.0 if is_equal else tail(mean - threshold, std, len(values))
    return p_values


def agreeing(differences: Sequence[float] | Floats, relation: Relation, within: float) -> int:
    """Count the differences that agree with a claim."""
    values = np.asarray(differences, float)
    if relation == "near":
        return int((abs(values) <= within).sum())
    return int((values > -within if relation == "above" else values < within).sum())
