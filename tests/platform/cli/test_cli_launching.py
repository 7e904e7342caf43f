"""The verbs that make runs run, show them and stop them, as people meet them."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import sqlite3
import subprocess
import time

import labs_support as labs
import plans_support as plans
import yaml
from executor_harnesses import IMAGE

from jestlab.platform.cli.output import rendered
from jestlab.platform.cli.status import _shown, text
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.liveness import Silence
from jestlab.platform.launch.wakeup import Wakeup
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import load
from jestlab.platform.store import claims, leases
from jestlab.platform.store.records import RunState, Spending
from jestlab.platform.store.store import Store
from jestlab.platform.watching.watch import Line

PODS = {"on": "kubernetes", "tpu": "v5e-16x16"}


def settings(folder, monkeypatch, **changes) -> None:
    cluster = {"store_secret": "jestlab-store/url", "root": "/lab"}
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({"image": IMAGE, "kubernetes": cluster} | changes))
    monkeypatch.setenv("JESTLAB_CONFIG", str(file))


def test_manifests_are_rendered_and_nothing_else_happens(root, tmp_path, monkeypatch):
    settings(tmp_path, monkeypatch)
    spec = labs.write_study(tmp_path, resources=PODS)
    store = "postgresql://lab:open-sesame@db.example/results"
    rendered = labs.here("launch", spec, "--render", tmp_path / "jobs", "--store", store, root=root)
    assert rendered.returncode == 0, rendered.stderr
    assert rendered.stdout == f"3 manifests in {tmp_path / 'jobs'}\n"
    files = sorted((tmp_path / "jobs").iterdir())
    assert len(files) == 3
    for file in files:
        assert "open-sesame" not in file.read_text()
        manifest = yaml.safe_load(file.read_text())
        assert (manifest["kind"], f"{manifest['metadata']['name']}.yaml") == ("JobSet", file.name)
    assert not root.exists()


def test_processes_have_no_manifests(root, tmp_path):
    refused = labs.here("launch", labs.write_study(tmp_path), "--render", tmp_path / "jobs", root=root)
    assert refused.returncode == 1
    assert "--on kubernetes" in refused.stderr
    assert not (tmp_path / "jobs").exists()


def test_what_an_executor_lacks_is_said_before_anything_is_written(root, tmp_path, monkeypatch):
    settings(tmp_path, monkeypatch, image=None)
    spec = labs.write_study(tmp_path, resources=PODS)
    refused = labs.here("launch", spec, root=root)
    assert refused.returncode == 1
    assert "image" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert not root.exists()


def test_pods_are_not_sent_where_they_cannot_reach_the_store(root, tmp_path, monkeypatch):
    settings(tmp_path, monkeypatch)
    spec = labs.write_study(tmp_path, resources=PODS)
    refused = labs.here("launch", spec, root=root)
    assert refused.returncode == 1
    assert len(refused.stderr.splitlines()) == 1
    assert (
        f"jobs on kubernetes cannot reach the SQLite file {root / 'results.db'}: give --store"
        in refused.stderr
    )
    assert not root.exists()


def test_a_finished_study_needs_no_executor(root, tmp_path, monkeypatch):
    """Launched again with an executor that could not launch it, it says that there is nothing to run."""
    settings(tmp_path, monkeypatch, image=None)
    spec = labs.write_study(tmp_path, resources=PODS)
    planned = plan(load(str(spec)))
    store = Store.open(Lab.find(root).store_url)
    store.record(planned)
    for run in planned.runs:
        plans.begun(store, run, root / run.directory).complete()
    store.close()
    shown = labs.here("launch", spec, "--on", "kubernetes", "--max-chip-hours", 0, root=root)
    assert shown.returncode == 0, shown.stderr
    assert f"nothing to run: all {len(planned.runs)} runs are COMPLETED" in shown.stdout


def test_a_log_is_asked_of_whoever_ran_the_run(root, tmp_path, monkeypatch, namespace):
    location = "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
    monkeypatch.setattr(location, str(namespace.kubeconfig(tmp_path / "kubeconfig")))
    settings(tmp_path, monkeypatch)
    run = plans.run("joint")
    store = Store.open(Lab.find(root).store_url)
    store.record(plans.plan(run))
    none = labs.here("logs", "toy/joint", root=root)
    assert none.returncode == 1
    assert "has no log yet: it is PENDING" in none.stderr
    claim = claims.claim(
        store, run.fingerprint, leases.enter_launcher(store, "a:1:0"), "kubernetes", 256, "runs/x/log.txt"
    )
    assert claim is not None
    claims.launched(store, {claim.attempt_id: f"lab/{namespace.name}/jestlab-gone-1"})
    asked = labs.here("logs", "toy/joint", root=root)
    assert asked.returncode == 1
    assert len(asked.stderr.splitlines()) == 1
    assert f"jestlab-gone-1 has no pods in {namespace.name}" in asked.stderr


def test_logs_end_when_the_worker_has_died_without_a_word(root, tmp_path):
    spec = labs.write_study(tmp_path, runs={"long": {"steps": 5_000, "pause": 0.02}})
    with labs.started("launch", spec, root=root) as launcher:
        labs.wait_until(lambda: labs.starts(root, "long"))
        [(worker, _)] = labs.starts(root, "long")
        with labs.started("logs", "toy/long", "-f", root=root) as following:
            os.kill(launcher.pid, signal.SIGKILL)
            os.kill(worker, signal.SIGKILL)
            said = following.communicate(timeout=30)[0]
    assert "--- attempt 1" in said
    assert "its process has vanished: launch again to go on" in said


def test_logs_go_on_through_a_retry(root, tmp_path, monkeypatch):
    run = plans.run("joint")
    store = Store.open(Lab.find(root).store_url)
    store.record(plans.plan(run))
    log = root / run.directory / "log.txt"
    log.parent.mkdir(parents=True)
    log.write_text("first\n")
    plans.begun(store, run).fail("lost its machine")
    with labs.started("logs", "toy/joint", "-f", root=root) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "first\n"
        time.sleep(1.2)  # a few looks at a run that is over for now
        again = plans.begun(store, run)
        with log.open("a") as stream:
            stream.write("second\n")
        assert following.stdout.readline() == "second\n"
        again.complete()
        assert following.wait(timeout=10) == 0
    ended_run = plans.run("other", config={"steps": 3})
    store.record(plans.plan(ended_run, name="other"))
    (root / ended_run.directory).mkdir(parents=True)
    (root / ended_run.directory / "log.txt").write_text("last\n")
    plans.begun(store, ended_run).fail("no such file")
    monkeypatch.setattr("jestlab.platform.cli.logs._POLL_SECONDS", 0.05)  # it looks several times
    ended = labs.here("logs", "other/other", "-f", root=root)
    assert (ended.returncode, ended.stdout) == (0, "last\n")
    store.close()


def test_what_is_advised_after_a_failure_works_as_it_stands(root, tmp_path):
    spec = labs.write_study(
        tmp_path,
        runs={"joint": {"fail_at": 3}},
        axes=[{"runs": "joint", "grid": {"steps": [10, 11]}}],
        resources={"retries": 0},
    )
    failed = labs.here("launch", spec, "--store", f"sqlite:///{root}/own.db", root=root)
    assert failed.returncode == 1, failed.stderr
    advice = dict(line.split(": ", 1) for line in failed.stdout.splitlines() if ": jestlab " in line)
    assert set(advice) == {"see", "then"}
    for command in advice.values():
        assert command.endswith(f" --root {root} --store sqlite:///{root}/own.db")
    words = shlex.split(advice["see"])
    said = labs.here(*words[1:])
    assert said.returncode == 0, said.stderr
    assert "--- attempt 1" in said.stdout


def test_watch_on_a_terminal_goes_on_until_all_is_over(root, tmp_path):
    spec = labs.write_study(tmp_path, runs={"uniform": {"steps": 60, "gate": str(tmp_path / "gate")}})
    with labs.started("launch", spec, root=root) as launcher:
        labs.wait_until(lambda: labs.starts(root, "uniform"))
        ours, theirs = pty.openpty()
        watching = subprocess.Popen(
            [*labs.JESTLAB, "watch", "toy", "--every", "0.2", "--root", str(root)],
            stdout=theirs,
            stdin=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "140", "LINES": "40"},
        )
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the terminal has been closed
                break
            if b"RUNNING" in shown:
                (tmp_path / "gate").touch()
        assert watching.wait(30) == 0
        launcher.wait(30)
    screen = shown.decode(errors="replace")
    assert "RUNNING" in screen
    assert "examples/s" in screen
    assert "1 COMPLETED" in screen.splitlines()[-2]


def test_of_more_runs_than_lines_those_that_run_are_shown(root):
    store = Store.open(Lab.find(root).store_url)
    runs = [plans.run(f"run{i}", config={"steps": i + 1}) for i in range(30)]
    store.record(plans.plan(*runs))
    plans.begun(store, runs[17]).flush()
    lines = [Line(row, None, None, None, Spending()) for row in store.runs("toy")]
    assert len(rendered(text(lines), None).splitlines()) == 33
    few = rendered(_shown(lines, height=20), None).splitlines()
    assert [line.split()[0] for line in few[1:-2]] == ["run17"]
    assert few[-1] == "29 PENDING, 1 RUNNING"


def test_cancel_says_what_it_stopped(root, tmp_path):
    store = Store.open(Lab.find(root).store_url)
    store.record(plans.reference_and_two())
    one = labs.here("cancel", "toy/uniform", "--json", root=root)
    assert (one.returncode, json.loads(one.stdout)) == (
        0,
        [{"run": "uniform", "label": "uniform ratio=0.5", "seed": 0}],
    )
    states = dict(sqlite3.connect(root / "results.db").execute("SELECT run, state FROM v_runs"))
    assert states == {"reference": "PENDING", "joint": "BLOCKED", "uniform": "CANCELLED"}
    wrong = labs.here("cancel", "toy/unifrom", root=root)
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (1, 1)
    assert "uniform" in wrong.stderr
    assert store.reasons([row.fingerprint for row in store.runs("toy")]).keys() == {
        row.fingerprint for row in store.runs("toy") if row.state == RunState.CANCELLED
    }


def test_cancel_says_what_other_studies_lose_by_it(root):
    store = Store.open(Lab.find(root).store_url)
    reference, joint, uniform = plans.reference_and_two().runs
    store.record(plans.plan(reference, joint, uniform))
    store.record(plans.plan(reference, joint, name="other"))
    shown = labs.here("cancel", "toy", root=root)
    assert shown.stdout.splitlines()[-2:] == [
        "3 runs cancelled",
        "2 of them also belong to other and stay CANCELLED there until other is launched again",
    ]


def test_silence_is_measured_by_ones_own_clock():
    now = [10.0]
    silence = Silence(lambda: now[0])
    assert silence.seconds("a", "first") == 0
    now[0] = 40.0
    assert (silence.seconds("a", "first"), silence.seconds("b", "first")) == (30.0, 0.0)
    assert silence.seconds("a", "second") == 0
    now[0] = 50.0
    silence.clear()
    assert silence.seconds("a", "second") == 0


def test_a_wakeup_that_nobody_waits_for_breaks_nothing():
    Wakeup().set()
