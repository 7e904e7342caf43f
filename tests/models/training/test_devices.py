"""One device, eight, and two processes with four each: the same losses, indices, metrics and scores.

In real processes. What the devices exchange is tested within one process, in `test_losses`,
`test_device_choice` and `selection`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cluster.ports import free_port
from tests.models.support import steps_on_devices
from tests.models.support.steps_on_devices import CONFIGS, assert_metrics_like, prepare

from jestlab.models.training import records

pytestmark = pytest.mark.timeout(3_600)  # up to nine processes, each with its own compiler
LONGEST_SECONDS = 1_000


def results_of(processes, devices, what, folder, *data):
    """Run `steps_on_devices` as processes that compute together; none is left afterwards."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", steps_on_devices.__name__, what, folder / "out.json", folder, *data]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XLA_FLAGS": flags.strip()}
    if processes > 1:
        environment["JAX_COORDINATOR_ADDRESS"] = f"127.0.0.1:{free_port()}"
        environment["JAX_NUM_PROCESSES"] = str(processes)
    running = [
        subprocess.Popen(
            command,
            cwd=Path(__file__).parents[3],
            env=environment | ({"JAX_PROCESS_ID": str(number)} if processes > 1 else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(processes)
    ]
    try:
        for process in running:
            output, _ = process.communicate(timeout=LONGEST_SECONDS)
            assert process.returncode == 0, output[-3000:]
    finally:
        for process in running:
            process.kill()
    found = json.loads((folder / "out.json").read_text())
    assert found["devices"] == processes * devices
    return found["results"]


def assert_messages_wait(pairs, count):
    """Of two messages one waits for the other: XLA on CPU may deadlock otherwise, or mix them up."""
    assert len(pairs) >= count
    assert not [(one, other) for one, other, waits in pairs if not waits]


def test_a_step_does_not_depend_on_the_devices(tmp_path):
    found = results_of(1, 2, "compare", tmp_path)
    for together, alone in zip(found["together"], found["alone"], strict=True):
        assert_metrics_like(together, alone)
    assert_messages_wait(found["messages"], 3)


@pytest.mark.full
def test_steps_and_a_run_do_not_depend_on_the_devices(tmp_path):
    prepare(tmp_path)
    places = {"1": (1, 1), "8": (1, 8), "2x4": (2, 4)}
    results = {name: results_of(*place, "all", tmp_path / name, tmp_path) for name, place in places.items()}
    alone = results.pop("1")
    for name, rows in (("8", 32), ("2x4", 16)):
        for config in CONFIGS:
            for ours, theirs in zip(results[name][config], alone[config], strict=True):
                assert_metrics_like(ours, theirs)
        assert_same_run(results[name]["run"], alone["run"])
        assert_records_rows(tmp_path / name, tmp_path / "1", rows)
    assert_messages_wait(results["8"]["messages"], 20)

    # If one process is asked to stop, both stop; the run resumes bit for bit.
    stopped = results_of(2, 4, "stop", tmp_path / "stopped", tmp_path)["run"]
    resumed = results_of(2, 4, "train", tmp_path / "stopped", tmp_path)["run"]
    assert resumed["done"] and not stopped["done"]
    assert max(map(int, stopped["metrics"])) == 3
    for kind in ("metrics", "scores"):
        assert stopped[kind] | resumed[kind] == results["2x4"]["run"][kind]


def assert_same_run(found, expected):
    """From data to scores; of several processes only the first reports."""
    for kind in ("metrics", "scores"):
        assert found[kind].keys() == expected[kind].keys()
    for step, metrics in expected["metrics"].items():
        assert_metrics_like(found["metrics"][step], metrics)
    for step, scores in expected["scores"].items():
        assert found["scores"][step] == pytest.approx(scores, abs=0.07)  # near ties may change 2 of 32 ranks


def assert_records_rows(folder, alone, rows):
    """The first process records the first rows of the super-batch, which it loaded."""
    found, expected = (records.load(path / "joint", 1) for path in (folder, alone))
    assert len(expected.examples) == 32 and len(expected.selected) == 16
    assert np.array_equal(found.examples, expected.examples[:rows])
    np.testing.assert_allclose(found.scores, expected.scores[:rows], rtol=1e-4, atol=1e-5)
    assert found.selected.tolist() == [at for at in expected.selected.tolist() if at < rows]
