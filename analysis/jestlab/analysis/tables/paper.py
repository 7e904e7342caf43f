"""The tables of the JEST paper (Evans et al., 2024): published rows, rows of own runs, or both."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import pandas as pd

from .. import units
from ..errors import NotYet
from ..intervals import INTERVAL
from ..metrics import PERCENT, Metric
from ..published.cell import (
    DELTA,
    EXAMPLES,
    FILTERED,
    MEAN,
    PER_ITERATION,
    QUANTITIES,
    TOTAL,
    is_score,
    order,
)
from . import show
from .core import BEST, ESSENTIAL, MISSING, Column, Record, Table
from .final_results import Finals
from .paper_rows import COUNTED, PAPER_FLOPS, SUFFIXES, table_rows

REMARK = "‡"
"""Start of the notes of published cells that are shown below the table, and mark of these cells."""

_COUNTED = (f"{PER_ITERATION}{COUNTED}", f"{TOTAL}{COUNTED}")
_FLOPS = (PER_ITERATION, TOTAL, *_COUNTED)
_EFFORTS = (EXAMPLES, *_FLOPS, DELTA)
_PUBLISHED_METRIC = Metric("max", PERCENT)

_WRITERS: dict[str, Callable[[float], str]] = {
    FILTERED: lambda value: "✓" if value else "✗",
    EXAMPLES: units.count,
    **dict.fromkeys(_FLOPS, lambda value: f"{100 * value:.0f}"),
}
"""Quantity → how its values are written; all others are scores, or means or differences of scores."""

_HEADERS: dict[str, tuple[str, str, int, tuple[str, ...]]] = {
    EXAMPLES: ("# train", "", 40, ()),
    FILTERED: ("filtered data?", "", 90, ()),
    PER_ITERATION: ("per iter.", "FLOPs %", 30, ("flops", EXAMPLES)),
    TOTAL: ("total", "FLOPs %", 55, ("flops",)),
    _COUNTED[0]: ("per iter.", "FLOPs %, counted", 15, ("flops", EXAMPLES)),
    _COUNTED[1]: ("total", "FLOPs %, counted", 35, ("flops",)),
    DELTA: ("mean Δ", "", 80, (MEAN,)),
    MEAN: ("mean", "", 85, ()),
}
"""Quantity → header, group, and importance of its column, and its inputs: see `Column.inputs`."""

_BY_PAPER = (
    "FLOPs %, paper: by the paper's formula, in which training reuses the scoring pass, and loss, "
    "selection, and the reference's scoring are free; published Flexi rows take A = 0.28, own rows the cost "
    "of their towers"
)


class Layout(NamedTuple):
    """Layout of one of the paper's tables: start of its caption, and quantities before the scores.

    With `mean`, the scores are followed by their mean. With `pair`, zero-shot accuracy and the mean of both
    retrieval directions replace all scores of own runs.
    """

    caption: str
    quantities: tuple[str, ...]
    mean: bool = False
    pair: bool = False


LAYOUTS: dict[str, Layout] = {
    "comparison": Layout("Comparison to prior art.", _EFFORTS),
    "longer_training": Layout("Longer training runs.", _EFFORTS),
    "specialists": Layout("All benchmarks.", (EXAMPLES,), mean=True),
    "laion": Layout("Pretraining on LAION.", (EXAMPLES,), pair=True),
    "raw_vs_filtered": Layout("Training on raw and on filtered data.", (FILTERED,), pair=True),
}
"""Name → layout."""


def paper_table(name: str, published: pd.DataFrame, own: Sequence[Finals] = ()) -> Table:
    """Build one of the paper's tables, or another published table.

    Published rows are in sections by source and group, and the rows of each experiment are one section. Each
    section has a separate baseline. A score that several sections have is in one column.

    Args:
        name: A key of `LAYOUTS`, or the name of another published table, shown in the layout of "comparison".
        published: Published cells of any tables, from `published.read`. Cells of this table are shown.
        own: Results of experiments.

    Returns:
        The table. The docstring of `paper_rows` describes its frame.

    Raises:
        ValueError: The table would have no rows.
    """
    layout = LAYOUTS.get(name, LAYOUTS["comparison"])
    cells = published[published["table"] == name]
    if cells.empty and not own:
        raise NotYet(f"no published results for {name}: run jestlab published import, or name an experiment")
    rows, parts = table_rows(cells, own, layout.pair)
    placed: pd.DataFrame | None = None
    remarks: dict[tuple[str, str], str] = {}
    if not cells.empty:
        names = rows.loc[rows["published"], ["source", "position", "row"]]
        placed = cells.merge(names, on=["source", "position"]).assign(column=lambda cell: cell["quantity"])
        marked = placed.loc[placed["note"].str.startswith(REMARK), ["row", "column", "note"]]
        remarks = {(row, key): note for row, key, note in marked.itertuples(index=False, name=None)}
    columns = [Column("method", "method", lambda row: row["method"], align="left", importance=ESSENTIAL)]
    if rows.groupby("published")["variant"].nunique().max() > 1:
        columns.append(
            Column("variant", "variant", lambda row: row["variant"] or MISSING, align="left", importance=95)
        )
    scores = [name for name in map(str, rows) if is_score(name) and not name.endswith(SUFFIXES)]
    scores.sort(key=order)
    for quantity in (*layout.quantities, *scores, *[MEAN] * layout.mean):
        if quantity in rows:
            columns.append(_column(quantity, scores, own, PAPER_FLOPS in rows, remarks))
    first = rows[rows["baseline"]].drop_duplicates("section").set_index("section")["row"]
    against = rows["section"].map(first).fillna(rows["row"])
    shown = rows[["row", "label", "method"]].itertuples(index=False, name=None)
    about = [
        f"{REMARK} {row}, {column.title}: {note.removeprefix(REMARK).strip()}"
        for column in columns
        for (row, quantity), note in remarks.items()
        if quantity == column.key
    ]
    return Table(
        name=name,
        caption=_caption(layout, cells, own),
        frame=rows.drop(columns="label"),
        columns=tuple(columns),
        own_notes=(*about, *_notes(layout, cells, own)),
        parts=parts,
        published=placed,
        baselines={row: other for row, other in zip(rows["row"], against, strict=True) if row != other},
        shown={row: method for row, label, method in shown if label not in ("", method)},
    )


# ---- columns


def _column(
    quantity: str,
    scores: Sequence[str],
    own: Sequence[Finals],
    by_paper: bool,
    remarks: Collection[tuple[str, str]],
) -> Column:
    """Make the column of a quantity; `remarks` are the rows and quantities of the cells to mark."""
    results = {final.frames.experiment: final for final in own}
    header, group, importance, inputs = _HEADERS.get(quantity) or (*_heading(quantity, scores, own), 60, ())
    if by_paper and quantity in (PER_ITERATION, TOTAL):
        group = "FLOPs %, paper"
        inputs = tuple(PAPER_FLOPS if name == "flops" else name for name in inputs)
    family = "scores" if is_score(quantity) or quantity == MEAN else ""

    def metric(row: Record) -> Metric:
        if row["published"]:
            return _PUBLISHED_METRIC
        final = results[row["section"]]
        if is_score(quantity):
            return final.frames.declared.of(quantity.replace("/mean_r1", "/i2t_r1"))
        return final.metric

    def text(row: Record) -> str:
        value = float(row[quantity])
        if isinstance(printed := row.get(f"{quantity}_printed"), str):
            return printed
        if math.isnan(value):
            return MISSING
        if quantity in _WRITERS:
            return _WRITERS[quantity](value)
        ends = row[f"{quantity}_low"], row[f"{quantity}_high"]
        if quantity == DELTA:
            return show.interval(value, *ends, metric(row), "+")
        return show.mean(value, *ends, row[f"{quantity}_seeds"], row[f"{EXAMPLES}_seeds"], metric(row))

    def rank(row: Record) -> float:
        if quantity == DELTA and not row["published"]:
            return math.nan  # the means are ranked, including that of the baseline
        value = float(row[quantity])
        return -round(value, 2) if quantity in _FLOPS else metric(row).rank(value)

    def mark(row: Record) -> str:
        return REMARK if (row["row"], quantity) in remarks else ""

    return Column(
        quantity,
        header,
        text,
        rank if family or quantity in (DELTA, TOTAL, _COUNTED[1]) else None,
        group=group,
        mark=mark,
        seeds=f"{quantity}_seeds" if family or quantity == DELTA else "",
        formula=_formula(quantity, own),
        inputs=inputs,
        compares=bool(inputs),
        importance=importance,
        family=family,
    )


def _formula(quantity: str, own: Sequence[Finals]) -> str:
    """Explain a quantity, and how it is computed for own runs."""
    meaning = QUANTITIES.get(quantity.removesuffix(COUNTED), "final score")
    if not own or quantity in (EXAMPLES, FILTERED, *_FLOPS):
        return meaning
    how = f"paired by seed, mean over seeds [{INTERVAL}]" if quantity == DELTA else "mean over seeds"
    if not is_score(quantity):
        for final in own:
            how += f"; in {final.frames.experiment} the mean of {', '.join(final.frames.averaged)}"
    return f"{meaning}; own runs: {how}"


def _heading(score: str, scores: Sequence[str], own: Sequence[Finals]) -> tuple[str, str]:
    """Return heading and group of a score, from its name in the experiments, or its metric and dataset."""
    names = {final.frames.declared.called(scores)[score] for final in own} - {score}
    if len(names) == 1:
        return names.pop(), ""
    dataset, metric = score.split("/", 1)
    title, header = QUANTITIES.get(score, dataset).split(",")[0], show.METRICS.get(metric, metric)
    is_group = sum(name.startswith(f"{dataset}/") for name in scores) > 1
    return (header, title) if is_group else (f"{title} {header}", "")


# ---- words


def _caption(layout: Layout, cells: pd.DataFrame, own: Sequence[Finals]) -> str:
    sources = ", ".join(dict.fromkeys(cells["source"]))
    names = ", ".join(final.frames.experiment for final in own)
    raw = [*dict.fromkeys(cells.loc[cells["unit"] == "share", "source"])]
    raw += [final.frames.experiment for final in own if not final.metric.in_percent]
    but = f", except those of {units.listed(raw)}" if raw else ""
    parts = [layout.caption, f"Published: {sources}." * bool(sources), f"Own runs: {names}." * bool(names)]
    return " ".join(filter(None, [*parts, f"Scores in %{but}."]))


def _notes(layout: Layout, cells: pd.DataFrame, own: Sequence[Finals]) -> Iterator[str]:
    cited = cells.loc[cells["citation"] != "", ["method", "citation"]].drop_duplicates()
    if len(cited):
        yield ", ".join(f"{method}: {citation}" for method, citation in cited.itertuples(index=False))
    if not own:
        return
    if PER_ITERATION in layout.quantities:
        against = ", ".join(f"{final.against} in {final.frames.experiment}" for final in own)
        yield f"FLOPs % and mean Δ of own runs: against {against}"
        counted = own[0].frames.counted(own[0].scope)
        yield from [f"FLOPs %, counted: {counted}", _BY_PAPER] if len(cells) else [f"FLOPs %: {counted}"]
    if len(cells):
        yield "published and own rows are comparable only with the same data, resolution, and evaluation"
    yield f"own runs: mean over seeds [{INTERVAL}]; bold: {BEST}"
    yield from dict.fromkeys(note for final in own for note in final.gaps)
