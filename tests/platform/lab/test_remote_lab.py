"""A lab in a bucket: its machines, and everything on their disks, come and go."""

import copy
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import labs_support as labs
import plans_support as plans
import pytest
from executor_harnesses import job
from sqlalchemy import create_engine, text
from tests.cluster.ports import free_port
from tests.models.conftest import TINY
from workers_support import Worker

from jestlab.analysis.shared import SCRATCH
from jestlab.models.config import TrainConfig
from jestlab.platform import processes, programs
from jestlab.platform.cli import doctor
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.lab.sync import Bucket, SyncedFolder
from jestlab.platform.launch import executors
from jestlab.platform.launch.executors.remote import arguments_at
from jestlab.platform.spec.resources import Resources
from jestlab.platform.store import leases
from jestlab.platform.store.address import parse_url
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

URL = "gs://lab-bucket/lab"


@pytest.fixture
def lab(root, bucket_server, postgresql_url, monkeypatch):
    """A lab in a bucket; this process is one of its machines."""
    monkeypatch.setenv("JESTLAB_STORE", postgresql_url)
    monkeypatch.setenv(SCRATCH, str(root.parent / "launcher"))
    return Lab.find(URL)


def worker(lab, run, machine: Path, attempt=None, **variables):
    """Start a worker on its own machine."""
    if attempt is None:
        attempt = plans.claimed(Store.open(lab.store_url), run)
    return Worker(
        *("--root", lab.address, "--run", run.fingerprint, "--attempt", attempt),
        environment={"JESTLAB_STORE": lab.store_url, SCRATCH: str(machine), **variables},
        imports=programs.imports_of(run.program),
    )


def ended(process):
    said = process.communicate(timeout=300)[1]
    assert process.returncode == processes.EXIT_COMPLETED, said[-3_000:]
    return said


def lose(lab, run, process, machine: Path):
    """Kill a worker, delete its disk, and end its attempt, as its launcher does."""
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    shutil.rmtree(machine)
    store = Store.open(lab.store_url)
    lease = leases.standings(store, [run.fingerprint])[run.fingerprint].lease
    assert lease is not None
    assert plans.end(store, run.fingerprint, lease.id, RunState.PREEMPTED, "gone", None)


def snapshots(run):
    return [name for name in Bucket(URL).names(f"{run.directory}/kept") if name.endswith(".json")]


def points(lab):
    """Return all metrics and scores of all runs."""
    with create_engine(parse_url(lab.store_url)).connect() as connection:
        named = "metric JOIN metric_name ON metric_name.id = name_id"
        metrics = connection.execute(text(f"SELECT run_id, step, name, value FROM {named}"))
        scores = connection.execute(text("SELECT run_id, step, dataset, metric, value FROM evaluation"))
        return {tuple(row) for row in [*metrics, *scores]}


@pytest.mark.full
def test_results_are_the_same_if_machines_are_lost(lab, root, tmp_path):
    """The machine of the reference is killed and deleted; its learner runs on a third machine."""
    here = Lab.find(root, f"sqlite:///{root / 'results.db'}")
    gate = tmp_path / "gate"  # the reference waits for it at its last step
    reference = plans.run("reference", config={"steps": 24, "seed": 0, "gate": str(gate)})
    needs = {"reference": reference.fingerprint}
    learner = plans.run("learner", config={"steps": 12, "seed": 0}, needs=needs)
    for each in (lab, here):
        plans.record(Store.open(each.store_url), plans.plan(reference, learner))
    undisturbed = worker(here, reference, tmp_path / "unused")

    first = worker(lab, reference, tmp_path / "first")
    labs.wait_until(lambda: snapshots(reference))
    lose(lab, reference, first, tmp_path / "first")
    gate.touch()
    ended(worker(lab, reference, tmp_path / "second", JESTLAB_COPY_LOG="1"))
    assert "--- attempt 2" in Bucket(URL).read(f"{reference.directory}/log.txt").decode()
    shutil.rmtree(tmp_path / "second")
    ended(undisturbed)

    undisturbed = worker(here, learner, tmp_path / "unused")
    ended(worker(lab, learner, tmp_path / "third"))
    ended(undisturbed)
    assert points(lab) == points(here)
    for run in (reference, learner):
        folder = tmp_path / "fetched" / run.name
        SyncedFolder(Bucket(URL), run.directory, folder).pull()
        assert (folder / "state.json").read_bytes() == (root / run.directory / "state.json").read_bytes()
    _, *restarts = (tmp_path / "fetched/reference/starts.txt").read_text().splitlines()
    assert [int(line.split()[1]) > 0 for line in restarts] == [True], "the second machine started from step 0"


@pytest.mark.full
def test_hosts_without_a_common_disk_resume(lab, tmp_path):
    """Two hosts train; the first attempt is stopped by its user, and the disks of its hosts are deleted."""
    tree: dict[str, Any] = copy.deepcopy(TINY) | {"schedule": {"batch_size": 16, "examples_seen": 16 * 60}}
    tree["data"]["train"] = {"examples": 128, "image_size": 16, "shard_size": 128}  # generated by each host
    run = plans.run("uniform", "train", TrainConfig.model_validate(tree).model_dump(mode="json"))
    store = Store.open(lab.store_url)
    plans.record(store, plans.plan(run))

    def hosts(attempt):
        number = plans.claimed(store, run)
        variables = {
            "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2",
            "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}",
            "JAX_NUM_PROCESSES": "2",
        }
        return [
            worker(lab, run, tmp_path / f"{attempt}-{i}", number, JAX_PROCESS_ID=str(i), **variables)
            for i in (0, 1)
        ]

    first = hosts("first")
    labs.wait_until(lambda: snapshots(run), seconds=300)
    first[0].terminate()
    for i, process in enumerate(first):
        output = process.communicate(timeout=300)[1]
        assert process.returncode == processes.EXIT_STOPPED, output[-3_000:]
        shutil.rmtree(tmp_path / f"first-{i}")
    assert store.runs("toy")[0].state == RunState.PREEMPTED
    outputs = [ended(process) for process in hosts("second")]
    assert all("training from step" in text and "training from step 0" not in text for text in outputs)
    assert store.runs("toy")[0].step == 60


def jestlab(*words, code=0):
    done = labs.here(*words, "--root", URL)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def test_commands_in_a_lab_in_a_bucket(lab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = labs.write_study(tmp_path, runs={"joint": {}}, base={"steps": 12}, reports=[{"kind": "table"}])
    jestlab("launch", spec)
    assert (tmp_path / "lab-reports/toy/table.md").exists()
    shutil.rmtree(lab.root)  # this machine's disk
    assert jestlab("logs", "toy/joint").startswith("--- attempt 1: ")
    jestlab("status", "toy")
    jestlab("launch", spec)
    for words in (["gc"], ["export", tmp_path / "lab.zip"], ["import", spec]):
        assert jestlab(*words, code=1).splitlines() == [
            f"jestlab: {words[0]} needs a lab whose --root is on this machine, not at {URL}"
        ]
    assert next(doctor._bucket(lab)).level == "ok"


def test_a_bucket_has_one_address_everywhere_and_needs_a_store_on_a_server(monkeypatch, tmp_path):
    monkeypatch.delenv("JESTLAB_STORE", raising=False)
    for store in (None, "sqlite:////tmp/results.db"):
        with pytest.raises(
            UserError, match=r"needs its store in PostgreSQL.*a SQLite store needs a --root on"
        ):
            Lab.find(URL, store)
    monkeypatch.setenv(SCRATCH, str(tmp_path))
    found = Lab.find(f"{URL}/", "postgresql://host/db")
    assert found.address == URL
    assert found.root.parent == tmp_path
    assert found.root != Lab.find("gs://other/lab", "postgresql://host/db").root


def test_pods_need_no_folder_for_a_lab_in_a_bucket():
    settings = Settings(image=f"jestlab@sha256:{64 * 'a'}", kubernetes={"store_secret": "store/url"})
    resources = Resources(tpu="v5e-16x16")
    executors.get("kubernetes", resources, settings, Lab(Path("scratch"), "postgresql://host/db", URL))
    with pytest.raises(UserError, match=r"kubernetes\.root"):
        executors.get("kubernetes", resources, settings, Lab(Path("lab"), "postgresql://host/db"))
    assert arguments_at("/lab", job("one", arguments=["--root", URL])) == ["--root", URL]
    assert arguments_at("/lab", job("one", arguments=["--root", "lab"])) == ["--root", "/lab"]
