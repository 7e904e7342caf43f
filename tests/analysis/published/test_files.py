"""CSV files of published cells: what is taken, what comes back, and what is said of mistakes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis import published
from jestlab.analysis.published.cell import ACCOUNTINGS, QUANTITIES, PublishedCell

HEADER = "source,table,method,quantity,printed,unit"
LINE = "Doe,small,SigLIP,imagenet/zero_shot,70.3,percent"


def parse(*lines: str) -> list[PublishedCell]:
    return published.parse("\n".join(lines).encode(), "mine.csv")


def test_the_least_that_a_file_has_to_say():
    assert parse(HEADER, LINE, "Doe,small,SigLIP,examples_seen,13B,") == [
        PublishedCell("Doe", "small", 1, "SigLIP", "imagenet/zero_shot", "70.3", "percent", 0.703),
        PublishedCell("Doe", "small", 1, "SigLIP", "examples_seen", "13B", "count", 13e9),
    ]


def test_rows_are_numbered_as_they_come():
    lines = ["Doe,a,one", "Doe,a,two", "Doe,a,one", "Doe,b,two"]
    quantities = ["birds/10_shot", "birds/10_shot", "cars/10_shot", "cars/10_shot"]
    cells = parse(HEADER, *(f"{line},{q},50,percent" for line, q in zip(lines, quantities, strict=True)))
    assert [cell.position for cell in cells] == [1, 2, 1, 1]


def test_as_spreadsheets_write_it():
    """Excel's mark at the beginning, its line ends, its separator in half of the world, upper-case names."""
    plain = parse(HEADER, LINE)
    text = f"{HEADER}\r\n{LINE}\r\n,,,,,\r\n".replace("source", "Source ")
    for separator in (",", ";", "\t"):
        assert published.parse(text.replace(",", separator).encode("utf-8-sig"), "x.csv") == plain


@pytest.mark.parametrize("printed, unit, value", [
    ("70.3", "percent", 0.703), ("0.703", "share", 0.703), ("−11.8", "percent", -0.118),
    ("70.3%", "percent", 0.703), ("+.028", "share", 0.028),
])  # fmt: skip
def test_percent_or_share(printed, unit, value):
    (cell,) = parse(HEADER, f"Doe,small,SigLIP,mean_delta,{printed},{unit}")
    assert (cell.value, cell.printed, cell.unit) == (value, printed, unit)


def test_a_value_may_have_more_digits_than_are_printed():
    (cell,) = parse(HEADER + ",value", LINE + ",0.70312")
    assert cell.value == 0.70312


def but(old: str, new: str) -> str:
    """A file of one cell that is right, but for one thing."""
    return f"{HEADER}\n{LINE.replace(old, new)}"


def with_column(name: str, text: str) -> str:
    return f"{HEADER},{name}\n{LINE},{text}"


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "mine.csv, line 1: missing column 'source': add it to the header"),
        (HEADER, "no lines below the header"),
        (HEADER.replace("method", "methd"), "line 1: no column 'methd': did you mean 'method'?"),
        (HEADER + ",unit\n" + LINE, "line 1: duplicate column 'unit': keep one"),
        (HEADER.replace(",printed", "") + "\n" + LINE, "line 1: missing column 'printed'"),
        (f"{HEADER}\n{LINE},more", "line 2: 7 cells under a header of 6: put texts that hold the separator"),
        (
            f"{HEADER}\n{LINE}\n\n{LINE}",
            "line 4, column quantity: .* already in line 2: leave one, or num",
        ),
        (but("SigLIP", ""), "line 2, column method: empty: a value is required"),
        (but("small", "summary"), "line 2, column table: 'summary' is reserved for own runs"),
        (
            but("percent", ""),
            "line 2, column unit: '' is not a unit of imagenet/zero_shot: expected percent or share",
        ),
        (but("percent", "count"), "line 2, column unit: .* expected percent or share"),
        (but("percent", "share"), "column printed: '70.3' in share is above 100 %: use the unit percent"),
        (but("70.3,percent", "70.3%,share"), "column printed: '70.3%' is in percent but its unit is share"),
        (but("70.3", "703"), "column printed: '703' in percent is above 100 %"),
        (but("70.3", "-70.3"), "column printed: '-70.3' is negative"),
        (but("70.3", "n/a"), "column printed: 'n/a' is not a number"),
        (but("imagenet/zero_shot", "mean_detla"), "column quantity: .* did you mean 'mean_delta'"),
        (
            but("imagenet/zero_shot", "score"),
            "unknown quantity 'score': write dataset/metric",
        ),
        (but("imagenet/zero_shot,70.3,percent", "filtered,maybe,"), "printed: 'maybe' is neither yes nor no"),
        (with_column("value", "0.8"), "line 2, column value: 0.8 is not what is printed: '70.3' in percent"),
        (with_column("value", "nan"), "column value: 'nan' is not a number"),
        (with_column("ours", "perhaps"), "column ours: 'perhaps' is neither yes nor no"),
        (with_column("accounting", "sgd"), "'sgd' is not a known accounting: expected iid, jest, flexi"),
        (with_column("position", "0"), "column position: '0' is not a row number"),
        (
            with_column("position", ""),
            "column position: '' is not a row number: expected 1, 2, …, in every line or in none",
        ),
        (with_column("position", "²"), "column position: '²' is not a row number"),
        (with_column("position", "9" * 5000), "column position: too long: 5,000 characters"),
        (but("Doe", "D" * 2000), "column source: too long: 2,000 characters, expected at most 1,000"),
        (but("Doe", "D" * 200_000), "not valid CSV: field larger than field limit"),
        (but("Doe", '"Doe'), "not valid CSV: unexpected end of data"),
        (but("Doe", '"D\noe"'), "column source: contains a line break or another unprintable"),
        (but("Doe", "D\x1b[31moe"), "column source: contains a line break or another unprintable"),
        (but("Doe", "D\0oe"), "column source: contains a line break or another unprintable"),
    ],
)
def test_mistakes_are_said_with_their_place_and_remedy(content, message):
    with pytest.raises(ValueError, match=message) as error:
        published.parse(content.encode(), "mine.csv")
    assert str(error.value).startswith("mine.csv") and "\n" not in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_other_encodings_are_named_as_such(encoding):
    content = f"{HEADER}\n{LINE.replace('Doe', 'Hénaff')}".encode(encoding)
    with pytest.raises(ValueError, match=r"mine\.csv, line [12]: not valid UTF-8: save it as “CSV UTF-8”"):
        published.parse(content, "mine.csv")


def test_a_row_is_one_row():
    header, own = HEADER + ",position,baseline,variant", LINE.replace("imagenet", "birds")
    with pytest.raises(
        ValueError, match="line 3, column variant: row 1 of small has 'L' here and 'B' in line 2"
    ):
        parse(header, f"{LINE},1,,B", f"{own},1,,L")
    with pytest.raises(ValueError, match="line 3, column baseline: small has another baseline in line 2"):
        parse(header, f"{LINE},1,yes,B", f"{own},2,yes,B")
    assert (
        len(parse(header, f"{LINE},1,yes,B", f"{own},1,yes,B", f"{own.replace('small', 't')},2,yes,B")) == 3
    )


@given(st.binary(max_size=300))
def test_whatever_the_file_holds_there_is_an_answer(content):
    try:
        published.parse(content, "mine.csv")
    except ValueError as error:
        assert str(error).startswith("mine.csv")


texts = st.text("aäλ×β −,;\"'=+@|#0", min_size=1, max_size=8).map(str.strip).filter(bool)
numbers = st.integers(0, 1000)


def cell_of(row: PublishedCell, quantity: str, number: int, in_share: bool) -> PublishedCell:
    """A cell that says a number of 0…1000, as far as its quantity can."""
    match quantity:
        case "examples_seen":
            return replace(row, quantity=quantity, printed=f"{number}M", unit="count", value=number * 1e6)
        case "filtered":
            printed = "✓" if number % 2 else "✗"
            return replace(row, quantity=quantity, printed=printed, unit="flag", value=float(number % 2))
        case _ if in_share:
            printed = f"{number / 1000:.3f}"
            return replace(row, quantity=quantity, printed=printed, unit="share", value=number / 1000)
        case _:
            printed = f"{number / 10:.1f}"
            return replace(row, quantity=quantity, printed=printed, unit="percent", value=number / 1000)


@st.composite
def cells_of_a_table(draw):
    """Rows with their own texts, each with some quantities."""
    cells = []
    for position in range(1, draw(st.integers(1, 3)) + 1):
        row = PublishedCell(
            "s", "t", position, draw(texts), "", "", "share", 0.0,
            group=draw(texts), variant=draw(texts), data=draw(texts), citation=draw(texts),
            ours=draw(st.booleans()), baseline=position == 2, accounting=draw(st.sampled_from(ACCOUNTINGS)),
        )  # fmt: skip
        for quantity in draw(st.lists(st.sampled_from(sorted(QUANTITIES)), min_size=1, unique=True)):
            cell = cell_of(row, quantity, draw(numbers), draw(st.booleans()))
            cells.append(replace(cell, bold=draw(st.booleans()), note=draw(texts)))
    return cells


@given(cells_of_a_table())
def test_what_is_written_is_read_back(cells):
    assert published.parse(published.render(cells).encode(), "x.csv") == cells
    assert published.cells_of(published.frame(cells)) == cells
