"""The inconsistent cells of the paper's tables have notes; `recalculated` finds them, and no others."""

from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.analysis.published import recalculated

from jestlab.analysis import published
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
    return [finding for finding in recalculated.checks(cells) if not finding.confirmed]


def test_the_inconsistent_cells_of_the_paper_have_a_note_and_no_others():
    cells = published.paper()
    found = findings(cells)
    assert [(f.keys[0].table, f.keys[0].position, f.keys[0].quantity, f.expected) for f in found] == [
        ("comparison", 13, "mean_delta", "+0.9"),
        ("longer_training", 9, "mean_delta", "+0.9"),
        ("comparison", 13, "imagenet/zero_shot", "80.4"),
    ]
    places = [(key.table, key.position) for key in found[2].keys]
    assert places == [("comparison", 13), ("longer_training", 9)]
    notes = {cell.key: cell.note for cell in cells if cell.note.startswith("‡")}
    assert notes.keys() == {key for f in found for key in f.keys}
    assert all(notes[f.keys[0]].startswith(f"‡ {f.expected} ") for f in found)
    assert len(recalculated.checks(cells)) == 67 + 3


def test_writes_a_number_in_the_form_of_another():
    for value, like, text in (
        (0.009, "+1.8", "+0.9"), (-0.005, "+1.8", "−0.5"), (0.00001, "+1.8", "0.0"), (0.325, "32", "33"),
        (9.99, "100", "999"),
    ):  # fmt: skip
        (cell,) = parse(f"Doe,t,1,,row,mean_delta,{like},percent,,")
        assert recalculated.written_like(cell, value) == text


def half_up(number: Decimal) -> str:
    return f"{number.quantize(Decimal('0.1'), ROUND_HALF_UP):f}"


@given(st.decimals(-100, 100, places=5), st.integers(0, 3), st.sampled_from("+ "))
def test_a_number_is_in_the_interval_of_its_printed_form(number, places, sign):
    """Python's own decimal rounding is the oracle."""
    rounded = number.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    text = f"{rounded:+f}" if sign == "+" else f"{rounded:f}"
    (cell,) = parse(f"Doe,t,1,,row,mean_delta,{text},percent,,")
    low, _, high = recalculated.interval(cell)
    assert low - 1e-12 <= float(number) / 100 <= high + 1e-12
    if rounded:
        assert recalculated.written_like(cell, float(number) / 100) == text.replace("-", "−")


scores = st.lists(st.decimals(10, 90, places=3), min_size=8, max_size=8)
amounts = st.decimals(1, 99, places=2)


@given(scores, st.integers(1, 4), amounts, amounts, st.integers(-300, 300))
def test_cells_rounded_from_the_truth_are_consistent(truth, shared, mine, theirs, off):
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

    found = recalculated.checks(cells(Decimal()))
    assert [f for f in found if not f.confirmed] == []
    assert {f.keys[0].quantity for f in found} == {"mean_delta", "mean", "flops_per_iteration", "flops_total"}
    # A tenth for the rounding of both scores, and a twentieth for that of Δ: beyond it Δ is wrong.
    wrong = findings(cells(Decimal(off) / 1000))
    assert all(f.keys[0].quantity == "mean_delta" for f in wrong)
    if abs(off) > 260 and abs(delta + Decimal(off) / 1000) < 100:
        assert len(wrong) == 1


def test_only_cells_that_follow_from_others_are_judged():
    itself = table(base={"mean_delta": "+0.3", "flops_total": "99", "flops_per_iteration": "100"})
    corrected = {f.keys[0].quantity: f.expected for f in findings(itself)}
    assert corrected == {"flops_total": "100", "mean_delta": "0.0"}
    lines = [
        "Doe,t,1,,base,flops_per_iteration,100,percent,yes,iid",
        "Doe,t,1,,base,examples_seen,40B,,yes,iid",
    ]
    row = ["flops_per_iteration,380,percent", "examples_seen,20B,", "flops_total,{},percent"]
    for total, wrong in (("190", []), ("250", ["flops_total"])):  # without an accounting
        cells = parse(*lines, *(f"Doe,t,2,,row,{cell.format(total)},," for cell in row))
        assert [f.keys[0].quantity for f in findings(cells)] == wrong
    for method, expected in (("jest", "233"), ("flexi", "111")):
        (found,) = findings(parse(*lines, f"Doe,t,2,,row,flops_per_iteration,300,percent,,{method}"))
        assert found.expected == expected
    alone = ["Doe,t,1,,row,mean_delta,+5.0,percent,,", "Doe,t,1,,row,flops_total,7,percent,,"]
    assert recalculated.checks(parse(*alone)) == []
    assert recalculated.checks([]) == []
    nothing = "Doe,t,1,,base,examples_seen,0B,count,yes,iid"  # to divide by
    row = ["Doe,t,2,,row,examples_seen,4B,,,iid", "Doe,t,2,,row,flops_total,7,percent,,iid"]
    assert recalculated.checks(parse(nothing, *row)) == []


def test_halves_may_be_rounded_either_way():
    base, row = dict.fromkeys(SCORES[:2], "50.0"), {SCORES[0]: "50.4", SCORES[1]: "49.9"}  # +0.15 ± 0.1
    for printed, confirmed in (("0.0", True), ("0.3", True), ("0.4", False), ("−0.1", False)):
        (found,) = recalculated.checks(table(base=base, row=row | {"mean_delta": printed}))
        assert found.confirmed == confirmed


def test_a_mean_of_two_scores_counts_once():
    scores = {"coco/i2t_r1": "60.0", "coco/t2i_r1": "40.0", "coco/mean_r1": "50.0", "birds/10_shot": "20.0"}
    assert findings(table(base=scores | {"mean": "40.0"})) == []
    assert [f.expected for f in findings(table(base=scores | {"mean": "42.5"}))] == ["40.0"]
    # Nor is a derived cell reported as a difference between tables.
    row = {"coco/i2t_r1": "60.0", "coco/t2i_r1": "40.0", "examples_seen": "4B"}
    here = table(row=row | {"coco/mean_r1": "50.0"})
    there = table(row={"coco/mean_r1": "52.0", "examples_seen": "4B"})
    found = findings([*here, *(cell.model_copy(update={"table": "other"}) for cell in there)])
    assert [(f.keys[0].table, f.expected) for f in found] == [("other", "50.0")]


@pytest.mark.parametrize("printed, elsewhere, differs", [
    ("80.4", {}, True), ("80.42", {}, True), ("80.52", {}, False),  # more digits of the same
    ("80.4", {"source": "Roe"}, False), ("80.4", {"variant": "B"}, False), ("80.4", {"data": "raw"}, False),
])  # fmt: skip
def test_the_same_cell_in_another_table(printed, elsewhere, differs):
    row: dict[str, Any] = {"source": "Doe", "method": "JEST", "variant": "L"}
    score = {"quantity": "imagenet/zero_shot", "printed": "80.5", "unit": "percent"}
    seen = {"quantity": "examples_seen", "printed": "4B"}
    here = [PublishedCell(**row, **each, table="a", position=1) for each in (score, seen)]
    row |= {"table": "b", "position": 3} | elsewhere
    there = [PublishedCell(**row, **each) for each in (score | {"printed": printed}, seen)]
    expected = [(here[0].key, there[0].key)] if differs else []
    assert [f.keys for f in findings([*here, *there])] == expected
    assert findings([here[0], there[0]]) == []  # it may be another training
    longer = PublishedCell(**row, **seen | {"printed": "8B"})
    assert findings([*here, there[0], longer]) == []
