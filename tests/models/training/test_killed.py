"""Runs that are killed or asked to stop, as real processes: they record what an undisturbed run records."""

import json
import random
import signal
import time

import pytest
from tests.models.support.processes import start

STEPS = 16
LONGEST_SECONDS = 400


def records(folder):
    """What was recorded, by kind and step; a step recorded twice has to be recorded the same."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for line in (folder / "records.jsonl").read_text().splitlines():
        kind, step, values = json.loads(line)
        assert found.setdefault((kind, step), values) == values
    return found


def run(folder, processes=1, devices=1):
    folder.mkdir(exist_ok=True)
    return list(start(processes, devices, "train", folder / "out.json", folder, STEPS_OF_A_RUN=str(STEPS)))


def finish(running):
    for process in running:
        output, _ = process.communicate(timeout=LONGEST_SECONDS)
        assert process.returncode == 0, output[-3000:]


def wait_for_step(folder, step, process):
    """Until a step is recorded, or the run ends."""
    path, began = folder / "records.jsonl", time.monotonic()
    while process.poll() is None:
        assert time.monotonic() - began < LONGEST_SECONDS
        if path.exists() and f'["metrics", {step},' in path.read_text():
            return
        time.sleep(0.002)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(run(folder))
    found = records(folder)
    assert len(found) == STEPS + 2
    return found


def test_killed_at_random_steps_it_goes_on_bit_for_bit(tmp_path, undisturbed):
    """Selection, order of the data and evaluation included."""
    draw = random.Random(11)
    folder = tmp_path / "killed"
    for step in sorted(draw.sample(range(2, STEPS), 2)):
        (process,) = run(folder)
        wait_for_step(folder, step, process)
        time.sleep(draw.random() * 0.05)
        process.kill()
        process.communicate()
    finish(run(folder))
    assert records(folder) == undisturbed


def test_two_processes_stop_when_one_is_asked_and_go_on(tmp_path, undisturbed):
    folder = tmp_path / "stopped"
    running = run(folder, 2, 2)
    wait_for_step(folder, 3, running[0])
    running[1].send_signal(signal.SIGTERM)
    finish(running)
    told = json.loads((folder / "out.json").read_text())["results"]
    assert not told["done"]
    stopped_at = max(step for _, step in records(folder))
    assert 3 <= stopped_at < STEPS
    finish(run(folder, 2, 2))
    assert json.loads((folder / "out.json").read_text())["results"]["done"]
    found = records(folder)
    assert found.keys() == undisturbed.keys()
    for key, values in undisturbed.items():
        rel, abs_ = (1e-5, 0.0) if key[0] == "metrics" else (0.0, 0.02)
        assert found[key] == pytest.approx(values, rel=rel, abs=abs_)
