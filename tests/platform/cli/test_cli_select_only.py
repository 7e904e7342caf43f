"""Every verb that only reads works with the role that the documentation gives PostgreSQL, to SELECT alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import labs_support as labs
import psycopg
import pytest
import rows_support as rows
from postgres_support import PostgresServer

from jestlab.platform.errors import StoreError
from jestlab.platform.store import published
from jestlab.platform.store.store import Store

CLUSTERS = Path(__file__).parents[3] / "docs" / "clusters.md"

VERBS = {
    "plan": ["toy.yaml", "--why"],
    "status": ["toy"],
    "watch": ["toy", "--once"],
    "logs": ["toy/uniform/1"],
    "query": ["SELECT * FROM v_runs"],
    "diff": ["toy/uniform/0", "toy/reference/0"],
    "table": ["toy"],
    "plot": ["toy"],
    "report": ["toy"],
    "published": ["list"],
    "note": ["toy"],
    "tag": ["toy"],
    "gc": [],
    "db": ["check"],
}
"""Verb → what follows it. Others that only read (list, show, costs, data) have no store to read."""
MORE = [
    ["status"],
    ["query"],
    ["query", "--where", "steps = 12", "--columns", "label,config.*"],
    ["table", "claims", "toy"],
    ["table", "comparison", "toy"],
    ["table", "toy", "--explain", "uniform", "toy/score"],
    ["plot", "toy", "--kind", "curves"],
    ["db", "backup", "copy.db"],
    ["export", "lab.tar.zst"],
]


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """URL, for its owner, of a database with the role of the documentation."""
    url = postgres_server.new_database()
    [sql] = re.findall(r"```sql\n(.*?)```", CLUSTERS.read_text(encoding="utf-8"), flags=re.DOTALL)
    name = url.rpartition("/")[2]
    postgres_server.execute("DROP ROLE IF EXISTS reader")
    for statement in filter(str.strip, sql.split(";")):  # before there are tables: they come with rights, too
        postgres_server.execute(statement, name)
    yield url
    postgres_server.drop(url)
    postgres_server.execute("DROP ROLE reader")


@pytest.fixture(scope="module")
def launched(database, tmp_path_factory) -> Path:
    """Folder of a lab whose study has been launched by the database's owner."""
    folder: Path = tmp_path_factory.mktemp("select_only")
    claim = {"statement": "It is more", "of": "uniform", "above": "reference", "measure": "toy/score"}
    study = labs.write_study(folder, seeds=2, claims=[claim])
    done = labs.jestlab("launch", study, "--no-reports", "--store", database, root=folder / "lab")
    assert done.returncode == 0, done.stdout + done.stderr
    assert labs.jestlab("published", "import", "--store", database, root=folder / "lab").returncode == 0
    return folder


@pytest.fixture
def reader(postgres_server, database) -> str:
    url: str = postgres_server.url(database.rpartition("/")[2], role="reader", password="choose%20one")
    return url


@pytest.mark.parametrize(
    "words", [*([verb, *rest] for verb, rest in VERBS.items()), *MORE], ids=lambda words: " ".join(words)
)
def test_verbs_that_read_need_no_more(launched, database, reader, words, monkeypatch, tmp_path):
    with closing(Store.open(database)) as store:
        before = rows.everything(store.engine)
        monkeypatch.chdir(tmp_path)
        words = [str(launched / word) if word == "toy.yaml" else word for word in words]
        done = labs.here(*words, "--store", reader, root=launched / "lab")
        assert done.returncode == 0, done.stdout + done.stderr
        assert rows.everything(store.engine) == before


def test_the_role_cannot_write(launched, postgres_server, reader):
    with psycopg.connect(reader, autocommit=True) as connection:
        for sql in ("DELETE FROM run", "UPDATE run SET step = 0", "CREATE TABLE mine (x int)"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(sql.encode())
    with pytest.raises(StoreError, match=r"permission denied|read-only"):
        published.remove_source(Store.open(reader, create=False), "jest")
