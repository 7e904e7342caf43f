"""Adopted runs in the store, next to runs of the lab itself."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import plans_support as plans
import pytest

from jestlab.analysis import query, soundness
from jestlab.platform.errors import UserError
from jestlab.platform.exchange import taking
from jestlab.platform.exchange.adopt import AdoptedRun, Change, PlaceTaken, Score, adopt, known
from jestlab.platform.exchange.damage import refuse
from jestlab.platform.exchange.placing import Placing, Rules
from jestlab.platform.exchange.source_run import FoundRun
from jestlab.platform.planning.identity import of_origin
from jestlab.platform.store.annotations import Subject, add_note, notes, tags
from jestlab.platform.store.judgments import retract, retracted
from jestlab.platform.store.maintenance import check
from jestlab.platform.store.records import ADOPTED as PROGRAM
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

FINGERPRINT = of_origin("csv:t.csv#a")


def adopted(origin: str = "csv:t.csv#a", **parts) -> AdoptedRun:
    steps = np.arange(5)
    given: dict[str, Any] = {
        "fingerprint": of_origin(origin),
        "origin": origin,
        "path": "/data/t.csv",
        "name": "old",
        "label": "old (csv)",
        "seed": 0,
        "config": {"adopted_from": origin, "lr": 0.5},
        "state": RunState.COMPLETED,
        "metrics": {"loss": (steps, np.array([3, 2, np.nan, np.inf, 1.0]))},
        "scores": [Score("val", "top1", 2, 0.25), Score("val", "top1", 4, 0.5, 400, 4e9, 2.5)],
        "began": datetime(2025, 1, 1, 10),
        "ended": datetime(2025, 1, 1, 11),
        "host": "far",
        "device": "8 × TPU",
        "commit": "abc",
        "tags": ["a tag, with/more"],
        "note": "Two\nlines.",
    }
    return AdoptedRun(**given | parts)


def take(store: Store, run: AdoptedRun, study: str = "old", **options) -> Change:
    return adopt(store, study, run, author="Ada", **options)


def rows(store: Store, view: str, columns: str) -> list[tuple[Any, ...]]:
    frame = query.frame(str(store.engine.url.render_as_string(False)), view=view, columns=columns.split())
    return [tuple(None if value != value else value for value in row) for row in frame.astype(object).values]


@pytest.mark.both_databases
def test_adopts_all_parts_of_a_run(store):
    assert take(store, adopted()) == "new"
    directory = f"runs/adopted-{FINGERPRINT[:16]}"
    assert rows(store, "runs", "experiment run label seed program state step directory") == [
        ("old", "old", "old (csv)", 0, "adopted", "COMPLETED", 4, directory)
    ]
    assert rows(store, "metrics", "name step value") == [
        ("loss", 0, 3), ("loss", 1, 2), ("loss", 2, None), ("loss", 3, float("inf")), ("loss", 4, 1),
    ]  # fmt: skip
    assert rows(store, "evaluations", "name step value examples_seen flops_total seconds final") == [
        ("val/top1", 2, 0.25, None, None, None, 0),
        ("val/top1", 4, 0.5, 400, 4e9, 2.5, 1),
    ]
    columns = "actual_hours learner_flops total_flops actual_flops"
    assert rows(store, "costs", columns) == [(1, 4e9, 4e9, 4e9)]
    assert rows(store, "attempts", "executor handle host device code_commit") == [
        ("adopted", "/data/t.csv", "far", "8 × TPU", "abc")
    ]
    assert not rows(store, "goodput", "run")
    with store.reading() as connection:
        assert connection.exec_driver_sql("SELECT failures FROM run").scalars().all() == [0]
    subject = Subject(fingerprint=FINGERPRINT)
    assert list(tags(store, subject)) == ["a-tag-with-more"]
    assert [(note.text, note.author) for note in notes(store, subject)] == [("Two\nlines.", "Ada")]


def test_adopting_a_run_again_replaces_what_has_changed(store):
    take(store, adopted())
    add_note(store, Subject(fingerprint=FINGERPRINT), "Mine.", "Bea")
    views = ("runs", "attempts", "metrics", "evaluations", "notes")
    before = [rows(store, view, "*") for view in views]
    assert take(store, adopted()) == "same"
    assert [rows(store, view, "*") for view in views] == before
    shorter = adopted(metrics={"other": (np.array([1]), np.array([7.0]))}, scores=[], tags=["b"], note="New.")
    assert take(store, shorter) == "changed"
    assert rows(store, "metrics", "name step value") == [("other", 1, 7)]
    assert not rows(store, "evaluations", "name") and rows(store, "costs", "learner_flops") == [(None,)]
    subject = Subject(fingerprint=FINGERPRINT)
    assert [note.text for note in notes(store, subject)] == ["Two\nlines.", "Mine.", "New."]
    assert take(store, shorter) == "same"
    assert take(store, replace(shorter, name="new", label="new (csv)")) == "changed"
    assert rows(store, "runs", "run label") == [("new", "new (csv)")]


def test_a_run_can_be_in_two_studies(store):
    take(store, adopted())
    assert take(store, adopted(), "other") == "new"
    assert take(store, adopted(), "other") == take(store, adopted()) == "same"
    assert sorted(rows(store, "runs", "experiment label")) == [("old", "old (csv)"), ("other", "old (csv)")]
    assert len(rows(store, "metrics", "value")) == 10


def test_rejects_another_file_of_the_same_name(store):
    take(store, adopted())
    other = adopted(path="/elsewhere/t.csv", config={"adopted_from": "csv:t.csv#a", "lr": 1})
    with pytest.raises(UserError, match=r"was adopted from /data/t.csv, .* --source NAME"):
        take(store, other)
    assert json.loads(rows(store, "runs", "config")[0][0])["lr"] == 0.5
    of_wandb = adopted("wandb:a/b/c", name="w", label="w (wandb)")
    take(store, of_wandb)
    with pytest.raises(UserError, match=r"was adopted from /data/t.csv, .*: add --moved"):
        take(store, replace(of_wandb, path="/elsewhere", note="other"))
    assert take(store, adopted(path="/elsewhere/t.csv")) == "same"
    assert take(store, other, moved=True) == "changed"
    assert take(store, replace(other, seed=1)) == "changed"


def test_fingerprints_that_begin_alike_are_different_runs(store):
    first, second = ("csv:c.csv#run8623", "csv:c.csv#run35791")
    assert of_origin(first)[:8] == of_origin(second)[:8]
    assert [take(store, adopted(origin, label=origin)) for origin in (first, second)] == ["new", "new"]


def test_the_spec_of_a_study_lists_its_adopted_runs(store):
    take(store, adopted(), goal="max")
    take(store, adopted("csv:t.csv#b", name="other", label="other (csv)"), goal="min")
    assert store.spec("old") == {
        "name": "old", "adopted": ["old", "other"], "metrics": {"val/top1": {"goal": "max"}},
    }  # fmt: skip


def test_adopted_runs_stay_after_the_runs_of_the_plan_and_keep_their_names(store):
    plan = plans.plan(plans.run("joint"), plans.run("uniform", config={"steps": 2}))
    store.record(plan)
    spec = store.spec("toy")
    take(store, adopted(), "toy", goal="max")
    assert store.spec("toy") == spec
    more = plans.plan(*plan.runs, plans.run("third", config={"steps": 3}))
    store.record(more)
    assert rows(store, "runs", "run position") == [("joint", 0), ("uniform", 1), ("third", 2), ("old", 3)]
    assert len(store.members("toy")) == 3
    store.record(plans.plan(plan.runs[0]))
    with pytest.raises(UserError, match="'old' is the name of an adopted run"):
        store.record(plans.plan(plans.run("old")))
    assert [run for (run,) in rows(store, "runs", "run")] == ["joint", "old"]


def test_known_names_seeds_and_scores_of_a_study_that_is_no_union(store):
    assert known(store, "toy") == known(store, "none")
    store.record(plans.plan(plans.run("joint", point={"a": 1})))
    take(store, adopted(), "toy")
    take(store, adopted("csv:t.csv#b", seed=4), "elsewhere")
    other = of_origin("csv:t.csv#b")
    found = known(store, "toy")
    assert set(found.own) == {"joint", "joint a=1"}
    assert found.places == {("old (csv)", 0): FINGERPRINT}
    assert found.seeds == {FINGERPRINT: 0, other: 4}
    assert set(found.evaluations) == {"val/top1"}
    part = {"name": "part", "runs": {"any": {}}}
    store.record(plans.plan(plans.run("part/joint"), name="all", runs=None, studies={"part": part}))
    with pytest.raises(UserError, match="all is a union: adopt into one of its studies"):
        known(store, "all")


def test_adopting_a_changed_run_ends_its_retraction(store):
    take(store, adopted())
    retract(store, FINGERPRINT, "wrong", "Ada")
    assert take(store, adopted()) == "same" and len(retracted(store)) == 1
    take(store, adopted(note="mended"))
    assert not retracted(store)


def test_adopting_is_all_or_nothing(store, monkeypatch):
    take(store, adopted())
    monkeypatch.setattr("jestlab.platform.exchange.adopt._enter", lambda *_: 1 / 0)
    for run in (adopted(note="changed", metrics={}), adopted("csv:t.csv#b")):
        with pytest.raises(ZeroDivisionError):
            take(store, run)
    assert len(rows(store, "runs", "run")) == 1 and len(rows(store, "metrics", "value")) == 5


@plans.ON_SQLITE
def test_a_store_with_adopted_runs_has_no_faults(store, tmp_path):
    take(store, adopted())
    assert check(str(store.engine.url), tmp_path) == []


def test_the_analysis_uses_the_same_program_name():
    assert soundness.ADOPTED == PROGRAM


@pytest.mark.both_databases
def test_a_label_and_a_seed_are_those_of_one_run_in_every_study(store):
    other = adopted("csv:u.csv#a", path="/data/u.csv")
    take(store, adopted())
    with pytest.raises(PlaceTaken) as error:
        take(store, other)
    assert error.value.places == {("old (csv)", 0): FINGERPRINT}
    assert take(store, other, "second") == "new"
    take(store, replace(adopted(), seed=1), "second")
    # Its seed is 1 in both studies now: 0 is free in the first, and taken in the second.
    with pytest.raises(PlaceTaken):
        take(store, adopted())
    assert rows(store, "runs", "experiment seed") == [("old", 1), ("second", 0), ("second", 1)]
    store.record(plans.plan(plans.run("old"), name="third"))
    with pytest.raises(UserError, match="has a run 'old' of its own: give another --label"):
        take(store, adopted(), "third")


def test_two_adoptions_at_once_choose_different_seeds(store):
    def place(path: str) -> Iterator[Any]:
        placing = Placing("csv", Rules(label="all"), known(store, "old"), path)
        found = [FoundRun(f"csv:{path}#{name}", name, {}, {}, "COMPLETED") for name in "abc"]
        return taking.take(found, placing, lambda run: take(store, run), refuse)

    one, two = place("one"), place("two")
    for _ in range(3):
        next(one), next(two)
    assert sorted(rows(store, "runs", "label seed")) == [("all (csv)", seed) for seed in range(6)]


def test_another_copy_of_a_run_does_not_replace_it(store):
    copies = [FoundRun("mlflow:1/a", name, {}, {}, "COMPLETED") for name in ("one", "older")]
    placing, errors = Placing("mlflow", Rules(), known(store, "old"), "/data"), list[UserError]()
    (taken,) = taking.take(copies, placing, lambda run: take(store, run), errors.append)
    assert taken.run.name == "one" and rows(store, "runs", "run") == [("one",)]
    assert "older: another copy of it was adopted just now" in str(*errors)
