"""Text for terminals and pipes: styles, wrapping, and tables."""

import io
import os
import termios

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from jestlab.analysis.tables.core import Column, Table
from jestlab.platform.render import (
    STATE_STYLES,
    VERDICT_STYLES,
    has_styles,
    in_state,
    markdown,
    render,
    result_blocks,
    styled,
    table,
    width,
    wrap,
)
from jestlab.platform.store.records import RunState

EVIL = "\x1b]52;c;ZXZpbA==\x07\x9b2Jred\x1b[31m\u202eabc"
REASON = "ValueError: the loss became NaN at step 12, with a learning rate that is far too high for it"


class Stream(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "expected"),
    [
        (Stream, {}, True),
        (io.StringIO, {}, False),
        (Stream, {"NO_COLOR": "1"}, False),
        (Stream, {"NO_COLOR": ""}, True),
        (Stream, {"TERM": "dumb"}, False),
        (io.StringIO, {"FORCE_COLOR": "1"}, True),
        (io.StringIO, {"FORCE_COLOR": "0"}, False),
        (Stream, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_the_terminal_and_the_environment_decide_on_styles(monkeypatch, stream, environment, expected):
    for name, value in {"TERM": "xterm", **environment}.items():
        monkeypatch.setenv(name, value)
    assert has_styles(stream()) == expected


def test_the_width_is_that_of_the_terminal():
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (40, 72))
    with os.fdopen(theirs, "w") as terminal:
        assert width(terminal) == 72
    os.close(ours)
    assert width(io.StringIO()) is None


def test_only_our_styles_are_written():
    assert set(STATE_STYLES) == set(RunState)
    line = in_state("COMPLETED") + styled(f" {EVIL}", "bold")
    shown = render(line, styles=True)
    assert shown.startswith("\x1b[32mCOMPLETED\x1b[0m\x1b[1m") and shown.count("\x1b") == 4
    for block in (EVIL, line, table(("RUN",), [(EVIL,), (styled(EVIL),)])):
        assert not set(render(block)) & set("\x1b\x07\x9b\u202e")


def test_a_narrow_table_wraps_texts_and_then_drops_the_least_important_columns():
    rows = [("joint", "FAILED", "1", REASON), ("uniform", "COMPLETED", "2", "")]
    headers = ("RUN", "STATE", "A", "REASON")
    made = table(headers, rows, right=[2], importance={"STATE": 20, "A": 10, "REASON": 30})
    assert render(made).splitlines()[1].endswith(REASON)
    lines = render(made, 60).splitlines()
    assert lines[0].split() == list(headers) and max(map(len, lines)) <= 60
    assert render(made, 44).splitlines()[-1] == "not shown: A (a pipe shows all)"
    assert render(made, 38).splitlines()[0].split() == ["RUN", "A", "REASON"]  # STATE is too wide
    assert render(made, 20).splitlines()[0].split() == ["RUN", "STATE"]
    assert render(table(headers, []), 20).startswith("RUN  STATE")
    long = table(("WHERE", "N"), [("runs/joint-61242d3f/checkpoints", "1")], right=[1])
    parts = [line.split()[0] for line in render(long, 20).splitlines()[1:]]
    assert "".join(parts) == "runs/joint-61242d3f/checkpoints"


def test_a_result_table_colors_verdicts_and_counts_notes_where_they_can_be_found():
    verdicts = ["holds", "does not hold at this scale (mini)", "undecided", "not run"]
    frame = pd.DataFrame({"row": verdicts, "apart": False, "n": [1, 2, 3, 4]})
    columns = (
        Column("verdict", "verdict", lambda row: row["row"], align="left"),
        Column("n", "n", lambda row: str(row["n"]), mark=lambda row: "†" if row["n"] == 1 else ""),
    )
    made = Table(
        "toy claims", "4 claims.", frame, columns, ("n: seeds", f"† one seed: {REASON} {REASON}", "x")
    )
    shown = render(result_blocks(made, "--notes"), styles=True)
    for verdict, style in zip(verdicts, VERDICT_STYLES.values(), strict=True):
        assert render(styled(verdict, style), styles=True) in shown
    *_, sign, count = render(result_blocks(made, "--notes")).splitlines()
    assert sign.startswith("† one seed: ValueError") and sign.endswith(" …") and len(sign) <= 150
    assert count == "3 notes: --notes"
    assert render(result_blocks(made)).splitlines()[-3:] == [f"- {note}" for note in made.notes]


def test_markdown_has_aligned_columns_without_line_breaks_and_bars():
    assert markdown(("run", "n"), [("a|b\n", "10")]).splitlines() == [
        "| run   | n  |",
        "|-------|----|",
        r"| a\|b  | 10 |",
    ]


def test_lines_break_between_words_and_outside_commands():
    text = styled("first of all: run `jestlab published import` and then look again")
    assert [line.plain for line in wrap(text, 40)] == [
        "first of all: run",
        "`jestlab published import` and then look",
        "again",
    ]
    item = wrap(styled("  - one two three"), 10)
    assert [line.plain for line in item] == ["  - one", "    two", "    three"]


WORDS = st.lists(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1), max_size=20)


@given(WORDS, st.integers(4, 60))
def test_wrapping_keeps_all_words(words, limit):
    line = " ".join(" ".join(words).split()).replace("`", "'")
    parts = [part.plain for part in wrap(styled(line), limit)]
    assert " ".join(" ".join(parts).split()) == line
    assert all(cell_len(part) <= limit or len(part.split()) == 1 for part in parts)
