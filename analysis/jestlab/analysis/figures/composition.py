"""What batches consist of: shares by the values of a metadata column, one bar per run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import NotYet
from ..frames import Frames
from ..results import Snapshot, opens_store
from ..units import nearest
from .bars import draw_shares
from .plot import Plot, Texts, title
from .style import GRAY, PARTS

if TYPE_CHECKING:
    import pandas as pd

_CANDIDATES, _OTHERS = "candidates", "others"
_NAMES = "SELECT DISTINCT name FROM v_metrics WHERE experiment = :experiment AND name LIKE 'selected/%'"


@opens_store
def composition(store: Snapshot, frames: Frames, column: str | None = None) -> Plot:
    """Plot the composition of the batches of each run, next to that of the candidates.

    Args:
        store: The store, or its SQLAlchemy URL.
        frames: Results of the experiment.
        column: Metadata column that runs have counted (`runtime.diagnostics.columns`); by default the first
            in alphabetical order.

    Returns:
        The plot. Its data has one row per label and value: label, text, component and name (the value),
        relative (its share, the mean over recorded steps, then over seeds), total, color, hatch.

    Raises:
        ValueError: No run has counted its selection, or none by this column.
    """
    import pandas as pd

    names = store.select(_NAMES, experiment=frames.experiment)["name"]
    parts = [(name, *name.split("/", 3)[1:]) for name in names if name.count("/") >= 3]
    counted = pd.DataFrame(parts, columns=["name", "label", "column", "component"])
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
    logged = store.metrics(frames.experiment, list(counted["name"]))
    logged = logged[logged["label"].isin(frames.competitors)].rename(columns={"label": "of"})
    logged = logged.merge(counted, on="name")
    # The selection is logged under the name of the rule; here it counts for the label.
    logged["label"] = logged["of"].where(logged["label"] != _CANDIDATES, "")
    of_seeds = logged.groupby(["of", "label", "component", "seed"], sort=False)["value"].mean()
    of_labels = of_seeds.groupby(["of", "label", "component"], sort=False).mean()
    shares = of_labels.groupby(["label", "component"], sort=False).mean().unstack(fill_value=0)
    caption = (
        f"Shares of the examples by {column}: of batches, mean over the recorded steps and over seeds, "
        f"and of all candidates that they were selected from."
    )
    words = Texts(title(frames), caption, "", f"share of a batch, by {column}")
    return Plot("composition", _bars(frames, shares), words, draw_shares)


def _bars(frames: Frames, shares: pd.DataFrame) -> pd.DataFrame:
    """Return one row per bar and value, the most frequent value first; the first bar is of the candidates.

    Args:
        frames: Results of the experiment.
        shares: Shares, [label, value]; the candidates' label is empty.
    """
    shares = shares.reindex([label for label in ("", *frames.labels) if label in shares.index])
    values = [value for value in shares.sum().sort_values(ascending=False).index if value != _OTHERS]
    shown = values if len(values) <= len(PARTS) else values[: len(PARTS) - 1]
    others = shares.drop(columns=shown).sum(axis=1)
    shares = shares[shown].assign(**{_OTHERS: others} if others.any() else {})
    data = shares.melt(var_name="component", value_name="relative", ignore_index=False)
    data = data.rename_axis("label").reset_index()
    looks = data["component"].map(dict(zip(shown, PARTS, strict=False)) | {_OTHERS: (GRAY, "")})
    return data.assign(
        text=data["label"].map({label: frames.shown[label] for label in frames.labels} | {"": _CANDIDATES}),
        name=data["component"],
        total=data.groupby("label")["relative"].transform("sum"),
        color=looks.str[0],
        hatch=looks.str[1],
    )
