"""Faults injected into launches on a real Slurm cluster, and what was lost by them.

    python tests/faults/slurm_campaign.py --faults 60 --seed 0

`campaign.py` says what counts as lost. Nodes, the controller, workers, and launchers are killed, jobs are
preempted and cancelled by others, nodes are drained. A job that is left in Slurm counts as left over, and an
attempt that is recorded as failed, though its worker was not killed, as misjudged.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "platform" / "support"))

import labs_support as labs
import psutil
import slurm_support
import yaml
from campaign import RESOURCES, TOY, Harm, Results, Trial, parser, rows, run_trials, undisturbed

KINDS = (
    *("preempted", "preempted", "job_cancelled", "worker_killed", "node_killed", "node_drained"),
    *("controller_killed", "controller_frozen", "launcher_killed", "launcher_stopped"),
)
FAULTS_A_TRIAL = 10
_HIGH = (
    "--partition=high",
    "--exclusive",
    "--chdir=/tmp",
    "--output=/dev/null",
    "--job-name=other",
    "--no-requeue",
)


class SlurmTrial(Trial):
    """One study on a cluster, with the faults that are injected into it."""

    def __init__(self, folder: Path, chance: random.Random, cluster: slurm_support.SlurmCluster) -> None:
        super().__init__(folder, TOY, chance, None)
        self._cluster = cluster
        resources = {key: value for key, value in RESOURCES.items() if key != "parallel"}
        self._spec.write_text(yaml.safe_dump(TOY | {"resources": resources | {"on": "slurm"}}))

    def workers(self) -> list[int]:
        """Live workers, which Slurm has started."""
        found = []
        for pid in labs.processes_of(self.root):
            with suppress(psutil.NoSuchProcess):
                if "jestlab.platform.worker" in psutil.Process(pid).cmdline():
                    found.append(pid)
        return found

    def preempted(self) -> bool:
        """One node or both are taken for a job with a higher priority."""
        if not self._cluster.jobs():
            return False
        nodes = f"--nodes={self._chance.choice([1, 2])}"
        job = self._cluster.tool("sbatch", "--parsable", *_HIGH, nodes, "--wrap=sleep 1").strip()
        deadline = time.monotonic() + 20.0
        while job in self._cluster.jobs():
            if time.monotonic() > deadline:  # a node is still down
                self._cluster.tool("scancel", job, check=False)
                return False
            time.sleep(0.2)
        return True

    def job_cancelled(self) -> bool:
        """Cancel a job with `scancel`, of which the launcher isn't notified."""
        jobs = list(self._cluster.jobs())
        if not jobs:
            return False
        self._cluster.tool("scancel", self._chance.choice(jobs), check=False)
        return True

    def node_killed(self) -> bool:
        """Kill a node's daemon until Slurm has set the node down."""
        return self._node(kill=True)

    def node_drained(self) -> bool:
        return self._node(kill=False)

    def _node(self, kill: bool) -> bool:
        node = self._chance.choice(slurm_support.NODES)
        if kill:
            self._cluster.kill(node)
        state = "DOWN" if kill else "DRAIN"
        self._set(node, state, "Reason=fault")
        time.sleep(self._chance.uniform(0.5, 4.0))
        if kill:
            self._cluster.begin(node)
        self._set(node, "RESUME")
        return True

    def _set(self, node: str, state: str, *more: str) -> None:
        self._cluster.tool("scontrol", "update", f"NodeName={node}", f"State={state}", *more, check=False)

    def controller_killed(self) -> bool:
        self._cluster.kill("slurmctld")
        time.sleep(self._chance.uniform(0.2, 8.0))
        self._cluster.begin("slurmctld")
        self._cluster.wait_until_answers()
        return True

    def controller_frozen(self) -> bool:
        """Freeze the controller for some seconds."""
        pid = self._cluster.pid("slurmctld")
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self._chance.uniform(2.0, 8.0))
        os.kill(pid, signal.SIGCONT)
        return True

    def _end(self) -> None:
        for node in slurm_support.NODES:
            self._set(node, "RESUME")
        deadline = time.monotonic() + 30.0
        while self._cluster.jobs() and time.monotonic() < deadline:
            time.sleep(0.2)
        left = self._cluster.jobs()
        self.harm.left_over += len(left)
        if left:
            print(f"    left in Slurm: {left}", file=sys.stderr)
            self._cluster.reset()
        super()._end()

    def compare(self, expected: Results) -> None:
        """Count what differs, and attempts that are recorded as failed without a fault."""
        super().compare(expected)
        reasons = [str(row[0]) for row in rows(self.url, "SELECT reason FROM attempt WHERE state = 'FAILED'")]
        wrong = [reason for reason in reasons if "SIGKILL" not in reason]
        wrong += reasons[self.harm.injected["worker_killed"] :] if not wrong else []
        for reason in wrong:
            print(f"    misjudged: {reason}", file=sys.stderr)
        self.harm.misjudged += len(wrong)


def _administer(cluster: slurm_support.SlurmCluster, over: threading.Event) -> None:
    """Resume nodes, as administrators do: Slurm drains a node when it sees a job id twice."""
    while not over.wait(10.0):
        for node in slurm_support.NODES:
            with suppress(subprocess.TimeoutExpired):  # the controller is frozen: the next time
                cluster.tool("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)


def main() -> int:
    """Run trials on one cluster."""
    options = parser(__doc__, 60).parse_args()
    if why := slurm_support.why_not():
        print(f"no Slurm: {why}")
        return 0
    expected = undisturbed(TOY)

    def run(_: int, folder: Path, chance: random.Random) -> Harm:
        trial = SlurmTrial(folder, chance, cluster)
        return trial.run(KINDS, min(FAULTS_A_TRIAL, options.faults), expected)

    with tempfile.TemporaryDirectory() as place:
        cluster = slurm_support.SlurmCluster(Path(place) / "cluster", kill_seconds=5)
        os.environ |= cluster.variables
        over = threading.Event()
        try:
            cluster.start()
            threading.Thread(target=_administer, args=(cluster, over), daemon=True).start()
            return run_trials(options, run)
        finally:
            over.set()
            cluster.close()


if __name__ == "__main__":
    sys.exit(main())
