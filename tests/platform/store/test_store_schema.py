"""The schema: migrations make what the models say; a foreign or future store is refused."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from jestlab.platform.errors import UserError
from jestlab.platform.store import schema
from jestlab.platform.store.engine import writable
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Base
from jestlab.platform.store.views import VIEWS


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'results.db'}"


def test_the_newest_migration_is_the_one_the_code_expects():
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / "migrations"))
    script = ScriptDirectory.from_config(config)
    assert script.get_current_head() == schema.HEAD
    revisions = [revision.revision for revision in script.walk_revisions()]
    assert revisions == sorted(revisions, reverse=True)  # so that versions compare as text


def test_migrations_make_what_the_models_say(url):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    engine = Store.open(url).engine
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, Base.metadata) == []
        created = {
            name: sql for name, sql in connection.execute(text("SELECT name, sql FROM sqlite_master")) if sql
        }
    modelled = writable(f"{url}.models")
    Base.metadata.create_all(modelled)
    found, wanted = inspect(engine), inspect(modelled)
    for table in Base.metadata.tables:  # what compare_metadata does not look at
        assert found.get_pk_constraint(table) == wanted.get_pk_constraint(table)
        assert found.get_check_constraints(table) == wanted.get_check_constraints(table)
        assert found.get_foreign_keys(table) == wanted.get_foreign_keys(table)
        assert found.get_unique_constraints(table) == wanted.get_unique_constraints(table)
    assert "WITHOUT ROWID" in created["metric"]


def test_views_have_the_columns_they_promise(url):
    with Store.open(url).reading() as connection:
        for name, view in VIEWS.items():
            assert list(connection.execute(text(f"SELECT * FROM {name}")).keys()) == list(view.columns)


def test_down_and_up_again(url):
    engine = Store.open(url).engine
    schema.migrate(engine, "base")
    assert inspect(engine).get_table_names() == ["alembic_version"]
    assert inspect(engine).get_view_names() == []
    schema.migrate(engine, schema.HEAD)
    assert sorted(inspect(engine).get_view_names()) == sorted(VIEWS)


def test_a_store_of_another_schema_says_what_to_do(url, tmp_path):
    Store.open(url).close()
    database = sqlite3.connect(tmp_path / "results.db", isolation_level=None)
    for version, remedy in (("9999", "upgrade jestlab"), ("0000", "start a new lab with --root")):
        database.execute("UPDATE alembic_version SET version_num = ?", (version,))
        for open_ in (Store.open, Store.open_readonly):
            with pytest.raises(UserError, match=remedy):
                open_(url)


def test_another_applications_database_is_left_alone(url, tmp_path):
    sqlite3.connect(tmp_path / "results.db").execute("CREATE TABLE theirs (x)")
    with pytest.raises(UserError, match="holds other tables"):
        Store.open(url)
    tables = sqlite3.connect(tmp_path / "results.db").execute("SELECT name FROM sqlite_master").fetchall()
    assert tables == [("theirs",)]


def test_a_file_that_is_no_database(url, tmp_path):
    (tmp_path / "results.db").write_text("this is not a database, but long enough to look like one" * 50)
    with pytest.raises(UserError, match="file is not a database"):
        Store.open(url)


@pytest.mark.parametrize(
    "wrong", ["sqlite://", "results.db", "postgresql://u:secret@host/db", "sqlite:///:memory:"]
)
def test_urls_that_cannot_be_a_store(wrong):
    with pytest.raises(UserError, match=r"sqlite:///lab/results\.db") as error:
        Store.open(wrong)
    assert "secret" not in str(error.value)


def test_reading_makes_nothing(url, tmp_path):
    assert Store.open_readonly(url) is None
    with pytest.raises(UserError, match="launch a study first"):
        Store.open(url, create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_store_in_a_folder_with_awkward_characters(tmp_path):
    folder = tmp_path / "my lab 100% #1"
    url = f"sqlite:///{folder / 'results.db'}"
    Store.open(url)
    assert Store.open_readonly(url) is not None
    assert (folder / "results.db").exists()


def test_alembic_is_not_imported_for_a_store_that_is_up_to_date(url):
    Store.open(url).close()
    code = (
        f"import sys; from jestlab.platform.store.store import Store; Store.open({url!r}); "
        "assert 'alembic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_many_processes_make_one_store_at_once(url):
    code = f"from jestlab.platform.store.store import Store; Store.open({url!r})"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(4)
    ]
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, said


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM run",
        "INSERT INTO metric_name (name) VALUES ('x')",
        "CREATE TEMP TABLE t (x)",
        "ATTACH DATABASE 'other.db' AS other",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA query_only = OFF",
        "VACUUM INTO 'copy.db'",
        "SELECT load_extension('evil')",
        "DROP VIEW v_runs",
    ],
)
def test_a_read_only_store_is_read_only(url, sql, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Store.open(url).close()
    store = Store.open_readonly(url)
    assert store is not None
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(UserError, match="authoriz"), store.reading() as connection:
        connection.exec_driver_sql(sql)
    assert {path.name for path in tmp_path.iterdir()} <= {*before, "results.db-shm", "results.db-wal"}
