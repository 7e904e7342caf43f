"""How smoothly training goes: loss or gradient norm over steps, and its spikes, by β₂ (paper, appendix)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from ..claims.measures import FAR, running_median, spike_count
from ..frames import NotYet
from ..results import Snapshot, opens_store
from .against import Axis, placed, value_text
from .drawing import draw_step_panels
from .plot import Plot, Texts, title
from .recorded import NAMES
from .style import looks

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 1000  # pairs of points drawn of a run: lowest and highest of each stretch, so that no spike is lost
_PANELS = ("selection.rule", "selection.filtering_ratio")


@opens_store
def optimizer_spikes(
    store: Snapshot,
    experiment: str,
    metric: str = "loss",
    key: str = "optimizer.beta2",
    baseline: str | None = None,
) -> Plot:
    """Plot a training metric over steps, raw and smoothed: a line a value of β₂, panels for other keys.

    A spike is a stretch of points that lie more than six robust standard deviations (of the run's deviations
    from its running median) above the running median.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        experiment: Name of the experiment.
        metric: What is drawn: "loss", "grad_norm".
        key: Config key whose values are compared.
        baseline: Label or run that is not treated as a reference though others need it.

    Returns:
        The plot, named "optimizer_spikes". Its data: rows of kind "raw" (panel, line, label, seed, step,
        value, of long runs the extremes), "smooth" (the running median, mean over seeds) and "end" (a line:
        spikes in all its seeds, NaN where one logged too little to tell).

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: If no run varies the key, or none has logged the metric.
    """
    import pandas as pd

    results = store.frames(experiment)
    logged = store.metrics(experiment, [metric]).astype({"value": float})
    if logged.empty:
        raise NotYet(f"experiment {experiment!r} has logged none of {metric}")
    others = tuple(name for name in _PANELS if name != key)
    positions = placed(results, Axis(key, others), results.baseline(baseline))
    letter = "β₂" if key == "optimizer.beta2" else key.rpartition(".")[2]
    values = sorted(set(positions["x"]), key=lambda x: (isinstance(x, str), x))
    names = [f"{letter} = {value_text(x)}" for x in values]
    chosen = looks(names, names[0])
    parts: list[pd.DataFrame] = []
    for (panel, x), labels in positions.groupby(["line", "x"], sort=False)["label"]:
        of_line = logged[logged["label"].isin(labels)].dropna(subset=["value"])
        if of_line.empty:
            continue
        line = f"{letter} = {value_text(x)}"
        rows = _rows([run for _, run in of_line.groupby(["label", "seed"])])
        look = chosen[line]
        parts.append(rows.assign(panel=str(panel), line=line, color=look.color, dash=[look.line] * len(rows)))
    if not parts:
        raise NotYet(f"no run of experiment {experiment!r} that varies {key} has logged {metric!r}")
    data = pd.concat(parts, ignore_index=True)
    data["text"] = [_end_text(row) for row in data.to_dict("records")]
    seeds = int(data.loc[data["kind"] == "raw", "seed"].nunique())
    caption = f"Faint: each seed as logged; bold: running median{', mean over seeds' if seeds > 1 else ''}."
    if data["spikes"].notna().any():
        caption += f" Spike: points more than {FAR:g} robust standard deviations above the run's median."
    words = Texts(title(results), caption, "steps", NAMES.get(metric, metric))
    return Plot("optimizer_spikes", data, words, draw_step_panels)


def _rows(runs: list[pd.DataFrame]) -> pd.DataFrame:
    """Rows of one line, from its runs."""
    import pandas as pd

    parts, smoothed = [], []
    spikes = 0.0
    for run in runs:
        spikes += spike_count(run["value"])
        parts.append(_extremes(run)[["label", "seed", "step", "value"]].assign(kind="raw"))
        smoothed.append(pd.Series(running_median(run["value"]).to_numpy(), index=run["step"].to_numpy()))
    mean = pd.concat(smoothed, axis=1).mean(axis=1).sort_index()
    thinned = mean.iloc[:: max(1, len(mean) // _SHOWN)]
    parts.append(pd.DataFrame({"step": thinned.index, "value": thinned.to_numpy(), "kind": "smooth"}))
    end = {"step": mean.index[-1], "value": mean.iloc[-1], "kind": "end", "spikes": spikes}
    return pd.concat([*parts, pd.DataFrame([end])], ignore_index=True)


def _extremes(run: pd.DataFrame) -> pd.DataFrame:
    """The lowest and the highest point of each stretch of a long run."""
    import numpy as np

    length = -(-len(run) // _SHOWN)
    if length <= 2:
        return run
    stretches = run.groupby(np.arange(len(run)) // length)["value"]
    return run.loc[sorted({*stretches.idxmin(), *stretches.idxmax()})]


def _end_text(row: Mapping[Hashable, Any]) -> str:
    """What is written at the end of a line."""
    if row["kind"] != "end":
        return ""
    if math.isnan(row["spikes"]):
        return str(row["line"])
    count = int(row["spikes"])
    return f"{row['line']} ({count or 'no'} spike{'' if count == 1 else 's'})"
