"""A run on two nodes: one process on each, which compute together, also after they were preempted."""

import copy
import os
from typing import Any

import pytest
import yaml
from executor_harnesses import measured, train_here
from tests.models.conftest import TINY

from jestlab.platform.launch.executors.environment import threads_environment
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.load import load

STEPS = 300


def test_a_run_that_is_preempted_twice_has_the_results_of_two_undisturbed_processes(
    lab, tmp_path, monkeypatch
):
    monkeypatch.delenv("JESTLAB_STORE", raising=False)
    base: dict[str, Any] = copy.deepcopy(TINY)
    base["schedule"]["examples_seen"] = 16 * STEPS
    base["evaluation"]["points"] = 1
    base["runtime"] = {"log_every_steps": 2, "checkpoint_every_steps": STEPS}
    study = tmp_path / "pair.yaml"
    resources = {"on": "slurm", "nodes": 2, "retries": 0, "lease_seconds": 60.0}
    parts = {"name": "pair", "base": base, "runs": {"uniform": {}}, "resources": resources}
    study.write_text(yaml.safe_dump(parts))
    with lab.launching(study) as launcher:
        for attempt in (1, 2):
            lab.wait_for_progress(attempt)
            assert lab.cluster.tool("squeue", "-h", "-o", "%D").split() == ["2"]
            lab.cluster.preempt()
        said, _ = launcher.communicate(300)
        assert launcher.returncode == 0, said
    states = [state for state, _ in lab.attempts()]
    assert states == ["PREEMPTED", "PREEMPTED", "COMPLETED"], lab.attempts()
    here = lab.root.with_name("here")
    for name, value in threads_environment(1, os.environ["XLA_FLAGS"]).items():
        monkeypatch.setenv(name, value)
    train_here(here, plan(load(str(study))), 2)
    found, expected = measured(lab.root), measured(here)
    assert [row[:-1] for row in found] == [row[:-1] for row in expected]
    # Processes add up the estimate of distinct examples in an order that varies.
    assert [row[-1] for row in found] == pytest.approx([row[-1] for row in expected], rel=1e-12, nan_ok=True)
    assert len(found) > STEPS / 2
    log = next(lab.root.glob("runs/*/log.txt")).read_text()
    assert "2 device(s)" in log
