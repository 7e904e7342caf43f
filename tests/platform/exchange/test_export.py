"""Reading results from the store for export: everything, run by run, on both databases."""

import math
from dataclasses import replace
from datetime import timedelta

import plans_support as plans
import pytest
import stores_support as stores
from tests.platform.exchange import recorded
from tests.platform.exchange.recorded import BROKEN, JOINT, JOINT_1, LABEL, WAITING, as_text, result

from jestlab.platform.errors import UserError
from jestlab.platform.exchange import export
from jestlab.platform.exchange.export import ExportedRun, members
from jestlab.platform.exchange.source_run import Score
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store


def read(store: Store, *experiments: str) -> list[ExportedRun]:
    return [*export.read(store, members(store, experiments))]


@pytest.mark.both_databases
def test_reads_all_that_is_recorded_of_a_run(recorded_store):
    found = {(one.experiment, one.label, one.seed): one for one in read(recorded_store)}
    joint = found["toy", LABEL, 0]
    assert (joint.run, joint.title, joint.program) == ("joint", f"{LABEL}/0", JOINT.program)
    assert (joint.question, joint.fingerprint) == ("Does it run?", JOINT.fingerprint)
    assert (joint.state, joint.reason, joint.step) == (RunState.COMPLETED, None, 3)
    assert joint.config == JOINT.config == {**recorded.CONFIG, "ratio": 0.5}
    assert joint.began is not None and joint.ended is not None
    assert now() - timedelta(minutes=5) < joint.began <= joint.ended <= now()
    assert (joint.tags, joint.notes) == (recorded.TAGS, recorded.NOTES)
    assert as_text(joint.metrics) == recorded.METRICS
    assert [repr(score) for score in joint.scores] == [
        repr(Score("toy", "score", 2, 0.25, 20)),
        repr(Score("toy", "score", 3, 0.75, 3 * 10**9, 1.5e21, 9.5)),
        repr(Score("toy", "top 1", 2, math.nan, 20)),
    ]
    assert as_text(joint.curves()) == recorded.CURVES
    other, broken, waiting = (found["toy", *place] for place in ((LABEL, 1), ("broken", 0), ("waiting", 0)))
    assert (other.fingerprint, other.config["seed"]) == (JOINT_1.fingerprint, 1)
    assert as_text(other.metrics) == {"loss": [(1, "-inf")]}
    assert (broken.state, broken.reason, broken.metrics) == (RunState.FAILED, "ValueError: no", {})
    assert (waiting.state, waiting.began, waiting.ended, waiting.step) == (RunState.PENDING, None, None, 0)
    assert (waiting.commit, waiting.metrics, waiting.scores, waiting.notes) == (None, {}, [], [])


def test_yields_a_run_for_each_label_and_study(recorded_store):
    toy = [("baseline", 0), (LABEL, 0), (LABEL, 1), ("broken", 0), ("waiting", 0)]
    for names, expected in (
        ([], [("other", "broken", 0), *(("toy", *one) for one in toy)]),
        (["other"], [("other", "broken", 0)]),
        (["toy", "toy"], [("toy", *one) for one in toy]),
    ):
        found = read(recorded_store, *names)
        assert [(one.experiment, one.label, one.seed) for one in found] == expected
    baseline, joint, *_ = found
    assert (baseline.run, baseline.fingerprint) == ("baseline", JOINT.fingerprint)
    assert as_text(baseline.curves()) == as_text(joint.curves())


def test_times_and_commits_are_those_of_the_attempts(recorded_sqlite):
    def told():
        (found,) = read(recorded_sqlite, "other")
        return found.began, found.ended, found.commit

    began, started = told()[0], stores.START + timedelta(days=1)
    stores.attempt(recorded_sqlite, BROKEN, number=2, started=started, git_commit="ours")
    assert told() == (began, started + timedelta(minutes=2), "ours")
    stores.attempt(recorded_sqlite, BROKEN, number=3, git_commit="ours", code_commit="mine")
    assert told()[2] == "mine"
    stores.attempt(recorded_sqlite, BROKEN, RunState.RUNNING, number=4)
    assert told() == (began, None, None)


def test_rejects_unknown_experiments_and_stores_without_runs(recorded_sqlite, tmp_path):
    empty = Store.open(f"sqlite:///{tmp_path / 'empty.db'}")
    with pytest.raises(UserError, match="no experiment 'toi' in the store: did you mean 'toy'"):
        members(recorded_sqlite, ["toy", "toi"])
    with pytest.raises(UserError, match="no runs to export: launch a study first"):
        members(empty, [])
    empty.close()


def test_a_run_is_read_when_its_turn_comes(recorded_store):
    """Runs can log new metrics during an export, or leave the study; the export has its runs at the start."""
    reading = export.read(recorded_store, members(recorded_store, ["toy"]))
    assert next(reading).label == "baseline"
    attempt = plans.begun(recorded_store, WAITING)
    attempt.log(1, {"of its own": 0.5})
    attempt.complete()
    plans.record(recorded_store, plans.plan(JOINT, WAITING))
    rest = {(one.label, one.seed): one for one in reading}
    assert list(rest) == [(LABEL, 0), (LABEL, 1), ("broken", 0), ("waiting", 0)]
    assert as_text(rest["waiting", 0].metrics) == {"of its own": [(1, "0.5")]}


def test_curves_of_formats_that_have_nothing_else():
    scores = [
        Score("a", "score", 20, 0.5, 200, None, 2.0),
        Score("a", "score", 30, 0.75, None, None, 3.0),
        # The same step again: what is unknown here is known from there.
        Score("b", "score", 20, 0.25, None, 9.0, None),
        Score("b", "score", 10, 0.125, 100, None, None),
    ]
    one = result(metrics={"loss": [1.0], "a/score": [7.0], "seconds": [5.0]}, scores=scores)
    assert as_text(one.curves()) == {
        "examples_seen": [(10, "100.0"), (20, "200.0")],
        "flops_total": [(20, "9.0")],
        "seconds": [(0, "5.0")],  # a metric stays
        "loss": [(0, "1.0")],
        "a/score": [(20, "0.5"), (30, "0.75")],  # it is a score now
        "b/score": [(10, "0.125"), (20, "0.25")],
    }
    assert as_text(replace(one, scores=[]).curves()) == as_text(one.metrics)
