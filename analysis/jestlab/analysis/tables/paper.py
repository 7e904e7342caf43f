"""The paper's tables: published rows, rows of own runs, or both in one table."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from .. import units
from ..errors import NotYet
from ..intervals import INTERVAL
from ..metrics import PERCENT, Metric
from ..published import cells_of
from ..published.cell import (
    DELTA,
    EXAMPLES,
    FILTERED,
    MEAN,
    PER_ITERATION,
    QUANTITIES,
    TOTAL,
    CellKey,
    is_score,
    order,
)
from ..published.lint import Finding, checks
from . import show
from .core import ESSENTIAL, Column, Record, Table, records
from .final_results import Finals
from .paper_rows import COUNTED, PAPER_FLOPS, table_rows

if TYPE_CHECKING:
    import pandas as pd

LINTED = "‡"

_COUNTED = (f"{PER_ITERATION}{COUNTED}", f"{TOTAL}{COUNTED}")
_EFFORTS = (EXAMPLES, PER_ITERATION, TOTAL, *_COUNTED, DELTA)
_FLOPS = (PER_ITERATION, TOTAL, *_COUNTED)
_PUBLISHED = Metric("max", PERCENT)  # of published scores

_HEADERS: dict[str, tuple[str, str, int, tuple[str, ...]]] = {
    EXAMPLES: ("# Train", "", 40, ()),
    FILTERED: ("Filtered data?", "", 90, ()),
    PER_ITERATION: ("Per iter.", "FLOPs %", 30, ("flops", EXAMPLES)),
    TOTAL: ("Total", "FLOPs %", 55, ("flops",)),
    _COUNTED[0]: ("Per iter.", "FLOPs %, counted", 15, ("flops", EXAMPLES)),
    _COUNTED[1]: ("Total", "FLOPs %, counted", 35, ("flops",)),
    DELTA: ("Mean Δ", "", 80, (MEAN,)),
    MEAN: ("Mean", "", 85, ()),
}
"""Quantity → header, group, and importance of its column, and the values of a run and its baseline from which
it is computed."""

_IMPORTANCE_OF_SCORES = 60

_BY_PAPER = (
    "by the paper's formula, in which training reuses the scoring pass, and loss, selection, and the "
    "reference's scoring are free; published Flexi rows take A = 0.28, own rows the cost of their towers"
)

_TONED_DOWN = 0.8  # the paper multiplies differences by this factor before it clips them at the full color

_DATASETS = {
    "imagenet": "ImageNet-1K",
    "coco": "COCO",
    "birds": "Birds",
    "caltech": "Caltech",
    "cars": "Cars",
    "pets": "Pets",
}
_METRICS = {
    "10_shot": "10-S",
    "zero_shot": "ZS",
    "i2t_r1": "I2T",
    "t2i_r1": "T2I",
    "mean_r1": "mean of I2T, T2I",
}


@dataclass(frozen=True)
class Layout:
    """Layout of one of the paper's tables.

    Attributes:
        caption: Beginning of the caption.
        leading: Quantities before the scores.
        trailing: Quantities after the scores.
        variants: Whether the table has a column for the variant.
        pair: Whether zero-shot accuracy and the mean of both retrieval directions replace all scores of runs.
        color_range: Difference to the baseline with the full color, before it is toned down; None without
            colors.
    """

    caption: str
    leading: tuple[str, ...]
    trailing: tuple[str, ...] = ()
    variants: bool = True
    pair: bool = False
    color_range: float | None = None


LAYOUTS: dict[str, Layout] = {
    "comparison": Layout("Comparison to prior art.", _EFFORTS),
    "longer_training": Layout("Longer training runs.", _EFFORTS),
    "specialists": Layout(
        "All benchmarks, against the baseline.",
        (EXAMPLES,),
        trailing=(MEAN,),
        variants=False,
        color_range=0.05,
    ),
    "laion": Layout("Pretraining on LAION.", (EXAMPLES,), variants=False, pair=True),
    "raw_vs_filtered": Layout(
        "Training on raw and on filtered data.", (FILTERED,), variants=False, pair=True, color_range=0.1
    ),
}
"""Name → layout."""


def paper_table(name: str, published: pd.DataFrame, own: Sequence[Finals] = ()) -> Table:
    """Build one of the paper's tables, or another published table.

    Published rows are in sections by source and group, and the rows of each experiment are one section. Each
    section has a baseline. The same score of several sections has one column.

    Args:
        name: A key of `LAYOUTS`, or the name of a published table, which has the layout of the comparison.
        published: Published cells of any tables, from `published.read`. Those of this table are shown, and
            checked against all others.
        own: Results of experiments.

    Returns:
        The table; `paper_rows` describes its frame.

    Raises:
        ValueError: There are no rows.
    """
    layout = LAYOUTS.get(name, LAYOUTS["comparison"])
    cells = published[published["table"] == name]
    if cells.empty and not own:
        if published.empty:
            raise NotYet(
                "the store holds no published results: run jestlab published import, or name an experiment"
            )
        known = ", ".join(dict.fromkeys(published["table"]))
        raise NotYet(f"no published table {name!r}: expected one of {known}; or name an experiment")
    rows, parts = table_rows(cells, own, layout.pair)
    findings = [
        found for found in checks(cells_of(published)) if any(key.table == name for key in found.keys)
    ]
    wrong = [found for found in findings if not found.confirmed]
    flops = {"counted": own[0].frames.counted(own[0].scope)} if own else {}
    if len(cells):
        flops = {"paper": _BY_PAPER, **flops}
    columns = _Columns(name, layout, rows, own, flops, {key for found in wrong for key in found.keys})
    of_runs = rows[~rows["published"]]
    labels = zip(of_runs["row"], of_runs["label"], of_runs["method"], strict=True)
    frame = rows.drop(columns="label")
    return Table(
        name=name,
        caption=_caption(layout, cells, own),
        frame=frame if rows["section"].nunique() > 1 else frame.assign(section=""),
        columns=columns.all(),
        notes=tuple(_notes(layout, cells, own, flops, wrong)),
        parts=parts,
        published=None if cells.empty else _placed(cells, rows, findings),
        baselines={row: best["row"] for row, best in columns.baselines.items() if best["row"] != row},
        shown={row: method for row, label, method in labels if method != label},
    )


def _placed(cells: pd.DataFrame, rows: pd.DataFrame, findings: Sequence[Finding]) -> pd.DataFrame:
    """Add to the cells their row and column in the table, and the results of recalculating them."""
    messages: dict[CellKey, list[str]] = {}
    for finding in findings:
        for key in finding.keys:
            messages.setdefault(key, []).append(finding.message)
    placed = cells.merge(
        rows.loc[rows["published"], ["source", "position", "row"]], on=["source", "position"]
    )
    keys = placed[list(CellKey._fields)].itertuples(index=False, name=None)
    return placed.assign(
        column=placed["quantity"], check=["; ".join(messages.get(CellKey(*key), [])) for key in keys]
    )


# ---- columns


@dataclass(frozen=True)
class _Columns:
    """Makes the columns of a table.

    Attributes:
        table: Name of the table.
        layout: Its layout.
        rows: Its rows.
        own: Results of experiments.
        flops: How FLOPs of runs are counted (paper, counted) → what is included; the default first.
        wrong: Published cells that contradict others.
    """

    table: str
    layout: Layout
    rows: pd.DataFrame
    own: Sequence[Finals]
    flops: Mapping[str, str]
    wrong: Collection[CellKey]

    def all(self) -> tuple[Column, ...]:
        """Make all columns."""
        columns = [
            Column("method", "Method", lambda row: str(row["method"]), align="left", importance=ESSENTIAL)
        ]
        if self.layout.variants and (self.rows["variant"] != "").any():
            columns.append(
                Column(
                    "variant",
                    "Variant",
                    lambda row: str(row["variant"]) or show.MISSING,
                    align="left",
                    importance=95,
                )
            )
        quantities = [*self.layout.leading, *self.scores, *self.layout.trailing]
        return (*columns, *(self.column(each) for each in quantities if each in self.rows.columns))

    def column(self, quantity: str) -> Column:
        """Make the column of a quantity."""
        header, group, importance, inputs = _HEADERS.get(quantity) or self.heading(quantity)
        if PAPER_FLOPS in self.rows and quantity in (PER_ITERATION, TOTAL):
            group = "FLOPs %, paper"
            inputs = tuple(PAPER_FLOPS if name == "flops" else name for name in inputs)
        family = _family(quantity)
        is_shaded = self.layout.color_range is not None and family == "scores"
        return Column(
            quantity,
            header,
            partial(self.text, quantity),
            partial(self.rank, quantity) if family or quantity in (TOTAL, _COUNTED[1]) else None,
            align="center" if quantity == FILTERED else "right",
            group=group,
            shade=partial(self.shade, quantity) if is_shaded else None,
            mark=partial(self.mark, quantity),
            seeds=f"{quantity}_seeds" if family else "",
            formula=self.formula(quantity),
            inputs=inputs,
            compares=bool(inputs),
            importance=importance,
            family=family,
        )

    @cached_property
    def scores(self) -> list[str]:
        """The scores of any row, those of a dataset next to each other."""
        columns = [str(name) for name in self.rows.columns]
        names = [name for name in columns if not name.endswith(("_std", "_seeds", "_printed"))]
        names = sorted(filter(is_score, names), key=order)
        datasets = list(dict.fromkeys(map(_dataset, names)))
        return sorted(names, key=lambda name: datasets.index(_dataset(name)))

    def heading(self, score: str) -> tuple[str, str, int, tuple[str, ...]]:
        """Return the header, the group, the importance, and no inputs of a score's column."""
        names = {each.frames.declared.called(self.scores)[score] for each in self.own} - {score}
        dataset, metric = score.split("/", 1)
        title, short = _DATASETS.get(dataset, dataset), _METRICS.get(metric, metric)
        if len(names) == 1:  # the experiments declare one name
            header, group = names.pop(), ""
        elif sum(_dataset(each) == dataset for each in self.scores) > 1:
            header, group = short, title
        else:
            is_usual = dataset in _DATASETS and metric == "10_shot"
            header, group = title if is_usual else f"{title} {short}", ""
        return header, group, _IMPORTANCE_OF_SCORES, ()

    @cached_property
    def results(self) -> dict[str, Finals]:
        """Row → the results of its experiment, for rows of runs."""
        experiments = {each.frames.experiment: each for each in self.own}
        runs = self.rows[~self.rows["published"]]
        return {row: experiments[name] for row, name in zip(runs["row"], runs["section"], strict=True)}

    def metric(self, quantity: str, row: Record) -> Metric:
        """Return the meaning of a score, or of a mean or difference of scores."""
        if row["row"] not in self.results:
            return _PUBLISHED
        found = self.results[row["row"]]
        metric = found.metric
        if is_score(quantity):
            metric = found.frames.declared.of(quantity.replace("/mean_r1", "/i2t_r1"))
        return metric

    def text(self, quantity: str, row: Record) -> str:
        """Write a row's value, as printed if it was published."""
        printed, value = row.get(f"{quantity}_printed"), row.get(quantity)
        if isinstance(printed, str):
            return printed
        if value is None or math.isnan(value):
            return show.MISSING
        if quantity == FILTERED:
            return "✓" if value else "✗"
        if quantity == EXAMPLES:
            return units.count(value)
        if quantity in _FLOPS:
            return f"{100 * value:.0f}"
        metric = self.metric(quantity, row)
        if quantity == DELTA:
            return show.difference(value, row[f"{DELTA}_low"], row[f"{DELTA}_high"], metric)
        std, seeds = row[f"{quantity}_std"], row[f"{quantity}_seeds"]
        return show.mean(value, std, seeds, row[f"{EXAMPLES}_seeds"], metric)

    def rank(self, quantity: str, row: Record) -> float:
        """Rank rows by the goal of the score, or by the lowest cost."""
        value = float(row[quantity])
        return -round(value, 2) if quantity in _FLOPS else self.metric(quantity, row).rank(value)

    def mark(self, quantity: str, row: Record) -> str:
        """Mark published cells that contradict others."""
        if not row["published"]:
            return ""
        key = CellKey(str(row["source"]), self.table, int(row["position"]), quantity)
        return LINTED if key in self.wrong else ""

    @cached_property
    def baselines(self) -> dict[str, Record]:
        """Row → the baseline of its section."""
        of_section = {row["section"]: row for row in records(self.rows[self.rows["baseline"]][::-1])}
        sections = zip(self.rows["row"], self.rows["section"], strict=True)
        return {row: of_section[section] for row, section in sections if section in of_section}

    def shade(self, quantity: str, row: Record) -> float:
        """Return how far a score is above (to 1) or below (to −1) that of the baseline."""
        metric, baseline = self.metric(quantity, row), self.baselines.get(row["row"])
        if row["apart"] or not metric.in_percent or baseline is None or not self.layout.color_range:
            return 0.0
        gap = metric.sign * (float(row[quantity]) - baseline[quantity])
        return 0.0 if math.isnan(gap) else max(-1.0, min(1.0, _TONED_DOWN * gap / self.layout.color_range))

    def formula(self, quantity: str) -> str:
        """Explain a quantity, and how it is computed for runs."""
        meaning = QUANTITIES.get(quantity.removesuffix(COUNTED), "final score")
        if not self.own or not (_family(quantity) or quantity in _FLOPS):
            return meaning
        if quantity in _FLOPS:
            how = self.flops["counted"] if quantity in _COUNTED else next(iter(self.flops.values()))
            return f"{meaning}; own runs: FLOPs: {how}"
        how = f"paired by seed, mean over seeds [{INTERVAL}]" if quantity == DELTA else "mean over seeds"
        if not is_score(quantity):
            for each in self.own:
                how += f"; in {each.frames.experiment} the mean of {', '.join(each.frames.averaged)}"
        return f"{meaning}; own runs: {how}"


def _family(quantity: str) -> str:
    """Return the family of a quantity's column; empty if the quantity does not vary with the seed."""
    return "differences" if quantity == DELTA else "scores" if is_score(quantity) or quantity == MEAN else ""


def _dataset(score: str) -> str:
    return score.split("/", 1)[0]


# ---- words


def _caption(layout: Layout, cells: pd.DataFrame, own: Sequence[Finals]) -> str:
    sources = ", ".join(dict.fromkeys(cells["source"]))
    names = ", ".join(each.frames.experiment for each in own)
    parts = [layout.caption, f"Published: {sources}." * bool(sources), f"Own runs: {names}." * bool(names)]
    parts.append("Scores in % unless a note says otherwise." if _raw(cells, own) else "Scores in %.")
    return " ".join(filter(None, parts))


def _raw(cells: pd.DataFrame, own: Sequence[Finals]) -> list[str]:
    """List sources and experiments whose scores are not in percent."""
    sources = dict.fromkeys(cells.loc[cells["unit"] == "share", "source"])
    return [*sources, *(each.frames.experiment for each in own if not each.metric.in_percent)]


def _notes(
    layout: Layout,
    cells: pd.DataFrame,
    own: Sequence[Finals],
    flops: Mapping[str, str],
    wrong: Sequence[Finding],
) -> Iterator[str]:
    yield from (f"{LINTED} {finding.message}" for finding in wrong)
    cited = cells.loc[cells["citation"] != "", ["method", "citation"]].drop_duplicates()
    if len(cited):
        yield ", ".join(f"{method}: {citation}" for method, citation in cited.itertuples(index=False))
    yield from (f"{name}: raw scores, not in %" for name in _raw(cells, own))
    if PER_ITERATION in layout.leading and own:
        against = ", ".join(f"{each.against} in {each.frames.experiment}" for each in own)
        yield f"FLOPs % and Mean Δ of own runs: against {against}"
        for way, included in flops.items():
            yield f"FLOPs %{f', {way}' * (len(flops) > 1)}: {included}"
    if len(cells) and own:
        yield "published and own rows compare only where data, resolution and evaluation are the same"
    if layout.color_range is not None:
        yield "color: score above or below the baseline of the section"
    if own:
        yield "own runs: mean ± standard deviation over seeds"
    yield from dict.fromkeys(note for each in own for note in each.gaps)
