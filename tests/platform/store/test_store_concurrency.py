"""Several processes use one store at once, with the same result as one after another."""

import subprocess
import sys

import plans_support as plans
import pytest
from forks_support import SUPPORT

from jestlab.platform.store.store import Store

PROCESSES = 3
RUNS = [plans.run("a", config={"x": x}) for x in range(6)]

# Forks, because the imports take longer than the subject. They start when the pipe is closed.
CODE = f"""
import os, sys; sys.path.insert(0, {str(SUPPORT)!r})
import plans_support as plans
from jestlab.platform.store.store import Store

runs = [plans.run("a", config={{"x": x}}) for x in range({len(RUNS)})]
reads, writes = os.pipe()
for number in range({PROCESSES}):
    if not os.fork():
        os.close(writes)
        os.read(reads, 1)
        store = Store.open(sys.argv[1])
        in_order = runs[::-1] if number % 2 else runs
        for _ in range(2):
            plans.record(store, plans.plan(*in_order, name=f"study{{number}}"))
            plans.record(store, plans.plan(*runs, name="shared"))
        sys.exit()
os.close(writes)
sys.exit(sum(os.wait()[1] != 0 for _ in range({PROCESSES})))
"""


@pytest.mark.both_databases
def test_many_create_a_store_and_record_the_same_runs(database_url):
    done = subprocess.run([sys.executable, "-c", CODE, database_url], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    store = Store.open(database_url, create=False)
    assert {row.name: sum(row.counts.values()) for row in store.experiments()} == dict.fromkeys(
        ("shared", *(f"study{number}" for number in range(PROCESSES))), len(RUNS)
    )
    assert [row.fingerprint for row in store.runs("shared")] == [run.fingerprint for run in RUNS]
    store.close()
