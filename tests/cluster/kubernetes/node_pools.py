"""The nodes that tests run on: objects with the labels and the capacity that GKE gives to such machines."""

from __future__ import annotations

from dataclasses import dataclass
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
        """Return the object that registers it."""
        labels = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux", POOL: self.pool}
        taints = [{"key": self.taint, "value": "present", "effect": "NoSchedule"}] if self.taint else []
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels | self.labels},
            "spec": {"taints": taints},
        }

    def status(self, now: str) -> Object:
        """Return what it says of itself."""
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
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "osImage",
    "systemUUID",
)


def tpus(name: str, port: int, *, topology: str, hosts: int, chips: int, spot: bool = False) -> list[Node]:
    """Return a pool of v5e hosts."""
    labels = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": topology,
    } | ({"cloud.google.com/gke-spot": "true"} if spot else {})
    return [
        Node(f"{name}-{number}", name, port, {"google.com/tpu": str(chips)}, labels, taint="google.com/tpu")
        for number in range(hosts)
    ]


def gpus(name: str, port: int, *, hosts: int, count: int) -> list[Node]:
    """Return a pool of hosts with GPUs, tainted as GKE taints them."""
    return [
        Node(f"{name}-{number}", name, port, {"nvidia.com/gpu": str(count)}, {}, taint="nvidia.com/gpu")
        for number in range(hosts)
    ]


def cpus(name: str, port: int, *, hosts: int) -> list[Node]:
    """Return a pool of hosts without accelerators."""
    return [Node(f"{name}-{number}", name, port, {}, {}) for number in range(hosts)]


def usual(port: int) -> list[Node]:
    """Return what tests find: room for eight jobs on one host, for two on four hosts, and a few others."""
    return [
        *tpus("v5e-one", port, topology="2x2", hosts=8, chips=4),
        *tpus("v5e-four-a", port, topology="4x4", hosts=4, chips=4),
        *tpus("v5e-four-b", port, topology="4x4", hosts=4, chips=4),
        *gpus("gpu", port, hosts=2, count=4),
        *cpus("cpu", port, hosts=2),
    ]
