"""Adopted runs: their labels, seeds, scores, and costs, and how the store holds them next to other runs."""

import json
import math
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any

import plans_support as plans
import pytest

from jestlab.analysis import query
from jestlab.analysis.provenance import warnings
from jestlab.platform.errors import UserError
from jestlab.platform.exchange import adopt_store
from jestlab.platform.exchange.adopt import Adoption
from jestlab.platform.exchange.adopt_store import Change, Placed
from jestlab.platform.exchange.source_run import AdoptOptions, SourceRun
from jestlab.platform.planning.identity import is_authentic, origin_fingerprint
from jestlab.platform.store.annotations import Subject, add_note, notes, retract, retracted, tags
from jestlab.platform.store.records import ADOPTED, RunState
from jestlab.platform.store.schema import check
from jestlab.platform.store.store import Store

ORIGIN = "csv:t.csv#a"
FINGERPRINT = origin_fingerprint(ORIGIN)


def curve(steps: Iterable[int], values: Iterable[float]) -> dict[int, float]:
    return dict(zip(steps, values, strict=True))


def source(origin: str = ORIGIN, **parts: Any) -> SourceRun:
    whole: dict[str, Any] = {
        "name": "one",
        "config": {"lr": 0.5, "model": {"width": 64}},
        "metrics": {
            "loss": curve(range(5), [3, 2, math.nan, math.inf, 1.0]),
            "eval/top1": curve([2, 4], [0.25, 0.5]),
            "seen": curve([4], [400]),
        },
        "state": "COMPLETED",
        "began": datetime(2025, 1, 1, 10),
        "ended": datetime(2025, 1, 1, 11),
        "seconds": 2.5,
        "host": "far",
        "device": "8 × TPU",
        "git_commit": "abc",
        "tags": ("a tag, with/more",),
        "notes": "Two\nlines.",
    }
    return SourceRun(origin, **whole | parts)


@cache
def empty_store() -> Store:
    return Store.open(f"sqlite:///{tempfile.mkdtemp()}/empty.db")


def adoption(
    store: Store | None = None, study: str = "old", path: str = "/data/t.csv", **rules: Any
) -> Adoption:
    """Without a store, it is a dry run with an empty store."""
    rules = rules if store else {**rules, "dry_run": True}
    return Adoption(store or empty_store(), study, "csv", path, AdoptOptions(**rules), "Ada")


def placed(run: SourceRun, **rules: Any) -> Placed:
    return adoption(**rules).adopt(run)[0]


def take(store: Store, run: SourceRun, *where: str, **rules: Any) -> Change | None:
    wanted: dict[str, Any] = {"score": ("eval/*",), "examples": "seen", "flops": "step*1e9"}
    return adoption(store, *where, **wanted | rules).adopt(run)[1]


def rows(store: Store, view: str, columns: str) -> list[tuple[Any, ...]]:
    frame = query.frame(str(store.engine.url.render_as_string(False)), view=view, columns=columns.split())
    return [tuple(None if value != value else value for value in row) for row in frame.astype(object).values]


# ---- labels and seeds


def test_labels_are_marked_with_their_source():
    run = placed(source())
    assert (run.name, run.label, run.seed) == ("one", "one (csv)", 0)
    assert run.run.config == {"lr": 0.5, "model": {"width": 64}, "adopted_from": ORIGIN}
    assert is_authentic(run.fingerprint, ADOPTED, run.run.config, {})
    assert not is_authentic(run.fingerprint, ADOPTED, {**run.run.config, "adopted_from": "other"}, {})


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("old", "old"),
        ("{group} w={model.width}", "pilot w=64"),
        ("{name} {lr} {team}", "one 0.5 a=b"),
        ("a\n\tb \x1b[31m", "a b [31m"),
    ],
)
def test_labels_are_written_by_a_template(template, name):
    assert placed(source(group="pilot", tags=("plain", "team=a=b")), label=template).name == name


def test_rejects_labels_with_unknown_keys_and_empty_ones():
    with pytest.raises(UserError, match=r"one: no 'widht' for its label: did you mean 'width'\?"):
        placed(source(config={"width": 3}), label="{widht}")
    for name, match in (("\x00", "its label is empty"), ("x" * 501, "its label is longer than 500")):
        with pytest.raises(UserError, match=match):
            placed(source(name=name))


def test_seeds_are_those_of_the_config_or_the_first_free_ones():
    group = adoption(label="all")
    configs: list[dict[str, Any]] = [{}, {"seed": 3}, {"seed": 3}, {"seed": -1}, {"seed": "x"}, {"seed": 0.5}]
    runs = [group.adopt(source(f"csv:t#{n}", config=config))[0] for n, config in enumerate(configs)]
    assert [run.seed for run in runs] == [0, 3, 1, 2, 4, 5]
    assert "another run of the label" in next(iter(runs[2].run.left_out))
    for run in runs[3:]:
        assert "other than whole numbers" in next(iter(run.run.left_out))
    assert placed(source(tags=("jestlab.seed=7",)), seed="jestlab.seed").seed == 7
    for parts in ({"config": {"seed": 10**400}}, {"tags": ("seed=" + "1" * 5_000,)}):
        assert placed(source(**parts)).seed == 0


def test_runs_keep_their_seeds(sqlite_url):
    store = Store.open(sqlite_url)
    assert origin_fingerprint("wandb:lab/jest/a").startswith("71d3b1312cbeb82c")  # as in earlier versions
    adoption(store).adopt(source(config={"seed": 7}))
    adoption(store).adopt(source("b", config={"seed": 0}))
    assert adoption(store).adopt(source())[0].seed == 7
    assert adoption(store).adopt(source(config={"seed": 0}))[0].seed == 7  # 0 is another's
    assert adoption(store).adopt(source("new"))[0].seed == 1


def test_two_adoptions_at_once_choose_different_seeds(store):
    one, two = adoption(store, label="all"), adoption(store, label="all")
    for name in "abc":
        one.adopt(source(f"csv:one#{name}")), two.adopt(source(f"csv:two#{name}"))
    assert sorted(rows(store, "runs", "label seed")) == [("all (csv)", seed) for seed in range(6)]


# ---- scores and costs


def test_scores_are_the_requested_ones():
    names = {"val/top1": 0.5, "val.top5": math.inf, "acc": 0.75, "/x": 1, "e/x": 2, "e.x": 3}
    run = source(metrics={name: curve([5], [value]) for name, value in names.items()})
    for texts, expected in (
        (("v*",), {"val/top1": 0.5, "val/top5": math.inf}),
        (("v*1", "imagenet/top1=acc"), {"val/top1": 0.5, "imagenet/top1": 0.75}),
        (("a/b=val.top5",), {"a/b": math.inf}),
        (("other/*", "a/b=missing", "a*", "/*"), {}),
    ):
        assert {score.name: score.value for score in placed(run, score=texts).scores} == expected
    for text, match in (
        ("acc", "acc has no dataset prefix"),
        ("e*", "e/x and e.x have the same name"),
        *((text, "expected DATASET/METRIC=NAME") for text in ("a=b", "/a=b", "a/b=")),
    ):
        with pytest.raises(UserError, match=match):
            placed(run, score=(text,))


def test_scores_have_the_costs_of_training():
    metrics = {"eval/top1": curve([5, 10, 20], [0.1, 0.2, 0.3]), "seen": curve([6, 20], [600, math.nan])}
    run, wanted = source(metrics=metrics, seconds=12.5), ("eval/*",)
    scores = placed(run, score=wanted, examples="seen", flops="step * 1e9").scores
    assert [score.examples_seen for score in scores] == [None, 600, None]
    assert [score.flops_total for score in scores] == [5e9, 1e10, 2e10]
    assert [score.seconds for score in scores] == [None, None, 12.5]
    timed = placed(run, score=wanted, seconds="step*model.width").scores
    assert [score.seconds for score in timed] == [320, 640, 1280]
    for effort in ("step*1e300", "step*-1"):
        assert placed(run, score=wanted, examples=effort).scores[0].examples_seen is None


@pytest.mark.parametrize(
    ("effort", "match"),
    [
        ("step*nan", "no number 'nan'"),
        ("los", r"one: no metric 'los': did you mean 'loss'\?"),
        ("step*batch", "its config has no number 'batch'"),
    ],
)
def test_rejects_unknown_costs(effort, match):
    with pytest.raises(UserError, match=match):
        placed(source(), score=("*/*",), flops=effort)


# ---- what stores can hold


def test_drops_values_that_stores_cannot_hold():
    metrics = {name: curve([0], [1]) for name in ("", "a\0b", "a\ud800", "é" * 501, "ok")}
    metrics |= {"part": curve([-5, 0], [1, 2]), "gone": curve([-1], [1])}
    config = {"x": math.nan, "y": [math.inf, {"k": "v\ud800"}]}
    run = placed(
        source(metrics=metrics, config=config, notes="\0 ", tags=("t\0", "jestlab.seed=3"), host="h\0")
    ).run
    assert list(run.metrics) == ["ok", "part"] and sorted(run.left_out.values()) == [2, 4]
    assert run.config["x"] == "NaN" and run.config["y"] == ["Infinity", {"k": "v?"}]
    assert (run.notes, run.tags, run.host) == ("", ("t",), "h")
    assert placed(source("csv:t.csv#\ud800\0")).run.origin == "csv:t.csv#?"
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    errors: list[UserError] = []
    assert not [*adoption().adopt_all([source(config={"deep": deep})], errors.append)]
    assert len(errors) == 1 and "\n" not in str(errors[0])


def test_a_run_of_which_nothing_can_be_stored_is_refused():
    with pytest.raises(UserError, match="one: it has only points at negative steps"):
        placed(source(metrics={"loss": curve([-2, -1], [1, 2])}))
    with pytest.raises(UserError, match="one: it has only cells of a: nothing to adopt"):
        placed(source(metrics={}, left_out={"cells of a": 2}))
    states = ("COMPLETED", "FAILED", "CANCELLED", "RUNNING")
    placed_states = [placed(source(metrics={}, state=state)).state for state in states]
    assert placed_states == [*states[:3], RunState.CANCELLED]


# ---- in the store


@pytest.mark.both_databases
def test_adopts_all_parts_of_a_run(store):
    assert take(store, source()) == "new"
    directory = f"runs/adopted-{FINGERPRINT[:16]}"
    assert rows(store, "runs", "experiment run label seed program state step directory") == [
        ("old", "one", "one (csv)", 0, "adopted", "COMPLETED", 4, directory)
    ]
    assert rows(store, "metrics", "name step value")[2:7] == [
        ("loss", 0, 3), ("loss", 1, 2), ("loss", 2, None), ("loss", 3, float("inf")), ("loss", 4, 1),
    ]  # fmt: skip
    assert rows(store, "evaluations", "name step value examples_seen flops_total seconds final") == [
        ("eval/top1", 2, 0.25, None, 2e9, None, 0),
        ("eval/top1", 4, 0.5, 400, 4e9, 2.5, 1),
    ]
    assert rows(store, "costs", "actual_hours learner_flops total_flops actual_flops") == [(1, 4e9, 4e9, 4e9)]
    assert rows(store, "attempts", "executor handle host device code_commit") == [
        ("adopted", "/data/t.csv", "far", "8 × TPU", "abc")
    ]
    assert not rows(store, "goodput", "run")
    subject = Subject(fingerprint=FINGERPRINT)
    assert list(tags(store, subject)) == ["a-tag-with-more"]
    assert [(note.text, note.author) for note in notes(store, subject)] == [("Two\nlines.", "Ada")]


def test_adopting_a_run_again_replaces_it_if_it_has_changed(store):
    take(store, source())
    add_note(store, Subject(fingerprint=FINGERPRINT), "Mine.", "Bea")
    retract(store, FINGERPRINT, "wrong", "Ada")
    views = ("runs", "attempts", "metrics", "evaluations", "notes")
    before = [rows(store, view, "*") for view in views]
    assert take(store, source()) == "same" and len(retracted(store)) == 1
    assert [rows(store, view, "*") for view in views] == before
    shorter = source(metrics={"seen": curve([1], [7])}, tags=("b",), notes="New.")
    assert take(store, shorter) == "changed" and not retracted(store)
    assert rows(store, "metrics", "name step value") == [("seen", 1, 7)]
    assert not rows(store, "evaluations", "name") and rows(store, "costs", "learner_flops") == [(None,)]
    subject = Subject(fingerprint=FINGERPRINT)
    assert [note.text for note in notes(store, subject)] == ["Two\nlines.", "Mine.", "New."]
    assert take(store, shorter, label="new") == "changed"
    assert rows(store, "runs", "run label") == [("new", "new (csv)")]


def test_rejects_a_different_run_of_the_same_origin(store):
    take(store, source())
    other = source(config={"lr": 1})
    with pytest.raises(UserError, match=r"was adopted from /data/t.csv, .* --source NAME"):
        take(store, other, "old", "/elsewhere/t.csv")
    assert json.loads(rows(store, "runs", "config")[0][0])["lr"] == 0.5
    assert take(store, source(), "old", "/elsewhere/t.csv") == "same"
    assert take(store, other, "old", "/elsewhere/t.csv", source="t.csv") == "changed"
    copies = [source("mlflow:1/a", name=name) for name in ("one", "older")]
    errors: list[UserError] = []
    ((run, _),) = adoption(store).adopt_all(copies, errors.append)
    assert run.name == "one" and "older: another copy of this run was just adopted" in str(*errors)


def test_the_spec_of_a_study_lists_its_adopted_runs(store):
    take(store, source(), goal="max")
    take(store, source("csv:t.csv#b", name="other"), goal="min")
    assert store.spec("old") == {
        "name": "old", "adopted": ["one", "other"], "metrics": {"eval/top1": {"goal": "max"}},
    }  # fmt: skip
    named = source("y", metrics=dict.fromkeys(("eval/top1", "eval/top5"), curve([1], [0.5])))
    assert [score.name for score in adoption(store).adopt(named)[0].scores] == ["eval/top1"]


def test_adopted_runs_come_after_planned_ones_and_keep_their_names(store):
    plan = plans.plan(plans.run("joint"), plans.run("uniform", config={"steps": 2}))
    plans.record(store, plan)
    spec = store.spec("toy")
    take(store, source(), "toy", goal="max")
    assert store.spec("toy") == spec
    plans.record(store, plans.plan(*plan.runs, plans.run("third", config={"steps": 3})))
    assert rows(store, "runs", "run position") == [("joint", 0), ("uniform", 1), ("third", 2), ("one", 3)]
    assert len(store.members("toy")) == 3
    plans.record(store, plans.plan(plan.runs[0]))
    with pytest.raises(UserError, match="'one' is the name of an adopted run"):
        plans.record(store, plans.plan(plans.run("one")))
    with pytest.raises(UserError, match=r"a run 'joint' that isn't adopted: .*--label"):
        take(store, source("csv:b"), "toy", label="joint")
    part = {"name": "part", "runs": {"any": {}}}
    plans.record(store, plans.plan(plans.run("part/joint"), name="all", runs=None, studies={"part": part}))
    with pytest.raises(UserError, match="all is a union: adopt into one of its studies"):
        take(store, source(), "all")


@pytest.mark.both_databases
def test_a_label_and_a_seed_are_of_one_run_in_every_study(store):
    other = source("csv:u.csv#a")
    take(store, source(config={"seed": 0}))
    take(store, other, "second")
    assert take(store, replace(other, config={"seed": 5}), "second") == "changed"
    # Seed 0 is free in the second study, but the run is also in the first.
    assert take(store, source(config={"seed": 5}), "second") == "new"
    assert rows(store, "runs", "experiment seed") == [("old", 0), ("second", 5), ("second", 0)]


def test_adopting_is_all_or_nothing(store, monkeypatch, tmp_path):
    take(store, source())
    monkeypatch.setattr(adopt_store, "_add_member", lambda *_: 1 / 0)
    for run in (source(notes="changed", metrics={"seen": curve([0], [1])}), source("csv:t.csv#b")):
        with pytest.raises(ZeroDivisionError):
            take(store, run)
    assert len(rows(store, "runs", "run")) == 1 and len(rows(store, "metrics", "value")) == 8


@plans.ON_SQLITE
def test_a_store_with_adopted_runs_has_no_faults(store, tmp_path):
    take(store, source())
    assert check(str(store.engine.url), tmp_path) == []
    assert warnings.ADOPTED == ADOPTED
