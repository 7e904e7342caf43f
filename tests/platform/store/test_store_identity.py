"""A copy of a store is another store: it can neither watch nor stop the jobs of the original."""

import shutil
from contextlib import closing

import pytest
import rows_support as rows
from sqlalchemy import text

from jestlab.platform.store.store import Store


def fill(url: str) -> tuple[str, dict[str, list[dict[str, object]]]]:
    """Fill a store, with one running attempt; return its ID and its rows."""
    store = Store.open(url)
    rows.fill(store.engine, rows.ROWS)
    with store.writing() as connection:
        connection.execute(text("UPDATE run SET state = 'RUNNING', reason = NULL WHERE id = 2"))
        holds = "launcher = (SELECT name FROM launcher)"
        connection.execute(
            text(f"UPDATE attempt SET state = 'RUNNING', handle = 'c/n/job', {holds} WHERE id = 5")
        )
    found = store.id(), rows.everything(store.engine)
    store.close()
    return found


def assert_copied(url: str, original: str) -> None:
    """Check that a store isn't the original, and that nothing runs for it."""
    with closing(Store.open(url, create=False)) as copy:
        found = rows.everything(copy.engine)
        store_id = copy.id()
    assert store_id != original
    for column in ("token", "handle", "launcher"):
        assert {row[column] for row in found["attempt"]} == {None}
    assert not found["launcher"]
    [attempt] = [row for row in found["attempt"] if row["id"] == 5]
    [run] = [row for row in found["run"] if row["id"] == 2]
    assert (attempt["state"], run["state"]) == ("PREEMPTED", "PREEMPTED")
    assert attempt["reason"] == run["reason"] == "was running when its store was copied"
    assert_unchanged(url, store_id, found)


def assert_unchanged(url: str, store_id: str, before: dict[str, list[dict[str, object]]]) -> None:
    with closing(Store.open(url, create=False)) as store:
        assert (store.id(), rows.everything(store.engine)) == (store_id, before)


def test_a_copied_file_is_another_store(sqlite_url, tmp_path):
    store_id, before = fill(sqlite_url)
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "results.db", tmp_path / "copy")
    assert_copied(f"sqlite:///{tmp_path / 'copy' / 'results.db'}", store_id)
    assert_unchanged(sqlite_url, store_id, before)
    (tmp_path / "results.db").rename(tmp_path / "moved.db")  # the same store
    assert_unchanged(f"sqlite:///{tmp_path / 'moved.db'}", store_id, before)


@pytest.mark.parametrize("shows_its_number", [True, False])
def test_a_copied_database_is_another_store(postgres_server, postgresql_url, shows_its_number):
    """Some hosted servers hide their number; then the number of the database is compared."""
    if not shows_its_number:
        hide = "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC"
        postgres_server.execute(hide, postgresql_url.rpartition("/")[2])
    store_id, before = fill(postgresql_url)
    assert_unchanged(postgresql_url, store_id, before)
    copy = postgres_server.copy(postgresql_url)
    assert_copied(copy, store_id)
    assert_unchanged(postgresql_url, store_id, before)
    postgres_server.drop(copy)
