"""A site with slurmdbd: accounting has what Slurm has forgotten, and accounts and QoS are checked."""

from collections.abc import Iterator
from pathlib import Path

import labs_support as labs
import pytest
from slurm_harness import id_of, running
from slurm_support import SlurmCluster
from tests.waiting import wait_until

from jestlab.platform.launch.executors.base import JobState
from jestlab.platform.spec.slurm import SlurmOptions


@pytest.fixture(scope="module")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with running(tmp_path_factory.mktemp("accounting"), accounting=True) as made:
        yield made


def accounted(cluster: SlurmCluster) -> list[list[str]]:
    """Return id, state, and folder of each job that has ended, as slurmdbd has them."""
    options = ("-n", "-P", "-X", "--duplicates", "-S", "2000-01-01", "-o", "JobID,State,WorkDir")
    lines = [line.split("|") for line in cluster.tool("sacct", *options).splitlines()]
    return [line for line in lines if line[1] not in ("PENDING", "RUNNING")]


def test_what_the_controller_has_forgotten_is_known_also_once_its_ids_are_used_again(slurm, slurm_harness):
    slurm.forget()  # so that ids begin with 1, whatever other tests have tried
    names = ("jestlab-0a1b2c3d-1", "jestlab-1a1b2c3d-1", "jestlab-2a1b2c3d-1")
    executor = slurm_harness.executor(SlurmOptions(account="users"))
    well, failed, cancelled = jobs = [executor.launch(slurm_harness.job(name)) for name in names]
    for job in jobs:
        slurm_harness.run(job)
    slurm_harness.end(well, 0)
    slurm_harness.end(failed, 3)
    slurm_harness.vanish(cancelled)
    # Slurm stores the folder some seconds later than the end.
    wait_until(lambda: sum(bool(folder) for _, _, folder in accounted(slurm)) == len(jobs))
    for end in slurm_harness.lab.root.rglob("*.end"):
        end.unlink()  # as when their nodes had died before they could write it
    slurm.forget()

    def told() -> list[tuple[JobState, int | None]]:
        statuses = executor.statuses(jobs)
        return [(statuses[job].state, statuses[job].exit_code) for job in jobs]

    right = [(JobState.SUCCEEDED, 0), (JobState.FAILED, 3), (JobState.PREEMPTED, None)]
    assert told() == right

    slurm.kill("slurmdbd")
    assert {state for state, _ in told()} == {JobState.UNKNOWN}
    slurm.begin("slurmdbd")
    wait_until(lambda: told() == right)

    theirs = slurm.tool("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--wrap=true").strip()
    assert theirs in {id_of(job) for job in jobs}
    wait_until(lambda: len(accounted(slurm)) == len(jobs) + 1)
    assert told() == right


def test_doctor_reports_accounting(slurm, tmp_path: Path):
    found = labs.here("doctor", "--no-jax", root=tmp_path / "lab").stdout
    assert "accounting by accounting_storage/slurmdbd" in found
    assert "a job would be accepted" in found
