"""How learnable the batches are that each selection rule selects (paper, Figure 2)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..errors import NotYet
from ..frames import Frames
from ..intervals import half_widths
from ..results import Snapshot, opens_store
from ..sheet import Sheet
from .axes import count_axis, draw_band
from .panels import finish, panels, titled
from .plot import Plot, Texts, about_seeds
from .style import GRAY, looks, shades

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_RUNS = """
    SELECT run, label, seed, position, fingerprint, state, point, config
    FROM v_runs WHERE experiment = :experiment AND program = 'diagnose'"""
_MEASURED = """
    SELECT seed, name, step, value FROM v_metrics WHERE experiment = :experiment AND label = :label"""
_RULES = ("uniform", "joint", "gibbs", "independent", "greedy")
_ITERATIVE = ("joint", "gibbs")  # rules that draw a sub-batch in several steps
_BARS = ("candidates", "independent", "joint")
_MOST_BARS = 8
_MOST_MARKERS = 20  # on a line
_CRITERIA = {
    "learnability": "learnability",
    "hard_learner": "learner's loss",
    "easy_reference": "negative reference loss",
}
_CLIPPED = 0.02  # share of the pairs, outliers, that may exceed the color scale
_HEIGHT = 1.65  # inches of a panel: four below each other leave room for the caption on a page


@opens_store
def learnability(store: Snapshot, experiment: str, run: str | None = None) -> Plot:
    """Plot the scores of pairs, those of sub-batches by iteration and filtering ratio, and the selection.

    Args:
        run: Label or name of a `diagnose` run; by default the study's first.

    Returns:
        The plot. Its data has the panels that the run measured: "matrix" (x text, y image), "iterations" (a
        line for each rule over draws; levels without x), "ratios" (a line for each number of chunks over the
        filtering ratio), and "selected" (a line for each rule; text is the value of the metadata column).
        value is the mean over seeds, with the 95% confidence interval from low to high; the matrix is that of
        the first seed.

    Raises:
        ValueError: The experiment is unknown, or no such run of it has completed.
    """
    import pandas as pd

    question, config, metrics = _measured(store, experiment, run)
    means, seeds = _means(metrics), int(metrics["seed"].nunique())
    column = next((name for name in config.get("columns", ()) if name in set(means[2])), "")
    parts = [_matrix(metrics), *_panels(means, column)]
    data = pd.concat([part for part in parts if not part.empty], ignore_index=True)
    b, f, draws = int(config["batch_size"]), float(config["filtering_ratio"]), int(config["draws"])
    about = {
        "matrix": "Pairs: matching ones are on the diagonal.",
        "iterations": f"Iterations: sub-batches of {b:,} from {round(b / (1 - f)):,} (f = {f:g}); joint: "
        f"after each of {config['joint_chunks']} chunks; Gibbs: after each redrawn position; others: the "
        "result.",
        "ratios": f"Filtering ratios: sub-batches of {b:,} from {b:,} / (1 − f), joint in N chunks.",
        "selected": f"Bars: selected at f = {f:g}, by {column}.",
    }
    what = _CRITERIA[config["criterion"]]
    over = f"{draws} super-batch{'es' * (draws > 1)}" + f" and {seeds} seeds" * (seeds > 1)
    sentences = [
        *(
            ["Learnability: loss of the learner minus that of the reference."]
            if what == "learnability"
            else []
        ),
        *(about[panel] for panel in data["panel"].unique()),
        f"Means over {over}.",
        *about_seeds(seeds, "bands and bars"),
    ]
    words = Texts(question or experiment, " ".join(sentences), "iterations", what)
    return Plot("learnability", data, words, _draw)


def _measured(store: Snapshot, experiment: str, run: str | None) -> tuple[str, dict[str, Any], pd.DataFrame]:
    """Return the question, the config of a run's first seed, and the metrics of its completed seeds."""
    store.check_known(experiment)
    runs = store.select(_RUNS, experiment=experiment)
    runs = runs.sort_values(["position", "label", "seed"], ignore_index=True)
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


def _means(metrics: pd.DataFrame) -> pd.DataFrame:
    """Compute the mean over seeds of each metric and step. Columns 0 to 3 are the parts of its name."""
    values = metrics.pivot_table("value", ["name", "step"], "seed")
    is_share = values.index.get_level_values("name").str.startswith("selected/")
    values[is_share] = values[is_share].fillna(0.0)  # a value that is missing in a batch isn't logged
    mean, half = values.mean(axis=1), half_widths(values.std(axis=1), values.count(axis=1))
    means = mean.to_frame("value").assign(low=mean - half, high=mean + half).reset_index()
    return means.join(means["name"].str.split("/", n=3, expand=True).reindex(columns=range(4)))


def _matrix(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of the first seed's pairs."""
    import pandas as pd

    of_names = metrics[metrics["seed"] == metrics["seed"].min()].set_index("name")
    scores = of_names.loc[of_names.index == "learnability_matrix"].reset_index()
    row, column = divmod(scores["step"], of_names["value"].get("learnability_matrix/size", 1))
    return pd.DataFrame({"panel": "matrix", "x": column, "y": row, "value": scores["value"]})


def _panels(means: Any, column: str) -> list[pd.DataFrame]:
    """Return lines over iterations, lines over filtering ratios, and bars by the values of a column."""
    colors = {rule: look.color for rule, look in looks(_RULES, "uniform").items()}
    colors |= {"Gibbs": colors["gibbs"], "candidates": GRAY}
    rules = means[(means[0] == "learnability") & means[1].isin(_RULES)]
    x = rules["step"].where(rules[1].isin(_ITERATIVE))  # of the others only the result matters
    rules = rules.assign(panel="iterations", line=rules[1].replace("gibbs", "Gibbs"), x=x)
    ratios = means[means[1] == "filtering_ratio"].sort_values([3, "step", 2])
    lines = ratios[3] + ratios["step"].map(", N = {}".format).where(ratios[3] == "joint", "")
    chunked = [line for line in lines.unique() if line not in colors]
    colors |= dict(zip(chunked, shades(colors["joint"], len(chunked)), strict=True))
    ratios = ratios.assign(panel="ratios", line=lines, x=ratios[2].astype(float))
    bars = means[(means[0] == "selected") & (means[2] == column) & means[1].isin(_BARS)]
    candidates = bars[(bars[1] == "candidates") & (bars[3] != "others")]
    frequent = list(candidates.nlargest(_MOST_BARS, "value")[3])
    bars = bars[bars[3].isin(frequent)].rename(columns={1: "line", 3: "text"})
    bars = bars.assign(panel="selected", x=bars["text"].map(frequent.index))
    columns = ["panel", "line", "text", "x", "value", "low", "high"]
    return [
        rows.reindex(columns=columns).assign(color=rows["line"].map(colors)) for rows in (rules, ratios, bars)
    ]


def _draw(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw the panels that the data has."""
    drawings = {
        "matrix": (_draw_matrix, f"{texts.y} of pairs (nats)"),
        "iterations": (_draw_lines, f"{texts.y} of the sub-batch"),
        "ratios": (_draw_lines, f"{texts.y} of the sub-batch"),
        "selected": (_draw_bars, "selected examples"),
    }
    shown = dict(list(data.groupby("panel", sort=False)))
    figure, all_axes = panels(sheet, len(shown), least=2.2, height=_HEIGHT)
    for axes, (panel, rows) in zip(all_axes, shown.items(), strict=True):
        drawings[str(panel)][0](axes, rows)
    titled(all_axes, [drawings[str(panel)][1] for panel in shown])
    return finish(figure, texts, sheet, named="below")


def _draw_matrix(axes: Axes, matrix: pd.DataFrame) -> None:
    """Draw a heat map, red where the learner can learn; its colors span most of the pairs."""
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
    """Draw a line for each rule over iterations or filtering ratios; a level if only the result matters."""
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


def _draw_bars(axes: Axes, data: pd.DataFrame) -> None:
    rules = list(data.groupby("line", sort=False))
    width = 0.8 / len(rules)
    for place, (name, rule) in enumerate(rules):
        error = 100 * (rule["high"] - rule["value"])
        axes.bar(
            rule["x"] + (place - (len(rules) - 1) / 2) * width, 100 * rule["value"], 0.92 * width,
            color=rule["color"].iloc[0], label=str(name), yerr=error, error_kw={"elinewidth": 0.6},
        )  # fmt: skip
    ticks = data.drop_duplicates("x")
    texts = ticks["text"].str.replace("_", " ")
    axes.set_xticks(ticks["x"], texts, rotation=30, ha="right", rotation_mode="anchor")
    axes.set(ylabel="share (%)")
    axes.xaxis.grid(False)
