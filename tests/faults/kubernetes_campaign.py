"""Faults injected into launches on a real Kubernetes control plane, and what was lost by them.

    python tests/faults/kubernetes_campaign.py --faults 60 --seed 0

Each trial launches a small study of CPU pods, with its store on a real PostgreSQL: pods are evicted, their
processes killed, JobSets deleted, nodes shut down and cut off, the API server and launchers killed.
`campaign.py` says what counts as lost. In addition, a JobSet that isn't over in the end counts as left over,
and an attempt that FAILED though no process was killed as misjudged.
"""

import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "platform" / "support"))

import labs_support as labs
import urllib3
import yaml
from campaign import RESOURCES, TOY, Harm, Trial, parser, rows, run_trials, undisturbed
from postgres_support import PostgresServer
from tests.cluster.kubernetes import binaries
from tests.cluster.kubernetes.api import ApiError, Object
from tests.cluster.kubernetes.shared import Namespace, SharedCluster, container_environment

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
    """A study whose runs are pods, with the faults that are injected into it."""

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
        self._kubernetes = {"JESTLAB_CONFIG": str(config), "KUBECONFIG": str(kubeconfig)}
        pods = container_environment() | labs.variables(self.root)
        cluster.images.push(IMAGE, pods)

    def environment(self) -> dict[str, str]:
        """Variables of launchers, which pause between requests as users' do."""
        return {**super().environment(), "JESTLAB_API_PAUSE_SECONDS": "1", **self._kubernetes}

    # ---- faults

    def _pod(self) -> Object | None:
        """Choose one that runs and isn't terminating."""
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
        """Shut a node down, with or without some seconds for pods to save."""
        if (pod := self._pod()) is None:
            return False
        self._cluster.ask("shut_down_node", pod["spec"]["nodeName"], self._chance.choice([0.0, 5.0]))
        return True

    def node_cut_off(self) -> bool:
        """Power a node off; some seconds later the cloud has replaced it."""
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
        """Stop the API server for longer than leases last; once in a trial, since it takes long."""
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
        [(failed,)] = rows(self.url, "SELECT count(*) FROM attempt WHERE state = 'FAILED'")
        self.harm.misjudged += max(failed - self.harm.injected["worker_killed"], 0)
        self._namespace.empty()

    def _unfinished(self) -> int:
        try:
            return sum(
                not found.get("status", {}).get("terminalState") for found in self._namespace.jobsets()
            )
        except urllib3.exceptions.HTTPError:
            return 0


def main() -> int:
    """Run trials on one control plane."""
    arguments = parser(__doc__, 60)
    arguments.add_argument("--kinds", nargs="*", help="of faults; by default all of them")
    options = arguments.parse_args()
    programs = binaries.folder()
    if programs is None:
        arguments.error(binaries.MISSING)
    expected = undisturbed(TOY)

    def run(number: int, folder: Path, chance: random.Random) -> Harm:
        trial = ClusterTrial(folder, chance, server, cluster)
        kinds = KINDS + ["api_killed"] * (number % 3 == 2) + ["api_away"] * (number % 6 == 5)
        harm = trial.run(options.kinds or kinds, min(FAULTS_A_TRIAL, options.faults))
        trial.compare(expected)
        return harm

    server = PostgresServer()
    server.start()
    with tempfile.TemporaryDirectory() as place:
        cluster = SharedCluster(Path(place), programs)
        try:
            return run_trials(options, run)
        finally:
            cluster.close()
            server.close()


if __name__ == "__main__":
    sys.exit(main())
