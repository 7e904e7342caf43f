"""Published methods beside one's own, in score against FLOPs (paper, Figure 1, right)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..curves import score_curves
from ..frames import Frames
from ..plots import Plot, Texts
from ..published.cell import EXAMPLES, TOTAL, is_score
from ..style import GREY, looks
from .published_drawing import draw_published

if TYPE_CHECKING:
    import pandas as pd

_TABLE = "comparison"
_OURS = {"colour": "#009E73", "marker": "D"}
_OTHERS = {"colour": GREY, "marker": "o"}


def published_scores(
    cells: pd.DataFrame,
    frames: Frames | None = None,
    baseline: str | None = None,
    group: str | None = None,
    table: str = _TABLE,
) -> Plot:
    """Mean score of published methods against their FLOPs: the source's own coloured, the others grey.

    The score is the mean over what all rows of the group have. FLOPs are relative to the baseline's, as they
    are published. Runs of an experiment stand beside them, relative to their own baseline, if they have been
    evaluated on all of these.

    Args:
        cells: Published cells, from `published.read` or `published.frame`.
        frames: Results of an experiment; None for the published alone.
        baseline: Of the experiment: label or run whose FLOPs are 100%.
        group: Rows that are compared with one baseline; by default the table's first that has FLOPs.
        table: Name of the published table.

    Returns:
        The plot, named "published". Its data: rows of kind "published" and "ours" (the source's own) and
        "run" (an experiment's): text, x (FLOPs, % of the baseline's), y (score, %), examples_seen.

    Raises:
        ValueError: If there is no such table or group, or no row of it has FLOPs and the scores.
    """
    import pandas as pd

    of_table = cells[cells["table"] == table]
    if of_table.empty:
        raise ValueError(f"no published table {table!r} in the store: jestlab published import")
    priced = of_table[of_table["quantity"] == TOTAL]
    chosen = group if group is not None else next(iter(priced["group"]), "")
    rows = of_table[of_table["group"] == chosen]
    values = rows.pivot_table(index="position", columns="quantity", values="value")
    shared = [name for name in values.columns if is_score(name) and values[name].notna().all()]
    if not shared or TOTAL not in values:
        raise ValueError(
            f"group {chosen!r} of the published table {table!r} has no FLOPs, or no score in common"
        )
    whose = rows.drop_duplicates("position").set_index("position")
    found: list[dict[str, Any]] = []
    for place, row in values.iterrows():
        method = whose.loc[place]  # type: ignore[call-overload]
        point = {"kind": "ours" if method["ours"] else "published", "text": method["method"]}
        point |= {"x": 100 * row[TOTAL], "y": 100 * row[shared].mean(), "examples_seen": row.get(EXAMPLES)}
        found.append(point | (_OURS if method["ours"] else _OTHERS))
    data = pd.DataFrame(found).dropna(subset=["x", "y"])
    missing = [name for name in shared if frames is not None and name not in frames.evaluated]
    if frames is not None and not missing:
        data = pd.concat([data, _runs(frames, frames.baseline(baseline), shared)], ignore_index=True)
    sources = ", ".join(dict.fromkeys(rows["source"]))
    sentences = [
        f"as published ({sources}), mean of {', '.join(shared)}; green: that paper's own; grey: others."
    ]
    if frames is not None and missing:
        sentences.append(f"No run here has been evaluated on {', '.join(missing)}.")
    elif frames is not None:
        sentences.append("Others in colour: runs of this experiment, FLOPs relative to its own baseline.")
    caption = " ".join(sentences)
    words = Texts(
        f"Published methods, group {chosen}",
        caption,
        "training FLOPs (% of the baseline's)",
        "mean score (%)",
    )
    return Plot("published", data, words, draw_published)


def _runs(frames: Frames, baseline: str, shared: list[str]) -> pd.DataFrame:
    """Means over the seeds of each label that competes."""
    import pandas as pd

    curves = score_curves(frames, metrics=shared)
    finals = curves[curves["final"] & ~curves["label"].isin(frames.apart_from(baseline))]
    means = finals.groupby("label", sort=False)[["flops", "score", "examples_seen"]].mean()
    if baseline not in means.index:
        return pd.DataFrame()
    whole = float(means.loc[baseline, "flops"])  # type: ignore[arg-type]
    chosen = looks(list(means.index), baseline)
    rows = []
    for label, mean in means.to_dict("index").items():
        look = chosen[str(label)]
        row = {"kind": "run", "text": label, "x": 100 * mean["flops"] / whole, "y": 100 * mean["score"]}
        rows.append(
            row | {"examples_seen": mean["examples_seen"], "colour": look.colour, "marker": look.marker}
        )
    return pd.DataFrame(rows).dropna(subset=["x", "y"])
