"""CSV files of published cells: parsing, writing, and errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis import published
from jestlab.analysis.published.cell import PublishedCell

HEADER = "source,table,method,quantity,printed,unit"
LINE = "Doe,small,SigLIP,imagenet/zero_shot,70.3,percent"


def parse(*lines: str) -> list[PublishedCell]:
    return published.parse("\n".join(lines).encode(), "mine.csv")


def test_parses_a_minimal_file():
    assert parse(HEADER, LINE, "Doe,small,SigLIP,examples_seen,13B,") == [
        PublishedCell("Doe", "small", 1, "SigLIP", "imagenet/zero_shot", "70.3", "percent", 0.703),
        PublishedCell("Doe", "small", 1, "SigLIP", "examples_seen", "13B", "count", 13e9),
    ]
    (cell,) = parse(HEADER + ",value", LINE + ",0.70312")  # with more digits than are printed
    assert cell.value == 0.70312


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


def test_percent_or_share():
    for printed, unit, value in (
        ("70.3", "percent", 0.703), ("0.703", "share", 0.703), ("−11.8", "percent", -0.118),
        ("70.3%", "percent", 0.703), ("+.028", "share", 0.028),
    ):  # fmt: skip
        (cell,) = parse(HEADER, f"Doe,small,SigLIP,mean_delta,{printed},{unit}")
        assert (cell.value, cell.printed, cell.unit) == (value, printed, unit)


def but(old: str, new: str) -> str:
    """Return a valid file of one cell, with one change."""
    return f"{HEADER}\n{LINE.replace(old, new)}"


def with_column(name: str, text: str) -> str:
    return f"{HEADER},{name}\n{LINE},{text}"


def test_errors_name_the_place_and_the_remedy():
    for content, message in (
        ("", "mine.csv, line 1: missing column 'source': add it to the header"),
        (HEADER, "no lines below the header"),
        (HEADER.replace("method", "methd"), "line 1: no column 'methd': did you mean 'method'?"),
        (HEADER + ",unit\n" + LINE, "line 1: duplicate column 'unit': keep one"),
        (f"{HEADER}\n{LINE},more", "line 2: 7 cells under a header of 6: put texts that hold the separator"),
        (f"{HEADER}\n{LINE}\n\n{LINE}", "line 4, column quantity: .* already in line 2: leave one, or num"),
        (but("SigLIP", ""), "line 2, column method: empty: a value is required"),
        (but("small", "summary"), "line 2, column table: 'summary' is reserved for own runs"),
        (but("percent", ""), "line 2, column unit: '' is not a unit of .*: expected percent or share"),
        (but("percent", "share"), "column printed: '70.3' in share is above 100 %: use the unit percent"),
        (but("70.3,percent", "70.3%,share"), "column printed: '70.3%' is in percent but its unit is share"),
        (but("70.3", "-70.3"), "column printed: '-70.3' is negative"),
        (but("70.3", "n/a"), "column printed: 'n/a' is not a number"),
        (but("imagenet/zero_shot", "mean_detla"), "column quantity: .* did you mean 'mean_delta'"),
        (but("imagenet/zero_shot", "score"), "unknown quantity 'score': write dataset/metric"),
        (but("imagenet/zero_shot,70.3,percent", "filtered,maybe,"), "printed: 'maybe' is neither yes nor no"),
        (with_column("value", "0.8"), "line 2, column value: 0.8 is not what is printed: '70.3' in percent"),
        (with_column("value", "nan"), "column value: 'nan' is not a number"),
        (with_column("accounting", "sgd"), "'sgd' is not a known accounting: expected iid, jest, flexi"),
        (with_column("position", "0"), "column position: '0' is not a row number"),
        (with_column("position", ""), "column position: '' is not a row number: .* in every line or in none"),
        (with_column("position", "9" * 5000), "column position: too long: 5,000 characters"),
        (but("Doe", "D" * 2000), "column source: too long: 2,000 characters, expected at most 1,000"),
        (but("Doe", "D" * 200_000), "not valid CSV: field larger than field limit"),
        (but("Doe", '"Doe'), "not valid CSV: unexpected end of data"),
        (but("Doe", "D\x1b[31moe"), "column source: contains a line break or another unprintable"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            published.parse(content.encode(), "mine.csv")
        assert str(error.value).startswith("mine.csv") and "\n" not in str(error.value)
        assert len(str(error.value)) < 400


def test_rejects_other_encodings():
    for encoding, line in (("utf-16", 1), ("latin-1", 2)):
        content = but("Doe", "Hénaff").encode(encoding)
        with pytest.raises(ValueError, match=f"csv, line {line}: not valid UTF-8: save it as “CSV UTF-8”"):
            published.parse(content, "mine.csv")


def test_cells_of_a_row_are_consistent():
    header, own = HEADER + ",position,baseline,variant", LINE.replace("imagenet", "birds")
    two = "line 3, column variant: row 1 of small has 'L' here and 'B' in line 2"
    with pytest.raises(ValueError, match=two):
        parse(header, f"{LINE},1,,B", f"{own},1,,L")
    with pytest.raises(ValueError, match="line 3, column baseline: small has another baseline in line 2"):
        parse(header, f"{LINE},1,yes,B", f"{own},2,yes,B")
    other = f"{own.replace('small', 't')},2,yes,B"
    assert len(parse(header, f"{LINE},1,yes,B", f"{own},1,yes,B", other)) == 3


@given(st.binary(max_size=300))
def test_any_content_is_parsed_or_an_error_with_the_file_name(content):
    try:
        published.parse(content, "mine.csv")
    except ValueError as error:
        assert str(error).startswith("mine.csv")
