"""One run on two processes, as on two hosts: they compute together, the first one alone writes."""

import os
import sqlite3

import plans_support as plans
import pytest
from sqlalchemy import select
from tests.cluster.ports import free_port
from tests.models.conftest import TINY
from tests.waiting import wait_until
from workers_support import Worker, recorded

from jestlab.models.config import TrainConfig
from jestlab.platform import processes, programs
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import leases
from jestlab.platform.store.records import RunState
from jestlab.platform.store.tables import RunRow


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
    store = recorded(lab, run)
    plans.claimed(store, run)
    assistant = host(lab, run, 1, 1)
    wait_until(lambda: (lab.root / run.directory / "state.json").exists())
    assert assistant.poll() is None  # it waits for the first process
    assert [(lease.number, lease.state) for lease in leases_of(store, run)] == [(1, RunState.PENDING)]
    [lease] = leases_of(store, run)
    leases.end_all(store, [leases.Ending(run.fingerprint, lease.id, RunState.COMPLETED, "")])
    _, said = assistant.communicate(timeout=60)
    assert assistant.returncode == processes.EXIT_COMPLETED, said
    assert store.rows(select(RunRow.step))[0].step == 0


def test_a_process_that_fails_ends_the_attempt(root):
    lab = Lab.find(root)
    run = plans.run("run", "command", {"seed": 0, "command": ["sh", "-c", "echo no more data; exit 3"]})
    store = recorded(lab, run)
    plans.claimed(store, run)
    _, said = host(lab, run, 1, 1).communicate(timeout=60)
    [lease] = leases_of(store, run)
    assert lease.state == RunState.FAILED, said
    reason = store.reasons([run.fingerprint])[run.fingerprint]
    assert reason.startswith("rank 1 on ")
    assert reason.endswith(": exit code 3: no more data")


def test_a_silent_command_ends_with_its_attempt(root):
    lab = Lab.find(root)
    run = plans.run("run", "command", {"seed": 0, "command": ["sleep", "600"]})
    store = recorded(lab, run)
    plans.claimed(store, run)
    hosts = [host(lab, run, number, 1) for number in (0, 1)]
    wait_until(lambda: [lease.state for lease in leases_of(store, run)] == [RunState.RUNNING])
    [lease] = leases_of(store, run)
    leases.end_all(store, [leases.Ending(run.fingerprint, lease.id, RunState.FAILED, "another node")])
    codes = [process.wait(60) for process in hosts]
    assert codes == [processes.EXIT_BUSY, processes.EXIT_STOPPED]


def leases_of(store, run):
    with store.reading() as connection:
        return leases.attempts(connection, RunRow.fingerprint == run.fingerprint)
