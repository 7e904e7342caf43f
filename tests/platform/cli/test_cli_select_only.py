"""Verbs that only read work with the read-only PostgreSQL role of the documentation."""

import re
import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import labs_support as labs
import psycopg
import pytest
import rows_support as rows
import stores_support as stores
from postgres_support import PostgresServer

from jestlab.platform.errors import StoreError, StoreUnreachable
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning import recording
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.load import load
from jestlab.platform.store import published
from jestlab.platform.store.store import Store

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "postgresql.md"

COMMANDS = """
plan toy.yaml --why; status; status toy; watch toy --once; logs toy/uniform/1; query
query 'SELECT * FROM v_runs'; query --where 'steps = 12' --columns label,config.*
diff toy/uniform/0 toy/reference/0; table toy; table claims toy; table comparison toy
table toy --explain uniform toy/score; published list; note toy; tag toy; gc; db check; db backup copy.db
export lab.zip
"""
FIGURES = "report toy; plot toy; plot toy --kind curves"


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """URL, for its owner, of a database with the role of the documentation."""
    url = postgres_server.new_database()
    [sql] = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    name = url.rpartition("/")[2]
    postgres_server.execute("DROP ROLE IF EXISTS reader")
    for statement in filter(str.strip, sql.split(";")):  # it also grants rights on tables of the future
        postgres_server.execute(statement, name)
    yield url
    postgres_server.drop(url)
    postgres_server.execute("DROP ROLE reader")


@pytest.fixture(scope="module")
def folder(database, tmp_path_factory) -> Path:
    """A folder with a study and its lab, in which the study has completed."""
    folder: Path = tmp_path_factory.mktemp("select_only")
    claim = {"statement": "It is more", "of": "uniform", "above": "reference", "measure": "toy/score"}
    planned = plan(load(str(labs.write_study(folder, seeds=2, claims=[claim]))))
    with closing(Store.open(database)) as store:
        recording.record(store, planned)
        for run in planned.runs:
            stores.attempt(store, run, scores={"toy/score": 0.5 + run.seed / 4}, loss=(2.0, 1.0))
            stores.folder(Lab.find(folder / "lab"), run)
    done = labs.here("published", "import", "--store", database, root=folder / "lab")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def reader(postgres_server, database) -> str:
    url: str = postgres_server.url(database.rpartition("/")[2], role="reader", password="choose%20one")
    return url


@pytest.mark.parametrize("commands", [COMMANDS, pytest.param(FIGURES, marks=pytest.mark.full)])
def test_commands_that_read_need_no_other_rights(folder, database, reader, commands, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with closing(Store.open(database)) as store:
        before = rows.everything(store.engine)
        for command in commands.strip().replace("\n", "; ").split("; "):
            words = shlex.split(command.replace("toy.yaml", str(folder / "toy.yaml")))
            done = labs.here(*words, "--store", reader, root=folder / "lab")
            assert done.returncode == 0, (command, done.stdout + done.stderr)
        assert rows.everything(store.engine) == before


def test_the_role_cannot_write(folder, reader):
    with psycopg.connect(reader, autocommit=True) as connection:
        for sql in ("DELETE FROM run", "UPDATE run SET step = 0", "CREATE TABLE mine (x int)"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(sql.encode())
    with pytest.raises(StoreError, match="permission denied for table") as error:
        published.remove_source(Store.open(reader, create=False), "jest")
    assert not isinstance(error.value, StoreUnreachable)
