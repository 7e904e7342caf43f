"""Fixtures for tests of exchange: stores with recorded studies, labs, archives, and the command line."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import archives_support as archives
import pytest
import stores_support as stores
from tests.platform.exchange import recorded

from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.store import Store


@pytest.fixture
def recorded_store(store: Store) -> Store:
    """A store with the recorded studies, on each kind of database."""
    recorded.record(store)
    return store


@pytest.fixture
def recorded_sqlite(sqlite_url: str) -> Iterator[Store]:
    """A SQLite store with the recorded studies."""
    with closing(Store.open(sqlite_url)) as store:
        recorded.record(store)
        yield store


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A path in an empty folder, to write to."""
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "out"


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A lab with rows and files of every kind; tests must not change it."""
    lab = stores.empty_lab(tmp_path_factory.mktemp("filled") / "lab")
    archives.fill(lab)
    return lab


@pytest.fixture(scope="session")
def archive(filled: Lab) -> bytes:
    """An archive of that lab, without checkpoints."""
    path = filled.root.with_name("lab.zip")
    archives.export(filled, path)
    return path.read_bytes()


@pytest.fixture
def path(archive: bytes, tmp_path: Path) -> Path:
    """The file of that archive."""
    (tmp_path / "lab.zip").write_bytes(archive)
    return tmp_path / "lab.zip"


@pytest.fixture
def lab(filled: Lab, tmp_path: Path) -> Lab:
    """A copy of the filled lab."""
    shutil.copytree(filled.root, tmp_path / "lab")
    return Lab.find(tmp_path / "lab")


@pytest.fixture
def copy(tmp_path: Path) -> Lab:
    """An empty lab."""
    return stores.empty_lab(tmp_path / "copy")
