"""How long hundreds of JobSets take to launch on a real control plane of this machine, and to be listed.

python tests/benchmarks/bench_kubernetes.py [--count 500]

They are suspended, so that no node has to run them. Needs what `make cluster-kubernetes` builds.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "platform" / "support"))

from executor_harnesses import IMAGE, STORE, job
from tests.benchmarks.support import parse_options, print_table
from tests.cluster.kubernetes import binaries
from tests.cluster.kubernetes.shared import Namespace, SharedCluster

from jestlab.platform.lab.settings import Kubernetes as Settings
from jestlab.platform.launch.executors.base import JobState, LaunchedJob
from jestlab.platform.launch.executors.kubernetes import KubernetesExecutor
from jestlab.platform.spec.resources import Resources


def seconds(count: int, programs: Path, folder: Path) -> dict[str, float]:
    """Seconds of launching so many, and of asking for all of them."""
    cluster = SharedCluster(folder, programs)
    try:
        namespace = Namespace(cluster, store=STORE)
        os.environ["KUBECONFIG"] = str(namespace.kubeconfig(folder / "kubeconfig"))
        settings = Settings(
            namespace=namespace.name, store_secret="jestlab-store/url", root="/lab", queue="tpus"
        )
        executor = KubernetesExecutor(settings, Resources(tpu="v5e-2x2", image=IMAGE))
        jobs = [
            job(f"jestlab-0a1b2c3d-{number}", environment={"JESTLAB_STORE": STORE}) for number in range(count)
        ]
        start = time.perf_counter()
        all_started = executor.launch_all(jobs)
        launched = time.perf_counter()
        refused = [error for error in all_started if not isinstance(error, LaunchedJob)]
        assert not refused, refused[0]
        states = executor.statuses([each for each in all_started if isinstance(each, LaunchedJob)])
        asked = time.perf_counter()
        assert {status.state for status in states.values()} == {JobState.QUEUED}
        assert len(states) == count
        return {f"{count} JobSets launched": launched - start, "all asked for": asked - launched}
    finally:
        cluster.close()


def main() -> None:
    """Measure and print."""
    count = parse_options(__doc__, count=500).count
    programs = binaries.folder()
    if programs is None:
        print("there is no KubernetesExecutor: make cluster-kubernetes", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        figures = seconds(count, programs, Path(folder))
    print_table("once", ("what", "s"), [(name, f"{value:.1f}") for name, value in figures.items()])


if __name__ == "__main__":
    main()
