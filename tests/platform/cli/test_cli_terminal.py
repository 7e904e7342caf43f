"""Nothing that comes from files or stores gives orders to a terminal."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import plans_support as plans
import pytest
import stores_support as stores
from sqlalchemy import update

import jestlab.platform.cli as cli
from jestlab.models.data.tars import TarWriter
from jestlab.platform.cli import main
from jestlab.platform.cli.logs import Terminal
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.display import Lines
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Experiment

EVIL = "\x1b]52;c;ZXZpbA==\x07\x9b2Jred\x1b[31m\u202eabc"
OBEYED = "\x1b\x07\x9b\u202e"


def is_harmless(text):
    return not set(text) & set(OBEYED)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "lab"


@pytest.fixture
def evil(root):
    """A lab with an experiment and a run of evil names."""
    lab = Lab.find(root)
    store = Store.open(lab.store_url)
    run = plans.run(f"=run {EVIL}", point={"ratio": EVIL})
    store.record(plans.plan(run))
    stores.attempt(store, run, RunState.FAILED, scores={"toy/score": 0.5}, loss=(1.0,), reason=EVIL)
    with store.writing() as connection:
        connection.execute(update(Experiment).values(name=f"toy{EVIL}"))
    return run


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["status", f"toy{EVIL}"],
        ["watch", f"toy{EVIL}", "--once"],
        ["query", "--view", "runs"],
        ["query", "--view", "runs", "--format", "json"],
        ["status", "--json"],
        ["note", f"toy{EVIL}", EVIL],
        ["table", f"toy{EVIL}"],
        ["gc"],
    ],
    ids=str,
)
def test_names_in_a_store(evil, root, capsys, words, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: words[0] == "query")
    monkeypatch.setenv("NO_COLOR", "1")
    with pytest.raises(SystemExit):
        main([*words, "--root", str(root)])
    printed = capsys.readouterr()
    assert printed.out + printed.err and is_harmless(printed.out + printed.err)


def test_json_says_exactly_what_the_store_has(evil, jestlab):
    [experiment] = json.loads(jestlab("status", "--json"))
    assert experiment["experiment"] == f"toy{EVIL}"
    [row] = json.loads(jestlab("query", "--view", "runs", "--format", "json"))
    assert row["label"] == evil.label


def test_a_spreadsheet_gets_no_formula(evil, jestlab):
    [header, row] = csv.reader(
        io.StringIO(jestlab("query", 'SELECT label AS "=label", -1.5 AS x FROM v_runs', "--format", "csv"))
    )
    assert header[0] == "'=label" and row == ["'" + evil.label, "-1.5"]


@pytest.mark.parametrize(
    "words", [["launch", f"no {EVIL}"], [f"no{EVIL}"], ["import", f"{EVIL}.tar.gz"]], ids=str
)
def test_errors(words, capsys):
    with pytest.raises(SystemExit):
        main(words)
    printed = capsys.readouterr().err
    assert printed.startswith("jestlab: ") and is_harmless(printed)


def test_captions_are_shown_on_a_short_line(tmp_path, capsys):
    with TarWriter(tmp_path / "0.tar") as tar:
        for number, caption in enumerate([EVIL, "x" * 2_000, "z" * (50 << 20)]):
            tar.add(f"{number}.jpg", b"x")
            tar.add(f"{number}.txt", caption.encode())
            tar.add(f"{number}.json", json.dumps({"noise": EVIL}).encode())
    with pytest.raises(SystemExit) as stopped:
        main(["data", "inspect", str(tmp_path)])
    shown = capsys.readouterr().out
    assert stopped.value.code == 0 and is_harmless(shown)
    assert "1 × caption too long" in shown and max(map(len, shown.splitlines())) < 600


def test_names_of_tensors(tmp_path, capsys):
    tensors: dict[str, Any] = {f"params/{EVIL}": np.zeros(3, np.float32)}
    np.savez(tmp_path / "evil.npz", **tensors)
    with pytest.raises(SystemExit):
        main(["weights", "inspect", str(tmp_path / "evil.npz")])
    assert is_harmless(capsys.readouterr().err)


def test_reasons_and_labels_during_a_launch():
    stream = io.StringIO()
    lines = Lines("toy", stream)
    lines.begin(1)
    lines.state(plans.run(EVIL), RunState.FAILED, f"first\n{EVIL}")
    lines.note(EVIL)
    assert is_harmless(stream.getvalue()) and len(stream.getvalue().splitlines()) == 3


def test_every_line_for_people_is_printed_by_one_function():
    folder = Path(cli.__file__).parent
    assert [p.name for p in folder.glob("*.py") if "click.echo(" in p.read_text()] == ["output.py"]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_log_on_a_terminal_keeps_colours_and_progress_bars(size):
    log = "\x1b[1;31mred\x1b[0m ä 10%\r20%\n\x1b]0;title\x07\x1b[2J\x9b1m end\x1b[".encode()
    terminal = Terminal()
    shown = b"".join(terminal.shown(log[i : i + size]) for i in range(0, len(log), size)) + terminal.end()
    assert shown.decode() == "\x1b[1;31mred\x1b[0m ä 10%\r20%\n ]0;title  [2J 1m end [\x1b[0m"


def test_a_log_in_a_pipe_is_as_it_is(evil, root, capfdbinary):
    folder = root / evil.directory
    folder.mkdir(parents=True)
    (folder / "log.txt").write_bytes(EVIL.encode() + b"\xff\n")
    with pytest.raises(SystemExit):
        main(["logs", evil.fingerprint[:8], "--root", str(root)])
    assert capfdbinary.readouterr().out == EVIL.encode() + b"\xff\n"
