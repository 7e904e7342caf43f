"""The client without a worker: copied elsewhere, or when the worker is gone."""

import os
import shutil
import subprocess
import sys

import pytest

from jestlab.platform import client

SCRIPT = """
run = client.run()
assert (run.seed, run.resume, run.config, run.needs) == (0, None, {}, {})
run.log(3, loss=0.5)
run.log(4, {"grad/norm": 2}, loss=0.25)
run.evaluation(4, 64, 1e6, {"toy/top1": 0.5})
run.evaluation(5, scores={"toy/top1": 0.75}, seconds=2)
run.progress(4, 10)
client.time.perf_counter = iter(range(100)).__next__
with run.phase("checkpoint"):
    with run.phase("evaluation"):
        pass
run.artifact("model", "model.npz")
run.flush()
print(run.stop_requested(), run.directory)
"""


def test_a_copy_of_the_file_prints_without_a_worker_and_without_jestlab(tmp_path):
    shutil.copy(str(client.__file__), tmp_path / "client.py")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JESTLAB_")}
    script = "import sys; sys.path.insert(0, '.'); import client" + SCRIPT
    command = [sys.executable, "-I", "-S", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "log: step 3, loss 0.5",
        "log: step 4, grad/norm 2.0, loss 0.25",
        "evaluation: step 4, examples_seen 64, flops_total 1000000.0, toy/top1 0.5",
        "evaluation: step 5, seconds 2.0, toy/top1 0.75",
        "progress: step 4, total_steps 10",
        "phase: name evaluation, seconds 1.0",
        "phase: name checkpoint, seconds 2.0",
        f"artifact: name model, path {tmp_path}/model.npz",
        f"False {tmp_path}",
    ]


def test_without_its_worker_it_says_so(monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for name, value in {
        "JESTLAB_REPORTS": "/proc/1/fd/999999",
        "JESTLAB_REPLIES": "/proc/1/fd/999999",
        "JESTLAB_SEED": "0",
        "JESTLAB_RUN_DIR": str(tmp_path),
        "JESTLAB_RESUME": "",
        "JESTLAB_RUN_CONFIG": str(tmp_path / "config.json"),
        "JESTLAB_NEEDS": "{}",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConnectionError, match="worker has ended"):
        client.run()
