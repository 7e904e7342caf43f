"""One device, eight, and two processes with four each: the same losses, gradients, indices and scores."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jestlab.models.devices import Devices

SCRIPT = Path(__file__).parents[1] / "support/steps_on_devices.py"
PLACES = {"one device": (1, 1), "eight devices": (1, 8), "two processes of four": (2, 4)}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(processes, devices, *arguments):
    """The script as so many processes, each with so many devices."""
    port = free_port()
    for number in range(processes):
        environment = os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
        if processes > 1:
            environment |= {
                "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
                "JAX_NUM_PROCESSES": str(processes),
                "JAX_PROCESS_ID": str(number),
            }
        yield subprocess.Popen(
            [sys.executable, SCRIPT, *map(str, arguments)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def results(what, folder):
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
def steps(tmp_path_factory):
    return results("steps", tmp_path_factory.mktemp("steps"))


@pytest.mark.parametrize("place", list(PLACES)[1:])
@pytest.mark.parametrize("loss", ["sigmoid", "softmax"])
def test_the_ring_has_the_value_and_gradient_of_the_dense_loss(steps, place, loss):
    for ours, dense in zip(steps[place]["losses"][loss], steps["one device"]["losses"][loss], strict=True):
        np.testing.assert_allclose(ours, dense, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("place", list(PLACES)[1:])
@pytest.mark.parametrize("name", ["softmax", "joint", "flexi", "patch_drop"])
def test_steps_do_not_depend_on_the_devices(steps, place, name):
    for ours, alone in zip(steps[place][name], steps["one device"][name], strict=True):
        assert ours.keys() == alone.keys()
        assert ours.get("selected") == alone.get("selected")
        for metric in ours.keys() - {"selected"}:
            assert ours[metric] == pytest.approx(alone[metric], rel=1e-5), metric


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return results("train", tmp_path_factory.mktemp("train"))


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
