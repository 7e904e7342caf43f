"""Faults injected into launches on a real Slurm cluster, and what was lost by them.

    python tests/faults/slurm_campaign.py --faults 60 --seed 0 --json slurm.json

As `campaign.py`, which says what counts as lost. Nodes, the controller, workers and launchers are killed,
jobs are preempted and cancelled behind its back, nodes are drained. A job that is left in Slurm counts
as left over, and an attempt that is said to have failed, though its worker was not killed, as told wrongly.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "platform" / "support"))

import labs_support as labs
import psutil
import slurm_support
import yaml
from campaign import BAD, RESOURCES, TOY, Harm, Trial, undisturbed
from sqlalchemy import create_engine, text

from jestlab.platform.store.address import parse_url

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
    """One study on a cluster, and whoever does it harm."""

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
        """By somebody with `scancel`, which the launcher is not told."""
        jobs = list(self._cluster.jobs())
        if not jobs:
            return False
        self._cluster.tool("scancel", self._chance.choice(jobs), check=False)
        return True

    def node_killed(self) -> bool:
        """The node's daemon dies, and Slurm calls the node down; it comes back."""
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
        """It answers nobody for some seconds."""
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

    def compare(self, expected: dict[tuple[Any, ...], Any]) -> None:
        """Count what differs, and attempts that are said to have failed."""
        super().compare(expected)
        engine = create_engine(parse_url(self.url))
        with engine.connect() as connection:
            reasons = [
                str(reason)
                for (reason,) in connection.execute(text("SELECT reason FROM attempt WHERE state = 'FAILED'"))
            ]
        engine.dispose()
        wrongly = [reason for reason in reasons if "SIGKILL" not in reason]
        wrongly += reasons[self.harm.injected["worker_killed"] :] if not wrongly else []
        for reason in wrongly:
            print(f"    told wrongly: {reason}", file=sys.stderr)
        self.harm.told_wrongly += len(wrongly)


def _administer(cluster: slurm_support.SlurmCluster, over: threading.Event) -> None:
    """Put nodes back into service, as people do: Slurm drains one by itself when it meets an id twice, and
    a controller that is frozen does not hear of it."""
    while not over.wait(10.0):
        for node in slurm_support.NODES:
            with suppress(subprocess.TimeoutExpired):  # the controller is frozen: the next time
                cluster.tool("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)


def campaign(faults: int, seed: int, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Trials until so many faults have been injected; return what was done and lost."""
    expected = undisturbed(TOY)
    total, number = Harm(), 0
    with tempfile.TemporaryDirectory() as place:
        cluster = slurm_support.SlurmCluster(Path(place) / "cluster", kill_seconds=5)
        os.environ |= cluster.variables
        over = threading.Event()
        try:
            cluster.start()
            threading.Thread(target=_administer, args=(cluster, over), daemon=True).start()
            while total.injected.total() < faults:
                with tempfile.TemporaryDirectory() as folder:
                    trial = SlurmTrial(Path(folder), random.Random(f"{seed} {number}"), cluster)
                    harm = trial.run(list(KINDS), FAULTS_A_TRIAL)
                    trial.compare(expected)
                    if any(getattr(harm, name) for name in BAD):
                        say((Path(folder) / "said.txt").read_text()[-3_000:])
                total.add(harm)
                done = ", ".join(f"{count} {kind}" for kind, count in sorted(harm.injected.items()))
                bad = ", ".join(f"{getattr(harm, name)} {name}" for name in BAD)
                say(f"{number:3d}: {done or 'none'} in {harm.seconds:.0f} s; of {harm.points} results: {bad}")
                number += 1
        finally:
            over.set()
            cluster.close()
    counts = {name: getattr(total, name) for name in ("points", *BAD)}
    return {
        "faults": total.injected.total(),
        "trials": number,
        "seed": seed,
        "injected": dict(total.injected),
    } | counts


def main() -> int:
    """Run a campaign and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the counts to a file")
    options = parser.parse_args()
    if why := slurm_support.why_not():
        print(f"no Slurm: {why}")
        return 0
    counts = campaign(options.faults, options.seed, lambda line: print(line, flush=True))
    if options.json:
        options.json.write_text(json.dumps(counts, indent=2))
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(counts["injected"]).most_common())
    print(f"\n{counts['faults']} faults in {counts['trials']} trials: {kinds}")
    print(", ".join(f"{counts[name]} {name}" for name in BAD), f"of {counts['points']:,} results")
    return int(any(counts[name] for name in BAD))


if __name__ == "__main__":
    sys.exit(main())
