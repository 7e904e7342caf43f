"""Bold and colours: where there is a terminal that wants them, from jestlab and never from data."""

from __future__ import annotations

import io
import re

import pandas as pd
import plans_support as plans
import pytest
import stores_support as stores

from jestlab.analysis.tables.core import ESSENTIAL, Column, Table
from jestlab.platform.cli import main
from jestlab.platform.cli.output import rendered
from jestlab.platform.cli.result_tables import blocks
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.display import Lines
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.terminal import STATES, has_styles, styled

EVIL = "\x1b[32mgreen\x1b[0m"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "stream, environment, expected",
    [
        (Terminal, {}, True),
        (io.StringIO, {}, False),
        (Terminal, {"NO_COLOR": "1"}, False),
        (Terminal, {"NO_COLOR": ""}, True),
        (Terminal, {"TERM": "dumb"}, False),
        (io.StringIO, {"FORCE_COLOR": "1"}, True),
        (io.StringIO, {"FORCE_COLOR": "0"}, False),
        (Terminal, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_who_decides(stream, environment, expected, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert has_styles(stream()) == expected


def test_every_state_has_a_colour():
    assert set(STATES) == set(RunState)


@pytest.fixture
def root(tmp_path):
    """A lab with runs in several states, one of which has colours in its label and reason."""
    lab = Lab.find(tmp_path / "lab")
    store = Store.open(lab.store_url)
    runs = [plans.run("done"), plans.run("other", config={"steps": 9}), plans.run("bad", point={"x": EVIL})]
    store.record(plans.plan(*runs))
    stores.attempt(store, runs[0], scores={"toy/score": 0.5})
    stores.attempt(store, runs[1], scores={"toy/score": 0.75})
    stores.attempt(store, runs[2], RunState.FAILED, reason=EVIL)
    store.close_whole()
    return tmp_path / "lab"


def test_states_have_colours_and_what_comes_from_data_has_none(jestlab, monkeypatch):
    plain = jestlab("status", "toy")
    assert "\x1b" not in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = jestlab("status", "toy")
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert "\x1b[32mCOMPLETED\x1b[0m" in coloured and "\x1b[31mFAILED\x1b[0m" in coloured
    assert "\x1b[32mgreen" not in coloured and "[32mgreen" in coloured
    assert "\x1b[1mstate\x1b[0m" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert jestlab("status", "toy") == plain


def test_a_pipe_gets_markdown_and_a_terminal_aligned_text(jestlab, monkeypatch):
    piped = jestlab("table", "toy")
    assert piped.startswith("| run")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    shown = jestlab("table", "toy")
    assert "\x1b[1mscore\x1b[0m" in shown and "|" not in shown
    assert jestlab("table", "toy", "--format", "md").startswith("| run")


def test_the_best_is_bold_and_what_stands_apart_is_in_italics():
    frame = pd.DataFrame({"row": ["a", "b", "c"], "score": [1.0, 2.0, 3.0], "apart": [False, False, True]})
    columns = (
        Column("run", "run", lambda row: str(row["row"]), align="left", importance=ESSENTIAL),
        Column("score", "score", lambda row: str(row["score"]), rank=lambda row: float(row["score"])),
    )
    shown = rendered(blocks(Table("t", "Scores.", frame, columns, notes=("a note",))), 80, styles=True)
    assert "\x1b[1m2.0\x1b[0m" in shown and "\x1b[1m1.0" not in shown and "\x1b[1m3.0" not in shown
    assert "\x1b[3mc\x1b[0m" in shown and "\x1b[2m- a note\x1b[0m" in shown


def test_headings_of_help(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with pytest.raises(SystemExit):
        main(["status", "--help"])
    assert "\x1b[1mOptions\x1b[0m:" in capsys.readouterr().out


def test_a_launch_that_nobody_watches_is_plain_unless_forced(monkeypatch):
    stream = io.StringIO()
    Lines("toy", stream).state(plans.run("joint"), RunState.FAILED, EVIL)
    assert "\x1b" not in stream.getvalue() and "FAILED     toy/joint/0" in stream.getvalue()
    monkeypatch.setenv("FORCE_COLOR", "1")
    Lines("toy", stream).state(plans.run("joint"), RunState.FAILED, EVIL)
    assert stream.getvalue().count("\x1b[31m") == 1 and "\x1b[32m" not in stream.getvalue()


def test_styles_survive_cutting_and_joining():
    text = "a" + styled("bcd", "bold") + "e"
    assert str(text) == "abcde" and text.cut(2, 5).shown(True) == "\x1b[1mcd\x1b[0me"
    assert text.shown(False) == "abcde"
