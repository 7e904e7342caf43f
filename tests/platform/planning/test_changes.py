"""What runs were made by, against each other and against what is there now, on each database."""

import json
from pathlib import Path
from typing import Any

import pytest
import stores_support as stores
from sqlalchemy import update

from jestlab.platform.digests import digest_of
from jestlab.platform.planning import recording
from jestlab.platform.planning.changes import changes, changes_of
from jestlab.platform.planning.compare import compare_with_now
from jestlab.platform.planning.plan import Plan, plan
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.annotations import accept, acceptances, retract, retracted, undo_retraction
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import AttemptRow

STEP = 10  # of the scores
CHANGED = "made with different code (ridge.py) than the current files"


def study(folder: Path, name: str = "ridge", **parts: Any) -> dict[str, Any]:
    (folder / "ridge.py").write_text("print(1)\n")
    command = {"command": ["python", "ridge.py"], "cwd": str(folder)}
    return {"name": name, "program": "command", "base": command, "runs": {"plain": {}}, "seeds": 2, **parts}


def recorded(store: Store, written: dict[str, Any], *made: dict[str, Any]) -> Plan:
    """Record a study's plan, and of each of its runs one attempt with these columns."""
    planned = plan(StudySpec.parse(written))
    recording.record(store, planned)
    for run, columns in zip(planned.runs, made, strict=False):
        its: Any = {k: json.dumps(v) if isinstance(v, dict) else v for k, v in columns.items()}
        stores.attempt(store, run, **its)
    return planned.with_states(store.states(planned.fingerprints))


def lines(store: Store, planned: Plan) -> list[str]:
    name = planned.study.name
    said = changes(store, planned.study, planned.runs).lines(name)
    assert changes_of(store, name).lines(name) == said
    return [line.partition(" (jestlab ")[0].partition(" (--")[0] for line in said]


def test_code_is_compared_with_what_is_there_now(store, tmp_path):
    written = study(tmp_path)
    now = digest_of(tmp_path / "ridge.py")
    planned = recorded(store, written, {"sources": {"ridge.py": now}}, {"sources": {"ridge.py": "0" * 64}})
    assert lines(store, planned) == [f"1 of 2 runs was {CHANGED}"]
    accept(store, "ridge", changes_of(store, "ridge").values, "a comment", "Ada")
    assert lines(store, planned) == []
    (tmp_path / "ridge.py").write_text("print(2)\n")
    assert lines(store, planned) == [f"2 of 2 runs were {CHANGED}"]
    (tmp_path / "ridge.py").unlink()  # as on a machine that has not got the script: nobody knows
    assert lines(store, planned) == []


@pytest.mark.parametrize(
    ("first", "resumed", "started_over"),
    [
        ({"state": RunState.PREEMPTED}, {"first_step": 3}, {"first_step": 0}),
        # The program reports no progress, so that the run's step is unknown: the scores say how far it was.
        (
            {"state": RunState.FAILED, "scores": {"toy/top1": 0.5}},
            {"resumed_step": STEP},
            {"resumed_step": STEP - 1},
        ),
    ],
)
def test_code_of_the_attempts_that_a_result_rests_on_counts(store, tmp_path, first, resumed, started_over):
    planned = recorded(store, study(tmp_path, seeds=1))
    old, now = ({"ridge.py": digest} for digest in ("0" * 64, digest_of(tmp_path / "ridge.py")))
    stores.attempt(store, planned.runs[0], **first, sources=json.dumps(old))
    second = stores.attempt(store, planned.runs[0], number=2, **resumed, sources=json.dumps(now))
    planned = planned.with_states(store.states(planned.fingerprints))
    assert lines(store, planned) == [f"the run was {CHANGED}"]
    with store.writing() as connection:
        connection.execute(update(AttemptRow).where(AttemptRow.id == second).values(**started_over))
    assert lines(store, planned) == []


def test_data_are_compared_with_what_is_there_now(store, tmp_path):
    written = study(tmp_path, record={"files": [str(tmp_path / "x.csv"), str(tmp_path / "y.csv")]})
    (tmp_path / "x.csv").write_text("1")
    inputs = {"x.csv": digest_of(tmp_path / "x.csv"), "y.csv": None}
    planned = recorded(store, written, {"inputs": inputs}, {"inputs": inputs})
    assert lines(store, planned) == []
    (tmp_path / "x.csv").write_text("2")
    assert lines(store, planned) == [
        "2 of 2 runs were made with different data (x.csv) than the current files"
    ]
    since = compare_with_now(store, planned.runs[0].fingerprint)
    assert since["data"] == {"x.csv": [inputs["x.csv"], digest_of(tmp_path / "x.csv")]}
    assert not since["code"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"git_commit": "c0"}, {"git_commit": "c0", "git_patch": "diff"}),
        ({"versions": {"jestlab": "0.1.0+code.ab"}}, {"versions": {"jestlab": "0.1.0+code.cd"}}),
    ],
)
def test_a_version_of_jestlab_is_said_where_results_of_one_cell_mix(store, first, second):
    written = {"name": "own", "runs": {"failed": {"optimizer.learning_rate": 1}, "a": {}}, "seeds": 2}
    failed = {"state": RunState.FAILED}
    planned = recorded(store, written, failed, first, failed, second)
    assert lines(store, planned) == ["seeds of a were made with different versions of jestlab"]
    found = changes(store, planned.study, planned.runs)
    assert list(found.older.values()) == [["jestlab"]]  # of two that began at once, one
    states = store.states(planned.fingerprints) | dict.fromkeys(found.older, RunState.PENDING)
    assert changes(store, planned.study, planned.with_states(states).runs).lines("own") == []
    one_each = {name: {"optimizer.learning_rate": rate} for name, rate in (("a", 0.25), ("b", 0.5))}
    planned = recorded(store, {"name": "apart", "runs": one_each}, {}, second)
    assert lines(store, planned) == []


def test_a_difference_between_labels_which_tables_mark_can_be_accepted(store, tmp_path):
    written = study(tmp_path, runs={"plain": {}, "wide": {"width": 2}}, seeds=1)
    recorded(store, written, *({"versions": {"numpy": version}} for version in ("1.26.4", "2.4.0")))
    accept(store, "ridge", changes_of(store, "ridge").values, "equal scores", "Ada")
    [accepted] = acceptances(store, "ridge")
    assert accepted.accepted == {"package numpy": ["1.26.4", "2.4.0"]}
    assert not changes_of(store, "ridge").values


def test_accepting_for_a_union_counts_in_its_studies(store, tmp_path):
    part = study(tmp_path, name="part")
    union = {"name": "both", "studies": {"part": part}}
    old = {"sources": {"ridge.py": "0" * 64}}
    planned = recorded(store, union, old, old)
    assert lines(store, planned) == [f"2 of 2 runs were {CHANGED}"]
    accept(store, "both", changes_of(store, "both").values, "a comment", "Ada")
    assert changes_of(store, "part").lines("part") == lines(store, planned) == []
    assert len(acceptances(store, "part")) == 1


def test_retractions_are_listed_and_taken_back(store, tmp_path):
    planned = recorded(store, study(tmp_path), {}, {})
    first = planned.runs[0].fingerprint
    retract(store, first, "wrong\nshards", "Ada")
    assert lines(store, planned) == ["1 of 2 runs is retracted: wrong shards"]
    [row] = retracted(store)
    assert (row.experiment, row.label, row.seed) == ("ridge", "plain", 0)
    assert (row.author, row.origin) == ("Ada", first)
    undo_retraction(store, first)
    assert retracted(store) == [] and lines(store, planned) == []
