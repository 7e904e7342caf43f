"""What batches were made of: shares by the values of a column of metadata, a bar a run."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..frames import Frames, NotYet
from ..results import Snapshot, opens_store
from ..units import nearest
from .drawing_bars import draw_stacked_bars
from .plot import Plot, Texts, title
from .style import GRAY, PARTS

if TYPE_CHECKING:
    import pandas as pd

_MOST = len(PARTS)  # values that are told apart
_READ, _OTHERS = "candidates", "others"
_NAMES = "SELECT DISTINCT name FROM v_metrics WHERE experiment = :experiment AND name LIKE 'selected/%'"


@opens_store
def composition(store: Snapshot, frames: Frames, column: str | None = None) -> Plot:
    """Plot what the batches of each run were made of, beside what they were chosen from.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        frames: Results of the experiment.
        column: Column of metadata that runs have counted (`runtime.diagnostics.columns`); None for the first
            of them, in alphabetical order.

    Returns:
        The plot, named "composition". Its data: a row a label and value: label, text, component and name (the
        value), relative (its share, the mean over recorded steps, then over seeds), total, color, hatch.

    Raises:
        ValueError: No run has counted what it selected, or not by this column.
    """
    import pandas as pd

    names = store.select(_NAMES, experiment=frames.experiment)["name"]
    parts = [(name, *name.split("/", 3)[1:]) for name in names if name.count("/") >= 3]
    counted = pd.DataFrame(parts, columns=["name", "called", "column", "kind"])
    columns = sorted(set(counted["column"]))
    if not columns:
        raise NotYet(
            f"no run of {frames.experiment!r} has counted what it selected: set "
            "runtime.diagnostics.every_steps, and its columns"
        )
    column = columns[0] if column is None else column
    if column not in columns:
        raise NotYet(f"no run of {frames.experiment!r} has counted by {column!r}: {nearest(column, columns)}")
    counted = counted[counted["column"] == column]
    logged = store.metrics(frames.experiment, list(counted["name"]))
    logged = logged[logged["label"].isin(frames.competitors)].merge(counted, on="name")
    of_seeds = logged.groupby(["label", "called", "kind", "seed"], sort=False)["value"].mean()
    shares = of_seeds.groupby(["label", "called", "kind"], sort=False).mean().reset_index(name="relative")
    data = _bars(frames, shares)
    caption = (
        f"Shares of the examples by their {column}: of batches, mean over the recorded steps and over seeds, "
        f"and of all that they were chosen from."
    )
    words = Texts(title(frames), caption, "", f"share of a batch, by {column}")
    return Plot("composition", data, words, functools.partial(draw_stacked_bars, totals=False))


def _bars(frames: Frames, shares: pd.DataFrame) -> pd.DataFrame:
    """Return a row a bar and value; the first bar is what was read."""
    import pandas as pd

    read = shares[shares["called"] == _READ].groupby("kind", sort=False)["relative"].mean()
    chosen = shares[shares["called"] != _READ]
    weights = read.add(chosen.groupby("kind")["relative"].sum(), fill_value=0.0).sort_values(ascending=False)
    told = [kind for kind in weights.index if kind != _OTHERS]
    told = told if len(told) <= _MOST else told[: _MOST - 1]
    rows = [("", _READ, kind, share) for kind, share in read.items()]
    for label in frames.labels:
        of_label = chosen[chosen["label"] == label]
        rows += [
            (label, frames.shown[label], kind, share)
            for kind, share in zip(of_label["kind"], of_label["relative"], strict=True)
        ]
    data = pd.DataFrame(rows, columns=["label", "text", "component", "relative"])
    data["component"] = data["component"].where(data["component"].isin(told), _OTHERS)
    data = data.groupby(["label", "text", "component"], sort=False)["relative"].sum().reset_index()
    looks = {value: PARTS[place] for place, value in enumerate(told)} | {_OTHERS: (GRAY, "")}
    order = [*told, _OTHERS]
    data["place"] = data["component"].map({value: place for place, value in enumerate(order)})
    bars = {label: place for place, label in enumerate(dict.fromkeys(data["label"]))}
    data = data.sort_values(["label", "place"], key=lambda of: of.map(bars) if of.name == "label" else of)
    data["name"] = data["component"]
    data["total"] = data.groupby("label")["relative"].transform("sum")
    data["color"] = data["component"].map({value: look[0] for value, look in looks.items()})
    data["hatch"] = data["component"].map({value: look[1] for value, look in looks.items()})
    return data.drop(columns="place").reset_index(drop=True)
