"""Every process of an attempt ends with it: before its end is stored, and before another attempt starts."""

import os
import signal
from pathlib import Path

import labs_support as labs
import psutil
import pytest
from in_process import Threads, rows

from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.executors.base import LaunchedJob, ProcessesRemain

# Processes that a command leaves behind: a child of its shell, a daemon that has left the session, and one
# without the environment as well. Each writes its process id next to the log, and runs until it is killed.
STAYS = "echo $$ >> {directory}/pids; exec sleep 4321"
LEAVES = {
    "child": f"sh -c '{STAYS}' &",
    "daemon": f"setsid sh -c '{STAYS}' &",
    "nameless": f"env -i PATH=$PATH setsid sh -c '{STAYS}' &",
    "granddaemon": f"(setsid sh -c '{STAYS}' &) &",
}
BEGUN = "while ! [ -s {directory}/pids ]; do sleep 0.02; done"


def study(folder: Path, script: str, **parts: object) -> Path:
    """A study of one run, which is a shell script."""
    given = {"program": "command", "base": {"command": ["sh", "-c", script]}, "runs": {"shell": {}}}
    return labs.write_study(folder, **given, **parts)


def left_behind(root: Path) -> list[int]:
    """Return the running processes that have written down their ids."""
    pids = [int(line) for path in root.glob("runs/*/pids") for line in path.read_text().split()]
    return [pid for pid in pids if is_alive(pid)]


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(autouse=True)
def nothing_stays(root):
    yield
    for pid in left_behind(root):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", LEAVES)
def test_what_a_command_leaves_behind_ends_before_the_end_is_stored(root, tmp_path, unrecorded, kind):
    code = 3 if kind == "daemon" else 0
    spec = study(tmp_path, f"{LEAVES[kind]} {BEGUN}; exit {code}")
    (state, _), left = launched(root, spec)
    assert (state, left) == ("FAILED" if code else "COMPLETED", [])
    assert list(root.glob("runs/*/pids"))


def launched(root: Path, spec: Path) -> tuple[tuple[str, str | None], list[int]]:
    """Launch; return how the run ended, and the processes left when the store first says so."""
    over = "SELECT state, reason FROM run WHERE state IN ('COMPLETED', 'FAILED', 'CANCELLED')"
    seen: list[int] = []

    def look() -> None:
        labs.wait_until(lambda: rows(root, over))
        seen.extend(left_behind(root))

    with labs.meanwhile(look):
        labs.launch_here(root, spec)
    [run] = rows(root, over)
    return run, seen


def worker_of(root: Path) -> list[int]:
    return [pid for (pid,) in rows(root, "SELECT pid FROM attempt WHERE state = 'RUNNING'")]


def test_cancel_ends_what_a_killed_worker_has_left(root, tmp_path):
    """Its launcher was killed as well, as on a machine that runs out of memory."""
    spec = study(tmp_path, f"{LEAVES['granddaemon']} {BEGUN}; sleep 4321; exit 0")
    with labs.started("launch", spec, root=root) as launcher:
        labs.wait_until(lambda: left_behind(root))
        [worker] = labs.wait_until(lambda: worker_of(root))
        for pid in (launcher.pid, worker):
            os.kill(pid, signal.SIGKILL)
        launcher.wait()
        labs.wait_until(lambda: not is_alive(worker))
        assert left_behind(root)
        said = labs.here("cancel", "toy", root=root)
        assert left_behind(root) == []
        assert said.stdout.splitlines()[-1] == "1 run cancelled"
        assert labs.processes_of(root) == []


def test_a_killed_worker_takes_its_daemons_along(root, tmp_path, unrecorded):
    """Its launcher is alive and ends them."""
    spec = study(tmp_path, f"{LEAVES['daemon']} {BEGUN}; sleep 4321; exit 0")

    def kill() -> None:
        labs.wait_until(lambda: left_behind(root))
        os.kill(labs.wait_until(lambda: worker_of(root))[0], signal.SIGKILL)

    with labs.meanwhile(kill):
        assert launched(root, spec) == (("FAILED", "killed by SIGKILL"), [])


def test_no_attempt_starts_while_something_of_the_one_before_cannot_be_ended(
    root, tmp_path, machine, monkeypatch
):
    """For example, a process that waits for a dead disk: the launcher reports it and tries again."""
    spec = labs.write_study(tmp_path, runs={"uniform": {}}, resources={"retries": 1})
    asked: list[int] = []
    listener = Listener()
    stop = Threads.stop

    def stuck(executor: Threads, job: LaunchedJob, *, now: bool) -> None:
        asked.append(len(machine.jobs))
        if len(asked) < 5:
            raise ProcessesRemain("process 4711 was killed, and is still there")
        stop(executor, job, now=now)

    monkeypatch.setattr(Threads, "stop", stuck)
    machine.harm("uniform", "kill", 3)
    labs.launch_here(root, spec, listener=listener)
    assert asked[:5] == [1] * 5
    [note] = [note for note in listener.notes if "attempt 1" in note]
    assert note.startswith("attempt 1 is still running: process 4711 was killed, and is still there")
    assert len(machine.jobs) == 2
