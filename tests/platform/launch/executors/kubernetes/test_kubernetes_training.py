"""JobSets on a real cluster train, and agree bit for bit with as many processes of this machine."""

import copy
import functools
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import labs_support as labs
import plans_support as plans
import pytest
from executor_harnesses import IMAGE, measured, train_here
from tests.cluster.kubernetes.shared import Namespace, container_environment
from tests.models.conftest import TINY
from tests.waiting import wait_until

from jestlab.models.config import TrainConfig
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Kubernetes as Settings
from jestlab.platform.launch.controller import launch
from jestlab.platform.launch.executors.kubernetes import KubernetesExecutor
from jestlab.platform.launch.options import ControllerOptions
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.spec.resources import Resources
from jestlab.platform.store.store import Store


def trains(name: str, **changes: Any) -> PlannedRun:
    """A run that evaluates once, at its end."""
    tree: dict[str, Any] = {**copy.deepcopy(TINY), **changes}
    tree["evaluation"]["points"] = 1
    return plans.run(name, "train", TrainConfig.model_validate(tree).model_dump(mode="json"))


RUN = trains("uniform")
STEPS = 400
LONG = trains(
    "long",
    schedule={"batch_size": 16, "examples_seen": 16 * STEPS},
    runtime={"log_every_steps": 5, "checkpoint_every_steps": STEPS},
)


@pytest.fixture
def kubeconfig(namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the cluster's kubeconfig the default one."""
    path = namespace.kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))


def planned(root: Path, run: PlannedRun) -> tuple[Lab, Store]:
    lab = Lab.find(root)
    store = Store.open(lab.store_url)
    plans.record(store, plans.plan(run))
    return lab, store


def launched(lab: Lab, store: Store, run: PlannedRun, executor: KubernetesExecutor) -> None:
    options = ControllerOptions(on="kubernetes", retries=0)
    outcome = launch(lab, store, "toy", [run], lambda _: executor, options=options)
    said = [log.read_text()[-3000:] for log in lab.root.rglob("log.txt")]
    assert outcome.exit_code == 0, (outcome, said)


def on_slice(namespace: Namespace, lab: Lab, slice_: str) -> KubernetesExecutor:
    """An executor whose pods see this machine's files."""
    namespace.cluster.images.push(IMAGE, {**container_environment(), **labs.variables(lab.root)})
    namespace.set_store(lab.store_url)
    settings = Settings(namespace=namespace.name, store_secret="jestlab-store/url", root=str(lab.root))
    return KubernetesExecutor(settings, Resources(tpu=slice_, image=IMAGE))


@pytest.mark.smoke
@pytest.mark.usefixtures("kubeconfig")
def test_a_jobset_trains_as_a_process_of_this_machine_does(root, tmp_path, namespace):
    lab, store = planned(root, RUN)
    launched(lab, store, RUN, on_slice(namespace, lab, "v5e-2x2"))
    [jobset] = namespace.jobsets()
    assert len(namespace.pods(jobset["metadata"]["name"])) == 1
    found = measured(root)
    assert len(found) > 10
    train_here(tmp_path / "here", plans.plan(RUN), 1)
    assert found == measured(tmp_path / "here")


@pytest.mark.usefixtures("kubeconfig")
def test_four_hosts_of_which_one_is_evicted_twice_end_like_undisturbed_processes_here(
    root, tmp_path, namespace
):
    """Each time all of them save, and resume in the next JobSet."""
    lab, store = planned(root, LONG)
    executor = on_slice(namespace, lab, "v5e-4x4")
    with ThreadPoolExecutor(1) as pool:
        launching = pool.submit(launched, lab, store, LONG, executor)
        for attempt, (step, host) in enumerate([(20, 1), (80, 0)], 1):
            wait_until(functools.partial(reached, store, step, launching), 180)
            jobset = f"jestlab-{store.id()[:6]}-{LONG.fingerprint[:8]}-{attempt}"
            pods = namespace.pods(jobset)
            assert len(pods) == 4
            namespace.evict(pods[host]["metadata"]["name"])
        launching.result(timeout=240)
    rows = sqlite3.connect(root / "results.db").execute("SELECT state FROM attempt ORDER BY number")
    assert [state for (state,) in rows] == ["PREEMPTED", "PREEMPTED", "COMPLETED"]
    found = measured(root)
    assert len(found) > 10
    train_here(tmp_path / "here", plans.plan(LONG), 4)
    assert found == measured(tmp_path / "here")


def reached(store: Store, step: int, launching: Future[None]) -> bool:
    return launching.done() or store.progress([LONG.fingerprint], ())[LONG.fingerprint].step >= step
