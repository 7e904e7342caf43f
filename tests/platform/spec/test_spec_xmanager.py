"""`xmanager launch` with spec files, as its users type it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

STUDY = """
from jestlab.platform.spec import study, xmanager_main

SCALES = ("smoke", "mini")
main = xmanager_main(__file__)

def get_config(scale):
    config = study(question="Does it run?", program="toy_programs:loop")
    config.base = {"steps": 3 if scale == "smoke" else 5}
    config.runs.reference = {}
    config.runs.joint = {"needs": ["reference"]}
    return config
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "study.py").write_text(STUDY)
    return tmp_path


def xmanager(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from xmanager.cli.cli import entrypoint; entrypoint()"]
    return subprocess.run(
        [*command, "launch", *arguments], cwd=folder, capture_output=True, text=True, timeout=120
    )


def test_xmanager_launch_does_what_jestlab_launch_does(folder, root):
    options = ["--scale", "mini", f"--root={root}", "--set", "seeds=2", "--set=runs.joint.steps=4"]
    done = xmanager(folder, "study.py", "--", *options, "--no-reports")
    assert done.returncode == 0, done.stderr
    assert "[4/4] COMPLETED" in done.stdout
    assert "alembic" not in done.stderr and "migration.py" not in done.stderr
    rows = sqlite3.connect(root / "results.db").execute(
        "SELECT experiment, run, seed, state, step FROM v_runs ORDER BY run, seed"
    )
    assert rows.fetchall() == [
        ("study", "joint", 0, "COMPLETED", 4),
        ("study", "joint", 1, "COMPLETED", 4),
        ("study", "reference", 0, "COMPLETED", 5),
        ("study", "reference", 1, "COMPLETED", 5),
    ]


def test_a_script_of_two_lines_launches_a_yaml_file(folder, root):
    (folder / "own.yaml").write_text("program: toy_programs:loop\nbase: {steps: 2}\nruns: {only: {}}\n")
    (folder / "launch_own.py").write_text(
        "from jestlab.platform.spec import xmanager_main\nmain = xmanager_main('own.yaml')\n"
    )
    done = xmanager(folder, "launch_own.py", "--", "--root", str(root))
    assert done.returncode == 0, done.stderr
    assert sqlite3.connect(root / "results.db").execute("SELECT run, state FROM v_runs").fetchall() == [
        ("only", "COMPLETED")
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scale", "nano"], "study.py has no scale 'nano': valid: smoke, mini"),
        (["--set", "seed=3"], "unknown key 'seed': did you mean 'seeds'?"),
        (["--scal", "mini"], "Unknown command line flag 'scal'. Did you mean: scale ?"),
        (["another.py"], "RUN: a launch takes the whole study"),
    ],
)
def test_errors_are_printed_in_one_line(folder, root, options, message):
    done = xmanager(folder, "study.py", "--", "--root", str(root), *options)
    assert done.returncode not in (0, None)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not root.exists()


def test_a_spec_with_a_main_loads_as_quickly_as_one_without(folder, root):
    """Neither absl nor XManager is imported for `jestlab plan study.py`."""
    code = (
        "import sys; from jestlab.platform.spec.load import load; load('study.py');"
        "print(sorted({'absl.flags', 'absl.app', 'xmanager'} & set(sys.modules)))"
    )
    base = code.replace("load('study.py')", "load('plain.py')")
    (folder / "plain.py").write_text(STUDY.replace("main = xmanager_main(__file__)\n", ""))
    found = [
        subprocess.run(
            [sys.executable, "-c", each], cwd=folder, env=dict(os.environ), capture_output=True, text=True
        ).stdout
        for each in (code, base)
    ]
    assert found[0] == found[1] != ""
    assert "xmanager" not in found[0]
