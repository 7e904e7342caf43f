"""The figure of a diagnosis: how learnable the batches are that the rules select (paper, Figure 2)."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from .frames import Diagnosis, diagnosis
from .panels import draw_panels
from .plots import Plot, Texts
from .style import GREY, looks, shades

if TYPE_CHECKING:
    import pandas as pd

_RULES = ("uniform", "joint", "gibbs", "independent", "greedy")
_NAMES = {"gibbs": "Gibbs"}
_BARS = ("candidates", "independent", "joint")
_MOST_BARS = 8
_CRITERIA = {
    "learnability": ("learnability", "Learnability: loss of the learner less that of the reference."),
    "hard_learner": ("learner's loss", ""),
    "easy_reference": ("negative reference loss", ""),
}
_BY_RATIO = re.compile(r"learnability/filtering_ratio/([^/]+)/(independent|joint)")


def learnability(url: str, experiment: str, run: str | None = None) -> Plot:
    """Scores of pairs, of the sub-batch over iterations and by filtering ratio, and what was selected.

    Args:
        url: SQLAlchemy URL of the store.
        experiment: Its name.
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
    import pandas as pd

    found = diagnosis(url, experiment, run)
    dressed = looks(_RULES, "uniform")
    means = _means(found.metrics)
    panels = [
        _matrix(found.metrics),
        _iterations(means, {rule: dressed[rule].colour for rule in _RULES}),
        _ratios(means, dressed["independent"].colour, dressed["joint"].colour),
        _selected(means, found, [GREY, dressed["independent"].colour, dressed["joint"].colour]),
    ]
    data = pd.concat([panel for panel in panels if not panel.empty], ignore_index=True)
    seeds = int(found.metrics["seed"].nunique())
    return Plot("learnability", data, _texts(experiment, found, data, seeds), draw_panels)


def learnability_matrix(url: str, experiment: str, run: str | None = None) -> Plot:
    """The scores of all pairs of a few examples, alone (paper, Figure 2, left).

    Args:
        url: SQLAlchemy URL of the store.
        experiment: Its name.
        run: Label or name of a `diagnose` run; None: the study's first.

    Returns:
        The plot, named "learnability_matrix", with the data of that panel of `learnability`.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: As `learnability`, or the run kept no matrix.
    """
    return _alone(url, experiment, run, "learnability_matrix", "matrix")


def gibbs_comparison(url: str, experiment: str, run: str | None = None) -> Plot:
    """The score of the sub-batch over iterations: joint selection beside Gibbs sampling (paper, Figure 2).

    Args:
        url: SQLAlchemy URL of the store.
        experiment: Its name.
        run: Label or name of a `diagnose` run; None: the study's first.

    Returns:
        The plot, named "gibbs_comparison", with the data of the panel "iterations" of `learnability`.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: As `learnability`, or the run measured no iterations.
    """
    return _alone(url, experiment, run, "gibbs_comparison", "iterations")


def _alone(url: str, experiment: str, run: str | None, name: str, panel: str) -> Plot:
    """One panel of the figure as a figure, with what the caption says of it."""
    found = diagnosis(url, experiment, run)
    whole = learnability(url, experiment, run)
    data = whole.data[whole.data["panel"] == panel].dropna(axis="columns", how="all")
    if data.empty:
        raise ValueError(f"{found.label!r} of {experiment!r} has measured nothing for the figure {name}")
    seeds = int(found.metrics["seed"].nunique())
    return Plot(name, data.reset_index(drop=True), _texts(experiment, found, data, seeds), draw_panels)


def _means(metrics: pd.DataFrame) -> pd.DataFrame:
    """Over seeds, by name and step: value and spread."""
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


def _iterations(means: pd.DataFrame, colours: dict[str, str]) -> pd.DataFrame:
    """Joint and Gibbs over their draws; the others, which are done at once or not of interest until they are
    done, as levels."""
    import pandas as pd

    parts = []
    for rule, colour in colours.items():
        of = means[means["name"] == f"learnability/{rule}"].rename(columns={"step": "x"})
        if rule not in ("joint", "gibbs"):
            of = of.assign(x=math.nan)
        parts.append(of.assign(panel="iterations", line=rule, text=_NAMES.get(rule, rule), colour=colour))
    return pd.concat(parts).drop(columns="name")


def _ratios(means: pd.DataFrame, independent: str, joint: str) -> pd.DataFrame:
    import pandas as pd

    parts = means["name"].str.extract(f"^{_BY_RATIO.pattern}$")
    of = means.assign(x=parts[0].astype(float), rule=parts[1]).dropna(subset="x")
    numbers = sorted(set(of.loc[of["rule"] == "joint", "step"]))
    colour = dict(zip(numbers, shades(joint, len(numbers)), strict=True))
    rows: list[dict[str, Any]] = []
    for row in of.sort_values(["rule", "step", "x"]).to_dict("records"):
        alone = row["rule"] == "independent"
        rows.append(
            {
                "panel": "ratios",
                "line": "independent" if alone else f"joint {row['step']}",
                "text": "independent" if alone else f"N = {row['step']}",
                "colour": independent if alone else colour[row["step"]],
                **{name: row[name] for name in ("x", "value", "spread")},
            }
        )
    return pd.DataFrame(rows)


def _selected(means: pd.DataFrame, found: Diagnosis, colours: list[str]) -> pd.DataFrame:
    """Shares by the first metadata column that there is, the candidates' most frequent values first."""
    import pandas as pd

    for column in found.config.get("columns", ()):
        of_rules = []
        for rule, colour in zip(_BARS, colours, strict=True):
            prefix = f"selected/{rule}/{column}/"
            of = means[means["name"].str.startswith(prefix)]
            of_rules.append(of.assign(line=rule, colour=colour, text=of["name"].str[len(prefix) :]))
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
        sentences.append("Pairs: matching ones lie on the diagonal.")
    if "iterations" in panels:
        sentences.append(
            f"Iterations: sub-batches of {b:,} from {round(b / (1 - f)):,} (f = {f:g}); joint: after each of "
            f"{config['joint_chunks']} chunks, of the examples chosen until then (open); Gibbs: after each "
            "place drawn anew, from a uniform draw on; greedy: when it is done."
        )
    if "ratios" in panels:
        sentences.append(f"Filtering ratios: sub-batches of {b:,} from {b:,} / (1 − f), jointly in N chunks.")
    if "selected" in panels:
        sentences.append(f"Bars: selected at f = {f:g}, by {data['column'].dropna().iloc[0]}.")
    if panels == {"matrix"}:
        return Texts(found.question or experiment, " ".join(sentences), "iterations", what)
    over = f"Means over {config['draws']} super-batches"
    sentences.append(
        f"{over} and {seeds} seeds; bands: ± standard deviation over seeds." if seeds > 1 else f"{over}."
    )
    return Texts(found.question or experiment, " ".join(sentences), "iterations", what)
