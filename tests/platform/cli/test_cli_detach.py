"""`jestlab launch --detach` continues without its terminal, and `jestlab attach` shows the launch."""

import json
import os
import re
import signal
from pathlib import Path
from unittest import mock

import labs_support as labs
import plans_support as plans
import pytest
import stores_support as stores
from sqlalchemy import update

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import detached, status
from jestlab.platform.launch.executors import local
from jestlab.platform.launch.executors.environment import passed_on
from jestlab.platform.programs import command_run
from jestlab.platform.store import tables

STARTS = (
    "import time; from jestlab.platform.launch.detached import signal_start; "
    "print('launching', flush=True); signal_start(); time.sleep(600)"
)


@pytest.fixture
def detached_root(root):
    """A lab whose background launches are killed in the end."""
    yield root
    for pid in labs.processes_of(root):
        os.kill(pid, signal.SIGKILL)


def pid_and_log(output: str) -> tuple[int, Path]:
    match = re.search(r"^toy .*\(process (\d+) on .*^log: +(\S+)$", output, re.M | re.S)
    assert match is not None, output
    return int(match[1]), Path(match[2])


def test_a_detached_launch_is_a_session_with_a_lock_and_a_log(detached_root, tmp_path, monkeypatch, jestlab):
    monkeypatch.setattr(detached, "COMMAND", STARTS)
    words = ("launch", labs.write_study(tmp_path), "--detach", "--store", f"sqlite:///{detached_root}/own.db")
    launched = jestlab(*words)
    pid, log = pid_and_log(launched)
    assert "see:  jestlab attach toy" in launched and log.read_text() == "launching\n"
    assert os.getsid(pid) == pid
    command = Path(f"/proc/{pid}/cmdline").read_text()
    assert "toy.yaml" in command and "own.db" not in command  # the URL may contain a password
    assert f"process {pid}, log {log}" in jestlab(*words, code=1)


def test_the_terminal_shows_why_a_detached_launch_was_refused(root, tmp_path, monkeypatch, jestlab):
    spec = labs.write_study(tmp_path, runs={"uniform": {}})
    monkeypatch.setattr(detached, "COMMAND", "import sys; sys.exit('jestlab: refused')")
    for words in ([spec, "--detach"], ["--detach", spec], ["--detach=process", spec]):
        assert jestlab("launch", *words, code=1).endswith("jestlab: refused\n")
    jestlab("launch", spec, "--detach", "--json", code=2)


@pytest.mark.parametrize("names", [("a b", "a_b"), ("é", "_"), ("n" * 300, "n" * 299)])
def test_launches_of_different_names_share_neither_lock_nor_log(detached_root, monkeypatch, names):
    monkeypatch.setattr(detached, "COMMAND", STARTS)
    lab = Lab(detached_root, "sqlite:///none.db")
    first, second = (detached.start(lab, name, ["retry"]) for name in names)
    assert (first.exit_code, second.exit_code) == (None, None)
    assert first.log != second.log
    with pytest.raises(UserError, match=f"process {second.pid}, log {second.log}"):
        detached.start(lab, names[1], ["retry"])


def test_a_detached_launch_gets_the_store_and_not_the_token_of_the_server(root, monkeypatch):
    monkeypatch.setenv("JESTLAB_SERVE_TOKEN", "a-token-of-the-tests")
    monkeypatch.setattr(detached, "COMMAND", "import os, sys; print(*os.environ.items(), *sys.argv)")
    url = "postgresql://me:secret@host/db"
    words = ["launch", "toy.yaml", "--store", "other", "--root", "lab", "--store=other"]
    printed = detached.start(Lab(root, url), "toy", words).log.read_text()
    assert f"('JESTLAB_STORE', '{url}')" in printed and "a-token-of-the-tests" not in printed
    assert printed.strip().endswith("launch toy.yaml --root lab")


def of_a_command() -> bytes:
    """Return the token in a command's environment."""
    child = command_run.Child(["printenv", "JESTLAB_SERVE_TOKEN"], None, {})
    while child.is_running():
        child.copy_output()
    child.end()
    return child.tail


@pytest.mark.parametrize("environment", [local._inherited, of_a_command, passed_on])
def test_no_run_gets_the_token_of_the_server(monkeypatch, environment):
    before = environment()
    monkeypatch.setenv("JESTLAB_SERVE_TOKEN", "a-token-of-the-tests")
    assert environment() == before


@pytest.fixture
def attempt(store, at_each_sleep):
    """An attempt that runs; each wait of `attach` takes no time."""
    run = plans.run("uniform", config={"steps": 60})
    plans.record(store, plans.plan(run))
    at_each_sleep(status)
    return plans.begun(store, run)


def test_attach_shows_states_until_all_runs_have_completed(attempt, at_each_sleep, jestlab):
    at_each_sleep(status, attempt.complete)
    first, second, third, *_ = jestlab("attach", "toy").splitlines()
    assert first == "1 to run"
    assert second.startswith("RUNNING    toy/uniform/0")
    assert third.startswith("[1/1] COMPLETED  toy/uniform/0")


def test_attach_ends_at_ctrl_c_or_when_nothing_runs_any_more(root, store, attempt, at_each_sleep, jestlab):
    at_each_sleep(status, mock.Mock(side_effect=KeyboardInterrupt))
    interrupted = jestlab("attach", "toy", code=130)
    assert f"the launch continues: jestlab attach toy --root {root}" in interrupted
    attempt.interrupt("stopped")
    assert jestlab("attach", "toy", code=1).splitlines()[-1] == "1 PREEMPTED"
    [run] = json.loads(jestlab("attach", "toy", "--json", code=1))
    assert (run["run"], run["state"]) == ("uniform", "PREEMPTED")
    plans.record(store, plans.plan(plans.run("pending"), name="other"))
    with store.writing() as connection:
        connection.execute(update(tables.LauncherRow).values(heartbeat_at=stores.START))
    assert "no launcher is alive: 1 run not launched" in jestlab("attach", "other", code=1)


@pytest.mark.full
def test_a_real_detached_launch(detached_root, tmp_path, jestlab):
    """Launch and cancel, in processes."""
    runs = {"uniform": {"steps": 60}, "longer": {"steps": 61, "gate": str(tmp_path / "gate")}}
    pid, log = pid_and_log(
        jestlab("launch", labs.write_study(tmp_path, runs=runs, reports=["table"]), "--detach")
    )
    labs.wait_until(lambda: labs.starts(detached_root, "longer"))
    os.kill(pid, 0)
    assert jestlab("cancel", "toy/longer").splitlines()[-1] == "1 run cancelled"
    labs.wait_until_ended(detached_root)
    states = {run["run"]: run["state"] for run in json.loads(jestlab("status", "toy", "--json"))}
    assert states == {"uniform": "COMPLETED", "longer": "CANCELLED"}
    assert log.read_text().splitlines()[-1] == "1 COMPLETED, 1 CANCELLED"
