"""What verbs print on a terminal and in a pipe: no control sequences from data, colors, lines that fit."""

import csv
import io
import json
import re
import shlex
import subprocess
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import labs_support as labs
import numpy as np
import plans_support as plans
import pytest
import stores_support as stores
from rich.cells import cell_len
from sqlalchemy import update

import jestlab.platform.cli as cli
from jestlab.platform.cli import main, studies
from jestlab.platform.cli.logs import harmless
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import ExperimentRow

EVIL = "\x1b]52;c;ZXZpbA==\x07\x9b2Jred\x1b[31m\u202eabc"
GREEN = "\x1b[32mgreen\x1b[0m"
REASON = "ValueError: the loss became NaN at step 12, after a learning rate that is far too high for this"


def is_harmless(text):
    return not set(text) & set("\x1b\x07\x9b\u202e")


@pytest.fixture
def evil(store):
    """An experiment and a run with control characters in their names."""
    run = plans.run(f"=run {EVIL}", point={"ratio": EVIL})
    plans.record(store, plans.plan(run))
    stores.attempt(store, run, RunState.FAILED, scores={"toy/score": 0.5}, loss=(1.0,), reason=EVIL)
    with store.writing() as connection:
        connection.execute(update(ExperimentRow).values(name=f"toy{EVIL}"))
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
    # A spreadsheet would evaluate a text that starts like a formula.
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


def test_all_text_is_printed_by_one_module():
    folder = Path(cli.__file__).parent
    assert [p.name for p in folder.glob("*.py") if "click.echo(" in p.read_text()] == ["output.py"]


def test_a_log_keeps_colors_on_a_terminal_and_everything_in_a_pipe(evil, root, capfdbinary):
    log = "\x1b[1;31mred\x1b[0m ä 10%\r20%\n\x1b]0;title\x07\x1b[2J\x9b1m end\x1b[".encode()
    for size in (1, 3, 1000):
        shown = b"".join(harmless(log[i : i + size] for i in range(0, len(log), size))).decode()
        assert shown == "\x1b[1;31mred\x1b[0m ä 10%\r20%\n ]0;title  [2J 1m end ["
    folder = root / evil.directory
    folder.mkdir(parents=True)
    (folder / "log.txt").write_bytes(EVIL.encode() + b"\xff\n")
    with pytest.raises(SystemExit):
        main(["logs", evil.fingerprint[:8], "--root", str(root)])
    assert capfdbinary.readouterr().out == EVIL.encode() + b"\xff\n"


@pytest.fixture
def colored(store):
    """Runs in several states, one of which has colors in its label and reason."""
    runs = [plans.run("done"), plans.run("other", config={"steps": 9}), plans.run("bad", point={"x": GREEN})]
    plans.record(store, plans.plan(*runs))
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


def test_a_pipe_gets_markdown_and_a_terminal_aligned_text(colored, jestlab, monkeypatch):
    assert jestlab("table", "toy").startswith("| run")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    shown = jestlab("table", "toy")
    assert "\x1b[1mscore\x1b[0m" in shown and "|" not in shown
    assert jestlab("table", "toy", "--format", "md").startswith("| run")


COMMANDS = f"""
--help; list; show quickstart; plan quickstart --scale paper --why; plan filtering_ratio --all
costs multi_resolution; status; status toy; watch toy --once; logs toy/nothing; query; query --view runs
diff toy/uniform toy/reference; table toy; table speedups toy; table comparison
table toy --explain uniform toy/score; published list; published lint; db check
note toy "{REASON} and {REASON}"; tag toy/uniform keep best submitted-to-the-workshop
retract toy/uniform "{REASON}"; gc --older-than 0s; trust toy --dry-run; weights inspect toy/uniform
"""


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
    plans.record(store, replace(planned, study=planned.study.model_copy(update={"question": f"{REASON}?"})))
    for run in runs[:2]:
        stores.attempt(store, run, scores={"toy/score": 0.25, "toy/other": 0.5}, loss=(2.0, 1.0))
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
    for command in COMMANDS.replace("\n", ";").strip(";").split(";"):
        words = shlex.split(command)
        for columns in (80, 140) if words[0] in ("status", "query") else (80,):
            printed = re.sub(r"\x1b\[[0-9;]*m", "", call(words, columns, terminal=True))
            assert printed, words
            wide = [line for line in printed.splitlines() if cell_len(line) > columns]
            assert wide == [], (words, columns)
            everything += printed if columns == 80 else ""
    assert "(a pipe shows all)" in everything
    assert set(REASON.split()) <= set(everything.split())  # lines break between words


def test_pipes_have_complete_lines(call):
    complete = call(["status", "toy"])
    assert REASON in complete and "planned" in complete and "\x1b" not in complete
    for columns in ("9" * 5000, "-1", "0", "\u00b2"):  # no width
        assert call(["status", "toy"], columns=columns) == complete
    narrow = call(["status", "toy"], columns=60)
    assert max(map(len, narrow.splitlines())) <= 60 and "not shown: " in narrow


@pytest.mark.parametrize("words", ["show no-such-study-", "show --no-such-option", ""])
def test_an_error_is_one_line_in_a_pipe_and_wrapped_on_a_terminal(words, call):
    command = f"{words}{'x' * 99}".split()
    error = call(command, columns=40)
    assert error.count("\n") == 1 and len(error) > 100
    assert call(command, columns=40, terminal=True).count("\n") > 1


@pytest.mark.parametrize(
    "command",
    [
        *(f"export {{}} toy --format {kind}" for kind in ("archive", "mlflow", "parquet", "tensorboard")),
        *(f"adopt {kind} {{}} --into x" for kind in ("wandb", "mlflow", "tensorboard", "csv", "parquet")),
        *("db backup {}", "db restore {}", "import {}", "init {}", "show ./{}.yaml", "status --root {}"),
        *("weights inspect {}", "data inspect {}", "query 'SELECT 1' --output {}", "published import {}"),
    ],
)
def test_too_long_a_name_is_one_line_without_a_number(command, call):
    error = call(shlex.split(command.format("x" * 300)))
    assert error.count("\n") == 1 and "Errno" not in error and "x" * 50 in error


def test_a_closed_standard_output_is_no_error(tmp_path):
    script = f'"$@" status --root {tmp_path} >&-'
    ended = subprocess.run(["sh", "-c", script, "sh", *labs.JESTLAB], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
