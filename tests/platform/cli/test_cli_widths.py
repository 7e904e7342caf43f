"""What verbs print fits the terminal, whole words at a time; in pipes and files everything is whole."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace

import labs_support as labs
import plans_support as plans
import pytest
import stores_support as stores
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.cli.output import rendered, table
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.terminal import columns_of, wrapped

REASON = "ValueError: the loss became NaN at step 12, after a learning rate that nobody would have chosen"

VERBS = [
    ["--help"],
    ["list"],
    ["show", "quickstart"],
    ["show", "paper"],
    ["plan", "quickstart"],
    ["plan", "quickstart", "--scale", "paper", "--why"],
    ["plan", "filtering_ratio", "--all"],
    ["costs", "multi_resolution"],
    ["status"],
    ["status", "toy"],
    ["watch", "toy", "--once"],
    ["logs", "toy/nothing"],
    ["cancel", "toy/uniform/7"],
    ["query"],
    ["query", "--view", "runs"],
    ["query", "--view", "evaluations", "--limit", "3"],
    ["query", "SELECT * FROM v_runs"],
    ["diff", "toy/uniform", "toy/reference"],
    ["table", "toy"],
    ["table", "speedups", "toy"],
    ["table", "comparison"],
    ["table", "comparison", "toy"],
    ["table", "specialists"],
    ["table", "toy", "--explain", "toy/uniform", "toy/score"],
    ["published", "list"],
    ["published", "lint", "--all"],
    ["db", "check"],
    ["note", "toy", f"{REASON}; {REASON}"],
    ["tag", "toy/uniform", "keep", "best", "submitted-to-the-workshop"],
    ["accept", "toy"],
    ["retract", "toy/uniform", REASON],
    ["gc", "--older-than", "0s"],
    ["trust", "toy", "--dry-run"],
    ["weights", "inspect", "toy/uniform"],
    ["data", "inspect", "nowhere"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A lab of short paths with published results, and with runs of a long label and a long reason."""
    place = tmp_path_factory.mktemp("w")
    lab = Lab.find(place / "lab")
    store = Store.open(lab.store_url)
    point = {"data.filter": "similarity > 0.25 and aesthetic > 4.3", "selection.filtering_ratio": 0.9}
    runs = [
        plans.run("reference"),
        plans.run("uniform", config={"steps": 9}),
        plans.run("joint", point=point),
    ]
    planned = plans.plan(*runs)
    store.record(replace(planned, study=planned.study.model_copy(update={"question": f"{REASON}?"})))
    stores.attempt(store, runs[0], scores={"toy/score": 0.25, "toy/other": 0.5}, loss=(2.0, 1.0))
    stores.attempt(store, runs[1], scores={"toy/score": 0.5, "toy/other": 0.75}, loss=(2.0, 1.0))
    stores.attempt(store, runs[2], RunState.FAILED, reason=REASON)
    store.close_whole()
    subprocess.run([*labs.JESTLAB, "published", "import"], cwd=place, check=True)
    return place


_CALLS = """
import sys
from jestlab.platform.cli import main
for words in {verbs!r}:
    print("$", *words, flush=True)
    try:
        main(words)
    except SystemExit:
        sys.stdout.flush()
"""


def on_a_terminal(folder, columns, verbs, **environment):
    """Call verbs in one process on a terminal; return what each printed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", _CALLS.format(verbs=verbs)], stdin=subprocess.DEVNULL, stdout=theirs,
        stderr=theirs, cwd=folder, env={**os.environ, "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # how a terminal says that the other side is gone
            break
        said += block
    process.wait()
    os.close(ours)
    return said.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 140])
def test_no_line_of_any_verb_is_wider_than_the_terminal(folder, columns):
    verbs = VERBS if columns == 80 else [["status", "toy"], ["table", "toy"], ["query", "--view", "runs"]]
    said = on_a_terminal(folder, columns, verbs)
    assert "Traceback" not in said
    by_verb = re.split(r"^\$ ", re.sub(r"\x1b\[[0-9;]*m", "", said), flags=re.MULTILINE)[1:]
    assert len(by_verb) == len(verbs)
    for text in by_verb:
        verb, *lines = text.splitlines()
        assert lines, verb
        assert [line for line in lines if columns_of(line) > columns] == [], verb
    if columns == 80:
        assert "(--wide shows all)" in said
        words = set(" ".join(said.split()).split())
        assert set(REASON.split()) <= words  # broken between words alone


def test_a_pipe_gets_everything_and_wide_does_everywhere(folder):
    command = [*labs.JESTLAB, "status", "toy"]
    plain = {**os.environ}

    def said(*options, **environment):
        done = subprocess.run(
            [*command, *options],
            cwd=folder,
            env=plain | environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    whole = said()
    assert REASON in whole and "planned" in whole and "\x1b" not in whole
    wide = said("--wide", COLUMNS="40")
    assert wide.splitlines()[:4] == whole.splitlines()[:4] and wide.split() == whole.split()
    narrow = said(COLUMNS="60")
    assert max(map(len, narrow.splitlines())) <= 60 and "not shown: " in narrow


HEADERS = ("RUN", "STATE", "A", "REASON")
ROWS = [("joint", "FAILED", "1", REASON), ("uniform", "COMPLETED", "2", "")]


def test_texts_are_broken_first_and_then_the_least_important_columns_left_out():
    made = table(HEADERS, ROWS, right=[2], importance={"STATE": 20, "A": 10, "REASON": 30})
    assert rendered(made, 200).splitlines()[1].endswith(REASON)
    lines = rendered(made, 60).splitlines()
    assert lines[0].split() == list(HEADERS) and max(map(len, lines)) <= 60
    assert rendered(made, 44).splitlines()[-1] == "not shown: A (--wide shows all)"
    assert rendered(made, 38).splitlines()[0].split() == ["RUN", "REASON"]
    assert rendered(made, 20).splitlines()[0].split() == ["RUN"]


def test_a_word_that_is_too_long_for_its_column_is_broken_where_it_is_joined():
    made = table(("WHERE", "N"), [("runs/joint-61242d3f/checkpoints", "1")], right=[1])
    assert rendered(made, 20).splitlines()[1:] == ["runs/              1", "joint-61242d3f/", "checkpoints"]


def test_commands_between_backticks_stay_together():
    said = "first of all: run `jestlab published import` and then look again"
    assert [str(line) for line in wrapped(said, 40)] == [
        "first of all: run",
        "`jestlab published import` and then look",
        "again",
    ]
    assert [str(line) for line in wrapped("  - one two three", 10)] == ["  - one", "    two", "    three"]


@given(st.lists(st.text(min_size=1), max_size=20), st.integers(4, 60))
def test_wrapping_loses_no_word(words, most):
    line = " ".join(" ".join(words).split()).replace("`", "'")
    parts = [str(part) for part in wrapped(line, most)]
    assert " ".join(" ".join(parts).split()) == line
    assert all(columns_of(part) <= most or len(part.split()) == 1 for part in parts)
