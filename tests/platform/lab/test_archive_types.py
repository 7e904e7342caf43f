"""`jestlab import` of archives whose rows hold what no store can hold: one short line, nothing imported."""

from __future__ import annotations

import json

import plans_support as plans
import pytest
import stores_support as stores
from archives_support import members, put, rewrite
from sqlalchemy import insert

from jestlab.analysis import query
from jestlab.platform.errors import UserError
from jestlab.platform.lab import exporting, merging
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import tables
from jestlab.platform.store.annotations import Subject, add_note, add_tags
from jestlab.platform.store.store import Store

DEEP = '{"a":' * 900 + "1" + "}" * 900


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An archive with a row in each table but `published`, whose rows are checked as CSV files are."""
    folder = tmp_path_factory.mktemp("types")
    lab = Lab.find(folder / "lab")
    store = Store.open(lab.store_url)
    reference, joint, uniform = plans.reference_and_two().runs
    store.record(plans.plan(reference, joint, uniform))
    stores.attempt(store, reference, scores={"toy/score": 0.5}, loss=(2.0, 1.0), environment="{}")
    with store.writing() as connection:
        its_run = {"run_id": stores.run_id(store, reference)}
        budget = {"chip": "v5e", "chips": 4, "chip_hours": 0.5}
        connection.execute(insert(tables.Budget).values(**its_run, **budget))
        artifact = {"name": "weights", "sha256": "0" * 64, "size": 1, "uri": "runs/x"}
        connection.execute(insert(tables.Artifact).values(**its_run, **artifact))
    add_note(store, Subject(experiment="toy"), "done", "Ada")
    add_tags(store, Subject(experiment="toy"), ["keep"])
    exporting.write(lab, store, folder / "lab.tar.gz")
    return (folder / "lab.tar.gz").read_bytes()


@pytest.fixture
def victim(tmp_path, whole):
    (tmp_path / "bad.tar.gz").write_bytes(whole)
    lab = Lab.find(tmp_path / "lab")
    Store.open(lab.store_url)
    return lab, tmp_path / "bad.tar.gz"


def refused(victim, match=""):
    lab, path = victim
    with pytest.raises(UserError, match=match) as error:
        merging.merge(lab, Store.open(lab.store_url), path)
    said = str(error.value)
    assert "\n" not in said and len(said) < 500, said[:2_000]
    assert query.select(lab.store_url, "runs").rows == []


@pytest.mark.parametrize(
    "change, match",
    [
        (put("run", seed=2**70), "damaged: 1180591620717411303424 for run.seed"),
        (put("run", seed=10**400), "damaged: 10.* for run.seed"),
        (put("run", failures=2**31), "damaged: 2147483648 for run.failures"),
        (put("run", step=True), "damaged: True for run.step"),
        (put("run", config="null"), "damaged: .* for run.config"),
        (put("run", config="[1]"), "damaged: .* for run.config"),
        (put("run", config="[" * 100_000), "damaged: .* for run.config"),
        (put("run", config=DEEP), "damaged: .* for run.config"),
        (put("run", config={"a": 1}), "damaged: a mapping for run.config"),
        (put("experiment", spec="null"), "damaged: .* for experiment.spec"),
        (put("experiment", spec="[]"), "damaged: .* for experiment.spec"),
        (put("experiment", spec='{"name": "toy"}'), "the spec of toy: runs: is missing"),
        (put("experiment", spec='{"name": "toy", "runs": {"a": {}}, "claims": 5}'), "spec of toy: claims"),
        (put("experiment", spec='{"name": "toy", "studies": {"a": 5}}'), "the spec of toy: studies.a"),
        (put("experiment", spec='{"name": "mine", "runs": {"a": {}}}'), "the spec of toy is that of 'mine'"),
        (put("experiment", question="\ud800"), "damaged: .* for experiment.question"),
        (put("experiment", updated_at="2026-01-01T00:00:00+05:00"), "for experiment.updated_at"),
        (put("experiment", updated_at="9999-12-31T23:59:59"), "for experiment.updated_at"),
        (put("member", label="x" * 20_000), "damaged: .* for member.label"),
        (put("member", point="7"), "damaged: '7' for member.point"),
        (put("member", experiment=[]), "a row of member without what it belongs to"),
        (put("need", needs={}), "a row of need without what it belongs to"),
        (put("attempt", versions="[]"), "damaged: .* for attempt.versions"),
        (put("attempt", run=[]), "a row of attempt without a run"),
        (put("evaluation", value={}), "damaged: a mapping for evaluation.value"),
        (put("evaluation", value="1e5"), "damaged: '1e5' for evaluation.value"),
        (put("evaluation", value=10**400), "damaged: 10.* for evaluation.value"),
        (put("evaluation", attempt=[]), r"no attempt \[\]"),
        (put("metric", steps=None), "damaged: a curve"),
        (put("metric", steps=[1, 2**63]), "for metric.step"),
        (put("metric", steps=[1, "2"]), "for metric.step"),
        (put("metric", values=[1.0, []]), "a list for metric.value"),
        (put("metric", name=5), "damaged: 5 for metric_name.name"),
        (put("budget", chips=2**64), "for budget.chips"),
        (put("note", text=None), "for note.text"),
        (put("tag", experiment=7), "a row of tag without what it belongs to"),
    ],
)  # fmt: skip
def test_a_value_that_its_column_cannot_have(victim, change, match):
    rewrite(victim[1], change)
    refused(victim, match)


ODD: list[object] = [None, True, -1, 2**70, 1.5, float("nan"), "", "x", "\ud800", "[" * 100_000, [], {"a": 1}]


def test_any_value_in_any_place_is_taken_or_refused(victim, whole):
    """Each column of each table by one odd value after another: no traceback, no long line."""
    lab, path = victim
    places = [
        (member.name.removeprefix("tables/").removesuffix(".jsonl"), column)
        for member, content in members(path)
        if member.name.startswith("tables/") and content
        for column in json.loads(content.splitlines()[0])
    ]
    assert len(places) > 80
    store = Store.open(lab.store_url)
    for number, (table, column) in enumerate(places):
        path.write_bytes(whole)
        rewrite(path, put(table, **{column: ODD[number % len(ODD)]}))
        try:
            merging.merge(lab, store, path)
        except UserError as error:
            assert "\n" not in str(error) and len(str(error)) < 500, (table, column)


def test_a_row_that_lacks_a_column(victim):
    def lacking(contents):
        lines = contents["tables/attempt.jsonl"].splitlines()
        row = json.loads(lines[0])
        del row["number"]
        contents["tables/attempt.jsonl"] = json.dumps(row).encode() + b"\n"

    rewrite(victim[1], lacking)
    refused(victim, "a row of attempt without number")


def test_a_reason_of_any_length_is_cut_off(victim):
    lab, path = victim
    rewrite(path, put("attempt", reason="x" * (1 << 20)))
    assert merging.merge(lab, Store.open(lab.store_url), path).new == 3
    [[reason]] = query.select(lab.store_url, "attempts", columns=["reason"]).rows
    assert len(reason) == 10_000


def test_an_archive_as_it_was_written(victim):
    lab, path = victim
    assert merging.merge(lab, Store.open(lab.store_url), path).new == 3
