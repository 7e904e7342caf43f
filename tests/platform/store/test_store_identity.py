"""A copy of a store is another store: it can neither watch nor stop what the original has launched."""

from __future__ import annotations

import shutil
from pathlib import Path

import rows_support as rows
from sqlalchemy import text

from jestlab.platform.store.store import Store


def a_store_at_work(url: str) -> tuple[str, dict[str, list[dict[str, object]]]]:
    """Fill a store in which one attempt is running; return its id and its rows."""
    store = Store.open(url)
    rows.fill(store.engine, rows.ROWS)
    with store.writing() as connection:
        connection.execute(text("UPDATE run SET state = 'RUNNING', reason = NULL WHERE id = 2"))
        connection.execute(
            text("UPDATE attempt SET state = 'RUNNING', handle = 'c/n/job', launcher_id = 1 WHERE id = 5")
        )
    found = store.id(), rows.everything(store.engine)
    store.close()
    return found


def assert_copied(url: str, original: str) -> None:
    """A store at this URL is another one than the original, and nothing runs for it."""
    copy = Store.open(url, create=False)
    held = rows.everything(copy.engine)
    number = copy.id()
    assert number != original
    assert {row["token"] for row in held["attempt"]} == {row["handle"] for row in held["attempt"]} == {None}
    assert {row["launcher_id"] for row in held["attempt"]} == {None}
    assert not held["launcher"]
    [attempt] = [row for row in held["attempt"] if row["id"] == 5]
    [run] = [row for row in held["run"] if row["id"] == 2]
    assert (attempt["state"], run["state"]) == ("PREEMPTED", "PREEMPTED")
    assert attempt["reason"] == run["reason"] == "was running when its store was copied"
    copy.close()
    again = Store.open(url, create=False)
    assert again.id() == number
    again.close()


def assert_unchanged(url: str, store_id: str, before: dict[str, list[dict[str, object]]]) -> None:
    store = Store.open(url, create=False)
    assert (store.id(), rows.everything(store.engine)) == (store_id, before)
    store.close()


def test_a_copied_file_is_another_store(tmp_path):
    original, copy = tmp_path / "a" / "results.db", tmp_path / "b" / "results.db"
    store_id, before = a_store_at_work(f"sqlite:///{original}")
    shutil.copytree(original.parent, copy.parent)
    assert_copied(f"sqlite:///{copy}", store_id)
    assert_unchanged(f"sqlite:///{original}", store_id, before)


def test_a_moved_file_is_the_same_store(tmp_path):
    first = tmp_path / "a" / "results.db"
    store_id, before = a_store_at_work(f"sqlite:///{first}")
    Path(first.parent).rename(tmp_path / "b")
    assert_unchanged(f"sqlite:///{tmp_path / 'b' / 'results.db'}", store_id, before)


def test_a_copied_database_is_another_store(postgres_server):
    url = postgres_server.new_store()
    store_id, before = a_store_at_work(url)
    copy = postgres_server.copy(url)
    assert_copied(copy, store_id)
    assert_unchanged(url, store_id, before)
    for each in (copy, url):
        postgres_server.drop(each)


def test_a_server_that_keeps_its_number_to_itself(postgres_server):
    """As some hosted ones do: the database's own number has to do."""
    url = postgres_server.new_database()
    name = url.rpartition("/")[2]
    postgres_server.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC", name)
    store_id, before = a_store_at_work(url)
    assert_unchanged(url, store_id, before)
    copy = postgres_server.copy(url)
    assert_copied(copy, store_id)
    for each in (copy, url):
        postgres_server.drop(each)
