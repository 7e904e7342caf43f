"""Jobs whose nodes Slurm takes away or does not have."""

import labs_support as labs
from tests.waiting import wait_until


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


def test_a_waiting_run_shows_why_its_place_and_what_would_let_it_begin(lab):
    study = lab.study({"one": {}}, nodes=2)
    lab.cluster.tool("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test")
    with lab.launching(study):
        query = "SELECT reason FROM v_runs WHERE reason LIKE '%1st of 1 in partition low%'"
        wait_until(lambda: lab.rows(query))
        [(reason,)] = lab.rows(query)
        assert "are down, drained or reserved" in reason
        assert "come back" in reason
        # Drained nodes come back, and the same job begins.
        lab.cluster.tool("scontrol", "update", "NodeName=n1", "State=RESUME")
        lab.wait_for_step()
        assert len(lab.attempts()) == 1
