"""`xmanager launch` with spec files, as users run it."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

STUDY = """
from jestlab.platform.cli.xmanager import xmanager_main
from jestlab.platform.spec import study

SCALES = ("smoke", "mini")
main = xmanager_main(__file__)

def get_config(scale):
    config = study(question="Does it run?", program="toy_programs:loop")
    config.base = {"steps": 3 if scale == "smoke" else 5}
    config.runs.only = {}
    return config
"""


def xmanager(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "study.py").write_text(STUDY)
    command = [sys.executable, "-c", "from xmanager.cli.cli import entrypoint; entrypoint()", "launch"]
    return subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)


def test_xmanager_launch_takes_the_options_of_jestlab_launch(tmp_path, root):
    options = ["--scale", "mini", f"--root={root}", "--set", "seeds=[7]", "--set=question=Why?"]
    done = xmanager(tmp_path, "study.py", "--", *options, "--no-reports")
    assert done.returncode == 0, done.stderr
    assert "[1/1] COMPLETED" in done.stdout
    assert "alembic" not in done.stderr and "migration.py" not in done.stderr
    with closing(sqlite3.connect(root / "results.db")) as store:
        assert store.execute("SELECT experiment, run, seed, state, step FROM v_runs").fetchall() == [
            ("study", "only", 7, "COMPLETED", 5)
        ]
        assert store.execute("SELECT question FROM v_experiments").fetchall() == [("Why?",)]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--set=seed=3", "jestlab: --set seed: unknown key 'seed': did you mean 'seeds'?"),
        ("--scal=mini", "Unknown command line flag 'scal'. Did you mean: scale ?"),
    ],
)
def test_errors_are_printed_in_one_line(tmp_path, root, option, message):
    (tmp_path / "own.yaml").write_text("program: toy_programs:loop\nruns: {only: {}}\n")
    (tmp_path / "launch_own.py").write_text(
        "from jestlab.platform.cli.xmanager import xmanager_main\nmain = xmanager_main('own.yaml')\n"
    )
    done = xmanager(tmp_path, "launch_own.py", "--", "--root", str(root), option)
    assert done.returncode not in (0, None)
    assert message in " ".join(done.stderr.split())  # long lines are wrapped
    assert "Traceback" not in done.stderr
    assert not root.exists()
