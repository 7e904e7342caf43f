"""`jestlab launch --detach` goes on without its terminal, and `jestlab attach` shows it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import labs_support as labs

from jestlab.platform.launch import detached


def detach(spec: Path, root: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return labs.here("launch", spec, "--detach", *words, root=root)


def process_of(said: str) -> int:
    match = re.search(r"^toy is launched by process (\d+) on ", said)
    assert match is not None, said
    return int(match[1])


@contextmanager
def ended(root: Path):
    """Whatever a test leaves of a lab is killed."""
    try:
        yield
    finally:
        for pid in labs.processes_of(root):
            os.kill(pid, signal.SIGKILL)


def gated(tmp_path: Path) -> Path:
    runs = {"uniform": {"steps": 60, "gate": str(tmp_path / "gate")}}
    return labs.write_study(tmp_path, runs=runs, reports=["table"])


def test_it_goes_on_alone_and_can_be_attached_to(root, tmp_path):
    spec = gated(tmp_path)
    with ended(root):
        begun = detach(spec, root, "--store", f"sqlite:///{root}/own.db")
        assert begun.returncode == 0, begun.stderr
        pid = process_of(begun.stdout)
        command = Path(f"/proc/{pid}/cmdline").read_text()
        assert "--store" not in command and "own.db" not in command
        assert os.getsid(pid) == pid
        again = detach(spec, root, "--store", f"sqlite:///{root}/own.db")
        assert again.returncode == 1
        assert again.stderr.startswith("jestlab: toy is launched already on ")
        assert f", process {pid}, log {root}/launches/" in again.stderr
        labs.wait_until(lambda: labs.starts(root, "uniform"))
        store = ("--store", f"sqlite:///{root}/own.db")
        with labs.started("attach", "toy", *store, root=root / "elsewhere") as attached:
            first = attached.stdout.readline()
            assert first == "1 to run\n"
            attached.send_signal(signal.SIGINT)
            said = attached.communicate()[0]
            assert attached.wait() == 130
            assert "the launch goes on: jestlab attach toy --root " in said
        os.kill(pid, 0)
        with labs.started("attach", "toy", *store, root=root / "elsewhere") as attached:
            assert attached.stdout.readline() == "1 to run\n"
            assert attached.stdout.readline().startswith("RUNNING    toy/uniform/0")
            (tmp_path / "gate").touch()
            said = attached.communicate()[0]
            assert attached.wait() == 0
        assert said.startswith("[1/1] COMPLETED  toy/uniform/0")
        assert said.count("uniform") > 1, said  # in its table, too
        [log] = [Path(line.split()[1]) for line in begun.stdout.splitlines() if line.startswith("log:")]
        labs.wait_until_ended(root)
        assert "COMPLETED" in log.read_text()


def test_cancel_stops_what_was_launched(root, tmp_path):
    with ended(root):
        assert detach(gated(tmp_path), root).returncode == 0
        labs.wait_until(lambda: labs.starts(root, "uniform"))
        assert labs.here("cancel", "toy", root=root).stdout.splitlines()[-1] == "1 run cancelled"
        labs.wait_until_ended(root)
    after = labs.here("attach", "toy", root=root)
    assert after.returncode == 1
    assert after.stdout.splitlines()[-1] == "1 CANCELLED"
    data = labs.here("attach", "toy", "--json", root=root)
    [run] = json.loads(data.stdout)
    assert (data.returncode, run["run"], run["state"]) == (1, "uniform", "CANCELLED")


def test_what_is_refused_is_refused_in_the_terminal(root, tmp_path):
    spec = labs.write_study(tmp_path, runs={"uniform": {}})
    refused = detach(spec, root, "--max-chip-hours", 0)
    assert refused.returncode == 1
    assert "--max-chip-hours cannot be checked" in refused.stderr
    assert detach(spec, root, "--json").returncode == 2


def test_a_password_in_the_address_of_the_store_is_no_part_of_the_command():
    url = "postgresql://me:secret@host/db"
    words = ["launch", "toy.yaml", "--store", url, "--root", "lab", f"--store={url}"]
    assert detached._without_store(words) == ["launch", "toy.yaml", "--root", "lab"]
