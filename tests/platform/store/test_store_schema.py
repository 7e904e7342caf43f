"""Opening a store: what is made, what is refused, and that many may do it at once."""

from __future__ import annotations

import subprocess
import sys
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
    """Of a SQLite file, for what only files can be."""
    return f"sqlite:///{tmp_path / 'results.db'}"


def execute(url: str, *statements: str) -> None:
    engine = rows.opened(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


def test_the_newest_migration_is_the_one_the_code_expects():
    from alembic.script import ScriptDirectory

    script = ScriptDirectory(str(schema.MIGRATIONS[0]), version_locations=list(map(str, schema.MIGRATIONS)))
    assert script.get_current_head() == schema.HEAD
    revisions = [revision.revision for revision in script.walk_revisions()]
    assert revisions == sorted(revisions, reverse=True)  # so that versions compare as text


def test_views_have_the_columns_they_promise(store_url):
    with closing(Store.open(store_url)) as store, store.reading() as connection:
        for name, view in VIEWS.items():
            assert list(connection.execute(text(f"SELECT * FROM {name}")).keys()) == list(view.columns)


def test_a_store_of_another_schema_says_what_to_do(store_url):
    for version, remedy in (("9999", "upgrade jestlab"), ("0002", "run jestlab export with the version")):
        execute(store_url, f"UPDATE alembic_version SET version_num = '{version}'")
        for open_ in (Store.open, Store.open_readonly):
            with pytest.raises(UserError, match=remedy):
                open_(store_url)


def test_another_applications_database_is_left_alone(database_url):
    execute(database_url, "CREATE TABLE theirs (x INTEGER)")
    for open_ in (Store.open, Store.open_readonly):
        with pytest.raises(UserError, match="holds other tables"):
            open_(database_url)
    engine = writable(database_url)
    assert inspect(engine).get_table_names() == ["theirs"]
    engine.dispose()


def test_a_file_that_is_no_database(url, tmp_path):
    (tmp_path / "results.db").write_text("this is not a database, but long enough to look like one" * 50)
    with pytest.raises(UserError, match="file is not a database"):
        Store.open(url)


@pytest.mark.parametrize(
    "wrong",
    [
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
    ],
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


def test_alembic_is_not_imported_for_a_store_that_is_up_to_date(sqlite_url):
    code = (
        f"import sys; from jestlab.platform.store.store import Store; Store.open({sqlite_url!r}); "
        "assert 'alembic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_many_processes_make_one_store_at_once(database_url):
    code = (
        "import sys; from jestlab.platform.store.store import Store; import alembic.script; "
        f"print('ready', flush=True); sys.stdin.readline(); Store.open({database_url!r})"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, said
    assert Store.open_readonly(database_url) is not None


def test_an_empty_database_on_a_server_is_no_store(postgres):
    assert Store.open_readonly(postgres) is None
    with pytest.raises(UserError, match="is empty: launch a study first"):
        Store.open(postgres, create=False)
    engine = writable(postgres)
    assert inspect(engine).get_table_names() == []
    engine.dispose()


@pytest.mark.parametrize("prefix", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_way_to_write_postgresql(postgres, prefix):
    url = postgres.replace("postgresql", prefix, 1)
    Store.open(url).close()
    store = Store.open_readonly(url)
    assert store is not None
    assert store.experiments() == []
    store.close()


def test_a_store_is_opened_without_what_only_specs_need():
    """Verbs that read results, and workers that begin, do not wait for it."""
    heavy = {"pydantic", "jax", "pandas"}
    code = f"import sys, jestlab.platform.store.store; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
