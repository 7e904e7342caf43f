"""Composition of batches: shares of the values of a metadata column, one bar per run."""

import pandas as pd

from ..errors import NotYet
from ..frames import Frames
from ..results import Snapshot, opens_store
from ..units import nearest
from .bars import draw_stacked_bars, stacked
from .plot import Plot, Texts, title
from .style import GRAY, PARTS

_CANDIDATES, _OTHERS = "candidates", "others"
_NAMES = "SELECT DISTINCT name FROM v_metrics WHERE experiment = :experiment AND name LIKE 'selected/%'"
_PARTS = "selected/(?P<rule>[^/]*)/(?P<column>[^/]*)/(?P<component>.*)"


@opens_store
def composition(store: Snapshot, frames: Frames, x: str | None = None) -> Plot:
    """Plot the composition of the batches of each run, next to that of the candidates.

    Args:
        x: Metadata column whose values runs have counted (`runtime.diagnostics.columns`); by default the
            first in alphabetical order.

    Returns:
        The plot, with the data of `bars.stacked`: the share of each value, averaged over recorded steps, then
        over seeds. The first bar shows the candidates, and the most frequent value is first. A run that
        selects by several rules has a bar for each rule.

    Raises:
        ValueError: No run has counted its selection, or none by this column.
    """
    names = store.select(_NAMES, experiment=frames.experiment)["name"].astype(str)
    counted = names.str.extract(_PARTS).assign(name=names).dropna()
    columns = sorted(set(counted["column"]))
    if not columns:
        raise NotYet(
            f"no run of {frames.experiment!r} has counted its selection: set "
            "runtime.diagnostics.every_steps and runtime.diagnostics.columns"
        )
    column = columns[0] if x is None else x
    if column not in columns:
        raise NotYet(f"no run of {frames.experiment!r} has counted by {column!r}: {nearest(column, columns)}")
    counted = counted[counted["column"] == column]
    logged = store.metrics(frames.experiment, list(counted["name"])).merge(counted, on="name")
    shares = _shares(frames, logged)
    values = shares.drop(columns=_OTHERS, errors="ignore").sum().sort_values(ascending=False).index
    shown = values[: len(PARTS) - (len(values) > len(PARTS))]
    shares = shares[shown].assign(**{_OTHERS: shares.drop(columns=shown).sum(axis=1)})
    looks = {value: (value, *look) for value, look in zip(shown, PARTS, strict=False)}
    data = stacked(shares, looks | {_OTHERS: (_OTHERS, GRAY, "")})
    caption = (
        f"Examples by {column}: shares of batches and of the candidates, from which batches were selected; "
        "mean over the recorded steps, then over seeds."
    )
    words = Texts(title(frames), caption, "", f"share of the examples, by {column}")
    return Plot("composition", data, words, draw_stacked_bars)


def _shares(frames: Frames, logged: pd.DataFrame) -> pd.DataFrame:
    """Average shares, [name of a bar, value]; a value that a batch lacks has a share of 0 in that batch."""
    rules = logged[logged["rule"] != _CANDIDATES].groupby("label")["rule"].nunique()
    several = list(rules.index[rules > 1])  # runs of `diagnose`
    labels = list(dict.fromkeys([*frames.competitors, *several]))
    logged = logged[logged["label"].isin(labels)]
    logged = logged.sort_values("label", key=lambda column: column.map(labels.index), kind="stable")
    bar = logged["label"].map(frames.shown)
    bar = bar.mask(logged["label"].isin(several), bar + " " + logged["rule"])
    logged = logged.assign(bar=bar.mask(logged["rule"] == _CANDIDATES, _CANDIDATES))
    batch = ["bar", "label", "seed", "step"]
    batches = logged.pivot_table("value", batch, "component", fill_value=0.0, sort=False)
    shares = batches.groupby(batch[:3], sort=False).mean().groupby("bar", sort=False).mean()
    return shares.reindex(sorted(shares.index, key=lambda name: name != _CANDIDATES))
