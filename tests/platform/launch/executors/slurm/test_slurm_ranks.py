"""A command of several processes on two nodes: PyTorch's DistributedDataParallel, and what ends it."""

import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import labs_support as labs
import psutil
import pytest
from tests.waiting import wait_until

from jestlab.platform.processes import start_of

pytest.importorskip("torch")

SCRIPT = Path(labs.__file__).with_name("ddp.py")
PLAIN = [sys.executable, str(SCRIPT)]
TORCHRUN = [str(Path(sys.executable).with_name("torchrun")), "--nproc-per-node", "2", str(SCRIPT)]
SCORES = "SELECT run, name, value FROM v_evaluations"
SECONDS = 150.0


@pytest.fixture(autouse=True)
def without_a_store(monkeypatch):
    monkeypatch.delenv("JESTLAB_STORE", raising=False)


def study(lab: Any, command: Sequence[str], name: str = "ddp", **given: Any) -> Path:
    """Write a study of one run; `given` are resources, and `steps` and `fails` of its config."""
    base = {"command": list(command), "steps": given.pop("steps", 20), "fails": given.pop("fails", -1)}
    resources = {"on": "slurm", "retries": 0, "lease_seconds": 60.0, "nodes": 2} | given
    parts = {"name": name, "base": base, "runs": {name: {}}, "resources": resources, "metrics": {}}
    return labs.write_study(lab.root.parent, **parts, program="command")


def launched(lab: Any, study: Path) -> str:
    with lab.launching(study) as launcher:
        said, _ = launcher.communicate(SECONDS)
    return str(said)


def wait_for_ranks(lab: Any) -> list[int]:
    """Wait until all processes train, and return their ids by rank."""
    wait_until(lambda: len(list(lab.root.glob("runs/*/rank-*"))) == 4, SECONDS)
    files = [next(lab.root.glob(f"runs/*/rank-{rank}")) for rank in range(4)]
    wait_until(lambda: all(file.read_text() for file in files))
    return [int(file.read_text()) for file in files]


def have_ended(pids: Sequence[int]) -> bool:
    return all(start_of(pid) is None for pid in pids)


def test_two_nodes_have_the_results_of_one_process(lab):
    lab.hurry()
    one = [*TORCHRUN[:2], "1", TORCHRUN[3]]
    launched(lab, study(lab, one, "one", nodes=1))
    launched(lab, study(lab, PLAIN, "plain", tasks_per_node=2))
    said = launched(lab, study(lab, TORCHRUN, "torchrun"))
    assert lab.attempts() == [("COMPLETED", "")] * 3, said
    found = {
        run: {name: value for other, name, value in lab.rows(SCORES) if other == run}
        for run in ("one", "plain", "torchrun")
    }
    assert len(found["one"]) == 4
    assert found["plain"] == pytest.approx(found["one"], abs=1e-6)
    assert found["torchrun"] == pytest.approx(found["one"], abs=1e-6)


@pytest.mark.parametrize("rank", [1, 2])
def test_a_rank_that_fails_ends_all_with_its_reason(lab, rank):
    with lab.launching(study(lab, PLAIN, tasks_per_node=2, steps=10_000, fails=rank)) as launcher:
        pids = wait_for_ranks(lab)
        said, _ = launcher.communicate(SECONDS)
        wait_until(lambda: have_ended(pids))
    [(state, reason)] = lab.attempts()
    assert state == "FAILED", said
    assert re.match(rf"rank {rank} on n{1 + rank // 2}: exit code 1: .*no more data", reason), reason


@pytest.mark.parametrize("rank", [0, 3])
def test_a_killed_rank_ends_all_and_the_run_resumes(lab, rank):
    with lab.launching(study(lab, PLAIN, tasks_per_node=2, steps=200, retries=2)) as launcher:
        pids = wait_for_ranks(lab)
        lab.wait_for_step(11)
        os.kill(pids[rank], signal.SIGKILL)
        wait_until(lambda: have_ended(pids), 30.0)
        lab.hurry()
        said, _ = launcher.communicate(SECONDS)
        assert launcher.returncode == 0, said
    assert [state for state, _ in lab.attempts()] == ["FAILED", "COMPLETED"], lab.attempts()
    assert len(lab.rows(SCORES)) == 4
    [(first,)] = lab.rows("SELECT resumed_step FROM attempt WHERE number = 2")
    assert first >= 10


def test_all_ranks_save_when_the_job_is_preempted_and_end_when_a_node_is_lost(lab):
    with lab.launching(study(lab, PLAIN, tasks_per_node=2, steps=400, retries=2)) as launcher:
        pids = wait_for_ranks(lab)
        lab.wait_for_step(2)
        lab.cluster.preempt()
        wait_until(lambda: have_ended(pids), 30.0)
        assert lab.attempts()[0][0] == "PREEMPTED"
        lab.wait_for_progress(2)
        pids = wait_for_ranks(lab)
        lab.cluster.kill("n2")
        for pid in (pids[2], pids[3], *parents(pids[2:])):
            os.kill(pid, signal.SIGKILL)
        lab.cluster.tool("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test")
        wait_until(lambda: have_ended(pids), 60.0)
        lab.cluster.begin("n2")
        lab.cluster.tool("scontrol", "update", "NodeName=n2", "State=RESUME", check=False)
        lab.hurry()
        said, _ = launcher.communicate(SECONDS)
        assert launcher.returncode == 0, said
    states = [state for state, _ in lab.attempts()]
    assert (states[0], states[-1]) == ("PREEMPTED", "COMPLETED"), lab.attempts()
    assert len(lab.rows(SCORES)) == 4


def test_all_ranks_stop_before_the_time_limit_and_resume(lab):
    with lab.launching(study(lab, PLAIN, tasks_per_node=2, steps=600, time="1m")) as launcher:
        wait_until(lambda: len(lab.attempts()) == 2, SECONDS)
        lab.hurry()
        said, _ = launcher.communicate(SECONDS)
        assert launcher.returncode == 0, said
    *stopped, last = lab.attempts()
    assert set(stopped) == {("PREEMPTED", "stopped before its time limit")}
    assert last == ("COMPLETED", "")


def test_cancelling_a_run_reaches_all_nodes(lab):
    with lab.launching(study(lab, PLAIN, tasks_per_node=2, steps=10_000)) as launcher:
        pids = wait_for_ranks(lab)
        assert labs.here("cancel", "ddp", root=lab.root).returncode == 0
        wait_until(lambda: have_ended(pids), 60.0)
        launcher.communicate(SECONDS)
    assert [state for state, _ in lab.attempts()] == ["CANCELLED"]


def parents(pids: Sequence[int]) -> set[int]:
    return {psutil.Process(pid).ppid() for pid in pids}
