"""Pods of a real cluster that run real workers of this checkout, and what befalls them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import labs_support as labs
from kubernetes_harness import KubernetesHarness, name_of
from tests.cluster.kubernetes.agent import processes_of
from tests.cluster.kubernetes.shared import container_environment, until

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executor import Executor, ExecutorError, Job, JobState, JobStatus, LaunchedJob
from jestlab.platform.spec.resources import ExecutorName


class Pods(Executor):
    """The executor of Kubernetes, whose pods run workers.

    Attributes:
        harms: Run → what is done to its first pod: in mid-run its node is taken away ("preempt"), somebody
            deletes its JobSet ("vanish"), or its process is killed ("kill"); or its image is not to be had
            before `release` is set ("hold").
        held: Told which job does not begin.
        launched: Names of the jobs, in order.
    """

    name = "kubernetes"
    place: ExecutorName = "kubernetes"
    grace_seconds = 5.0

    def __init__(
        self, harness: KubernetesHarness, root: Path, ring: Callable[[], None] = lambda: None
    ) -> None:
        """Run what is launched in the harness's namespace.

        Args:
            harness: With the cluster.
            root: Of the lab; pods find it at the same path.
            ring: Not called: a cluster tells nobody that a pod has ended.
        """
        self._harness = harness
        self._root = root
        settings = harness.settings(root=str(root))
        harness.namespace.set_store(Lab.find(root).store_url)
        self._image = {**container_environment(), **labs.variables(root), "JESTLAB_COPY_LOG": ""}
        harness.cluster.images.push(harness.image, self._image)
        self._executor = harness.executor(settings=settings)
        self._held = harness.executor(settings=settings, image=f"{harness.image[:-4]}0000")
        self._jobs: list[LaunchedJob] = []
        self.harms: dict[str, str] = {}
        self.release = threading.Event()
        self.held: Callable[[LaunchedJob], None] = lambda launched: None
        self.launched: list[str] = []
        self.chips = self._executor.chips

    def launch(self, job: Job) -> LaunchedJob:
        harm = self.harms.pop(job.labels["run"], None)
        launched = (self._held if harm == "hold" else self._executor).launch(job)
        if launched not in self._jobs:
            self.launched.append(job.name)
            self._jobs.append(launched)
        if harm is not None:
            threading.Thread(target=self._harm, args=(launched, job, harm), daemon=True).start()
        return launched

    def launch_all(self, jobs: Sequence[Job]) -> list[LaunchedJob | ExecutorError]:
        return [self.launch(job) for job in jobs]

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        return self._executor.statuses(jobs)

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        self._executor.stop(job, now=now)

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        return self._executor.logs(job)

    def render(self, job: Job) -> dict[str, Any] | None:
        return self._executor.render(job)

    @property
    def running(self) -> list[LaunchedJob]:
        """Those whose JobSets are not over."""
        return [job for job, status in self.statuses(self._jobs).items() if status.state == JobState.RUNNING]

    def kill(self) -> None:
        """Kill all that is left."""
        for job in self._jobs:
            self._executor.stop(job, now=True)

    def _harm(self, launched: LaunchedJob, job: Job, harm: str) -> None:
        name = name_of(launched)
        if harm == "hold":
            self.held(launched)
            self.release.wait()
            self._harness.cluster.images.push(f"{self._harness.image[:-4]}0000", self._image)
            return
        saved = job.log.parent / "state.json"
        [pod] = until(lambda: self._harness.namespace.pods(name), 120.0)
        until(saved.exists, 120.0)
        self._signal(pod, signal.SIGSTOP)  # before it has come to its end
        if harm == "preempt":
            [pod] = self._harness.namespace.pods(name)  # which has a node by now
            self._harness.cluster.ask("shut_down_node", pod["spec"]["nodeName"], 0.0)
        elif harm == "vanish":
            self._harness.namespace.remove_jobset(name)
            self._harness.namespace.kill_pods(name)
        else:
            self._signal(pod, signal.SIGKILL)

    @staticmethod
    def _signal(pod: dict[str, Any], number: signal.Signals) -> None:
        for pid in processes_of(pod["metadata"]["uid"]):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
