"""Seconds of training of a user's own program: since it began, and before that of earlier attempts."""

from __future__ import annotations

import json
import math
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace

import labs_support as labs
import plans_support as plans
import pytest
import yaml

from jestlab.platform.programs import context
from jestlab.platform.programs.context import RunContext
from jestlab.platform.store.store import Store


class Kept:
    """Keeps the seconds of each evaluation."""

    def __init__(self) -> None:
        self.seconds: dict[int, float | None] = {}

    def log(self, step, metrics):
        pass

    def progress(self, step, total_steps):
        pass

    def flush(self):
        pass

    def evaluation(self, step, examples_seen, flops_total, scores, *, seconds=None):
        self.seconds[step] = seconds


@pytest.fixture
def begun(monkeypatch):
    """Starts a context at 1,000 s by a clock that `wait` moves."""
    now = [1_000.0]
    monkeypatch.setattr(context, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def begin(earlier_seconds=None):
        kept = Kept()
        made = RunContext(
            directory=Path(), cache=Path(), seed=0, needs={}, recorder=kept,
            record_artifact=lambda name, path: None, stop_requested=lambda: False,
            earlier_seconds=earlier_seconds or {},
        )  # fmt: skip

        def wait(seconds):
            now[0] += seconds

        return made, kept, wait

    return begin


def test_it_counts_from_the_beginning(begun):
    made, kept, wait = begun()
    wait(3.0)
    made.evaluation(1, scores={"toy/x": 1.0})
    wait(4.0)
    made.evaluation(2, scores={"toy/x": 1.0})
    made.evaluation(3, scores={"toy/x": 1.0}, seconds=0.5)  # what the program measured itself
    assert kept.seconds == {1: 3.0, 2: 7.0, 3: 0.5}


def test_it_goes_on_where_an_earlier_attempt_was(begun):
    earlier = {3: 30.0, 5: 50.0, 6: 60.0, 9: 90.0}  # it went on after step 5, from a checkpoint
    for report in (
        lambda made: made.log(6, {"loss": 1.0}),  # after doing step 6
        lambda made: made.progress(5, 10),  # after 5 steps
        lambda made: made.evaluation(6, scores={}),
    ):
        made, kept, wait = begun(earlier)
        made.log(0, {"size": 3.0})  # holds for the whole run
        report(made)
        wait(2.0)
        made.evaluation(7, scores={"toy/x": 1.0})
        made.evaluation(8, scores={"toy/x": 1.0})
        assert (kept.seconds[7], kept.seconds[8]) == (52.0, 52.0)


def test_what_earlier_attempts_did_not_know_stays_unknown(begun):
    made, kept, _ = begun({6: math.nan})
    made.evaluation(7, scores={"toy/x": 1.0})
    assert math.isnan(kept.seconds[7] or 0.0)


def test_the_store_knows_the_seconds_of_each_evaluation(store_url, tmp_path):
    store = Store.open(store_url)
    planned = plans.run("alone")
    store.record(plans.plan(planned))
    attempt = plans.begun(store, planned, tmp_path)
    for step, seconds in ((2, 1.5), (4, 3.0), (6, None)):
        attempt.evaluation(step, None, None, {"toy/x": 0.5, "toy/y": 0.5}, seconds=seconds)
    attempt.flush()
    found = store.seconds_by_step(planned.fingerprint)
    assert math.isnan(found.pop(6))
    assert found == {2: 1.5, 4: 3.0}
    store.close()


def test_a_command_that_reports_scores_alone_is_timed(root, tmp_path):
    script = tmp_path / "own.py"
    script.write_text(
        "import time\n"
        "from jestlab.platform import client\n"
        "run = client.run()\n"
        "for step in (1, 2):\n"
        "    time.sleep(0.05)\n"
        "    run.evaluation(step, scores={'toy/x': 0.5})\n"
    )
    spec = {
        "name": "own",
        "program": "command",
        "base": {"command": [sys.executable, str(script)]},
        "runs": {"alone": {}},
        "metrics": {"toy/x": {"goal": "max"}},
        "reports": ["table"],
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(spec))
    done = labs.here("launch", tmp_path / "own.yaml", root=root)
    assert done.returncode == 0, done.stdout + done.stderr
    with sqlite3.connect(root / "results.db") as connection:
        columns = "step, examples_seen, flops_total, seconds"
        one, two = connection.execute(f"SELECT {columns} FROM evaluation ORDER BY step").fetchall()
    connection.close()
    assert one[:3] == (1, None, None)
    assert 0.05 <= one[3] < two[3]
    assert two[3] >= 0.1
    (row,) = json.loads((root / "reports" / "own" / "table.json").read_text())["rows"]
    assert row["seconds"] == pytest.approx(two[3])
