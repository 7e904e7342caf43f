"""A copy of a lab neither watches, stops, nor reads the jobs of the original."""

import shutil
from pathlib import Path

import labs_support as labs
import pytest
from in_process import Machine

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.claiming import job_of
from jestlab.platform.launch.executors.base import JobKey, JobState, LaunchedJob
from jestlab.platform.planning import recording
from jestlab.platform.planning.plan import Plan
from jestlab.platform.store import claims, leases
from jestlab.platform.store.backup import back_up, restore
from jestlab.platform.store.store import Store


@pytest.fixture
def study(tmp_path: Path) -> Plan:
    return labs.planned(labs.write_study(tmp_path, runs={"uniform": {"steps": 20}}))


def a_job_that_runs(root: Path, study: Plan, machine: Machine) -> LaunchedJob:
    """Launch a job that stays at one step; its launcher is gone."""
    lab = Lab.find(root)
    store = Store.open(lab.store_url)
    recording.record(store, study)
    [run] = study.runs
    log = f"{run.directory}/log.txt"
    launcher = leases.enter_launcher(store, "elsewhere:1:0")
    claim = claims.claim(store, run.fingerprint, log, claims.ClaimTerms(launcher, "local", 0))
    assert claim is not None
    key = JobKey(store.id(), run.fingerprint, claim.number, claim.token)
    machine.harm("uniform", "freeze", 8)
    frozen: list[int] = []
    machine.on_freeze = lambda: frozen.append(1)
    job = machine.executor(lab).launch(job_of(lab, "toy", run, key, log, is_local=True))
    claims.store_handles(store, {claim.attempt_id: job.handle})
    labs.wait_until(lambda: frozen)
    store.close()
    return job


def copied(root: Path, copy: Path, how: str) -> None:
    """Copy a lab in one of the usual ways."""
    if how == "folder":
        shutil.copytree(root, copy)
        return
    copy.mkdir()
    if how == "backup":
        back_up(f"sqlite:///{root / 'results.db'}", copy.parent / "backup.db")
        restore(copy.parent / "backup.db", f"sqlite:///{copy / 'results.db'}")
        return
    archive = copy.parent / "lab.zip"
    assert labs.here("export", archive, root=root).returncode == 0
    imported = labs.here("import", archive, root=copy)
    assert imported.returncode == 0, imported.stderr


@pytest.mark.parametrize("how", ["folder", "backup", "archive"])
@pytest.mark.parametrize("verb", ["launch", "cancel"])
def test_a_copy_leaves_the_originals_job_alone(root, study, tmp_path, machine, how, verb):
    job = a_job_that_runs(root, study, machine)
    copy = tmp_path / "copy"
    copied(root, copy, how)
    if verb == "launch":
        assert labs.launch_here(copy, study).exit_code == 0
        assert len(machine.jobs) == 2
    else:
        cancelled = labs.here("cancel", "toy", "--now", root=copy)
        assert cancelled.stdout.splitlines()[-1] == "1 run cancelled"
    assert machine.executor(Lab.find(root)).statuses([job])[job].state == JobState.RUNNING
    assert not machine.threads[job].was_stopped
