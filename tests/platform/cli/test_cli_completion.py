"""Shells complete verbs, options, studies, experiments, and runs."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import plans_support as plans
import pytest
import stores_support as stores
from click.shell_completion import get_completion_class
from click.testing import CliRunner

from jestlab.analysis.tables import NAMES
from jestlab.platform.cli import cli
from jestlab.platform.store.store import Store

POINTS = [plans.run("joint", point={"ratio": ratio}) for ratio in (0.5, 0.8)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a spec, and a lab that has a study of two points and a study of two seeds."""
    store = Store.open(stores.empty_lab(tmp_path / "lab").store_url)
    plans.record(store, plans.plan(plans.run("uniform"), *POINTS))
    plans.record(store, plans.plan(plans.run("cli=p", seed=0), plans.run("cli=p", seed=1), name="seeds"))
    store.close_whole()
    (tmp_path / "mine.yaml").write_text("name: mine\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "other.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def completed(line, shell="fish"):
    """Return the values that a shell gets for a line up to the cursor; "//file" where it completes files.

    fish passes the line and its last word; bash one word per line, and the index of the last.
    """
    word = re.findall(r"(?:\\.|'[^']*'?|[^\s'\\])*$", line)[0]
    variables = (
        (f"jestlab {line}", word) if shell == "fish" else (f"jestlab\n{line}", str(line.count("\n") + 1))
    )
    with patch.dict(os.environ, zip(("COMP_WORDS", "COMP_CWORD"), variables, strict=True)):
        kind = get_completion_class(shell)
        found = kind(cli, {}, "jestlab", "_JESTLAB_COMPLETE").complete().splitlines()
    pairs = [each.partition("\t")[0].partition(",")[::2] for each in found]
    return [value if kind == "plain" else f"//{kind}" for kind, value in pairs]


@pytest.mark.parametrize(
    ("line", "expected"),
    {
        "": [*cli.verbs],
        "wa": ["watch"],
        "table ": [*NAMES, "toy", "seeds"],
        "logs ": ["seeds/", "toy/"],
        "logs t": ["toy/uniform", "toy/joint ratio=0.5", "toy/joint ratio=0.8"],
        "logs toy/": ["toy/uniform", "toy/joint ratio=0.5", "toy/joint ratio=0.8"],
        "logs 'toy/joint r": ["toy/joint ratio=0.5", "toy/joint ratio=0.8"],
        "status se": ["seeds"],
        "retry seeds/": ["seeds/cli=p/0", "seeds/cli=p/1"],
        "diff toy/uniform toy/u": ["toy/uniform"],
        "launch mine.yaml ": [],
        "launch toy ": ["toy/uniform", "toy/joint ratio=0.5", "toy/joint ratio=0.8"],
        "plan m": ["mine.yaml", "multi_resolution"],
        "plan more/": ["//file"],
        "table claims seeds t": ["toy"],
        "watch --root lab t": ["toy"],
        "watch --root nowhere t": [],
        "watch --store sqlite:///lab/results.db t": ["toy"],
        "watch --store postgresql://u:p@nowhere/db t": [],
        "table toy --format la": ["latex"],
        "table toy --bas": ["--baseline"],
        "table --score a/b to": ["toy"],
        "table toy --root ": ["//dir"],
        "table toy --output ": ["//file"],
        "query --experiment to": ["toy"],
        "weights ": ["inspect", "import", "export"],
        "data make s": ["shapes"],
        "weights inspect toy/u": ["toy/uniform"],
        "weights export --for": ["--force", "--format"],
        "completion z": ["zsh"],
        "plan mine.yaml --scale m": ["mini"],
        "data score toy/u": ["toy/uniform"],
        "export ": ["//file"],
        "data make shapes ": ["//dir"],
    }.items(),
)
def test_completes_options_and_names(folder, line, expected):
    assert sorted(completed(line)) == sorted(expected)


def test_completes_nothing_without_a_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert completed("logs ") == completed("status x") == []
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "results.db").write_bytes(b"no database")
    assert completed("logs ") == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["logs", "toy/j"], [r"toy/joint\ ratio=0.5", r"toy/joint\ ratio=0.8"]),
        (["logs", "'toy/joint r"], ["toy/joint ratio=0.5", "toy/joint ratio=0.8"]),
        (["logs", r"toy/joint\ ratio", "=", "0"], ["0.5", "0.8"]),
        (["retry", "seeds/cli", "="], ["p/0", "p/1"]),
        (["table", "toy", "--format", "=", "la"], ["latex"]),
        (["status", ""], ["seeds", "toy"]),
    ],
)
def test_bash_gets_the_rest_of_its_last_word(folder, words, expected):
    assert sorted(completed("\n".join(words), "bash")) == expected


def test_a_real_bash_completes(folder):
    """Complete an experiment, and a run whose label has a space and an equals sign."""
    script = ""
    for name in ("zsh", "fish", "bash"):
        script = CliRunner().invoke(cli, ["completion", name]).output
        assert f"_JESTLAB_COMPLETE={name}_complete" in script
    (folder / "rc").write_text(f"PATH={Path(sys.executable).parent}:$PATH\nPS1='$ '\n{script}")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "HOME": str(folder), "INPUTRC": "/dev/null"}
    shell = subprocess.Popen(
        ["bash", "--rcfile", "rc", "-i"], stdin=theirs, stdout=theirs, stderr=theirs,
        env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)

    def wait_for(until, seconds=120.0):
        text, end = "", time.monotonic() + seconds
        while until not in text and time.monotonic() < end:
            if select.select([ours], [], [], 0.1)[0]:
                text += os.read(ours, 65536).decode(errors="replace").replace("\x07", "")
        assert until in text, text

    try:
        wait_for("$ ")
        for typed, expected in (
            ("echo jestlab", "echo jestlab"),
            ("\x15jestlab logs t\t", "jestlab logs toy/"),
            ("j\t", r"joint\ ratio=0."),
            ("8\t", "8 "),
        ):
            os.write(ours, typed.encode())
            wait_for(expected)
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
