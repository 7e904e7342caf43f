"""Commands of the user's own, as real processes: what they find, how they report, how they end."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import labs_support as labs
import plans_support as plans
import pytest
import yaml
from workers_support import Worker

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import processes
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.store import leases
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

PYTHON = [sys.executable, "-c"]
SH = ["sh", "-c"]


@pytest.fixture
def lab(root: Path) -> Lab:
    return Lab.find(root)


def command(*words: str, **config: Any) -> PlannedRun:
    return plans.run("run", "command", {"seed": 3, "command": list(words), **config}, seed=3)


def literally(script: str) -> str:
    """A script as a word of a command, its braces no placeholders."""
    return script.replace("{", "{{").replace("}", "}}")


def recorded(lab: Lab, run: PlannedRun) -> Store:
    store = Store.open(lab.store_url)
    store.record(plans.plan(run))
    return store


def worker(lab: Lab, run: PlannedRun) -> Worker:
    number = plans.claimed(Store.open(lab.store_url), run)
    return Worker("--root", lab.root, "--run", run.fingerprint, "--attempt", number)


def finished(lab: Lab, run: PlannedRun) -> tuple[int | None, str]:
    process = worker(lab, run)
    said = process.communicate(timeout=60)[1]
    return process.returncode, said


def reason(store: Store, run: PlannedRun) -> str | None:
    return store.reasons([run.fingerprint]).get(run.fingerprint)


def metrics(lab: Lab) -> dict[tuple[str, int], float]:
    rows = sqlite3.connect(lab.root / "results.db").execute("SELECT name, step, value FROM v_metrics")
    return {(name, step): value for name, step, value in rows}


def directory(lab: Lab, run: PlannedRun) -> Path:
    return lab.root / run.directory


def test_it_does_not_find_the_store(lab, monkeypatch):
    see = "import json, os, sys; sys.exit(any(name.startswith('JESTLAB_STORE') for name in os.environ))"
    monkeypatch.setenv("JESTLAB_STORE", lab.store_url)
    monkeypatch.setenv("JESTLAB_STORE_SECRET", "projects/p/secrets/s/versions/1")
    run = command(*PYTHON, see)
    recorded(lab, run)
    code, said = finished(lab, run)
    assert code == processes.EXIT_COMPLETED, said


def test_what_it_finds(lab, tmp_path):
    (tmp_path / "code").mkdir()
    see = (
        "import json, os, sys;"
        "print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), sys.stdin.read()]))"
    )
    words = [
        "--lr={learning_rate}",
        "{model.width}",
        "{seed}",
        "{directory}",
        "<{resume}>",
        "{{}}",
        "{model}",
    ]
    run = command(*PYTHON, see, *words, learning_rate=1e-3, model={"width": 64}, cwd=str(tmp_path / "code"))
    recorded(lab, run)
    code, said = finished(lab, run)
    assert code == processes.EXIT_COMPLETED, said
    arguments, environment, cwd, given = json.loads(said.splitlines()[1])
    folder = str(directory(lab, run))
    assert arguments == ["--lr=0.001", "64", "3", folder, "<>", "{}", '{"width":64}']
    assert (cwd, given) == (str(tmp_path / "code"), "")
    assert (environment["JESTLAB_RUN_DIR"], environment["JESTLAB_SEED"]) == (folder, "3")
    assert (environment["JESTLAB_RESUME"], environment["JESTLAB_NEEDS"]) == ("", "{}")
    assert json.loads(Path(environment["JESTLAB_RUN_CONFIG"]).read_text()) == run.config


def test_a_shell_reports_by_echo(lab):
    script = """
    say() { printf '%s\\n' "$1" > "$JESTLAB_REPORTS"; }
    say '{"type": "progress", "step": 1, "total_steps": 2}'
    say '{"type": "log", "step": 1, "metrics": {"loss": 0.5, "grad/norm": null}}'
    echo kept > "$JESTLAB_RUN_DIR/model"
    say '{"type": "artifact", "name": "model", "path": "model"}'
    say '{"type": "flush", "id": 7}'
    head -n 1 "$JESTLAB_REPLIES"
    scores='{"toy/top1": 0.25}'
    say '{"type": "evaluation", "step": 2, "examples_seen": 64, "flops_total": 1e6, "scores": '"$scores"'}'
    say '{"type": "evaluation", "step": 3, "seconds": 1.5, "scores": '"$scores"'}'
    printf '{"type": "log", "step": 2, "metrics": {"loss": 0.25}}' > "$JESTLAB_REPORTS"
    """
    run = command(*SH, literally(script))
    store = recorded(lab, run)
    code, said = finished(lab, run)
    assert code == processes.EXIT_COMPLETED, said
    assert '{"type": "flushed", "id": 7}' in said
    assert metrics(lab) == {("loss", 1): 0.5, ("grad/norm", 1): None, ("loss", 2): 0.25}
    assert store.runs("toy")[0].step == 1
    rows = sqlite3.connect(lab.root / "results.db")
    spent = "SELECT name, value, examples_seen, flops_total, seconds FROM v_evaluations ORDER BY step"
    (*first, seconds), second = rows.execute(spent).fetchall()
    assert first == ["toy/top1", 0.25, 64, 1e6]
    assert 0.0 < seconds < 60.0  # since the program began
    assert second == ("toy/top1", 0.25, None, None, 1.5)
    assert rows.execute("SELECT name, uri, size FROM artifact").fetchall() == [
        ("model", f"{run.directory}/model", 5)
    ]


def test_a_flush_is_answered_when_all_is_in_the_store(lab):
    script = """
import sqlite3, sys
from jestlab.platform import client
run = client.run()
run.log(1, loss=0.5)
run.flush()
print(sqlite3.connect(sys.argv[1]).execute("SELECT name, step, value FROM v_metrics").fetchall())
"""
    run = command(*PYTHON, script, str(lab.root / "results.db"))
    recorded(lab, run)
    code, said = finished(lab, run)
    assert code == processes.EXIT_COMPLETED, said
    assert "[('loss', 1, 0.5)]" in said


def test_a_hundred_thousand_points_arrive(lab):
    script = """
from jestlab.platform import client
run = client.run()
for step in range(100_000):
    run.log(step, loss=step / 2)
"""
    run = command(*PYTHON, script)
    recorded(lab, run)
    code, said = finished(lab, run)
    assert code == processes.EXIT_COMPLETED, said
    assert sqlite3.connect(lab.root / "results.db").execute(
        "SELECT COUNT(*), MAX(step), SUM(value) FROM v_metrics"
    ).fetchone() == (100_000, 99_999, sum(range(100_000)) / 2)


def test_processes_of_the_command_report_too_whatever_they_inherited(lab):
    script = """
import subprocess, sys
code = '''
import sys
from jestlab.platform import client
run = client.run()
for step in range(500):
    run.log(step, {sys.argv[1]: step})
'''
children = [subprocess.Popen([sys.executable, "-c", code, name]) for name in ("a", "b", "c")]
sys.exit(sum(child.wait() for child in children))
"""
    run = command(*PYTHON, literally(script))
    recorded(lab, run)
    code, said = finished(lab, run)
    assert code == processes.EXIT_COMPLETED, said
    assert metrics(lab) == {(name, step): step for name in "abc" for step in range(500)}


def test_a_failing_commands_last_lines_are_the_reason(lab):
    run = command(*PYTHON, "print('begun'); raise ValueError('diverged at step 3')")
    store = recorded(lab, run)
    code, said = finished(lab, run)
    assert code == processes.EXIT_FAILED
    assert store.runs("toy")[0].state == RunState.FAILED
    said_reason = str(reason(store, run))
    assert said_reason.startswith("exit code 1: ")
    assert said_reason.endswith("ValueError: diverged at step 3")
    assert "jestlab/platform" not in said  # no traceback of ours
    assert "begun" in said


def artifact(path: str) -> str:
    said = json.dumps({"type": "artifact", "name": "a", "path": path})
    return f"echo '{said}' > $JESTLAB_REPORTS; sleep 9"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([*SH, "exit 7"], processes.EXIT_FAILED, "exit code 7"),
        (
            [*SH, "echo out of memory; kill -SEGV $$"],
            processes.EXIT_FAILED,
            "killed by SIGSEGV: out of memory",
        ),
        (["no-such-command"], processes.EXIT_REFUSED, "cannot start 'no-such-command': [Errno 2]"),
        (
            [*SH, "echo loss=3 > $JESTLAB_REPORTS; sleep 9"],
            processes.EXIT_REFUSED,
            "message 1: 'loss=3' is not a valid message: not valid JSON: expected value",
        ),
        ([*SH, artifact("gone")], processes.EXIT_REFUSED, "message 1: artifact 'a': nothing at "),
        (
            [*SH, artifact("/etc")],
            processes.EXIT_REFUSED,
            "message 1: artifact 'a' at /etc lies outside the lab",
        ),
    ],
)
def test_how_it_fails(lab, words, code, message):
    run = command(*map(literally, words))
    store = recorded(lab, run)
    assert finished(lab, run)[0] == code
    assert message in str(reason(store, run))


def test_what_it_prints_is_the_runs_log_however_much_it_is(lab):
    script = (
        "import sys; sys.stdout.write('x' * 3_000_000 + '\\n'); sys.stderr.write('the end\\n'); sys.exit(5)"
    )
    run = command(*PYTHON, script)
    store = recorded(lab, run)
    code, said = finished(lab, run)
    assert code == processes.EXIT_FAILED
    assert said.count("x") >= 3_000_000
    assert str(reason(store, run)).endswith("x | the end")


SAVES_WHEN_ASKED = """
import json, time
from jestlab.platform import client
run = client.run()
saved = run.directory / "state.json"
step = json.loads((run.resume / "state.json").read_text()) if run.resume else 0
while step < 150 and not run.stop_requested():
    step += 1
    run.log(step, loss=step)
    if step == 3:
        (run.directory / "begun").touch()
    time.sleep(0.01)
run.flush()
saved.write_text(json.dumps(step))
print("resumed" if run.resume else "new", "stopped at", step)
"""


@pytest.mark.parametrize("by", ["signal", "store"])
def test_it_is_told_to_stop_and_goes_on_where_it_was(lab, by):
    run = command(*PYTHON, SAVES_WHEN_ASKED)
    store = recorded(lab, run)
    process = worker(lab, run)
    labs.wait_until(lambda: (directory(lab, run) / "begun").exists())
    if by == "signal":
        process.send_signal(signal.SIGTERM)
    else:
        leases.request_stop(store, [run.fingerprint], "cancelled by me")
    said = process.communicate(timeout=30)[1]
    assert process.returncode == processes.EXIT_STOPPED, said
    state, why = (
        (RunState.PREEMPTED, "stopped by SIGTERM")
        if by == "signal"
        else (
            RunState.CANCELLED,
            "cancelled by me",
        )
    )
    assert (store.runs("toy")[0].state, reason(store, run)) == (state, why)
    step = json.loads((directory(lab, run) / "state.json").read_text())
    assert 3 <= step < 150
    assert f"new stopped at {step}" in said
    if by == "signal":
        code, said = finished(lab, run)
        assert (code, "resumed stopped at 150" in said) == (processes.EXIT_COMPLETED, True), said
        assert metrics(lab) == {("loss", n): n for n in range(1, 151)}


@pytest.mark.parametrize("code", [0, 5])
def test_sigterm_is_passed_on_once_and_any_end_is_a_stop_then(lab, code):
    """Even where the worker's whole group gets it."""
    script = f"""
    trap 'echo term >> "$JESTLAB_RUN_DIR/terms"; exit {code}' TERM
    touch "$JESTLAB_RUN_DIR/begun"
    while true; do sleep 0.02; done
    """
    run = command(*SH, script)
    store = recorded(lab, run)
    process = worker(lab, run)
    labs.wait_until(lambda: (directory(lab, run) / "begun").exists())
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == processes.EXIT_STOPPED
    assert (directory(lab, run) / "terms").read_text() == "term\n"
    assert store.runs("toy")[0].state == RunState.PREEMPTED


def test_a_command_that_is_deaf_to_signals_reads_that_it_shall_stop(lab):
    run = command(*SH, 'trap "" TERM; touch "$JESTLAB_RUN_DIR/begun"; head -n 1 "$JESTLAB_REPLIES"')
    recorded(lab, run)
    process = worker(lab, run)
    labs.wait_until(lambda: (directory(lab, run) / "begun").exists())
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == processes.EXIT_STOPPED
    assert '{"type": "stop"}' in said


def test_a_child_of_the_command_has_time_to_save(lab):
    """A shell ends at once; what it started is what saves."""
    child = (
        "import pathlib, signal, sys, time; here = pathlib.Path(sys.argv[1])\n"
        "def save(*_):\n    time.sleep(0.5); (here / 'saved').touch(); sys.exit()\n"
        "signal.signal(signal.SIGTERM, save); (here / 'begun').touch(); time.sleep(600)"
    )
    run = command(
        *SH, 'python=$1; code=$2; "$python" -c "$code" "{directory}"; true', "sh", sys.executable, child
    )
    recorded(lab, run)
    process = worker(lab, run)
    labs.wait_until(lambda: (directory(lab, run) / "begun").exists())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == processes.EXIT_STOPPED
    assert (directory(lab, run) / "saved").exists()


def test_a_killed_worker_takes_its_command_along_and_the_next_one_resumes(lab):
    script = """
import os, sys, time
from jestlab.platform import client
run = client.run()
run.log(1, loss=1.0)
run.flush()
if run.resume:
    sys.exit(0 if (run.resume / "checkpoint").read_text() == "1" else 9)
(run.directory / "pid").write_text(str(os.getpid()))
(run.directory / "checkpoint").write_text("1")
time.sleep(600)
"""
    run = command(*PYTHON, script)
    store = recorded(lab, run)
    process = worker(lab, run)
    checkpoint = directory(lab, run) / "checkpoint"
    labs.wait_until(lambda: checkpoint.exists() and checkpoint.read_text())
    process.kill()
    process.communicate()
    pid = int((directory(lab, run) / "pid").read_text())
    labs.wait_until(lambda: pid not in labs.processes_of(lab.root), seconds=5)
    leases.end(store, run.fingerprint, attempt_id(lab), RunState.FAILED, "killed by SIGKILL", -9)
    code, said = finished(lab, run)
    assert code == processes.EXIT_COMPLETED, said


def attempt_id(lab: Lab) -> int:
    [found] = sqlite3.connect(lab.root / "results.db").execute("SELECT MAX(id) FROM attempt").fetchone()
    return int(found)


def test_what_it_leaves_behind_ends_with_it(lab):
    run = command(*SH, "(sleep 600; echo late) & echo done")
    recorded(lab, run)
    began = time.monotonic()
    assert finished(lab, run)[0] == processes.EXIT_COMPLETED
    assert time.monotonic() - began < 30
    assert not [pid for pid in labs.processes_of(lab.root) if pid != os.getpid()]


def study(folder: Path, **parts: Any) -> Path:
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump({"program": "command", "resources": {"retries": 1}} | parts))
    return path


def test_needs_retries_and_tables_serve_it_like_any_program(root, tmp_path, monkeypatch):
    (tmp_path / "score.sh").write_text(
        """
        if [ -z "$1" ] && [ -z "$JESTLAB_RESUME" ]
        then touch "$JESTLAB_RUN_DIR/tried"; echo the first time fails; exit 3
        fi
        [ -z "$1" ] || [ -e "$1/tried" ] || exit 4
        about='"type": "evaluation", "step": 1, "examples_seen": 8, "flops_total": 16'
        echo '{'"$about"', "scores": {"toy/top1": 0.'$2'}}' > "$JESTLAB_REPORTS"
        """
    )
    path = study(
        tmp_path,
        base={"command": ["sh", "score.sh", "", "{score}"], "cwd": "."},
        runs={
            "first": {"score": 25},
            "second": {"score": 75, "needs": ["first"], "command": "sh score.sh {needs.first} {score}"},
        },
        reports=[{"table": {"baseline": "first"}}, "pareto"],
        metrics={"toy/top1": {"goal": "max", "unit": "percent"}},
    )
    monkeypatch.chdir("/")
    done = labs.here("launch", path, root=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "75.0" in done.stdout
    assert (root / "reports" / "own" / "pareto.png").stat().st_size > 1_000
    attempts = sqlite3.connect(root / "results.db").execute("SELECT state, reason FROM attempt ORDER BY id")
    assert sorted(attempts) == [
        ("COMPLETED", None),
        ("COMPLETED", None),
        ("FAILED", "exit code 3: the first time fails"),
    ]


def test_no_process_is_left_after_cancel(root, tmp_path):
    deaf = "trap '' TERM; touch \"$JESTLAB_RUN_DIR/begun\"; while true; do sleep 0.1; done"
    path = study(tmp_path, base={"command": ["sh", "-c", deaf]}, runs={"deaf": {}})
    with labs.started("launch", path, root=root) as launcher:
        labs.wait_until(lambda: list(root.glob("runs/*/begun")))
        assert labs.here("cancel", "own", "--now", root=root).returncode == 0
        launcher.wait(30)
        labs.wait_until(lambda: not labs.processes_of(root), seconds=10)
    states = sqlite3.connect(root / "results.db").execute("SELECT state FROM v_runs").fetchall()
    assert states == [("CANCELLED",)]
