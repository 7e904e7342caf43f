"""A store whose file was moved away is waited for: no new file takes its place, and nothing is lost."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import plans_support as plans
import pytest
from sqlalchemy import text

from jestlab.analysis.query import ask
from jestlab.platform.errors import StoreError, StoreMissing, StoreUnreachable, UserError
from jestlab.platform.exchange import read_mlflow as mlflow
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import session
from jestlab.platform.store import attempt as attempts
from jestlab.platform.store import engine as engines
from jestlab.platform.store.store import Store

RUN = plans.run("run")
SUFFIXES = ("", "-wal", "-shm")


@pytest.fixture
def file(sqlite_url: str) -> Path:
    return Path(sqlite_url.removeprefix("sqlite:///"))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_no_store_is_created_next_to_the_log_of_another(sqlite_url, file, tmp_path_factory):
    with closing(Store.open(sqlite_url)) as store:
        plans.record(store, plans.reference_and_two())
        left = files(file.parent)
    for name, content in left.items():  # as if the process was killed: the rows are only in the log
        file.with_name(name).write_bytes(content)
    moved = file.rename(tmp_path_factory.mktemp("elsewhere") / "results.db")
    before = files(file.parent)
    assert before["results.db-wal"]
    for opened in (Store.open, Store.open_readonly, lambda url: Store.open(url, create=False)):
        with pytest.raises(StoreMissing, match=r"results\.db-wal.*move results\.db back"):
            opened(sqlite_url)
    assert files(file.parent) == before
    file.touch()  # SQLite would delete the log of an empty file
    for read in (Store.open, lambda url: ask(url, "SELECT 1"), lambda _: [*mlflow.read(file, print)]):
        with pytest.raises((ValueError, UserError), match=r"is empty, and results\.db-wal"):
            read(sqlite_url)
    moved.rename(file)
    with closing(Store.open(sqlite_url)) as store:
        assert len(store.runs("toy")) == 3


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_no_store_is_created_next_to_any_file_of_another(tmp_path, suffix):
    (tmp_path / f"results.db{suffix}").write_bytes(b"something")
    with pytest.raises(StoreMissing, match=f"results.db{suffix}"):
        Store.open(f"sqlite:///{tmp_path / 'results.db'}")
    assert [path.name for path in tmp_path.iterdir()] == [f"results.db{suffix}"]


def test_a_store_is_a_file_in_a_folder(tmp_path):
    for read in (Store.open_readonly, lambda url: Store.open(url, create=False)):
        with pytest.raises(StoreError, match=r"Is a directory$"):
            read(f"sqlite:///{tmp_path}")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="can't create the store"):
        Store.open(f"sqlite:///{tmp_path / 'file' / 'results.db'}")


@pytest.mark.parametrize("suffixes", [SUFFIXES, SUFFIXES[:1]], ids=["all", "only results.db"])
def test_an_open_store_neither_replaces_a_moved_file_nor_writes_to_it(
    sqlite_url, file, tmp_path_factory, suffixes
):
    elsewhere: Path = tmp_path_factory.mktemp("elsewhere")
    store = Store.open(sqlite_url)
    plans.record(store, plans.reference_and_two())
    for suffix in suffixes:
        file.with_name(file.name + suffix).rename(elsewhere / (file.name + suffix))
    left = set(files(file.parent))
    with pytest.raises(StoreMissing):
        plans.record(store, plans.plan(plans.run("lost"), name="other"))
    with pytest.raises(StoreMissing):
        store.runs("toy")
    assert set(files(file.parent)) == left
    for suffix in suffixes:
        (elsewhere / (file.name + suffix)).rename(file.with_name(file.name + suffix))
    plans.record(store, plans.plan(plans.run("kept"), name="other"))
    assert len(store.runs("toy")) == 3
    store.close()
    with closing(Store.open(sqlite_url)) as again:
        assert [row.name for row in again.experiments()] == ["other", "toy"]


def test_writes_to_a_copy_that_replaced_the_file(sqlite_url, file):
    """As after moving a lab to another disk and back: the open file was deleted."""
    store = Store.open(sqlite_url)
    plans.record(store, plans.reference_and_two())
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(file, file.with_name("copy.db"))
    for suffix in ("-wal", "-shm"):
        file.with_name(file.name + suffix).unlink()
    file.with_name("copy.db").replace(file)
    plans.record(store, plans.plan(plans.run("more"), name="other"))
    store.close()
    with closing(sqlite3.connect(file)) as found:
        assert found.execute("SELECT COUNT(*) FROM experiment").fetchall() == [(2,)]


def test_a_launch_leaves_everything_in_one_file(sqlite_url, file, tmp_path_factory, monkeypatch):
    other = Store.open(sqlite_url)
    with session._open(Lab.find(file.parent)) as store:
        plans.record(store, plans.reference_and_two())
        assert len(other.runs("toy")) == 3  # and stays open
    copy = tmp_path_factory.mktemp("copy") / "results.db"
    shutil.copy(file, copy)
    with closing(sqlite3.connect(copy)) as found:
        assert found.execute("SELECT COUNT(*) FROM run").fetchall() == [(3,)]
    monkeypatch.setattr(engines, "CHECKPOINT_SECONDS", 0.05)
    store = Store.open(sqlite_url)
    with other.reading() as connection:  # it doesn't wait long for readers
        connection.execute(text("SELECT COUNT(*) FROM run")).scalar()
        plans.record(store, plans.plan(plans.run("more"), name="other"))
        store.close_whole()
    other.close()


def test_stops_waiting_for_a_deleted_lab(sqlite_url, file, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("run")
    with closing(Store.open(sqlite_url)) as store:
        plans.record(store, plans.plan(RUN))
        attempt = plans.begun(store, RUN, folder)
        for place in (folder, file.parent):
            shutil.rmtree(place)
        monkeypatch.setattr(attempts, "END_SECONDS", 0.1)
        monkeypatch.setattr(attempts, "TICK_SECONDS", 0.05)
        with pytest.raises(StoreUnreachable, match="missing"):  # with nothing to write
            attempt.flush()
        attempt.log(1, {"loss": 0.5})
        with pytest.raises(StoreUnreachable, match="missing"):
            attempt.flush()
