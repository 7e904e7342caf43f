"""How learnable the batches are that the rules select (paper, Figure 2): data, then drawing.

Its panels (a heat map, lines and bars) are like those of no other figure, so they are drawn here.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from .. import units
from ..frames import Diagnosis, NotYet
from ..results import Snapshot, opens_store
from ..sheet import Sheet
from .canvas import Slot, add_axes, band, figure_of, fit, row
from .names import End, Key, Naming, name_ends, widest
from .plot import Plot, Texts
from .style import GRAY, ink, label_size, looks, points, shades

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_RULES = ("uniform", "joint", "gibbs", "independent", "greedy")
_RULE_NAMES = {"gibbs": "Gibbs"}
_BARS = ("candidates", "independent", "joint")
_MOST_BARS = 8
_CRITERIA = {
    "learnability": ("learnability", "Learnability: loss of the learner minus that of the reference."),
    "hard_learner": ("learner's loss", ""),
    "easy_reference": ("negative reference loss", ""),
}
_HEIGHT, _BARS_HEIGHT = 1.75, 0.9  # of the row of panels and of the bars, inches
_PANEL_WIDTH = 1.5
_TICKS, _LABELS, _HEADING = 0.46, 0.42, 0.22  # room left of, below and above axes
_BAR_LABELS = 0.24  # room below the bars
_BAR_WIDTH, _BAR_GAP, _BAR_TICKS = 0.07, 0.06, 0.52  # the color bar: width, distance, its numbers
_NAMES, _GAP = 0.14, 0.1  # room between a panel and its names, and right of them
_NARROW = 5.0  # inches
_CLIPPED = 0.02  # share of the pairs that may exceed the color scale, since a few are outliers
_DIVERGING = "RdBu_r"
_BY_RATIO = re.compile(r"learnability/filtering_ratio/([^/]+)/(independent|joint)")


@opens_store
def learnability(store: Snapshot, experiment: str, run: str | None = None) -> Plot:
    """Plot scores of pairs, of the sub-batch over iterations and by filtering ratio, and what was selected.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        experiment: Name of the experiment.
        run: Label or name of a `diagnose` run; None: the study's first.

    Returns:
        The plot, named "learnability". Its data: a row a point of panel "matrix" (x text, y image, value),
        "iterations" (a line a rule over x draws; levels without x), "ratios" (a line a number of chunks over
        x filtering ratio) and "selected" (a line a rule, text the value of the metadata column); value is the
        mean over seeds, spread the standard deviation, and of the matrix the first seed's.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: If the store does not know the experiment, or no such run of it has completed.
    """
    found = store.diagnosis(experiment, run)
    return _plot("learnability", experiment, found, _data(found))


@opens_store
def learnability_matrix(store: Snapshot, experiment: str, run: str | None = None) -> Plot:
    """Plot only the scores of all pairs of a few examples: panel "matrix" of `learnability`.

    Args and Raises are those of `learnability`; also a ValueError if the run kept no matrix.
    """
    return _alone(store, experiment, run, "learnability_matrix", "matrix")


@opens_store
def gibbs_comparison(store: Snapshot, experiment: str, run: str | None = None) -> Plot:
    """Plot only joint selection beside Gibbs sampling: panel "iterations" of `learnability`.

    Args and Raises are those of `learnability`; also a ValueError if the run measured no iterations.
    """
    return _alone(store, experiment, run, "gibbs_comparison", "iterations")


def _alone(store: Snapshot, experiment: str, run: str | None, name: str, panel: str) -> Plot:
    """One panel as a figure, with what the caption says of it."""
    found = store.diagnosis(experiment, run)
    whole = _data(found)
    data = whole[whole["panel"] == panel].dropna(axis="columns", how="all").reset_index(drop=True)
    if data.empty:
        raise NotYet(f"{found.label!r} of {experiment!r} has measured nothing for the figure {name}")
    return _plot(name, experiment, found, data)


def _plot(name: str, experiment: str, found: Diagnosis, data: pd.DataFrame) -> Plot:
    seeds = int(found.metrics["seed"].nunique())
    return Plot(name, data, _texts(experiment, found, data, seeds), draw_panels)


def _data(found: Diagnosis) -> pd.DataFrame:
    """Rows of all panels that were measured."""
    import pandas as pd

    chosen = looks(_RULES, "uniform")
    means = _means(found.metrics)
    panels = [
        _matrix(found.metrics),
        _iterations(means, {rule: chosen[rule].color for rule in _RULES}),
        _ratios(means, chosen["independent"].color, chosen["joint"].color),
        _selected(means, found, [GRAY, chosen["independent"].color, chosen["joint"].color]),
    ]
    return pd.concat([panel for panel in panels if not panel.empty], ignore_index=True)


def _means(metrics: pd.DataFrame) -> pd.DataFrame:
    """Mean (value) and standard deviation (spread) over seeds, by name and step."""
    of = metrics[metrics["name"] != "learnability_matrix"].groupby(["name", "step"])["value"]
    return of.mean().to_frame("value").assign(spread=of.std().fillna(0.0)).reset_index()


def _matrix(metrics: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    first = metrics[metrics["seed"] == metrics["seed"].min()]
    size = first.loc[first["name"] == "learnability_matrix/size", "value"]
    if size.empty:
        return pd.DataFrame()
    of = first[first["name"] == "learnability_matrix"]
    row, column = divmod(of["step"], int(size.iloc[0]))
    return pd.DataFrame({"panel": "matrix", "x": column, "y": row, "value": of["value"]})


def _iterations(means: pd.DataFrame, colors: dict[str, str]) -> pd.DataFrame:
    """Joint and Gibbs over their draws; the others as levels, since only their result matters."""
    import pandas as pd

    parts = []
    for rule, color in colors.items():
        of = means[means["name"] == f"learnability/{rule}"].rename(columns={"step": "x"})
        if rule not in ("joint", "gibbs"):
            of = of.assign(x=math.nan)
        parts.append(of.assign(panel="iterations", line=rule, text=_RULE_NAMES.get(rule, rule), color=color))
    return pd.concat(parts).drop(columns="name")


def _ratios(means: pd.DataFrame, independent: str, joint: str) -> pd.DataFrame:
    import pandas as pd

    parts = means["name"].str.extract(f"^{_BY_RATIO.pattern}$")
    of = means.assign(x=parts[0].astype(float), rule=parts[1]).dropna(subset="x")
    numbers = sorted(set(of.loc[of["rule"] == "joint", "step"]))
    color = dict(zip(numbers, shades(joint, len(numbers)), strict=True))
    rows: list[dict[str, Any]] = []
    for point in of.sort_values(["rule", "step", "x"]).to_dict("records"):
        alone = point["rule"] == "independent"
        rows.append(
            {
                "panel": "ratios",
                "line": "independent" if alone else f"joint {point['step']}",
                "text": "independent" if alone else f"N = {point['step']}",
                "color": independent if alone else color[point["step"]],
                **{name: point[name] for name in ("x", "value", "spread")},
            }
        )
    return pd.DataFrame(rows)


def _selected(means: pd.DataFrame, found: Diagnosis, colors: list[str]) -> pd.DataFrame:
    """Shares by the first metadata column, the candidates' most frequent values first."""
    import pandas as pd

    for column in found.config.get("columns", ()):
        of_rules = []
        for rule, color in zip(_BARS, colors, strict=True):
            prefix = f"selected/{rule}/{column}/"
            of = means[means["name"].str.startswith(prefix)]
            of_rules.append(of.assign(line=rule, color=color, text=of["name"].str[len(prefix) :]))
        candidates = of_rules[0].sort_values("value", ascending=False, kind="stable")
        frequent = [text for text in candidates["text"] if text != "others"][:_MOST_BARS]
        if frequent:
            all_rules = pd.concat(of_rules)
            places = all_rules["text"].map({text: place for place, text in enumerate(frequent)})
            bars = all_rules.assign(panel="selected", column=column, x=places).dropna(subset="x")
            return bars.drop(columns=["name", "step"])
    return pd.DataFrame()


def _texts(experiment: str, found: Diagnosis, data: pd.DataFrame, seeds: int) -> Texts:
    config = found.config
    b, f = int(config["batch_size"]), float(config["filtering_ratio"])
    what, meaning = _CRITERIA[config["criterion"]]
    panels, sentences = set(data["panel"]), [meaning] if meaning else []
    if "matrix" in panels:
        sentences.append("Pairs: matching ones are on the diagonal.")
    if "iterations" in panels:
        sentences.append(
            f"Iterations: sub-batches of {b:,} from {round(b / (1 - f)):,} (f = {f:g}); joint: after each of "
            f"{config['joint_chunks']} chunks, of the examples chosen so far (open); Gibbs: after each "
            "redrawn position, starting from a uniform draw; greedy: its result."
        )
    if "ratios" in panels:
        sentences.append(f"Filtering ratios: sub-batches of {b:,} from {b:,} / (1 − f), joint in N chunks.")
    if "selected" in panels:
        sentences.append(f"Bars: selected at f = {f:g}, by {data['column'].dropna().iloc[0]}.")
    if panels == {"matrix"}:
        return Texts(found.question or experiment, " ".join(sentences), "iterations", what)
    over = f"Means over {config['draws']} super-batches"
    sentences.append(
        f"{over} and {seeds} seeds; bands: ± standard deviation over seeds." if seeds > 1 else f"{over}."
    )
    return Texts(found.question or experiment, " ".join(sentences), "iterations", what)


def draw_panels(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw the panels that the data has.

    Args:
        data: As of `learnability`.
        texts: The words; `x` is the unit of iterations, `y` what is measured.
        sheet: Size, font, legend.
    """
    of = dict(list(data.groupby("panel", sort=False)))
    lines = [panel for panel in ("iterations", "ratios") if panel in of]
    keys = (Key(row["text"], row["color"]) for panel in lines for _, row in of[panel].iterrows())
    naming = Naming.of_lines(sheet, keys, math.inf, _TICKS, _NAMES + _GAP)
    direct = naming.where == "direct"
    slots = [Slot(_TICKS, _HEIGHT, _BAR_GAP + _BAR_WIDTH + points(_BAR_TICKS))] if "matrix" in of else []
    slots += [
        Slot(_TICKS, _PANEL_WIDTH, _NAMES + widest(of[panel]["text"]) + _GAP if direct else _GAP)
        for panel in lines
    ]
    if naming.where == "right":
        slots[-1] = slots[-1]._replace(right=naming.right)
    bars = points(_BARS_HEIGHT + _BAR_LABELS + _HEADING) if "selected" in of else 0.0
    all_axes = row(
        texts,
        sheet,
        slots,
        _HEIGHT,
        below=_LABELS,
        above=_HEADING,
        foot=bars + naming.foot,
        title_left=_TICKS,
    )
    figure = figure_of(all_axes[0])
    whole, total = figure.get_size_inches()
    named: list[tuple[Axes, list[End]]] = []
    rest = list(all_axes)
    if "matrix" in of:
        axes = rest.pop(0)
        frame = axes.get_position()
        beside = add_axes(
            figure, whole * frame.x1 + _BAR_GAP, total * frame.y0, _BAR_WIDTH, total * frame.height
        )
        _draw_matrix(axes, beside, of["matrix"], texts)
    for axes, panel in zip(rest, lines, strict=True):
        axes.set_title(f"{texts.y} of the sub-batch", size=points(8), pad=3)
        axes.set_ylabel("nats per example")
        draw = _draw_iterations if panel == "iterations" else _draw_ratios
        named.append((axes, draw(axes, of[panel], texts)))
    if "selected" in of:
        low = min(axes.get_position().y0 for axes in all_axes) * total - points(_LABELS)
        axes = add_axes(
            figure, points(_TICKS), low - points(_HEADING + _BARS_HEIGHT), whole - points(_TICKS) - _GAP,
            points(_BARS_HEIGHT),
        )  # fmt: skip
        _draw_bars(axes, of["selected"])
        if whole < _NARROW:  # room for the names above the bars
            axes.set_ylim(top=1.6 * axes.get_ylim()[1])
    fit(figure.axes, sheet)
    for axes, ends in named:
        if direct:
            name_ends(axes, ends)
    naming.draw(figure.axes, _BAR_LABELS if "selected" in of else _LABELS)
    return figure


def _draw_matrix(axes: Axes, bar: Axes, matrix: pd.DataFrame, texts: Texts) -> None:
    """A heat map, red where the learner has something to learn; most of the pairs' range in colors."""
    size = int(matrix["x"].max()) + 1
    scores = matrix.pivot(index="y", columns="x", values="value").to_numpy()
    limit = float(matrix["value"].abs().quantile(1 - _CLIPPED)) or 1.0
    axes.grid(False)
    image = axes.imshow(scores, cmap=_DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest")
    axes.set(xlabel="text", ylabel="image", xticks=[0, size - 1], yticks=[0, size - 1])
    axes.set(xticklabels=["1", str(size)], yticklabels=["1", str(size)])
    axes.spines[["top", "right"]].set_visible(True)
    axes.tick_params(length=0)
    axes.set_title(f"{texts.y} of pairs", size=points(8), pad=3)
    figure: Any = axes.figure
    figure.colorbar(image, cax=bar, extend="both", extendfrac=0.03)
    bar.set_ylabel("nats", labelpad=1)
    bar.grid(False)
    bar.tick_params(width=0.6, length=2, labelsize=points(7))


def _draw_iterations(axes: Axes, data: pd.DataFrame, texts: Texts) -> list[End]:
    from matplotlib.ticker import NullFormatter

    last = float(data["x"].max())
    ends = []
    for rule, line in data.groupby("line", sort=False):
        first, color = line.iloc[0], line["color"].iloc[0]
        end = float(line["value"].iloc[-1])
        if line["x"].isna().all():
            axes.axhline(end, color=color, linestyle=(0, (4, 1.5)), linewidth=0.9)
        else:
            _spread(axes, line, color)
            axes.plot(line["x"], line["value"], color=color, zorder=3)
            if rule == "joint":  # open: a part of the sub-batch; filled: the whole
                faces = ["white"] * (len(line) - 1) + [color]
                axes.scatter(
                    line["x"], line["value"], s=9, c=faces, edgecolors=color, linewidths=0.8, zorder=4
                )
            axes.hlines(end, line["x"].iloc[-1], last, colors=color, linestyles=":", linewidth=0.9)
        ends.append(End(last, end, first["text"], color))
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda x, _: units.tick(x))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(0.9, last)
    axes.set_xlabel(texts.x)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + (high - low) / 4)  # for the names of the lines that end together at the top
    return ends


def _draw_ratios(axes: Axes, data: pd.DataFrame, texts: Texts) -> list[End]:
    ends = []
    lines = list(data.groupby("line", sort=False))
    for name, line in lines:
        last, color = line.iloc[-1], line["color"].iloc[0]
        if name in (lines[0][0], lines[-1][0]):  # all bands would overlap: seeds differ by their learner
            _spread(axes, line, color)
        axes.plot(
            line["x"], line["value"], color=color, marker="D" if name == "independent" else "o",
            markersize=3, markeredgewidth=0,
        )  # fmt: skip
        ends.append(End(float(last["x"]), float(last["value"]), last["text"], color))
    axes.set_xticks(sorted(set(data["x"])))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.set_xlabel("filtering ratio f")
    return ends


def _draw_bars(axes: Axes, data: pd.DataFrame) -> None:
    rules = list(data.groupby("line", sort=False))
    width = 0.8 / len(rules)
    for place, (_, rule) in enumerate(rules):
        color = rule["color"].iloc[0]
        axes.bar(
            rule["x"] + (place - (len(rules) - 1) / 2) * width, 100 * rule["value"], 0.92 * width,
            color=color,
            yerr=100 * rule["spread"] if rule["spread"].any() else None,
            error_kw={"elinewidth": 0.6, "ecolor": ink(color)},
        )  # fmt: skip
    ticks = rules[0][1].sort_values("x")
    axes.set_xticks(ticks["x"], [text.replace("_", " ") for text in ticks["text"]])
    axes.set_ylim(bottom=0)
    axes.set(ylabel="share (%)", xlim=(-0.6, ticks["x"].max() + 0.6))
    axes.locator_params(axis="y", nbins=4)
    axes.tick_params(axis="x", length=0)
    axes.xaxis.grid(False)
    for place, (name, rule) in enumerate(rules):
        axes.annotate(
            str(name), (1.0, 1.0), xytext=(-2, -1 - points(10) * place), xycoords="axes fraction",
            textcoords="offset points", ha="right", va="top", size=label_size(),
            color=ink(rule["color"].iloc[0]), bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )  # fmt: skip


def _spread(axes: Axes, line: pd.DataFrame, color: str) -> None:
    """± the spread, where there is one."""
    if line["spread"].any():
        band(axes, line["x"], line["value"] - line["spread"], line["value"] + line["spread"], color)
