"""Faults injected into launches on a real Kubernetes control plane, and what was lost by them.

    python tests/faults/kubernetes_campaign.py --faults 60 --seed 0 --json faults.json

Each trial launches a small study of CPU pods, with its store on a real PostgreSQL, and does it harm until it
is through: pods are evicted, their processes killed, JobSets deleted, nodes shut down and cut off, the API
server and launchers killed. Then it is judged as by `campaign.py`. Besides, a JobSet that is not over in the
end counts as left over, and an attempt that FAILED though no process was killed as told wrongly.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "platform" / "support"))

import labs_support as labs
import urllib3
import yaml
from campaign import BAD, RESOURCES, TOY, Harm, Trial, undisturbed
from postgres_support import PostgresServer
from sqlalchemy import create_engine, text
from tests.cluster.kubernetes import binaries
from tests.cluster.kubernetes.api import ApiError, Object
from tests.cluster.kubernetes.shared import Namespace, SharedCluster, container_environment

from jestlab.platform.store.address import parse_url

IMAGE = "registry.example/jestlab@sha256:" + "0f" * 32
KINDS = [
    "pod_evicted",
    "jobset_deleted",
    "node_shut_down",
    "node_cut_off",
    "launcher_killed",
    "worker_killed",
]
"""Of every trial; in every third the API server is killed, too: controllers may then wait for minutes. In
every sixth it may also be away for more than a minute."""

FAULTS_A_TRIAL = 8


class ClusterTrial(Trial):
    """A study whose runs are pods, and whoever does them harm."""

    def __init__(
        self, folder: Path, chance: random.Random, server: PostgresServer, cluster: SharedCluster
    ) -> None:
        super().__init__(folder, TOY, chance, server)
        self._cluster = cluster
        self._namespace = Namespace(cluster, store=self.url)
        self._spec.write_text(yaml.safe_dump(TOY | {"resources": RESOURCES | {"on": "kubernetes"}}))
        where = {
            "namespace": self._namespace.name,
            "store_secret": "jestlab-store/url",
            "root": str(self.root),
        }
        config = folder / "config.yaml"
        config.write_text(yaml.safe_dump({"image": IMAGE, "kubernetes": where}))
        kubeconfig = self._namespace.kubeconfig(folder / "kubeconfig")
        self._environment = {"JESTLAB_CONFIG": str(config), "KUBECONFIG": str(kubeconfig)}
        pods = container_environment() | labs.variables(self.root)
        cluster.images.push(IMAGE, pods)

    def launch(self) -> None:
        store = {"JESTLAB_STORE": self.url}
        patient = {"JESTLAB_API_PAUSE_SECONDS": "1"}  # as users' launchers are
        environment = {**os.environ, **labs.variables(self.root), **patient, **store, **self._environment}
        command = [*labs.JESTLAB, "launch", str(self._spec), "--root", str(self.root), "--no-reports"]
        self._launchers.append(
            subprocess.Popen(
                command, env=environment, stdout=self._said, stderr=self._said, start_new_session=True
            )
        )

    # ---- faults

    def _pod(self) -> Object | None:
        """Choose one that runs and is not asked to stop."""
        running = [
            pod
            for pod in self._namespace.pods()
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        ]
        return self._chance.choice(running) if running else None

    def pod_evicted(self) -> bool:
        if (pod := self._pod()) is None:
            return False
        try:
            self._namespace.evict(pod["metadata"]["name"])
        except ApiError:  # it has gone meanwhile
            return False
        return True

    def jobset_deleted(self) -> bool:
        if (pod := self._pod()) is None:
            return False
        try:
            self._namespace.remove_jobset(pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"])
        except ApiError:
            return False
        return True

    def node_shut_down(self) -> bool:
        """With some seconds to save, or none."""
        if (pod := self._pod()) is None:
            return False
        self._cluster.ask("shut_down_node", pod["spec"]["nodeName"], self._chance.choice([0.0, 5.0]))
        return True

    def node_cut_off(self) -> bool:
        """Its power fails; some seconds later the cloud has removed it, and there is another."""
        if (pod := self._pod()) is None:
            return False
        node = pod["spec"]["nodeName"]
        self._cluster.ask("kill_node", node)
        time.sleep(self._chance.uniform(1.0, 12.0))
        self._cluster.ask("remove_node", node)
        self._cluster.ask("restore_nodes")
        return True

    def api_killed(self) -> bool:
        self._cluster.ask("kill_api")
        time.sleep(self._chance.uniform(1.0, 8.0))
        self._cluster.ask("start_api")
        return True

    def api_away(self) -> bool:
        """For longer than leases last, while runs go on, end, and wait; once a trial, which it makes long."""
        if self.harm.injected["api_away"]:
            return False
        self._cluster.ask("kill_api")
        time.sleep(self._chance.uniform(60.0, 75.0))
        self._cluster.ask("start_api")
        return True

    # ---- the end

    def _end(self) -> None:
        deadline = time.monotonic() + 20.0
        while (left := self._unfinished()) and time.monotonic() < deadline:
            time.sleep(0.2)
        self.harm.left_over += left
        super()._end()
        self.harm.told_wrongly += max(self._failed() - self.harm.injected["worker_killed"], 0)
        self._namespace.empty()

    def _unfinished(self) -> int:
        try:
            return sum(
                not found.get("status", {}).get("terminalState") for found in self._namespace.jobsets()
            )
        except urllib3.exceptions.HTTPError:
            return 0

    def _failed(self) -> int:
        engine = create_engine(parse_url(self.url))
        with engine.connect() as connection:
            count = connection.execute(
                text("SELECT count(*) FROM attempt WHERE state = 'FAILED'")
            ).scalar_one()
        engine.dispose()
        return int(count)


def campaign(faults: int, seed: int, programs: Path, only: list[str] | None) -> dict[str, Any]:
    """Trials, until so many faults have been injected; print how each went."""
    expected, total, number = undisturbed(TOY), Harm(), 0
    server = PostgresServer()
    server.start()
    with tempfile.TemporaryDirectory() as place:
        cluster = SharedCluster(Path(place), programs)
        try:
            while total.injected.total() < faults:
                with tempfile.TemporaryDirectory() as folder:
                    chance = random.Random(f"{seed} {number}")
                    trial = ClusterTrial(Path(folder), chance, server, cluster)
                    kinds = KINDS + ["api_killed"] * (number % 3 == 2) + ["api_away"] * (number % 6 == 5)
                    harm = trial.run(only or kinds, FAULTS_A_TRIAL)
                    trial.compare(expected)
                    if any(getattr(harm, name) for name in BAD):
                        print((Path(folder) / "said.txt").read_text()[-3_000:])
                total.add(harm)
                done = ", ".join(f"{count} {kind}" for kind, count in sorted(harm.injected.items()))
                bad = ", ".join(f"{getattr(harm, name)} {name}" for name in BAD)
                print(
                    f"{number:3d}: {done} in {harm.seconds:.0f} s; of {harm.points} points: {bad}", flush=True
                )
                number += 1
        finally:
            cluster.close()
            server.close()
    counts = {name: getattr(total, name) for name in ("points", *BAD)}
    return {"faults": total.injected.total(), "trials": number, "seed": seed} | counts | {
        "injected": dict(total.injected)
    }  # fmt: skip


def main() -> int:
    """Run a campaign and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", help="of faults; by default all of them")
    parser.add_argument("--json", type=Path, help="write the counts to a file")
    options = parser.parse_args()
    programs = binaries.folder()
    if programs is None:
        parser.error(binaries.MISSING)
    counts = campaign(options.faults, options.seed, programs, options.kinds)
    if options.json:
        options.json.write_text(json.dumps(counts, indent=1))
    print(json.dumps(counts))
    return int(any(counts[name] for name in BAD))


if __name__ == "__main__":
    sys.exit(main())
