"""The loss or gradient norm over training steps, and its spikes, by β₂ (paper, appendix)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from ..claims.measures import FAR, running_median, spike_count
from ..colors import in_order
from ..curves import thinned
from ..errors import NotYet
from ..results import Snapshot, opens_store
from ..sheet import Sheet
from .against import Axis, placed, with_looks
from .axes import count_axis
from .learning_curves import NAMES
from .panels import finish, panels, titled
from .plot import Plot, Texts, title
from .style import looks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 500  # of pixels: a line keeps its extremes in each, so that spikes stay visible


@opens_store
def optimizer_spikes(
    store: Snapshot,
    experiment: str,
    metric: Sequence[str] = (),
    x: str = "optimizer.beta2",
    baseline: str | None = None,
) -> Plot:
    """Plot a training metric over steps, raw and smoothed, by β₂: a panel for each run that varies the key.

    A spike is a stretch of points that exceed the running median by more than six robust standard deviations
    of the run's deviations from its running median.

    Args:
        metric: One training metric; the loss by default.
        x: Config key whose values are compared.
        baseline: Label or run that is shown even if other runs depend on it.

    Returns:
        The plot. Its data: rows of kind "raw" (panel, line, label, seed, step, value; only the extremes of
        long runs), "smooth" (the running median, averaged over seeds) and "end" (number of spikes in all
        seeds of the line; NaN if a seed logged too few points).

    Raises:
        ValueError: No run varies the key, or none has logged the metric.
    """
    results, name_of_metric = store.frames(experiment), next(iter(metric), "loss")
    places = placed(results, Axis(x, by=()), results.baseline(baseline))
    varies = places.groupby("line")["x"].transform("nunique") > 1
    places = places[varies] if varies.any() else places
    logged = store.metrics(experiment, [name_of_metric]).dropna(subset="value")
    letter = "β₂" if x == "optimizer.beta2" else x.rpartition(".")[2]
    places["name"] = f"{letter} = " + places["tick"]
    names = list(places.sort_values("x")["name"].unique())
    chosen = looks(in_order(names, names[0]))
    parts = []
    for (panel, name), labels in places.groupby(["line", "name"], sort=False)["label"]:
        if runs := [run for _, run in logged[logged["label"].isin(labels)].groupby(["label", "seed"])]:
            rows = _rows(runs).assign(panel=str(panel), line=str(name))
            parts.append(with_looks(rows, [chosen[str(name)]] * len(rows)))
    if not parts:
        raise NotYet(f"no run of experiment {experiment!r} that varies {x} has logged {name_of_metric!r}")
    caption = "Faint: each seed as logged; bold: running median, mean over seeds. "
    caption += f"Spike: points more than {FAR:g} robust standard deviations above the run's median."
    words = Texts(title(results), caption, "steps", NAMES.get(name_of_metric, name_of_metric))
    return Plot("optimizer_spikes", pd.concat(parts, ignore_index=True), words, _draw)


def _rows(runs: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of one line from its runs."""

    def drawn(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.iloc[thinned(rows["step"].to_numpy(), rows["value"].to_numpy(), _COLUMNS)]

    raw = pd.concat([drawn(run[["label", "seed", "step", "value"]]) for run in runs])
    medians = pd.concat([running_median(run.set_index("step")["value"]) for run in runs], axis=1)
    smooth = drawn(medians.mean(axis=1).sort_index().rename("value").rename_axis("step").reset_index())
    end = smooth.tail(1).assign(spikes=float(sum(spike_count(run["value"]) for run in runs)))
    parts = {"raw": raw, "smooth": smooth, "end": end}
    return pd.concat([rows.assign(kind=kind) for kind, rows in parts.items()], ignore_index=True)


def _draw(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw raw values faintly and their running medians in bold; titles count the spikes of each line."""
    titles = []
    shown = list(data.groupby("panel", sort=False))
    figure, all_axes = panels(sheet, len(shown), least=1.6, height=1.9, sharex=True, sharey=True)
    for axes, (name, panel) in zip(all_axes, shown, strict=True):
        count_axis(axes)
        axes.margins(x=0)
        for line, rows in panel.groupby("line", sort=False):
            color, dash = rows[["color", "dash"]].iloc[0]
            for _, run in rows[rows["kind"] == "raw"].groupby(["label", "seed"]):
                axes.plot(run["step"], run["value"], color=color, linewidth=0.7, alpha=0.55)
            smooth = rows[rows["kind"] == "smooth"]
            axes.plot(smooth["step"], smooth["value"], color=color, linestyle=dash, linewidth=1.6, label=line)
        counts = panel[panel["kind"] == "end"].dropna(subset="spikes")
        counted = zip(counts["spikes"], counts["line"], strict=True)
        spikes = [f"{count:.0f} at {line.rpartition(' = ')[2]}" for count, line in counted]
        titles.append(f"{name}; spikes: {', '.join(spikes)}" if spikes else str(name))
    titled(all_axes, titles)
    return finish(figure, texts, sheet, named="below" if len(shown) > 1 else "direct", x=texts.x, y=texts.y)
