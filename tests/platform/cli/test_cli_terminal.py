"""What a terminal shows: no control sequences from data, colors where they are wanted, lines that fit."""

import csv
import io
import json
import os
import re
import subprocess
import termios
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import labs_support as labs
import numpy as np
import plans_support as plans
import pytest
import stores_support as stores
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from sqlalchemy import update

import jestlab.platform.cli as cli
from jestlab.models.data.tars import TarWriter
from jestlab.platform.cli import main, studies
from jestlab.platform.cli.logs import Terminal
from jestlab.platform.launch.display import Lines
from jestlab.platform.render import STATE_STYLES, has_styles, render, styled, table, width, wrap
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Experiment

EVIL = "\x1b]52;c;ZXZpbA==\x07\x9b2Jred\x1b[31m\u202eabc"


def is_harmless(text):
    return not set(text) & set("\x1b\x07\x9b\u202e")


@pytest.fixture
def evil(store):
    """An experiment and a run with control characters in their names."""
    run = plans.run(f"=run {EVIL}", point={"ratio": EVIL})
    store.record(plans.plan(run))
    stores.attempt(store, run, RunState.FAILED, scores={"toy/score": 0.5}, loss=(1.0,), reason=EVIL)
    with store.writing() as connection:
        connection.execute(update(Experiment).values(name=f"toy{EVIL}"))
    return run


def printed(capsys, *words):
    with pytest.raises(SystemExit):
        main([*map(str, words)])
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_names_in_a_store(evil, root, capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    for words in (
        ["status"],
        ["watch", f"toy{EVIL}", "--once"],
        ["query", "--view", "runs"],
        ["query", "--view", "runs", "--format", "json"],
        ["status", "--json"],
        ["note", f"toy{EVIL}", EVIL],
        ["table", f"toy{EVIL}"],
        ["gc"],
    ):
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout.isatty", lambda words=words: words[0] == "query")
            text = printed(capsys, *words, "--root", root)
        assert text and is_harmless(text), words


def test_json_and_spreadsheets(evil, jestlab):
    [experiment] = json.loads(jestlab("status", "--json"))
    assert experiment["experiment"] == f"toy{EVIL}"
    [row] = json.loads(jestlab("query", "--view", "runs", "--format", "json"))
    assert row["label"] == evil.label
    # A spreadsheet would calculate a text that begins like a formula.
    text = jestlab("query", 'SELECT label AS "=label", -1.5 AS x FROM v_runs', "--format", "csv")
    [header, row] = csv.reader(io.StringIO(text))
    assert header[0] == "'=label" and row == ["'" + evil.label, "-1.5"]


def test_errors(tmp_path, capsys):
    np.savez(tmp_path / "evil.npz", **{f"params/{EVIL}": np.zeros(3, np.float32)})  # type: ignore[arg-type]
    for words in (
        ["launch", f"no {EVIL}"],
        [f"no{EVIL}"],
        ["import", f"{EVIL}.zip"],
        ["weights", "inspect", tmp_path / "evil.npz"],
    ):
        error = printed(capsys, *words)
        assert error.startswith("jestlab: ") and is_harmless(error), words


def test_captions_are_shortened_to_a_line(tmp_path, capsys):
    with TarWriter(tmp_path / "0.tar") as tar:
        for number, caption in enumerate([EVIL, "x" * 2_000, "z" * (50 << 20)]):
            tar.add(f"{number}.jpg", b"x")
            tar.add(f"{number}.txt", caption.encode())
            tar.add(f"{number}.json", json.dumps({"noise": EVIL}).encode())
    text = printed(capsys, "data", "inspect", tmp_path)
    assert is_harmless(text)
    assert "1 × caption too long" in text and max(map(len, text.splitlines())) < 600


def test_all_text_is_printed_by_one_function():
    folder = Path(cli.__file__).parent
    assert [p.name for p in folder.glob("*.py") if "click.echo(" in p.read_text()] == ["output.py"]
    assert set(STATE_STYLES) == set(RunState)  # every state has a color


def test_a_log_on_a_terminal_keeps_colors_and_progress_bars():
    log = "\x1b[1;31mred\x1b[0m ä 10%\r20%\n\x1b]0;title\x07\x1b[2J\x9b1m end\x1b[".encode()
    for size in (1, 3, 1000):
        terminal = Terminal()
        parts = [terminal.shown(log[i : i + size]) for i in range(0, len(log), size)]
        shown = (b"".join(parts) + terminal.end()).decode()
        assert shown == "\x1b[1;31mred\x1b[0m ä 10%\r20%\n ]0;title  [2J 1m end [\x1b[0m"


def test_a_log_in_a_pipe_is_unchanged(evil, root, capfdbinary):
    folder = root / evil.directory
    folder.mkdir(parents=True)
    (folder / "log.txt").write_bytes(EVIL.encode() + b"\xff\n")
    with pytest.raises(SystemExit):
        main(["logs", evil.fingerprint[:8], "--root", str(root)])
    assert capfdbinary.readouterr().out == EVIL.encode() + b"\xff\n"


class TerminalStream(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_terminal_and_the_environment_decide(monkeypatch):
    for stream, environment, expected in (
        (TerminalStream, {}, True),
        (io.StringIO, {}, False),
        (TerminalStream, {"NO_COLOR": "1"}, False),
        (TerminalStream, {"NO_COLOR": ""}, True),
        (TerminalStream, {"TERM": "dumb"}, False),
        (io.StringIO, {"FORCE_COLOR": "1"}, True),
        (io.StringIO, {"FORCE_COLOR": "0"}, False),
        (TerminalStream, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ):
        with monkeypatch.context() as patch:
            for name, value in {"TERM": "xterm", **environment}.items():
                patch.setenv(name, value)
            assert has_styles(stream()) == expected, (stream, environment)


GREEN = "\x1b[32mgreen\x1b[0m"


@pytest.fixture
def colored(store):
    """Runs in several states, one of which has colors in its label and reason."""
    runs = [plans.run("done"), plans.run("other", config={"steps": 9}), plans.run("bad", point={"x": GREEN})]
    store.record(plans.plan(*runs))
    stores.attempt(store, runs[0], scores={"toy/score": 0.5})
    stores.attempt(store, runs[1], scores={"toy/score": 0.75})
    stores.attempt(store, runs[2], RunState.FAILED, reason=GREEN)


def test_states_have_colors_and_data_has_none(colored, jestlab, monkeypatch):
    plain = jestlab("status", "toy")
    assert "\x1b" not in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    colored = jestlab("status", "toy")
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain
    assert "\x1b[32mCOMPLETED\x1b[0m" in colored and "\x1b[31mFAILED\x1b[0m" in colored
    assert "\x1b[32mgreen" not in colored and "[32mgreen" in colored
    assert "\x1b[1mstate\x1b[0m" in colored
    assert "\x1b[1mOptions\x1b[0m:" in jestlab("status", "--help")
    monkeypatch.setenv("NO_COLOR", "1")
    assert jestlab("status", "toy") == plain


def test_a_pipe_gets_markdown_and_a_terminal_aligned_text(colored, jestlab, monkeypatch):
    piped = jestlab("table", "toy")
    assert piped.startswith("| run")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    shown = jestlab("table", "toy")
    assert "\x1b[1mscore\x1b[0m" in shown and "|" not in shown
    assert jestlab("table", "toy", "--format", "md").startswith("| run")


def test_a_launch_without_a_terminal_is_plain_unless_forced(monkeypatch):
    stream = io.StringIO()
    lines = Lines("toy", stream)
    lines.begin(1)
    lines.state(plans.run(EVIL), RunState.FAILED, f"first\n{EVIL}")
    lines.note(EVIL)
    assert is_harmless(stream.getvalue()) and len(stream.getvalue().splitlines()) == 3
    monkeypatch.setenv("FORCE_COLOR", "1")
    Lines("toy", stream).state(plans.run("joint"), RunState.FAILED, GREEN)
    assert "toy/joint/0" in stream.getvalue()
    assert stream.getvalue().count("\x1b[31m") == 1 and "\x1b[32m" not in stream.getvalue()


REASON = "ValueError: the loss became NaN at step 12, after a learning rate that nobody would have chosen"

COMMANDS = [
    ["--help"],
    ["list"],
    ["show", "quickstart"],
    ["plan", "quickstart", "--scale", "paper", "--why"],
    ["plan", "filtering_ratio", "--all"],
    ["costs", "multi_resolution"],
    ["status"],
    ["status", "toy"],
    ["watch", "toy", "--once"],
    ["logs", "toy/nothing"],
    ["query"],
    ["query", "--view", "runs"],
    ["diff", "toy/uniform", "toy/reference"],
    ["table", "toy"],
    ["table", "speedups", "toy"],
    ["table", "comparison"],
    ["table", "toy", "--explain", "toy/uniform", "toy/score"],
    ["published", "list"],
    ["published", "lint", "--all"],
    ["db", "check"],
    ["note", "toy", f"{REASON}; {REASON}"],
    ["tag", "toy/uniform", "keep", "best", "submitted-to-the-workshop"],
    ["retract", "toy/uniform", REASON],
    ["gc", "--older-than", "0s"],
    ["trust", "toy", "--dry-run"],
    ["weights", "inspect", "toy/uniform"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a short path and a lab with published results, and runs with long labels and reasons."""
    folder = tmp_path_factory.mktemp("w")
    store = Store.open(stores.empty_lab(folder / "lab").store_url)
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
    with chdir(folder):
        assert labs.here("published", "import").returncode == 0
    return folder


@pytest.fixture
def call(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(studies, "study_names", lambda: ["quickstart", "filtering_ratio"])

    def call(words, columns=None, terminal=False):
        with monkeypatch.context() as patch:
            if columns is not None:
                patch.setenv("COLUMNS", str(columns))
            patch.setenv("TERM", "xterm")
            patch.setattr("sys.stdout.isatty", lambda: terminal)
            patch.setattr("sys.stderr.isatty", lambda: terminal)
            return printed(capsys, *words)

    return call


def test_no_line_is_wider_than_the_terminal(call):
    everything = ""
    for words in COMMANDS:
        for columns in (80, 140) if words[0] in ("status", "query") else (80,):
            printed = re.sub(r"\x1b\[[0-9;]*m", "", call(words, columns, terminal=True))
            assert printed, words
            wide = [line for line in printed.splitlines() if cell_len(line) > columns]
            assert wide == [], (words, columns)
            everything += printed if columns == 80 else ""
    assert "(--wide shows all)" in everything
    assert set(REASON.split()) <= set(everything.split())  # lines break between words


def test_pipes_and_the_option_wide_have_complete_lines(call):
    complete = call(["status", "toy"])
    assert REASON in complete and "planned" in complete and "\x1b" not in complete
    wide = call(["status", "toy", "--wide"], columns=40)
    assert wide.splitlines()[:4] == complete.splitlines()[:4] and wide.split() == complete.split()
    for columns in ("9" * 5000, "-1", "0", "\u00b2"):  # no width
        assert call(["status", "toy"], columns=columns) == complete
    narrow = call(["status", "toy"], columns=60)
    assert max(map(len, narrow.splitlines())) <= 60 and "not shown: " in narrow


@pytest.mark.parametrize(
    "words", [["show", "no-such-study-" + "x" * 99], ["show", "--no-such-option" + "x" * 99], ["x" * 99]]
)
def test_an_error_in_a_pipe_is_one_line_whatever_the_environment_says(words, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    with pytest.raises(SystemExit):
        main(words)
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and len(error) > 100
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(SystemExit):
        main(words)
    assert capsys.readouterr().err.count("\n") > 1


@pytest.mark.parametrize(
    "words",
    [
        *(
            ["export", "{}", "toy", "--format", kind]
            for kind in ("archive", "mlflow", "parquet", "tensorboard")
        ),
        *(["db", verb, "{}"] for verb in ("backup", "restore")),
        *([verb, "{}"] for verb in ("import", "init")),
        *(
            ["adopt", kind, "{}", "--into", "x"]
            for kind in ("wandb", "mlflow", "tensorboard", "csv", "parquet")
        ),
        ["show", "./{}.yaml"],
        ["status", "--root", "{}"],
        ["weights", "inspect", "{}"],
        ["data", "inspect", "{}"],
        ["query", "SELECT 1", "--output", "{}"],
        ["published", "import", "{}"],
    ],
    ids=" ".join,
)
def test_too_long_a_name_is_one_line_without_a_number(words, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit):
        main([word.replace("{}", "x" * 300) for word in words])
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "Errno" not in error and "x" * 50 in error


def test_the_width_is_that_of_the_terminal():
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (40, 72))
    with os.fdopen(theirs, "w") as terminal:
        assert width(terminal) == 72
    os.close(ours)


def test_breaks_texts_before_it_omits_the_least_important_columns():
    rows = [("joint", "FAILED", "1", REASON), ("uniform", "COMPLETED", "2", "")]
    headers = ("RUN", "STATE", "A", "REASON")
    made = table(headers, rows, right=[2], importance={"STATE": 20, "A": 10, "REASON": 30})
    assert render(made, 200).splitlines()[1].endswith(REASON)
    lines = render(made, 60).splitlines()
    assert lines[0].split() == list(headers) and max(map(len, lines)) <= 60
    assert render(made, 44).splitlines()[-1] == "not shown: A (--wide shows all)"
    assert render(made, 38).splitlines()[0].split() == ["RUN", "REASON"]
    assert render(made, 20).splitlines()[0].split() == ["RUN"]
    long = table(("WHERE", "N"), [("runs/joint-61242d3f/checkpoints", "1")], right=[1])
    assert (
        "".join(line.split()[0] for line in render(long, 20).splitlines()[1:])
        == "runs/joint-61242d3f/checkpoints"
    )


def test_lines_break_between_words_and_outside_commands():
    text = styled("first of all: run `jestlab published import` and then look again")
    assert [line.plain for line in wrap(text, 40)] == [
        "first of all: run",
        "`jestlab published import` and then look",
        "again",
    ]
    assert [line.plain for line in wrap(styled("  - one two three"), 10)] == [
        "  - one",
        "    two",
        "    three",
    ]


@given(
    st.lists(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1), max_size=20),
    st.integers(4, 60),
)
def test_wrapping_loses_no_word(words, most):
    line = " ".join(" ".join(words).split()).replace("`", "'")
    parts = [part.plain for part in wrap(styled(line), most)]
    assert " ".join(" ".join(parts).split()) == line
    assert all(cell_len(part) <= most or len(part.split()) == 1 for part in parts)


def test_a_closed_standard_output_is_no_error(tmp_path):
    script = f'"$@" status --root {tmp_path} >&-'
    ended = subprocess.run(["sh", "-c", script, "sh", *labs.JESTLAB], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
