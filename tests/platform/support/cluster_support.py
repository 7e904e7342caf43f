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

from jestlab.platform.launch.executor import (
    Executor,
    ExecutorError,
    Job,
    JobStatus,
    LaunchedJob,
    launched_or_error,
)
from jestlab.platform.spec.resources import ExecutorName


class Cluster:
    """An executor whose jobs run.

    Attributes:
        harms: Run → what is done to its first worker: in mid-run "preempt", "vanish" or "kill"; or "hold",
            it does not begin before `release` is set.
        held: Told which job does not begin.
        launched: Names of the jobs, in order.
    """

    here = False

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
        self._workers: dict[LaunchedJob, Worker] = {}
        self._lock = threading.Lock()  # a fake API is not told two things at once
        self.harms: dict[str, str] = {}
        self.release = threading.Event()
        self.held: Callable[[LaunchedJob], None] = lambda launched: None
        self.launched: list[str] = []
        self.name = self._executor.name
        self.place: ExecutorName = "kubernetes" if self.name == "kubernetes" else "vertex"
        self.chips = self._executor.chips
        self.parallel = self._executor.parallel
        self.grace_seconds = 5.0

    def room(self) -> int | None:
        return None

    def has_room(self) -> bool:
        return self._executor.has_room()

    def launch(self, job: Job) -> LaunchedJob:
        with self._lock:
            launched = self._executor.launch(job)
        if launched not in self._workers:
            self.launched.append(job.name)
            job.log.parent.mkdir(parents=True, exist_ok=True)
            environment = {**labs.variables(self._root), **job.environment, "JESTLAB_COPY_LOG": ""}
            self._workers[launched] = Worker(*job.arguments, environment=environment, log=job.log)
            harm = self.harms.pop(job.labels["run"], None)
            if harm == "hold":
                self._workers[launched].send_signal(signal.SIGSTOP)
                with self._lock:
                    self.held(launched)
            threading.Thread(target=self._look_after, args=(launched, job, harm), daemon=True).start()
        return launched

    def launch_all(self, jobs: Sequence[Job]) -> list[LaunchedJob | ExecutorError]:
        return [launched_or_error(self.launch, job) for job in jobs]

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        with self._lock:
            return self._executor.statuses(jobs)

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        with self._lock:
            self._executor.stop(job, now=now)
        worker = self._workers[job]
        if worker.poll() is None:
            worker.kill() if now else worker.terminate()

    @property
    def running(self) -> list[LaunchedJob]:
        return [job for job, worker in self._workers.items() if worker.poll() is None]

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        return self._executor.logs(job)

    def halt(self) -> None:
        self._executor.halt()

    def settle(self, seconds: float) -> None:
        self._executor.settle(seconds)

    def close(self) -> None:
        pass

    def render(self, job: Job) -> dict[str, Any] | None:
        return self._executor.render(job)

    def _look_after(self, launched: LaunchedJob, job: Job, harm: str | None) -> None:
        worker = self._workers[launched]
        if harm == "hold":
            self.release.wait()
            worker.send_signal(signal.SIGCONT)
        with self._lock:
            self._harness.run(launched)
        if harm in ("preempt", "vanish", "kill"):
            state = job.log.parent / "state.json"
            while not state.exists() and worker.poll() is None:
                time.sleep(0.02)
            worker.kill()
        code = worker.wait()
        with self._lock:
            if harm == "preempt":
                self._harness.preempt(launched)
            elif harm == "vanish":
                self._harness.vanish(launched)
            else:
                self._harness.finish_stop()
                self._harness.end(launched, code if code >= 0 else 128 - code)
        self._ring()
