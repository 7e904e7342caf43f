"""One device, eight, and two processes with four each: the same losses, indices, metrics and scores.

In real processes. What the devices exchange is tested within one process, in `test_losses`, `test_devices`
and `selection`.
"""

import json

import numpy as np
import pytest
from tests.models.support.processes import start
from tests.models.support.steps_on_devices import CONFIGS, assert_metrics_like, prepare

from jestlab.models.training import batches

pytestmark = pytest.mark.timeout(3_600)  # up to nine processes, each with its own compiler
LONGEST_SECONDS = 1_000


def results_of(processes, devices, what, folder, *data):
    """Run `steps_on_devices.py` in a folder; no process is left afterwards."""
    folder.mkdir(exist_ok=True)
    running = start(processes, devices, what, folder / "out.json", folder, *data)
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
    alone = results_of(1, 1, "all", tmp_path / "1", tmp_path)
    eight = results_of(1, 8, "all", tmp_path / "8", tmp_path)
    two_processes = results_of(2, 4, "all", tmp_path / "2x4", tmp_path)
    for found in (eight, two_processes):
        for name in CONFIGS:
            for ours, theirs in zip(found[name], alone[name], strict=True):
                assert_metrics_like(ours, theirs)
        assert_same_run(found["run"], alone["run"])
    assert_messages_wait(eight["messages"], 20)
    assert_records_rows(tmp_path / "8", tmp_path / "1", 32)
    assert_records_rows(tmp_path / "2x4", tmp_path / "1", 16)

    # If one process is asked to stop, both stop; the run resumes bit for bit.
    stopped = results_of(2, 4, "stop", tmp_path / "stopped", tmp_path)["run"]
    resumed = results_of(2, 4, "train", tmp_path / "stopped", tmp_path)["run"]
    assert resumed["done"] and not stopped["done"]
    assert max(map(int, stopped["metrics"])) == 3
    for kind in ("metrics", "scores"):
        assert stopped[kind] | resumed[kind] == two_processes["run"][kind]


def assert_same_run(found, expected):
    """From data to scores; of several processes only the first reports."""
    assert found["metrics"].keys() == expected["metrics"].keys()
    for step, metrics in expected["metrics"].items():
        assert_metrics_like(found["metrics"][step], metrics)
    # Near ties may change two of 32 ranks.
    assert found["scores"].keys() == expected["scores"].keys()
    for step, scores in expected["scores"].items():
        assert found["scores"][step] == pytest.approx(scores, abs=0.07)


def assert_records_rows(folder, alone, rows):
    """The first process records the first rows of the super-batch, which it loaded."""
    found, expected = (batches.load(path / "joint", 1) for path in (folder, alone))
    assert len(expected.examples) == 32 and len(expected.selected) == 16
    assert np.array_equal(found.examples, expected.examples[:rows])
    np.testing.assert_allclose(found.scores, expected.scores[:rows], rtol=1e-4, atol=1e-5)
    assert found.selected.tolist() == [at for at in expected.selected.tolist() if at < rows]
