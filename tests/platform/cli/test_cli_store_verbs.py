"""`status`, `logs` and `query`, over a small store."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import plans_support as plans
import pytest
from click.testing import CliRunner

from jestlab.platform.cli import logs as logs_verb
from jestlab.platform.cli import query as query_verb
from jestlab.platform.cli import status as status_verb
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.store import Store
from jestlab.platform.store.views import VIEWS

RUNS = [plans.run("uniform", seed=0), plans.run("uniform", seed=1), plans.run("joint", point={"ratio": 0.8})]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A completed run, a failed one and a pending one."""
    lab = Lab.find(tmp_path / "lab")
    store = Store.open(lab.store_url)
    store.record(plans.plan(*RUNS))
    for run in RUNS[:2]:
        (lab.root / run.directory).mkdir(parents=True)
        log = lab.root / run.directory / "log.txt"
        log.write_text(f"--- attempt 1\nseed {run.seed}\nlast line\n")
        attempt = plans.begun(store, run)
        attempt.progress(5 + run.seed, 10)
        if run.seed:
            attempt.fail("ValueError: | no")
        else:
            attempt.complete()
    return lab


def called(command, lab: Lab, *arguments: str) -> str:
    result = CliRunner().invoke(
        command, [*arguments, "--root", str(lab.root)], catch_exceptions=False, standalone_mode=False
    )
    return result.output


def test_status_of_all_and_of_one(lab):
    listed = called(status_verb.status_command, lab).splitlines()
    assert listed[0].split() == [
        "experiment",
        "scale",
        "runs",
        "PENDING",
        "COMPLETED",
        "FAILED",
        "launched",
        "(UTC)",
    ]
    assert listed[1].split()[:6] == ["toy", "smoke", "3", "1", "1", "1"]
    runs = called(status_verb.status_command, lab, "toy").splitlines()
    assert runs[1].split() == ["uniform", "0", "COMPLETED", "5/10", "1"]
    assert runs[2].split() == ["uniform", "1", "FAILED", "6/10", "1", "ValueError:", "|", "no"]
    assert runs[3].split()[:5] == ["joint", "ratio=0.8", "0", "PENDING", "0"]
    assert runs[3].endswith("waits for a slot")


def test_status_as_json(lab):
    [experiment] = json.loads(called(status_verb.status_command, lab, "--json"))
    assert experiment["counts"] == {"PENDING": 1, "COMPLETED": 1, "FAILED": 1}
    runs = json.loads(called(status_verb.status_command, lab, "toy", "--json"))
    assert [run["state"] for run in runs] == ["COMPLETED", "FAILED", "PENDING"]
    assert runs[1]["reason"] == "ValueError: | no"
    assert runs[2]["started_at"] is None


def test_status_without_a_store(tmp_path):
    nowhere = Lab.find(tmp_path / "nowhere")
    assert "no experiments yet" in called(status_verb.status_command, nowhere)
    assert called(status_verb.status_command, nowhere, "--json") == "[]\n"
    with pytest.raises(UserError, match="launch a study first"):
        called(status_verb.status_command, nowhere, "toy")
    assert not nowhere.root.exists()


def test_the_log_of_the_run_that_is_meant(lab):
    assert called(logs_verb.logs_command, lab, "toy/uniform/1").splitlines()[1] == "seed 1"
    assert called(logs_verb.logs_command, lab, "toy/uniform/1", "-n", "1") == "last line\n"
    assert "seed 0" in called(logs_verb.logs_command, lab, RUNS[0].fingerprint[:6])
    assert called(logs_verb.logs_command, lab, "toy/uniform/0", "-f").endswith("last line\n")
    shown = json.loads(called(logs_verb.logs_command, lab, "toy/uniform/0", "-n", "1", "--json"))
    assert (shown["state"], shown["text"]) == ("COMPLETED", "last line\n")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["toi/uniform"], "did you mean 'toy'"),
        (["toy/unifrom"], "did you mean 'uniform'"),
        (["toy/uniform"], "stands for 2 runs: choose one: toy/uniform/0, toy/uniform/1"),
        (["toy/uniform/7"], "toy/uniform has no seed 7: 0, 1"),
        (["toy/joint"], "has no log yet: it is PENDING"),
    ],
)
def test_a_log_that_is_not_there_is_explained(lab, arguments, message):
    with pytest.raises(UserError, match=message):
        called(logs_verb.logs_command, lab, *arguments)


def test_a_name_that_several_labels_share(lab):
    runs = [plans.run("joint", config={"r": r}, point={"ratio": r}) for r in (0.5, 0.8)]
    Store.open(lab.store_url).record(plans.plan(*runs, name="sweep"))
    with pytest.raises(UserError, match=r"stands for 2 runs: choose one: 'sweep/joint ratio=0\.5/0'"):
        called(logs_verb.logs_command, lab, "sweep/joint")
    with pytest.raises(UserError, match=r"sweep/joint ratio=0\.8/0 has no log yet"):
        called(logs_verb.logs_command, lab, "sweep/joint ratio=0.8")


SQL = "SELECT label, seed, state, reason FROM v_runs ORDER BY position"


def test_a_query_in_every_format(lab):
    table = called(query_verb.query_command, lab, SQL)
    assert "| uniform         | 1      | FAILED    | ValueError: \\| no |" in table
    rows = list(csv.reader(io.StringIO(called(query_verb.query_command, lab, SQL, "--format", "csv"))))
    assert rows[:3] == [
        ["label", "seed", "state", "reason"],
        ["uniform", "0", "COMPLETED", ""],
        ["uniform", "1", "FAILED", "ValueError: | no"],
    ]
    records = json.loads(called(query_verb.query_command, lab, SQL, "--json"))
    assert records[0] == {"label": "uniform", "seed": 0, "state": "COMPLETED", "reason": None}


def test_numbers_that_json_does_not_have(lab):
    sql = "SELECT 1e999 AS infinite, x'00ff' AS bytes, 0.1 + 0.2 AS exact"
    assert json.loads(called(query_verb.query_command, lab, sql, "--json")) == [
        {"infinite": "inf", "bytes": "00ff", "exact": 0.1 + 0.2}
    ]


def test_without_sql_the_views_are_listed(tmp_path):
    listed = json.loads(called(query_verb.query_command, Lab.find(tmp_path / "nowhere"), "--json"))
    assert {row["view"] for row in listed} == set(VIEWS)
    assert all(row["meaning"] for row in listed)


@pytest.mark.parametrize(
    "sql, message",
    [
        ("SELEC 1", "query: near \"SELEC\": syntax error"),
        ("SELECT lable FROM v_runs", "query: no such column: lable"),
        ("SELECT 1; DELETE FROM run", "query: You can only execute one statement at a time"),
        ("DELETE FROM run", "query: queries are read-only"),
        ("PRAGMA user_version = 3", "query: queries are read-only"),
        ("VACUUM", "query: queries are read-only"),
        ("", "query: this SQL returns no rows"),
    ],
)  # fmt: skip
def test_a_query_that_cannot_be_answered_is_one_line(lab, sql, message):
    with pytest.raises((UserError, ValueError), match=message) as error:
        called(query_verb.query_command, lab, sql)
    assert "\n" not in str(error.value)
    assert len(Store.open(lab.store_url).runs("toy")) == 3
