"""A store whose file is moved away is waited for: no new one takes its place, and nothing is lost."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import labs_support as labs
import plans_support as plans
import pytest
from sqlalchemy import text

from jestlab.platform.errors import StoreError, StoreMissing, StoreUnreachable
from jestlab.platform.store import attempt as attempts
from jestlab.platform.store import engine as engines
from jestlab.platform.store.backup import back_up, restore
from jestlab.platform.store.store import Store

RUN = plans.run("run")
SUFFIXES = ("", "-wal", "-shm")


@pytest.fixture
def file(sqlite_url: str) -> Path:
    return Path(sqlite_url.removeprefix("sqlite:///"))


def killed_after_recording(url: str) -> None:
    """A process that writes and is killed, so that the results are in the log beside the file."""
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[2]); import plans_support as plans\n"
        "from jestlab.platform.store.store import Store\n"
        "store = Store.open(sys.argv[1]); store.record(plans.reference_and_two()); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, url, str(Path(plans.__file__).parent)], check=True)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def moved(sqlite_url, file, tmp_path_factory) -> Path:
    """Where `results.db` was moved to, away from its log."""
    killed_after_recording(sqlite_url)
    assert file.with_name("results.db-wal").stat().st_size > 0
    elsewhere: Path = tmp_path_factory.mktemp("elsewhere") / "results.db"
    file.rename(elsewhere)
    return elsewhere


@pytest.mark.parametrize("create", [True, False])
def test_no_store_is_made_beside_the_log_of_another(sqlite_url, file, moved, create):
    before = files(file.parent)
    with pytest.raises(StoreMissing, match=r"results\.db-wal.*move results\.db back") as raised:
        Store.open(sqlite_url, create=create)
    assert "\n" not in str(raised.value)
    with pytest.raises(StoreMissing, match=r"results\.db-wal"):
        Store.open_readonly(sqlite_url)
    assert files(file.parent) == before
    moved.rename(file)
    with closing(Store.open(sqlite_url)) as store:
        assert len(store.runs("toy")) == 3


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_what_sqlite_keeps_beside_a_file_stands_for_it(tmp_path, suffix):
    (tmp_path / f"results.db{suffix}").write_bytes(b"something")
    with pytest.raises(StoreMissing, match=f"results.db{suffix}"):
        Store.open(f"sqlite:///{tmp_path / 'results.db'}")
    assert [path.name for path in tmp_path.iterdir()] == [f"results.db{suffix}"]


def test_verbs_say_it_in_one_line(root):
    url = f"sqlite:///{root / 'results.db'}"
    Store.open(url).close()
    killed_after_recording(url)
    (root / "results.db").rename(root / "away.db")
    before = files(root)
    study = labs.write_study(root.parent)
    for words in (["status"], ["launch", study], ["note", "toy", "hm"], ["published", "import"], ["doctor"]):
        done = labs.here(*words, root=root)
        assert done.returncode == 1, words
        assert "results.db-wal" in done.stdout + done.stderr, words
        assert "Traceback" not in done.stderr
    assert files(root) == before


def test_an_empty_file_does_not_take_the_place_of_one_with_a_log(sqlite_url, file, moved):
    """SQLite would delete the log of an empty file."""
    file.touch()
    with pytest.raises(StoreMissing, match=r"is empty, and results\.db-wal"):
        Store.open(sqlite_url)
    moved.rename(file)
    with closing(Store.open(sqlite_url)) as store:
        assert len(store.runs("toy")) == 3


@pytest.mark.parametrize("suffixes", [SUFFIXES, SUFFIXES[:1]], ids=["all", "results.db alone"])
def test_an_open_store_makes_no_new_file_and_writes_to_none_that_is_away(
    sqlite_url, file, tmp_path_factory, suffixes
):
    elsewhere: Path = tmp_path_factory.mktemp("elsewhere")
    store = Store.open(sqlite_url)
    store.record(plans.reference_and_two())
    for suffix in suffixes:
        file.with_name(file.name + suffix).rename(elsewhere / (file.name + suffix))
    left = set(files(file.parent))
    with pytest.raises(StoreMissing):
        store.record(plans.plan(plans.run("lost"), name="other"))
    with pytest.raises(StoreMissing):
        store.runs("toy")
    assert set(files(file.parent)) == left
    for suffix in suffixes:
        (elsewhere / (file.name + suffix)).rename(file.with_name(file.name + suffix))
    store.record(plans.plan(plans.run("kept"), name="other"))
    assert len(store.runs("toy")) == 3
    store.close()
    with closing(Store.open(sqlite_url)) as again:
        assert [row.name for row in again.experiments()] == ["other", "toy"]


def test_a_copy_that_takes_the_files_place_is_written_to(sqlite_url, file):
    """As when a lab is moved to another disk and back: the file that is open is another one, and deleted."""
    store = Store.open(sqlite_url)
    store.record(plans.reference_and_two())
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(file, file.with_name("copy.db"))
    for suffix in ("-wal", "-shm"):
        file.with_name(file.name + suffix).unlink()
    file.with_name("copy.db").replace(file)
    store.record(plans.plan(plans.run("more"), name="other"))
    store.close()
    with closing(sqlite3.connect(file)) as found:
        assert found.execute("SELECT COUNT(*) FROM experiment").fetchall() == [(2,)]


def test_a_store_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be made: "):
        Store.open(f"sqlite:///{tmp_path / 'file' / 'results.db'}")


def test_nothing_is_restored_beside_the_log_of_another(sqlite_url, file, moved, tmp_path):
    kept = moved.with_name("kept.db")
    with closing(Store.open(f"sqlite:///{moved.with_name('other.db')}")):
        back_up(f"sqlite:///{moved.with_name('other.db')}", kept)
    with pytest.raises(StoreMissing, match=r"results\.db-wal"):
        restore(kept, sqlite_url)
    assert not file.exists()


def test_a_store_that_is_closed_whole_is_one_file(sqlite_url, file, tmp_path_factory, monkeypatch):
    store, other = Store.open(sqlite_url), Store.open(sqlite_url)
    store.record(plans.reference_and_two())
    assert len(other.runs("toy")) == 3  # and stays open
    store.close_whole()
    copy = tmp_path_factory.mktemp("copy") / "results.db"
    shutil.copy(file, copy)
    with closing(sqlite3.connect(copy)) as found:
        assert found.execute("SELECT COUNT(*) FROM run").fetchall() == [(3,)]
    monkeypatch.setattr(engines, "CHECKPOINT_SECONDS", 0.05)
    third = Store.open(sqlite_url)
    with other.reading() as connection:  # whoever reads is not waited for long
        connection.execute(text("SELECT COUNT(*) FROM run")).scalar()
        third.record(plans.plan(plans.run("more"), name="other"))
        third.close_whole()
    other.close()


def test_a_lab_that_was_deleted_is_not_waited_for_for_ever(sqlite_url, file, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("run")
    with closing(Store.open(sqlite_url)) as store:
        store.record(plans.plan(RUN))
        attempt = plans.begun(store, RUN, folder)
        for place in (folder, file.parent):
            shutil.rmtree(place)
        monkeypatch.setattr(attempts, "END_SECONDS", 0.1)
        monkeypatch.setattr(attempts, "TICK_SECONDS", 0.05)
        with pytest.raises(StoreUnreachable, match="is there any more"):  # with nothing to write
            attempt.flush()
        attempt.log(1, {"loss": 0.5})
        with pytest.raises(StoreUnreachable, match="is there any more"):
            attempt.flush()


def test_after_a_launch_the_file_alone_holds_everything(root, tmp_path):
    done = labs.here("launch", labs.write_study(tmp_path), "--no-reports", root=root)
    assert done.returncode == 0, done.stderr
    shutil.copy(root / "results.db", tmp_path / "alone.db")
    with closing(sqlite3.connect(tmp_path / "alone.db")) as found:
        assert found.execute("SELECT state, COUNT(*) FROM run GROUP BY 1").fetchall() == [("COMPLETED", 3)]
        [(points,)] = found.execute("SELECT COUNT(*) FROM metric").fetchall()
    assert points == 2 * (10 + 10 + 12)
