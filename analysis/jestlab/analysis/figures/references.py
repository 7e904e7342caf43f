"""Gains of learners against the gains of the references that they select with (paper, Figure 5)."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from .. import units
from ..configs import Configs, lookup
from ..frames import Frames, NotYet
from ..names import Shown
from .against import draw_points, final_scores, summarized, value_text, with_looks
from .plot import Plot, Texts, about_lost, about_seeds, difference_axis, scale, title, what_score_is
from .style import looks

if TYPE_CHECKING:
    import pandas as pd

_EXAMPLES, _CURATION = "schedule.examples_seen", "data.filter"
_ORDERED = "by examples seen"
_PANELS = {"by curation": (_CURATION, _EXAMPLES), _ORDERED: (_EXAMPLES, _CURATION)}
"""Panel → the key that differs between its references, and the key that doesn't."""

_LONG = 28  # characters: the name of a run replaces a longer filter


def against_reference(frames: Frames, baseline: str | None = None) -> Plot:
    """Plot each learner against the reference that it selects with, both relative to the baseline.

    One panel compares references that were trained on different data, another those that have seen different
    numbers of examples. If neither differs, there is one panel of all.

    Args:
        frames: Results of an experiment.
        baseline: Label or run that is 0 on both axes; by default the first that is not a reference.

    Returns:
        The plot, with the data of `against`. x is the reference's score and y the learner's, both minus the
        baseline's with the same seed. Rows of kind "path" connect points in order.

    Raises:
        ValueError: Fewer than two references have completed with their learners, the baseline has not
            completed, or it is unknown.
    """
    import pandas as pd

    compared, configs = frames.baseline(baseline), Configs(frames)
    pairs = _pairs(frames, configs, compared)
    references = list(dict.fromkeys(pairs["reference"]))
    if len(references) < 2:
        raise NotYet(
            f"experiment {frames.experiment!r} has {len(references)} references that completed with their "
            f"learners; a comparison needs two: {frames.progress()}"
        )
    parts, chosen = [], looks(references, "")
    for panel, texts in _panels(references, configs, frames.shown).items():
        rows = pairs[pairs["reference"].isin(texts)]
        rows = rows.sort_values("reference", key=lambda names: names.map(list(texts).index), kind="stable")
        several = rows.groupby("reference")["label"].transform("nunique") > 1
        text = rows["reference"].map(texts)
        text = text.mask(several, text + ", " + rows["label"].map(frames.shown))
        rows = summarized(rows.assign(panel=panel, line=rows["label"], text=text, planned=1, tick=None))
        parts.append(with_looks(rows, chosen, "reference"))
        if panel == _ORDERED:
            parts.append(rows[rows["kind"] == "mean"].assign(kind="path"))
    x, y = (f"{whose}'s {difference_axis(frames, compared)}" for whose in ("reference", "learner"))
    zero: dict[str, Any] = {"kind": "level", "line": "", "text": frames.shown[compared], "color": "#000000"}
    zero |= dict.fromkeys(("x", "y", "low", "high"), 0.0)
    data = pd.concat(parts, ignore_index=True)
    levels = pd.DataFrame([zero | {"panel": panel} for panel in data["panel"].unique()])
    data = pd.concat([data, levels], ignore_index=True).assign(x_label=x, y_label=y)
    data["title"] = data["panel"]
    sentences = [
        what_score_is(frames),
        f"Each point: a learner and the reference it selects with, both minus {frames.shown[compared]} with "
        "the same seed, each at the end of its own run.",
        *(about_seeds(data["seeds"].max()) or ["One seed each."]),
        *about_lost(frames, dict.fromkeys([compared, *pairs["reference"], *pairs["label"]])),
    ]
    return Plot("against_reference", data, Texts(title(frames), " ".join(sentences), x, y), draw_points)


def _pairs(frames: Frames, configs: Configs, baseline: str) -> pd.DataFrame:
    """Return one row per learner and seed: label, reference, seed, x, y, both minus the baseline's score."""
    finals = final_scores(frames).set_index(["label", "seed"])["score"].unstack("label") * scale(frames)
    if baseline not in finals:
        raise NotYet(
            f"baseline {baseline!r} of {frames.experiment!r} has not completed with a score: "
            f"{frames.progress()}"
        )
    gains = finals.sub(finals[baseline], axis=0).melt(value_name="y", ignore_index=False)
    gains = gains.dropna().reset_index()
    gains["reference"] = gains["label"].map({label: configs.reference(label) for label in frames.labels})
    references = gains[["label", "seed", "y"]].rename(columns={"label": "reference", "y": "x"})
    pairs: pd.DataFrame = gains.merge(references, on=["reference", "seed"])
    return pairs.sort_values("label", key=lambda labels: labels.map(frames.labels.index), kind="stable")


def _panels(references: list[str], configs: Configs, shown: Shown) -> dict[str, dict[str, str]]:
    """Return the references of each panel, in order, with the texts of their points."""
    values = {
        key: {label: lookup(configs.by_label[label], key) for label in references}
        for key in (_CURATION, _EXAMPLES)
    }
    found = {}
    for panel, (key, fixed) in _PANELS.items():
        groups: dict[str, list[str]] = {}
        for label in references:
            groups.setdefault(json.dumps(values[fixed][label]), []).append(label)
        group = max(groups.values(), key=len)
        texts = {label: _text(key, values[key][label], shown[label]) for label in group}
        if key == _EXAMPLES:
            texts = {
                label: texts[label] for label in sorted(group, key=lambda label: values[key][label] or 0)
            }
        if len(set(texts.values())) > 1:
            counts = Counter(texts.values())
            found[panel] = {
                label: text if counts[text] == 1 or text == shown[label] else f"{text} ({shown[label]})"
                for label, text in texts.items()
            }
    return found or {"": {label: shown[label] for label in references}}


def _text(key: str, value: Any, name: str) -> str:
    """Name a reference by what it was trained on, or by its own name if that is shorter."""
    if key == _EXAMPLES:
        return units.count(value or 0)
    text = "no filter" if value is None else value_text(value)
    return text if len(text) <= _LONG else name
