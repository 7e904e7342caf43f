"""What batches consist of: shares by the values of a metadata column, one bar per run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import NotYet
from ..frames import Frames
from ..results import Snapshot, opens_store
from ..units import nearest
from .bars import draw_stacked_bars, stacked
from .plot import Plot, Texts, title
from .style import GRAY, PARTS

if TYPE_CHECKING:
    import pandas as pd

_CANDIDATES, _OTHERS = "candidates", "others"
_NAMES = "SELECT DISTINCT name FROM v_metrics WHERE experiment = :experiment AND name LIKE 'selected/%'"
_PARTS = "selected/(?P<of>[^/]*)/(?P<column>[^/]*)/(?P<component>.*)"


@opens_store
def composition(store: Snapshot, frames: Frames, column: str | None = None) -> Plot:
    """Plot the composition of the batches of each run, next to that of the candidates.

    Args:
        column: Metadata column that runs have counted (`runtime.diagnostics.columns`); by default the first
            in alphabetical order.

    Returns:
        The plot. Its data is from `bars.stacked`: the share of each value, the mean over recorded steps, then
        over seeds. The first bar is of the candidates, and the most frequent value is first.

    Raises:
        ValueError: No run has counted its selection, or none by this column.
    """
    names = store.select(_NAMES, experiment=frames.experiment)["name"].astype(str)
    counted = names.str.extract(_PARTS).assign(name=names).dropna()
    columns = sorted(set(counted["column"]))
    if not columns:
        raise NotYet(
            f"no run of {frames.experiment!r} has counted its selection: set "
            "runtime.diagnostics.every_steps, and its columns"
        )
    column = columns[0] if column is None else column
    if column not in columns:
        raise NotYet(f"no run of {frames.experiment!r} has counted by {column!r}: {nearest(column, columns)}")
    counted = counted[counted["column"] == column]
    logged = store.metrics(frames.experiment, list(counted["name"])).merge(counted, on="name")
    shares = _shares(logged[logged["label"].isin(frames.competitors)])
    shares = shares.reindex([bar for bar in (_CANDIDATES, *frames.labels) if bar in shares.index])
    values = shares.drop(columns=_OTHERS, errors="ignore").sum().sort_values(ascending=False).index
    shown = values[: len(PARTS) - (len(values) > len(PARTS))]
    shares = shares[shown].assign(**{_OTHERS: shares.drop(columns=shown).sum(axis=1)})
    looks = {value: (value, *look) for value, look in zip(shown, PARTS, strict=False)}
    data = stacked(shares, looks | {_OTHERS: (_OTHERS, GRAY, "")}, frames.shown.__getitem__)
    caption = (
        f"Shares of the examples by {column}: of batches, mean over the recorded steps and over seeds, "
        f"and of all candidates that they were selected from."
    )
    words = Texts(title(frames), caption, "", f"share of the examples, by {column}")
    return Plot("composition", data, words, draw_stacked_bars)


def _shares(logged: pd.DataFrame) -> pd.DataFrame:
    """Average shares, [bar, value]; a value that is missing in a batch has a share of 0 there."""
    # The selection is logged under the name of the rule; here it counts for the label.
    logged = logged.assign(bar=logged["label"].where(logged["of"] != _CANDIDATES, _CANDIDATES))
    batches = logged.pivot_table("value", ["bar", "label", "seed", "step"], "component", fill_value=0.0)
    return batches.groupby(["bar", "label", "seed"]).mean().groupby("bar").mean()
