"""Thin out a curve for drawing, so that nothing that a plot of its width would show is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


def thinned(x: npt.NDArray[np.generic], y: npt.NDArray[np.floating], width: int) -> npt.NDArray[np.intp]:
    """Choose the points of a curve that a plot so many pixels wide needs.

    Of the points in a column of pixels the first, the lowest, the highest and the last are kept, and one that
    is not a number, where the line breaks. A line through these touches the same pixels as a line through all
    points (M4: Jugel et al., "M4: A Visualization-Oriented Time Series Data Aggregation", VLDB 2014), so that
    a spike of a single step survives.

    Args:
        x: [n] In ascending order.
        y: [n] Values; those that are no finite numbers break the line.
        width: Columns of pixels, at least 1.

    Returns:
        intp [≤ 5 · width] Indices of the kept points, in ascending order; all n if there are no more.
    """
    n = len(x)
    if n <= 4 * width:
        return np.arange(n)
    along = x.astype(np.float64)
    span = along[-1] - along[0]
    columns = np.minimum((along - along[0]) * width / (span or 1.0), width - 1).astype(np.intp)
    known = np.isfinite(y)
    order = np.lexsort((y, columns, ~known))  # what is no number comes last
    finite, broken = np.split(order, [np.count_nonzero(known)])
    kept = [_ends(np.arange(n), columns), _ends(finite, columns), _ends(broken, columns)[:, :1]]
    return np.unique(np.concatenate([each.ravel() for each in kept]))


def _ends(order: npt.NDArray[np.intp], columns: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return the first and the last of each column, intp [columns, 2], of indices sorted by column."""
    begins = np.flatnonzero(np.diff(columns[order], prepend=-1))
    ends = np.append(begins[1:], len(order)) - 1
    return np.stack([order[begins], order[ends] if len(order) else begins], axis=1)
