"""`jestlab launch`, `logs`, `watch`, and `cancel`."""

import itertools
import json
import os
import re
import shlex
from pathlib import Path
from unittest import mock

import labs_support as labs
import plans_support as plans
import pytest
import stores_support as stores
import yaml
from executor_harnesses import IMAGE
from in_process import rows
from rich.live import Live
from sqlalchemy import update

from jestlab.analysis.files import write_whole
from jestlab.platform import processes
from jestlab.platform.cli import logs, status
from jestlab.platform.cli.outcome import claims_table
from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import liveness
from jestlab.platform.launch import status as launch_status
from jestlab.platform.launch.options import Intervals
from jestlab.platform.launch.status import RunStatus, Watch
from jestlab.platform.render import render
from jestlab.platform.store import leases, tables
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import now
from jestlab.platform.store.trust import check_names_available
from jestlab.platform.whoami import user_name

PODS = {"on": "kubernetes", "tpu": "v5e-16x16"}


def settings(folder, monkeypatch, **changes) -> None:
    cluster = {"store_secret": "jestlab-store/url", "root": "/lab"}
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({"image": IMAGE, "kubernetes": cluster} | changes))
    monkeypatch.setenv("JESTLAB_CONFIG", str(file))


def nothing():
    """Do nothing in a moment in which a command sleeps."""


# ---- launch


def test_renders_manifests_and_nothing_else(root, tmp_path, monkeypatch, jestlab):
    settings(tmp_path, monkeypatch)
    jobs = tmp_path / "jobs"
    # Local processes have no manifests.
    assert "--on kubernetes" in jestlab("launch", labs.write_study(tmp_path), "--render", jobs, code=1)
    assert not jobs.exists()
    jobs.mkdir()
    theirs = jobs / "old.part"
    theirs.touch()
    os.utime(theirs, (0, 0))
    spec = labs.write_study(tmp_path, resources=PODS)
    jestlab("launch", spec, "--render", jobs, "--store", "postgresql://lab:open-sesame@db.example/results")
    theirs.unlink()
    assert len(list(jobs.iterdir())) == 3
    for file in jobs.iterdir():
        assert "open-sesame" not in file.read_text()
        manifest = yaml.safe_load(file.read_text())
        assert (manifest["kind"], f"{manifest['metadata']['name']}.yaml") == ("JobSet", file.name)
    assert not root.exists()


@pytest.mark.parametrize(("image", "problem"), [(None, "image"), (IMAGE, "results.db: give --store")])
def test_problems_of_an_executor_are_reported_before_anything_is_written(
    root, tmp_path, monkeypatch, jestlab, image, problem
):
    settings(tmp_path, monkeypatch, image=image)
    refused = jestlab("launch", labs.write_study(tmp_path, resources=PODS), code=1)
    assert problem in refused and refused.count("\n") == 1
    assert not root.exists()


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (None, "scontrol not found: launch on a machine with Slurm's commands"),
        ("Unable to contact slurm controller (connect failure)", "scontrol: Unable to contact slurm"),
        ("fatal: Could not establish a configuration source", "scontrol: fatal: Could not establish"),
    ],
)
def test_a_launch_without_a_slurm_cluster_is_one_error_and_writes_nothing(
    root, tmp_path, monkeypatch, jestlab, script, problem
):
    tools = tmp_path / "tools"
    tools.mkdir()
    if script is not None:
        (tools / "scontrol").write_text(f"#!/bin/sh\necho '{script}' >&2\nexit 1\n")
        (tools / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    refused = jestlab("launch", labs.write_study(tmp_path), "--on", "slurm", code=1)
    assert refused.startswith(f"jestlab: {problem}") and refused.count("\n") == 1
    assert not root.exists()
    jestlab("launch", tmp_path / "toy.yaml", "--on", "slurm", "--render", tmp_path / "jobs")
    assert len(list((tmp_path / "jobs").glob("*.sbatch"))) == 3


def test_a_completed_study_needs_no_executor(root, store, tmp_path, monkeypatch, jestlab):
    settings(tmp_path, monkeypatch, image=None)
    spec = labs.write_study(tmp_path, resources=PODS)
    planned = labs.planned(spec)
    plans.record(store, planned)
    for run in planned.runs:
        plans.begun(store, run, root / run.directory).complete()
    shown = jestlab("launch", spec, "--on", "kubernetes", "--max-chip-hours", 0)
    assert "nothing to run: all 3 runs are COMPLETED" in shown


@pytest.mark.usefixtures("in_process")
def test_the_command_suggested_after_a_failure_works(root, tmp_path, jestlab):
    axes = [{"runs": "joint", "grid": {"steps": [10, 11]}}]
    spec = labs.write_study(tmp_path, runs={"joint": {"fail_at": 3}}, axes=axes)
    failed = jestlab("launch", spec, "--store", f"sqlite:///{root}/own.db", code=1)
    advice = dict(re.findall(r"^(\w+): +(jestlab .*)$", failed, re.M))
    assert set(advice) == {"see"} and "then:    fix the cause, and launch again" in failed
    end = f" --root {root} --store sqlite:///{root}/own.db"
    assert advice["see"].endswith(end)
    assert "--- attempt 1" in labs.here(*shlex.split(advice["see"])[1:]).stdout


def test_a_study_replaces_only_an_experiment_of_this_user_with_which_it_shares_runs(store):
    a, b, other = runs = [plans.run(name, config={"name": name}) for name in ("a", "b", "other")]
    plans.record(store, plans.plan(a, b))

    def refused(owner, run):
        """Return why a study of one run can't replace the experiment, if that has an owner."""
        with store.writing() as connection:
            connection.execute(update(tables.ExperimentRow).values(owner=owner, host="atlas"))
        try:
            check_names_available(store, {"free": [run.fingerprint], "toy": [run.fingerprint]})
        except UserError as error:
            return str(error)

    assert not any(refused(None, run) for run in runs)  # it has no results
    plans.begun(store, a).complete()
    for owner in (None, user_name()):
        assert [refused(owner, run) for run in (a, b)] == [None, None]
        assert "experiment toy already with 2 other runs" in refused(owner, other)
    assert all("alice, launched on atlas" in refused("alice", run) for run in runs)


@pytest.mark.usefixtures("in_process")
def test_a_launch_replaces_another_study_only_if_wanted(store, root, jestlab, tmp_path):
    completed = plans.run("a")
    plans.record(store, plans.plan(completed))
    plans.begun(store, completed).complete()
    part = {"program": "toy_programs:loop", "base": {"steps": 3}}
    studies = {name: part | {"runs": {name: {"name": name}}} for name in ("one", "toy")}
    spec = tmp_path / "both.yaml"
    spec.write_text(f"name: both\nstudies: {studies}\n")
    for each in (spec, labs.write_study(tmp_path)):
        refused = jestlab("launch", each, "--no-reports", code=1)
        assert refused.count("\n") == 1 and "experiment toy already" in refused and "--replace" in refused
        assert "experiment toy already" in jestlab("plan", each).splitlines()[-1]
    jestlab("launch", spec, "--replace", "--no-reports")
    assert rows(root, "SELECT run FROM v_runs WHERE experiment = 'toy'") == [("toy",)]
    assert set(rows(root, "SELECT owner FROM v_experiments")) == {(user_name(),)}


STATEMENT = "Joint selection learns more than independent selection at f = 0.8 and 0.9"


def test_each_claim_is_a_line():
    columns = ("study", "statement", "verdict", "measure", "unit", "difference", "low", "high")
    claims = [
        ("filtering_ratio", STATEMENT, "holds", "score", "percent", 0.0836, 0.0294, 0.1377),
        ("criteria", "It\nspikes", "undecided", "loss_spikes", "raw", 0.0836, None, None),
        ("criteria", "It is so", "not run", "score", "percent", None, None, None),
    ]
    rows = [dict(zip(columns, claim, strict=True), digits=None, within=None) for claim in claims]
    assert [" ".join(line.split()) for line in render(claims_table(rows, by_study=True)).splitlines()] == [
        f"✓ filtering_ratio {STATEMENT} +8.4 [+2.9, +13.8]",
        "? criteria It spikes +0.0836 loss_spikes",
        "○ criteria It is so —",
    ]
    assert render(claims_table(rows[2:], by_study=False)) == "○  It is so  —"


@pytest.mark.usefixtures("in_process")
def test_a_launch_ends_in_verdicts_and_links_to_the_whole_table(root, tmp_path, monkeypatch, jestlab):
    plans.blank_page(monkeypatch)
    spec = labs.write_study(
        tmp_path,
        program="toy_programs:draw",
        base={"mean": 0.5, "spread": 0.0},
        runs={"joint": {}, "uniform": {"salt": "u"}},
        claims=[{"statement": STATEMENT, "of": "joint", "above": "uniform"}],
        reports=["table"],
        metrics={"toy/score": {"goal": "max", "unit": "percent"}},
    )
    launched = jestlab("launch", spec)
    assert f"\n?  {STATEMENT}  +0.0\n1 claim: undecided.\n" in launched
    assert f"\nclaims:  jestlab table claims toy --root {root}\n" in launched
    assert "| source" not in launched and "| joint" in launched
    assert json.loads((root / "reports" / "toy" / "claims.json").read_text())["rows"][0]["source"] == ""


@pytest.mark.usefixtures("in_process")
def test_a_launch_in_a_pipe_prints_each_table_of_the_study_once(root, tmp_path, monkeypatch, jestlab):
    """The page's folder has the same tables as files."""

    def build(_: object, folder: Path) -> list[Path]:
        names = ("report.html", "report/summary.md", "report/costs.md")
        return [write_whole(folder / name, "| joint | of the page |") for name in names]

    monkeypatch.setattr("jestlab.analysis.report.gather", lambda *_, **__: None)
    monkeypatch.setattr("jestlab.analysis.report.build", build)
    spec = labs.write_study(tmp_path, reports=["table"])
    for launched in (jestlab("launch", spec), jestlab("launch", spec)):
        assert launched.count("\n| joint") == 1 and "of the page" not in launched


@pytest.mark.parametrize("value", ["-0.5", "inf", "nan", "soon"])
def test_an_interval_is_a_number_of_seconds(monkeypatch, value):
    monkeypatch.setenv("JESTLAB_POLL_SECONDS", value)
    with pytest.raises(UserError, match=f"JESTLAB_POLL_SECONDS '{value}'"):
        Intervals.from_environment()


def test_silence_is_measured_by_the_local_clock(monkeypatch):
    clock = itertools.chain([10.0, 10.0], itertools.repeat(40.0))
    monkeypatch.setattr(liveness, "clock", lambda: next(clock))
    watched = liveness.Liveness(mock.Mock())
    heard = [("a", "first"), ("a", "first"), ("b", "first"), ("a", "second")]
    assert [watched.silence(*each) for each in heard] == [0.0, 30.0, 0.0, 0.0]
    monkeypatch.setattr(liveness, "clock", lambda: 50.0)
    watched.reset()
    assert watched.silence("a", "second") == 0


# ---- logs


def test_asks_the_executor_for_the_log(store, jestlab, tmp_path, monkeypatch, namespace):
    location = "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
    monkeypatch.setattr(location, str(namespace.kubeconfig(tmp_path / "kubeconfig")))
    settings(tmp_path, monkeypatch)
    run = plans.run("joint")
    plans.record(store, plans.plan(run))
    handle = f"lab/{namespace.name}/jestlab-gone-1"
    stores.attempt(store, run, RunState.PENDING, executor="kubernetes", started_at=None, handle=handle)
    assert f"jestlab-gone-1 has no pods in {namespace.name}" in jestlab("logs", "toy/joint", code=1)


def test_following_a_log_ends_when_the_worker_has_vanished(root, store):
    run = plans.run("long")
    plans.record(store, plans.plan(run))
    machine, pid, *_ = processes.identity().split(":")
    vanished = f"{machine}:{pid}:1:log.txt"  # this process's ID, but it started at another time
    stores.attempt(store, run, RunState.RUNNING, handle=vanished, heartbeat_at=now())
    stores.folder(Lab.find(root), run)
    followed = labs.here("logs", "toy/long", "-f", root=root)
    assert "--- attempt 1" in followed.stdout
    assert "its process has vanished" in followed.stderr


def test_following_a_log_continues_through_a_retry(root, store, at_each_sleep, jestlab):
    run = plans.run("joint")
    plans.record(store, plans.plan(run))
    log = stores.folder(Lab.find(root), run) / "log.txt"
    log.write_text("first\n")
    plans.begun(store, run).fail("lost its machine")
    at_each_sleep(logs)
    assert jestlab("logs", "toy/joint", "-f") == "first\n"  # no retry follows
    attempts = []

    def retry():
        attempts.append(plans.begun(store, run))
        log.write_text("first\nsecond\n")

    at_each_sleep(logs, nothing, nothing, retry, nothing, lambda: attempts[0].complete())
    assert jestlab("logs", "toy/joint", "-f") == "first\nsecond\n"


# ---- watch


def test_watch_on_a_terminal_continues_until_all_runs_are_over(store, jestlab, monkeypatch, at_each_sleep):
    run = plans.run("uniform", config={"steps": 60})
    plans.record(store, plans.plan(run))
    attempt = plans.begun(store, run)
    attempt.progress(5, 60)
    attempt.flush()
    read, reads, redraw = Watch.update, itertools.count(), Live.update

    def read_or_fail(watch):
        if next(reads) == 1:
            raise StoreUnreachable("the store is away")
        return read(watch)

    monkeypatch.setattr(Watch, "update", read_or_fail)
    monkeypatch.setattr(Live, "update", lambda live, content: redraw(live, content, refresh=True))
    at_each_sleep(launch_status, nothing, nothing, attempt.complete)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for name, value in {"TERM": "xterm", "COLUMNS": "140", "LINES": "40"}.items():
        monkeypatch.setenv(name, value)
    screen = jestlab("watch", "toy")
    assert "RUNNING" in screen and "5/60" in screen and "examples/s" in screen
    assert "the store is away" in screen
    assert "1 COMPLETED" in screen.splitlines()[-2]


def test_watch_shows_active_runs_if_not_all_fit(store, root):
    lab = Lab.find(root)
    runs = [plans.run(f"run{i}", config={"steps": i + 1}) for i in range(30)]
    plans.record(store, plans.plan(*runs))
    plans.begun(store, runs[17]).flush()
    rows = [RunStatus(row) for row in store.runs("toy")]
    assert len(render(status.watch_lines(rows, lab)).splitlines()) == 33
    few = render(status.watch_lines(rows, lab, height=20)).splitlines()
    assert [line.split()[0] for line in few[1:-2]] == ["run17"]
    assert few[-1] == "1 RUNNING, 29 PENDING"


# ---- cancel


def test_cancel_lists_the_runs_that_it_stopped(store, jestlab):
    reference, joint, uniform = plans.reference_and_two().runs
    bad = plans.run("bad")
    plans.record(store, plans.plan(reference, joint, uniform, bad))
    plans.record(store, plans.plan(reference, joint, name="other"))
    plans.begun(store, bad).fail("ValueError: no")  # nothing to stop
    stopped = [{"run": "uniform", "label": "uniform ratio=0.5", "seed": 0}]
    assert json.loads(jestlab("cancel", "toy/uniform", "--json")) == stopped
    states = {row.label: row.state for row in store.runs("toy")}
    cancelled = {"uniform ratio=0.5": "CANCELLED", "bad": "FAILED"}
    assert states == {"reference": "PENDING", "joint": "BLOCKED"} | cancelled
    assert "uniform" in jestlab("cancel", "toy/unifrom", code=1)
    shown = jestlab("cancel", "toy").splitlines()
    assert "2 runs cancelled" in shown and shown[-1].startswith("2 runs shared with other")
    assert {row.state for row in store.runs("toy")} == {"CANCELLED", "FAILED"}
    before = store.reasons([uniform.fingerprint])
    leases.request_stop(store, [uniform.fingerprint], "cancelled by another user")
    assert store.reasons([uniform.fingerprint]) == before
    assert jestlab("cancel", "toy").splitlines()[-1] == "nothing to cancel"
    assert jestlab("cancel", "toy", "--json") == "[]\n"
