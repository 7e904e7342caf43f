"""Simulated studies: how often verdicts are wrong, and how many seeds they take.

Each study has a family of claims, each with differences of its own of up to 24 seeds, which are looked at
after every seed. A verdict "holds" is wrong where the median is 0: where in half of all seeds the difference
is above it. Beside it stands what is done by hand: the 95% interval of Student's t, looked at after every
seed, or once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jestlab.analysis.claims.count_test import CountTest
from jestlab.analysis.claims.sign_test import SIGN
from jestlab.analysis.colors import PALETTE, REFERENCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]

FIRST, LAST = 3, 24
"""Seeds at which studies begin and end."""


DRAWS: dict[str, Draw] = {
    "normal": lambda generator, shape: generator.normal(size=shape),
    "heavy-tailed (t of 2)": lambda generator, shape: generator.standard_t(2, size=shape),
    "skewed (exponential)": lambda generator, shape: generator.exponential(size=shape) - math.log(2),
    "skewed to below": lambda generator, shape: math.log(2) - generator.exponential(size=shape),
}
"""Distributions of differences, of median 0."""


@dataclass(frozen=True)
class Outcome:
    """What came of simulated studies.

    Attributes:
        wrong: Share of studies in which some claim was said to hold.
        decided: Share of claims that were decided, on either side.
        right: Share of claims that were said to hold.
        seeds: Mean number of seeds of a claim.
    """

    wrong: float
    decided: float
    right: float
    seeds: float


def until_decided(values: Floats, error: float, test: CountTest = SIGN) -> Outcome:
    """Judge studies by a test after every seed.

    Args:
        values: Differences, [studies, claims, seeds].
        error: Of each family.
    """
    holds, fails = (test.p_values(sign * values, 0.0, False, False) for sign in (1, -1))
    return outcome_of(holds <= error / values.shape[1], fails <= error / values.shape[1])


def once(values: Floats, error: float) -> Outcome:
    """Judge studies by one look at all seeds, as a study with a fixed number of seeds is."""
    from scipy.stats import binom
    from scipy.stats import t as student

    n, level = values.shape[2], error / values.shape[1]
    allowed = binom.ppf(level, n, 0.5) - (binom.cdf(binom.ppf(level, n, 0.5), n, 0.5) > level)
    finite = np.all(np.isfinite(values), axis=2)
    known = np.where(np.asarray(finite)[:, :, None], values, 0.0)
    half = student.ppf(1 - level, n - 1) * known.std(axis=2, ddof=1) / math.sqrt(n)
    holds, fails = (
        np.where(finite, sign * known.mean(axis=2) > half, (~(sign * values > 0)).sum(axis=2) <= allowed)
        for sign in (1, -1)
    )
    return outcome_of(np.asarray(holds)[:, :, None], np.asarray(fails)[:, :, None])


def losing(draw: Draw, share: float, value: float, *, the_worst: bool = False) -> Draw:
    """Differences of two sides that are alike, but that one of them loses a share of its runs.

    Args:
        draw: Distribution of the runs of each side.
        share: Of the runs that are lost.
        value: What such a difference counts as: an infinity where the run diverged, NaN where it failed.
        the_worst: Whether the runs are lost that would have had the lowest values; any of them if not.
    """

    def lost(generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        of, other = (draw(generator, shape) for _ in range(2))
        by = of if the_worst else generator.uniform(size=shape)
        return np.where(by < np.quantile(by, share), value, of - other)

    return lost


def peeking(values: Floats, error: float) -> Outcome:
    """Judge studies by Student's t after every seed from the third on, each claim by itself."""
    return _by_student(values, error, FIRST)


def one_look(values: Floats, error: float) -> Outcome:
    """Judge studies by Student's t with all seeds at once, each claim by itself."""
    return _by_student(values, error, values.shape[2])


def _by_student(values: Floats, error: float, first: int) -> Outcome:
    from scipy.stats import t as student

    n = np.arange(1, values.shape[2] + 1)
    mean = np.cumsum(values, axis=2) / n
    squares = np.cumsum(values**2, axis=2) - n * mean**2
    half = student.ppf(1 - error / 2, np.maximum(n - 1, 1)) * np.sqrt(squares / np.maximum(n - 1, 1) / n)
    look = n >= first
    return outcome_of((mean > half) & look, (mean < -half) & look)


def outcome_of(holds: npt.NDArray[np.bool_], fails: npt.NDArray[np.bool_]) -> Outcome:
    """Collect verdicts: the first decision of a claim stays. Both are [studies, claims, looks]."""
    never = holds.shape[2]
    first = [np.where(each.any(axis=2), each.argmax(axis=2), never) for each in (holds, fails)]
    is_held = first[0] < first[1]
    ends = np.minimum(np.minimum(*first), never - 1) + 1
    return Outcome(
        wrong=float(is_held.any(axis=1).mean()),
        decided=float((np.minimum(*first) < never).mean()),
        right=float(is_held.mean()),
        seeds=float(ends.mean()),
    )


def simulated(
    draw: Draw, judge: Callable[[Floats, float], Outcome], *, studies: int, claims: int,
    effect: float | Floats = 0.0, seeds: int = LAST, error: float = 0.05, seed: int = 0,
) -> Outcome:  # fmt: skip
    """Simulate studies.

    Args:
        draw: Distribution of the differences.
        judge: How they are judged.
        studies: How many.
        claims: Of each family.
        effect: What is added to each difference; a number, or [claims, 1].
        seeds: Number of seeds at most.
        error: Of each family.
        seed: Of the generator.
    """
    values = draw(np.random.default_rng(seed), (studies, claims, seeds)) + effect
    return judge(values, error)


def slack(studies: int) -> float:
    """Three standard errors of a simulated error rate of 5%."""
    return 3 * math.sqrt(0.05 * 0.95 / studies)


EFFECTS = (0.5, 1.0, 1.5, 2.0, 3.0)
"""Standard deviations."""

FAMILIES = (1, 8, 55)
"""Numbers of claims."""

FIXED = (3, 5, 12)
"""Numbers of seeds, by one look."""

Row = dict[str, Any]
"""A kind of study, and what came of it."""


def table(studies: int) -> list[Row]:
    """Simulate all that the documentation shows."""
    normal = DRAWS["normal"]
    rows: list[Row] = []

    def add(draw: str, claims: int, how: str, effect: float, found: Outcome) -> None:
        rows.append({"draw": draw, "claims": claims, "how": how, "effect": effect} | asdict(found))

    for name, draw in DRAWS.items():
        for claims in FAMILIES:
            for judge in (until_decided, peeking):
                found = simulated(draw, judge, studies=studies, claims=claims)
                add(name, claims, judge.__name__, 0.0, found)
    for effect in EFFECTS:
        for claims in FAMILIES:
            found = simulated(normal, until_decided, studies=studies // claims, claims=claims, effect=effect)
            add("normal", claims, until_decided.__name__, effect, found)
        for seeds in FIXED:
            found = simulated(normal, one_look, studies=studies, claims=1, effect=effect, seeds=seeds)
            add("normal", 1, f"one look at {seeds}", effect, found)
    return rows


_BLUE, _ORANGE, _GRAY = PALETTE[0].light, PALETTE[1].light, REFERENCE.light


def figure(rows: list[Row], path: Path) -> None:
    """Draw the error while peeking, and the power beside fixed numbers of seeds."""
    import matplotlib.pyplot as plt

    plot, (errors, power, seeds) = plt.subplots(
        1, 3, figsize=(12, 4.2), layout="constrained", width_ratios=(1.4, 1, 1)
    )
    _draw_errors(errors, rows)
    for n, dash in zip(FIXED, (":", "--", "-."), strict=True):
        shares = _line(rows, f"one look at {n}", 1, "right")
        power.plot(EFFECTS, shares, dash, color=_GRAY, label=f"Student's t, {n} seeds, 1 claim")
    _draw_by_effect(power, rows, "right")
    power.set(ylabel="claims reported to hold (%)", title="Power")
    _draw_by_effect(seeds, rows, "seeds")
    seeds.set(ylabel="seeds of a claim, mean", title="Seeds, at most 24", ylim=(0, LAST + 1))
    for axes, columns in ((errors, 2), (power, 2), (seeds, 1)):
        axes.legend(ncols=columns, loc="upper center", bbox_to_anchor=(0.5, -0.17), frameon=False)
    plot.savefig(path, dpi=110)


def _counted(claims: int) -> str:
    return f"{claims} claim{'s' if claims > 1 else ''}"


def _draw_errors(axes: Axes, rows: list[Row]) -> None:
    ways = (("peeking", _ORANGE, "95% intervals of Student's t"), ("until_decided", _BLUE, "until decided"))
    bars = [(*way, claims) for way in ways for claims in (1, 55)]
    for place, (how, color, name, claims) in enumerate(bars):
        shares = [100 * _row(rows, draw=draw, claims=claims, how=how, effect=0.0)["wrong"] for draw in DRAWS]
        at = np.arange(len(DRAWS)) + 0.2 * place - 0.3
        label = f"{name}, {_counted(claims)}"
        axes.bar(at, shares, 0.19, color=color, alpha=0.5 if claims == 1 else 1.0, label=label)
    axes.axhline(5, color="black", lw=1, ls="--")
    axes.set_xticks(range(len(DRAWS)), [name.replace(" (", "\n(") for name in DRAWS])
    axes.set(ylabel="studies with a wrong “holds” (%)", title="Error: no difference, a look after every seed")


def _draw_by_effect(axes: Axes, rows: list[Row], key: str) -> None:
    """Draw an outcome of until decided against the difference."""
    for claims, style in _STYLES.items():
        axes.plot(EFFECTS, _line(rows, "until_decided", claims, key), **style)
    axes.set_xlabel("difference (standard deviations)")


_STYLES: dict[int, dict[str, Any]] = {
    claims: {"color": _BLUE, "marker": marker, "alpha": alpha, "label": f"until decided, {_counted(claims)}"}
    for claims, marker, alpha in zip(FAMILIES, "osD", (0.4, 0.7, 1.0), strict=True)
}


def _line(rows: list[Row], how: str, claims: int, key: str) -> list[float]:
    """Return an outcome for each effect; shares in percent."""
    found = [_row(rows, draw="normal", claims=claims, how=how, effect=effect)[key] for effect in EFFECTS]
    return found if key == "seeds" else [100 * share for share in found]


def _row(rows: list[Row], **wanted: Any) -> Row:
    return next(row for row in rows if wanted.items() <= row.items())
