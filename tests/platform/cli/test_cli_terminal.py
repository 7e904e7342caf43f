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
from jestlab.platform.cli.logs import without_controls
from jestlab.platform.cli.outcome import answer_lines
from jestlab.platform.lab.lab import Lab
from jestlab.platform.render import TextTable
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import ExperimentRow

EVIL = "\x1b]52;c;ZXZpbA==\x07\x9b2Jred\x1b[31m\u202eabc"
REASON = "ValueError: the loss became NaN at step 12, after a learning rate that is far too high for this"
POINT = {"data.filter": "similarity > 0.25 and aesthetic > 4.3", "selection.filtering_ratio": 0.9}
EVIL_RUN = plans.run(f"=run {EVIL}", point={"ratio": EVIL})
STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a short path and a lab: published results, long texts, and control characters."""
    folder = tmp_path_factory.mktemp("w")
    store = Store.open(stores.empty_lab(folder / "lab").store_url)
    runs = [
        plans.run("reference"),
        plans.run("uniform", config={"steps": 9}),
        plans.run("joint", point=POINT),
    ]
    planned = plans.plan(*runs)
    plans.record(store, replace(planned, study=planned.study.model_copy(update={"question": f"{REASON}?"})))
    plans.record(store, plans.plan(EVIL_RUN, name="evil"))
    for run in runs[:2]:
        stores.attempt(store, run, scores={"toy/score": 0.25, "toy/other": 0.5}, loss=(2.0, 1.0))
    stores.attempt(store, runs[2], RunState.FAILED, reason=REASON)
    stores.attempt(store, EVIL_RUN, RunState.FAILED, scores={"toy/score": 0.5}, loss=(1.0,), reason=EVIL)
    with store.writing() as connection:
        connection.execute(update(ExperimentRow).where(ExperimentRow.name == "evil").values(name=EVIL))
    store.close_whole()
    np.savez(folder / "evil.npz", **{f"params/{EVIL}": np.zeros(3, np.float32)})  # type: ignore[arg-type]
    with chdir(folder):
        assert labs.here("published", "import").returncode == 0
    return folder


@pytest.fixture
def call(folder, monkeypatch, capsys):
    """Call a command, and return all that it prints."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(studies, "study_names", lambda: ["quickstart", "filtering_ratio"])
    monkeypatch.setenv("TERM", "xterm")

    def call(command, columns=None, terminal=False):
        words = [word.replace("EVIL", EVIL) for word in shlex.split(command)]
        with monkeypatch.context() as patch, pytest.raises(SystemExit):
            if columns is not None:
                patch.setenv("COLUMNS", str(columns))
            patch.setattr("sys.stdout.isatty", lambda: terminal)
            patch.setattr("sys.stderr.isatty", lambda: terminal)
            main(words)
        return "".join(capsys.readouterr())

    return call


@pytest.mark.parametrize(
    "command",
    [
        *(
            "status",
            "status --json",
            "watch EVIL --once",
            "query --view runs",
            "note EVIL EVIL",
            "table EVIL",
        ),
        *("query --view runs --format json", "gc", "launch 'no EVIL'", "noEVIL", "import EVIL.zip"),
        "weights inspect evil.npz",
    ],
)
def test_data_control_no_terminal(command, call, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    text = call(command, terminal=True)
    assert text and not set(text) & set("\x1b\x07\x9b\u202e")


def test_json_is_exact_and_spreadsheets_evaluate_nothing(call):
    assert EVIL in [row["experiment"] for row in json.loads(call("status --json"))]
    text = call("query 'SELECT label AS \"=label\", -1.5 AS x FROM v_runs ORDER BY label' --format csv")
    header, row = [*csv.reader(io.StringIO(text))][:2]
    assert header[0] == "'=label" and row == [f"'{EVIL_RUN.label}", "-1.5"]


def test_all_text_is_printed_by_one_module():
    folder = Path(cli.__file__).parent
    assert [p.name for p in folder.glob("*.py") if "click.echo(" in p.read_text()] == ["output.py"]


def test_a_log_keeps_colors_on_a_terminal_and_everything_in_a_pipe(folder, capfdbinary):
    log = "\x1b[1;31mred\x1b[0m ä 10%\r20%\n\x1b]0;title\x07\x1b[2J\x9b1m end\x1b[".encode()
    for size in (1, 3, 1000):
        shown = b"".join(without_controls(log[i : i + size] for i in range(0, len(log), size))).decode()
        assert shown == "\x1b[1;31mred\x1b[0m ä 10%\r20%\n ]0;title  [2J 1m end ["
    path = folder / "lab" / EVIL_RUN.directory / "log.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(EVIL.encode() + b"\xff\n")
    with pytest.raises(SystemExit):
        main(["logs", EVIL_RUN.fingerprint[:8], "--root", str(folder / "lab")])
    assert capfdbinary.readouterr().out == path.read_bytes()


def test_a_terminal_gets_colors_and_aligned_text_and_a_pipe_markdown(call, monkeypatch):
    assert call("table toy").startswith("| run")
    assert call("table toy --format md", terminal=True).startswith("| run")
    shown = call("table toy", 100, terminal=True)
    assert "\x1b[1mscore\x1b[0m" in shown and "|" not in shown
    plain = call("status toy")
    monkeypatch.setenv("FORCE_COLOR", "1")
    colored = call("status toy")
    assert STYLE.sub("", colored) == plain and "\x1b" not in plain
    assert "\x1b[32mCOMPLETED\x1b[0m" in colored and "\x1b[31mFAILED\x1b[0m" in colored


def test_notes_are_counted_on_a_terminal_and_complete_elsewhere(call, folder):
    note = "CLIP: Radford et al. 2021"
    shown = STYLE.sub("", call("table comparison", 80, terminal=True))
    assert shown.endswith("\n3 notes: --notes\n") and shown.count("‡") == 3 and note not in shown
    assert note in call("table comparison --notes", 200, terminal=True) and note in call("table comparison")
    call("table comparison --format text -o table.txt", 80, terminal=True)
    assert note in (folder / "table.txt").read_text()


def test_the_table_of_an_experiment_ends_with_its_answer(call, folder):
    lab = Lab.find(folder / "lab")
    answer = " ".join(" ".join(answer_lines(lab, "toy")).split())
    assert answer and " ".join(STYLE.sub("", call("table toy", terminal=True)).split()).endswith(answer)
    for other in ("table toy --columns score", "table speedups toy", "table toy --format md"):
        assert answer not in " ".join(call(other, terminal=True).split())


COMMANDS = f"""
--help; list; show quickstart; plan quickstart --scale paper --why; plan filtering_ratio --all
costs multi_resolution; status; status toy; watch toy --once; logs toy/nothing; query; query --view runs
diff toy/uniform toy/reference; table toy; table speedups toy; table comparison
table toy --explain uniform toy/score; published list; db check
note toy "{REASON} and {REASON}"; tag toy/uniform keep best submitted-to-the-workshop
retract toy/uniform "{REASON}"; gc --older-than 0s; trust toy --dry-run; weights inspect toy/uniform
"""


def test_no_line_is_wider_than_the_terminal(call):
    everything = ""
    for command in COMMANDS.strip().replace("\n", "; ").split("; "):
        for columns in (140, 80) if command.startswith(("status", "query")) else (80,):
            printed = STYLE.sub("", call(command, columns, terminal=True))
            wide = [line for line in printed.splitlines() if cell_len(line) > columns]
            assert printed and wide == [], (command, columns)
            everything += printed if columns == 80 else ""
    assert "(a pipe shows all)" in everything
    assert set(REASON.split()) <= set(everything.split())  # lines break between words


NAMES = r"[A-Z]*FLOPs?|ImageNet-1K|COCO|CUB|Caltech|Stanford|Oxford-IIIT|[IT]2[IT]|R@1|UTC|Δ"
"""Words with capital letters in headers: units, and names of benchmarks and their metrics."""


def test_headers_are_in_lower_case(call, monkeypatch):
    headers: set[str] = set()
    lines = TextTable.lines

    def recorded(made, limit):
        headers.update(made.headers)
        return lines(made, limit)

    monkeypatch.setattr(TextTable, "lines", recorded)
    others = ["costs quickstart", "keys optimizer", "table specialists", "show-batch toy/uniform"]
    for command in [*COMMANDS.strip().replace("\n", "; ").split("; "), *others]:
        call(command, terminal=True)
    assert {"run", "study", "default", "method", "examples", "completed", "config"} <= headers
    assert [each for each in headers if re.sub(NAMES, "", each) != re.sub(NAMES, "", each).lower()] == []


def test_pipes_have_complete_lines(call):
    complete = call("status toy")
    assert REASON in complete and "planned" in complete
    for columns in ("9" * 5000, "-1", "0", "\u00b2"):  # no width
        assert call("status toy", columns) == complete
    narrow = call("status toy", 60)
    assert max(map(len, narrow.splitlines())) <= 60 and "not shown: " in narrow


LONG = "x" * 99


@pytest.mark.parametrize("command", [f"show no-such-study-{LONG}", f"show --no-such-option{LONG}", LONG])
def test_an_error_is_one_line_in_a_pipe_and_wrapped_on_a_terminal(command, call):
    error = call(command, 40)
    assert error.count("\n") == 1 and len(error) > 100
    assert call(command, 40, terminal=True).count("\n") > 1


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
    error = call(command.format("x" * 300))
    assert error.count("\n") == 1 and "Errno" not in error and "x" * 50 in error


def test_a_closed_standard_output_is_no_error(tmp_path):
    script = f'"$@" status --root {tmp_path} >&-'
    ended = subprocess.run(["sh", "-c", script, "sh", *labs.JESTLAB], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
