"""Rows of the paper's tables, from published cells and from own runs, in one frame.

All rows have the columns row (unique name), section, label (empty if published), method, variant, and the
bools apart, baseline, and published. For each quantity q, own rows have q (value), q_low and q_high (its 95%
confidence interval), and q_seeds. Published rows have q and q_printed, and also source and position.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from ..configs import Configs
from ..intervals import of_groups
from ..published.cell import DELTA, EXAMPLES, FILTERED, MEAN, PER_ITERATION, TOTAL
from .final_results import Finals

PAPER_FLOPS = "paper_flops"
"""Column with the FLOPs of own runs by the paper's formula, in tables that also have published rows."""

COUNTED = "_counted"
"""Suffix of columns that compare the FLOPs actually executed, in tables that also have published rows."""

_DATASETS = {"imagenet1k": "imagenet", "mscoco_captions": "coco", "cub": "birds", "caltech101": "caltech",
             "stanford_cars": "cars", "oxford_pets": "pets"}  # fmt: skip
"""Name of a dataset outside the paper, such as in CLIP_benchmark → its name in the paper's tables."""

SUFFIXES = ("_low", "_high", "_seeds", "_printed")
"""Suffixes of columns that describe the value of a quantity."""


def table_rows(
    cells: pd.DataFrame, own: Sequence[Finals], pair: bool
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Build the rows of a table.

    Args:
        cells: Published cells of the table, from `published.read`; may be empty.
        own: Results of experiments; may be empty if there are cells.
        pair: Whether zero-shot accuracy and the mean of both retrieval directions replace all own scores.

    Returns:
        The rows, and the runs behind them (`Table.parts`; None without experiments). With published rows, the
        FLOPs of runs are those of the paper's formula, or NaN if the cost of their towers is unknown.
        Additional columns have the FLOPs that the runs actually executed.
    """
    own_rows = [_own_rows(final, pair, with_published=not cells.empty) for final in own]
    published = [] if cells.empty else [_published_rows(cells)]
    rows = pd.concat([*published, *(labels for labels, _ in own_rows)], ignore_index=True)
    rows["row"] = _unique_names(rows)
    if not own_rows:
        return rows, None
    parts = pd.concat([runs for _, runs in own_rows], ignore_index=True)
    names = rows.rename(columns={"section": "experiment"})[["experiment", "label", "row"]]
    return rows, parts.merge(names, on=["experiment", "label"])


def _own_rows(final: Finals, pair: bool, with_published: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Build the rows of an experiment, one per label and compared with the baseline, and the runs."""
    frames, runs, by_label, configs = final.frames, final.runs, final.by_label, Configs(final.frames)
    is_baseline = runs["label"] == final.baseline
    examples = runs["examples_seen"]
    scores = {_in_paper(name): runs[name] for name in frames.metrics}
    if len(scores) < len(frames.metrics):  # two metrics have the same name in the paper
        scores = {name: runs[name] for name in frames.metrics}
    values: dict[str, pd.Series[float]] = {
        EXAMPLES: examples,
        DELTA: runs["delta"],
        **(_pair(scores) if pair else scores),
        MEAN: runs["score"],
    }
    flops = {"flops": runs["flops"]}
    if with_published:
        flops[PAPER_FLOPS] = _paper_flops(final, configs)
    for name, spent in flops.items():
        suffix = COUNTED if with_published and name == "flops" else ""
        total = spent / spent[is_baseline].mean()
        per_iteration = total / (examples / examples[is_baseline].mean())
        values |= {name: spent, f"{PER_ITERATION}{suffix}": per_iteration, f"{TOTAL}{suffix}": total}
    parts = runs[["fingerprint", "label", "seed"]].assign(experiment=frames.experiment, **values)

    labels = frames.labels
    rows = pd.DataFrame(
        {
            "row": labels,
            "section": frames.experiment,
            "label": labels,
            "method": [frames.shown[label] for label in labels],
            "variant": [configs.get(label, "model.variant") or "" for label in labels],
            "apart": by_label["apart"].to_numpy(),
            "published": False,
            "baseline": by_label.index == final.baseline,
            FILTERED: [float(bool(configs.get(label, "data.filter"))) for label in labels],
        }
    )
    for name in values:
        statistics = of_groups(parts[name], parts["label"]).reindex(labels)
        statistics.loc[by_label["diverged"], ["low", "high"]] = math.nan  # the other seeds are biased
        rows[[name, f"{name}_low", f"{name}_high"]] = statistics[["mean", "low", "high"]].to_numpy()
        rows[f"{name}_seeds"] = statistics["count"].fillna(0).to_numpy(int)
    for end in ("low", "high"):
        rows[f"{DELTA}_{end}"] = by_label[f"delta_{end}"].to_numpy()
    return rows, parts


def _paper_flops(final: Finals, configs: Configs) -> pd.Series[float]:
    """Compute the FLOPs of each completed run by the paper's formula, from its planned parts.

    Like C_JEST in `flops`, it reuses the scoring pass for training and ignores scoring by the reference.
    """
    planned = final.frames.costs.drop_duplicates(["label", "seed"])
    runs = final.runs[["label", "seed"]].merge(planned, on=["label", "seed"], how="left")
    towers = runs["image_tower_flops"] + runs["text_tower_flops"]
    kept = runs["label"].map({label: _kept_share(configs, label) for label in runs["label"].unique()})
    by_paper: pd.Series[float] = (towers + runs["scoring_flops"] * (1 - kept)).set_axis(final.runs.index)
    return by_paper.where(final.runs["flops"].notna())


def _kept_share(configs: Configs, label: str) -> float:
    """Return the share of candidates whose scoring pass the paper's formula reuses, but the run repeated."""
    if configs.get(label, "approximation.score") or configs.get(label, "runtime.reuse_scoring"):
        return 0.0
    trained_fully = 1.0 - float(configs.get(label, "approximation.share") or 0.0)
    return trained_fully * (1.0 - float(configs.get(label, "selection.filtering_ratio") or 0.0))


def _in_paper(name: str) -> str:
    """Name a metric as the paper's tables do."""
    dataset, _, metric = name.partition("/")
    return f"{_DATASETS.get(dataset, dataset)}/{metric}"


def _pair(scores: Mapping[str, pd.Series[float]]) -> Mapping[str, pd.Series[float]]:
    """Choose zero-shot accuracy and the mean of both retrieval directions; if there are none, all scores."""
    kept = {name: values for name, values in scores.items() if name.endswith("/zero_shot")}
    for name, values in scores.items():
        if name.endswith("/i2t_r1") and (other := name.replace("/i2t_", "/t2i_")) in scores:
            kept[name.replace("/i2t_", "/mean_")] = (values + scores[other]) / 2
    return kept or scores


def _published_rows(cells: pd.DataFrame) -> pd.DataFrame:
    """Build the rows of published cells, in sections by source and group."""
    key = ["source", "position"]
    rows = cells.groupby(key, sort=False)[["method", "variant", "group", "baseline"]].first()
    for values, suffix in (("value", ""), ("printed", "_printed")):
        rows = rows.join(cells.pivot(index=key, columns="quantity", values=values).add_suffix(suffix))
    rows = rows.astype({"baseline": bool}).reset_index()
    group = rows.pop("group")
    return rows.assign(
        row=(rows["method"] + " " + rows["variant"]).str.strip(),
        section=rows["source"].where(group == "", rows["source"] + ": " + group),
        label="",
        apart=False,
        published=True,
    )


def _unique_names(rows: pd.DataFrame) -> pd.Series[str]:
    """Make equal names unique by appending filtered or raw, the examples, the section, or a number."""
    names, missing = rows["row"], pd.Series(None, rows.index, dtype=object)
    data = rows.get(FILTERED, missing).where(rows["published"]).map({1.0: "filtered", 0.0: "raw"})
    examples = rows.get(f"{EXAMPLES}_printed", missing)
    numbers = pd.Series([f"#{i}" for i in range(1, len(rows) + 1)], rows.index)
    for suffix in (data, examples, "(" + rows["section"] + ")", numbers):
        names = names.where(~names.duplicated(keep=False), (names + " " + suffix.astype("str")).fillna(names))
    return names
