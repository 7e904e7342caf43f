"""Runs that take longer than a job may."""

import labs_support as labs
from slurm_support import wait_until


def test_a_run_longer_than_its_time_limit_completes(lab):
    study = lab.study({"one": {"steps": 240, "pause": 0.5, "save_every": 1000}}, time="1m")
    with lab.launching(study) as launcher:
        wait_until(lambda: len(lab.attempts()) == 2, 90)
        lab.hurry()
        said, _ = launcher.communicate()
        assert launcher.returncode == 0, said
    assert lab.attempts() == [("PREEMPTED", "stopped before its time limit"), ("COMPLETED", "")]
    [steps] = lab.rows("SELECT count(*) FROM v_metrics WHERE name = 'loss'")
    assert steps == (240,)
    (_, first), (_, second) = labs.starts(lab.root, "one")
    assert first == 0 < second  # it had saved when it was told, and at no other time
