"""A control plane of this machine: etcd, the API server, the controllers, the scheduler, and JobSet.

All of them listen on loopback, on ports that were free, and need no privileges. They end with the process
that started them, however that ends. Waiting times are shorter than a real cluster's, so that tests see a
node die within seconds.
"""

import base64
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import urllib3
import yaml
from tests.cluster.kubernetes.api import Api, ApiError
from tests.cluster.kubernetes.certificates import Authority, account_key
from tests.cluster.ports import free_port

START_SECONDS = 90.0
NODE_SILENT_SECONDS = 8
"""A node that has sent no sign of life for so long is unreachable."""

ISSUER = "https://kubernetes.default.svc"
"""Of the tokens of service accounts."""

CUSTOM_KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"

_RARE_GARBAGE_COLLECTION = {"GOGC": "800", "GOMEMLIMIT": "1GiB"}
"""Their heaps are small, and collecting them took a quarter of what the API server computes."""

_CONTROLLERS = (
    *("clusterrole-aggregation", "disruption", "garbage-collector", "job", "namespace", "node-lifecycle"),
    *("persistentvolume-binder", "pod-garbage-collector", "resourcequota", "root-ca-certificate-publisher"),
    *("serviceaccount", "serviceaccount-token", "taint-eviction", "ttl-after-finished"),
)


def ending_with_us(command: Sequence[str | Path]) -> list[str]:
    """Return a command whose process the system kills when the thread that started it ends."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *map(str, command)]


class Daemons:
    """A running control plane.

    Attributes:
        admin: The API, as one who may do anything.
        kubeconfig: Of the same user.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        """Prepare what they need; nothing runs before `start`."""
        self._programs = programs
        self.folder = folder
        ports = iter(free_ports(8))
        self._etcd, self._peer, self._api, self._controllers = (next(ports) for _ in range(4))
        self._scheduler, self._webhook, self._health, self.agent_port = (next(ports) for _ in range(4))
        self.authority = Authority(folder)
        self._server = self.authority.sign("kube-apiserver", hosts=("localhost", "kubernetes.default.svc"))
        self._accounts = account_key(folder)
        self.admin_files = self.authority.sign("admin", ["system:masters"])
        self.url = f"https://127.0.0.1:{self._api}"
        self.admin = Api(self.url, self.authority.certificate, *self.admin_files)
        self.kubeconfig = folder / "kubeconfig"
        user = {f"client-{kind}": str(file) for kind, file in self.admin_files._asdict().items()}
        write_kubeconfig(self.kubeconfig, self.url, user, authority=self.authority.certificate)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        # Daemons end with the thread that starts them: this one stays.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="daemons")

    def start(self) -> None:
        """Start all of them, and wait until JobSets are taken."""
        self.run("etcd", self._etcd_options())
        self.start_api()
        for name in ("jobset-crd.yaml", "jobset-webhooks.yaml"):
            self._apply(name)
        self.admin.create(CUSTOM_KINDS, _workloads())
        # JobSet's controller gives up where there is no such kind, and the others look for new ones twice a
        # minute: until then they would neither count JobSets nor delete their pods.
        self.wait("kube-apiserver", lambda: bool(self.admin.get(_JOBSETS)))
        self.run("kube-controller-manager", self._controller_options())
        self.run("kube-scheduler", self._scheduler_options())
        self.run("jobset", self._jobset_options())
        self.wait("jobset", self._takes_jobsets)

    def stop(self) -> None:
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()
        self._running.clear()

    def start_api(self) -> None:
        self.run("kube-apiserver", self._api_options())
        self.wait("kube-apiserver", lambda: self.admin.get("/readyz") == "ok")

    def kill_api(self) -> None:
        process = self._running.pop("kube-apiserver")
        process.kill()
        process.wait()

    # ---- each of them

    def _etcd_options(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._peer}"
        return [
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=warn",
        ]

    def _api_options(self) -> list[str]:
        kubelet = self.admin_files
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self._api}",
            f"--tls-cert-file={self._server.certificate}",
            f"--tls-private-key-file={self._server.key}",
            f"--client-ca-file={self.authority.certificate}",
            f"--service-account-key-file={self._accounts}",
            f"--service-account-signing-key-file={self._accounts}",
            f"--service-account-issuer={ISSUER}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
            f"--kubelet-client-certificate={kubelet.certificate}",
            f"--kubelet-client-key={kubelet.key}",
            f"--kubelet-certificate-authority={self.authority.certificate}",
            "--kubelet-preferred-address-types=InternalIP",
            "--default-not-ready-toleration-seconds=1",
            "--default-unreachable-toleration-seconds=1",
            "--etcd-compaction-interval=0",
            # Else pages come from memory, and those of a minute ago are never too old.
            "--feature-gates=ListFromCacheSnapshot=false",
            "--shutdown-delay-duration=0s",
            # A build by Go's tools alone has no number, and Kueue refuses what it cannot parse.
            "--version=v0.0.0-tests",
            "--v=0",
        ]

    def _controller_options(self) -> list[str]:
        return [
            *self._serving(self._controllers),
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            f"--controllers={','.join(f'{name}-controller' for name in _CONTROLLERS)}",
            f"--service-account-private-key-file={self._accounts}",
            f"--root-ca-file={self.authority.certificate}",
            "--use-service-account-credentials=false",
            "--node-monitor-period=1s",
            f"--node-monitor-grace-period={NODE_SILENT_SECONDS}s",
            "--node-startup-grace-period=20s",
            "--kube-api-qps=400",
            "--kube-api-burst=400",
            "--resource-quota-sync-period=5s",
            "--pvclaimbinder-sync-period=1s",
        ]

    def _scheduler_options(self) -> list[str]:
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig), "qps": 400, "burst": 400},
            "leaderElection": {"leaderElect": False},
            "podMaxBackoffSeconds": 2,
            "podInitialBackoffSeconds": 1,
        }
        return [*self._serving(self._scheduler), f"--config={self.write('scheduler.yaml', config)}"]

    def _serving(self, port: int) -> list[str]:
        """Return the options of where a daemon listens, and who decides what clients may do."""
        checks = [f"--{what}-kubeconfig={self.kubeconfig}" for what in ("authentication", "authorization")]
        return [*checks, "--bind-address=127.0.0.1", f"--secure-port={port}"]

    def _jobset_options(self) -> list[str]:
        certificates = self.folder / "webhook"
        certificates.mkdir(exist_ok=True)
        for ours, theirs in zip(self._server, ("tls.crt", "tls.key"), strict=True):
            shutil.copy(ours, certificates / theirs)
        config = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self._webhook, "certDir": str(certificates)},
        }
        return [f"--kubeconfig={self.kubeconfig}", f"--config={self.write('jobset.yaml', config)}"]

    # ---- what all of them need

    def run(self, name: str, options: Sequence[str], programs: Path | None = None) -> None:
        """Start a program of the control plane, or of another folder; its log is in the folder."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = self._starter.submit(
                subprocess.Popen[bytes],
                ending_with_us([(programs or self._programs) / name, *options]),
                cwd=self.folder, env={**os.environ, **_RARE_GARBAGE_COLLECTION},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            ).result()  # fmt: skip

    def wait(self, name: str, ready: Callable[[], bool]) -> None:
        """Wait until what was started is ready; errors of the API mean that it is not yet."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                if ready():
                    return
            except (ApiError, urllib3.exceptions.HTTPError):
                pass
            code = self._running[name].poll()
            if code is not None or time.monotonic() > deadline:
                said = (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{name} does not start ({code}): {said}")
            time.sleep(0.05)

    def _takes_jobsets(self) -> bool:
        """Whether JobSet's webhooks are heard; it says that it is ready a little before."""
        pod = {"containers": [{"name": "one", "image": "one"}], "restartPolicy": "Never"}
        template = {"spec": {"template": {"spec": pod}}}
        spec = {"replicatedJobs": [{"name": "one", "template": template}]}
        kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
        self.admin.call("POST", _JOBSETS, {**kind, "metadata": {"name": "one"}, "spec": spec}, dryRun="All")
        return True

    def _apply(self, name: str) -> None:
        """Create what a file of JobSet's holds; its webhooks are asked at their port here."""
        for found in yaml.load_all((self._programs / name).read_text(), yaml.CSafeLoader):
            for webhook in found.get("webhooks", ()):
                client = webhook["clientConfig"]
                path = client.pop("service")["path"]
                client["url"] = f"https://127.0.0.1:{self._webhook}{path}"
                client["caBundle"] = base64.b64encode(self.authority.certificate.read_bytes()).decode()
            group, _, _ = found["apiVersion"].partition("/")
            plural = found["kind"].lower() + "s"
            self.admin.create(f"/apis/{group}/v1/{plural}", found)

    def write(self, name: str, config: dict[str, Any]) -> Path:
        path = self.folder / name
        path.write_text(yaml.safe_dump(config))
        return path


def _workloads() -> dict[str, Any]:
    """Return a kind that stands for Kueue's Workloads until Kueue is installed.

    The garbage collector, which deletes them with their JobSets, looks for kinds that are new twice a minute.
    """
    group, plural = "kueue.x-k8s.io", "workloads"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": "Workload"},
            "versions": [version],
        },
    }


def write_kubeconfig(path: Path, url: str, user: dict[str, str], *, authority: Path | None = None) -> None:
    """Write a kubeconfig whose current context is one server and one user."""
    cluster = {"server": url} | ({"certificate-authority": str(authority)} if authority else {})
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}],
    }
    path.touch(0o600)
    path.write_text(yaml.safe_dump(config))


def free_ports(count: int) -> list[int]:
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)
