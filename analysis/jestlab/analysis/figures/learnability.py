"""Learnability of the batches that each selection rule selects (paper, Figure 2)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..colors import in_order
from ..errors import NotYet
from ..frames import Frames
from ..intervals import of_groups
from ..results import Snapshot, opens_store, runs_of
from ..sheet import Sheet
from . import captions
from .axes import count_axis, draw_band
from .panels import finish, panels, titled
from .plot import Plot, Texts
from .style import shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MEASURED = """
    SELECT seed, name, step, value FROM v_metrics WHERE experiment = :experiment AND label = :label"""
_RULES = ("uniform", "independent", "joint", "gibbs", "greedy")
_ITERATIVE = ("joint", "gibbs")  # rules that draw a sub-batch in several steps
_MOST_MARKERS = 20  # on a line
_CRITERIA = {
    "learnability": "learnability",
    "hard_learner": "learner's loss",
    "easy_reference": "negative reference loss",
}
_CLIPPED = 0.02  # share of the pairs (outliers) that may exceed the color scale


@opens_store
def learnability(store: Snapshot, experiment: str, run: str | None = None) -> Plot:
    """Plot the scores of pairs, and those of sub-batches by iteration and filtering ratio.

    Args:
        run: Label or name of a `diagnose` run; by default the study's first that has completed.

    Returns:
        The plot. Its data has the panels that the run measured: "matrix" (x text, y image; the first seed),
        "iterations" (a line for each rule over draws; rules with only a result have no x), and "ratios" (a
        line for each rule and number of chunks over the filtering ratio). value is the mean over seeds, with
        the 95% confidence interval from low to high.

    Raises:
        ValueError: The experiment is unknown, or none of its `diagnose` runs has completed.
    """
    question, config, metrics = _measured(store, experiment, run)
    seeds = int(metrics["seed"].nunique())
    parts = [_matrix(metrics), *_lines(metrics)]
    data = pd.concat([part for part in parts if not part.empty], ignore_index=True)
    b, f, draws = int(config["batch_size"]), float(config["filtering_ratio"]), int(config["draws"])
    about = {
        "matrix": "Pairs: matching ones are on the diagonal.",
        "iterations": f"Iterations: sub-batches of {b:,} from {round(b / (1 - f)):,} (f = {f:g}); joint: "
        f"after each of {config['joint_chunks']} chunks; Gibbs: after each redrawn position; others: the "
        "result.",
        "ratios": f"Filtering ratios: sub-batches of {b:,} from {b:,} / (1 − f), joint in N chunks.",
    }
    what = _CRITERIA.get(config["criterion"], "score")  # of a custom criterion
    over = f"{draws} super-batch{'es' * (draws > 1)}" + f" and {seeds} seeds" * (seeds > 1)
    sentences = [
        "Learnability: loss of the learner minus that of the reference." * (what == "learnability"),
        *(about[panel] for panel in data["panel"].unique()),
        f"Means over {over}.",
        *captions.seeds(seeds, "bands"),
    ]
    words = Texts(question or experiment, " ".join(filter(None, sentences)), "iterations", what)
    return Plot("learnability", data, words, _draw)


def _measured(store: Snapshot, experiment: str, run: str | None) -> tuple[str, dict[str, Any], pd.DataFrame]:
    """Return the question, the config of a run's first seed, and the metrics of its completed seeds."""
    store.check_known(experiment)
    runs = store.once(runs_of, experiment)
    runs = runs[runs["program"] == "diagnose"].reset_index(drop=True)
    if runs.empty:
        raise NotYet(f"experiment {experiment!r} has no run of the program diagnose")
    question, spec = store.study(experiment)
    frames = Frames(experiment, question, runs, runs[:0], runs[:0], runs, spec)
    completed = runs[runs["state"] == "COMPLETED"]
    first = frames.labels[0] if completed.empty else str(completed["label"].iloc[0])
    label = first if run is None else frames.label_of(run)
    completed = completed[completed["label"] == label]
    if completed.empty:
        raise NotYet(f"no seed of {label!r} of {experiment!r} has completed: {frames.progress()}")
    metrics = store.select(_MEASURED, experiment=experiment, label=label)
    metrics = metrics[metrics["seed"].isin(completed["seed"])]
    config = json.loads(completed["config"].iloc[0])
    return question, config, metrics.sort_values(["seed", "name", "step"], ignore_index=True)


def _matrix(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of the first seed's pairs."""
    first = metrics[metrics["seed"] == metrics["seed"].min()].set_index("name")
    scores = first.loc[first.index == "learnability_matrix"].reset_index()
    row, column = divmod(scores["step"], first["value"].get("learnability_matrix/size", 1))
    return pd.DataFrame({"panel": "matrix", "x": column, "y": row, "value": scores["value"]})


def _lines(metrics: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the lines over iterations, and those over filtering ratios: means over seeds."""
    means: Any = of_groups(metrics["value"], [metrics["name"], metrics["step"]]).sort_index().reset_index()
    means = means.rename(columns={"mean": "value"})
    means = means.join(means["name"].str.split("/", n=3, expand=True).reindex(columns=range(4)))
    rules = means[(means[0] == "learnability") & means[1].isin(_RULES)]
    x = rules["step"].where(rules[1].isin(_ITERATIVE))  # other rules only have a result
    rules = rules.assign(panel="iterations", line=rules[1].replace("gibbs", "Gibbs"), x=x)
    ratios = means[means[1] == "filtering_ratio"].sort_values([3, "step", 2])
    lines = ratios[3] + ratios["step"].map(", N = {}".format).where(ratios[3] == "joint", "")
    ratios = ratios.assign(panel="ratios", line=lines, x=ratios[2].astype(float))
    colors = {rule: color.light for rule, color in in_order(_RULES, "uniform").items()}
    chunked = [line for line in lines.unique() if line not in colors]
    colors |= dict(zip(chunked, shades(colors["joint"], len(chunked)), strict=True))
    colors["Gibbs"] = colors["gibbs"]
    columns = ["panel", "line", "x", "value", "low", "high"]
    return [rows[columns].assign(color=rows["line"].map(colors)) for rows in (rules, ratios)]


def _draw(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw the panels that the data has."""
    titles = {"matrix": f"{texts.y} of pairs (nats)"}
    shown = list(data.groupby("panel", sort=False))
    figure, all_axes = panels(sheet, len(shown), least=2.2, height=1.65)
    for axes, (panel, rows) in zip(all_axes, shown, strict=True):
        draw = _draw_matrix if panel == "matrix" else _draw_lines
        draw(axes, rows)
    titled(all_axes, [titles.get(str(panel), f"{texts.y} of the sub-batch") for panel, _ in shown])
    return finish(figure, texts, sheet, named="below")


def _draw_matrix(axes: Axes, matrix: pd.DataFrame) -> None:
    """Draw a heat map of the pairs, red where learnability is positive; a few outliers are clipped."""
    scores = matrix.pivot(index="y", columns="x", values="value").to_numpy()
    limit = float(matrix["value"].abs().quantile(1 - _CLIPPED)) or 1.0
    image = axes.imshow(scores, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    ends: dict[str, Any] = {"ticks": [0, len(scores) - 1], "labels": ["1", str(len(scores))]}
    axes.set_xticks(**ends)
    axes.set_yticks(**ends)
    axes.set(xlabel="text", ylabel="image")
    axes.grid(False)
    figure: Any = axes.figure
    figure.colorbar(image, ax=axes, extend="both", use_gridspec=False).ax.grid(False)


def _draw_lines(axes: Axes, data: pd.DataFrame) -> None:
    """Draw a line for each rule over iterations or filtering ratios, or a level if it has only a result."""
    lines = list(data.dropna(subset="x").groupby("line", sort=False))
    for name, line in data.groupby("line", sort=False):
        style: dict[str, Any] = {"color": line["color"].iloc[0], "label": str(name)}
        if line["x"].isna().all():
            axes.axhline(line["value"].iloc[-1], linestyle=(0, (4, 1.5)), linewidth=0.9, **style)
            continue
        if name in (lines[0][0], lines[-1][0]):  # more bands would hide each other
            draw_band(axes, line["x"], line["low"], line["high"], style["color"])
        marker = "o" if len(line) <= _MOST_MARKERS else ""
        axes.plot(line["x"], line["value"], marker=marker, markersize=3, **style)
    axes.set_ylabel("nats per example")
    if data["panel"].iloc[0] == "iterations":
        axes.set_xlabel("iterations")
        count_axis(axes, data["x"], log=True)
    else:
        axes.set_xlabel("filtering ratio f")
        axes.set_xticks(sorted(set(data["x"])))
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
