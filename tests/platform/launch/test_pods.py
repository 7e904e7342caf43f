"""The controller over executors of pods: real workers, real clients, APIs that say what happened."""

from __future__ import annotations

import functools
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest
from cluster_support import Cluster
from executor_harnesses import VertexHarness
from kubernetes_harness import KubernetesHarness
from pods_support import Pods

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.controller import Outcome, launch
from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.executor import Marks
from jestlab.platform.launch.executors import job_of
from jestlab.platform.launch.options import Options
from jestlab.platform.launch.wakeup import Wakeup
from jestlab.platform.planning.plan import Plan, plan
from jestlab.platform.spec.load import load
from jestlab.platform.store import claims, leases
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

RUNS: dict[str, dict[str, Any]] = {
    "reference": {"steps": 20, "pause": 0.02},
    "joint": {"needs": ["reference"], "steps": 25},
    "uniform": {"steps": 30, "pause": 0.02},
}


Harness = VertexHarness | KubernetesHarness


@pytest.fixture(params=["vertex", pytest.param("kubernetes", marks=pytest.mark.cluster)])
def harness(request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    monkeypatch.setenv("JESTLAB_API_PAUSE_SECONDS", "0")
    if request.param == "kubernetes":
        yield request.getfixturevalue("kubernetes_harness")
        return
    made = VertexHarness(tmp_path, monkeypatch)
    yield made
    made.close()


def pods_of(harness: Harness, root: Path, ring: Callable[[], None] = lambda: None) -> Cluster | Pods:
    """The executor, whose jobs run."""
    if isinstance(harness, KubernetesHarness):
        return Pods(harness, root, ring)
    return Cluster(harness, root, ring)


@pytest.fixture
def study(tmp_path: Path) -> Plan:
    return plan(load(str(labs.write_study(tmp_path, runs=RUNS))))


def launched(
    root: Path, study: Plan, harness: Harness, retries: int = 0, **harms: str
) -> tuple[Outcome, Cluster | Pods]:
    lab, wakeup = Lab.find(root), Wakeup()
    store = Store.open(lab.store_url)
    store.record(study)
    cluster = pods_of(harness, root, wakeup.set)
    cluster.harms = dict(harms)
    how = Options(executor=cluster.place, retries=retries, lease_seconds=30.0)
    outcome = launch(lab, store, "toy", study.runs, lambda _: cluster, options=how, wakeup=wakeup)
    store.close()
    return outcome, cluster


def rows(root: Path, sql: str) -> list[tuple[Any, ...]]:
    return sqlite3.connect(root / "results.db").execute(sql).fetchall()


ATTEMPTS = "SELECT run, number, state, exit_code FROM v_attempts ORDER BY run, number"


def test_pods_that_are_taken_away_or_deleted_cost_no_retries(root, study, harness):
    outcome, cluster = launched(root, study, harness, reference="preempt", uniform="vanish")
    assert outcome.exit_code == 0
    killed = -9 if cluster.name == "kubernetes" else None  # which keeps the pod for a while
    assert rows(root, ATTEMPTS) == [
        ("joint", 1, "COMPLETED", 0),
        ("reference", 1, "PREEMPTED", killed),
        ("reference", 2, "COMPLETED", 0),
        ("uniform", 1, "PREEMPTED", None),
        ("uniform", 2, "COMPLETED", 0),
    ]
    assert rows(root, "SELECT DISTINCT executor, chips FROM v_attempts") == [(cluster.name, cluster.chips)]
    assert [step > 0 for _, step in labs.starts(root, "uniform")] == [False, True]
    values = rows(root, "SELECT run, step, value FROM v_metrics WHERE name = 'loss' ORDER BY run, step")
    lab = root.parent / "undisturbed"
    assert launched(lab, study, harness)[0].exit_code == 0
    assert (
        rows(lab, "SELECT run, step, value FROM v_metrics WHERE name = 'loss' ORDER BY run, step") == values
    )


def test_two_labs_that_launch_the_same_runs_in_one_place_keep_apart(root, tmp_path, harness):
    quick = {name: {**run, "pause": 0.0} for name, run in RUNS.items()}
    study = plan(load(str(labs.write_study(tmp_path, runs=quick))))
    _, first = launched(root, study, harness)
    outcome, second = launched(root.parent / "other", study, harness)
    assert outcome.exit_code == 0
    assert len(set(first.launched + second.launched)) == 2 * len(study.runs)
    assert all(re.fullmatch(r"[a-z0-9-]{1,50}", name) for name in first.launched)
    for lab in (root, root.parent / "other"):
        assert len(labs.starts(lab, "uniform")) == 1


def test_a_pod_that_fails_is_tried_again_as_often_as_was_said(root, study, harness):
    outcome, _ = launched(root, study, harness, retries=1, uniform="kill")
    assert outcome.exit_code == 0
    assert rows(root, f"SELECT state, exit_code FROM ({ATTEMPTS}) WHERE run = 'uniform'") == [
        ("FAILED", -9),
        ("COMPLETED", 0),
    ]


def test_a_pod_that_fails_for_good_takes_what_needs_it_along(root, study, harness):
    outcome, cluster = launched(root, study, harness, reference="kill")
    states = {run.name: outcome.states[run.fingerprint] for run in study.runs}
    assert states == {
        "reference": RunState.FAILED,
        "joint": RunState.SKIPPED,
        "uniform": RunState.COMPLETED,
    }
    assert len(cluster.launched) == 2


def test_a_job_that_an_earlier_launcher_left_is_found_again(root, study, harness):
    lab = Lab.find(root)
    store = Store.open(lab.store_url)
    store.record(study)
    cluster = pods_of(harness, root)
    gone = leases.enter_launcher(store, "elsewhere:1:0")
    [uniform] = [run for run in study.runs if run.name == "uniform"]
    log = f"{uniform.directory}/log.txt"
    claim = claims.claim(store, uniform.fingerprint, gone, cluster.name, cluster.chips, log)
    assert claim is not None
    marks = Marks(store.id(), uniform.fingerprint, claim.number, claim.token)
    job = cluster.launch(job_of(lab, "toy", uniform, marks, log, here=False))
    claims.launched(store, {claim.attempt_id: job.handle})
    leases.leave(store, gone)
    options = Options(executor=cluster.place)
    outcome = launch(lab, store, "toy", study.runs, lambda _: cluster, options=options)
    assert outcome.exit_code == 0
    assert len(labs.starts(root, "uniform")) == 1
    assert {attempts for *_, attempts in rows(root, "SELECT run, attempts FROM v_runs")} == {1}


def test_why_a_pod_waits_is_said_and_kept_until_it_begins(root, study, kubernetes_harness):
    lab, wakeup = Lab.find(root), Wakeup()
    store = Store.open(lab.store_url)
    store.record(study)
    cluster = Pods(kubernetes_harness, root)
    cluster.harms = {"uniform": "hold"}
    heard = []

    class Ear(Listener):
        def state(self, run, state, reason=None):
            if state == RunState.PENDING:
                heard.append((run.name, reason, store.reasons([run.fingerprint])[run.fingerprint]))
                if run.name == "uniform" and "ImagePullBackOff" in reason:
                    cluster.release.set()

    launch(lab, store, "toy", study.runs, lambda _: cluster, options=Options(), listener=Ear(), wakeup=wakeup)
    assert all(told == kept.partition("\n")[0] for _, told, kept in heard)
    remedy = "an `image` that nodes can pull: its name, registry and rights"
    # Another pod may wait, too, for the moment until a node has begun it.
    assert {run for run, _, kept in heard if kept.endswith(remedy)} == {"uniform"}
    *_, (told, kept) = (why for run, *why in heard if run == "uniform")
    assert kept.endswith(remedy)
    assert told.startswith("ImagePullBackOff: Back-off pulling image")
    assert store.reasons(study.fingerprints) == {}


def test_a_cancelled_pod_is_stopped(root, study, harness):
    """Stopped by whoever cancels it, with the executor that the store names."""
    lab = Lab.find(root)
    store = Store.open(lab.store_url)
    store.record(study)
    cluster = pods_of(harness, root)
    [uniform] = [run for run in study.runs if run.name == "uniform"]
    log = f"{uniform.directory}/log.txt"
    launcher = leases.enter_launcher(store, "elsewhere:1:0")
    claim = claims.claim(store, uniform.fingerprint, launcher, cluster.name, 16, log)
    assert claim is not None
    marks = Marks(store.id(), uniform.fingerprint, claim.number, claim.token)
    job = cluster.launch(job_of(lab, "toy", uniform, marks, log, here=False))
    claims.launched(store, {claim.attempt_id: job.handle})
    labs.wait_until(functools.partial(labs.starts, root, "uniform"))
    leases.request_stop(store, [uniform.fingerprint], "cancelled by me")
    outcome = launch(lab, store, "toy", [uniform], lambda _: cluster)
    assert outcome.states == {uniform.fingerprint: RunState.CANCELLED}
    labs.wait_until(lambda: cluster.running == [])
