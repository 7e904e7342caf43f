"""One device, eight, and two processes with four each: the same losses, gradients, indices and scores."""

import json
import os

import numpy as np
import pytest
from filelock import FileLock
from tests.models.support.processes import start

from jestlab.models.devices import Devices

PLACES = {"one device": (1, 1), "eight devices": (1, 8), "two processes of four": (2, 4)}


def results(what, folder):
    """What each place found; of parallel test processes one asks, and the others read its answer."""
    kept = folder / f"{what}.json"
    with FileLock(folder / f"{what}.lock"):
        if not kept.exists():
            work = folder / what
            work.mkdir()
            kept.write_text(json.dumps(_results(what, work)))
    return json.loads(kept.read_text())


def _results(what, folder):
    found = {}
    for place, (processes, devices) in PLACES.items():
        mine = folder / place
        mine.mkdir()
        running = list(start(processes, devices, what, mine / "out.json", mine))
        for process in running:
            output, _ = process.communicate(timeout=500)
            assert process.returncode == 0, output[-3000:]
        found[place] = json.loads((mine / "out.json").read_text())
        assert found[place]["devices"] == processes * devices
    return {place: result["results"] for place, result in found.items()}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A folder that all test processes of this session share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base


@pytest.fixture(scope="module")
def steps(shared):
    return results("steps", shared)


@pytest.mark.parametrize("place", list(PLACES)[1:])
@pytest.mark.parametrize("loss", ["sigmoid", "softmax"])
def test_the_ring_has_the_value_and_gradient_of_the_dense_loss(steps, place, loss):
    for ours, dense in zip(steps[place]["losses"][loss], steps["one device"]["losses"][loss], strict=True):
        np.testing.assert_allclose(ours, dense, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("place", list(PLACES)[1:])
@pytest.mark.parametrize("name", ["softmax", "joint", "flexi"])
def test_steps_do_not_depend_on_the_devices(steps, place, name):
    for ours, alone in zip(steps[place][name], steps["one device"][name], strict=True):
        assert ours.keys() == alone.keys()
        assert ours.get("selected") == alone.get("selected")
        for metric in ours.keys() - {"selected"}:
            assert ours[metric] == pytest.approx(alone[metric], rel=1e-5), metric


@pytest.fixture(scope="module")
def runs(shared):
    return results("train", shared)


@pytest.mark.parametrize("place", list(PLACES)[1:])
def test_a_run_does_not_depend_on_the_devices(runs, place):
    """From data to scores; of several processes the first alone reports."""
    ours, alone = runs[place], runs["one device"]
    assert ours["metrics"].keys() == alone["metrics"].keys() == {str(step) for step in range(1, 7)}
    for step, metrics in alone["metrics"].items():
        assert ours["metrics"][step] == pytest.approx(metrics, rel=1e-5)
    assert ours["scores"] == pytest.approx(alone["scores"], abs=0.02)


def test_devices_that_do_not_divide_the_batches_are_left_out(caplog):
    import jax

    count = len(jax.devices())
    assert Devices.for_sizes(count * 4, 0).count == count
    assert Devices.for_sizes(1).count == 1
