"""Several processes at one store: what they do at the same time comes out as if one after another."""

from __future__ import annotations

import subprocess
import sys

import plans_support as plans
from forks_support import SUPPORT

from jestlab.platform.store.store import Store


def test_one_plan_recorded_by_many_at_once(store_url):
    Store.open(store_url).close()
    code = (
        f"import sys; sys.path.insert(0, {str(SUPPORT)!r})\n"
        "import plans_support as plans\n"
        "from jestlab.platform.store.store import Store\n"
        f"store = Store.open({store_url!r})\n"
        "runs = [plans.run('a', config={'x': x}) for x in range(60)]\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for _ in range(3):\n"
        "    store.record(plans.plan(*runs, name='first'))\n"
        "    store.record(plans.plan(*reversed(runs), name=f'study{sys.argv[1]}'))\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    store = Store.open(store_url)
    assert {row.name: sum(row.counts.values()) for row in store.experiments()} == {
        "first": 60,
        **{f"study{number}": 60 for number in range(3)},
    }
    runs = [plans.run("a", config={"x": x}) for x in range(60)]
    assert [row.fingerprint for row in store.runs("first")] == [run.fingerprint for run in runs]
    store.close()
