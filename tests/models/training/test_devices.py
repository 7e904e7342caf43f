"""One device, eight, and two processes with four each: the same losses, gradients, indices and scores.

Real processes: some are killed, some asked to stop, and they go on as if nothing had been.
"""

import json
import os
import random
import signal
import time

import numpy as np
import pytest
from filelock import FileLock
from tests.models.support.processes import start
from tests.models.support.steps_on_devices import STEPS_OF_A_RUN, prepare

from jestlab.models.devices import Devices
from jestlab.models.training import batches

pytestmark = pytest.mark.timeout(3_600)  # a dozen processes, each with its own compiler
LONGEST_SECONDS = 1_000
PLACES = {"one device": (1, 1), "eight devices": (1, 8), "two processes of four": (2, 4)}


def found_at(place, folder):
    """Return what a place found; of parallel test processes one asks, and the others read its answer."""
    processes, devices = PLACES[place]
    mine = folder / place
    with FileLock(folder / f"{place}.lock"):
        if not (mine / "out.json").exists():
            finish(start_in(mine, folder, "all", processes, devices))
    found = json.loads((mine / "out.json").read_text())
    assert found["devices"] == processes * devices
    return found["results"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A folder that all test processes of this session share, with what runs read."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "devices"
    with FileLock(f"{folder}.lock"):
        if not (folder / "reference/tokenizer.model").exists():  # what is made last
            prepare(folder)
    return folder


@pytest.fixture(scope="module")
def steps(shared):
    """Everything that each place found: a few steps, a run, and more."""
    return {place: found_at(place, shared) for place in PLACES}


@pytest.mark.parametrize("place", list(PLACES)[1:])
@pytest.mark.parametrize("loss", ["sigmoid", "softmax", "own"])
def test_the_ring_has_the_value_and_gradient_of_the_dense_loss(steps, place, loss):
    for ours, dense in zip(steps[place]["losses"][loss], steps["one device"]["losses"][loss], strict=True):
        np.testing.assert_allclose(ours, dense, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("place", list(PLACES)[1:])
@pytest.mark.parametrize("name", ["softmax", "flexi", "own"])
def test_steps_do_not_depend_on_the_devices(steps, place, name):
    for ours, alone in zip(steps[place][name], steps["one device"][name], strict=True):
        assert ours.get("selected") == alone.get("selected")
        assert_metrics_like(*({**metrics, "selected": 0} for metrics in (ours, alone)))


@pytest.mark.parametrize("place", list(PLACES)[1:])
def test_what_is_selected_does_not_depend_on_the_devices(steps, place):
    """The indices, among how many candidates they were chosen, and the sub-batch's score."""
    alone = steps["one device"]["selections"]
    for name, (indices, *numbers) in steps[place]["selections"].items():
        assert indices == alone[name][0], name
        for ours, theirs in zip(numbers, alone[name][1:], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("place", list(PLACES)[1:])
def test_an_evaluation_does_not_depend_on_the_devices(steps, place):
    """Every image and text has its embedding in its own row, whoever computed it."""
    for ours, alone in zip(steps[place]["evaluated"], steps["one device"]["evaluated"], strict=True):
        np.testing.assert_allclose(ours, alone, rtol=0, atol=1e-5)
        # Rows that were confused would be further from one another than that.
        assert len(np.unique(np.round(alone, 4), axis=0)) == len(alone)


def test_no_two_messages_of_a_step_are_on_their_way_at_once(steps):
    """XLA on CPU may else wait for ever, and now and then mix them up; so small, it hardly ever does."""
    pairs = steps["eight devices"]["messages"]
    assert len(pairs) > 20
    assert not [(one, other) for one, other, waits in pairs if not waits]


@pytest.fixture(scope="module")
def runs(steps):
    return {place: results["run"] for place, results in steps.items()}


def assert_metrics_like(found, expected):
    """The same metrics, but for rounding."""
    assert found.keys() == expected.keys()
    for metric, value in expected.items():
        # A score is a difference of two losses, and as exact as they are, however near to zero it comes.
        smallest = expected["loss"] * 1e-5 if metric.startswith("score") else 0.0
        assert found[metric] == pytest.approx(value, rel=2e-5, abs=smallest, nan_ok=True), metric


@pytest.mark.parametrize("place", list(PLACES)[1:])
def test_a_run_does_not_depend_on_the_devices(runs, place):
    """From data to scores; of several processes the first alone reports."""
    ours, alone = runs[place], runs["one device"]
    assert ours["metrics"].keys() == alone["metrics"].keys()
    for step, expected in alone["metrics"].items():
        assert_metrics_like(ours["metrics"][step], expected)
    # Ranks, of which near ties may tip two of 32; the embeddings that they are of are compared above.
    assert ours["scores"].keys() == alone["scores"].keys()
    for step, expected in alone["scores"].items():
        assert ours["scores"][step] == pytest.approx(expected, abs=0.07)


@pytest.mark.parametrize("place", list(PLACES))
def test_the_first_process_records_the_rows_that_it_loaded(runs, shared, place):
    """Of all that a step chose from, in the order of the whole super-batch."""
    alone = batches.load(shared / "one device" / "joint", 1)
    assert len(alone.examples) == 32 and len(alone.selected) == 16
    found = batches.load(shared / place / "joint", 1)
    rows = 32 // PLACES[place][0]
    assert np.array_equal(found.examples, alone.examples[:rows])
    np.testing.assert_allclose(found.scores, alone.scores[:rows], rtol=1e-4, atol=1e-5)
    assert found.selected.tolist() == [at for at in alone.selected.tolist() if at < rows]


def records(folder):
    """What a run recorded, by kind and step; a step recorded twice has to be recorded the same."""
    found: dict[str, dict[str, dict[str, float]]] = {"metrics": {}, "scores": {}}
    for line in (folder / "records.jsonl").read_text().splitlines():
        kind, step, values = json.loads(line)
        assert found[kind].setdefault(str(step), values) == values
    return found


def start_in(folder, data, what="train", processes=1, devices=1):
    folder.mkdir(exist_ok=True)
    return list(start(processes, devices, what, folder / "out.json", folder, data))


def finish(running):
    """Wait for processes to end well; none is left in any case."""
    try:
        for process in running:
            output, _ = process.communicate(timeout=LONGEST_SECONDS)
            assert process.returncode == 0, output[-3000:]
    finally:
        for process in running:
            process.kill()


def wait_for_step(folder, step, process):
    """Until a step is recorded, or the run ends."""
    path, began = folder / "records.jsonl", time.monotonic()
    while process.poll() is None:
        assert time.monotonic() - began < LONGEST_SECONDS
        if path.exists() and f'["metrics", {step},' in path.read_text():
            return
        time.sleep(0.002)


def test_killed_at_a_random_step_it_goes_on_bit_for_bit(tmp_path, shared, runs):
    """Selection, order of the data and evaluation included."""
    draw = random.Random(11)
    folder = tmp_path / "killed"
    (process,) = start_in(folder, shared)
    wait_for_step(folder, draw.randrange(2, STEPS_OF_A_RUN), process)
    time.sleep(draw.random() * 0.05)
    process.kill()
    process.communicate()
    finish(start_in(folder, shared))
    found = records(folder)
    assert all(found[kind] == runs["one device"][kind] for kind in found)


def test_two_processes_stop_when_one_is_asked_and_go_on(tmp_path, shared, runs):
    folder = tmp_path / "stopped"
    running = start_in(folder, shared, "train", 2, 4)
    wait_for_step(folder, 3, running[0])
    running[1].send_signal(signal.SIGTERM)
    finish(running)
    assert not json.loads((folder / "out.json").read_text())["results"]["run"]["done"]
    assert 3 <= max(map(int, records(folder)["metrics"])) < STEPS_OF_A_RUN
    finish(start_in(folder, shared, "train", 2, 4))
    assert json.loads((folder / "out.json").read_text())["results"]["run"]["done"]
    for kind, found in records(folder).items():
        assert found == runs["two processes of four"][kind]


def test_devices_that_do_not_divide_the_batches_are_left_out(caplog):
    import jax

    count = len(jax.devices())
    assert Devices.for_sizes(count * 4, 0).count == count
    assert Devices.for_sizes(1).count == 1
