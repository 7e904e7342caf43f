"""Pods without a cluster: jobs that an executor has sent to an API run as real workers on this machine.

The API is one of the fakes; what happens to a worker is reported to it as a cluster would: it began, it ended
with a code, its machines were taken away, somebody deleted it.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import labs_support as labs
from executor_harnesses import Harness
from workers_support import Worker

from jestlab.platform.launch.executor import Executor, Job, JobStatus
from jestlab.platform.spec.resources import ExecutorName


class Cluster:
    """An executor whose jobs run.

    Attributes:
        harms: Run → what is done to its first worker: in mid-run "preempt", "vanish" or "kill"; or "hold",
            it does not begin before `release` is set.
        held: Told the handle of a job that does not begin.
        launched: Names of the jobs, in order.
    """

    def __init__(self, harness: Harness, root: Path, ring: Callable[[], None] = lambda: None) -> None:
        """Run what `harness`'s executor launches.

        Args:
            harness: With the API.
            root: Of the lab.
            ring: Called when a worker has ended.
        """
        self._harness = harness
        self._root = root
        self._ring = ring
        self._executor: Executor = harness.executor()
        self._workers: dict[str, Worker] = {}
        self._lock = threading.Lock()  # a fake API is not told two things at once
        self.harms: dict[str, str] = {}
        self.release = threading.Event()
        self.held: Callable[[str], None] = lambda handle: None
        self.launched: list[str] = []
        self.name = self._executor.name
        self.place: ExecutorName = "kubernetes" if self.name == "kubernetes" else "vertex"
        self.chips = self._executor.chips
        self.parallel = self._executor.parallel
        self.grace_seconds = 5.0

    def has_room(self) -> bool:
        return self._executor.has_room()

    def launch(self, job: Job) -> str:
        with self._lock:
            handle = self._executor.launch(job)
        if handle not in self._workers:
            self.launched.append(job.name)
            job.log.parent.mkdir(parents=True, exist_ok=True)
            environment = {**labs.variables(self._root), **job.environment, "JESTLAB_COPY_LOG": ""}
            self._workers[handle] = Worker(*job.arguments, environment=environment, log=job.log)
            harm = self.harms.pop(job.labels["run"], None)
            if harm == "hold":
                self._workers[handle].send_signal(signal.SIGSTOP)
                with self._lock:
                    self.held(handle)
            threading.Thread(target=self._look_after, args=(handle, job, harm), daemon=True).start()
        return handle

    def statuses(self, handles: Sequence[str]) -> dict[str, JobStatus]:
        with self._lock:
            return self._executor.statuses(handles)

    def stop(self, handle: str, *, now: bool) -> None:
        with self._lock:
            self._executor.stop(handle, now=now)
        worker = self._workers[handle]
        if worker.poll() is None:
            worker.kill() if now else worker.terminate()

    @property
    def running(self) -> list[str]:
        return [handle for handle, worker in self._workers.items() if worker.poll() is None]

    def logs(self, handle: str) -> Iterator[bytes]:
        return self._executor.logs(handle)

    def close(self) -> None:
        pass

    def render(self, job: Job) -> dict[str, Any] | None:
        return self._executor.render(job)

    def _look_after(self, handle: str, job: Job, harm: str | None) -> None:
        worker = self._workers[handle]
        if harm == "hold":
            self.release.wait()
            worker.send_signal(signal.SIGCONT)
        with self._lock:
            self._harness.run(handle)
        if harm in ("preempt", "vanish", "kill"):
            state = job.log.parent / "state.json"
            while not state.exists() and worker.poll() is None:
                time.sleep(0.02)
            worker.kill()
        code = worker.wait()
        with self._lock:
            if harm == "preempt":
                self._harness.preempt(handle)
            elif harm == "vanish":
                self._harness.vanish(handle)
            else:
                self._harness.finish_stop()
                self._harness.end(handle, code if code >= 0 else 128 - code)
        self._ring()
