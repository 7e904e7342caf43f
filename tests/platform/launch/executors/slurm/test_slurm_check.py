"""Slurm tells before a launch whether it would reject a job or never start it."""

from typing import Any

import pytest

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import ExecutorError, ExecutorUnavailable
from jestlab.platform.launch.executors.slurm import SlurmExecutor
from jestlab.platform.launch.executors.slurm_tools import check_job
from jestlab.platform.spec.resources import Resources, SlurmOptions


def check(tmp_path, slurm_options: dict[str, str] | None = None, **resources) -> None:
    options = SlurmOptions.model_validate(slurm_options or {})
    SlurmExecutor(Lab.find(tmp_path / "lab"), Resources(**resources), options).check()


def test_a_job_that_would_be_rejected_is_refused(slurm, tmp_path):
    refused: list[tuple[dict[str, str], dict[str, Any], str]] = [
        ({"partition": "nope"}, {}, "invalid partition.*sinfo"),
        ({"partition": "short"}, {"nodes": 2}, "node configuration"),
        ({"partition": "short"}, {"time": "10m"}, r"`time` is longer .*short: 5:00"),
        ({"constraint": "a100"}, {}, "feature"),
        ({}, {"threads": 99}, "node configuration"),
        ({}, {"gpus": 1}, "gres"),
    ]
    for options, resources, reason in refused:
        with pytest.raises(ExecutorError, match=f"(?i){reason}") as raised:
            check(tmp_path, options, **resources)
        assert not isinstance(raised.value, ExecutorUnavailable)
        assert "\n" not in str(raised.value)
    check(tmp_path, {"partition": "low,short"}, time="10m")
    assert not (tmp_path / "lab").exists()
    assert not slurm.jobs()


def test_a_job_that_would_wait_is_not_refused(slurm, tmp_path):
    occupied = ("sbatch", "--nodes=2", "--exclusive", "--chdir=/tmp", "--output=/dev/null", "--wrap=sleep 60")
    slurm.tool(*occupied)
    check(tmp_path, nodes=2, time="2h")
    slurm.tool("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test")
    check(tmp_path, nodes=2)
    slurm.tool("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=test")
    check(tmp_path)


def test_limits_of_partitions_are_read_in_all_their_forms():
    """The first partition is the default one."""

    def answer(limit):
        return lambda name, *_: "" if name == "sbatch" else f"day*|{limit}\nweek|7-00:00:00\n"

    day = 86_400
    for limit in ("1-00:00:00", "24:00:00"):
        check_job([], day, answer(limit))
        with pytest.raises(ExecutorError, match="`time`"):
            check_job([], day + 1, answer(limit))
        check_job(["--partition=day,week"], day + 1, answer(limit))
        check_job(["--qos=long"], day + 1, answer(limit))
    check_job([], 99 * day, answer("infinite"))
    with pytest.raises(ExecutorError, match="`time`"):
        check_job([], 301, answer("5:00"))
