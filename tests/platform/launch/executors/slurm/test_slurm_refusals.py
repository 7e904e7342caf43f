"""What Slurm refuses, and jobs that are elsewhere."""

import pytest

from jestlab.platform.launch.executor import ExecutorAway, ExecutorError, JobState
from jestlab.platform.spec.slurm import Slurm as Options


def test_what_cannot_run_is_refused_in_one_line(slurm_harness, slurm):
    executor = slurm_harness.executor(Options(partition="nope"))
    with pytest.raises(ExecutorError, match=r"invalid partition specified: nope.*sinfo") as raised:
        executor.launch(slurm_harness.job("jestlab-0a1b2c3d-1"))
    assert not isinstance(raised.value, ExecutorAway)
    assert str(raised.value).startswith("quickstart joint, seed 1 was not launched: ")
    assert "\n" not in str(raised.value)
    assert not slurm.jobs()


def test_the_job_of_another_cluster_is_unknown(slurm_harness, slurm):
    executor = slurm_harness.executor()
    job = executor.launch(slurm_harness.job("jestlab-0a1b2c3d-1"))
    elsewhere = job._replace(handle=f"other:{job.handle.partition(':')[2]}")
    told = executor.statuses([elsewhere])[elsewhere]
    assert (told.state, "cluster other" in told.reason) == (JobState.UNKNOWN, True)
    with pytest.raises(ExecutorAway, match="cluster other"):
        executor.stop(elsewhere, now=True)
    assert list(slurm.jobs().values()) == ["PENDING"]
