"""`launch --detach=slurm`: the launcher is a job, which goes back to the queue before its time limit."""

import getpass
import os
import re
import signal

import labs_support as labs
import psutil
import pytest

from jestlab.platform.launch import launcher_job

RUNS = {"reference": {}, "joint": {"needs": ["reference"]}, "uniform": {"steps": 6002}}


@pytest.fixture
def study(lab, tmp_path):
    resources = {"on": "slurm", "retries": 0, "lease_seconds": 8.0, "slurm": {"launcher": ["--time=60"]}}
    base = {"steps": 6000, "pause": 0.05, "hurry": str(tmp_path / "hurry")}
    return labs.write_study(tmp_path, base=base, runs=RUNS, resources=resources)


def detach(lab, study, code=0, *more):
    done = labs.here("launch", study, "--detach=slurm", *more, root=lab.root)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def launcher(lab):
    """Return id, state, and number of restarts of the launcher's job; None when it has left the queue."""
    format_ = "%i|%j|%T"
    for line in lab.cluster.tool("squeue", "-h", "-o", format_).splitlines():
        id_, name, state = line.split("|")
        if name == "jestlab-launch":
            shown = lab.cluster.tool("scontrol", "show", "job", id_)
            [restarts] = re.findall(r"Restarts=(\d+)", shown)
            return id_, state, int(restarts)
    return None


def wait_for_restart(lab, count):
    """Wait until the job has started again, and let it start without the two minutes of requeued jobs."""

    def restarted():
        if "BeginTime" in lab.cluster.tool("squeue", "-h", "-o", "%r"):
            lab.cluster.tool("scontrol", "update", f"jobid={launcher(lab)[0]}", "StartTime=now", check=False)
        return launcher(lab)[1:] == ("RUNNING", count)

    labs.wait_until(restarted, 200.0)


def follow(lab):
    attached = labs.Command("attach", "toy", root=lab.root)
    said, _ = attached.communicate(240)
    return said, attached.returncode


def test_it_survives_its_time_limit_twice(lab, study, monkeypatch):
    monkeypatch.setattr(launcher_job, "_STOP_SECONDS", 45)
    study.write_text(study.read_text().replace("--time=60", "--time=1"))
    said = detach(lab, study)
    [id_] = re.findall(r"Slurm job (\d+) continues the launch", said)
    assert "is already launched by Slurm job" in detach(lab, study, 1)
    wait_for_restart(lab, 1)
    wait_for_restart(lab, 2)
    labs.wait_until(lambda: lab.rows("SELECT COUNT(*) FROM attempt WHERE state = 'RUNNING'") == [(2,)], 60.0)
    lab.hurry()
    said, code = follow(lab)
    assert code == 0, said
    labs.wait_until(lambda: not lab.cluster.jobs())
    assert lab.rows("SELECT number, state FROM attempt") == [(1, "COMPLETED")] * 3
    [log] = (lab.root / "launches").glob("*.log")
    assert log.read_text().count(f"job {id_} returns to the queue") == 2
    assert not list((lab.root / "launches").glob(".*.sh"))


def test_a_preempted_launcher_continues_and_cancelled_runs_stay_cancelled(lab, study):
    detach(lab, study)
    labs.wait_until(lambda: lab.rows("SELECT COUNT(*) FROM attempt WHERE state = 'RUNNING'") == [(2,)], 60.0)
    id_, _, _ = launcher(lab)
    lab.cluster.tool("scontrol", "requeue", id_)
    assert labs.here("cancel", "toy/uniform/0", root=lab.root).returncode == 0
    lab.hurry()
    wait_for_restart(lab, 1)
    said, code = follow(lab)
    assert code == 1, said
    labs.wait_until(lambda: not lab.cluster.jobs())
    assert sorted(lab.rows("SELECT run, state, attempts FROM v_runs")) == [
        ("joint", "COMPLETED", 1), ("reference", "COMPLETED", 1), ("uniform", "CANCELLED", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("begun", [False, True], ids=["queued", "running"])
def test_cancel_ends_the_launcher_too(lab, study, begun):
    if not begun:
        lab.cluster.tool("scontrol", "update", "partition=low", "State=DOWN")
    try:
        detach(lab, study)
        if begun:
            running = "SELECT COUNT(*) FROM attempt WHERE state = 'RUNNING'"
            labs.wait_until(lambda: lab.rows(running) == [(2,)], 60.0)
        done = labs.here("cancel", "toy", root=lab.root)
        assert done.returncode == 0 and "3 runs cancelled" in done.stdout, done.stdout
    finally:
        lab.cluster.tool("scontrol", "update", "partition=low", "State=UP")
    labs.wait_until(lambda: not lab.cluster.jobs(), 60.0)
    assert {state for (state,) in lab.rows("SELECT state FROM v_runs")} == {"CANCELLED"}


def test_a_killed_launcher_leaves_runs_alone_and_another_continues(lab, study):
    detach(lab, study)
    labs.wait_until(lambda: lab.rows("SELECT COUNT(*) FROM attempt WHERE state = 'RUNNING'") == [(2,)], 60.0)
    [pid] = [pid for pid in labs.processes_of(lab.root) if "continue" in psutil.Process(pid).cmdline()]
    os.kill(pid, signal.SIGKILL)
    labs.wait_until(lambda: launcher(lab) is None)
    detach(lab, study)
    lab.hurry()
    said, code = follow(lab)
    assert code == 0, said
    assert lab.rows("SELECT number, state FROM attempt") == [(1, "COMPLETED")] * 3
    labs.wait_until(lambda: not lab.cluster.jobs(), 60.0)


def test_a_refusal_is_shown_and_nothing_is_written(lab, study):
    assert "invalid partition" in detach(lab, study, 1, "--set", "resources.slurm.partition=nowhere").lower()
    assert "require --on slurm" in detach(lab, study, 1, "--on", "local")
    assert not lab.root.exists()


def test_no_secret_is_in_the_job(lab, study, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "sesame")
    detach(lab, study)
    id_, _, _ = launcher(lab)
    shown = lab.cluster.tool("scontrol", "show", "job", "-dd", id_)
    shown += lab.cluster.tool("scontrol", "write", "batch_script", id_, "-")
    assert "sesame" not in shown and "continue" not in shown
    [file] = (lab.root / "launches").glob(".*.sh")
    assert "sesame" in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    assert getpass.getuser() in shown
    labs.here("cancel", "toy", root=lab.root)
    labs.wait_until(lambda: not lab.cluster.jobs(), 60.0)
    assert not file.exists()
