"""The cluster as tests find it: one for all test processes of a run, and a namespace for each test."""

import fcntl
import json
import os
import re
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.kubernetes.agent import Images
from tests.cluster.kubernetes.api import Api, ApiError, Object
from tests.cluster.kubernetes.daemons import write_kubeconfig
from tests.cluster.kubernetes.server import FIRST_SECONDS, GREETING
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
_PAGE = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
_DOCUMENTED = re.search(r"# launcher\.yml\n(.*?)```", _PAGE, re.DOTALL)
assert _DOCUMENTED is not None
*MAY, EVENTS, WORKLOADS = yaml.safe_load(_DOCUMENTED[1])["rules"]
"""The rights that a launcher needs, from the documentation; the last two are optional."""


class SharedCluster:
    """A connection to the cluster of this test run, which lives for as long as there is one.

    Attributes:
        admin: The API, as one who may do anything.
        images: What pods can pull.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        """Connect to the cluster of a folder; start it if nobody else is there."""
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        with (folder / "start").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._connection = _connect(folder) or _start(folder, programs)
        self._answers = self._connection.makefile("r")
        here = (folder / "now").readlink()
        self.kubeconfig = here / "kubeconfig"
        self.authority = here / "ca.crt"
        self.images = Images(here / "images")
        self.url = _url(self.kubeconfig)
        self.admin = Api(self.url, self.authority, here / "admin.crt", here / "admin.key")

    def ask(self, name: str, *arguments: Any) -> Any:
        """Let the cluster do one of `Cluster.requests`."""
        with self._lock:
            self._connection.sendall(json.dumps([name, *arguments]).encode() + b"\n")
            answer = json.loads(self._answers.readline())
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["done"]

    def taint(self, node: str, taint: Object) -> None:
        path = f"/api/v1/nodes/{node}"
        known = self.admin.get(path)["spec"].get("taints", [])
        self.admin.patch(path, {"spec": {"taints": [*known, taint]}})

    def close(self) -> None:
        self._answers.close()
        self._connection.close()


class Namespace:
    """A namespace of one test, and somebody who may launch in it, by a token."""

    def __init__(self, cluster: SharedCluster, *, store: str = "sqlite://") -> None:
        """Create it, with the secret that holds the store's URL, and a user."""
        self.cluster = cluster
        self.admin = cluster.admin
        self.name = f"test-{uuid.uuid4().hex[:8]}"
        self._core, self._rights = f"/api/v1/namespaces/{self.name}", "/apis/rbac.authorization.k8s.io/v1"
        self.admin.create("/api/v1/namespaces", {"metadata": {"name": self.name}})
        secret = {"metadata": {"name": "jestlab-store"}, "stringData": {"url": store}}
        self.admin.create(f"{self._core}/secrets", secret)
        # Pods need the default account, which a controller makes.
        wait_until(lambda: self.get("serviceaccounts")["items"])
        self.admin.create(f"{self._core}/serviceaccounts", {"metadata": {"name": "ada"}})
        self.allow(MAY)
        binding = {
            "metadata": {"name": "ada"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "launcher"},
            "subjects": [{"kind": "ServiceAccount", "name": "ada", "namespace": self.name}],
        }
        self.admin.create(f"{self._rights}/namespaces/{self.name}/rolebindings", binding)
        request = {"spec": {"expirationSeconds": 3600}}
        made = self.admin.create(f"{self._core}/serviceaccounts/ada/token", request)
        self.token: str = made["status"]["token"]

    def allow(self, rules: Sequence[Object]) -> None:
        """Let the user do this, and no more."""
        path = f"{self._rights}/namespaces/{self.name}/roles"
        role = {"metadata": {"name": "launcher"}, "rules": list(rules)}
        try:
            self.admin.create(path, role)
        except ApiError:
            self.admin.call("PUT", f"{path}/launcher", role)

    def kubeconfig(self, path: Path, url: str | None = None) -> Path:
        """Write a kubeconfig of the user, by `url` or else by the API server's own address."""
        authority = self.cluster.authority if url is None else None
        write_kubeconfig(path, url or self.cluster.url, {"token": self.token}, authority=authority)
        return path

    def set_store(self, url: str) -> None:
        self.admin.patch(f"{self._core}/secrets/jestlab-store", {"stringData": {"url": url}})

    def jobsets(self) -> list[Object]:
        found: list[Object] = self.admin.get(JOBSETS.format(self.name))["items"]
        return found

    def jobset(self, name: str) -> Object | None:
        return next((found for found in self.jobsets() if found["metadata"]["name"] == name), None)

    def pods(self, jobset: str | None = None) -> list[Object]:
        """Return its pods, or those of one JobSet by their index."""
        chosen = {"labelSelector": f"jobset.sigs.k8s.io/jobset-name={jobset}"} if jobset else {}
        found: list[Object] = self.admin.get(f"{self._core}/pods", **chosen)["items"]
        return sorted(found, key=lambda pod: str(pod["metadata"]["labels"].get(_INDEX)))

    def create_jobset(self, body: Object, **how: str) -> Object:
        made: Object = self.admin.call("POST", JOBSETS.format(self.name), body, **how)
        return made

    def resume(self, name: str) -> None:
        self.admin.patch(f"{JOBSETS.format(self.name)}/{name}", {"spec": {"suspend": False}})

    def remove_jobset(self, name: str) -> None:
        self.admin.delete(f"{JOBSETS.format(self.name)}/{name}", propagationPolicy="Background")

    def evict(self, pod: str) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        self.admin.create(f"{self._core}/pods/{pod}/eviction", body)

    def create(self, kind: str, body: Object) -> None:
        self.admin.create(f"{self._core}/{kind}", body)

    def get(self, path: str, **query: str) -> Object:
        found: Object = self.admin.get(f"{self._core}/{path}", **query)
        return found

    def empty(self) -> None:
        """Kill all that is left in it, and wait until its nodes are free."""
        self.admin.delete(JOBSETS.format(self.name), propagationPolicy="Background")
        wait_until(lambda: not self.jobsets())

        def is_empty() -> bool:
            self.admin.delete(f"{self._core}/pods", {"gracePeriodSeconds": 0}, gracePeriodSeconds="0")
            return not self.pods()

        wait_until(is_empty)
        self.admin.delete(f"/api/v1/namespaces/{self.name}")


_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("JESTLAB_")}
"""Of this test process, before any test has changed it."""

_INDEX = "batch.kubernetes.io/job-completion-index"


def container_environment() -> dict[str, str]:
    """Return the variables of an image that holds this checkout and its Python."""
    kept = ("HOME", "LANG", "XLA_FLAGS", "TMPDIR")
    own = {name: value for name, value in os.environ.items() if name in kept or name.startswith("JAX_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
    return {**own, "PATH": path}


def _connect(folder: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(folder / "now" / "socket"))
        greeted = connection.recv(len(GREETING), socket.MSG_WAITALL) == GREETING
    except OSError:
        greeted = False
    if not greeted:  # nobody is there, or the cluster is ending
        connection.close()
        return None
    return connection


def _start(folder: Path, programs: Path) -> socket.socket:
    here = folder / uuid.uuid4().hex[:8]
    here.mkdir()
    (folder / "now").unlink(missing_ok=True)
    (folder / "now").symlink_to(here)
    with (here / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.kubernetes.server", str(here), str(programs)],
            cwd=ROOT, env=_ENVIRONMENT, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip

    def connected() -> socket.socket | None:
        if process.poll() is not None:
            said = (here / "server.log").read_text(errors="replace")[-5000:]
            raise AssertionError(f"the cluster has not started: {said}")
        return _connect(folder)

    found = wait_until(connected, FIRST_SECONDS)
    assert found is not None
    return found


def _url(kubeconfig: Path) -> str:
    [cluster] = yaml.safe_load(kubeconfig.read_text())["clusters"]
    return str(cluster["cluster"]["server"])
