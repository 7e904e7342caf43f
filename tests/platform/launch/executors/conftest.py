"""A real cluster of Slurm for the tests of executors: one for each test process."""

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest
from executor_harnesses import ready
from lasting_support import lasting
from slurm_harness import SlurmHarness, running
from slurm_support import SlurmCluster, SlurmLab


@pytest.fixture
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> SlurmCluster:
    """Two nodes, and partitions of which `high` preempts `low`; a test that ends a daemon starts it again."""
    return lasting("Slurm", lambda: running(SlurmCluster(tmp_path_factory.mktemp("slurm"))))


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """The cluster without a job, in the environment of this process and its children."""
    for name, value in slurm_cluster.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LOGNAME", getpass.getuser())
    yield slurm_cluster
    slurm_cluster.reset()


@pytest.fixture
def slurm_harness(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmHarness]:
    """The cluster, jobs that files control, and commands that can fail."""
    with ready(SlurmHarness(slurm, tmp_path, monkeypatch), monkeypatch) as made:
        yield made


@pytest.fixture
def lab(slurm: SlurmCluster, root: Path) -> SlurmLab:
    return SlurmLab(slurm, root)
