"""Claims about the exponent b of a power law y = c + a · x^(−b) over sizes, as a contrast of the sizes.

The contrast is a weighted sum of a seed's values. Its weights sum to 0 and are orthogonal to x^(−b₀) for the
claimed b₀, so it is 0 on average if b = b₀, whatever c and a. Among such sums it changes most with b. As a
function of b, it has no more roots than its weights change sign (Descartes' rule; Pólya and Szegő, "Problems
and Theorems in Analysis II", part V, no. 77), which are two: 0 and b₀. So if the metric improves with size,
the sum is on the better side of 0 exactly if b > b₀. Nothing is fitted, so every test of claims applies.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..configs import lookup

FEWEST = 3
"""Minimum number of sizes: a law has three parameters."""


def sizes_of(configs: Mapping[str, Any], labels: Sequence[str], key: str) -> tuple[list[float], str]:
    """Return the size of each label, or an error message.

    Args:
        configs: Label → config.
        key: Config key of the size.
    """
    found = {label: lookup(configs.get(label), key) for label in labels}
    if lacking := [name for name, x in found.items() if not (type(x) in (int, float) and 0 < x < math.inf)]:
        return [], f"{lacking[0]} has no number above 0 in {key}"
    if (count := len(set(found.values()))) < FEWEST:
        return [], f"{key} has {count} sizes: an exponent takes {FEWEST}"
    return [float(x) for x in found.values()], ""


def weights_of(sizes: Sequence[float], exponent: float) -> list[float]:
    """Return the weight of each size: positive and negative ones each sum to 1 in size.

    Args:
        sizes: x above 0, at least `FEWEST` different ones.
        exponent: The claimed b₀, above 0.

    Returns:
        Weights whose sum over x^(−b) is below 0 if b > b₀, and above 0 if 0 < b < b₀.
    """
    import numpy as np

    logs = np.log(sizes) - np.log(sizes).min()
    powers = np.exp(-exponent * logs)
    law = np.stack([np.ones_like(powers), powers], axis=1)
    slope = logs * powers  # minus the derivative of x^(−b) at b₀
    weights = slope - law @ np.linalg.lstsq(law, slope, rcond=None)[0]
    scaled: list[float] = (2 * weights / np.abs(weights).sum()).tolist()
    return scaled
