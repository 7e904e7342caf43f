"""Labs with real processes and stores on real databases, for every test of the platform."""

import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
MLFLOW = Path(__file__).parent / "exchange" / "data" / "mlflow.sql"
sys.path.insert(0, str(SUPPORT))  # toy programs and helpers; workers get it by PYTHONPATH

import labs_support as labs  # noqa: E402
import plans_support as plans  # noqa: E402
import stores_support as stores  # noqa: E402
from executor_harnesses import ready  # noqa: E402
from in_process import Machine  # noqa: E402
from kubernetes_harness import KubernetesHarness  # noqa: E402
from lasting_support import end_after, lasting  # noqa: E402
from postgres_support import PostgresServer  # noqa: E402
from tests.cluster.kubernetes import binaries  # noqa: E402
from tests.cluster.kubernetes.shared import Namespace, SharedCluster  # noqa: E402
from workers_support import ForkingLocal, replace_local_executor  # noqa: E402

from jestlab.analysis.shared import SCRATCH  # noqa: E402
from jestlab.platform.programs import command_run  # noqa: E402
from jestlab.platform.store.store import Store  # noqa: E402


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder of a lab, not made yet. In the end no process of it may be left."""
    root = tmp_path / "lab"
    for name, value in labs.variables(root).items():
        monkeypatch.setenv(name, value)
    yield root
    labs.wait_until_ended(root)


@pytest.fixture(autouse=True)
def forking(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process launches on this machine are forks of a server that all tests share.

    A test whose subject is how processes are started names the executor itself.
    """
    replace_local_executor(monkeypatch, ForkingLocal)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Attempts that a test leaves unfinished do not complain, in the midst of the next one, that their store
    has gone."""
    yield
    for thread in threading.enumerate():
        target = getattr(thread, "_target", None)  # None of one that is just over
        if thread.name == "store-writer" and target is not None:
            target.__self__._ended = True
            target.__self__._wake.set()


@pytest.fixture
def blank_page(monkeypatch: pytest.MonkeyPatch) -> None:
    plans.blank_page(monkeypatch)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server that the tests of this process share; one that stops it starts it again."""
    with closing(PostgresServer()) as server:
        server.start()
        yield server


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.new_database()
    yield url
    postgres_server.drop(url)


@pytest.fixture(params=["sqlite", "postgresql", "shared"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a store that is not made yet, on each kind of database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'results.db'}"
    if request.param == "shared":
        request.getfixturevalue("scratch")
        return f"sqlite:///{tmp_path / 'results.shared'}"
    url: str = request.getfixturevalue("postgres")
    return url


@pytest.fixture(params=["sqlite", "postgresql", "shared"])
def store_url(request: pytest.FixtureRequest) -> str:
    """URL of an empty store on each kind of database, for tests whose subject is SQL."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def scratch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep this machine's copies of shared stores in a folder of the test."""
    monkeypatch.setenv(SCRATCH, str(tmp_path_factory.mktemp("scratch")))


@pytest.fixture
def shared_url(tmp_path: Path, scratch: None) -> str:
    """URL of an empty store in a shared folder."""
    url = f"sqlite:///{tmp_path / 'results.shared'}"
    Store.open(url).close()
    return url


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store on each kind of database."""
    with closing(Store.open(store_url)) as store:
        yield store


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """URL of an empty SQLite store, for tests whose subject is Python."""
    return stores.empty_store(tmp_path / "results.db")


@pytest.fixture
def postgresql_url(postgres_server: PostgresServer) -> Iterator[str]:
    """URL of an empty store on PostgreSQL."""
    url = postgres_server.new_store()
    yield url
    postgres_server.drop(url)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End clusters that no test waits for; fixtures of tests have ended before."""
    end_after(item, nextitem)


@pytest.fixture
def whole_cluster(tmp_path_factory: pytest.TempPathFactory) -> SharedCluster:
    """A Kubernetes cluster that all test processes of this run share."""
    if (programs := binaries.folder()) is None:
        pytest.skip(binaries.MISSING)
    folder = tmp_path_factory.getbasetemp()
    place = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "kubernetes"
    return lasting("Kubernetes", lambda: closing(SharedCluster(place, programs)))


@pytest.fixture
def namespace(whole_cluster: SharedCluster) -> Iterator[Namespace]:
    made = Namespace(whole_cluster)
    yield made
    made.empty()


@pytest.fixture
def kubernetes_harness(
    whole_cluster: SharedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesHarness]:
    """A namespace of the cluster, pods that do as they are told, and an API that fails as it is told."""
    with ready(KubernetesHarness(whole_cluster, tmp_path, monkeypatch), monkeypatch) as made:
        yield made


@pytest.fixture
def mlflow_database(tmp_path: Path) -> Path:
    """The committed database of MLflow, built of its SQL."""
    path = tmp_path / "what is it?.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(MLFLOW.read_text())
    return path


@pytest.fixture
def in_process(forking: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches compute their runs in threads of this process."""
    Machine(monkeypatch)
    # It would wait for the children of this process, which aren't adopted orphans.
    monkeypatch.setattr(command_run, "reap_orphans", lambda but: None)
