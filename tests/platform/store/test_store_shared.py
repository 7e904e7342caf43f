"""A store in a shared folder: machines with a copy each, killed writers, stale locks, deleted transactions.

Two machines are two folders for copies. That it stores and reads everything as other stores do is tested by
the variants `shared` of the other tests of the store.
"""

import errno
import json
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mounts_support import shared_folder
from sqlalchemy import delete, insert, select

import jestlab.analysis.shared as reading
import jestlab.platform.store.shared as writing
from jestlab.analysis import query
from jestlab.analysis.shared import SCRATCH, LocalCopy
from jestlab.platform.errors import StoreError, StoreMissing, StoreUnreachable
from jestlab.platform.store import leases
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import LauncherRow, MetricNameRow


class Machine:
    """A machine, which has a copy of its own."""

    def __init__(self, scratch: Path, folder: Path) -> None:
        self.scratch = scratch
        self.folder = folder
        self.url = f"sqlite:///{folder}"

    @contextmanager
    def here(self) -> Iterator[None]:
        before = os.environ.get(SCRATCH)
        os.environ[SCRATCH] = str(self.scratch)
        try:
            yield
        finally:
            os.environ.pop(SCRATCH)
            if before is not None:
                os.environ[SCRATCH] = before

    def enter(self, name: str) -> None:
        with self.here(), closing(Store.open(self.url)) as store:
            leases.enter_launcher(store, name)

    def names(self) -> list[str]:
        with self.here(), closing(Store.open(self.url)) as store:
            return sorted(row.name for row in store.rows(select(LauncherRow.name)))

    def copy(self) -> LocalCopy:
        with self.here():
            return LocalCopy(self.folder)

    def content(self) -> list[str]:
        self.names()
        with closing(sqlite3.connect(self.copy().file)) as connection:
            return list(connection.iterdump())


@pytest.fixture
def machines(tmp_path: Path) -> list[Machine]:
    return [Machine(tmp_path / f"scratch{number}", tmp_path / "results.shared") for number in range(2)]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of killed processes are removed at once, and the log is soon deleted."""
    monkeypatch.setattr(writing, "STALE_SECONDS", 0.05)
    for module in (reading, writing):
        monkeypatch.setattr(module, "PER_FOLDER", 4)
    monkeypatch.setattr(writing, "_BASE_EVERY", 8)
    monkeypatch.setattr(writing, "_CHECK_EVERY", 4)


def test_machines_see_the_transactions_of_each_other(machines):
    here, there = machines
    here.enter("a")
    there.enter("b")
    here.enter("c")
    assert here.names() == there.names() == ["a", "b", "c"]
    assert here.content() == there.content()
    with there.here():
        assert len(query.frame(there.url, sql="SELECT * FROM v_experiments")) == 0
    here.enter("d")
    with there.here():  # the analysis follows, too
        query.frame(there.url, sql="SELECT * FROM v_experiments")
        with closing(sqlite3.connect(there.copy().file)) as connection:
            assert connection.execute("SELECT count(*) FROM launcher").fetchone() == (4,)


def test_one_insert_of_several_rows_is_repeated_as_one(machines):
    here, there = machines
    rows = [{"name": name} for name in ("loss", "accuracy")]
    with here.here(), closing(Store.open(here.url)) as store, store.writing() as connection:
        ids = connection.execute(insert(MetricNameRow).returning(MetricNameRow.id), rows).scalars().all()
    assert len(ids) == 2
    assert here.content() == there.content()


def test_a_writer_that_paused_until_others_took_over_changes_nothing(machines):
    here, there = machines
    here.enter("a")
    with here.here(), closing(Store.open(here.url)) as store:
        conflict = pytest.raises(StoreUnreachable, match="another process wrote at the same time: try again")
        with conflict, store.writing() as connection:
            connection.execute(delete(LauncherRow))
            (here.folder / "lock").unlink()  # as others do with a stale lock
            there.enter("b")
        assert here.names() == ["a", "b"]
        leases.enter_launcher(store, "c")
    assert here.names() == there.names() == ["a", "b", "c"]


@pytest.mark.parametrize("error", [FileExistsError(), OSError(errno.EIO, "Input/output error")])
def test_a_repeated_request_whose_first_answer_was_lost_is_one_transaction(machines, monkeypatch, error):
    here, there = machines
    here.enter("a")
    link = os.link

    def lose_answer(source: Path, target: Path) -> None:
        link(source, target)
        raise error

    monkeypatch.setattr(os, "link", lose_answer)
    here.enter("b")
    monkeypatch.undo()
    assert here.names() == there.names() == ["a", "b"]


def test_a_published_transaction_does_not_fail_when_the_connection_is_lost_afterwards(machines, monkeypatch):
    """The caller would write it again."""
    here, there = machines
    here.enter("a")
    link, calls = os.link, list[Path]()

    def lose_connection(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def publish(source: Path, target: Path) -> None:
        link(source, target)
        if target.suffix == ".json":
            calls.append(target)
            monkeypatch.setattr(os, "fsync", lose_connection)
            monkeypatch.setattr(Path, "unlink", lose_connection)

    monkeypatch.setattr(os, "link", publish)
    here.enter("b")
    monkeypatch.undo()
    assert len(calls) == 1
    monkeypatch.setattr(writing, "STALE_SECONDS", 0.05)  # of the lock, which could not be removed either
    there.enter("c")
    assert here.names() == there.names() == ["a", "b", "c"]


def test_a_lost_connection_is_not_taken_for_a_folder_without_links(machines, monkeypatch):
    here, _ = machines
    here.enter("a")

    def fail(source: Path, target: Path) -> None:
        raise OSError(errno.EIO, "Input/output error", str(target))

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(StoreUnreachable, match="Input/output error"):
        here.enter("b")
    monkeypatch.undo()
    assert here.names() == ["a"]


def test_a_file_that_another_nfs_client_deletes_while_it_is_read_is_missing(tmp_path, monkeypatch):
    (tmp_path / "lock").write_text("holder")

    def is_stale(descriptor: int, mode: str) -> object:
        os.close(descriptor)
        raise OSError(errno.ESTALE, "Stale file handle")

    assert reading.read(tmp_path / "lock") == b"holder"
    monkeypatch.setattr(os, "fdopen", is_stale)
    assert reading.read(tmp_path / "lock") is None


class _Killer:
    """Kills this process at the n-th line that it executes in the modules of shared stores."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._files = {reading.__file__, writing.__file__}

    def trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        if event == "line":
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.trace


def _forked(act: Callable[[], None]) -> int:
    """Run a function in a fork of this process, and return its exit status."""
    if not (pid := os.fork()):
        try:
            act()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def _killed_at(machine: Machine, number: int, name: str) -> bool:
    """Enter a launcher in a process that is killed at its n-th line; return whether it ended before."""

    def act() -> None:
        sys.settrace(_Killer(number).trace)
        machine.enter(name)

    status = _forked(act)
    assert status in (0, signal.SIGKILL), status
    return status == 0


def _check_kills(machines: list[Machine], step: int) -> None:
    here, there = machines
    here.enter("first")
    number, ended, expected = 1, False, {"first"}
    while not ended:
        name = f"at-{number}"
        ended = _killed_at(here, number, name)
        there.enter(f"after-{number}")
        found = set(there.names())
        assert found - expected <= {name, f"after-{number}"}
        assert f"after-{number}" in found
        assert expected <= found
        expected, number = found, number + step
    assert name in expected
    assert here.names() == there.names()
    assert here.content() == there.content()


def test_a_writer_killed_at_some_lines_loses_nothing(machines, short):
    _check_kills(machines, step=61)


@pytest.mark.full
def test_a_writer_killed_at_any_line_loses_nothing(machines, short):
    _check_kills(machines, step=1)


def test_old_transactions_are_deleted_and_a_machine_far_behind_gets_a_whole_copy(machines, short):
    here, there = machines
    there.enter("early")
    for number in range(40):
        here.enter(f"{number:02}")
    assert not there.copy().path(4).exists()
    assert len(there.copy().bases()) == 2
    assert there.names() == here.names()
    assert len(there.names()) == 41
    assert here.content() == there.content()
    assert [path for path in here.folder.rglob(".*") if path.is_file()] == []


def test_a_machine_far_behind_is_not_misled_by_a_folder_that_a_paused_process_made_again(machines, short):
    here, there = machines
    there.enter("early")
    number = max(int(path.stem) for path in (here.folder / "log").rglob("*.json"))
    for each in range(40):
        here.enter(f"{each:02}")
    here.copy().path(number + 1).parent.mkdir()
    assert there.names() == here.names()
    there.enter("late")
    assert here.content() == there.content()


def test_a_transaction_with_the_number_of_a_deleted_one_is_refused(machines, short):
    here, _ = machines
    for number in range(40):
        here.enter(f"{number:02}")
    with here.here(), closing(Store.open(here.url)) as store, store.writing() as connection:
        late = writing.PendingTransaction(LocalCopy(here.folder), 5)
        late.record("DELETE FROM launcher", (), False)
        with pytest.raises(StoreUnreachable, match="at the same time"):
            late.publish(connection)
        connection.rollback()
    assert not here.copy().path(5).exists()
    assert len(here.names()) == 40


def test_the_lock_of_a_killed_process_is_removed_and_that_of_a_slow_one_is_not(machines, monkeypatch):
    here, there = machines
    here.enter("a")
    (here.folder / "lock").write_text("elsewhere-1-2 killed\n")
    monkeypatch.setattr(writing, "STALE_SECONDS", 0.05)
    here.enter("b")
    assert here.names() == ["a", "b"]

    monkeypatch.setattr(writing, "STALE_SECONDS", 3600.0)
    monkeypatch.setattr(writing, "LOCK_SECONDS", 0.2)
    monkeypatch.setattr(writing, "_RENEW_SECONDS", 0.01)
    with here.here(), closing(Store.open(here.url)) as store, store.writing() as connection:
        lock, before = here.folder / "lock", (here.folder / "lock").stat().st_size
        while lock.stat().st_size == before:
            threading.Event().wait(0.01)
        with pytest.raises(StoreUnreachable, match="is writing to it: try again"):
            there.enter("c")
        connection.execute(delete(LauncherRow))
    assert there.names() == []


def test_a_new_store_at_the_same_path_replaces_the_copy(machines, tmp_path):
    here, there = machines
    here.enter("a")
    there.enter("b")
    here.folder.rename(tmp_path / "old.shared")
    with pytest.raises(StoreMissing, match="launch a study first"), there.here():
        Store.open(there.url, create=False)
    here.enter("c")
    assert here.names() == there.names() == ["c"]


def test_a_transaction_can_not_touch_other_files(machines, tmp_path):
    here, there = machines
    here.enter("a")
    number = here.copy().bases() or [0]
    last = max(int(path.stem) for path in (here.folder / "log").rglob("*.json"))
    assert number == [0]
    for sql in (f"ATTACH '{tmp_path / 'stolen.db'}' AS other", f"VACUUM INTO '{tmp_path / 'stolen.db'}'"):
        path = here.copy().path(last + 1)
        path.write_text(json.dumps({"author": "x", "statements": [[sql, [], False]]}))
        with pytest.raises(StoreError, match=f"{last + 1}.json can't be applied to the copy .*: delete "):
            there.names()
        assert not (tmp_path / "stolen.db").exists()


def test_a_folder_without_hard_links_is_refused_in_one_line(machines, monkeypatch):
    here, _ = machines

    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(target))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreError) as error:
        here.enter("a")
    assert "no hard links" in str(error.value)
    assert "--store postgresql://" in str(error.value)


@settings(deadline=None)
@given(actions=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), max_size=10))
def test_copies_equal_each_other_and_a_store_in_one_file(tmp_path_factory, actions):
    """Machines write in any order, and some read in between; a plain SQLite store gets the same writes."""
    folder = tmp_path_factory.mktemp("shared")
    here = [Machine(folder / f"scratch{number}", folder / "results.shared") for number in range(3)]
    with closing(Store.open(f"sqlite:///{folder / 'results.db'}")) as plain:
        for machine, name, reads in actions:
            if name:
                here[machine].enter(f"{name}")
                leases.enter_launcher(plain, f"{name}")
            else:
                with here[machine].here(), closing(Store.open(here[machine].url)) as store:
                    for each in (store, plain):
                        leases.remove_launcher(each, "1")
            if reads:
                here[machine - 1].names()
        expected = sorted(row.name for row in plain.rows(select(LauncherRow.name)))
    assert [machine.names() for machine in here] == [expected] * 3
    assert here[0].content() == here[1].content() == here[2].content()


@pytest.mark.cluster
def test_writers_on_two_clients_of_a_network_file_system(tmp_path):
    """Both clients keep what they have seen of the folder for seconds."""
    served = tmp_path / "served"
    served.mkdir()
    with shared_folder(served) as mounts:
        machines = [
            Machine(tmp_path / f"scratch{number}", mount / "results.shared")
            for number, mount in enumerate(mounts)
        ]
        machines[0].enter("first")

        def write(machine: Machine, number: int) -> Callable[[], None]:
            def act() -> None:
                for each in range(15):
                    machine.enter(f"{number}-{each}")

            return act

        pids = []
        for number, machine in enumerate([*machines, *machines]):
            if not (pid := os.fork()):
                write(machine, number)()
                os._exit(0)
            pids.append(pid)
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4
        machines[1].enter("last")  # a writer sees everything, however late a reader does
        machines[0].enter("last")
        names = {f"{number}-{each}" for number in range(4) for each in range(15)} | {"first", "last"}
        assert [set(machine.names()) for machine in machines] == [names] * 2
