"""Fixtures for tests of the store."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from jestlab.platform.store.store import Store


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store."""
    with closing(Store.open(store_url)) as store:
        yield store
