"""Derived cells of published tables, calculated again: what cannot be right is found, and nothing else."""

from __future__ import annotations

import itertools
from dataclasses import replace
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis import published
from jestlab.analysis.published import lint
from jestlab.analysis.published.cell import PublishedCell

SCORES = ["imagenet/10_shot", "imagenet/zero_shot", "coco/i2t_r1", "coco/t2i_r1"]
HEADER = "source,table,position,group,method,quantity,printed,unit,baseline,accounting"


def parse(*lines: str) -> list[PublishedCell]:
    return published.parse("\n".join([HEADER, *lines]).encode(), "mine.csv")


def table(**rows: dict[str, str]) -> list[PublishedCell]:
    """Cells of rows, the first of which is the baseline."""
    return parse(*(
        f"Doe,small,{number},,{method},{quantity},{printed},"
        f"{'count' if quantity == 'examples_seen' else 'percent'},{'yes' if number == 1 else ''},iid"
        for number, (method, cells) in enumerate(rows.items(), start=1)
        for quantity, printed in cells.items()
    ))  # fmt: skip


def findings(cells):
    return [finding for finding in lint.checks(cells) if not finding.confirmed]


def brief(findings):
    return [(f.table, f.row, f.column, f.printed, f.expected, f.possible) for f in findings]


@pytest.mark.parametrize("as_frame", [True, False])
def test_what_cannot_be_right_in_the_paper_and_nothing_else(as_frame):
    cells = published.paper()
    found = findings(published.frame(cells) if as_frame else cells)
    assert brief(found) == [
        ("comparison", "JEST++ L, 4B", "mean_delta", "+1.8", "+0.9", ("+0.8", "+1.0")),
        ("longer_training", "JEST++ L, 4B", "mean_delta", "+1.8", "+0.9", ("+0.8", "+1.0")),
        ("comparison", "JEST++ L, 4B", "imagenet/zero_shot", "80.5", "80.4", ("80.4", "80.4")),
    ]
    assert [(key.table, key.position) for key in found[2].keys] == [
        ("comparison", 13),
        ("longer_training", 9),
    ]
    assert found[0].value == pytest.approx(0.009) and found[1].value == pytest.approx(0.00875)
    assert all(
        found[0].message.count(word) for word in ("row 13", "cannot be right", "SigLIP L, 40B", "+0.9")
    )


def test_every_derived_column_of_the_paper_is_calculated_again():
    """By plain arithmetic of this test, on numbers read off the paper's cells."""
    cells = published.paper()
    checks = {f.keys[0]: f for f in lint.checks(cells) if not f.others}
    value = {cell.key: cell.value for cell in cells}
    derived = [c for c in cells if c.quantity in ("flops_per_iteration", "flops_total", "mean_delta", "mean")]
    given = [c.key for c in derived if c.method == "SILC-S" and c.quantity == "flops_per_iteration"]
    assert {c.key for c in derived} - set(given) < set(checks)
    assert {key.quantity for key in set(checks) - {c.key for c in derived}} == {"coco/mean_r1"}
    baselines = {(c.table, c.group): c.position for c in cells if c.baseline}
    per_iteration = {"iid": 1, "jest": 7 / 3, "flexi": 0.5 + 0.5 * 0.28 + 5 * 0.28 / 3}
    for cell in derived:
        if cell.key in given:
            continue
        of = baselines[cell.table, cell.group]

        def at(quantity, position, cell=cell):
            return value.get(cell.key._replace(quantity=quantity, position=position))

        own, theirs = ({s: at(s, p) for s in SCORES if at(s, p) is not None} for p in (cell.position, of))
        wanted = {
            "flops_per_iteration": per_iteration[cell.accounting] if cell.accounting else None,
            "mean_delta": fmean(own[s] - theirs[s] for s in own),
            "mean": fmean(v for k, v in value.items() if k[:3] == cell.key[:3] and "/" in k.quantity),
            "flops_total": (at("flops_per_iteration", cell.position) or 0)
            * at("examples_seen", cell.position) / at("examples_seen", of),
        }[cell.quantity]  # fmt: skip
        assert checks[cell.key].value == pytest.approx(wanted)


def test_the_mean_over_coco_comes_from_another_table():
    cells = published.paper()
    (found,) = [f for f in lint.checks(cells) if f.column == "coco/mean_r1"]
    assert (found.table, found.row, found.confirmed) == ("raw_vs_filtered", "JEST++ B, 4B", True)
    wrong = [replace(c, printed="62.9", value=0.629) if c.key == found.keys[0] else c for c in cells]
    (f,) = [f for f in findings(wrong) if f.column == "coco/mean_r1"]
    assert f.expected == "61.8" and "the mean of 70.3 and 53.3, in comparison, is" in f.message


def half_up(number: Decimal) -> str:
    return f"{number.quantize(Decimal('0.1'), ROUND_HALF_UP):f}"


scores = st.lists(st.decimals(10, 90, places=3), min_size=8, max_size=8)


@given(
    scores,
    st.integers(1, 4),
    st.decimals(1, 99, places=2),
    st.decimals(1, 99, places=2),
    st.integers(-300, 300),
)
def test_what_is_rounded_from_the_truth_is_never_a_finding(truth, shared, mine, theirs, off):
    """Numbers with more digits than are printed, and means of them before any rounding."""
    base, row = dict(zip(SCORES, truth[:4], strict=True)), dict(zip(SCORES[:shared], truth[4:], strict=False))
    delta = sum((row[s] - base[s] for s in row), Decimal()) / len(row)
    mean, total = sum(row.values(), Decimal()) / len(row), 100 * mine / theirs

    def cells(wrong: Decimal) -> list[PublishedCell]:
        return table(
            base={s: half_up(v) for s, v in base.items()} | {"examples_seen": f"{half_up(theirs)}B"},
            row={s: half_up(v) for s, v in row.items()}
            | {"mean_delta": half_up(delta + wrong), "mean": half_up(mean), "flops_per_iteration": "100"}
            | {"examples_seen": f"{half_up(mine)}B", "flops_total": half_up(total)},
        )  # fmt: skip

    found = lint.checks(cells(Decimal()))
    assert [f for f in found if not f.confirmed] == []
    assert {f.column for f in found} == {"mean_delta", "mean", "flops_per_iteration", "flops_total"}
    # A tenth for the rounding of both scores, and a twentieth for that of Δ: beyond it nothing can be right.
    wrong = findings(cells(Decimal(off) / 1000))
    assert all(f.column == "mean_delta" for f in wrong)
    if abs(off) > 260 and abs(delta + Decimal(off) / 1000) < 100:
        assert len(wrong) == 1


def test_the_possible_are_all_that_could_be_printed():
    """By trying all corners of what the printed numbers stand for."""
    (found,) = lint.checks(
        table(
            base=dict.fromkeys(SCORES[:2], "50.0"),
            row={SCORES[0]: "50.4", SCORES[1]: "49.9", "mean_delta": "0.2"},
        )
    )  # fmt: skip
    half = Decimal("0.05")
    corners = [
        (Decimal("50.4") + a - b + Decimal("49.9") + c - d - 50 * 2 + 0 * e) / 2
        for a, b, c, d, e in itertools.product((-half, half), repeat=5)
    ]
    assert found.interval == (float(min(corners)) / 100, float(max(corners)) / 100)
    least, greatest = min(corners).quantize(Decimal("0.1"), ROUND_HALF_DOWN), half_up(max(corners))
    assert found.possible == (f"{least}", greatest) == ("0.0", "0.3")


def test_of_a_baseline_all_is_measured_by_itself():
    cells = table(base={"mean_delta": "+0.3", "flops_total": "99", "flops_per_iteration": "100"})
    assert [(f.column, f.expected) for f in findings(cells)] == [
        ("flops_total", "100"),
        ("mean_delta", "0.0"),
    ]


def test_figures_without_an_accounting_are_taken_as_they_are():
    lines = [
        "Doe,t,1,,base,flops_per_iteration,100,percent,yes,iid",
        "Doe,t,1,,base,examples_seen,40B,,yes,iid",
    ]
    row = ["flops_per_iteration,380,percent", "examples_seen,20B,", "flops_total,{},percent"]
    for total, wrong in (("190", []), ("250", ["flops_total"])):
        cells = parse(*lines, *(f"Doe,t,2,,row,{cell.format(total)},," for cell in row))
        assert [f.column for f in findings(cells)] == wrong
    (jest,) = findings(parse(*lines, "Doe,t,2,,row,flops_per_iteration,300,percent,,jest"))
    assert (jest.expected, jest.possible) == ("233", ("233", "233"))


def test_what_follows_from_nothing_is_not_judged():
    assert (
        lint.checks(parse("Doe,t,1,,row,mean_delta,+5.0,percent,,", "Doe,t,1,,row,flops_total,7,percent,,"))
        == []
    )
    assert lint.checks([]) == [] and findings(published.frame([])) == []
    base = "Doe,t,1,,base,examples_seen,0B,count,yes,iid"  # nothing to divide by
    assert (
        lint.checks(
            parse(base, "Doe,t,2,,row,examples_seen,4B,,,iid", "Doe,t,2,,row,flops_total,7,percent,,iid")
        )
        == []
    )


def test_a_mean_of_two_scores_counts_once():
    scores = {"coco/i2t_r1": "60.0", "coco/t2i_r1": "40.0", "coco/mean_r1": "50.0", "birds/10_shot": "20.0"}
    assert findings(table(base=scores | {"mean": "40.0"})) == []
    assert [f.expected for f in findings(table(base=scores | {"mean": "42.5"}))] == ["40.0"]


@pytest.mark.parametrize(
    "printed, confirmed", [("0.0", True), ("0.3", True), ("0.4", False), ("−0.1", False)]
)
def test_what_only_a_half_rounded_the_other_way_could_give_may_be_right(printed, confirmed):
    base, row = dict.fromkeys(SCORES[:2], "50.0"), {SCORES[0]: "50.4", SCORES[1]: "49.9"}
    (found,) = lint.checks(table(base=base, row=row | {"mean_delta": printed}))
    assert found.confirmed == confirmed  # +0.15 ± 0.1


def test_a_derived_cell_is_no_difference_as_well():
    row = {"coco/i2t_r1": "60.0", "coco/t2i_r1": "40.0", "examples_seen": "4B"}
    here, there = (
        table(row=row | {"coco/mean_r1": "50.0"}),
        table(row={"coco/mean_r1": "52.0", "examples_seen": "4B"}),
    )
    found = findings([*here, *(replace(cell, table="other") for cell in there)])
    assert [(f.table, f.expected) for f in found] == [("other", "50.0")]


@pytest.mark.parametrize(
    "elsewhere, differs",
    [
        ({}, True),
        ({"printed": "80.42", "value": 0.8042}, True),
        ({"printed": "80.52", "value": 0.8052}, False),  # more digits of the same
        ({"source": "Roe"}, False),  # somebody else trained it again
        ({"variant": "B"}, False),
        ({"data": "raw"}, False),
    ],
)
def test_the_same_cell_in_another_table(elsewhere, differs):
    cell = PublishedCell("Doe", "a", 1, "JEST", "imagenet/zero_shot", "80.5", "percent", 0.805, variant="L")
    seen = replace(cell, quantity="examples_seen", printed="4B", unit="count", value=4e9)
    of_row = {k: v for k, v in elsewhere.items() if k not in ("printed", "value")}
    other = replace(cell, table="b", position=3, **({"printed": "80.4", "value": 0.804} | elsewhere))
    cells = [cell, seen, other, replace(seen, table="b", position=3, **of_row)]
    found = findings(cells)
    assert [f.others for f in found] == ([(other.key,)] if differs else [])
    assert findings(cells[::2]) == []  # without a budget, nobody knows whether it is the same training
    longer = replace(cells[3], printed="8B", value=8e9)
    assert findings([*cells[:3], longer]) == []
