"""`jestlab gc`: what is needed stays whatever happens, what is not goes with its rows."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from datetime import timedelta

import labs_support as labs
import plans_support as plans
import pytest
import stores_support as stores
from click.testing import CliRunner
from labs_support import JESTLAB
from sqlalchemy import insert, text, update

from jestlab.models.config import ShapesBenchmark, ShapesWeb
from jestlab.models.data import datasets
from jestlab.platform.cli import cli
from jestlab.platform.errors import UserError
from jestlab.platform.lab import gc
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import claims, tables
from jestlab.platform.store import engine as engines
from jestlab.platform.store.annotations import Subject, add_tags
from jestlab.platform.store.engine import writable, writing
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import now

DAY = timedelta(days=1)


def make_old(path, days=3):
    when = time.time() - days * 86_400
    for place in (path, *path.rglob("*")):
        os.utime(place, (when, when), follow_symlinks=False)


@pytest.fixture
def lab(tmp_path, store_url):
    return Lab.find(tmp_path / "lab", store_url)


@pytest.fixture
def runs(lab):
    """reference ← joint; uniform, alone: completed long ago, and in no experiment any more."""
    planned = plans.reference_and_two()
    store = Store.open(lab.store_url)
    store.record(planned)
    for run in planned.runs:
        stores.attempt(store, run, scores={"toy/score": 0.5}, loss=(1.0, 0.5))
        make_old(stores.folder(lab, run))
    store.record(plans.plan(plans.run("other")))  # under the same name: the experiment's runs are others now
    with store.writing() as connection:
        connection.execute(update(tables.Run).values(updated_at=now() - 3 * DAY))
    return dict(zip(("reference", "joint", "uniform"), planned.runs, strict=True))


def found(lab, age=DAY):
    listed = gc.find(lab, Store.open(lab.store_url), age)
    return sorted(
        (item.kind.value, item.path.relative_to(lab.root).as_posix().rpartition("-")[0]) for item in listed
    )


def collect(lab, age=DAY):
    return gc.collect(lab, Store.open(lab.store_url), age)


def count(lab, table):
    with Store.open(lab.store_url).reading() as connection:
        return connection.execute(text(f"SELECT COUNT(*) FROM {table}")).scalar()


def kept_folders(lab):
    return sorted(path.name.rpartition("-")[0] for path in (lab.root / "runs").iterdir())


ALL = [("run", "runs/joint"), ("run", "runs/reference"), ("run", "runs/uniform")]


def test_runs_of_no_experiment_go_with_rows_and_folders(lab, runs):
    assert found(lab) == ALL
    assert kept_folders(lab) == ["joint", "reference", "uniform"]  # looking changes nothing
    assert [item.size > 1000 for item in collect(lab)] == [True] * 3
    assert kept_folders(lab) == []
    assert [count(lab, table) for table in ("run", "attempt", "metric", "evaluation", "need")] == [
        1,
        0,
        0,
        0,
        0,
    ]
    assert collect(lab) == []


def test_what_a_table_shows_stays_with_what_it_needs(lab, runs):
    Store.open(lab.store_url).record(plans.plan(runs["reference"], runs["joint"], name="again"))
    with Store.open(lab.store_url).writing() as connection:
        connection.execute(text("DELETE FROM member WHERE name = 'reference'"))
    assert found(lab) == [("run", "runs/uniform")]
    collect(lab)
    assert kept_folders(lab) == ["joint", "reference"]


def test_the_tag_keep_protects(lab, runs):
    store = Store.open(lab.store_url)
    add_tags(store, Subject(fingerprint=runs["joint"].fingerprint), ["keep"])
    add_tags(store, Subject(fingerprint=runs["uniform"].fingerprint), ["best"])
    assert found(lab) == [("run", "runs/uniform")]
    collect(lab)
    assert kept_folders(lab) == ["joint", "reference"]


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "BLOCKED"])
def test_what_is_not_over_stays_with_what_it_needs(lab, runs, state):
    with Store.open(lab.store_url).writing() as connection:
        connection.execute(
            update(tables.Run).where(tables.Run.fingerprint == runs["joint"].fingerprint).values(state=state)
        )
    assert found(lab) == [("run", "runs/uniform")]


def test_a_run_with_a_live_attempt_stays(lab, runs):
    stores.attempt(Store.open(lab.store_url), runs["uniform"], RunState.PENDING, number=2)
    with Store.open(lab.store_url).writing() as connection:
        connection.execute(update(tables.Run).values(state="FAILED", updated_at=now() - 3 * DAY))
    assert found(lab) == [("run", "runs/joint"), ("run", "runs/reference")]


def test_what_is_young_stays(lab, runs):
    assert found(lab, timedelta(days=4)) == []
    orphan = lab.root / "runs" / "orphan-00000000"
    orphan.mkdir()
    (orphan / "log.txt").touch()
    assert ("folder", "runs/orphan") not in found(lab)
    make_old(orphan)
    assert ("folder", "runs/orphan") in found(lab)
    (orphan / "log.txt").touch()  # one file within it is enough
    assert ("folder", "runs/orphan") not in found(lab)
    make_old(orphan)
    collect(lab)
    assert kept_folders(lab) == []


def test_a_crash_after_the_rows_leaves_only_what_the_next_collection_finds(lab, runs, monkeypatch):
    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(gc, "_remove", crash)
    with pytest.raises(KeyboardInterrupt):
        collect(lab)
    monkeypatch.undo()
    assert count(lab, "run") == 1 and kept_folders(lab) == ["joint", "reference", "uniform"]
    with pytest.raises(UserError, match="the store knows none of the 3 runs"):
        collect(lab)  # as if the store were another lab's: by hand, then
    stores.folder(lab, plans.run("other"))
    assert found(lab) == [(kind.replace("run", "folder"), path) for kind, path in ALL]
    collect(lab)
    assert kept_folders(lab) == ["other"]


def test_a_crash_while_a_folder_is_emptied_leaves_no_half_of_it(lab, runs, monkeypatch):
    def crash(path):
        (path / "log.txt").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", crash)
    with pytest.raises(KeyboardInterrupt):
        collect(lab)
    monkeypatch.undo()
    whole = [path for path in (lab.root / "runs").iterdir() if not path.name.startswith(".")]
    assert len(whole) == 2 and all((path / "log.txt").exists() for path in whole)
    stores.folder(lab, plans.run("other"))
    for path in (lab.root / "runs").glob(".*.part"):
        make_old(path)
    collect(lab)
    assert kept_folders(lab) == ["other"]


def test_a_folder_that_a_run_has_taken_into_use_again_stays(lab, runs, monkeypatch):
    """Launched anew between the deletion of its rows and that of its folder."""
    is_owned = gc._is_owned

    def launch_first(store, *rest):
        store.record(plans.plan(runs["uniform"], name="anew"))
        return is_owned(store, *rest)

    monkeypatch.setattr(gc, "_is_owned", launch_first)
    collect(lab)
    assert kept_folders(lab) == ["uniform"]


def test_a_store_of_another_lab_is_no_reason_to_delete(lab, runs, tmp_path):
    other = Lab.find(lab.root, f"sqlite:///{tmp_path / 'other.db'}")
    store = Store.open(other.store_url)
    store.record(plans.plan(plans.run("other")))
    for go in (found, collect):
        with pytest.raises(UserError, match="the store knows none of the 3 runs"):
            go(other)
    assert kept_folders(lab) == ["joint", "reference", "uniform"]


@pytest.mark.parametrize("directory", ["../outside", "runs/..", "runs", "/", "runs/a/../../.."])
def test_rows_that_lead_elsewhere_delete_nothing(lab, runs, directory, tmp_path):
    (tmp_path / "outside").mkdir()
    with Store.open(lab.store_url).writing() as connection:
        connection.execute(
            update(tables.Run)
            .where(tables.Run.fingerprint == runs["uniform"].fingerprint)
            .values(directory=directory)
        )
    with pytest.raises(UserError, match="which is not in runs/"):
        collect(lab)
    assert (tmp_path / "outside").exists() and kept_folders(lab) == ["joint", "reference", "uniform"]


def test_a_link_is_not_followed(lab, runs, tmp_path):
    outside = tmp_path / "outside"
    (lab.root / runs["uniform"].directory).rename(outside)
    (lab.root / runs["uniform"].directory).symlink_to(outside)
    collect(lab)
    assert (outside / "log.txt").exists() and kept_folders(lab) == []


def test_half_made_things_and_locks_that_nobody_holds(lab, runs):
    for name in ("data/.shapes-web-00000000.part/a/b", "reports/toy/.table.md-123", "runs/.gone-1.part/x"):
        (lab.root / name).parent.mkdir(parents=True, exist_ok=True)
        (lab.root / name).write_text("half")
    for name in ("data/.free.lock", "data/.held.lock"):
        (lab.root / name).touch()
    make_old(lab.root)
    with (lab.root / "data/.held.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for _ in range(2):  # looking does not make them younger
            names = {path for kind, path in found(lab) if kind == "leftover"}
        listed = [
            item.path.name for item in gc.find(lab, Store.open(lab.store_url), DAY) if item.kind == "leftover"
        ]
        assert sorted(listed) == [
            ".free.lock",
            ".gone-1.part",
            ".shapes-web-00000000.part",
            ".table.md-123",
        ], names
        collect(lab)
        assert [path.name for path in lab.data.iterdir()] == [".held.lock"]
    assert list((lab.root / "reports/toy").iterdir()) == []


def test_what_jobs_of_slurm_have_left_stays_until_they_are_over(lab, runs):
    names = {"over": "0a" * 16, "live": "0b" * 16, "young": "0c" * 16}
    for name, batch in names.items():
        for path in (f"slurm/{batch}/0.end", f"slurm/names/{name}", "slurm/notes.txt"):
            (lab.root / path).parent.mkdir(parents=True, exist_ok=True)
            (lab.root / path).write_text(f"{batch} 0\n")
    make_old(lab.root)
    for path in (f"slurm/{names['young']}/0.end", "slurm/names/young"):
        (lab.root / path).touch()
    handle = f"site:4711:{names['live']}.0:runs/uniform/log.txt"
    store = Store.open(lab.store_url)
    attempt = stores.attempt(store, runs["uniform"], RunState.PENDING, number=2, executor="slurm")
    assert not [item for item in gc.find(lab, store, DAY) if item.kind == "leftover"]  # it may be in any
    claims.launched(store, {attempt: handle})
    left = {item.path.name for item in gc.find(lab, store, DAY) if item.kind == "leftover"}
    assert left == {names["over"], "over"}
    collect(lab)
    there = {path.relative_to(lab.root / "slurm").as_posix() for path in (lab.root / "slurm").glob("*")}
    assert there == {names["live"], names["young"], "names", "notes.txt"}
    assert {path.name for path in (lab.root / "slurm" / "names").iterdir()} == {"live", "young"}


def test_data_that_no_run_reads(lab):
    web, bench = (
        ShapesWeb(examples=64, shard_size=32),
        ShapesBenchmark(classification_examples=8, retrieval_examples=8),
    )
    config = {"data": {"train": web.model_dump(), "benchmark": bench.model_dump()}, "seed": 3}
    store = Store.open(lab.store_url)
    kept = plans.run("run", "train", config, seed=3)
    store.record(plans.plan(kept))
    stores.folder(lab, kept)
    folders = {
        "web": datasets.ensure_web(web, 3, lab.data),
        "benchmark": datasets.ensure_benchmark(bench, lab.data),
        "another seed": datasets.ensure_web(web, 4, lab.data),
        "users": lab.data / "laion",
    }
    folders["users"].mkdir()
    make_old(lab.data)
    assert [item.path for item in gc.find(lab, store, DAY)] == [folders["another seed"]]
    collect(lab)
    assert [name for name, path in folders.items() if path.exists()] == ["web", "benchmark", "users"]


def test_data_stay_where_nobody_knows_what_a_run_reads(lab, runs):
    folder = lab.data / "shapes-web-00000000"
    folder.mkdir(parents=True)
    make_old(lab.data)
    assert ("data", "data/shapes-web") not in found(lab)  # the experiment's run is of a user's program


def test_the_verb(lab, runs):
    def called(*arguments):
        return CliRunner().invoke(
            cli, ["gc", *arguments, "--root", str(lab.root), "--store", lab.store_url], catch_exceptions=False
        )

    shown = called().output
    assert shown.splitlines()[-1].endswith("in total; to delete: jestlab gc --delete")
    assert json.loads(called("--json").output)["deleted"] is False
    assert kept_folders(lab) == ["joint", "reference", "uniform"]
    assert called("--older-than", "2w", "--delete").output == "nothing to collect\n"
    assert "expected 90m" in called("--older-than", "soon").output
    done = json.loads(called("--delete", "--json").output)
    assert done["deleted"] and {item["kind"] for item in done["garbage"]} == {"run"}
    assert kept_folders(lab) == []
    assert called().output == "nothing to collect\n"


def test_without_a_store_nothing_is_garbage(tmp_path):
    (tmp_path / "lab" / "runs" / "joint-00000000").mkdir(parents=True)
    command = [*JESTLAB, "gc", "--delete", "--root", tmp_path / "lab"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("jestlab: no store at")
    assert (tmp_path / "lab" / "runs" / "joint-00000000").exists()


def test_after_real_launches_what_is_left_is_whole(root, tmp_path):
    """A study is changed and launched again: the old run goes, and nothing of the new one runs again."""
    for steps in (12, 13):
        runs = {"reference": {}, "joint": {"needs": ["reference"]}, "uniform": {"steps": steps}}
        study = labs.write_study(tmp_path, runs=runs)
        assert labs.here("launch", study, "--no-reports", root=root).returncode == 0
    done = json.loads(labs.here("gc", "--older-than", "0s", "--delete", "--json", root=root).stdout)
    assert [(item["kind"], item["path"].partition("-")[0]) for item in done["garbage"]] == [
        ("run", "runs/uniform")
    ]
    left = sorted(path.name.partition("-")[0] for path in (root / "runs").iterdir())
    assert left == ["joint", "reference", "uniform"]
    assert "nothing to run: all 3 runs" in labs.here("launch", study, "--no-reports", root=root).stdout
    archive = tmp_path / "lab.tar.zst"
    assert labs.here("export", archive, "--with-checkpoints", root=root).returncode == 0
    assert labs.here("import", archive, root=tmp_path / "copy").returncode == 0
    again = labs.here("launch", study, "--no-reports", root=tmp_path / "copy")
    assert "nothing to run: all 3 runs" in again.stdout


def test_the_store_is_free_while_sizes_are_looked_up(lab, runs, monkeypatch):
    """Looking takes minutes where there are many files; nothing may wait for it."""
    size = gc._size

    def look(path):
        engine = writable(lab.store_url)
        with writing(engine) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET LOCAL lock_timeout = 300"))
            connection.execute(update(tables.Run).values(step=tables.Run.step + 1))
        engine.dispose()
        return size(path)

    monkeypatch.setattr(engines, "BUSY_SECONDS", 0.3)
    monkeypatch.setattr(gc, "_size", look)
    assert len(collect(lab)) == 3


def test_workers_of_runs_that_stay_write_while_others_go(tmp_path, postgres, monkeypatch):
    lab = Lab.find(tmp_path / "lab", postgres)
    store, (stays, goes) = Store.open(postgres), (plans.run("stays", config={"steps": 3}), plans.run("goes"))
    store.record(plans.plan(goes))
    stores.attempt(store, goes, loss=(1.0,))
    stores.folder(lab, goes)
    store.record(plans.plan(stays))
    stores.attempt(store, stays, RunState.RUNNING, loss=(1.0,))
    with store.writing() as connection:
        connection.execute(update(tables.Run).values(updated_at=now() - 3 * DAY))
    delete_rows = gc._delete_rows

    def last(connection, fingerprints):
        delete_rows(connection, fingerprints)
        with store.writing() as worker:
            worker.execute(text("SET LOCAL lock_timeout = 300"))
            worker.execute(
                text(
                    "INSERT INTO tag (run_id, name, created_at) SELECT id, 'a', now() FROM run "
                    "WHERE state = 'RUNNING'"
                )
            )
            worker.execute(text("UPDATE run SET step = 2 WHERE state = 'RUNNING'"))

    monkeypatch.setattr(gc, "_delete_rows", last)
    assert [item.fingerprint for item in collect(lab)] == [goes.fingerprint]


def test_what_becomes_wanted_while_it_is_being_locked_stays(lab, runs, monkeypatch):
    """An experiment takes a run up between the first look and the lock."""
    locked = gc._State.locked

    def later(state, connection, older_than):
        run_id = next(run.id for run in state.unreferenced if run.fingerprint == runs["uniform"].fingerprint)
        tag = {"run_id": run_id, "name": "keep", "created_at": now()}
        connection.execute(insert(tables.Tag).values(**tag))
        return locked(state, connection, older_than)

    monkeypatch.setattr(gc._State, "locked", later)
    collect(lab)
    assert kept_folders(lab) == ["uniform"]


def test_with_another_store_of_the_same_folder_nothing_is_deleted(lab, runs):
    own = Lab(lab.root, f"sqlite:///{lab.root / 'results.db'}")
    store = Store.open(own.store_url)
    collect(lab, 9 * DAY)  # one that knows no runs is in nobody's way
    store.record(plans.plan(plans.run("own")))
    with pytest.raises(UserError, match=r"results.db knows runs in this folder too"):
        collect(lab)
    assert found(lab) == ALL
    assert kept_folders(lab) == ["joint", "reference", "uniform"]
    with pytest.raises(UserError, match="knows none of the 3 runs"):
        collect(Lab(lab.root, f"sqlite:///{lab.root}/../lab/results.db"), 9 * DAY)
