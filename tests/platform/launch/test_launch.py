"""Launches: completed and failed runs, and runs that are not repeated."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import labs_support as labs
import plans_support as plans
from in_process import Scripted, launch_by, rows

from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.executors.base import JobState, JobStatus
from jestlab.platform.launch.executors.local import LocalExecutor
from jestlab.platform.launch.outcome import LaunchOutcome
from jestlab.platform.reports.update import Build
from jestlab.platform.store.records import RunState


def launched(root, spec, **options) -> tuple[LaunchOutcome, dict[str, RunState]]:
    """Launch in this process; return the outcome, and the states by name."""
    planned = labs.planned(spec)
    outcome = labs.launch_here(root, planned, **options)
    return outcome, {run.name: outcome.states[run.fingerprint] for run in planned.runs}


def test_runs_complete_after_those_that_they_need(root, tmp_path, machine):
    """Equal configs are one run, trained once, under the names of reference and baseline."""
    runs = {"reference": {}, "baseline": {}, "joint": {"needs": ["reference"]}, "uniform": {"steps": 12}}
    outcome, states = launched(root, labs.write_study(tmp_path, seeds=2, runs=runs))
    assert (outcome.exit_code, outcome.launched, len(machine.jobs)) == (0, 6, 6)
    assert set(states.values()) == {RunState.COMPLETED}
    needed = "SELECT DISTINCT run, needed FROM v_runs ORDER BY run"
    assert rows(root, needed) == [("baseline", 0), ("joint", 0), ("reference", 1), ("uniform", 0)]
    ended = dict(rows(root, "SELECT run || seed, ended_at FROM v_runs"))
    began = dict(rows(root, "SELECT run || seed, started_at FROM v_runs"))
    assert all(began[f"joint{seed}"] > ended[f"reference{seed}"] for seed in (0, 1))
    assert rows(root, "SELECT COUNT(DISTINCT fingerprint || step) FROM v_metrics") == [(2 * (10 + 10 + 12),)]


def test_a_failure_skips_what_needs_it_and_nothing_else(root, tmp_path, machine):
    runs = {
        "reference": {"fail_at": 3},
        "joint": {"needs": ["reference"]},
        "after": {"needs": ["joint"], "steps": 3},
        "uniform": {"steps": 12},
    }
    spec = labs.write_study(tmp_path, runs=runs)
    outcome, states = launched(root, spec)
    assert outcome.exit_code == 1
    expected = {"reference": "FAILED", "joint": "SKIPPED", "after": "SKIPPED", "uniform": "COMPLETED"}
    assert states == expected
    reasons = dict(rows(root, "SELECT run, reason FROM v_runs"))
    assert reasons["reference"] == "FloatingPointError: diverged at step 3"
    assert reasons["joint"] == "depends on reference/0, which is FAILED"
    assert machine.count("uniform") == 1
    assert launched(root, spec)[0].exit_code == 1  # the next launch tries it again
    assert (machine.count("reference"), machine.count("uniform")) == (2, 1)


def test_a_smaller_study_of_the_same_name_reports_what_it_leaves_out(root, tmp_path, machine):
    launched(root, labs.write_study(tmp_path, runs={"a": {}, "b": {"steps": 5}}))
    again = labs.here("launch", labs.write_study(tmp_path, runs={"a": {}}), "--no-reports", root=root).stdout
    assert "no longer part of toy: 1 run of the last launch" in again and "nothing to run" in again
    assert rows(root, "SELECT COUNT(*) FROM run") == [(2,)]


def test_why_a_job_waits_is_shown_and_stored(root, tmp_path, unrecorded):
    executor = Scripted(JobStatus(JobState.QUEUED, "no nodes", place="2nd of 3"))
    found: list[tuple[str, Any]] = []

    class Reasons(Listener):
        def state(self, run: object, state: RunState, reason: str | None = None) -> None:
            if state == RunState.PENDING and reason is not None:
                found.append((reason, rows(root, "SELECT reason FROM run")))
                executor.status = JobStatus(JobState.FAILED, "over", 1)

    spec = labs.write_study(tmp_path, runs={"uniform": {}})
    launch_by(executor, root, spec, Reasons())
    assert found == [("no nodes", [("no nodes\n2nd of 3",)])]
    assert rows(root, "SELECT reason FROM run") == [("over",)]


def test_the_reason_of_a_process_that_reports_nothing_is_in_its_log(root, tmp_path, unrecorded):
    vanish = {"program": "toy_programs:vanish"}
    runs = {"gone": {**vanish, "code": 7}, "silent": {**vanish, "code": 0}}
    launched(root, labs.write_study(tmp_path, runs=runs))
    assert rows(root, "SELECT run, state, reason FROM v_runs ORDER BY run") == [
        ("gone", "FAILED", "exit code 7: about to vanish"),
        ("silent", "FAILED", "ended without completing: about to vanish"),
    ]


def test_a_worker_has_one_thread_and_nothing_to_read(root, tmp_path, unrecorded):
    spec = labs.write_study(tmp_path, runs={"look": {"program": "toy_programs:environment"}})
    launched(root, spec, make=LocalExecutor)
    [written] = (root / "runs").glob("look-*/environment.json")
    seen = json.loads(written.read_text())
    assert (seen["env"]["OMP_NUM_THREADS"], seen["stdin"], seen["cwd"]) == ("1", "", str(Path.cwd()))


def test_the_same_command_again_runs_nothing_and_imports_nothing_heavy(root, tmp_path, machine, monkeypatch):
    plans.blank_page(monkeypatch)
    spec = labs.write_study(tmp_path, reports=[{"kind": "table", "baseline": "uniform"}, "curves"])
    first = labs.here("launch", spec, root=root)
    assert first.returncode == 0, first.stderr
    check = (
        "import sys; from jestlab.platform.cli import main\n"
        f"try: main(['launch', {str(spec)!r}, '--root', {str(root)!r}])\n"
        "except SystemExit as end: assert end.code == 0, end\n"
        "heavy = {'jax', 'xmanager', 'alembic', 'matplotlib', 'flax', 'pandas', 'psutil', 'kubernetes'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    again = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "nothing to run: all 3 runs are COMPLETED" in again.stdout
    assert "| joint" in again.stdout
    build = Build.read(root / "reports" / "toy")
    assert build and build.answer
    assert " ".join(build.answer) in " ".join(again.stdout.split())  # lines may be wrapped
    assert str(root / "reports" / "toy" / "report.html") in again.stdout
    assert rows(root, "SELECT COUNT(*) FROM attempt") == [(3,)]


def test_names_runs_of_a_command_that_never_report_a_required_score(root, tmp_path, unrecorded):
    """The script of one run reports, and another run only prepares data for it."""
    script = (
        "import sys; from jestlab.platform import client; "
        "'quiet' in sys.argv or client.run().evaluation(1, dict([(sys.argv[1], 0.5)]))"
    )
    command = [sys.executable, "-c", script, "{metric}", "{mode}"]
    spec = {
        "name": "toy",
        "program": "command",
        "base": {"command": command, "metric": "digits/accuracy", "mode": "loud"},
        "runs": {
            "data": {"mode": "quiet"},
            "loud": {"needs": ["data"]},
            "quiet": {"mode": "quiet"},
            "slow": {"metric": "digits/seconds"},
            "fast": {"metric": "digits/seconds"},
        },
        "seeds": 2,
        "metrics": {"digits/accuracy": {"goal": "max"}, "digits/seconds": {"goal": "min"}},
        "claims": [
            {"statement": "Quiet is better", "of": "quiet", "above": "loud", "measure": "digits/accuracy"},
            {"statement": "Slow takes longer", "of": "slow", "above": "fast", "measure": "digits/seconds"},
        ],
    }
    (tmp_path / "toy.yaml").write_text(json.dumps(spec))
    line = (
        "2 runs of toy completed without reporting 'digits/accuracy': quiet/0, quiet/1; report it with "
        "`client.run().evaluation(step, {'digits/accuracy': value})`, and launch with --rerun-changed"
    )
    said = labs.here("launch", tmp_path / "toy.yaml", "--no-reports", root=root).stdout
    assert said.count("completed without") == 1 and line in said.splitlines()
    assert line in labs.here("status", "toy", root=root).stdout.splitlines()
    assert line in labs.here("table", "toy", root=root).stderr.splitlines()
    for key in ("metrics", "claims"):  # without which no score is required
        del spec[key]
    (tmp_path / "toy.yaml").write_text(json.dumps(spec))
    assert "completed without" not in labs.here("launch", tmp_path / "toy.yaml", root=root).stdout
