"""A real Slurm cluster of two nodes on this machine, which ends with the process that started it."""

import functools
import getpass
import os
import shutil
import socket
import sqlite3
import subprocess
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import labs_support as labs
from guard import Guard
from tests.cluster.ports import free_port
from tests.waiting import wait_until

NODES = ("n1", "n2")
EXECUTABLES = ("slurmctld", "slurmd", "munged", "sbatch", "srun")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_TOOL_SECONDS = 60.0
_CONF = """
ClusterName={name}
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,batch_sched_delay=0,sched_min_interval=0,sched_interval=2
JobAcctGatherType=jobacct_gather/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
SlurmdTimeout=10
KillWait={kill_seconds}
MinJobAge=600
InactiveLimit=0
MessageTimeout=3
FirstJobId={first_id}
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=4000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=4000
PartitionName=low Nodes=n1,n2 Default=YES PriorityTier=1 PreemptMode=REQUEUE MaxTime=INFINITE
PartitionName=high Nodes=n1,n2 PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE
PartitionName=short Nodes=n1 MaxTime=5 MaxNodes=1
"""


@functools.cache
def why_not(needed: tuple[str, ...] = EXECUTABLES) -> str | None:
    """Return why no cluster can run here; None if one can."""
    missing = [name for name in needed if shutil.which(name, path=PATH) is None]
    return f"{', '.join(missing)} not found: make cluster-slurm" if missing else None


class SlurmCluster:
    """A cluster in a folder. Jobs of partition `high` preempt those of `low`, the default.

    Attributes:
        executables: What it needs.
        accounting: Lines of its configuration.
        folder: Of its state, logs, and configuration.
        name: As Slurm knows it.
        ports: Of its daemons, and one more for accounting.
    """

    executables: tuple[str, ...] = EXECUTABLES
    accounting = "AccountingStorageType=accounting_storage/none\n"

    def __init__(self, folder: Path, *, kill_seconds: int = 5) -> None:
        self.folder = folder
        self.name = f"c{os.getpid()}"
        self._kill_seconds = kill_seconds
        self.ports = [free_port() for _ in range(4)]
        self._guard: Guard | None = None

    def start(self, first_id: int = 1) -> None:
        """Start it, and wait until both nodes are idle; its first job gets an id."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._configure(first_id)
        key, socket_ = self.folder / "munge.key", self.folder / "munge.socket"
        for old in (key, socket_):
            old.unlink(missing_ok=True)
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self._guard = Guard(self.folder, self._environment())
        self.begin("munged")
        wait_until(socket_.exists)
        self.begin_accounting()
        for name in ("slurmctld", *NODES):
            self.begin(name)
        self.wait_until_idle()

    def begin_accounting(self) -> None:
        """Start the daemons of accounting, if there are any."""

    def _environment(self) -> dict[str, str]:
        """Return this environment without the mark of a lab's processes, by which they are killed."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("JESTLAB_")}
        return plain | self.variables

    def _configure(self, first_id: int) -> None:
        text = (_CONF + self.accounting).format(
            name=self.name, host=socket.gethostname(), user=getpass.getuser(), folder=self.folder,
            ports=self.ports, first_id=first_id, kill_seconds=self._kill_seconds,
        )  # fmt: skip
        (self.folder / "slurm.conf").write_text(text)

    def begin(self, name: str) -> None:
        """Start a daemon: munged, slurmctld, n1, n2, or one of accounting."""
        (self.folder / "state").mkdir(exist_ok=True)
        self._guarded.start(name, self.command(name))

    def command(self, name: str) -> list[str]:
        """Return the command of a daemon."""
        if name == "munged":
            files = [f"--{kind}-file={self.folder}/munge.{kind}" for kind in ("pid", "log", "seed", "key")]
            return ["munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", *files]
        words = ["slurmctld"] if name == "slurmctld" else ["slurmd", "-N", name]
        return [*words, "-D", "-f", f"{self.folder}/slurm.conf"]

    def kill(self, name: str) -> None:
        """End a daemon by SIGKILL. The jobs of a node continue."""
        self._guarded.kill(name)

    def forget(self) -> None:
        """Let the controller lose its memory, including the last id."""
        self.kill("slurmctld")
        shutil.rmtree(self.folder / "state")
        self.begin("slurmctld")
        self.wait_until_idle()

    def pid(self, name: str) -> int:
        return self._guarded.pid(name)

    def close(self) -> None:
        if self._guard is not None:
            self._guard.close()

    @property
    def _guarded(self) -> Guard:
        assert self._guard is not None
        return self._guard

    def tool(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(
            command, env=self._environment(), capture_output=True, text=True, timeout=_TOOL_SECONDS
        )
        if check and done.returncode:
            raise RuntimeError(f"{command}: {done.stderr}")
        return done.stdout

    @property
    def variables(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": PATH}

    def wait_until_saved(self) -> None:
        """Wait until the controller has written its jobs to disk: killed before that, it forgets them."""

        def saved() -> bool:
            names = self.tool("squeue", "-h", "-o", "%k").splitlines()
            file = self.folder / "state" / "job_state"
            return file.exists() and all(name.encode() in file.read_bytes() for name in names)

        wait_until(saved)

    def wait_until_answers(self) -> None:
        wait_until(lambda: "is UP" in self.tool("scontrol", "ping", check=False))

    def wait_until_idle(self) -> None:
        """Wait until both nodes can run jobs."""
        states = ("sinfo", "-h", "-N", "-p", "low", "-o", "%t")
        wait_until(lambda: self.tool(*states, check=False).split() == ["idle"] * 2)

    def jobs(self) -> dict[str, str]:
        lines = self.tool("squeue", "-h", "-r", "-o", "%i %T").splitlines()
        return dict(line.split(maxsplit=1) for line in lines)

    def preempt(self) -> None:
        """Take both nodes for a job of the partition `high`, which ends as soon as it has them."""
        id_ = self.tool(
            "sbatch", "--parsable", "--nodes=2", "--exclusive", "--partition=high", "--no-requeue",
            "--chdir=/tmp", "--output=/dev/null", "--wrap=true",
        ).strip()  # fmt: skip
        wait_until(lambda: id_ not in self.jobs())

    def reset(self) -> None:
        """Leave no job, and both nodes as they were."""
        self.tool("scancel", "--user", getpass.getuser(), "--full", "--signal=KILL", check=False)
        self.tool("scancel", "--user", getpass.getuser(), check=False)
        for node in NODES:
            self.tool("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
        wait_until(lambda: not self.jobs())
        self.wait_until_idle()


class SlurmLab:
    def __init__(self, cluster: SlurmCluster, root: Path) -> None:
        self.cluster = cluster
        self.root = root

    def study(self, runs: dict[str, Any], **resources: Any) -> Path:
        """Write a study of toy runs, which make no pauses once the file `hurry` exists."""
        hurry = str(self.root.parent / "hurry")
        given = {"on": "slurm", "retries": 0, "lease_seconds": 60.0} | resources
        return labs.write_study(
            self.root.parent, base={"steps": 400, "pause": 0.05, "hurry": hurry}, runs=runs, resources=given
        )

    def hurry(self) -> None:
        """Let toy runs continue without pauses."""
        (self.root.parent / "hurry").touch()

    def launching(self, study: object, *more: object) -> AbstractContextManager[labs.Command]:
        """Start a launcher; in the end, the remaining processes of the lab are killed."""
        return labs.started("launch", study, *more, "--no-reports", root=self.root)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        try:
            store = sqlite3.connect(f"file:{self.root}/results.db?mode=rw", timeout=30, uri=True)
            with closing(store):
                return store.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []  # its tables are being made

    def wait_for_step(self, step: int = 1) -> None:
        wait_until(lambda: any((row[0] or 0) >= step for row in self.rows("SELECT step FROM v_runs")), 180.0)

    def wait_for_progress(self, attempt: int) -> None:
        """Wait until a run's attempt of that number has made a step."""
        query = (
            "SELECT 1 FROM attempt JOIN run ON run.id = attempt.run_id WHERE attempt.state = 'RUNNING'"
            f" AND attempt.number = {attempt} AND run.step > attempt.first_step"
        )
        wait_until(lambda: bool(self.rows(query)), 180.0)

    def attempts(self) -> list[tuple[str, str]]:
        return self.rows("SELECT state, COALESCE(reason, '') FROM attempt ORDER BY id")
