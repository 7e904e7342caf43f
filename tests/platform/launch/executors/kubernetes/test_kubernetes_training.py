"""JobSets on a real cluster train, and agree bit for bit with as many processes of this machine."""

from __future__ import annotations

import copy
import functools
import os
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import labs_support as labs
import plans_support as plans
import pytest
from executor_harnesses import IMAGE
from tests.cluster.image import NoImage, image
from tests.cluster.kubernetes.daemons import free_ports
from tests.cluster.kubernetes.shared import Namespace, container_environment, until
from tests.models.conftest import TINY
from workers_support import Worker

from jestlab.models.config import TrainConfig
from jestlab.platform import programs
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Kubernetes as Settings
from jestlab.platform.launch import processes
from jestlab.platform.launch.controller import launch
from jestlab.platform.launch.executors.environment import threads_environment
from jestlab.platform.launch.executors.kubernetes import Kubernetes
from jestlab.platform.launch.options import Options
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.spec.resources import Nodes, parse_slice
from jestlab.platform.store.store import Store


def trains(name: str, **changes: Any) -> PlannedRun:
    """A run that evaluates once, at its end."""
    tree: dict[str, Any] = {**copy.deepcopy(TINY), **changes}
    tree["evaluation"]["points"] = 1
    return plans.run(name, "train", TrainConfig.model_validate(tree).model_dump(mode="json"))


RUN = trains("uniform")
STEPS = 200
LONG = trains(
    "long",
    schedule={"batch_size": 16, "examples_seen": 16 * STEPS},
    runtime={"log_every_steps": 5, "checkpoint_every_steps": STEPS},
)


def measured(root: Path) -> list[tuple[Any, ...]]:
    """All that a lab's runs have measured but for speeds."""
    rows = sqlite3.connect(root / "results.db")
    return rows.execute(
        "SELECT name, step, value FROM v_metrics WHERE name NOT LIKE '%second%' AND name NOT LIKE '%wait%'"
        " UNION ALL SELECT name, step, value FROM v_evaluations ORDER BY 1, 2"
    ).fetchall()


def trained_here(root: Path, run: PlannedRun, hosts: int, **environment: str) -> list[tuple[Any, ...]]:
    """What as many processes of this machine measure."""
    lab = Lab.find(root)
    store = Store.open(lab.store_url)
    store.record(plans.plan(run))
    plans.claimed(store, run)
    [port] = free_ports(1)
    together = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", "JAX_NUM_PROCESSES": str(hosts)}
    workers = [
        Worker(
            *("--root", root, "--run", run.fingerprint, "--attempt", 1),
            environment={
                **environment,
                **({**together, "JAX_PROCESS_ID": str(number)} if hosts > 1 else {}),
            },
            imports=() if environment else programs.imports_of(run.program),
        )
        for number in range(hosts)
    ]
    for worker in workers:
        said = worker.communicate(timeout=300)[1]
        assert worker.returncode == processes.EXIT_COMPLETED, said[-3000:]
    return measured(root)


@pytest.fixture
def kubeconfig(namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster's, as if it were the user's own."""
    path = namespace.kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))


def planned(root: Path, run: PlannedRun) -> tuple[Lab, Store]:
    lab = Lab.find(root)
    store = Store.open(lab.store_url)
    store.record(plans.plan(run))
    return lab, store


def launched(lab: Lab, store: Store, run: PlannedRun, executor: Kubernetes) -> None:
    options = Options(executor="kubernetes", retries=0)
    outcome = launch(lab, store, "toy", [run], lambda _: executor, options=options)
    said = [log.read_text()[-3000:] for log in lab.root.rglob("log.txt")]
    assert outcome.exit_code == 0, (outcome, said)


def on_slice(namespace: Namespace, lab: Lab, slice_: str) -> Kubernetes:
    """An executor whose pods see this machine's files."""
    namespace.cluster.images.push(IMAGE, {**container_environment(), **labs.variables(lab.root)})
    namespace.set_store(lab.store_url)
    settings = Settings(namespace=namespace.name, store_secret="jestlab-store/url", root=str(lab.root))
    return Kubernetes(settings, parse_slice(slice_), IMAGE)


@pytest.mark.usefixtures("kubeconfig")
def test_a_jobset_trains_as_a_process_of_this_machine_does(root, tmp_path, namespace):
    lab, store = planned(root, RUN)
    launched(lab, store, RUN, on_slice(namespace, lab, "v5e-2x2"))
    [jobset] = namespace.jobsets()
    assert len(namespace.pods(jobset["metadata"]["name"])) == 1
    found = measured(root)
    assert len(found) > 10
    assert found == trained_here(tmp_path / "here", RUN, 1)


@pytest.mark.usefixtures("kubeconfig")
def test_four_hosts_of_which_one_is_evicted_twice_end_like_undisturbed_processes_here(
    root, tmp_path, namespace
):
    """Each time all of them save, and go on in the next JobSet."""
    lab, store = planned(root, LONG)
    executor = on_slice(namespace, lab, "v5e-4x4")
    with ThreadPoolExecutor(1) as pool:
        launching = pool.submit(launched, lab, store, LONG, executor)
        for attempt, (step, host) in enumerate([(20, 1), (80, 0)], 1):
            until(functools.partial(reached, store, step, launching), 180)
            jobset = f"jestlab-{store.id()[:6]}-{LONG.fingerprint[:8]}-{attempt}"
            pods = namespace.pods(jobset)
            assert len(pods) == 4
            namespace.evict(pods[host]["metadata"]["name"])
        launching.result(timeout=240)
    rows = sqlite3.connect(root / "results.db").execute("SELECT state FROM attempt ORDER BY number")
    assert [state for (state,) in rows] == ["PREEMPTED", "PREEMPTED", "COMPLETED"]
    found = measured(root)
    assert len(found) > 10
    assert found == trained_here(tmp_path / "here", LONG, 4)


def reached(store: Store, step: int, launching: Future[None]) -> bool:
    return launching.done() or store.progress([LONG.fingerprint], ())[LONG.fingerprint].step >= step


@pytest.mark.usefixtures("kubeconfig")
def test_a_jobset_trains_in_the_container_that_was_built_here(root, tmp_path, namespace):
    """Pinned by its digest, as user 1000, with the lab's folder as a volume that the pod claims."""
    try:
        built = image()
    except NoImage as error:
        pytest.skip(str(error))
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": os.environ["XLA_FLAGS"]}
    namespace.cluster.images.push(built.digest, {**built.environment, **flags}, built.tree)
    lab, store = planned(root, RUN)
    for path in (root, *root.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)  # a cluster's storage sees to it by `fsGroup`
    namespace.claim("lab", root)
    namespace.set_store("sqlite:////lab/results.db")
    settings = Settings(namespace=namespace.name, store_secret="jestlab-store/url", claim="lab", root="/lab")
    launched(lab, store, RUN, Kubernetes(settings, Nodes(), built.digest))
    found = measured(root)
    assert len(found) > 10
    # Sums round alike with as many threads, and with the same flags of XLA.
    assert found == trained_here(tmp_path / "here", RUN, 1, **threads_environment(1))
