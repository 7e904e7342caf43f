"""Copies of a lab beside the original: neither watches, stops nor reads what the other has launched."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from pathlib import Path

import labs_support as labs
import pytest
from pods_support import Pods

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executor import JobState, LaunchedJob, Marks
from jestlab.platform.launch.executors import job_of
from jestlab.platform.planning.plan import Plan, plan
from jestlab.platform.spec.load import load
from jestlab.platform.store import claims, leases
from jestlab.platform.store.backup import back_up, restore
from jestlab.platform.store.store import Store

RUNS = {"uniform": {"steps": 4_000, "pause": 0.02}}


@pytest.fixture
def study(tmp_path: Path) -> Plan:
    return plan(load(str(labs.write_study(tmp_path, runs=RUNS))))


@pytest.fixture
def cluster(kubernetes_harness, root):
    made = Pods(kubernetes_harness, root)
    yield made
    made.kill()


def a_pod_that_runs(root: Path, study: Plan, cluster: Pods) -> LaunchedJob:
    """The original: its launcher was killed, and its pod trains."""
    lab = Lab.find(root)
    store = Store.open(lab.store_url)
    store.record(study)
    [run] = study.runs
    log = f"{run.directory}/log.txt"
    launcher = leases.enter_launcher(store, "elsewhere:1:0")
    claim = claims.claim(store, run.fingerprint, launcher, "kubernetes", cluster.chips, log)
    assert claim is not None
    marks = Marks(store.id(), run.fingerprint, claim.number, claim.token)
    job = cluster.launch(job_of(lab, "toy", run, marks, log, here=False))
    claims.launched(store, {claim.attempt_id: job.handle})
    labs.wait_until(lambda: labs.starts(root, "uniform"))
    store.close()
    return job


def copied(root: Path, copy: Path, how: str) -> None:
    """Copy a lab in one of the ways in which people do."""
    if how == "folder":
        shutil.copytree(root, copy)
        return
    copy.mkdir()
    if how == "backup":
        back_up(f"sqlite:///{root / 'results.db'}", copy.parent / "backup.db")
        restore(copy.parent / "backup.db", f"sqlite:///{copy / 'results.db'}")
        return
    archive = copy.parent / "lab.tar.gz"
    assert labs.here("export", archive, root=root).returncode == 0
    said = labs.here("import", archive, root=copy)
    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize("how", ["folder", "backup", "archive"])
def test_a_launch_of_a_copy_leaves_the_originals_pod_alone(root, study, tmp_path, cluster, how):
    job = a_pod_that_runs(root, study, cluster)
    copied(root, tmp_path / "copy", how)
    short = plan(load(str(labs.write_study(tmp_path, runs=RUNS))))
    with labs.meanwhile(lambda: cancelled(tmp_path / "copy")):
        labs.launch_here(tmp_path / "copy", short, beside=cluster)
    assert cluster.statuses([job])[job].state == JobState.RUNNING
    assert cluster.running == [job]
    [state] = sqlite3.connect(root / "results.db").execute("SELECT state FROM attempt").fetchall()
    assert state == ("RUNNING",)


def cancelled(root: Path) -> None:
    """Cancel the copy's own run, once it trains."""
    labs.wait_until(lambda: (root / "results.db").exists() and own_attempts(root))
    assert labs.jestlab("cancel", "toy", root=root).returncode == 0


def own_attempts(root: Path) -> bool:
    rows = sqlite3.connect(root / "results.db").execute("SELECT 1 FROM attempt WHERE state = 'RUNNING'")
    return bool(rows.fetchall())


def test_cancelling_in_a_copy_leaves_the_originals_process_alone(root, tmp_path):
    spec = labs.write_study(tmp_path, runs=RUNS)
    with labs.started("launch", spec, root=root) as launcher:
        labs.wait_until(lambda: labs.starts(root, "uniform"))
        [(worker, _)] = labs.starts(root, "uniform")
        copied(root, tmp_path / "copy", "folder")
        said = labs.here("cancel", "toy", "--now", root=tmp_path / "copy")
        assert said.stdout.splitlines()[-1] == "1 run cancelled"
        os.kill(worker, 0)
        assert launcher.poll() is None
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait(30) == 130
