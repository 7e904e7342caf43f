"""How long hundreds of JobSets take to launch on a real control plane of this machine, and to be asked for.

    python tests/benchmarks/bench_kubernetes.py

They are suspended, so that no node has to run them. Needs what `make cluster-kubernetes` builds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "platform" / "support"))

from executor_harnesses import IMAGE, STORE, job
from tests.cluster.kubernetes import binaries
from tests.cluster.kubernetes.shared import Namespace, SharedCluster

from jestlab.platform.lab.settings import Kubernetes as Settings
from jestlab.platform.launch.executor import JobState, LaunchedJob
from jestlab.platform.launch.executors.kubernetes import Kubernetes
from jestlab.platform.spec.resources import parse_slice


def seconds(count: int, programs: Path, folder: Path) -> dict[str, float]:
    """Seconds of launching so many, and of asking for all of them."""
    cluster = SharedCluster(folder, programs)
    try:
        namespace = Namespace(cluster, store=STORE)
        os.environ["KUBECONFIG"] = str(namespace.kubeconfig(folder / "kubeconfig"))
        settings = Settings(
            namespace=namespace.name, store_secret="jestlab-store/url", root="/lab", queue="tpus"
        )
        executor = Kubernetes(settings, parse_slice("v5e-2x2"), IMAGE)
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
    """Measure and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="how many JobSets (default: 500)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    programs = binaries.folder()
    if programs is None:
        print("there is no Kubernetes: make cluster-kubernetes", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        figures = seconds(options.count, programs, Path(folder))
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    if options.json:
        print(json.dumps({"machine": machine, "seconds": figures}, indent=2))
        return
    print(f"{machine}, {time.strftime('%Y-%m-%d')}, once\n\n| what | s |\n|---|---|")
    for name, value in figures.items():
        print(f"| {name} | {value:.1f} |")


if __name__ == "__main__":
    main()
