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
from collections.abc import Callable
from contextlib import closing
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

    def _harm_pod(self, harm: Callable[[Object], object]) -> bool:
        """Harm a pod that runs and isn't terminating, if there is one."""
        running = [
            pod
            for pod in self._namespace.pods()
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        ]
        if not running:
            return False
        try:
            harm(self._chance.choice(running))
        except ApiError:  # it has gone meanwhile
            return False
        return True

    def pod_evicted(self) -> bool:
        return self._harm_pod(lambda pod: self._namespace.evict(pod["metadata"]["name"]))

    def jobset_deleted(self) -> bool:
        label = "jobset.sigs.k8s.io/jobset-name"
        return self._harm_pod(lambda pod: self._namespace.remove_jobset(pod["metadata"]["labels"][label]))

    def node_shut_down(self) -> bool:
        """Shut a node down, with or without some seconds for pods to save."""
        seconds = self._chance.choice([0.0, 5.0])
        return self._harm_pod(
            lambda pod: self._cluster.ask("shut_down_node", pod["spec"]["nodeName"], seconds)
        )

    def node_cut_off(self) -> bool:
        """Power a node off; some seconds later the cloud has replaced it."""

        def cut_off(pod: Object) -> None:
            node = pod["spec"]["nodeName"]
            self._cluster.ask("kill_node", node)
            time.sleep(self._chance.uniform(1.0, 12.0))
            self._cluster.ask("remove_node", node)
            self._cluster.ask("restore_nodes")

        return self._harm_pod(cut_off)

    def _stop_api(self, least: float, most: float) -> bool:
        """Stop the API server for a number of seconds."""
        self._cluster.ask("kill_api")
        time.sleep(self._chance.uniform(least, most))
        self._cluster.ask("start_api")
        return True

    def api_killed(self) -> bool:
        return self._stop_api(1.0, 8.0)

    def api_away(self) -> bool:
        """Stop the API server for longer than leases last; once in a trial, since it takes long."""
        return not self.harm.injected["api_away"] and self._stop_api(60.0, 75.0)

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
        return trial.run(options.kinds or kinds, min(FAULTS_A_TRIAL, options.faults), expected)

    with tempfile.TemporaryDirectory() as place, closing(PostgresServer()) as server:
        server.start()
        with closing(SharedCluster(Path(place), programs)) as cluster:
            return run_trials(options, run)


if __name__ == "__main__":
    sys.exit(main())
