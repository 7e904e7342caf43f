"""The harness of KubernetesExecutor: a real control plane, whose pods files control.

Requests go through `UnreliableApi`, where a test can let them fail. The launcher is a user with no more
rights than launching needs.
"""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from executor_harnesses import SAVES, STORE, Remote, Told, job
from tests.cluster.kubernetes.api import Api
from tests.cluster.kubernetes.shared import Namespace, SharedCluster
from tests.cluster.kubernetes.unreliable import UnreliableApi
from tests.waiting import wait_until

from jestlab.platform.lab.settings import Kubernetes as KubernetesSettings
from jestlab.platform.launch.executors.base import Job, LaunchedJob
from jestlab.platform.launch.executors.kubernetes import KubernetesExecutor
from jestlab.platform.spec.resources import Resources


class KubernetesHarness(Remote[UnreliableApi]):
    names_are_unique = True

    def __init__(self, cluster: SharedCluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.namespace = Namespace(cluster, store=STORE)
        self.image = f"europe-docker.pkg.dev/lab/images/jestlab@sha256:{uuid.uuid4().hex * 2}"
        self._told = Told(folder / "pods", "$NAME.${JAX_PROCESS_ID:-0}", SAVES)
        self._folder = self._told.folder
        cluster.images.push(self.image, None)  # until `push_image`
        user = Api(cluster.url, cluster.authority, token=self.namespace.token)
        self.api = UnreliableApi(user)
        self.kubeconfig = self.namespace.kubeconfig(folder / "kubeconfig", self.api.url)
        location = "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
        monkeypatch.setattr(location, str(self.kubeconfig))

    def job(self, name: str, **changes: Any) -> Job:
        return job(name, environment={"JESTLAB_STORE": STORE, "TZ": "UTC", "NAME": name}, **changes)

    def settings(self, **changes: Any) -> KubernetesSettings:
        said = {"namespace": self.namespace.name, "store_secret": "jestlab-store/url", "root": "/lab"}
        return KubernetesSettings(**(said | changes))

    def executor(
        self,
        settings: KubernetesSettings | None = None,
        answer_seconds: float = 60.0,
        **resources: Any,
    ) -> KubernetesExecutor:
        asked = Resources(image=self.image, **(resources or {"tpu": "v5e-2x2"}))
        made = KubernetesExecutor(settings or self.settings(), asked)
        made.answer_seconds = answer_seconds
        return made

    def count(self) -> int:
        return sum("conditions" not in found.get("status", {}) for found in self.namespace.jobsets())

    def push_image(self) -> None:
        path = f"{self._told.program.parent}:/usr/bin:/bin"
        self.cluster.images.push(self.image, {"PATH": path, "HARNESS": str(self._folder)})

    def run(self, started: LaunchedJob) -> None:
        """Let the image be pulled, and wait until all pods of a job run."""
        self.push_image()
        wait_until(lambda: self._all_run(name_of(started)))

    def wait_for_image(self, started: LaunchedJob) -> None:
        """Let the image be one that does not exist."""
        self.cluster.images.forget(self.image)
        wait_until(lambda: "ImagePullBackOff" in repr(self.namespace.pods(name_of(started))))

    def end(self, started: LaunchedJob, code: int, index: int = 0) -> None:
        """Let the process of a host end with a code, and the others with success."""
        name = name_of(started)
        if pods := self.namespace.pods(name):
            for number in range(len(pods)) if code == 0 else [index]:
                self._told.end(f"{name}.{number}", code)
            # Where one fails, the others are stopped, and the job is over when they have ended.
            self.let_end(lambda: self._is_over(name))

    def preempt(self, started: LaunchedJob, index: int = 0) -> None:
        """Shut the node of a host down, as its machine is taken away."""
        self.cluster.ask("shut_down_node", self.namespace.pods(name_of(started))[index]["spec"]["nodeName"])
        self.let_end(lambda: self._is_over(name_of(started)))

    def vanish(self, started: LaunchedJob) -> None:
        name = name_of(started)
        wait_until(lambda: self.namespace.pods(name))  # else they may still be made when it has gone
        self.namespace.remove_jobset(name)
        self.let_end(lambda: self.namespace.jobset(name) is None and not self.namespace.pods(name))

    def finish_stop(self) -> None:
        def have_stopped() -> bool:
            things = [*self.namespace.jobsets(), *self.namespace.pods()]
            return not any(thing["metadata"].get("deletionTimestamp") for thing in things)

        self.let_end(have_stopped)

    def prints(self, started: LaunchedJob, lines: list[str]) -> None:
        self._told.print(f"{name_of(started)}.0", lines)

    def close(self) -> None:
        super().close()
        self.namespace.empty()

    def _all_run(self, name: str) -> bool:
        pods = self.namespace.pods(name)
        found = self.namespace.jobset(name)
        wanted = found["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] if found else 0
        return len(pods) == wanted and all(pod["status"].get("phase") == "Running" for pod in pods)

    def _is_over(self, name: str) -> bool:
        found = self.namespace.jobset(name)
        conditions = (found or {}).get("status", {}).get("conditions", [])
        return any(each["type"] in ("Completed", "Failed") for each in conditions if each["status"] == "True")

    def let_end(self, condition: Callable[[], Any]) -> None:
        """Let those end that were asked to, and wait until something holds."""
        (self._folder / "stopping").touch()
        wait_until(condition)
        (self._folder / "stopping").unlink()


def name_of(started: LaunchedJob) -> str:
    return started.handle.rpartition("/")[2]
