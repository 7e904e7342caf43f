"""Benchmarks and fault campaigns are scripts: they have to start in any folder, without pytest's path."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPTS = [*sorted(HERE.glob("bench*.py")), *sorted((HERE.parent / "faults").glob("*campaign.py"))]


def test_options_and_table_of_a_benchmark(tmp_path):
    """One that imports no JAX, with its smallest sizes."""
    command = [sys.executable, str(HERE / "bench_pareto.py"), "--points", "50", "--rounds", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    about, _, header, _, *rows = done.stdout.splitlines()
    assert "50 points" in about
    assert header == "| points | on the front | jestlab |"
    assert [row.split(" | ")[0] for row in rows][:2] == ["| uniform", "| anti-correlated, noise 0.02"]
    assert len(rows) == 5


@pytest.mark.full
def test_every_script_imports(tmp_path):
    """All at once, so that imports are shared."""
    start = "import runpy, sys\nfor path in sys.argv[1:]:\n    runpy.run_path(path, run_name='imported')"
    done = subprocess.run(
        [sys.executable, "-c", start, *map(str, SCRIPTS)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
