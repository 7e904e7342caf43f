"""`make gpu` at toy sizes: no part can fail on a GPU for a reason that the CPU would show."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.benchmarks.gpu.part import largest_that_fits
from tests.benchmarks.gpu.run import Job, tables, work
from tests.benchmarks.gpu.wheels import THERE, locked, needed

RUN = Path(__file__).with_name("run.py")
PYTHON_312 = {
    "python_version": "3.12", "python_full_version": "3.12.0", "platform_machine": "x86_64",
    "sys_platform": "linux", "platform_system": "Linux", "platform_python_implementation": "CPython",
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.full
def test_dry_run_completes_all_parts(tmp_path):
    command = [sys.executable, str(RUN), "--toy", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    results = json.loads((tmp_path / "out/results.json").read_text())
    jobs = results["jobs"]
    assert [(job["part"], job["case"]) for job in jobs if job["state"] != "ok"] == [], done.stderr
    assert [
        job["part"] for job in jobs if not job["rows"] or any("error" in row for row in job["rows"])
    ] == []
    assert list(dict.fromkeys(job["part"] for job in jobs)) == [
        *("correctness", "selection", "steps", "memory", "reuse", "quickstart")
    ]
    launch, *runs, _ = jobs[-1]["rows"]
    assert launch["end"] == "completed"
    assert {run["run"] for run in runs if run["losses"]} == {"reference", "uniform", "independent", "joint"}
    assert done.returncode == 0, done.stderr
    assert (
        "| PyTorch, matrix |" in (tmp_path / "out/tables.md").read_text() == done.stdout.rstrip("\n") + "\n"
    )


PARTS = {
    "raises": "raise ValueError('no such kernel')",
    "ends": "import sys; sys.exit('no GPU')",
    "hangs": "import time; time.sleep(600)",
    "silent": "",
}


@pytest.fixture
def parts(tmp_path):
    """A folder with modules in place of the parts."""
    folder = tmp_path / "tests/benchmarks/gpu"
    folder.mkdir(parents=True)
    for name, code in PARTS.items():
        (folder / f"{name}.py").write_text(code)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "limit", "expected"),
    [
        ("raises", 60, "exit code 1: ValueError: no such kernel"),
        ("ends", 60, "exit code 1: no GPU"),
        ("hangs", 1, "stopped at its time limit of 1 s"),
        ("silent", 60, "it measured nothing"),
    ],
)
def test_failing_parts_are_reported(name, limit, expected, parts, tmp_path, monkeypatch):
    import time

    monkeypatch.setattr("tests.benchmarks.gpu.run.ROOT", parts)
    job = Job(name, limit_seconds=limit, least_seconds=0)
    work(job, tmp_path, {"PYTHONPATH": str(parts)}, time.monotonic() + 60, toy=False)
    assert (job.state, job.error) == ("failed", expected)
    assert expected in "".join(tables([job], ""))


def test_parts_without_time_are_reported(tmp_path):
    job = Job("steps")
    work(job, tmp_path, {}, deadline=0.0, toy=False)
    assert (job.state, job.error) == ("not run", "no time left")
    assert "| steps | not run | 0 | no time left |" in "".join(tables([job], ""))


class OutOfMemoryError(Exception):
    """As PyTorch's."""


def test_sizes_are_halved_until_they_fit():
    tried = []

    def call(size):
        tried.append(size)
        if size > 100:
            raise OutOfMemoryError if size > 200 else RuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return -size

    assert largest_that_fits(512, call) == (64, -64)
    assert tried == [512, 256, 128, 64]
    with pytest.raises(OutOfMemoryError):
        largest_that_fits(512, call, smallest=300)


def test_wheels_are_what_the_machine_lacks():
    lines = locked(
        needed(["flax", "grain", "sqlalchemy>=2"], PYTHON_312) - needed(THERE, PYTHON_312), PYTHON_312
    )
    names = {Requirement(line.split()[0]).name for line in lines}
    assert {"grain", "sqlalchemy"} <= names
    assert not names & {"flax", "jax", "numpy"}
    assert all("--hash=sha256:" in line for line in lines)
