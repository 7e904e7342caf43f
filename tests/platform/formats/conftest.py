"""A recorded study in a store."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.platform.formats import recorded

from jestlab.platform.store.store import Store


def _recorded(url: str) -> Iterator[Store]:
    store = Store.open(url)
    recorded.record(store)
    yield store
    store.close()


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """The store on each kind of database."""
    yield from _recorded(store_url)


@pytest.fixture
def sqlite_store(sqlite_url: str) -> Iterator[Store]:
    """The store, for tests of what is written."""
    yield from _recorded(sqlite_url)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Folder to write to, with nothing beside it."""
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "out"
