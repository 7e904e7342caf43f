"""Launching with real processes: what completes, what fails, what is done once."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import labs_support as labs

from jestlab.analysis import frames, tables
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import logs
from jestlab.platform.launch.controller import Outcome
from jestlab.platform.launch.executors.local import Local
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.load import load
from jestlab.platform.store.records import RunState


def launched(root, spec, **options) -> tuple[Outcome, dict[str, RunState]]:
    """Launch in this process; the outcome, and the states by name (and seed, where it is not 0)."""
    planned = plan(load(str(spec)))
    outcome = labs.launch_here(root, planned, **options)
    return outcome, {
        run.name + (f"/{run.seed}" if run.seed else ""): outcome.states[run.fingerprint]
        for run in planned.runs
    }


def rows(root, sql: str) -> list[tuple[Any, ...]]:
    return sqlite3.connect(root / "results.db").execute(sql).fetchall()


def test_runs_complete_in_the_order_of_their_needs(root, tmp_path):
    outcome, states = launched(root, labs.write_study(tmp_path, seeds=2))
    assert outcome.exit_code == 0
    assert outcome.launched == 6
    assert set(states.values()) == {RunState.COMPLETED}
    ended = dict(rows(root, "SELECT run || seed, ended_at FROM v_runs"))
    began = dict(rows(root, "SELECT run || seed, started_at FROM v_runs"))
    assert all(began[f"joint{seed}"] > ended[f"reference{seed}"] for seed in (0, 1))
    assert rows(root, "SELECT COUNT(*) FROM v_metrics WHERE name = 'loss'") == [(2 * (10 + 10 + 12),)]
    assert rows(root, "SELECT COUNT(*) FROM v_evaluations WHERE final") == [(2 * 3 * 2,)]
    [commit] = rows(root, "SELECT DISTINCT git_commit FROM attempt")[0]
    assert commit is None or len(commit) == 40


def test_no_more_run_at_once_than_there_are_places(root, tmp_path):
    runs = {f"run{i}": {"steps": 5 + i, "pause": 0.02} for i in range(5)}
    launched(root, labs.write_study(tmp_path, runs=runs), parallel=2)
    spans = rows(root, "SELECT started_at, ended_at FROM attempt")
    assert max(sum(a <= start < b for a, b in spans) for start, _ in spans) <= 2


def test_a_failure_skips_what_needs_it_and_nothing_else(root, tmp_path):
    runs = {
        "reference": {"fail_at": 3},
        "joint": {"needs": ["reference"]},
        "after": {"needs": ["joint"], "steps": 3},
        "uniform": {"steps": 12},
    }
    spec = labs.write_study(tmp_path, runs=runs)
    outcome, states = launched(root, spec)
    assert outcome.exit_code == 1
    assert states == {
        "reference": RunState.FAILED,
        "joint": RunState.SKIPPED,
        "after": RunState.SKIPPED,
        "uniform": RunState.COMPLETED,
    }
    reasons = dict(rows(root, "SELECT run, reason FROM v_runs"))
    assert reasons["reference"] == "ValueError: diverged at step 3"
    assert reasons["joint"] == "needs reference/0, which is FAILED"
    assert rows(root, "SELECT exit_code FROM attempt WHERE state = 'FAILED'") == [(1,)]
    [log] = (root / "runs").glob("reference-*/log.txt")
    assert "Traceback" in log.read_text()


def test_a_baseline_that_is_also_a_reference_competes_under_its_own_name(root, tmp_path):
    """Equal configs are one run, trained once, which stands in the table under both names."""
    runs = {"reference": {}, "uniform": {}, "joint": {"needs": ["reference"], "steps": 12}}
    outcome, _ = launched(root, labs.write_study(tmp_path, runs=runs))
    assert outcome.exit_code == 0
    assert rows(root, "SELECT run, needed FROM v_runs ORDER BY run") == [
        ("joint", 0),
        ("reference", 1),
        ("uniform", 0),
    ]
    assert rows(root, "SELECT COUNT(*) FROM attempt") == [(2,)]
    toy = frames.read(Lab.find(root).store_url, "toy")
    table = tables.summary(tables.finals(toy, "uniform")).frame.set_index("label")
    assert table["apart"].to_dict() == {"reference": True, "uniform": False, "joint": False}
    assert table.loc["uniform", "flops"] == 10e6  # as recorded: this program names no price
    against_reference = tables.summary(tables.finals(toy, "reference")).frame.set_index("label")
    assert against_reference.loc["joint", ["delta_mean", "fewer_examples"]].notna().all()


def test_a_smaller_study_of_the_same_name_says_what_it_leaves_out(root, tmp_path):
    spec = labs.write_study(tmp_path, runs={"a": {}, "b": {"steps": 5}})
    assert labs.here("launch", spec, root=root).returncode == 0
    spec = labs.write_study(tmp_path, runs={"a": {}})
    again = labs.here("launch", spec, root=root)
    assert "no longer part of toy: 1 run of the last launch" in again.stdout
    assert "nothing to run" in again.stdout
    assert rows(root, "SELECT COUNT(*) FROM run") == [(2,)]


def test_a_failed_run_is_tried_again_by_the_next_launch(root, tmp_path):
    runs = {"flaky": {"kill_at": 7}, "after": {"needs": ["flaky"], "steps": 3}}
    spec = labs.write_study(tmp_path, runs=runs)
    outcome, states = launched(root, spec)
    assert states == {"flaky": RunState.FAILED, "after": RunState.SKIPPED}
    [reason] = rows(root, "SELECT reason FROM v_runs WHERE run = 'flaky'")[0]
    assert reason.startswith("killed by SIGKILL")
    outcome, states = launched(root, spec)
    assert outcome.exit_code == 0
    assert [step for _, step in labs.starts(root, "flaky")] == [0, 5]
    attempts = "SELECT attempt.number, attempt.state FROM attempt JOIN run ON run.id = run_id"
    assert rows(root, f"{attempts} WHERE directory LIKE 'runs/flaky%' ORDER BY 1") == [
        (1, "FAILED"),
        (2, "COMPLETED"),
    ]


def test_the_reason_of_a_process_that_says_nothing_is_in_its_log(root, tmp_path):
    runs = {
        "gone": {"program": "toy_programs:vanish", "code": 7},
        "silent": {"program": "toy_programs:vanish", "code": 0},
    }
    _, states = launched(root, labs.write_study(tmp_path, runs=runs))
    assert set(states.values()) == {RunState.FAILED}
    reasons = dict(rows(root, "SELECT run, reason FROM v_runs"))
    assert reasons["gone"] == "exit code 7: about to vanish"
    assert reasons["silent"] == "ended without completing: about to vanish"
    assert set(rows(root, "SELECT attempts FROM v_runs")) == {(1,)}


def test_twenty_megabytes_without_a_newline_reach_the_log(root, tmp_path):
    _, states = launched(
        root,
        labs.write_study(tmp_path, runs={"loud": {"program": "toy_programs:flood", "megabytes": 20}}),
    )
    assert states == {"loud": RunState.COMPLETED}
    [log] = (root / "runs").glob("loud-*/log.txt")
    assert log.stat().st_size > 20_000_000
    assert len(logs.last_lines(log, 1, limit=1_000)) == 1_000


def test_what_a_program_leaves_running_is_swept(root, tmp_path):
    _, states = launched(
        root, labs.write_study(tmp_path, runs={"parent": {"program": "toy_programs:leave_child"}})
    )
    assert states == {"parent": RunState.COMPLETED}  # the fixture looks for the child


def test_a_worker_has_one_thread_a_cache_and_nothing_to_read(root, tmp_path):
    launched(
        root,
        labs.write_study(tmp_path, runs={"look": {"program": "toy_programs:environment"}}),
        executor=Local,
    )
    [written] = (root / "runs").glob("look-*/environment.json")
    seen = json.loads(written.read_text())
    assert seen["env"]["OMP_NUM_THREADS"] == seen["env"]["NPROC"] == "1"
    assert seen["env"]["JAX_COMPILATION_CACHE_DIR"] == os.environ["JAX_COMPILATION_CACHE_DIR"]
    assert seen["stdin"] == ""
    assert seen["cwd"] == str(Path.cwd())


def test_a_process_that_cannot_start_fails_its_run_alone(root, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/true")  # packaged; starts, and completes nothing
    _, states = launched(root, labs.write_study(tmp_path), executor=Local)
    assert states["uniform"] == RunState.FAILED
    (tmp_path / "not_a_program").write_text("no machine knows this format")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "not_a_program"))
    _, states = launched(root, labs.write_study(tmp_path), executor=Local)
    assert (states["uniform"], states["reference"], states["joint"]) == ("FAILED", "FAILED", "SKIPPED")
    reasons = dict(rows(root, "SELECT run, reason FROM v_runs"))
    assert reasons["uniform"].startswith("cannot start")


def test_the_same_command_again_runs_nothing_and_loads_nothing_heavy(root, tmp_path):
    spec = labs.write_study(tmp_path, reports=[{"kind": "table", "baseline": "uniform"}, "curves"])
    launched(root, spec)
    first = labs.here("launch", spec, root=root)
    assert first.returncode == 0, first.stderr
    check = (
        "import sys; from jestlab.platform.cli import main\n"
        f"try: main(['launch', {str(spec)!r}, '--root', {str(root)!r}])\n"
        "except SystemExit as end: assert end.code == 0, end\n"
        "heavy = {'jax', 'xmanager', 'alembic', 'matplotlib', 'flax'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    again = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "nothing to run: all 3 runs are COMPLETED" in again.stdout
    assert "| joint" in again.stdout
    assert str(root / "reports" / "toy" / "curves.png") in again.stdout
    assert rows(root, "SELECT COUNT(*) FROM attempt") == [(3,)]


def test_plain_lines_when_nobody_watches_and_json_alone_on_stdout(root, tmp_path):
    spec = labs.write_study(tmp_path, runs={"uniform": {}, "bad": {"fail_at": 1}})
    result = labs.jestlab("launch", spec, "--json", root=root)
    assert result.returncode == 1
    outcome = json.loads(result.stdout)
    assert outcome["counts"] == {"COMPLETED": 1, "FAILED": 1}
    assert outcome["exit_code"] == 1
    by_run = {run["run"]: run for run in outcome["runs"]}
    assert by_run["bad"]["reason"] == "ValueError: diverged at step 1"
    assert "COMPLETED  toy/uniform/0" in result.stderr
    assert "\x1b" not in result.stderr + result.stdout
    assert "Waiting for local jobs" not in result.stderr + result.stdout


def test_a_wrong_spec_writes_nothing(root, tmp_path):
    spec = labs.write_study(tmp_path, runs={"joint": {"needs": ["referense"]}, "reference": {}})
    result = labs.here("launch", spec, root=root)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "reference" in result.stderr
    assert not root.exists()
