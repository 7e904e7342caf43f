"""Smoothing of curves: a running mean, whose window is so many recorded points or a share of the curve."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_SHARE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*%")


@dataclass(frozen=True)
class Smoothing:
    """A running mean over each seed's curve.

    Attributes:
        points: Window, in recorded points; None for a share.
        share: Window, as a share of the points of a curve; None for a number of points.
    """

    points: int | None = None
    share: float | None = None

    @classmethod
    def parse(cls, written: object) -> Smoothing:
        """Parse the window as a spec has it: `5` points, or `10%` of the curve.

        Raises:
            ValueError: It is neither.
        """
        if isinstance(written, str) and written.strip().isdigit():
            written = int(written)
        if isinstance(written, int) and not isinstance(written, bool) and written >= 2:
            return cls(points=written)
        found = _SHARE.fullmatch(written.strip()) if isinstance(written, str) else None
        if found is not None and 0 < float(found[1]) <= 50:
            return cls(share=float(found[1]) / 100)
        raise ValueError(
            f"must be a number of recorded points from 2, such as 5, or a share up to 50%, such as 10%, not "
            f"{written!r}"
        )

    def __str__(self) -> str:
        return f"{self.points} points" if self.share is None else f"{100 * self.share:g}% of the points"

    def __call__(self, curves: pd.DataFrame) -> pd.DataFrame:
        """Smooth the score of every run; near its ends the window is cut to what there is."""

        def mean(values: pd.Series[float]) -> pd.Series[float]:
            window = self.points or max(2, round((self.share or 0.0) * len(values)))
            smoothed: pd.Series[float] = values.rolling(window, center=True, min_periods=1).mean()
            return smoothed

        found = curves.copy()
        found["score"] = curves.groupby(["label", "seed"], sort=False)["score"].transform(mean)
        return found
