"""Published cells: the paper's, in CSV files, and in a store."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis import published
from jestlab.analysis.published.cell import PublishedCell, order, read_printed

HEADER = "source,table,method,quantity,printed,unit"
LINE = "Doe,small,SigLIP,imagenet/zero_shot,70.3,percent"


def parse(*lines: str) -> list[PublishedCell]:
    return published.parse("\n".join(lines).encode(), "mine.csv")


def test_parses_a_minimal_file_in_percent_or_shares():
    row = {"source": "Doe", "table": "small", "position": 1, "method": "SigLIP"}
    assert parse(HEADER, LINE, "Doe,small,SigLIP,examples_seen,13B,") == [
        PublishedCell(**row, quantity="imagenet/zero_shot", printed="70.3", unit="percent", value=0.703),
        PublishedCell(**row, quantity="examples_seen", printed="13B", unit="count", value=13e9),
    ]
    (cell,) = parse(HEADER + ",value", LINE + ",0.70312")  # with more digits than are printed
    assert cell.value == 0.70312
    for printed, unit, value in (
        ("70.3", "percent", 0.703), ("0.703", "share", 0.703), ("−11.8", "percent", -0.118),
        ("+0.028", "share", 0.028),
    ):  # fmt: skip
        (cell,) = parse(HEADER, f"Doe,small,SigLIP,mean_delta,{printed},{unit}")
        assert (cell.value, cell.printed, cell.unit) == (value, printed, unit)


def test_numbers_rows_in_their_order():
    lines = ["Doe,a,one", "Doe,a,two", "Doe,a,one", "Doe,b,two"]
    quantities = ["birds/10_shot", "birds/10_shot", "cars/10_shot", "cars/10_shot"]
    cells = parse(HEADER, *(f"{line},{q},50,percent" for line, q in zip(lines, quantities, strict=True)))
    assert [cell.position for cell in cells] == [1, 2, 1, 1]


def test_parses_files_of_spreadsheets():
    """With a byte order mark, other line ends and separators, and upper-case names."""
    plain = parse(HEADER, LINE)
    text = f"{HEADER}\r\n{LINE}\r\n,,,,,\r\n".replace("source", "Source ")
    for separator in (",", ";", "\t"):
        assert published.parse(text.replace(",", separator).encode("utf-8-sig"), "x.csv") == plain


def but(old: str, new: str) -> str:
    """Return a valid file of one cell, with one change."""
    return f"{HEADER}\n{LINE.replace(old, new)}"


def with_column(name: str, text: str) -> str:
    return f"{HEADER},{name}\n{LINE},{text}"


TWO_ROWS = f"{HEADER},position,baseline,variant\n{LINE},1,yes,B\n"
OTHER = LINE.replace("imagenet", "birds")


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "no lines below the header"),
        (HEADER, "no lines below the header"),
        (HEADER.replace("method", "methd"), "line 1: no column 'methd': did you mean 'method'"),
        (HEADER + ",unit\n" + LINE, "line 1: duplicate column 'unit'"),
        (f"{HEADER}\n{LINE},more", "line 2: 7 cells under a header of 6"),
        (f"{HEADER}\n{LINE}\n\n{LINE}", "line 4: imagenet.* already in mine.csv, line 2"),
        (f"{HEADER}\n{LINE}".replace("method,", "").replace("SigLIP,", ""), "line 2, method: "),
        (but("SigLIP", ""), "line 2, method: "),
        (but("small", "summary"), "line 2, table: 'summary' is reserved"),
        (but("percent", ""), "line 2, unit: missing, expected percent or share"),
        (but("percent", "count"), "line 2, unit: count is not a unit of imagenet/zero_shot"),
        (but("percent", "per cent"), "line 2, unit: .* not 'per cent'"),
        (but("percent", "share"), "printed: .* above 100 %"),
        (but("70.3", "-70.3"), "printed: '-70.3' in percent is negative"),
        (but("70.3", "n/a"), "line 2, 'n/a' is not a number"),
        (but("imagenet/zero_shot", "mean_detla"), "quantity: .* did you mean 'mean_delta'"),
        (but("imagenet/zero_shot", "score"), "unknown quantity 'score': write dataset/metric"),
        (but("imagenet/zero_shot,70.3,percent", "filtered,maybe,"), "'maybe' is neither yes nor no"),
        (with_column("value", "0.8"), "line 2, value: 0.8 isn't from 0.7025 to"),
        (with_column("value", "nan"), "value: .* not 'nan'"),
        (with_column("accounting", "sgd"), "accounting: .*'iid', 'jest' or 'flexi', not 'sgd'"),
        (with_column("ours", "maybe"), "ours: .* not 'maybe'"),
        (with_column("position", "0"), "position: .* not '0'"),
        (with_column("position", ""), "position: "),
        (with_column("position", "9" * 5000), "position: "),
        (but("Doe", "D" * 2000), "source: .* 1000 characters"),
        (but("Doe", "D" * 200_000), "field larger than field limit|at most 1000 characters"),
        (but("Doe", '"Doe'), "not valid CSV: unexpected end of data"),
        (but("Doe", "D\x1b[31moe"), "source: .* printable characters"),
        (TWO_ROWS + f"{OTHER},1,yes,L", "line 3: variant of row 1 of small is 'L' here and 'B' in .*line 2"),
        (
            TWO_ROWS + f"{OTHER},2,yes,B",
            "line 3: position of the baseline of .* '2' here and '1' in .*line 2",
        ),
        (but("Doe", "Hénaff").encode("utf-16"), "line 1: not valid UTF-8"),
        (but("Doe", "Hénaff").encode("latin-1"), "line 2: not valid UTF-8"),
    ],
)
def test_errors_name_the_place(content, message):
    with pytest.raises(ValueError, match=message) as error:
        published.parse(content if isinstance(content, bytes) else content.encode(), "mine.csv")
    assert str(error.value).startswith("mine.csv") and "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_each_group_has_a_baseline():
    assert len(parse(TWO_ROWS + f"{OTHER},1,yes,B", f"{OTHER.replace('small', 't')},2,yes,B")) == 3


@given(st.binary(max_size=300))
def test_any_content_is_parsed_or_an_error_with_the_file_name(content):
    try:
        published.parse(content, "mine.csv")
    except ValueError as error:
        assert str(error).startswith("mine.csv")


def test_orders_unknown_scores_before_the_mean():
    known = ["mean", "vqa/accuracy", "imagenet/10_shot", "examples_seen", "aircraft/10_shot", "pets/10_shot"]
    assert sorted(known, key=order) == [
        "examples_seen", "imagenet/10_shot", "pets/10_shot", "aircraft/10_shot", "vqa/accuracy", "mean",
    ]  # fmt: skip


@pytest.mark.parametrize("text, value, step", [
    ("70.3", 70.3, 0.1), ("13B", 13e9, 1e9), ("12.8B", 12.8e9, 0.1e9), ("100", 100, 1), ("+2.8", 2.8, 0.1),
    ("−11.8", -11.8, 0.1), ("12,800", 12800, 1), ("600M", 600e6, 1e6), ("1T", 1e12, 1e12), ("40K", 40e3, 1e3),
])  # fmt: skip
def test_reads_a_printed_number_and_one_unit_of_its_last_digit(text, value, step):
    assert read_printed(text, "count") == pytest.approx((value, step))
    assert read_printed(text, "percent") == pytest.approx((value / 100, step / 100))


@pytest.mark.parametrize("text", [
    "", " ", "+", "B", "--1", "1.2.3", "1e5", "nan", "inf", "1,28", "1 000", "٣", "70.3±0.2", "9" * 100,
    "1_0", "1.", ".703", "70 %",
])  # fmt: skip
def test_rejects_text_that_is_not_a_printed_number(text):
    with pytest.raises(ValueError, match="is not a number"):
        read_printed(text, "share")


# ---- the paper's cells, and those of a store


def test_the_paper_s_file_is_formatted_with_a_baseline_for_each_group_and_a_note_for_each_row():
    cells = published.paper()
    file = Path(published.__file__).with_name("evans2024.csv")
    assert published.render(cells) == file.read_text(encoding="utf-8")
    assert len({(cell.table, cell.group) for cell in cells if cell.baseline}) == 2 + 2 + 1 + 1 + 1
    assert all(cell.note for cell in cells)
    assert all("ViT-B/32 at 224 px" in cell.note for cell in cells if cell.table == "laion")
    readable = {cell.citation_key: cell.citation for cell in cells if cell.citation_key}
    assert len(readable) == 9 and readable["radford2021learning"] == "Radford et al. 2021"
    assert all(re.fullmatch(r"\w+ et al\. 20\d\d", citation) for citation in readable.values())


def test_reads_the_cells_of_a_store_in_the_order_of_tables(new_store):
    store = new_store()
    store.publish(*published.paper()[::-1])
    frame = published.read(store.url)
    assert tuple(frame.columns) == published.COLUMNS and len(frame) == 233
    assert sorted(published.stored(store.url), key=repr) == sorted(published.paper(), key=repr)
    assert list(dict.fromkeys(frame["table"])) == sorted(set(frame["table"]))
    silc = frame[(frame["table"] == "comparison") & (frame["method"] == "SILC-S")]
    assert list(silc["quantity"]) == [
        "examples_seen", "flops_per_iteration", "flops_total", "mean_delta",
        "imagenet/10_shot", "imagenet/zero_shot", "coco/i2t_r1", "coco/t2i_r1",
    ]  # fmt: skip
    assert frame["baseline"].dtype == bool and frame["value"].dtype == float
    ours = frame.loc[frame["ours"], ["table", "position"]].drop_duplicates()
    assert len(ours) == 3 + 7 + 1  # rows that the paper shades: comparison, longer_training, laion
