"""One run on two processes, as on two hosts: they compute together, the first one alone writes."""

import os
import sqlite3

import plans_support as plans
import pytest
from tests.cluster.ports import free_port
from tests.models.conftest import TINY
from workers_support import Worker, recorded

from jestlab.models.config import TrainConfig
from jestlab.platform import processes, programs
from jestlab.platform.lab.lab import Lab


def host(lab, run, number, port):
    """Worker number 0 or 1, with two devices."""
    return Worker(
        *("--root", lab.root, "--run", run.fingerprint, "--attempt", 1),
        environment={
            "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2",
            "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
            "JAX_NUM_PROCESSES": "2",
            "JAX_PROCESS_ID": str(number),
        },
        imports=programs.imports_of(run.program),
    )


@pytest.mark.full
def test_two_hosts_make_one_attempt(root):
    lab = Lab.find(root)
    config = TrainConfig.model_validate(TINY).model_dump(mode="json")
    run = plans.run("uniform", "train", config)
    plans.claimed(recorded(lab, run), run)
    port = free_port()
    hosts = [host(lab, run, number, port) for number in (0, 1)]
    for process in hosts:
        said = process.communicate(timeout=400)[1]
        assert process.returncode == processes.EXIT_COMPLETED, said[-3000:]
    rows = sqlite3.connect(lab.root / "results.db")
    assert rows.execute("SELECT state FROM attempt").fetchall() == [("COMPLETED",)]
    assert rows.execute("SELECT DISTINCT step, total_steps FROM v_runs").fetchall() == [(12, 12)]
    [(points, steps)] = rows.execute(
        "SELECT count(*), count(DISTINCT step) FROM v_metrics WHERE name = 'loss'"
    )
    assert points == steps == 6
    assert len(list((lab.root / run.directory / "events").glob("events.*"))) == 1


def test_a_process_that_assists_writes_nothing(root):
    lab = Lab.find(root)
    run = plans.run("run", "toy_programs:loop", {"seed": 0, "steps": 3})
    recorded(lab, run)
    assistant = host(lab, run, 1, 1)
    _, said = assistant.communicate(timeout=120)
    assert assistant.returncode == processes.EXIT_COMPLETED, said
    assert (lab.root / run.directory / "state.json").exists()
    store = sqlite3.connect(lab.root / "results.db")
    assert store.execute("SELECT count(*) FROM attempt").fetchall() == [(0,)]
    assert store.execute("SELECT state FROM run").fetchall() == [("PENDING",)]
