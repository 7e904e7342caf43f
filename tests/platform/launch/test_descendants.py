"""Every process of an attempt ends with it: before it is told how it ended, and before another one starts."""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path

import labs_support as labs
import psutil
import pytest
from workers_support import ForkingLocal

from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.executor import LaunchedJob, StillRuns
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.load import load

# What a command may leave behind: a child of its shell, a daemon that has left the session, and one that has
# forgotten its environment, too. Each writes its process id beside the log, and lives for ever.
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
    """The processes that have written down who they are, and run."""
    lines = [line for path in root.glob("runs/*/pids") for line in path.read_text().split()]
    return [pid for pid in map(int, lines) if is_alive(pid)]


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def states(root: Path) -> list[tuple[str, str | None]]:
    return sqlite3.connect(root / "results.db").execute("SELECT state, reason FROM run").fetchall()


@pytest.fixture(autouse=True)
def nothing_stays(root):
    yield
    for pid in left_behind(root):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", LEAVES)
@pytest.mark.parametrize("code", [0, 3])
def test_what_a_command_leaves_behind_ends_before_its_end_is_told(root, tmp_path, kind, code):
    spec = study(tmp_path, f"{LEAVES[kind]} {BEGUN}; exit {code}")
    seen: list[list[int]] = []
    with labs.meanwhile(lambda: labs.wait_until(lambda: when_over(root, seen))):
        labs.launch_here(root, plan(load(str(spec))))
    assert states(root)[0][0] == ("FAILED" if code else "COMPLETED")
    assert list(root.glob("runs/*/pids"))
    assert seen == [[]]


def when_over(root: Path, seen: list[list[int]]) -> bool:
    """Note what is left behind at the moment in which the store first says that the run is over."""
    if not (root / "results.db").exists():
        return False
    try:
        [(state, _)] = states(root)
    except (sqlite3.OperationalError, ValueError):  # being made
        return False
    if state in ("COMPLETED", "FAILED", "CANCELLED"):
        seen.append(left_behind(root))
        return True
    return False


def kill_worker_and_launcher(launcher: labs.Command, root: Path) -> None:
    """Kill both, as a machine that runs out of memory does; what the command has started goes on."""
    [worker] = worker_of(root)
    for pid in (launcher.pid, worker):
        os.kill(pid, signal.SIGKILL)
    launcher.wait()
    labs.wait_until(lambda: not is_alive(worker))
    assert left_behind(root)


def worker_of(root: Path) -> list[int]:
    rows = sqlite3.connect(root / "results.db").execute("SELECT pid FROM attempt WHERE state = 'RUNNING'")
    return [pid for [pid] in rows.fetchall()]


@pytest.mark.parametrize("kind", ["child", "daemon", "granddaemon"])
def test_cancel_ends_what_a_killed_worker_has_left(root, tmp_path, kind):
    spec = study(tmp_path, f"{LEAVES[kind]} {BEGUN}; sleep 4321; exit 0")
    with labs.started("launch", spec, root=root) as launcher:
        labs.wait_until(lambda: left_behind(root))
        kill_worker_and_launcher(launcher, root)
        said = labs.here("cancel", "toy", root=root)
        assert left_behind(root) == []
        assert said.stdout.splitlines()[-1] == "1 run cancelled"
        assert labs.processes_of(root) == []


def test_another_attempt_starts_after_all_of_the_first_has_ended(root, tmp_path):
    """Or two programs would write into one folder."""
    alone = '[ -z "$JESTLAB_RESUME" ] || exit 0'
    spec = study(tmp_path, f"{alone}; {LEAVES['daemon']} {BEGUN}; sleep 4321; exit 0")
    with labs.started("launch", spec, root=root) as launcher:
        labs.wait_until(lambda: left_behind(root))
        kill_worker_and_launcher(launcher, root)
        labs.launch_here(root, plan(load(str(spec))))
        assert left_behind(root) == []
    assert states(root) == [("COMPLETED", None)]


def test_a_killed_worker_takes_its_daemons_along(root, tmp_path):
    """The launcher lives, and sees to it."""
    spec = study(tmp_path, f"{LEAVES['daemon']} {BEGUN}; sleep 4321; exit 0")

    def kill() -> None:
        labs.wait_until(lambda: left_behind(root))
        os.kill(labs.wait_until(lambda: worker_of(root))[0], signal.SIGKILL)

    seen: list[list[int]] = []
    with labs.meanwhile(kill), labs.meanwhile(lambda: labs.wait_until(lambda: when_over(root, seen))):
        labs.launch_here(root, plan(load(str(spec))))
    assert states(root)[0] == ("FAILED", "killed by SIGKILL")
    assert seen == [[]]


def test_no_attempt_starts_while_something_of_the_one_before_cannot_be_ended(root, tmp_path):
    """As a process that waits for a dead disk: it is said, and tried again until it has ended."""
    spec = study(tmp_path, '[ -n "$JESTLAB_RESUME" ] || exit 3', resources={"retries": 1})
    asked: list[int] = []
    notes: list[str] = []

    class Stuck(ForkingLocal):
        def stop(self, job: LaunchedJob, *, now: bool) -> None:
            attempts = sqlite3.connect(root / "results.db").execute("SELECT COUNT(*) FROM attempt").fetchone()
            asked.append(attempts[0])
            if len(asked) < 5:
                raise StillRuns("process 4711 was killed, and is still there")
            super().stop(job, now=now)

    class Ear(Listener):
        def note(self, line: str) -> None:
            notes.append(line)

    labs.launch_here(root, plan(load(str(spec))), executor=Stuck, listener=Ear())
    assert asked[:5] == [1] * 5
    [note] = [note for note in notes if "attempt 1" in note]
    assert note.startswith("attempt 1 has not ended: process 4711 was killed, and is still there")
    rows = sqlite3.connect(root / "results.db").execute("SELECT number, state FROM attempt ORDER BY 1")
    assert [number for number, _ in rows] == [1, 2]
