"""A site with slurmdbd: accounting has how jobs ended which Slurm has forgotten and which left no file."""

import getpass
from collections.abc import Iterator

import pytest
from slurm_harness import id_of, running
from slurm_support import EXECUTABLES, SlurmCluster
from tests.waiting import wait_until

from jestlab.platform.launch.executors.base import JobState

_SMALL = ("--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M")


class AccountedCluster(SlurmCluster):
    """A cluster with slurmdbd on its own database."""

    executables = (*EXECUTABLES, "slurmdbd", "mariadbd", "mariadb-install-db", "my_print_defaults", "sacct")
    accounting = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports[3]}
AccountingStoragePass={folder}/munge.socket
"""

    def command(self, name: str) -> list[str]:
        if name == "mariadbd":
            # Its socket gives access to everything: the folder belongs to one user alone.
            return [
                *("mariadbd", "--no-defaults", f"--datadir={self.folder}/database", "--skip-networking"),
                *(f"--socket={self.folder}/mariadb.socket", f"--pid-file={self.folder}/mariadb.pid"),
                *("--skip-grant-tables", f"--user={getpass.getuser()}", *_SMALL),
            ]
        if name == "slurmdbd":  # which has no setting for the socket of its database
            return ["env", f"MYSQL_UNIX_PORT={self.folder}/mariadb.socket", "slurmdbd", "-D"]
        return super().command(name)

    def begin_accounting(self) -> None:
        conf = self.folder / "slurmdbd.conf"
        conf.touch(0o600)
        conf.write_text(
            f"DbdHost=localhost\nDbdAddr=127.0.0.1\nDbdPort={self.ports[3]}\nSlurmUser={getpass.getuser()}\n"
            f"AuthType=auth/munge\nAuthInfo=socket={self.folder}/munge.socket\n"
            f"PidFile={self.folder}/slurmdbd.pid\nLogFile={self.folder}/slurmdbd.log\n"
            "StorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser=slurm\n"
        )
        install = ["mariadb-install-db", "--no-defaults", f"--user={getpass.getuser()}", "--skip-test-db"]
        self.tool(*install, f"--datadir={self.folder}/database", *_SMALL)
        self.begin("mariadbd")
        wait_until((self.folder / "mariadb.socket").exists)
        self.begin("slurmdbd")
        wait_until(lambda: self.tool("sacctmgr", "show", "cluster", check=False))


@pytest.fixture(scope="module")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with running(AccountedCluster(tmp_path_factory.mktemp("accounting"))) as made:
        yield made


def test_what_the_controller_has_forgotten_is_known_also_once_its_ids_are_used_again(slurm, slurm_harness):
    executor = slurm_harness.executor()
    well, failed, cancelled = jobs = [
        executor.launch(slurm_harness.job(f"jestlab-{number}a1b2c3d-1")) for number in range(3)
    ]
    for job in jobs:
        slurm_harness.run(job)
    slurm_harness.end(well, 0)
    slurm_harness.end(failed, 3)
    slurm_harness.vanish(cancelled)
    fields = ("-n", "-P", "-X", "--duplicates", "-S", "2000-01-01", "-o", "State,WorkDir")

    def accounted() -> int:
        lines = [line.split("|") for line in slurm.tool("sacct", *fields).splitlines()]
        return sum(state not in ("PENDING", "RUNNING") and bool(folder) for state, folder in lines)

    wait_until(lambda: accounted() == len(jobs))  # Slurm stores the folder some seconds later than the end
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
    assert theirs == id_of(well)
    wait_until(lambda: accounted() == len(jobs) + 1)
    assert told() == right
