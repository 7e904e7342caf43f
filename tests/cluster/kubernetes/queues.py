"""Kueue in the tests' control plane, and the queues of one test.

Kueue is started by the first test that asks for it. It manages the namespaces of those tests alone: the
JobSets of others are neither shown to its webhooks nor looked at by its controllers.
"""

import base64
from collections.abc import Iterator
from pathlib import Path

import yaml
from tests.cluster.kubernetes.api import ApiError, Object
from tests.cluster.kubernetes.daemons import Daemons, free_ports

MANAGED = {"jestlab-tests/kueue": "managed"}
"""Labels of the namespaces that Kueue manages."""

API = "/apis/kueue.x-k8s.io/v1beta2"

_NAMESPACE = "kueue-system"
_SERVICE = "kueue-webhook-service"
_SECRET = "kueue-webhook-server-cert"
_NAMES = {"webhookServiceName": _SERVICE, "webhookSecretName": _SECRET}
_HEARD = ("-kueue-x-k8s-io-", "-jobset-x-k8s-io-")
"""Of all webhooks, by their paths: those of kinds that are here."""
_CONVERTED = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")


class Kueue:
    def __init__(self, daemons: Daemons, programs: Path) -> None:
        self._daemons = daemons
        self._admin = daemons.admin
        self._programs = programs
        self._certificates = daemons.folder / "kueue"
        self._webhook, self._health = free_ports(2)

    def start(self) -> None:
        """Install it, start it, and wait until queues and JobSets are taken."""
        self._certificates.mkdir()
        self._admin.create("/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
        self._admin.create(f"/api/v1/namespaces/{_NAMESPACE}/secrets", {"metadata": {"name": _SECRET}})
        # The API server finds the webhooks by this service, at their port on this machine.
        service = {"type": "ExternalName", "externalName": "localhost"}
        path = f"/api/v1/namespaces/{_NAMESPACE}/services"
        self._admin.create(path, {"metadata": {"name": _SERVICE}, "spec": service})
        for found in self._manifests():
            self._apply(found)
        self._daemons.wait("kube-apiserver", lambda: bool(self._admin.get(f"{API}/clusterqueues")))
        self._daemons.run("kueue", self._options(), self._programs)
        self._daemons.wait("kueue", self._certify)
        self._daemons.wait("kueue", self._takes_queues)

    def _apply(self, found: Object) -> None:
        """Create an object, or put it in the place of the one that stood for it."""
        group, _, _ = found["apiVersion"].partition("/")
        path = f"/apis/{group}/v1/{found['kind'].lower()}s"
        try:
            self._admin.create(path, found)
        except ApiError as error:
            if error.status != 409:
                raise
            path = f"{path}/{found['metadata']['name']}"
            before = self._admin.get(path)["metadata"]["resourceVersion"]
            self._admin.call(
                "PUT", path, found | {"metadata": found["metadata"] | {"resourceVersion": before}}
            )

    def _manifests(self) -> Iterator[Object]:
        """Yield what its kustomization makes of its manifests, as far as it is about kinds that are here."""
        for path in sorted(self._programs.glob("kueue.x-k8s.io_*.yaml")):
            kind = yaml.load(path.read_text(), yaml.CSafeLoader)
            if kind["spec"]["names"]["plural"] in _CONVERTED:
                client = {"service": self._service("/convert")}
                webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
                kind["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
            yield kind
        for found in yaml.load_all((self._programs / "webhooks.yaml").read_text(), yaml.CSafeLoader):
            found["metadata"]["name"] = f"kueue-{found['metadata']['name']}"
            heard = []
            for webhook in found["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                if any(word in path for word in _HEARD):
                    webhook["clientConfig"]["service"] = self._service(path)
                    if "jobset" in path:
                        webhook["namespaceSelector"] = {"matchLabels": MANAGED}
                    heard.append(webhook)
            yield found | {"webhooks": heard}

    def _service(self, path: str) -> Object:
        return {"namespace": _NAMESPACE, "name": _SERVICE, "path": path, "port": self._webhook}

    def _options(self) -> list[str]:
        config = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": _NAMESPACE,
            "leaderElection": {"leaderElect": False},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self._webhook, "certDir": str(self._certificates)},
            "internalCertManagement": {"enable": True, **_NAMES},
            "clientConnection": {"qps": 400, "burst": 400},
            "integrations": {"frameworks": ["jobset.x-k8s.io/jobset"]},
            "managedJobsNamespaceSelector": {"matchLabels": MANAGED},
            "featureGates": {"VisibilityOnDemand": False},
        }
        file = self._daemons.write("kueue.yaml", config)
        return [f"--kubeconfig={self._daemons.kubeconfig}", f"--config={file}"]

    def _certify(self) -> bool:
        """Mount the secret with Kueue's certificates, once Kueue has made them, as a kubelet does."""
        data = self._admin.get(f"/api/v1/namespaces/{_NAMESPACE}/secrets/{_SECRET}").get("data", {})
        for name in ("tls.key", "tls.crt"):
            if name in data:
                (self._certificates / name).write_bytes(base64.b64decode(data[name]))
        return "tls.crt" in data

    def _takes_queues(self) -> bool:
        kind = {"apiVersion": API.removeprefix("/apis/"), "kind": "ResourceFlavor"}
        try:
            self._admin.create(f"{API}/resourceflavors", {**kind, "metadata": {"name": "any"}})
        except ApiError as error:
            if error.status != 409:  # it was created by a request whose answer was lost
                raise
        return True
