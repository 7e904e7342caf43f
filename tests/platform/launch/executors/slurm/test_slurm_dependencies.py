"""`launch --detach=dependencies`: all runs are jobs that Slurm starts in order, and no launcher remains."""

import shutil

import labs_support as labs
import pytest
from slurm_support import PATH

CHAIN = {"reference": {}, "joint": {"needs": ["reference"]}, "flexi": {"needs": ["reference", "joint"]}}
RUNS = {**CHAIN, "uniform": {"steps": 12}}
SUBMIT = ("--detach=dependencies", "--on", "slurm")


@pytest.fixture
def study(lab, tmp_path):
    base = {"steps": 10, "gate": str(tmp_path / "gate")}
    return labs.write_study(tmp_path, base=base, runs=RUNS, resources={"retries": 0, "lease_seconds": 8.0})


def submit(lab, study, code=0):
    done = labs.here("launch", study, *SUBMIT, root=lab.root)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def follow(lab):
    """Return what `attach` prints until the launch has ended, and its exit code."""
    attached = labs.Command("attach", "toy", root=lab.root)
    said, _ = attached.communicate(180)
    return said, attached.returncode


def attempts(lab):
    query = "SELECT run, state FROM v_attempts ORDER BY run, number"
    return [tuple(row) for row in lab.rows(query)]


def test_runs_start_in_order_and_each_has_one_attempt(lab, study, tmp_path):
    said = submit(lab, study)
    assert "no launcher is running" in said and "jestlab attach toy" in said, said
    assert lab.rows("SELECT COUNT(*) FROM launcher") == [(0,)]
    queued = lab.cluster.tool("squeue", "-h", "-r", "-o", "%T %E").splitlines()
    assert sum("afterok" in line for line in queued) == 2, queued
    status = labs.here("status", "toy", root=lab.root).stdout
    assert "Dependency" in status and "heartbeat" not in status, status
    assert "no heartbeat" not in labs.here("watch", "toy", "--once", root=lab.root).stdout
    again = submit(lab, study)  # submits nothing more
    assert len(lab.cluster.tool("squeue", "-h", "-r").splitlines()) == len(queued), again
    (tmp_path / "gate").touch()
    said, code = follow(lab)
    assert code == 0 and "jestlab report toy" in said, said
    assert attempts(lab) == [(run, "COMPLETED") for run in sorted(RUNS)]


def test_a_failing_run_ends_its_dependents_and_a_later_launch_completes_them(lab, tmp_path):
    study = labs.write_study(tmp_path, base={"steps": 10}, runs=RUNS | {"reference": {"fail_at": 5}},
                             resources={"retries": 0, "lease_seconds": 8.0})  # fmt: skip
    submit(lab, study)
    said, code = follow(lab)
    assert code == 1 and "SKIPPED" in said and "depends on reference/0, which is FAILED" in said, said
    assert {state for run, state in lab.rows("SELECT run, state FROM v_runs") if run != "uniform"} == {
        "FAILED", "SKIPPED",
    }  # fmt: skip
    assert not lab.cluster.jobs()
    study = labs.write_study(tmp_path, base={"steps": 10}, runs=RUNS)
    done = labs.here("launch", study, "--on", "slurm", "--no-reports", root=lab.root)
    assert done.returncode == 0, done.stderr
    assert set(lab.rows("SELECT state FROM v_runs WHERE experiment = 'toy'")) == {("COMPLETED",)}


def test_cancel_ends_running_and_queued_jobs(lab, study):
    submit(lab, study)
    labs.wait_until(lambda: ("reference", "RUNNING") in attempts(lab), 120.0)
    done = labs.here("cancel", "toy", root=lab.root)
    assert done.returncode == 0 and "4 runs cancelled" in done.stdout, done.stdout
    assert not lab.cluster.jobs() and {state for _, state in attempts(lab)} == {"CANCELLED"}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_launch_killed_while_it_submits_is_completed_by_the_next_one(
    lab, study, tmp_path, monkeypatch, when
):
    """The launcher is killed with its second `sbatch`, before Slurm has the job or after."""
    real = shutil.which("sbatch", path=PATH)
    commands, count = tmp_path / "commands", tmp_path / "count"
    commands.mkdir()
    (commands / "sbatch").write_text(
        f'#!/bin/bash\ncase "$*" in *--test-only*) exec {real} "$@";; esac\n'
        f'echo >>{count}\n[ "$(wc -l <{count})" = 2 ] || exec {real} "$@"\n'
        + {"before": "", "after": f'{real} "$@"\n'}[when]
        + "kill -9 $PPID\n"
    )
    (commands / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{PATH}")
    launcher = labs.Command("launch", study, *SUBMIT, root=lab.root)
    launcher.communicate()
    assert launcher.returncode == -9
    assert 0 < len(lab.cluster.jobs()) < len(RUNS)
    submit(lab, study)
    (tmp_path / "gate").touch()
    said, code = follow(lab)
    assert code == 0, said
    assert [run for run, state in attempts(lab) if state == "COMPLETED"] == sorted(RUNS)
    labs.wait_until(lambda: not lab.cluster.jobs())
