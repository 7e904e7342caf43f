"""Nodes that are this machine: what the scheduler binds to them runs as processes here.

It stands for the kubelets of a cluster, and tells the API server what a kubelet tells: nodes and their signs
of life, pods that wait, run and end, and their logs. Differences from a kubelet that tests have to know:

- An image is a file with the variables that its containers get; see `Images`. A container sees this
  machine's files at their own paths.
- A pod's DNS name does not resolve here. A variable whose value is `HOST.SERVICE:PORT`, where HOST is a pod
  of the same JobSet, gets 127.0.0.1 and a port that was free, the same for all pods of one JobSet.
- CPUs and memory are not limited.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import urllib3
from tests.cluster.kubernetes.api import STRATEGIC, Api, ApiError, Object
from tests.cluster.kubernetes.daemons import ending_with_us
from tests.cluster.kubernetes.node_logs import LogServer
from tests.cluster.kubernetes.node_pools import Node
from tests.cluster.ports import free_port

LEASE_SECONDS = 2.5
"""Between two signs of life of a node."""

_POD = "JESTLAB_TEST_POD"
_JOBSET = "jobset.sigs.k8s.io/jobset-uid"
_SHUT_DOWN = "Pod was terminated in response to imminent node shutdown."
_AWAY = (ApiError, urllib3.exceptions.HTTPError)


class Images:
    """What can be pulled: each image is a file with the variables of its containers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def find(self, image: str) -> dict[str, str] | None:
        """Return the variables of an image's containers; None while it is being pulled.

        Raises:
            FileNotFoundError: It does not exist.
        """
        found: dict[str, str] | None = json.loads(self._path(image).read_text())
        return found

    def push(self, image: str, environment: dict[str, str] | None) -> None:
        """Let an image be pulled; without variables, that takes until it is pushed again."""
        path = self._path(image)
        path.with_suffix(".new").write_text(json.dumps(environment))
        path.with_suffix(".new").rename(path)

    def forget(self, image: str) -> None:
        """Let an image be one that does not exist."""
        self._path(image).unlink(missing_ok=True)

    def _path(self, image: str) -> Path:
        return self._folder / f"{hashlib.sha256(image.encode()).hexdigest()[:32]}.json"


class Agent:
    def __init__(self, api: Api, folder: Path, logs: LogServer, images: Images) -> None:
        self.api = api
        self.folder = folder
        self.images = images
        self.nodes: dict[str, Node] = {}
        self._logs = logs
        self._pods: dict[str, _Pod] = {}
        self._ports: dict[str, int] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def start(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self.add(node)
        for target in (self._beat, self._follow):
            threading.Thread(target=target, daemon=True).start()

    def stop(self) -> None:
        self._ended.set()
        for pod in list(self._pods.values()):
            pod.kill()

    # ---- what happens to nodes

    def add(self, node: Node) -> None:
        """Register a node; it is ready at once."""
        self.nodes[node.name] = node
        with suppress(ApiError):  # it is there
            self.api.create("/api/v1/nodes", node.manifest())
        lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        with suppress(ApiError):
            self.api.create(lease, node.lease(_now()))
        self._say_ready(node)

    def kill(self, name: str) -> None:
        """Let a node lose its power: its containers are gone, and it says nothing any more."""
        del self.nodes[name]
        for pod in self._pods_on(name):
            pod.lose()

    def remove(self, name: str) -> None:
        """Delete a node's object, as a cloud does with a machine that is gone."""
        self.nodes.pop(name, None)
        with suppress(ApiError):
            self.api.delete(f"/api/v1/nodes/{name}")
        for pod in self._pods_on(name):
            pod.lose()

    def shut_down(self, name: str, grace: float = 15.0) -> None:
        """Shut a node down as its machine is taken away: its pods get SIGTERM, and SIGKILL when the grace is
        over, and are told as disrupted."""
        for pod in self._pods_on(name):
            pod.shut_down(grace)

    def _pods_on(self, name: str) -> list[_Pod]:
        with self._lock:
            return [pod for pod in self._pods.values() if pod.node == name]

    def _beat(self) -> None:
        while not self._ended.wait(LEASE_SECONDS):
            for node in list(self.nodes.values()):
                path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.name}"
                with suppress(*_AWAY):
                    self.api.patch(path, {"spec": {"renewTime": _now()}})
                if time.monotonic() - node.said > 60.0:
                    with suppress(*_AWAY):
                        self._say_ready(node)

    def _say_ready(self, node: Node) -> None:
        self.api.patch(f"/api/v1/nodes/{node.name}/status", node.status(_now()), STRATEGIC)
        node.said = time.monotonic()

    # ---- pods

    def _follow(self) -> None:
        """Hear of all pods that are bound, for ever."""
        bound = "spec.nodeName!="
        while not self._ended.is_set():
            try:
                listed = self.api.get("/api/v1/pods", fieldSelector=bound)
                there = {pod["metadata"]["uid"] for pod in listed["items"]}
                for pod in listed["items"]:
                    self._hear("ADDED", pod)
                for uid in [uid for uid in list(self._pods) if uid not in there]:
                    self._forget(uid)
                version = listed["metadata"]["resourceVersion"]
                for kind, pod in self.api.watch("/api/v1/pods", version, bound):
                    self._hear(kind, pod)
            except (*_AWAY, ValueError):
                self._ended.wait(0.1)

    def _hear(self, kind: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            self._forget(uid)
            return
        with self._lock:
            known = self._pods.get(uid)
            if known is None:
                if pod["spec"].get("nodeName") not in self.nodes:
                    return
                known = self._pods[uid] = _Pod(self, pod)
                if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                    known.start()
        if pod["metadata"].get("deletionTimestamp"):
            known.delete(pod["metadata"].get("deletionGracePeriodSeconds") or 0)

    def _forget(self, uid: str) -> None:
        with self._lock:
            gone = self._pods.pop(uid, None)
        if gone is not None:
            gone.kill()

    def log_of(self, namespace: str, name: str) -> Path | None:
        """Return the file of what a pod's container has printed."""
        with self._lock:
            found = [pod for pod in self._pods.values() if (pod.namespace, pod.name) == (namespace, name)]
        return found[-1].log if found and found[-1].node in self.nodes else None

    def port_of(self, jobset: str) -> int:
        """Return the port on which the hosts of a JobSet find each other."""
        with self._lock:
            if jobset not in self._ports:
                self._ports[jobset] = free_port()
            return self._ports[jobset]


class _Pod:
    """One pod, and the process of its container."""

    def __init__(self, agent: Agent, pod: Object) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        self.namespace, self.name, self.uid = meta["namespace"], meta["name"], meta["uid"]
        self.node = spec["nodeName"]
        self.log = agent.folder / f"{self.uid}.log"
        self._agent = agent
        self._meta, self._spec = meta, spec
        self._process: subprocess.Popen[bytes] | None = None
        self._deadline: float | None = None  # when it is killed
        self._gone = threading.Event()  # nothing is told of it any more
        self._wake = threading.Event()
        self._disrupted = False
        self._deleted = False
        self._over = False  # nothing of it runs any more
        self._lock = threading.Lock()  # of the two before
        self._path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        self._thread = threading.Thread(target=self._live, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def delete(self, grace: float) -> None:
        """Stop it, as the API asks; a shorter grace may be asked for later."""
        with self._lock:
            was, self._deleted = self._deleted, True
            is_over = self._over or not self._thread.ident
        deadline = time.monotonic() + grace
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)
        if not was:
            self._signal(signal.SIGTERM)
            if is_over:
                threading.Thread(target=self._remove, daemon=True).start()
        self._wake.set()

    def shut_down(self, grace: float) -> None:
        self._disrupted = True
        self._deadline = time.monotonic() + min(self._spec.get("terminationGracePeriodSeconds", 30), grace)
        self._signal(signal.SIGTERM if grace else signal.SIGKILL)
        self._wake.set()

    def lose(self) -> None:
        self._gone.set()
        self.kill()

    def kill(self) -> None:
        self._gone.set()
        self._deadline = 0.0
        self._wake.set()
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if (process := self._process) is not None and process.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    # ---- in its own thread, which its process ends with

    def _live(self) -> None:
        try:
            environment = self._prepared()
            if environment is not None:
                self._run(environment)
            elif self._disrupted or self._deleted:
                self._tell(self._ended(137, "ContainerStatusUnknown"))
        except Exception as error:
            self._tell(self._ended(128, "StartError", str(error)))
        finally:
            with self._lock:
                self._over, deleted = True, self._deleted
            if deleted:
                self._remove()

    def _prepared(self) -> dict[str, str] | None:
        """Return the container's environment once all it needs is there; None if it is stopped before."""
        [container] = self._spec["containers"]
        said = ""
        tried = time.monotonic()
        while not self._stopping():
            reason, message = "ContainerCreating", ""
            try:
                image = self._agent.images.find(container["image"])
                if image is not None:
                    return {**image, **self._variables(container)}
            except FileNotFoundError:
                late = time.monotonic() - tried > 1.0
                reason = "ImagePullBackOff" if late else "ErrImagePull"
                message = f'Back-off pulling image "{container["image"]}"'
            except _Missing as missing:
                reason, message = "CreateContainerConfigError", str(missing)
            if said != reason:
                said = reason
                self._tell(self._waiting(reason, message))
            self._wake.wait(0.05)
        return None

    def _variables(self, container: Object) -> dict[str, str]:
        found = {}
        for variable in container.get("env", ()):
            source = variable.get("valueFrom", {})
            if "secretKeyRef" in source:
                value = self._secret(source["secretKeyRef"])
            elif "fieldRef" in source:
                value = self._field(source["fieldRef"]["fieldPath"])
            else:
                value = variable.get("value", "")
            found[variable["name"]] = self._resolved(value)
        return found

    def _secret(self, reference: Object) -> str:
        name, key = reference["name"], reference["key"]
        try:
            secret = self._agent.api.get(f"/api/v1/namespaces/{self.namespace}/secrets/{name}")
        except ApiError as error:
            if error.status != 404:
                raise
            raise _Missing(f'secret "{name}" not found') from None
        if key not in secret.get("data", {}):
            raise _Missing(f"couldn't find key {key} in Secret {self.namespace}/{name}")
        return base64.b64decode(secret["data"][key]).decode()

    def _field(self, path: str) -> str:
        if match := re.fullmatch(r"metadata\.(annotations|labels)\['([^']+)'\]", path):
            return str(self._meta.get(match[1], {}).get(match[2], ""))
        return str(self._meta[path.removeprefix("metadata.")])

    def _resolved(self, value: str) -> str:
        jobset = self._meta.get("labels", {}).get(_JOBSET)
        service = self._spec.get("subdomain")
        if jobset and service and re.fullmatch(rf"[a-z0-9-]+\.{re.escape(service)}:\d+", value):
            return f"127.0.0.1:{self._agent.port_of(jobset)}"
        return value

    def _run(self, environment: dict[str, str]) -> None:
        [container] = self._spec["containers"]
        words = [*container["command"], *container.get("args", ())]
        environment |= {_POD: self.uid, "HOSTNAME": self._spec.get("hostname", self.name)}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ending_with_us(words), env=environment, cwd=container.get("workingDir", "/"),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        started = _now()
        self._tell(self._running(started))
        if self._stopping():  # it was asked to while it began
            self._signal(signal.SIGTERM)
        while (code := self._process.poll()) is None:
            if self._deadline is not None and time.monotonic() > self._deadline:
                self._signal(signal.SIGKILL)
            self._wake.wait(0.02)
            self._wake.clear()
        for pid in processes_of(self.uid):  # a container's processes end with its first one
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        code = 128 - code if code < 0 else code
        self._tell(self._ended(code, "Completed" if code == 0 else "Error", started=started))

    def _stopping(self) -> bool:
        return self._gone.is_set() or self._deleted or self._disrupted

    # ---- what is told

    def _tell(self, status: Object) -> None:
        body = {"metadata": {"uid": self.uid}, "status": status}
        self._ask(lambda api: api.patch(f"{self._path}/status", body, STRATEGIC))

    def _remove(self) -> None:
        """Delete it for good: nothing of it runs any more."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        self._ask(lambda api: api.delete(self._path, body))

    def _ask(self, request: Callable[[Api], object]) -> None:
        """Send a request; while nobody answers, again and again, as a kubelet does."""
        while not self._gone.is_set():
            try:
                request(self._agent.api)
                return
            except ApiError as error:
                if error.status in (404, 409, 422):  # it has gone, or is another one
                    return
            except urllib3.exceptions.HTTPError:
                pass
            self._gone.wait(0.2)

    def _status(self, phase: str, state: Object, *, ready: bool = False, **others: Any) -> Object:
        [container] = self._spec["containers"]
        is_ready = "True" if ready else "False"
        conditions = [
            {"type": "PodReadyToStartContainers", "status": "True"},
            {"type": "Initialized", "status": "True"},
            {"type": "Ready", "status": is_ready},
            {"type": "ContainersReady", "status": is_ready},
        ]
        if self._disrupted:
            why = {"reason": "TerminationByKubelet", "message": _SHUT_DOWN, "lastTransitionTime": _now()}
            conditions.append({"type": "DisruptionTarget", "status": "True", **why})
        told = {
            "name": container["name"],
            "image": container["image"],
            "imageID": container["image"],
            "ready": ready,
            "started": ready,
            "restartCount": 0,
            "state": {name: state.get(name) for name in ("waiting", "running", "terminated")},
        }
        return {"phase": phase, "conditions": conditions, "containerStatuses": [told], **others}

    def _waiting(self, reason: str, message: str) -> Object:
        why = {"reason": reason} | ({"message": message} if message else {})
        return self._status("Pending", {"waiting": why}, hostIP="127.0.0.1", startTime=_now())

    def _running(self, started: str) -> Object:
        address = {"podIP": "192.0.2.1", "podIPs": [{"ip": "192.0.2.1"}], "hostIP": "127.0.0.1"}
        return self._status("Running", {"running": {"startedAt": started}}, ready=True) | address

    def _ended(self, code: int, reason: str, message: str = "", started: str | None = None) -> Object:
        state = {"exitCode": code, "reason": reason, "finishedAt": _now(), "startedAt": started or _now()}
        if message:
            state["message"] = message
        why = {"reason": "Terminated", "message": _SHUT_DOWN} if self._disrupted else {}
        # A pod that is taken away has failed, whatever code its container ended with.
        failed = code != 0 or self._disrupted
        return self._status("Failed" if failed else "Succeeded", {"terminated": state}) | why


class _Missing(Exception):
    """What a container needs is not there."""


def processes_of(uid: str) -> Iterator[int]:
    """Yield the live processes of a pod, found by their environment."""
    marker = f"{_POD}={uid}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it ended just now
                if marker in (entry / "environ").read_bytes():
                    yield int(entry.name)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
