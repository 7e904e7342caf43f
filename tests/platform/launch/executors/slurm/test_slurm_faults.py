"""What fails while runs are in Slurm: nodes, the controller, launchers, and people who cancel jobs."""

import os
import shutil
import signal

import labs_support as labs
import pytest
from slurm_support import wait_until

RUNS = {"one": {}, "two": {"steps": 410}}


def finished(lab, launcher):
    """Let the runs hurry to their end, and check that nothing of them is lost or doubled."""
    lab.hurry()
    said, _ = launcher.communicate()
    assert launcher.returncode == 0, said
    assert {state for (state,) in lab.rows("SELECT state FROM v_runs")} == {"COMPLETED"}
    counts = lab.rows(
        "SELECT run, count(*), count(DISTINCT step) FROM v_metrics WHERE name='loss' GROUP BY run"
    )
    assert counts == [("one", 400, 400), ("two", 410, 410)]
    wait_until(lambda: not lab.cluster.jobs())
    return [state for state, _ in lab.attempts()], [reason for _, reason in lab.attempts()]


def test_the_controller_is_killed_and_comes_back(lab):
    with lab.launching(lab.study(RUNS)) as launcher:
        lab.wait_for_step(2)
        lab.cluster.wait_until_saved()
        lab.cluster.kill("slurmctld")
        lab.wait_for_step(10)  # runs need no controller
        lab.cluster.begin("slurmctld")
        lab.cluster.wait_until_answers()
        states, _ = finished(lab, launcher)
    assert states == ["COMPLETED"] * 2


def test_a_node_fails(lab):
    with lab.launching(lab.study(RUNS, threads=4)) as launcher:
        lab.wait_for_step(2)
        nodes = lab.cluster.tool("squeue", "-h", "-o", "%N").split()
        assert sorted(nodes) == ["n1", "n2"]
        lab.cluster.kill("n1")
        try:
            lab.cluster.tool("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=test")
            wait_until(lambda: len(lab.attempts()) == 3)
        finally:
            lab.cluster.begin("n1")
            lab.cluster.tool("scontrol", "update", "NodeName=n1", "State=RESUME", check=False)
        states, reasons = finished(lab, launcher)
    assert sorted(states) == ["COMPLETED", "COMPLETED", "PREEMPTED"]
    assert "a node of it failed" in reasons


def test_somebody_cancels_jobs(lab):
    with lab.launching(lab.study(RUNS)) as launcher:
        lab.wait_for_step(2)
        lab.cluster.tool("scancel", *lab.cluster.jobs())
        wait_until(lambda: len(lab.attempts()) == 4)
        states, reasons = finished(lab, launcher)
    assert sorted(states) == ["COMPLETED"] * 2 + ["PREEMPTED"] * 2
    assert set(reasons) <= {"", "cancelled in Slurm", "stopped by SIGTERM"}


def test_a_launcher_is_killed_and_the_next_one_finds_its_jobs(lab):
    study = lab.study(RUNS)
    with lab.launching(study) as first:
        lab.wait_for_step(2)
        jobs = lab.cluster.jobs()
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        with lab.launching(study) as launcher:
            lab.wait_for_step(10)
            assert lab.cluster.jobs().keys() == jobs.keys()
            states, _ = finished(lab, launcher)
    assert states == ["COMPLETED"] * 2


@pytest.mark.parametrize("more", [(), ("--now",)], ids=["saved", "now"])
def test_a_study_is_cancelled(lab, more):
    study = lab.study(RUNS)
    with lab.launching(study) as launcher:
        lab.wait_for_step(2)
        done = labs.jestlab("cancel", "toy", *more, root=lab.root)
        assert done.returncode == 0, done.stderr
        launcher.communicate()
        wait_until(lambda: not lab.cluster.jobs())
    assert {state for (state,) in lab.rows("SELECT state FROM v_runs")} == {"CANCELLED"}


def test_an_id_is_used_again_after_the_counter_was_reset(lab):
    """Slurm has lost its state, and gives the job's id to somebody else's: that one is left alone."""
    cluster = lab.cluster
    with lab.launching(lab.study({"one": {}})) as launcher:
        lab.wait_for_step(2)
        [before] = cluster.jobs()
        os.kill(launcher.pid, signal.SIGSTOP)  # or its next job would have the id
        cluster.close()  # as when the power fails
        shutil.rmtree(cluster.folder / "state")
        cluster.configure(first_id=int(before))
        cluster.start()
        theirs = cluster.tool(
            "sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--wrap=sleep 600"
        ).strip()  # fmt: skip
        assert theirs == before
        os.kill(launcher.pid, signal.SIGCONT)
        wait_until(lambda: len(lab.attempts()) == 2)
        lab.hurry()
        said, _ = launcher.communicate()
        assert launcher.returncode == 0, said
    wait_until(lambda: cluster.jobs().keys() == {theirs})
    assert [state for state, _ in lab.attempts()][-1] == "COMPLETED"


def test_a_job_that_slurm_has_forgotten_has_left_its_end(lab, monkeypatch):
    """`MinJobAge` has passed, and the site has no accounting; the launcher was away meanwhile."""
    study = lab.study({"one": {"program": "toy_programs:vanish", "code": 3}})
    with lab.launching(study, "--set", "resources.lease_seconds=60") as first:
        # Slurm has the job some moments before the launcher knows under which id.
        wait_until(lambda: lab.rows("SELECT 1 FROM attempt WHERE handle IS NOT NULL"))
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        wait_until(lambda: not lab.cluster.jobs())
    lab.cluster.forget()
    done = labs.jestlab("launch", study, "--no-reports", root=lab.root)
    assert done.returncode == 1
    [(state, reason)] = lab.attempts()
    assert (state, reason.split(":")[0]) == ("FAILED", "exit code 3")
