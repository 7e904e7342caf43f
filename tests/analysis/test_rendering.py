"""One table in five formats, each read back by a reader of that format."""

import html
import io
import json
import math
import re
from dataclasses import replace
from itertools import chain

import pandas as pd
import pytest
from markdown_it import MarkdownIt

from jestlab.analysis.tables.core import Column, Table
from jestlab.analysis.tables.formats import OnPage

NASTY = 'a_b & 50% $x$ #1 {y} <b>|"~^\\'


@pytest.fixture
def table():
    labels = ["ref", NASTY, "plain"]
    frame = pd.DataFrame(
        {
            "row": labels,
            "label": labels,
            "apart": [True, False, False],
            "score": [0.5011, 0.501, 0.5009],
            "gap": [math.nan, math.inf, 1.0],
        }
    )

    def percent(row):
        return round(100 * row["score"], 1)

    columns = (
        Column("run", "run", lambda row: row["label"], align="left"),
        Column("score", "± %", lambda row: f"{percent(row):.1f}", percent),
        Column("gap", "gap", lambda row: "—" if math.isnan(row["gap"]) else "∞"),
    )
    return Table("a study", "Scores in % <of> all.", frame, columns, ("x_y: 1 & 2",))


def test_markdown(table):
    lines = table.markdown().splitlines()
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines[:5]]
    assert {len(row) for row in rows} == {3}
    assert len({len(line) for line in lines[:5]}) == 1  # columns line up
    line = "-----:".rjust(len(rows[1][1]), "-")
    assert [row[1].strip() for row in rows] == ["± %", line, "50.1", "**50.1**", "**50.1**"]
    assert rows[2][0].strip() == "*ref*"
    assert lines[-1] == "- x_y: 1 & 2"


def test_markdown_of_any_text_is_read_back_as_this_text(table):
    starts = ("> : not reached", "<0.01 <$1 <b> </b>", "1. a", "2) a", "# a", "+ a", "- a", "---")
    notes = (*starts, *(f"{98 * 'x'} {start}" for start in starts))
    text = replace(table, caption="> 5 runs", own_notes=notes).markdown()
    assert "<0.01" in text and "\\<0.01" not in text  # pipes show it as it is
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    kinds = {token.type.removesuffix("_open") for token in tokens if token.nesting == 1}
    assert kinds == {"table", "thead", "tbody", "tr", "th", "td", "paragraph", "bullet_list", "list_item"}
    inline = (token.children or [] for token in tokens if token.type == "inline")
    read = ["".join(" " if part.type == "softbreak" else part.content for part in parts) for parts in inline]
    assert read == [*chain(*ROWS), "> 5 runs", *notes]


def test_csv(table):
    back = pd.read_csv(io.StringIO(table.csv()))
    pd.testing.assert_frame_equal(back, table.frame.drop(columns="row"), check_dtype=False)


def test_json(table):
    content = json.loads(table.json(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert content["name"] == "a study"
    assert content["notes"] == ["x_y: 1 & 2"]
    assert content["rows"][1] == {"label": NASTY, "apart": False, "score": 0.501, "gap": None}


def parsed(text):
    """Parse HTML strictly, as rows of texts, and the text of the caption."""
    import html5lib

    assert text.isascii()
    tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parseFragment(text)
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]
    return rows, "".join("".join(caption.itertext()) for caption in tree.iter("caption"))


ROWS = [["run", "± %", "gap"], ["ref", "50.1", "—"], [NASTY, "50.1", "∞"], ["plain", "50.1", "∞"]]


def test_html(table):
    text = table.html()
    assert parsed(text) == (ROWS, "Scores in % <of> all.x_y: 1 & 2")
    assert text.count("<b>50.1</b>") == 2
    assert not re.search(r"https?:|<script|<link|@import", text)


def test_html_in_a_page(table):
    table = replace(table, parts=pd.DataFrame({"row": ["ref"], "score": [0.5]}))
    assert "data-row" not in table.html(OnPage())  # no column has a formula
    columns = tuple(replace(column, formula="mean over seeds") for column in table.columns)
    table = replace(table, columns=columns)
    text = table.limited(2).html(OnPage())
    assert len(parsed(text)[0]) == 3
    assert not re.search("<style|<caption", text)
    opened = re.findall(r'data-row="(.*?)" data-column="(.*?)"', text)
    named = [(html.unescape(row), column) for row, column in opened]
    assert named == [("ref", "score"), (NASTY, "score"), (NASTY, "gap")]  # a dash opens nothing
    assert "data-row" not in replace(table, parts=None).html(OnPage())  # nor does a table without parts


def test_latex(table):
    text = table.latex().replace("\\allowbreak{}", "")
    body = text.split("\\toprule")[1].split("\\bottomrule")[0]
    rows = [line.strip() for line in body.splitlines() if line.strip().endswith("\\\\")]
    assert [len(re.findall(r"(?<!\\)&", row)) for row in rows] == [2, 2, 2, 2]
    assert rows[1] == "ref & 50.1 & — \\\\"
    escaped = r"a\_b \& 50\% \$x\$ \#1 \{y\} \textless{}b\textgreater{}"
    escaped += r"\textbar{}''\textasciitilde{}\textasciicircum{}\textbackslash{}"
    assert rows[2] == rf"{escaped} & \textbf{{50.1}} & $\infty$ \\"
    assert text.count("\\midrule") == 2  # below the headings, below the rows that stand apart
    assert "\\caption{Scores in \\% \\textless{}of\\textgreater{} all.}" in text
    assert "x\\_y: 1 \\& 2.}\n\\end{table}" in text  # under the table
    assert "\\label{tab:a-study}" in text
    assert text.count("{") - text.count("\\{") == text.count("}") - text.count("\\}")


def test_names_with_markup_and_any_letters():
    texts = ["[1] Łukasz Müller", "*Çağ αβ 😀 ą", "_it_ snake_case $x$ [a](b)"]
    frame = pd.DataFrame({"row": texts, "name": texts, "apart": False})
    named = Table("t", "c", frame, (Column("name", "name", lambda row: row["name"]),))
    assert "{}[1] Łukasz Müller" in named.latex()
    assert "{}*Çağ $\\alpha$$\\beta$ [U+1F600] [U+0105]" in named.latex()
    assert "\\_it\\_ snake_case \\$x\\$ [a]\\(b)" in named.markdown()


def test_the_best_of_all_rows_is_bold_in_a_table_with_fewer():
    rows = {"base": [0.5, 0.5, 0.5], "good": [0.6, 0.7, 0.8], "cheap": [0.1, 0.1, 0.1]}
    costs = {"base": 9.0, "good": 5.0, "cheap": 1.0}
    frame = pd.DataFrame({"row": [*rows], "apart": False, "cost": costs.values()})
    frame["score"] = [sum(scores) / 3 for scores in rows.values()]
    parts = pd.DataFrame(
        {"row": row, "seed": seed, "score": score, "cost": costs[row] + seed / 10}
        for row, scores in rows.items()
        for seed, score in enumerate(scores)
    )
    columns = (
        Column("run", "run", lambda row: row["row"]),
        Column("score", "score", lambda row: f"{row['score']:.1f}", lambda row: row["score"]),
        Column("cost", "cost", lambda row: f"{row['cost']:.0f}", lambda row: -row["cost"]),
    )
    whole = Table("t", "c", frame, columns, parts=parts, baselines={"good": "base"})

    def bold(table):
        return {(line.key, cell.text) for line in table.lines for cell in line.cells if cell.bold}

    assert bold(whole) == {("cheap", "1")}  # the interval of good against base includes 0
    limited = whole.limited(2)
    assert limited.rows == ["base", "good"]
    assert bold(limited) == bold(limited.limited(2)) == set()
