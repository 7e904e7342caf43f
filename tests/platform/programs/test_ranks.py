"""Several processes of a command: their variables, their output, their reports, and their end."""

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.platform.programs.test_command import PYTHON, command, literally
from tests.waiting import wait_until
from workers_support import finished, recorded, worker

from jestlab.models.processes import Place
from jestlab.platform import client, processes
from jestlab.platform.lab.lab import Lab
from jestlab.platform.programs.failures import headline
from jestlab.platform.programs.ranks import TASKS, Ranks

OURS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
# In one write of less than 4 KB, so that the lines of several processes stay whole.
SHOW = (
    "import json, os; short = dict(each for each in os.environ.items() if len(each[1]) < 40);"
    "os.write(1, b'VARIABLES ' + json.dumps(short).encode() + bytes([10]))"
)


@pytest.fixture
def lab(root: Path) -> Lab:
    return Lab.find(root)


def shown(said: str) -> list[dict[str, str]]:
    """The environments that the processes of a command printed, by rank."""
    found = [json.loads(line.split(" ", 1)[1]) for line in said.splitlines() if line.startswith("VARIABLES")]
    return sorted(found, key=lambda variables: variables.get("RANK", ""))


def rows(lab: Lab, query: str) -> list[Any]:
    with closing(sqlite3.connect(lab.root / "results.db")) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize(("nodes", "tasks"), [(1, 4), (2, 1), (2, 3)])
def test_ranks_count_the_processes_of_one_machine_after_another(nodes, tasks):
    inherited = {"SLURM_PROCID": "9", "JAX_PROCESS_ID": "9"}
    made = [
        Ranks(tasks, Place(node, nodes, "first", 29_400)).variables(local, inherited)
        for node in range(nodes)
        for local in range(tasks)
    ]
    expected = [
        {
            "RANK": str(rank), "SLURM_PROCID": str(rank), "JAX_PROCESS_ID": str(rank),
            "WORLD_SIZE": str(nodes * tasks), "LOCAL_RANK": str(rank % tasks),
            "LOCAL_WORLD_SIZE": str(tasks), "NODE_RANK": str(rank // tasks),
            "MASTER_ADDR": "first", "MASTER_PORT": "29400",
        }
        for rank in range(nodes * tasks)
    ]  # fmt: skip
    torchrun = [
        {
            "PET_NNODES": "2",
            "PET_NODE_RANK": str(rank // tasks),
            "PET_MASTER_ADDR": "first",
            "PET_MASTER_PORT": "29400",
        }
        for rank in range(nodes * tasks)
    ]
    assert made == [ours | (more if nodes > 1 else {}) for ours, more in zip(expected, torchrun, strict=True)]


def test_the_only_process_has_no_variables_of_another_launcher(lab, monkeypatch):
    for name in (*OURS, "GROUP_RANK", "PET_NNODES", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "3")
    for name in ("SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.setenv(name, "3")
    run = command(*PYTHON, SHOW)
    recorded(lab, run)
    [variables] = shown(finished(lab, run)[1])
    assert not {*OURS, "GROUP_RANK", "PET_NNODES", "TORCHELASTIC_RUN_ID"} & variables.keys()
    assert (variables["SLURM_PROCID"], variables["SLURM_NTASKS"]) == ("0", "1")


def test_each_process_has_its_rank_and_the_first_one_reports(lab, monkeypatch):
    monkeypatch.setenv(TASKS, "3")
    script = (
        "from jestlab.platform import client; run = client.run();"
        "rank = float(os.environ['RANK']); run.log(1 + int(rank), {'rank': rank}); run.flush();"
        "run.evaluation(1 + int(rank), scores={'toy/rank': rank});"
        "run.directory.joinpath(f'{rank:g}').touch()"
    )
    run = command(*PYTHON, literally(f"{SHOW}; {script}"))
    recorded(lab, run)
    code, said = finished(lab, run)
    assert code == processes.EXIT_COMPLETED, said
    found = shown(said)
    assert [[each[name] for name in OURS[:6]] for each in found] == [
        [str(rank), "3", str(rank), "3", "0", "127.0.0.1"] for rank in range(3)
    ]
    assert len({each["MASTER_PORT"] for each in found}) == 1
    assert not any("PET_NNODES" in each for each in found)
    assert rows(lab, "SELECT value FROM v_metrics WHERE name = 'rank'") == [(0.0,)]
    assert rows(lab, "SELECT value FROM v_evaluations") == [(0.0,)]
    assert {"0", "1", "2"} <= {path.name for path in (lab.root / run.directory).iterdir()}


def test_a_process_that_fails_ends_the_others_and_is_named(lab, monkeypatch):
    monkeypatch.setenv(TASKS, "3")
    script = (
        "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit('no more data')\n"
        "open(os.environ['JESTLAB_RUN_DIR'] + '/' + os.environ['RANK'], 'w').write(str(os.getpid()))\n"
        "time.sleep(600)"
    )
    run = command(*PYTHON, script)
    recorded(lab, run)
    code, said = finished(lab, run)
    [(state, reason)] = rows(lab, "SELECT state, reason FROM run")
    assert (code, state) == (processes.EXIT_FAILED, "FAILED"), said
    assert reason.startswith("rank 1 on ")
    assert reason.endswith(": exit code 1: no more data")
    assert headline(reason).startswith("no more data (exit code 1, rank 1 on ")


def test_each_process_can_save_when_the_run_is_stopped(lab, monkeypatch):
    monkeypatch.setenv(TASKS, "3")
    script = (
        "import os, time; from jestlab.platform import client; run = client.run();\n"
        "at = run.directory / os.environ['RANK']; run.stop_requested(); at.write_text('began')\n"
        "while not run.stop_requested(): time.sleep(0.01)\n"
        "time.sleep(0.1 * run.config['late'] * int(os.environ['RANK'])); at.write_text('saved')"
    )
    run = command(*PYTHON, literally(script), late=3)
    recorded(lab, run)
    process = worker(lab, run)
    folder = lab.root / run.directory
    wait_until(lambda: all((folder / str(rank)).exists() for rank in range(3)))
    process.send_signal(signal.SIGTERM)
    assert process.wait() == processes.EXIT_STOPPED
    assert [(folder / str(rank)).read_text() for rank in range(3)] == ["saved"] * 3
    assert rows(lab, "SELECT state FROM run") == [("PREEMPTED",)]


def test_without_jestlab_only_rank_0_prints(monkeypatch, capsys):
    monkeypatch.delenv("JESTLAB_REPORTS", raising=False)
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        run = client.run()
        with run.phase("evaluation"):
            run.log(int(rank), loss=0.5)
        run.flush()
        assert not run.stop_requested()
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "log: step 0, loss 0.5"
    assert "step 1" not in said


def test_threads_are_divided_among_the_processes():
    from jestlab.platform.spec.resources import Resources

    assert Resources(threads=8, tasks_per_node=3).threads_per_task == 2
    assert Resources(tasks_per_node=2).threads_per_task == 1
