"""What is retracted, and what rests on it, as views say it."""

from __future__ import annotations

from collections.abc import Iterator

import plans_support as plans
import pytest
import stores_support as stores
from sqlalchemy import insert, text

from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.store import tables
from jestlab.platform.store.store import Store

REFERENCE, JOINT, UNIFORM = plans.reference_and_two().runs


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """Three completed runs; `joint` needs `reference`."""
    store = Store.open(store_url)
    store.record(plans.reference_and_two())
    for run in (REFERENCE, JOINT, UNIFORM):
        stores.attempt(store, run)
    yield store
    store.close()


def retract(store: Store, run: PlannedRun, number: int) -> None:
    said = {"reason": "wrong shards", "author": "ada", "created_at": stores.START}
    with store.writing() as connection:
        its = {"run_id": stores.run_id(store, run), "number": number}
        connection.execute(insert(tables.Retraction).values(**its, **said))


def retracted(store: Store) -> list[tuple[str, str]]:
    with store.reading() as connection:
        found = connection.execute(text("SELECT run, origin FROM v_retractions ORDER BY run")).tuples()
        return [(run, origin) for run, origin in found]


def test_a_retraction_is_of_a_run_and_of_what_needed_it(store):
    retract(store, UNIFORM, 1)
    assert retracted(store) == [("uniform", UNIFORM.fingerprint)]
    retract(store, REFERENCE, 1)
    assert retracted(store) == [
        ("joint", REFERENCE.fingerprint),
        ("reference", REFERENCE.fingerprint),
        ("uniform", UNIFORM.fingerprint),
    ]


def test_a_run_that_was_made_anew_is_good_and_what_rests_on_the_old_one_is_not(store):
    retract(store, REFERENCE, 1)
    stores.attempt(store, REFERENCE, number=2)
    assert retracted(store) == [("joint", REFERENCE.fingerprint)]
    stores.attempt(store, JOINT, number=2)
    assert retracted(store) == []
    retract(store, JOINT, 2)
    assert retracted(store) == [("joint", JOINT.fingerprint)]
