"""A real Kueue lets jobs wait, begin, and be put back: quota is used up, released, and withdrawn."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import labs_support as labs
import pytest
from kubernetes_harness import KubernetesHarness
from kueue_support import QUEUE, URGENT, Queues
from tests.cluster.kubernetes.shared import container_environment
from tests.waiting import wait_until

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.controller import launch
from jestlab.platform.launch.executor import JobState
from jestlab.platform.launch.executors.kubernetes import Kubernetes
from jestlab.platform.launch.options import Options
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.load import load
from jestlab.platform.spec.resources import parse_slice
from jestlab.platform.store.store import Store

ONE, TWO = "jestlab-0a1b2c3d-1", "jestlab-0b1b2c3d-1"


@pytest.fixture
def queues(kubernetes_harness: KubernetesHarness) -> Iterator[Queues]:
    """A queue with quota for one job."""
    made = Queues(kubernetes_harness, chips=4)
    yield made
    made.close()


def test_a_job_waits_for_quota_until_the_one_before_it_has_ended(queues):
    executor, harness = queues.executor(), queues.harness
    one = executor.launch(harness.job(ONE))
    harness.run(one)
    two = executor.launch(harness.job(TWO))
    assert queues.waits(executor, two, "insufficient") == [
        f"waits in the queue {QUEUE}: insufficient unused quota for google.com/tpu in flavor any, "
        "4 more needed",
        "",
        "the end of other runs in the queue, or more quota of its ClusterQueue",
    ]
    assert executor.statuses([two])[two].state == JobState.QUEUED
    assert not harness.namespace.pods(TWO)
    harness.end(one, 0)
    wait_until(lambda: queues.runs(TWO))
    found = executor.statuses([one, two])
    assert (found[one].state, found[two].state) == (JobState.SUCCEEDED, JobState.RUNNING)


def test_a_drained_job_may_save_and_is_reported_as_put_back(queues):
    """Its JobSet keeps its place: it begins again when the queue does."""
    executor, harness = queues.executor(), queues.harness
    one = executor.launch(harness.job(ONE))
    harness.run(one)
    queues.stop("HoldAndDrain")

    def status():
        return executor.statuses([one])[one]

    wait_until(lambda: status().reason)
    assert (status().state, status().reason) == (
        JobState.RUNNING,
        "stopping: it was put back into the queue",
    )
    harness.let_end(lambda: not harness.namespace.pods(ONE))
    [reason, place, unblock] = queues.waits(executor, one, "ClusterQueue")
    assert reason == f"waits in the queue {QUEUE}: ClusterQueue {harness.namespace.name} is inactive"
    assert (place, unblock) == ("", "whoever runs the queue: see `kubectl describe localqueues`")
    assert status().state == JobState.QUEUED
    assert status().requeued
    queues.stop("None")
    wait_until(lambda: queues.runs(ONE))
    assert (status().state, status().requeued) == (JobState.RUNNING, False)


def test_reports_that_a_job_can_never_begin(queues):
    missing, large = queues.executor("missing"), queues.executor(machines=parse_slice("v5e-4x4"))
    one, two = missing.launch(queues.harness.job(ONE)), large.launch(queues.harness.job(TWO))
    assert queues.waits(missing, one, "exist") == [
        "waits in the queue missing: LocalQueue missing doesn't exist",
        "",
        "the LocalQueue that `kubernetes.queue` names: see `kubectl get localqueues`",
    ]
    [reason, _, unblock] = queues.waits(large, two, "quota for")
    assert "> maximum capacity (4)" in reason
    assert unblock == "lower `resources` of each run, or a queue with more quota"


@contextmanager
def ending(harness: KubernetesHarness, hurry: Path) -> Iterator[None]:
    """Let a launch come to its end, whatever happens to the test."""
    try:
        yield
    finally:
        hurry.touch()
        if harness.namespace.jobset(URGENT):
            harness.namespace.remove_jobset(URGENT)
            harness.namespace.kill_pods(URGENT)


def test_a_run_that_is_evicted_twice_goes_on_from_its_checkpoints(queues, root, tmp_path):
    """Preempted by another user's urgent job, and deactivated by an administrator."""
    harness = queues.harness
    hurry = tmp_path / "hurry"
    config = {"steps": 400, "pause": 0.05, "hurry": str(hurry)}
    study = plan(load(str(labs.write_study(tmp_path, runs={"long": config}))))
    lab = Lab.find(root)
    store = Store.open(lab.store_url)
    store.record(study)
    image = f"{harness.image[:-4]}0000"
    harness.cluster.images.push(image, {**container_environment(), **labs.variables(root)})
    harness.push_image()  # of other users' jobs
    harness.namespace.set_store(lab.store_url)
    settings = harness.settings(root=str(root), queue=QUEUE)
    executor = Kubernetes(settings, parse_slice("v5e-2x2"), image)

    def jobset(number: int) -> str:
        [run] = study.runs
        return f"jestlab-{store.id()[:6]}-{run.fingerprint[:8]}-{number}"

    def rows(sql: str) -> list[tuple[object, ...]]:
        return sqlite3.connect(root / "results.db").execute(sql).fetchall()

    def has_begun(number: int) -> bool:
        assert not launching.done(), launching.result()
        return len(labs.starts(root, "long")) == number and bool(rows("SELECT 1 FROM v_metrics LIMIT 1"))

    with ThreadPoolExecutor(1) as pool, ending(harness, hurry):
        how = Options(executor="kubernetes", retries=0)
        launching = pool.submit(launch, lab, store, "toy", study.runs, lambda _: executor, options=how)
        wait_until(lambda: has_begun(1))
        urgent = queues.launch_urgent()
        wait_until(lambda: not queues.runs(jobset(1)))  # its pod may save while the quota is given on
        wait_until(
            lambda: rows("SELECT 1 FROM run WHERE state = 'PENDING' AND reason LIKE '%insufficient unused%'")
        )
        harness.end(urgent, 0)
        wait_until(lambda: has_begun(2))
        queues.deactivate(jobset(2))
        wait_until(lambda: has_begun(3))
        hurry.touch()
        assert launching.result(timeout=60).exit_code == 0
    assert rows("SELECT number, state FROM v_attempts ORDER BY number") == [
        (1, "PREEMPTED"),
        (2, "PREEMPTED"),
        (3, "COMPLETED"),
    ]
    first, *others = [step for _, step in labs.starts(root, "long")]
    assert first == 0
    assert all(step > 0 for step in others)
    left = {found["metadata"]["name"] for found in harness.namespace.jobsets()}
    assert left - {URGENT} == {jobset(3)}  # those that were put back would have started again
    [(points, steps)] = rows("SELECT count(*), count(DISTINCT step) FROM v_metrics WHERE name = 'loss'")
    assert points == steps == config["steps"]
    store.close()
