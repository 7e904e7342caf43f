"""A run on two nodes: one process on each, which compute together, also after they were preempted."""

import copy
import socket
from typing import Any

import plans_support as plans
import pytest
import yaml
from slurm_support import SlurmLab
from tests.models.conftest import TINY
from workers_support import Worker

from jestlab.platform import programs
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.environment import worker_environment
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.load import load
from jestlab.platform.store.store import Store

STEPS = 300


@pytest.fixture
def study(tmp_path):
    """The spec of one run that trains for some seconds."""
    base: dict[str, Any] = copy.deepcopy(TINY)
    base["schedule"]["examples_seen"] = 16 * STEPS
    base["evaluation"]["points"] = 1
    base["runtime"] = {"log_every_steps": 2, "checkpoint_every_steps": STEPS}
    spec = tmp_path / "pair.yaml"
    resources = {"on": "slurm", "nodes": 2, "retries": 0, "lease_seconds": 60.0}
    parts = {"name": "pair", "base": base, "runs": {"uniform": {}}, "resources": resources}
    spec.write_text(yaml.safe_dump(parts))
    return spec


def computed_here(root, study):
    """Compute the run by two processes of this machine, in another lab."""
    lab = Lab.find(root)
    root.mkdir()
    planned = plan(load(str(study)))
    [run] = planned.runs
    store = Store.open(lab.store_url)
    store.record(planned)
    plans.claimed(store, run)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    pair = [
        Worker(
            *("--root", root, "--run", run.fingerprint, "--attempt", 1),
            environment={
                **worker_environment(1, lab),
                "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
                "JAX_NUM_PROCESSES": "2",
                "JAX_PROCESS_ID": str(number),
            },
            imports=programs.imports_of(run.program),
        )
        for number in (0, 1)
    ]
    for process in pair:
        said = process.communicate(timeout=300)[1]
        assert process.returncode == 0, said[-3000:]


def test_a_run_on_two_nodes_that_is_preempted_twice_is_bit_for_bit_the_one_of_two_processes(
    lab, study, monkeypatch
):
    monkeypatch.delenv("JESTLAB_STORE", raising=False)
    with lab.launching(study) as launcher:
        for attempt in (1, 2):
            lab.wait_for_progress(attempt)
            assert lab.cluster.tool("squeue", "-h", "-o", "%D").split() == ["2"]
            lab.cluster.preempt()
        said, _ = launcher.communicate(300)
        assert launcher.returncode == 0, said
    states = [state for state, _ in lab.attempts()]
    assert states == ["PREEMPTED", "PREEMPTED", "COMPLETED"], lab.attempts()
    here = SlurmLab(lab.cluster, lab.root.with_name("here"))
    computed_here(here.root, study)
    assert lab.results() == here.results()
    assert len(lab.results()) > STEPS / 2
    log = next(lab.root.glob("runs/*/log.txt")).read_text()
    assert "2 device(s)" in log
