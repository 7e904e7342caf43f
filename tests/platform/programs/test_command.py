"""The program `command` with real processes."""

import json
import os
import re
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import labs_support as labs
import plans_support as plans
import pytest
import stores_support as stores
from workers_support import finished, recorded, worker

from jestlab.platform import processes
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

PYTHON = [sys.executable, "-c"]
SH = ["sh", "-c"]


@pytest.fixture
def lab(root: Path) -> Lab:
    return Lab.find(root)


def command(*words: str, needs: dict[str, str] | None = None, **config: Any) -> PlannedRun:
    config = {"seed": 3, "command": list(words), **config}
    return plans.run("run", "command", config, seed=3, needs=needs)


def literally(script: str) -> str:
    """A script as a word of a command, its braces no placeholders."""
    return script.replace("{", "{{").replace("}", "}}")


def completed(lab: Lab, *runs: PlannedRun) -> str:
    """Run the last of some recorded runs to its end; return its output."""
    recorded(lab, *runs)
    code, said = finished(lab, runs[-1])
    assert code == processes.EXIT_COMPLETED, said
    return said


def reason(store: Store, run: PlannedRun) -> str | None:
    return store.reasons([run.fingerprint]).get(run.fingerprint)


def metrics(lab: Lab) -> dict[tuple[str, int], float]:
    rows = sqlite3.connect(lab.root / "results.db").execute("SELECT name, step, value FROM v_metrics")
    return {(name, step): value for name, step, value in rows}


def directory(lab: Lab, run: PlannedRun) -> Path:
    return lab.root / run.directory


def test_a_command_gets_its_config_folders_and_no_secrets(lab, tmp_path, monkeypatch):
    monkeypatch.setenv("JESTLAB_STORE", lab.store_url)
    monkeypatch.setenv("JESTLAB_STORE_SECRET", "projects/p/secrets/s/versions/1")
    (tmp_path / "code").mkdir()
    see = (
        "import json, os, sys;"
        "print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), sys.stdin.read()]))"
    )
    words = ["--lr={learning_rate}", "{model.width}", "{seed}", "{directory}", "<{resume}>", "{{}}"]
    config = {"learning_rate": 1e-3, "model": {"width": 64}, "cwd": str(tmp_path / "code")}
    first = command("true")
    run = command(
        *PYTHON, see, *words, "{model}", "{needs.first}", needs={"first": first.fingerprint}, **config
    )
    store = recorded(lab, first, run)
    stores.attempt(store, first, RunState.COMPLETED)
    code, said = finished(lab, run)
    assert code == processes.EXIT_COMPLETED, said
    arguments, environment, cwd, given = json.loads(said.splitlines()[1])
    folder = str(directory(lab, run))
    needed = str(directory(lab, first))
    assert arguments == ["--lr=0.001", "64", "3", folder, "<>", "{}", '{"width":64}', needed]
    assert (cwd, given) == (str(tmp_path / "code"), "")
    assert (environment["JESTLAB_RUN_DIR"], environment["JESTLAB_SEED"]) == (folder, "3")
    assert (environment["JESTLAB_RESUME"], environment["JESTLAB_NEEDS"]) == ("", f'{{"first": "{needed}"}}')
    assert json.loads(Path(environment["JESTLAB_RUN_CONFIG"]).read_text()) == run.config
    assert not [name for name in environment if name.startswith("JESTLAB_STORE")]


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
    printf '{"type": "log", "step": 2, "metrics": {"loss": 0.25}}' > "$JESTLAB_REPORTS"
    """
    run = command(*SH, literally(script))
    assert '{"type": "flushed", "id": 7}' in completed(lab, run)
    assert metrics(lab) == {("loss", 1): 0.5, ("grad/norm", 1): None, ("loss", 2): 0.25}
    rows = sqlite3.connect(lab.root / "results.db")
    [(*evaluation, seconds)] = rows.execute(
        "SELECT name, value, examples_seen, flops_total, seconds FROM v_evaluations"
    )
    assert evaluation == ["toy/top1", 0.25, 64, 1e6]
    assert 0.0 < seconds < 60.0  # since the program started
    artifacts = rows.execute("SELECT name, uri, size FROM artifact").fetchall()
    assert artifacts == [("model", f"{run.directory}/model", 5)]


def test_all_processes_of_the_command_can_report(lab):
    script = """
import sqlite3, subprocess, sys
code = '''
import sys
from jestlab.platform import client
run = client.run()
for step in range(5_000):
    run.log(step, {sys.argv[1]: step})
run.flush()
'''
children = [subprocess.Popen([sys.executable, "-c", code, name]) for name in ("a", "b")]
failed = sum(child.wait() for child in children)
print(sqlite3.connect(sys.argv[1]).execute("SELECT COUNT(*) FROM v_metrics").fetchall())
sys.exit(failed)
"""
    said = completed(lab, command(*PYTHON, literally(script), str(lab.root / "results.db")))
    assert "[(10000,)]" in said  # a flush is answered when all is in the store
    assert metrics(lab) == {(name, step): step for name in "ab" for step in range(5_000)}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([*PYTHON, "raise ValueError('diverged at step 3')"], processes.EXIT_FAILED,
         r"^exit code 1: .*ValueError: diverged at step 3$"),
        ([*SH, "echo out of memory; kill -SEGV $$"], processes.EXIT_FAILED,
         "^killed by SIGSEGV: out of memory$"),
        (["no-such-command"], processes.EXIT_REFUSED, "can't start 'no-such-command': no-such-command: No"),
        ([*SH, "echo loss=3 > $JESTLAB_REPORTS; sleep 600"], processes.EXIT_REFUSED,
         "message 1: 'loss=3' is not a valid message: not valid JSON: "),
    ],
    ids=["exception", "signal", "not found", "invalid message"],
)  # fmt: skip
def test_failures_have_a_reason(lab, words, code, message):
    run = command(*map(literally, words))
    store = recorded(lab, run)
    ended, said = finished(lab, run)
    assert ended == code
    assert re.search(message, str(reason(store, run)))
    assert store.runs("toy")[0].state == RunState.FAILED
    assert code == processes.EXIT_REFUSED or "jestlab/platform" not in said  # no traceback of ours


def test_the_log_has_the_whole_output(lab):
    run = command(*PYTHON, "import sys; print('x' * 3_000_000); sys.stderr.write('the end\\n'); sys.exit(5)")
    store = recorded(lab, run)
    code, output = finished(lab, run)
    assert code == processes.EXIT_FAILED
    assert output.count("x") >= 3_000_000
    assert str(reason(store, run)).endswith("x | the end")


def stopped(lab: Lab, run: PlannedRun, group: bool = False) -> str:
    """Stop a worker, or its whole group, once its command has begun; return what it printed."""
    process = worker(lab, run)
    labs.wait_until(lambda: (directory(lab, run) / "begun").exists())
    (os.killpg if group else os.kill)(process.pid, signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == processes.EXIT_STOPPED, said
    return said


SAVES_WHEN_ASKED = """
import json, time
from jestlab.platform import client
run = client.run()
saved = run.directory / "state.json"
step = first = json.loads(saved.read_text()) if run.resume else 0
while not run.stop_requested() and (not run.resume or step < first + 5):
    step += 1
    run.log(step, loss=step)
    if step == 3:
        (run.directory / "begun").touch()
    time.sleep(0.01)
run.flush()
saved.write_text(json.dumps(step))
print("resumed" if run.resume else "new", "stopped at", step)
"""


def test_a_stopped_command_resumes(lab):
    run = command(*PYTHON, SAVES_WHEN_ASKED)
    store = recorded(lab, run)
    said = stopped(lab, run)
    assert (store.runs("toy")[0].state, reason(store, run)) == (RunState.PREEMPTED, "stopped by SIGTERM")
    step = json.loads((directory(lab, run) / "state.json").read_text())
    assert step >= 3
    assert f"new stopped at {step}" in said
    code, said = finished(lab, run)
    assert (code, f"resumed stopped at {step + 5}" in said) == (processes.EXIT_COMPLETED, True), said
    assert metrics(lab) == {("loss", n): n for n in range(1, step + 6)}


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        # SIGTERM arrives once, and any exit code counts as a stop.
        (
            'trap "echo term; exit 5" TERM; touch "$JESTLAB_RUN_DIR/begun"; while :; do sleep 0.02; done',
            "term",
        ),
        # A command that ignores signals can read the request.
        ('trap "" TERM; touch "$JESTLAB_RUN_DIR/begun"; head -n 1 "$JESTLAB_REPLIES"', '{"type": "stop"}'),
    ],
    ids=["signal", "message"],
)
def test_a_command_is_asked_to_stop_by_signal_and_message(lab, script, printed):
    """Also if the worker's whole group receives the signal."""
    run = command(*SH, script)
    store = recorded(lab, run)
    assert stopped(lab, run, group=True).splitlines().count(printed) == 1
    assert store.runs("toy")[0].state == RunState.PREEMPTED


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
    stopped(lab, run)
    assert (directory(lab, run) / "saved").exists()


def test_a_killed_worker_ends_its_command_and_the_next_one_resumes(lab):
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
    labs.wait_until(lambda: pid not in labs.processes_of(lab.root))
    rows = sqlite3.connect(lab.root / "results.db")
    [attempt_id] = rows.execute("SELECT MAX(id) FROM attempt").fetchone()
    plans.end(store, run.fingerprint, attempt_id, RunState.FAILED, "killed by SIGKILL", -9)
    code, said = finished(lab, run)
    assert code == processes.EXIT_COMPLETED, said


def test_processes_of_the_command_end_with_it(lab):
    """The fixture `root` waits until the lab has no processes."""
    completed(lab, command(*SH, "(sleep 600; echo late) & echo done"))
