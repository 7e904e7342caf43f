"""Benchmarks are no tests, but they have to start: each imports what it measures."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = [*sorted(HERE.glob("bench*.py")), HERE.parent / "faults/campaign.py"]


def test_they_start_in_any_folder(tmp_path):
    """As scripts, without what pytest adds to the path; all at once, so that imports are shared."""
    start = "import runpy, sys\nfor path in sys.argv[1:]:\n    runpy.run_path(path, run_name='imported')"
    done = subprocess.run(
        [sys.executable, "-c", start, *map(str, SCRIPTS)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
