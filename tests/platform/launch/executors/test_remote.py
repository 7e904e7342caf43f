"""What executors of clusters share: repeated calls, and reasons in the words of real clusters."""

import re
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from executor_harnesses import IMAGE, VertexHarness, job

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch import executors
from jestlab.platform.launch.executors.base import ExecutorError, ExecutorUnavailable, JobState
from jestlab.platform.launch.executors.jobset import status
from jestlab.platform.launch.executors.remote import ATTEMPTS, explained, retried
from jestlab.platform.spec.resources import Resources

TRANSIENT = ExecutorUnavailable("busy", transient=True)


@pytest.mark.parametrize(
    ("errors", "calls"),
    [
        ([TRANSIENT] * (ATTEMPTS - 1), ATTEMPTS),
        ([TRANSIENT] * ATTEMPTS, ATTEMPTS),
        ([ExecutorError("no")], 1),
        ([ExecutorUnavailable("later")], 1),
        ([KeyError("bug")], 1),
    ],
)
def test_only_transient_errors_are_repeated(monkeypatch, errors, calls):
    monkeypatch.setenv("JESTLAB_API_PAUSE_SECONDS", "0")
    act = Mock(side_effect=[*errors, 7])
    if calls > len(errors):
        assert retried(act) == 7
    else:
        with pytest.raises(type(errors[-1]), match=str(errors[-1])):
            retried(act)
    assert act.call_count == calls


def test_after_a_stop_nothing_more_is_sent(tmp_path, monkeypatch):
    with closing(VertexHarness(tmp_path, monkeypatch)) as harness:
        executor = harness.executor()
        first = executor.launch(harness.job("jestlab-0a1b2c3d-1"))
        executor.halt()
        [second] = executor.launch_all([harness.job("jestlab-0a1b2c3d-2")])
        assert isinstance(second, ExecutorError)
        assert harness.count() == 1
        executor.stop(first, now=True)  # a job that was sent can still be stopped


@pytest.mark.parametrize(
    ("reason", "meaning"),
    [
        ("OUT_OF_MEMORY", "memory_gb"),
        ("OOMKilled", "memory_gb"),
        ("sbatch: error: Requested time limit is invalid", "resources.time"),
        ("NODE_FAIL", "node failed"),
        ("PreemptionByScheduler: preempting to accommodate a higher priority pod", "preempted"),
        ("ImagePullBackOff: Back-off pulling image", "pull the image"),
        ("Unschedulable: 0/2 nodes are available: 2 Insufficient google.com/tpu.", "unschedulable"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher", "unschedulable"),
        ('FailedCreate: Error creating: pods "a" is forbidden: exceeded quota: small', "quota:"),
        ("QOSMaxJobsPerUserLimit", "quota:"),
        ("InvalidAccount", "sacctmgr"),
        ("CANCELLED by 1000", "canceled"),
        ("EvictionByEvictionAPI: Eviction API: evicting", "evicted"),
        *((reason, "") for reason in ("", "Priority", "NewReason: of a later release")),
    ],
)
def test_common_reasons_are_followed_by_their_meaning(reason, meaning):
    text = explained(reason)
    assert text.startswith(f"{reason} (" if meaning else reason)
    assert meaning in text.removeprefix(reason) if meaning else text == reason


# ---- created from a study and the user's settings

LAB = Lab(Path("lab"), "sqlite://")
OTHER_IMAGE = IMAGE.replace("0123", "ffff")


KUBERNETES = {"store_secret": "s/k", "root": "/lab"}
VERTEX = {
    "project": "our-lab",
    "region": "us-west4",
    "store_secret": "projects/our-lab/secrets/store/versions/1",
    "root": "/gcs/lab",
}


@pytest.mark.parametrize(
    ("name", "settings", "missing"),
    [
        ("kubernetes", {}, ["image", "kubernetes.store_secret", "kubernetes.root"]),
        ("kubernetes", {"image": IMAGE, "kubernetes": {"store_secret": "s/k"}}, ["kubernetes.root"]),
        ("vertex", {"image": IMAGE}, [f"vertex.{key}" for key in VERTEX]),
    ],
)
def test_names_all_that_is_missing_before_anything_is_launched(name, settings, missing):
    with pytest.raises(UserError, match=re.escape(f"needs `{'`, `'.join(missing)}`")):
        executors.get(name, Resources(tpu="v5e-2x2"), Settings(**settings), LAB)


@pytest.mark.parametrize(("name", "section"), [("kubernetes", KUBERNETES), ("vertex", VERTEX)])
def test_a_study_overrides_the_users_settings(name, section):
    settings = Settings(**{"image": IMAGE, name: section})
    made = executors.get(name, Resources(tpu="v5e-16x16", image=OTHER_IMAGE), settings, LAB)
    assert (made.chips, OTHER_IMAGE in repr(made.render(job()))) == (256, True)
    found = executors.get(name, None, Settings(), LAB)  # finding jobs needs no settings
    assert (found.name, found.chips) == (name, 0)
    with pytest.raises(ExecutorError, match="only finds jobs"):
        found.launch(job())


def test_vertex_needs_a_slice():
    with pytest.raises(UserError, match="tpu"):
        executors.get("vertex", Resources(), Settings(image=IMAGE, vertex=VERTEX), LAB)


@pytest.mark.parametrize(
    ("deleted", "state"),
    [({}, JobState.QUEUED), ({"deletionTimestamp": "2026-11-25T03:41Z"}, JobState.RUNNING)],
)
def test_a_pod_that_is_deleted_before_it_began_is_not_waited_for(deleted, state):
    labels = {"labels": {"batch.kubernetes.io/job-completion-index": "0"}}
    pod = {"metadata": {**labels, **deleted}, "spec": {}, "status": {"phase": "Pending"}}
    assert status({"metadata": {}, "spec": {}}, [pod]).state == state
