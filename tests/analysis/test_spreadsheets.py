"""CSV for spreadsheets: texts that look like formulas stay texts, numbers stay numbers."""

import csv
import io

from jestlab.analysis import published
from jestlab.analysis.files import csv_cell, from_csv_cell, to_csv
from jestlab.analysis.published import render


def test_escapes_formulas_alone():
    link = '=HYPERLINK("http://x/"&A1)'
    for text in ("=1+1", link, "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "-"):
        assert csv_cell(text) == "'" + text
        assert from_csv_cell(csv_cell(text)) == text
        assert from_csv_cell(csv_cell("'" + text)) == "'" + text
    for value in ("-1.5", "+3e-4", "-inf", "joint", "", "a=b", "'quoted'", -1.5, None, True):
        assert csv_cell(value) is value
        assert not isinstance(value, str) or from_csv_cell(value) == value


def test_a_frame_with_names_that_are_formulas():
    import pandas as pd

    frame = pd.DataFrame(
        {"label": ["=1", None, "joint"], "=x": [-1.5, float("nan"), 2.0], "mixed": ["-2", -3, "@"]}
    )
    assert to_csv(frame) == "label,'=x,mixed\n'=1,-1.5,-2\n,,-3\njoint,2.0,'@\n"
    plain = pd.DataFrame({"label": ["a", "b"], "value": [-1.5, 1e-20], "yes": [True, False]})
    assert to_csv(plain) == plain.to_csv(index=False, lineterminator="\n")


def test_published_cells_are_read_as_they_were_written():
    papers = published.paper()[:3]
    cells = [
        cell.model_copy(update={"method": f"=method {cell.position}", "note": "@note"}) for cell in papers
    ]
    text = render(cells)
    assert all(not cell.startswith("=") for row in csv.reader(io.StringIO(text)) for cell in row)
    assert published.parse(text.encode(), "cells") == cells
