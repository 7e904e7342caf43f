"""Jobs that Slurm takes the nodes from: the run goes on in another job, and its results are the same."""

from slurm_support import wait_until

RUNS: dict[str, dict[str, int]] = {"one": {}}


def test_a_run_that_is_preempted_twice_ends_like_an_undisturbed_one(lab, tmp_path):
    undisturbed = type(lab)(lab.cluster, lab.root.with_name("undisturbed"))
    study = lab.study(RUNS)
    with lab.launching(study) as launcher:
        for attempt in (1, 2):
            lab.wait_for_progress(attempt)
            lab.cluster.preempt()
        lab.hurry()
        said, _ = launcher.communicate()
        assert launcher.returncode == 0, said
    undisturbed.launched(study)
    states = [state for state, _ in lab.attempts()]
    assert states == ["PREEMPTED", "PREEMPTED", "COMPLETED"]
    assert lab.results() == undisturbed.results()
    assert lab.results()
    # Preemptions are no failures: the study allows no retry.
    assert lab.rows("SELECT state FROM v_runs") == [("COMPLETED",)]


def test_one_that_waits_says_why_where_and_what_would_let_it_begin(lab):
    study = lab.study(RUNS, nodes=2)
    lab.cluster.tool("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test")
    with lab.launching(study):
        query = "SELECT reason FROM v_runs WHERE reason LIKE '%1st of 1 in partition low%'"
        wait_until(lambda: lab.rows(query))
        [(told,)] = lab.rows(query)
        assert "are down, drained or reserved" in told
        assert "come back" in told
        # Drained nodes come back, and the same job begins.
        lab.cluster.tool("scontrol", "update", "NodeName=n1", "State=RESUME")
        lab.wait_for_step()
        assert len(lab.attempts()) == 1
