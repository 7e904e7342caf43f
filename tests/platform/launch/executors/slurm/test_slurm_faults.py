"""What happens to runs in Slurm: failed nodes, drained nodes, time limits, and a controller that forgets."""

import os
import shutil
import signal

import labs_support as labs
from tests.waiting import wait_until


def test_a_run_resumes_after_its_node_has_failed(lab):
    study = lab.study({"one": {}, "two": {"steps": 410}}, threads=4)
    with lab.launching(study) as launcher:
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
        lab.hurry()
        said, _ = launcher.communicate()
        assert launcher.returncode == 0, said
    states, reasons = zip(*lab.attempts(), strict=True)
    assert sorted(states) == ["COMPLETED", "COMPLETED", "PREEMPTED"]
    assert any("a node failed" in reason for reason in reasons)
    counts = "SELECT run, COUNT(*), COUNT(DISTINCT step) FROM v_metrics WHERE name = 'loss' GROUP BY run"
    assert lab.rows(counts) == [("one", 400, 400), ("two", 410, 410)]
    wait_until(lambda: not lab.cluster.jobs())


def test_an_id_is_used_again_after_the_counter_was_reset(lab):
    """Slurm has lost its state, and gives the id to another user's job, which is left alone."""
    cluster = lab.cluster
    with lab.launching(lab.study({"one": {}})) as launcher:
        lab.wait_for_step(2)
        [before] = cluster.jobs()
        os.kill(launcher.pid, signal.SIGSTOP)  # or its next job would have the id
        cluster.close()  # as when the power fails
        shutil.rmtree(cluster.folder / "state")
        cluster.start(first_id=int(before))
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


def test_the_end_of_a_job_that_slurm_has_forgotten_is_in_a_file(lab):
    """`MinJobAge` has passed, and the site has no accounting; no launcher was there meanwhile."""
    study = lab.study({"one": {"program": "toy_programs:vanish", "code": 3}})
    with lab.launching(study, "--set", "resources.lease_seconds=60") as first:
        # Slurm has the job some moments before the launcher knows its id.
        wait_until(lambda: lab.rows("SELECT 1 FROM attempt WHERE handle IS NOT NULL"))
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        wait_until(lambda: not lab.cluster.jobs())
    lab.cluster.forget()
    done = labs.here("launch", study, "--no-reports", root=lab.root)
    assert done.returncode == 1
    [(state, reason)] = lab.attempts()
    assert (state, reason.split(":")[0]) == ("FAILED", "exit code 3")


def test_a_run_resumes_when_its_time_limit_is_near(lab):
    """A preempted run of two nodes is in `test_slurm_two_nodes`."""
    study = lab.study({"one": {"steps": 240, "pause": 0.5, "save_every": 1000}}, time="1m")
    with lab.launching(study) as launcher:
        wait_until(lambda: len(lab.attempts()) == 2, 120)
        lab.hurry()
        said, _ = launcher.communicate()
        assert launcher.returncode == 0, said
    assert lab.attempts() == [("PREEMPTED", "stopped before its time limit"), ("COMPLETED", "")]
    [steps] = lab.rows("SELECT count(*) FROM v_metrics WHERE name = 'loss'")
    assert steps == (240,)
    (_, first), (_, second) = labs.starts(lab.root, "one")
    assert first == 0 < second  # it saved when it was asked to stop, and at no other time


def test_a_waiting_run_shows_why(lab):
    study = lab.study({"one": {}}, nodes=2)
    lab.cluster.tool("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test")
    with lab.launching(study):
        query = "SELECT 1 FROM v_runs WHERE reason LIKE '%ReqNodeNotAvail%' OR reason LIKE '%are DOWN%'"
        wait_until(lambda: lab.rows(query))
        # Drained nodes come back, and the same job begins.
        lab.cluster.tool("scontrol", "update", "NodeName=n1", "State=RESUME")
        lab.wait_for_step()
        assert len(lab.attempts()) == 1
