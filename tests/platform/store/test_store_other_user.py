"""A store that this user can read and not write to is read, or one line names the missing permission."""

import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import plans_support as plans
import pytest
from tests.rights import without_rights

from jestlab.analysis import query, read_only
from jestlab.platform.errors import StoreError, StoreUnreachable, UserError
from jestlab.platform.store import schema
from jestlab.platform.store.store import Store


@pytest.fixture
def lab() -> Iterator[Path]:
    """A folder with a store, closed, in which nothing can be written."""
    folder = Path(tempfile.mkdtemp(prefix="jestlab-"))  # pytest's own folders are closed to other users
    store = Store.open(f"sqlite:///{folder / 'results.db'}")
    plans.record(store, plans.reference_and_two())
    store.close_whole()
    read(folder)  # what is imported late may be out of reach of another user
    with suppress(StoreError):
        Store.open(f"sqlite:///{folder / 'missing' / 'results.db'}", create=False)
    (folder / "results.db").chmod(0o444)
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def read(folder: Path) -> tuple[int, int, list[schema.StoreProblem]]:
    """Read a store in three ways: rows by the platform, rows by the analysis, what a check finds."""
    url = f"sqlite:///{folder / 'results.db'}"
    store = Store.open_readonly(url)
    assert store is not None
    with closing(store):
        runs = len(store.runs("toy"))
    problems = schema.check(url, folder)
    return runs, len(query.frame(url)), problems  # the last reader removes the files that SQLite makes


def write(folder: Path, *, crash: bool = False) -> None:
    """Name the study otherwise; with `crash`, leave that in the log next to the file."""
    folder.chmod(0o755)
    (folder / "results.db").chmod(0o644)
    script = (
        "import os, sqlite3, sys; store = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "store.execute('UPDATE experiment SET question = hex(randomblob(20000))');"
        f"{'os._exit(0)' if crash else 'store.close()'}"
    )
    subprocess.run([sys.executable, "-c", script, str(folder / "results.db")], check=True)
    (folder / "results.db-shm").unlink(missing_ok=True)
    (folder / "results.db").chmod(0o444)
    folder.chmod(0o555)


@contextmanager
def without_room() -> Iterator[None]:
    """As on a full disk, no file can get long."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("limited", [without_rights, without_room])
def test_it_is_read(lab, limited):
    with limited():
        assert read(lab) == (3, 3, [])


READERS: list[Callable[[str], object]] = [
    Store.open_readonly,
    lambda url: schema.check(url, Path("/")),
    query.frame,
]


def test_a_log_that_cannot_be_read_is_a_matter_of_permissions(lab):
    """Nothing is said of damage, and no backup is to be restored."""
    write(lab, crash=True)
    assert (lab / "results.db-wal").stat().st_size
    for reader in READERS:
        with without_rights(), pytest.raises((UserError, ValueError), match="no permission to read") as error:
            reader(f"sqlite:///{lab / 'results.db'}")
        assert "damaged" not in str(error.value) and "restore" not in str(error.value)
        assert len(str(error.value).splitlines()) == 1


def test_writing_names_the_missing_permission(lab):
    file = lab / "results.db"
    with without_rights(), pytest.raises(StoreError, match=f"no permission to write to {file}$"):
        Store.open(f"sqlite:///{file}", create=False)


def test_what_the_owner_writes_meanwhile_is_not_mixed_in(lab):
    """The file can't be locked: a reader is told that what it read may be of two states, and reads again."""
    with without_rights():
        store = Store.open_readonly(f"sqlite:///{lab / 'results.db'}")
        assert store is not None
        assert len(store.runs("toy")) == 3
        [before] = [each.question for each in store.experiments()]
    with closing(store):
        with pytest.raises(StoreUnreachable, match="wrote to the file while it was read"), store.reading():
            write(lab)
        with without_rights():
            [after] = [each.question for each in store.experiments()]
    assert after != before


def test_only_a_file_that_cannot_be_locked_is_read_without_locks(tmp_path):
    with closing(sqlite3.connect(tmp_path / "results.db")) as owner:
        owner.execute("PRAGMA journal_mode = WAL")
        owner.execute("CREATE TABLE t (x)")
        with closing(read_only.open_readonly(tmp_path / "results.db")) as reader:
            owner.execute("INSERT INTO t VALUES (1)")
            owner.commit()
            assert not read_only.is_stale(reader, tmp_path / "results.db")
            assert reader.execute("SELECT x FROM t").fetchall() == [(1,)]
            reader.rollback()
