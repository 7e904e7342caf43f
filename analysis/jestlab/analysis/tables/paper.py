"""The paper's tables: published rows, own runs, or both side by side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import units
from ..frames import NotYet
from ..intervals import INTERVAL
from ..metrics import PERCENT, Metric
from ..published.cell import (
    COUNTED,
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
from .core import ESSENTIAL, Column, Record, Table
from .final_results import Finals
from .rows import OwnRows, own_rows, published_rows, with_unique_names

if TYPE_CHECKING:
    import pandas as pd

LINTED = "‡"

_EFFORTS = (EXAMPLES, PER_ITERATION, TOTAL, DELTA)
_COUNTED = (f"{PER_ITERATION}{COUNTED}", f"{TOTAL}{COUNTED}")
_INPUTS = {
    DELTA: (MEAN,),
    PER_ITERATION: ("flops", EXAMPLES),
    TOTAL: ("flops",),
    **dict(zip(_COUNTED, (("flops", EXAMPLES), ("flops",)), strict=True)),
}
"""What a quantity of a run follows from, together with the same of its baseline."""

_IMPORTANCE = {
    FILTERED: 90, MEAN: 85, DELTA: 80, TOTAL: 55, EXAMPLES: 40, PER_ITERATION: 30,
    **dict(zip(_COUNTED, (15, 35), strict=True)),
}  # fmt: skip
"""Importance of the columns; that of scores is 60."""

_COMPARED_FLOPS = (
    "FLOPs %, paper: by the paper's formula, in which the scoring pass is kept for the gradient, and neither "
    "loss, selection nor the reference's scoring is priced; published Flexi rows take A = 0.28, own rows the "
    "cost of their towers. FLOPs %, counted: what own runs execute; published rows have no such figure"
)

_TONED_DOWN = 0.8  # the paper multiplies differences by this before it clips them at the full colour

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
        caption: What it is about.
        leading: Quantities before the scores.
        trailing: Quantities after them.
        variants: Whether it has a column for the variant.
        pair: Whether of own runs zero-shot accuracy and the mean of both retrieval directions stand for all
            scores.
        colour_range: How far from the baseline a score lies that is coloured fully, but for the toning down;
            None for no colour.
    """

    caption: str
    leading: tuple[str, ...]
    trailing: tuple[str, ...] = ()
    variants: bool = True
    pair: bool = False
    colour_range: float | None = None


LAYOUTS: dict[str, Layout] = {
    "comparison": Layout("Comparison to prior art.", _EFFORTS),
    "longer_training": Layout("Longer training runs.", _EFFORTS),
    "specialists": Layout(
        "All benchmarks, against the baseline.",
        (EXAMPLES,),
        trailing=(MEAN,),
        variants=False,
        colour_range=0.05,
    ),
    "laion": Layout("Pretraining on LAION.", (EXAMPLES,), variants=False, pair=True),
    "raw_vs_filtered": Layout(
        "Training on raw and on filtered data.", (FILTERED,), variants=False, pair=True, colour_range=0.1
    ),
}
"""Name → layout."""


def paper_table(name: str, published: pd.DataFrame, own: Sequence[Finals] = ()) -> Table:
    """Build one of the paper's tables, or another published table.

    Published rows stand in sections by source and group, each experiment in one of its own, and each section
    has its own baseline. A score that several sections have stands in one column.

    Args:
        name: One of `LAYOUTS`, or what a published table is called: it is laid out like the comparison.
        published: Published cells of any tables, from `published.read`. Those of this table are shown; the
            others are what its cells are checked against.
        own: Experiments.

    Returns:
        The table. Its frame is as `rows` says.

    Raises:
        ValueError: There is nothing to show.
    """
    import pandas as pd

    layout = LAYOUTS.get(name, LAYOUTS["comparison"])
    cells = published[published["table"] == name]
    mine = [own_rows(each, layout.pair, not cells.empty) for each in own]
    if cells.empty and not mine:
        raise NotYet(_nothing_to_show(name, published))
    of_papers = [] if cells.empty else [published_rows(cells)]
    rows = with_unique_names(pd.concat([*of_papers, *(each.rows for each in mine)], ignore_index=True))
    found = [check for check in checks(published) if any(key.table == name for key in check.keys)]
    flaws = [check for check in found if not check.confirmed]
    flawed = {key for flaw in flaws for key in flaw.keys if key.table == name}
    several = rows["section"].nunique() > 1
    meant = _Meant(rows, {each.frames.experiment: each for each in own})
    table = Table(
        name=name,
        caption=_caption(layout, cells, own),
        frame=rows if several else rows.assign(section=""),
        columns=_columns(layout, rows, flawed, name, own, meant),
        notes=tuple(_notes(layout, cells, own, flaws)),
        parts=_parts(mine, rows) if mine else None,
        published=None if cells.empty else _placed(cells, rows, found),
        baselines=_baselines(rows),
        shown=_shown(mine, rows),
    )
    return show.with_marks_explained(table)


_PUBLISHED = Metric("max", PERCENT)

_MEAN_OF_DIRECTIONS = "/mean_r1"


class _Meant:
    """What the scores of each row mean: those that are published are percentages of which more is better."""

    def __init__(self, rows: pd.DataFrame, own: Mapping[str, Finals]) -> None:
        mine = rows[~rows["published"]]
        self._own = {row: own[section] for row, section in zip(mine["row"], mine["section"], strict=True)}

    def __call__(self, row: Record, quantity: str) -> Metric:
        """Return what a score of a row means, or the mean of its scores, or a difference of such."""
        if row["row"] not in self._own:
            return _PUBLISHED
        finals = self._own[row["row"]]
        if not is_score(quantity):
            return finals.metric
        return finals.frames.declared.of(quantity.replace(_MEAN_OF_DIRECTIONS, "/i2t_r1"))


def _nothing_to_show(name: str, published: pd.DataFrame) -> str:
    if published.empty:
        return (
            "the store holds no published results: run jestlab published import, or name an experiment: "
            f"jestlab table {name} EXPERIMENT"
        )
    known = ", ".join(dict.fromkeys(published["table"]))
    return f"no published table {name!r}: expected one of {known}"


def _baselines(rows: pd.DataFrame) -> dict[str, str]:
    """Map each row to the baseline of its section."""
    of_section: dict[str, str] = dict(rows.loc[rows["baseline"], ["section", "row"]].itertuples(index=False))
    pairs = zip(rows["row"], rows["section"], strict=True)
    return {row: of_section[at] for row, at in pairs if at in of_section and row != of_section[at]}


def _parts(mine: Sequence[OwnRows], rows: pd.DataFrame) -> pd.DataFrame:
    """Join the runs of all experiments with the names of their rows."""
    import pandas as pd

    own = rows[~rows["published"]]
    named = pd.DataFrame({"experiment": own["section"], "label": _labels(mine), "row": own["row"]})
    runs = pd.concat([each.parts for each in mine], ignore_index=True)
    return runs.drop(columns="row").merge(named, on=["experiment", "label"])


def _labels(mine: Sequence[OwnRows]) -> list[str]:
    """Labels of own runs, in the order of their rows."""
    return [str(label) for each in mine for label in each.rows["row"]]


def _shown(mine: Sequence[OwnRows], rows: pd.DataFrame) -> dict[str, str]:
    """Map the rows of own runs to what is shown for them, where that differs from their labels."""
    own = rows[~rows["published"]]
    named = zip(own["row"], own["method"], _labels(mine), strict=True)
    return {str(row): str(method) for row, method, label in named if method != label}


def _placed(cells: pd.DataFrame, rows: pd.DataFrame, found: list[Finding]) -> pd.DataFrame:
    """Join the cells with the row and column that show them, and the result of recalculating them."""
    named = rows.loc[rows["published"], ["source", "position", "row"]]
    said: dict[CellKey, list[str]] = {}
    for check in found:
        for key in check.keys:
            said.setdefault(key, []).append(check.message)
    placed = cells.merge(named, on=["source", "position"])
    keys = zip(placed["source"], placed["table"], placed["position"], placed["quantity"], strict=True)
    checked = ["; ".join(said.get(CellKey(*key), [])) for key in keys]
    return placed.assign(column=placed["quantity"], check=checked)


def _columns(
    layout: Layout,
    rows: pd.DataFrame,
    flawed: set[CellKey],
    table: str,
    own: Sequence[Finals],
    meant: _Meant,
) -> tuple[Column, ...]:
    scores = _scores(rows)
    several = Counter(_dataset(name) for name in scores)
    mixed = _COUNTED[0] in rows.columns
    leading = [*layout.leading]
    if mixed and TOTAL in leading:
        at = leading.index(TOTAL) + 1
        leading[at:at] = _COUNTED
    shown = [*leading, *scores, *layout.trailing]
    inputs = _INPUTS | ({PER_ITERATION: ("paper_flops", EXAMPLES), TOTAL: ("paper_flops",)} if mixed else {})
    baselines = rows[rows["baseline"]].drop_duplicates("section").set_index("section")
    is_one_section = rows["section"].nunique() == 1
    called = _called(scores, own)

    def mark(quantity: str) -> Callable[[Record], str]:
        def of(row: Record) -> str:
            if row["published"]:
                key = CellKey(str(row["source"]), table, int(row["position"]), quantity)
                return LINTED if key in flawed else ""
            return show.ONE_SEED if row.get(f"{quantity}_seeds") == 1 and _family(quantity) else ""

        return of

    def shade(quantity: str) -> Callable[[Record], float] | None:
        if layout.colour_range is None or not (is_score(quantity) or quantity == MEAN):
            return None
        full, of_baseline = layout.colour_range, dict(baselines[quantity])
        # One section alone has no heading: its rows name none.
        alone = next(iter(of_baseline.values()), math.nan) if is_one_section else math.nan

        def of(row: Record) -> float:
            metric = meant(row, quantity)
            if row["apart"] or not metric.in_percent:
                return 0.0
            gap = metric.sign * (float(row[quantity]) - of_baseline.get(row["section"], alone))
            return 0.0 if math.isnan(gap) else max(-1.0, min(1.0, _TONED_DOWN * gap / full))

        return of

    def column(quantity: str) -> Column:
        header, group = _heading(quantity, several, mixed)
        if quantity in called:
            header, group = called[quantity], ""
        return Column(
            quantity, header, _text(quantity, meant), _rank(quantity, meant), group=group,
            shade=shade(quantity), mark=mark(quantity), formula=_formula(quantity, own, mixed),
            inputs=inputs.get(quantity, ()), compares=quantity in inputs,
            align="center" if quantity == FILTERED else "right",
            importance=60 if is_score(quantity) else _IMPORTANCE.get(quantity, 50),
            family=_family(quantity),
            data=(quantity, *(f"{quantity}_{end}" for end in ("printed", "std", "seeds", "low", "high"))),
            takes_digits=bool(_family(quantity)),
        )  # fmt: skip

    variant = Column(
        "variant", "Variant", lambda row: str(row["variant"]) or show.MISSING, align="left", importance=95
    )
    return (
        Column("method", "Method", lambda row: str(row["method"]), align="left", importance=ESSENTIAL),
        *([variant] if layout.variants and (rows["variant"] != "").any() else []),
        *(column(quantity) for quantity in shown if quantity in rows.columns),
    )


def _called(scores: Sequence[str], own: Sequence[Finals]) -> dict[str, str]:
    """Map scores to the names that the specs of own runs declare, where they agree on one."""
    found: dict[str, str] = {}
    for score in scores:
        declared = {each.frames.declared.called(scores)[score] for each in own} - {score}
        if len(declared) == 1:
            found[score] = declared.pop()
    return found


def _family(quantity: str) -> str:
    """Return the name for all columns of the kind of a quantity; empty if it does not vary with the seed."""
    if is_score(quantity) or quantity == MEAN:
        return "scores"
    return "differences" if quantity == DELTA else ""


def _scores(rows: pd.DataFrame) -> list[str]:
    """List the scores that any row has, those of a dataset together."""
    columns = [str(name) for name in rows.columns if not str(name).endswith(("_std", "_seeds", "_printed"))]
    names = sorted(filter(is_score, columns), key=order)
    datasets = list(dict.fromkeys(_dataset(name) for name in names))
    return sorted(names, key=lambda name: datasets.index(_dataset(name)))


def _dataset(score: str) -> str:
    return score.split("/", 1)[0]


def _heading(quantity: str, several: Counter[str], mixed: bool) -> tuple[str, str]:
    """Return the heading of a quantity, and the one over its group."""
    if is_score(quantity):
        dataset, metric = quantity.split("/", 1)
        title, short = _DATASETS.get(dataset, dataset), _METRICS.get(metric, metric)
        if several[dataset] > 1:
            return short, title
        return (title, "") if dataset in _DATASETS and metric == "10_shot" else (f"{title} {short}", "")
    flops = "FLOPs %, paper" if mixed else "FLOPs %"
    headers = {
        EXAMPLES: ("# Train", ""),
        FILTERED: ("Filtered data?", ""),
        PER_ITERATION: ("Per iter.", flops),
        TOTAL: ("Total", flops),
        _COUNTED[0]: ("Per iter.", "FLOPs %, counted"),
        _COUNTED[1]: ("Total", "FLOPs %, counted"),
        DELTA: ("Mean Δ", ""),
        MEAN: ("Mean", ""),
    }
    return headers[quantity]


def _text(quantity: str, meant: _Meant) -> Callable[..., str]:
    """Make a function that writes a row's value: as it was printed, or in our own format."""

    def own(row: Record, value: float, digits: int | None) -> str:
        if quantity == FILTERED:
            return "✓" if value else "✗"
        if quantity == EXAMPLES:
            return units.count(value)
        if quantity in (PER_ITERATION, TOTAL, *_COUNTED):
            return f"{100 * value:.0f}"
        metric = show.to_digits(meant(row, quantity), digits)
        if quantity == DELTA:
            return show.difference(value, row[f"{DELTA}_low"], row[f"{DELTA}_high"], metric)
        std, count = row[f"{quantity}_std"], row[f"{quantity}_seeds"]
        return show.mean(value, std, count, row[f"{EXAMPLES}_seeds"], metric)

    def text(row: Record, digits: int | None = None) -> str:
        printed, value = row.get(f"{quantity}_printed"), row.get(quantity, math.nan)
        if isinstance(printed, str):
            return printed
        return show.MISSING if value is None or math.isnan(value) else own(row, float(value), digits)

    return text


def _rank(quantity: str, meant: _Meant) -> Callable[..., float] | None:
    """Make a function that ranks rows: by the score's goal, and by the lowest cost."""
    if quantity in (TOTAL, _COUNTED[1]):
        return lambda row: -round(float(row[quantity]), 2)
    if _family(quantity):
        return lambda row, digits: show.to_digits(meant(row, quantity), digits).rank(float(row[quantity]))
    return None


def _formula(quantity: str, own: Sequence[Finals], mixed: bool) -> str:
    meaning = QUANTITIES.get(quantity.removesuffix(COUNTED), "final score")
    if not own or not (_family(quantity) or quantity in (PER_ITERATION, TOTAL, *_COUNTED)):
        return meaning
    if mixed and quantity in (PER_ITERATION, TOTAL):
        return f"{meaning}; own runs: by the paper's formula, from their planned parts"
    if quantity in (PER_ITERATION, TOTAL, *_COUNTED):
        return f"{meaning}; own runs: FLOPs of {own[0].frames.counted(own[0].scope)}"
    averaged = "; ".join(
        f"in {finals.frames.experiment} the mean of {', '.join(finals.averaged)}" for finals in own
    )
    if quantity == DELTA:
        return f"{meaning}; own runs: paired by seed, mean over seeds [{INTERVAL}], {averaged}"
    return f"{meaning}; own runs: mean over seeds{f', {averaged}' if quantity == MEAN else ''}"


def _caption(layout: Layout, cells: pd.DataFrame, own: Sequence[Finals]) -> str:
    sources = list(dict.fromkeys(cells["source"]))
    whose = [f"Published: {', '.join(sources)}."] if sources else []
    if own:
        names = ", ".join(finals.frames.experiment for finals in own)
        whose.append(f"Own runs: {names}.")
    units_of_scores = "Scores in % unless a note says otherwise." if _mixed(cells, own) else "Scores in %."
    return " ".join([layout.caption, *whose, units_of_scores])


def _mixed(cells: pd.DataFrame, own: Sequence[Finals]) -> list[str]:
    """List sources and experiments whose scores are not in percent."""
    return [
        *dict.fromkeys(cells.loc[cells["unit"] == "share", "source"]),
        *(finals.frames.experiment for finals in own if not finals.metric.in_percent),
    ]


def _notes(layout: Layout, cells: pd.DataFrame, own: Sequence[Finals], flaws: list[Finding]) -> list[str]:
    said = [f"{LINTED} {finding.message}" for finding in flaws]
    if len(cells):
        cited = cells.loc[cells["citation"] != "", ["method", "citation"]].drop_duplicates()
        pairs = [f"{method}: {citation}" for method, citation in cited.itertuples(index=False)]
        said += [", ".join(pairs)] if pairs else []
    said += [f"{whose}: raw scores, not in %" for whose in _mixed(cells, own)]
    if PER_ITERATION in layout.leading and own:
        against = ", ".join(f"{finals.against} in {finals.frames.experiment}" for finals in own)
        counted = own[0].frames.counted(own[0].scope)
        flops = "counted FLOPs" if len(cells) else "FLOPs"
        said.append(f"FLOPs % and Mean Δ of own runs: against {against}; {flops}: {counted}")
        said += [_COMPARED_FLOPS] if len(cells) else []
    if len(cells) and own:
        said.append("published and own rows compare only where data, resolution and evaluation are the same")
    if layout.colour_range is not None:
        said.append("colour: score above or below the baseline of the section")
    if own:
        said.append("own runs: mean ± standard deviation over seeds")
    for finals in own:
        said += [note for note in finals.gaps if note not in said]
    return said
