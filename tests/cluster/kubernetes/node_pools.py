"""The nodes that tests run on: objects with the labels and the capacity that GKE gives to such machines."""

from dataclasses import dataclass
from itertools import chain
from typing import Any

Object = dict[str, Any]

POOL = "cloud.google.com/gke-nodepool"


@dataclass
class Node:
    """A node.

    Attributes:
        pool: Name of its node pool: the hosts of one TPU slice are one pool.
        capacity: What it has besides CPUs, memory and room for pods.
        labels: Besides its pool.
        taint: Key of a taint that pods have to tolerate; empty for none.
        port: Where its logs are served.
        said: When it told its status, by the clock of this process.
    """

    name: str
    pool: str
    port: int
    capacity: dict[str, str]
    labels: dict[str, str]
    taint: str = ""
    said: float = 0.0

    def manifest(self) -> Object:
        labels = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux", POOL: self.pool}
        taints = [{"key": self.taint, "value": "present", "effect": "NoSchedule"}] if self.taint else []
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels | self.labels},
            "spec": {"taints": taints},
        }

    def status(self, now: str) -> Object:
        room = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "100Gi"} | self.capacity
        ready = {"reason": "KubeletReady", "lastHeartbeatTime": now, "lastTransitionTime": now}
        return {
            "status": {
                "capacity": room,
                "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True", **ready}],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
                "nodeInfo": dict.fromkeys(_INFO, "tests") | {"operatingSystem": "linux"},
            }
        }

    def lease(self, now: str) -> Object:
        """Return the lease that its signs of life renew."""
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": now},
        }


_INFO = (
    *("architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion"),
    *("kubeletVersion", "machineID", "osImage", "systemUUID"),
)


def usual(port: int) -> list[Node]:
    """Return what tests find: room for eight jobs on one host, for two on four hosts, and a few others."""

    def pool(name: str, hosts: int, chip: str = "", count: int = 0, **labels: str) -> list[Node]:
        """A pool of hosts; those with accelerators are tainted as GKE taints them."""
        capacity = {chip: str(count)} if chip else {}
        named = {f"cloud.google.com/gke-{label.replace('_', '-')}": value for label, value in labels.items()}
        return [Node(f"{name}-{number}", name, port, capacity, named, taint=chip) for number in range(hosts)]

    v5e = "tpu-v5-lite-podslice"
    slices = {"v5e-one": ("2x2", 8), "v5e-four-a": ("4x4", 4), "v5e-four-b": ("4x4", 4)}
    tpus = (
        pool(name, hosts, "google.com/tpu", 4, tpu_accelerator=v5e, tpu_topology=topology)
        for name, (topology, hosts) in slices.items()
    )
    return [*chain(*tpus), *pool("gpu", 2, "nvidia.com/gpu", 4), *pool("cpu", 2)]
