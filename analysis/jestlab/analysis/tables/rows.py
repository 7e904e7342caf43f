"""Rows of the paper's tables in one form, from published cells or own runs.

A row has row (its name), section, method, variant, apart, ours, baseline, published and in_percent (bools;
the last: its scores are shares, shown in percent), and for each quantity q: q (its value), q_std and q_seeds
(of own runs), q_printed (of published ones); of own runs also mean_delta_low and mean_delta_high, of
published ones source and position.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..configs import Configs
from ..flops import paper_run
from ..intervals import of_groups
from ..published.cell import COUNTED, DELTA, EXAMPLES, FILTERED, MEAN, PER_ITERATION, TOTAL
from .final_results import Finals

if TYPE_CHECKING:
    import pandas as pd

_ALIASES = {
    "imagenet1k": "imagenet",
    "imagenet-1k": "imagenet",
    "mscoco": "coco",
    "mscoco_captions": "coco",
    "cub": "birds",
    "caltech101": "caltech",
    "stanford_cars": "cars",
    "oxford_pets": "pets",
}
"""Other names of the paper's benchmarks, such as CLIP_benchmark's: their scores share a column."""

_DIRECTIONS = ("i2t_r1", "t2i_r1")


class OwnRows(NamedTuple):
    """Rows of one experiment in a table.

    Attributes:
        rows: One a label.
        parts: One a completed run: row, experiment, label, seed, fingerprint, and its value of each quantity.
    """

    rows: pd.DataFrame
    parts: pd.DataFrame


def own_rows(finals: Finals, pair: bool, beside_published: bool = False) -> OwnRows:
    """Build the rows of an experiment's runs, measured against its baseline.

    Args:
        finals: Its results.
        pair: Whether zero-shot accuracy and the mean of both retrieval directions stand for all scores.
        beside_published: Whether the rows stand beside published ones: then their FLOPs are by the paper's
            formula (NaN where the towers' cost is unknown), and those counted get columns of their own.
    """
    import pandas as pd

    frames, configs = finals.frames, Configs(finals.frames)
    runs = finals.runs
    whole = runs.loc[runs["label"] == finals.baseline, ["examples_seen", "flops"]].mean()
    parts = runs[["fingerprint", "label", "seed"]].assign(row=runs["label"], experiment=frames.experiment)
    parts[EXAMPLES] = runs["examples_seen"]
    parts["flops"] = runs["flops"]
    counted = COUNTED if beside_published else ""
    each = whole["flops"] / whole["examples_seen"]
    parts[f"{PER_ITERATION}{counted}"] = runs["flops"] / runs["examples_seen"] / each
    parts[f"{TOTAL}{counted}"] = runs["flops"] / whole["flops"]
    if beside_published:
        parts["paper_flops"] = _by_the_paper(finals, configs)
        theirs = parts.loc[parts["label"] == finals.baseline, "paper_flops"].mean()
        parts[TOTAL] = parts["paper_flops"] / theirs
        parts[PER_ITERATION] = parts[TOTAL] / (parts[EXAMPLES] / whole["examples_seen"])
    parts[DELTA] = runs["delta"]
    for name, values in _scores(runs, frames.metrics, pair).items():
        parts[name] = values
    parts[MEAN] = runs["score"]
    by_label = finals.by_label
    filters = {label: configs.get(label, "data.filter") for label in frames.labels}
    rows = pd.DataFrame(
        {
            "row": frames.labels,
            "section": frames.experiment,
            "method": [frames.shown[label] for label in frames.labels],
            "variant": [configs.get(label, "model.variant") or "" for label in frames.labels],
            "apart": by_label["apart"].to_numpy(),
            "ours": (~by_label["apart"] & (by_label.index != finals.baseline)).to_numpy(),
            "published": False,
            "in_percent": finals.metric.in_percent,
            "baseline": (by_label.index == finals.baseline),
            FILTERED: [float(bool(filters[label])) for label in frames.labels],
        }
    )
    for name in parts.columns[5:]:
        spread = of_groups(parts[name], parts["label"]).reindex(frames.labels)
        rows[name], rows[f"{name}_std"] = spread["mean"].to_numpy(), spread["std"].to_numpy()
        rows[f"{name}_seeds"] = spread["count"].fillna(0).to_numpy(int)
    for end in ("low", "high"):
        rows[f"{DELTA}_{end}"] = by_label[f"delta_{end}"].to_numpy()
    return OwnRows(rows, parts)


def _by_the_paper(finals: Finals, configs: Configs) -> pd.Series[float]:
    """Compute the FLOPs of each completed run by the paper's formula, from its planned parts."""
    costs = finals.frames.costs
    towers = costs["image_tower_flops"] + costs["text_tower_flops"]
    places = zip(costs["label"], costs["seed"], strict=True)
    planned = dict(zip(places, zip(towers, costs["scoring_flops"], strict=True), strict=True))
    kept = {label: _kept_share(configs, label) for label in finals.runs["label"].unique()}
    found = [
        paper_run(*planned[label, seed], kept[label])
        for label, seed in zip(finals.runs["label"], finals.runs["seed"], strict=True)
    ]
    return finals.runs["flops"] * 0.0 + found


def _kept_share(configs: Configs, label: str) -> float:
    """Return the share of a run's candidates whose pass the paper's formula reuses, and the run did not."""
    if configs.get(label, "approximation.score") or configs.get(label, "runtime.reuse_scoring"):
        return 0.0
    trained_fully = 1.0 - float(configs.get(label, "approximation.share") or 0.0)
    return trained_fully * (1.0 - float(configs.get(label, "selection.filtering_ratio") or 0.0))


def published_rows(cells: pd.DataFrame) -> pd.DataFrame:
    """Build the rows of published cells, by source and group.

    Args:
        cells: As of `published.read`, of one table.
    """
    import pandas as pd

    rows = []
    for (source, position), row in cells.groupby(["source", "position"], sort=False):
        first = row.iloc[0]
        line: dict[str, Any] = {
            "section": f"{source}: {first['group']}" if first["group"] else source,
            "method": first["method"],
            "variant": first["variant"],
            "apart": False,
            "ours": bool(first["ours"]),
            "published": True,
            "in_percent": True,
            "baseline": bool(first["baseline"]),
            "source": source,
            "position": position,
        }
        for quantity, value, printed in zip(row["quantity"], row["value"], row["printed"], strict=True):
            line[quantity], line[f"{quantity}_printed"] = value, printed
        name = f"{first['method']} {first['variant']}".strip()
        rows.append({"row": name, **line})
    return pd.DataFrame(rows)


def with_unique_names(rows: pd.DataFrame) -> pd.DataFrame:
    """Make the names of rows unique: by their data, its amount, or their source."""
    names = [str(name) for name in rows["row"]]
    records = rows.to_dict("records")
    for more in (_filtered, _examples, _section):
        count = Counter(names)
        names = [
            f"{name} {more(row)}".strip() if count[name] > 1 else name
            for name, row in zip(names, records, strict=True)
        ]
    count = Counter(names)
    return rows.assign(row=[f"{n} #{i}" if count[n] > 1 else n for i, n in enumerate(names, start=1)])


def _scores(runs: pd.DataFrame, metrics: list[str], pair: bool) -> dict[str, pd.Series[float]]:
    """Map the names of a table's score columns to their values."""
    several = Counter(_canonical(name) for name in metrics)
    # Two that would be called the same keep their own names.
    named = {name if several[_canonical(name)] > 1 else _canonical(name): runs[name] for name in metrics}
    if not pair:
        return named
    kept = {name: values for name, values in named.items() if name.endswith("/zero_shot")}
    for dataset in dict.fromkeys(name.split("/", 1)[0] for name in named):
        both = [named.get(f"{dataset}/{direction}") for direction in _DIRECTIONS]
        if both[0] is not None and both[1] is not None:
            kept[f"{dataset}/mean_r1"] = (both[0] + both[1]) / 2
    return kept or named


def _canonical(name: str) -> str:
    dataset, metric = name.split("/", 1)
    short = dataset.lower().removeprefix("wds_")
    return f"{_ALIASES.get(short, short if short in _ALIASES.values() else dataset)}/{metric}"


def _examples(row: Mapping[Any, Any]) -> str:
    printed = row.get(f"{EXAMPLES}_printed")
    return printed if isinstance(printed, str) else ""


def _filtered(row: Mapping[Any, Any]) -> str:
    value = row.get(FILTERED)
    if not row["published"] or value is None or math.isnan(value):
        return ""
    return "filtered" if value else "raw"


def _section(row: Mapping[Any, Any]) -> str:
    return f"({row['section']})"
