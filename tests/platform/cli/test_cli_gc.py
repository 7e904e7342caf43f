"""`jestlab gc`: deletes runs that nothing needs, with their rows and folders, and nothing else."""

import fcntl
import json
import os
import shutil
import time
from contextlib import closing
from datetime import timedelta
from unittest.mock import Mock

import plans_support as plans
import pytest
import stores_support as stores
from click.testing import CliRunner
from sqlalchemy import text, update

from jestlab.models.config import Data, DataConfig, ShapesBenchmark, ShapesWeb
from jestlab.models.data import datasets
from jestlab.platform.cli import cli
from jestlab.platform.cli.gc import generated_datasets
from jestlab.platform.errors import UserError
from jestlab.platform.lab import gc
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import claims, tables
from jestlab.platform.store import engine as engines
from jestlab.platform.store.engine import writable, writing
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store

DAY = timedelta(days=1)
OTHER = plans.run("other")
ALL = ["run joint", "run reference", "run uniform"]


def make_old(path, days=3):
    when = time.time() - days * 86_400
    for place in (path, *path.rglob("*")):
        os.utime(place, (when, when), follow_symlinks=False)


@pytest.fixture
def lab(tmp_path, store_url):
    return Lab.find(tmp_path / "lab", store_url)


@pytest.fixture
def store(lab):
    with closing(Store.open(lab.store_url)) as store:
        yield store


@pytest.fixture
def runs(lab, store):
    """reference ← joint, and uniform: completed long ago, and no longer in any experiment."""
    planned = plans.reference_and_two()
    plans.record(store, planned)
    for run in planned.runs:
        stores.attempt(store, run, scores={"toy/score": 0.5}, loss=(1.0, 0.5))
        make_old(stores.folder(lab, run))
    plans.record(store, plans.plan(OTHER))  # replaces the experiment's runs
    with store.writing() as connection:
        connection.execute(update(tables.RunRow).values(updated_at=now() - 3 * DAY))
    return dict(zip(("reference", "joint", "uniform"), planned.runs, strict=True))


def change(store, run, **values):
    with store.writing() as connection:
        where = tables.RunRow.fingerprint == run.fingerprint
        same_age = {"updated_at": tables.RunRow.updated_at}
        connection.execute(update(tables.RunRow).where(where).values(same_age | values))


def search(lab, age=DAY, act=gc.find):
    with closing(Store.open(lab.store_url)) as store:
        return act(lab, store, age, generated_datasets)


def found(lab, age=DAY):
    return sorted(f"{item.kind} {item.path.name.rpartition('-')[0]}" for item in search(lab, age))


def collect(lab, age=DAY):
    return search(lab, age, gc.collect)


def leftovers(lab):
    return {item.path.name for item in search(lab) if item.kind == "leftover"}


def kept_folders(lab):
    return sorted(path.name.rpartition("-")[0] for path in (lab.root / "runs").iterdir())


def test_deletes_runs_without_an_experiment_with_rows_and_folders(lab, store, runs):
    assert found(lab) == ALL
    assert kept_folders(lab) == ["joint", "reference", "uniform"]  # finding deletes nothing
    assert [item.size > 1000 for item in collect(lab)] == [True] * 3
    assert kept_folders(lab) == []
    names = ("run", "attempt", "metric", "evaluation", "need")
    with store.reading() as connection:
        left = [connection.scalar(text(f"SELECT COUNT(*) FROM {table}")) for table in names]
    assert left == [1, 0, 0, 0, 0]
    assert collect(lab) == []


TAG = "INSERT INTO tag (run_id, name, created_at) SELECT id, '{}', updated_at FROM run WHERE "
MEMBER = "INSERT INTO member SELECT 'toy', id, 'again', 'again', '', 0, 9 FROM run WHERE "


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        (TAG.format("keep"), ["run uniform"]),
        (TAG.format("best"), ALL),
        (MEMBER, ["run uniform"]),
        *((f"UPDATE run SET state = '{state}' WHERE ", ["run uniform"]) for state in ("RUNNING", "BLOCKED")),
        ("UPDATE attempt SET state = 'PENDING' WHERE run_id = (SELECT id FROM run WHERE ", ["run uniform"]),
    ],
)
def test_keeps_runs_in_use_and_those_that_they_need(lab, store, runs, sql, wanted):
    with store.writing() as connection:
        closed = ")" * sql.count("(SELECT")
        connection.execute(text(f"{sql} directory = '{runs['joint'].directory}'{closed}"))
    assert found(lab) == wanted
    collect(lab)
    assert kept_folders(lab) == (["joint", "reference"] if wanted != ALL else [])


def test_keeps_recent_files(lab, runs):
    assert found(lab, timedelta(days=4)) == []
    orphan = lab.root / "runs" / "orphan-00000000"
    orphan.mkdir()
    (orphan / "log.txt").touch()
    make_old(orphan)
    assert "folder orphan" in found(lab)
    (orphan / "log.txt").touch()  # one recent file within it is enough
    assert "folder orphan" not in found(lab)


@pytest.mark.parametrize(("module", "name", "started"), [(gc, "_delete", 0), (shutil, "rmtree", 1)])
def test_a_crash_leaves_whole_folders_for_the_next_collection(lab, runs, monkeypatch, module, name, started):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, name, Mock(side_effect=KeyboardInterrupt))
        collect(lab)  # which has deleted the rows
    folders = [path for path in (lab.root / "runs").iterdir() if not path.name.startswith(".")]
    assert len(folders) == 3 - started
    with pytest.raises(UserError, match=f"contains none of the {3 - started} runs"):
        collect(lab)  # as if the store were another lab's
    stores.folder(lab, OTHER)
    for path in folders[0].parent.glob(".*.part"):
        make_old(path)
    collect(lab)
    assert kept_folders(lab) == ["other"] and len(list((lab.root / "runs").iterdir())) == 1


def test_refuses_folders_outside_runs_and_does_not_follow_links(lab, store, runs, tmp_path):
    outside = tmp_path / "outside"
    (lab.root / runs["uniform"].directory).rename(outside)
    (lab.root / runs["uniform"].directory).symlink_to(outside)
    for directory in ("../outside", "runs/..", "runs", "/", "runs/a/../../.."):
        change(store, runs["joint"], directory=directory)
        with pytest.raises(UserError, match="which is not in runs/"):
            collect(lab)
        assert kept_folders(lab) == ["joint", "reference", "uniform"], directory
    change(store, runs["joint"], directory=runs["joint"].directory)
    collect(lab)
    assert (outside / "log.txt").exists() and kept_folders(lab) == []


def test_deletes_partial_files_and_free_locks(lab, runs):
    for name in ("data/.shapes-web-00000000.part/a/b", "reports/toy/.table.md-123", "runs/.gone-1.part/x"):
        (lab.root / name).parent.mkdir(parents=True, exist_ok=True)
        (lab.root / name).write_text("half")
    for name in ("data/.free.lock", "data/.held.lock"):
        (lab.root / name).touch()
    make_old(lab.root)
    expected = {".free.lock", ".gone-1.part", ".shapes-web-00000000.part", ".table.md-123"}
    with (lab.root / "data/.held.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for _ in range(2):  # finding does not change their times
            assert leftovers(lab) == expected
        collect(lab)
        assert [path.name for path in lab.data.iterdir()] == [".held.lock"]
    assert list((lab.root / "reports/toy").iterdir()) == []


def test_keeps_files_of_slurm_jobs_until_they_are_over(lab, store, runs):
    names = {"over": "0a" * 16, "live": "0b" * 16, "young": "0c" * 16}
    for name, batch in names.items():
        for path in (f"slurm/{batch}/0.end", f"slurm/names/{name}", "slurm/notes.txt"):
            (lab.root / path).parent.mkdir(parents=True, exist_ok=True)
            (lab.root / path).write_text(f"{batch}.0\n")
    make_old(lab.root)
    for path in (f"slurm/{names['young']}/0.end", "slurm/names/young"):
        (lab.root / path).touch()
    handle = f"site:4711:{names['live']}.0:runs/uniform/log.txt"
    attempt = stores.attempt(store, runs["uniform"], RunState.PENDING, number=2, executor="slurm")
    assert not leftovers(lab)  # the attempt could be in any of them
    claims.store_handles(store, {attempt: handle})
    assert leftovers(lab) == {names["over"], "over"}
    collect(lab)
    there = {path.relative_to(lab.root / "slurm").as_posix() for path in (lab.root / "slurm").rglob("*")}
    files = {f"{names[name]}/0.end" for name in ("live", "young")} | {names["live"], names["young"]}
    assert there == files | {"names", "names/live", "names/young", "notes.txt"}


def test_keeps_shipped_code_until_all_runs_have_ended(lab, store, runs):
    for name, days in (("old", 3), ("young", 0)):
        path = lab.root / "code" / f"{name}.tar.gz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"code")
        make_old(path, days)
    with store.writing() as connection:
        connection.execute(update(tables.RunRow).values(state="PENDING"))
    assert leftovers(lab) == set()
    with store.writing() as connection:
        connection.execute(update(tables.RunRow).values(state="FAILED"))
    assert leftovers(lab) == {"old.tar.gz"}
    collect(lab)
    assert [path.name for path in (lab.root / "code").iterdir()] == ["young.tar.gz"]


def test_deletes_generated_data_that_no_run_reads(lab, store):
    web = ShapesWeb(examples=64, shard_size=32)
    bench = ShapesBenchmark(classification_examples=8, retrieval_examples=8)
    config = {"data": {"train": web.model_dump(), "benchmark": bench.model_dump()}, "seed": 3}
    kept = plans.run("run", "train", config, seed=3)
    plans.record(store, plans.plan(kept))
    stores.folder(lab, kept)
    folders = {
        "web": datasets.ensure_web(DataConfig(data=Data(train=web), seed=3), lab.data),
        "benchmark": datasets.ensure_benchmark(bench, lab.data),
        "another seed": datasets.ensure_web(DataConfig(data=Data(train=web), seed=4), lab.data),
        "users": lab.data / "laion",
    }
    folders["users"].mkdir()
    make_old(lab.data)
    assert gc.find(lab, store, DAY, lambda program, config: None) == []  # it may read any of them
    assert [item.path for item in collect(lab)] == [folders["another seed"]]
    assert [name for name, path in folders.items() if path.exists()] == ["web", "benchmark", "users"]


def test_the_command_lists_and_deletes_with_an_option(lab, runs, tmp_path):
    def called(*arguments, code=0, store=lab.store_url):
        words = ["gc", *arguments, "--root", str(lab.root), "--store", store]
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == code, result.output
        return result.output or str(result.exception)

    assert called().splitlines()[-1].endswith("in total; to delete: jestlab gc --delete")
    assert json.loads(called("--json"))["deleted"] is False
    assert called("--older-than", "2w", "--delete") == "nothing to delete\n"
    assert "expected 90m" in called("--older-than", "soon", code=2)
    deleted = json.loads(called("--delete", "--json"))
    assert deleted["deleted"] and {item["kind"] for item in deleted["garbage"]} == {"run"}
    assert kept_folders(lab) == []
    missing = f"sqlite:///{tmp_path / 'missing.db'}"
    assert called("--delete", code=1, store=missing).startswith("no store at")


# ---- others at the same time


@pytest.fixture
def first(monkeypatch):
    """Make a function of gc do something else first."""

    def make(name, action):
        original = getattr(gc, name)
        monkeypatch.setattr(gc, name, lambda *given: (action(*given), original(*given))[1])

    return make


def test_keeps_the_folder_of_a_run_that_is_recorded_again_meanwhile(lab, store, runs, first):
    def record(path):
        if path.name in runs["uniform"].directory:
            plans.record(store, plans.plan(runs["uniform"], name="again"))

    first("_size", record)
    collect(lab)
    assert kept_folders(lab) == ["uniform"]


def test_keeps_a_run_that_is_tagged_before_the_rows_are_locked(lab, runs, first):
    tag = text(f"{TAG.format('keep')} directory = '{runs['uniform'].directory}'")
    first("_delete_rows", lambda connection, *_: connection.execute(tag))
    collect(lab)
    assert kept_folders(lab) == ["uniform"]


@pytest.mark.both_databases
def test_does_not_lock_the_store_while_it_measures_sizes(lab, runs, monkeypatch, first):
    def write(path):
        engine = writable(lab.store_url)
        with writing(engine) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET LOCAL lock_timeout = 300"))
            connection.execute(update(tables.RunRow).values(updated_at=tables.RunRow.updated_at))
        engine.dispose()

    monkeypatch.setattr(engines, "BUSY_SECONDS", 0.3)
    first("_size", write)
    assert len(collect(lab)) == 3


@pytest.mark.both_databases
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_workers_of_other_runs_can_write_meanwhile(lab, store, runs, monkeypatch):
    stores.attempt(store, OTHER, RunState.RUNNING, loss=(1.0,))
    delete_rows = gc._delete_rows

    def write_last(connection, *rest):
        rows = delete_rows(connection, *rest)
        with store.writing() as worker:
            for sql in ("SET LOCAL lock_timeout = 300", TAG.format("a"), "UPDATE run SET step = 2 WHERE "):
                worker.execute(text(sql if sql.startswith("SET") else f"{sql} state = 'RUNNING'"))
        return rows

    monkeypatch.setattr(gc, "_delete_rows", write_last)
    assert len(collect(lab)) == 3


def test_refuses_a_folder_that_two_stores_use(lab, runs):
    own = Lab(lab.root, f"sqlite:///{lab.root / 'results.db'}")
    store = Store.open(own.store_url)
    collect(lab, 9 * DAY)  # a store without runs is no obstacle
    plans.record(store, plans.plan(plans.run("own")))
    with pytest.raises(UserError, match=r"results.db has runs in this folder"):
        collect(lab)
    assert found(lab) == ALL
    for call in (found, collect):
        with pytest.raises(UserError, match="contains none of the 3 runs"):
            call(Lab(lab.root, f"sqlite:///{lab.root}/../lab/results.db"), 9 * DAY)
    assert kept_folders(lab) == ["joint", "reference", "uniform"]
