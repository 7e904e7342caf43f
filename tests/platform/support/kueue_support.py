"""The queues of one test, in a real Kueue."""

from typing import Any

import pytest
from kubernetes_harness import KubernetesHarness
from tests.cluster.kubernetes import binaries
from tests.cluster.kubernetes.queues import API, MANAGED
from tests.cluster.kubernetes.shared import EVENTS, MAY, WORKLOADS
from tests.waiting import wait_until

from jestlab.platform.launch.executors.base import LaunchedJob
from jestlab.platform.launch.executors.kubernetes import KubernetesExecutor

QUEUE = "tpus"


class Queues:
    """A LocalQueue of the harness's namespace, with its quota.

    Attributes:
        harness: Its cluster, in a namespace that Kueue manages.
    """

    def __init__(self, harness: KubernetesHarness, chips: int) -> None:
        """Start Kueue if it does not run, and create a queue with quota of so many chips."""
        programs = binaries.folder("kueue")
        if programs is None:
            pytest.skip(binaries.KUEUE_MISSING)
        harness.cluster.ask("start_kueue", str(programs))
        self.harness = harness
        self._admin, self._name = harness.cluster.admin, harness.namespace.name
        self._admin.patch(f"/api/v1/namespaces/{self._name}", {"metadata": {"labels": MANAGED}})
        harness.namespace.allow([*MAY, EVENTS, WORKLOADS])
        quotas = {"google.com/tpu": str(chips), "cpu": "1000", "memory": "1000Gi"}
        flavor = {
            "name": "any",
            "resources": [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()],
        }
        spec = {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": list(quotas), "flavors": [flavor]}],
        }
        self._create("clusterqueues", "ClusterQueue", self._name, spec=spec)
        path = f"namespaces/{self._name}/localqueues"
        self._create(path, "LocalQueue", QUEUE, spec={"clusterQueue": self._name})

    def executor(self, queue: str = QUEUE, **changes: Any) -> KubernetesExecutor:
        return self.harness.executor(settings=self.harness.settings(queue=queue), **changes)

    def stop(self, policy: str) -> None:
        self._admin.patch(f"{API}/clusterqueues/{self._name}", {"spec": {"stopPolicy": policy}})

    def runs(self, jobset: str) -> bool:
        pods = self.harness.namespace.pods(jobset)
        return bool(pods) and all(pod["status"].get("phase") == "Running" for pod in pods)

    def waits(self, executor: KubernetesExecutor, started: LaunchedJob, words: str) -> list[str]:
        """Wait until a job's reason to wait has these words in it; return its lines."""

        def lines() -> list[str]:
            waits = executor.statuses([started])[started].waits or ""
            return waits.split("\n") if words in waits else []

        found: list[str] = wait_until(lines)
        return found

    def close(self) -> None:
        """Delete the objects outside namespaces."""
        self.stop("None")
        self._admin.delete(f"{API}/clusterqueues/{self._name}")

    def _create(self, path: str, kind: str, name: str, **parts: Any) -> None:
        of = {"apiVersion": API.removeprefix("/apis/"), "kind": kind, "metadata": {"name": name}}
        self._admin.create(f"{API}/{path}", of | parts)
