"""The program `command` with real processes."""

import json
import os
import re
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import labs_support as labs
import plans_support as plans
import pytest
import stores_support as stores
from workers_support import finished, recorded, worker

from jestlab.platform import client, processes
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.programs.command_run import left_behind
from jestlab.platform.store.records import RunState

PYTHON = [sys.executable, "-c"]
SH = ["sh", "-c"]
STATES = "SELECT state, reason FROM run"


@pytest.fixture
def lab(root: Path) -> Lab:
    return Lab.find(root)


def command(*words: str, needs: dict[str, str] | None = None, **config: Any) -> PlannedRun:
    config = {"seed": 3, "command": list(words), **config}
    return plans.run("run", "command", config, seed=3, needs=needs)


def literally(script: str) -> str:
    """A script as a word of a command, its braces no placeholders."""
    return script.replace("{", "{{").replace("}", "}}")


def completed(lab: Lab, run: PlannedRun) -> str:
    """Record a run, run it to its end, and return its output."""
    recorded(lab, run)
    code, said = finished(lab, run)
    assert code == processes.EXIT_COMPLETED, said
    return said


def rows(lab: Lab, query: str) -> list[Any]:
    with closing(sqlite3.connect(lab.root / "results.db")) as connection:
        return connection.execute(query).fetchall()


def metrics(lab: Lab) -> dict[tuple[str, int], float]:
    return {(name, step): value for name, step, value in rows(lab, "SELECT name, step, value FROM v_metrics")}


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
    arguments, environment, cwd, given = json.loads(finished(lab, run)[1].splitlines()[1])
    folder = str(directory(lab, run))
    needed = str(directory(lab, first))
    assert arguments == ["--lr=0.001", "64", "3", folder, "<>", "{}", '{"width":64}', needed]
    assert (cwd, given) == (str(tmp_path / "code"), "")
    assert (environment["JESTLAB_RUN_DIR"], environment["JESTLAB_SEED"]) == (folder, "3")
    assert (environment["JESTLAB_RESUME"], environment["JESTLAB_NEEDS"]) == ("", f'{{"first": "{needed}"}}')
    assert json.loads(Path(environment["JESTLAB_RUN_CONFIG"]).read_text()) == run.config
    assert not [name for name in environment if name.startswith("JESTLAB_STORE")]


CLIENT = """
import sys
import other_module
from jestlab.platform import client
client.run().evaluation(1, scores={"toy/top1": 0.25})
print("client of", client.__file__)
"""


@pytest.mark.parametrize("installed", [True, False])
def test_any_python_can_import_the_client_and_an_installed_one_has_precedence(
    lab, tmp_path, monkeypatch, installed
):
    (tmp_path / "other_module.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    given = os.environ["PYTHONPATH"]
    folder = lab.cache / "client"
    copy = folder / "jestlab" / "platform" / "client.py"
    copy.parent.mkdir(parents=True)
    copy.write_text("raise RuntimeError('of another version')")
    check = "import os, jestlab.platform, jestlab.analysis, jestlab.platform.errors\n" if installed else ""
    check += f"import os; assert os.environ['PYTHONPATH'] == {given + os.pathsep + str(folder)!r}\n"
    said = completed(
        lab, command(sys.executable, *([] if installed else ["-S"]), "-c", literally(CLIENT + check))
    )
    assert f"client of {client.__file__ if installed else copy}" in said
    assert rows(lab, "SELECT name, value FROM v_evaluations") == [("toy/top1", 0.25)]
    assert list(folder.rglob("*.py")) == [copy]  # no __init__.py


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
    [(*evaluation, seconds)] = rows(
        lab, "SELECT name, value, examples_seen, flops_total, seconds FROM v_evaluations"
    )
    assert evaluation == ["toy/top1", 0.25, 64, 1e6]
    assert 0.0 < seconds < 60.0  # since the program started
    artifacts = rows(lab, "SELECT name, uri, size FROM artifact")
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
        ([*PYTHON, "raise RuntimeError('diverged at step 3')"], processes.EXIT_FAILED,
         r"^exit code 1: .*RuntimeError: diverged at step 3$"),
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
    recorded(lab, run)
    ended, said = finished(lab, run)
    [(state, reason)] = rows(lab, STATES)
    assert (ended, state) == (code, "FAILED") and re.search(message, reason)
    assert code == processes.EXIT_REFUSED or "jestlab/platform" not in said  # no traceback of ours


def test_the_log_has_the_whole_output(lab):
    run = command(*PYTHON, "import sys; print('x' * 3_000_000); sys.stderr.write('the end\\n'); sys.exit(5)")
    recorded(lab, run)
    code, said = finished(lab, run)
    assert code == processes.EXIT_FAILED and said.count("x") >= 3_000_000
    assert rows(lab, STATES)[0][1].endswith("x | the end")


def stopped(lab: Lab, run: PlannedRun, group: bool = False) -> str:
    """Stop the worker of a run, or its whole group, once its command has begun; return what it printed."""
    recorded(lab, run)
    process = worker(lab, run)
    labs.wait_until(lambda: (directory(lab, run) / "begun").exists())
    (os.killpg if group else os.kill)(process.pid, signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == processes.EXIT_STOPPED, said
    assert rows(lab, STATES) == [("PREEMPTED", "stopped by SIGTERM")]
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
    said = stopped(lab, run)
    step = json.loads((directory(lab, run) / "state.json").read_text())
    assert step >= 3 and f"new stopped at {step}" in said
    code, said = finished(lab, run)
    assert code == processes.EXIT_COMPLETED and f"resumed stopped at {step + 5}" in said, said
    assert metrics(lab) == {("loss", n): n for n in range(1, step + 6)}


CHILD = """
import pathlib, signal, sys, time
def save(*_):
    time.sleep(0.5)
    sys.exit('saved')
signal.signal(signal.SIGTERM, save)
(pathlib.Path(sys.argv[1]) / 'begun').touch()
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        # SIGTERM arrives once, and any exit code counts as a stop.
        (['trap "echo term; exit 5" TERM; touch "{directory}/begun"; while :; do sleep 0.02; done'], "term"),
        # A command that ignores signals can read the request.
        (['trap "" TERM; touch "{directory}/begun"; head -n 1 "$JESTLAB_REPLIES"'], '{"type": "stop"}'),
        # A shell ends at once; what it started has time to save.
        (['"$1" -c "$2" "{directory}"; true', "sh", sys.executable, CHILD], "saved"),
    ],
    ids=["signal", "message", "child"],
)
def test_a_command_is_asked_to_stop_by_signal_and_message(lab, words, printed):
    """Also if the worker's whole group receives the signal."""
    assert stopped(lab, command(*SH, *words), group=True).splitlines().count(printed) == 1


def test_a_killed_worker_ends_its_command_and_the_next_one_resumes(lab):
    script = """
    if [ -n "{resume}" ]; then exec grep -q 1 "{resume}/checkpoint"; fi
    echo $$ > "{directory}/pid"
    echo 1 > "{directory}/checkpoint"
    exec sleep 600
    """
    run = command(*SH, script)
    store = recorded(lab, run)
    process = worker(lab, run)
    checkpoint = directory(lab, run) / "checkpoint"
    labs.wait_until(lambda: checkpoint.exists() and checkpoint.read_text())
    process.kill()
    process.communicate()
    pid = int((directory(lab, run) / "pid").read_text())
    labs.wait_until(lambda: pid not in labs.processes_of(lab.root))
    [(attempt_id,)] = rows(lab, "SELECT MAX(id) FROM attempt")
    plans.end(store, run.fingerprint, attempt_id, RunState.FAILED, "killed by SIGKILL", -9)
    assert finished(lab, run)[0] == processes.EXIT_COMPLETED


def test_processes_of_the_command_end_with_it(lab):
    """The fixture `root` waits until the lab has no processes."""
    completed(lab, command(*SH, "(sleep 600; echo late) & echo done"))


def test_a_new_attempt_keeps_unfinished_files_of_the_command(lab):
    run = command(*SH, "cat {directory}/download.part")
    recorded(lab, run)
    file = directory(lab, run) / "download.part"
    file.parent.mkdir(parents=True)
    file.write_text("half of it")
    os.utime(file, (0, 0))
    code, said = finished(lab, run)
    assert code == processes.EXIT_COMPLETED and "half of it" in said, said


@pytest.mark.parametrize(
    ("name", "is_of_the_command"),
    [
        ("log.txt", False),
        ("config.json", False),
        (".config.json-0f3a", False),  # its writer was killed
        ("log.txt.bak", True),
        ("model.npz", True),
    ],
)
def test_only_files_of_the_command_make_a_run_resume(tmp_path, name, is_of_the_command):
    (tmp_path / name).touch()
    assert left_behind(tmp_path) == is_of_the_command
