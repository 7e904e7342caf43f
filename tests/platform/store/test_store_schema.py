"""Opening a store: what is created and what is refused."""

from contextlib import closing
from pathlib import Path

import pytest
import rows_support as rows
from sqlalchemy import inspect, text

from jestlab.platform.errors import UserError
from jestlab.platform.store import schema
from jestlab.platform.store.engine import writable
from jestlab.platform.store.store import Store
from jestlab.platform.store.views import VIEWS


@pytest.fixture
def url(tmp_path: Path) -> str:
    """URL of a SQLite file that doesn't exist yet."""
    return f"sqlite:///{tmp_path / 'results.db'}"


def execute(url: str, *statements: str) -> None:
    engine = rows.opened(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


def test_head_is_the_newest_migration():
    from alembic.script import ScriptDirectory

    script = ScriptDirectory(str(schema.MIGRATIONS[0]), version_locations=list(map(str, schema.MIGRATIONS)))
    assert script.get_current_head() == schema.HEAD
    revisions = [revision.revision for revision in script.walk_revisions()]
    assert revisions == sorted(revisions, reverse=True)  # so that versions compare as text


@pytest.mark.both_databases
def test_views_have_their_documented_columns(store):
    with store.reading() as connection:
        for name, view in VIEWS.items():
            assert list(connection.execute(text(f"SELECT * FROM {name}")).keys()) == list(view.columns)


def test_another_schema_is_an_error_with_a_remedy(store_url):
    for version, remedy in (
        ("0009", "run jestlab db upgrade"),
        ("9999", "upgrade jestlab"),
        ("0002", "run jestlab export with the version"),
    ):
        execute(store_url, f"UPDATE alembic_version SET version_num = '{version}'")
        for open_ in (Store.open, Store.open_readonly):
            with pytest.raises(UserError, match=remedy):
                open_(store_url)


@pytest.mark.both_databases
def test_refuses_the_database_of_another_application(database_url):
    execute(database_url, "CREATE TABLE theirs (x INTEGER)")
    for open_ in (Store.open, Store.open_readonly):
        with pytest.raises(UserError, match="holds other tables"):
            open_(database_url)
    engine = writable(database_url)
    assert inspect(engine).get_table_names() == ["theirs"]
    engine.dispose()


def test_refuses_urls_of_other_databases():
    for url in (
        "sqlite://",
        "results.db",
        "sqlite:///:memory:",
        "mysql://u:secret@host/db",
        "postgresql+psycopg2://u:secret@host/db",
        "postgresql://u:secret@host",
        "postgresql://u:secret@host:port/db",
        "postgresql//u:secret@host/db",
        "postgresql+asyncpg://host/db?password=secret",
        "://:sec@ret@secret@host",
    ):
        with pytest.raises(UserError, match=r"sqlite:///lab/results\.db") as error:
            Store.open(url)
        assert "secret" not in str(error.value)


def test_reading_creates_nothing_and_refuses_other_files(url, tmp_path):
    assert Store.open_readonly(url) is None
    with pytest.raises(UserError, match="launch a study first"):
        Store.open(url, create=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "results.db").write_text("this is not a database, but long enough to look like one" * 50)
    with pytest.raises(UserError, match="file is not a database"):
        Store.open(url)


def test_a_store_in_a_folder_with_awkward_characters(tmp_path):
    folder = tmp_path / "my lab 100% #1"
    url = f"sqlite:///{folder / 'results.db'}"
    Store.open(url)
    assert Store.open_readonly(url) is not None
    assert (folder / "results.db").exists()


def test_an_empty_database_is_not_a_store(postgres):
    assert Store.open_readonly(postgres) is None
    with pytest.raises(UserError, match="is empty: launch a study first"):
        Store.open(postgres, create=False)
    engine = writable(postgres)
    assert inspect(engine).get_table_names() == []
    engine.dispose()


def test_takes_every_spelling_of_postgresql(postgresql_url):
    for prefix in ("postgres", "postgresql", "postgresql+psycopg"):
        reader = Store.open_readonly(postgresql_url.replace("postgresql", prefix, 1))
        assert reader is not None
        with closing(reader):
            assert reader.experiments() == []
