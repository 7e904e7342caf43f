"""`jestlab query`: SQL and conditions, formats, files, and errors."""

import csv
import functools
import io
import json
import os
from typing import Any

import plans_support as plans
import pytest
import stores_support as stores
from click.testing import CliRunner
from pyarrow import parquet

from jestlab.platform.cli import cli
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.store import Store
from jestlab.platform.store.views import VIEWS

CONFIGS: dict[str, dict[str, Any]] = {
    "uniform": {"selection": {"rule": "uniform"}, "steps": 10},
    "joint": {"selection": {"rule": "joint", "chunks": 16}, "note": "a | b, c"},
}
RUNS = [plans.run(name, config=config, seed=seed) for name, config in CONFIGS.items() for seed in (0, 1)]
JOINT = [
    "--where", "selection.rule = 'joint' and seed < 1",
    "--columns", "label,seed,selection.chunks,config.note",
]  # fmt: skip


@pytest.fixture
def lab(tmp_path, store_url):
    lab = Lab.find(tmp_path / "lab", store_url)
    store = Store.open(lab.store_url)
    plans.record(store, plans.plan(*RUNS))
    for run in RUNS:
        stores.attempt(store, run, scores={"toy/score": 0.5 + run.seed / 4}, loss=(2.0, 1.0))
    return lab


def query(lab, *arguments):
    words = ["query", *arguments, "--root", str(lab.root), "--store", lab.store_url]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def json_of(lab, *arguments):
    return json.loads(query(lab, *arguments, "--json").output)


@pytest.mark.both_databases
def test_a_condition_in_every_format_and_sql(lab):
    row = {"label": "joint", "seed": 0, "selection.chunks": 16, "config.note": "a | b, c"}
    assert "| joint | 0 | 16 | a \\| b, c |" in " ".join(query(lab, *JOINT).output.split())
    rows = list(csv.reader(io.StringIO(query(lab, *JOINT, "--format", "csv").output)))
    assert rows == [[*row], [*map(str, row.values())]]
    assert json_of(lab, *JOINT) == [row]
    table = parquet.read_table(io.BytesIO(query(lab, *JOINT, "--format", "parquet").stdout_bytes))
    assert table.to_pylist() == [row]
    sql = "SELECT label, seed, NULL AS reason FROM v_runs WHERE label LIKE 'uni%' AND seed = 1"
    assert json_of(lab, sql) == [{"label": "uniform", "seed": 1, "reason": None}]
    words = ("--view", "evaluations", "--order-by", "-value,label", "--limit", "2", "--experiment", "toy")
    best = json_of(lab, *words, "--columns", "label,seed,value")
    assert [tuple(row.values()) for row in best] == [("joint", 1, 0.75), ("uniform", 1, 0.75)]
    attempts = ("--view", "attempts", "--order-by", "-label,seed", "--limit", "1", "--columns")
    first = {"label": "uniform", "started_at": "2026-11-20 12:00:00"}
    assert json_of(lab, *attempts, ",".join(first)) == [first]


def test_lists_the_views_without_arguments(tmp_path):
    listed = json_of(Lab.find(tmp_path / "nowhere"))
    assert {row["view"] for row in listed if row["meaning"]} == set(VIEWS)


@plans.ON_SQLITE
def test_the_name_of_a_file_decides_its_format(lab, tmp_path):
    umask = os.umask(0)
    os.umask(umask)
    for ending, count in (
        ("csv", lambda path: len(path.read_text().splitlines()) - 1),
        ("json", lambda path: len(json.loads(path.read_text()))),
        ("parquet", lambda path: parquet.read_table(path).num_rows),
    ):
        path = tmp_path / "out" / f"runs.{ending}"
        assert query(lab, "--view", "runs", "--output", str(path)).output == f"{path}\n"
        assert count(path) == 4
        assert oct(path.stat().st_mode & 0o777) == oct(0o666 & ~umask)
    assert len([*(tmp_path / "out").iterdir()]) == 3


def test_parquet_columns_of_several_types_and_of_none(tmp_path):
    lab = stores.empty_lab(tmp_path / "lab")
    configs: list[dict[str, Any]] = [{"x": 1}, {"x": "text"}, {"x": 2.5, "huge": 10**30}]
    runs = [plans.run("run", config={**c, "none": None}, seed=seed) for seed, c in enumerate(configs)]
    plans.record(Store.open(lab.store_url), plans.plan(*runs))

    def read(*words):
        return parquet.read_table(io.BytesIO(query(lab, *words, "--format", "parquet").stdout_bytes))

    assert read("--columns", "x,none,huge", "--order-by", "seed").to_pydict() == {
        "x": ["1", '"text"', "2.5"],
        "none": [None] * 3,
        "huge": [None, None, str(10**30)],
    }
    empty = read("--where", "seed = 9")
    assert (empty.num_rows, "label" in empty.column_names) == (0, True)


@plans.ON_SQLITE
def test_json_writes_infinity_and_bytes_as_text(lab):
    sql = "SELECT 1e999 AS infinite, x'00ff' AS bytes, 0.1 + 0.2 AS exact"
    assert json_of(lab, sql) == [{"infinite": "inf", "bytes": "00ff", "exact": 0.1 + 0.2}]


@pytest.mark.both_databases
def test_an_unknown_table_is_an_error_that_names_the_nearest_view(lab, jestlab):
    schema = "public" if lab.store_url.startswith("postgresql") else "main"
    for table in ("runs", f"{schema}.runs"):
        error = jestlab("query", "--store", lab.store_url, f"SELECT * FROM {table} LIMIT 2", code=1)
        assert error.endswith(": did you mean 'v_runs'?\n") and error.count("\n") == 1


@plans.ON_SQLITE
def test_errors_are_one_line(lab, jestlab, check_errors, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    cases = {
        "--where 'sed = 1'": "jestlab: where: character 1: no column or config key 'sed'",
        "'SELECT 1' --where 'seed = 1'": "2 expected either SQL, or --view",
        "--view metrics --where \"name = 'los'\"": "where: character 1: no name 'los': did you mean 'loss'?",
        "--where \"seed = 0 and label in ('Jiont')\"": "no label 'Jiont': did you mean 'joint'?",
        "--view runs --format parquet": "2 cannot print parquet to a terminal: give --output",
        "--view runs --output /proc/no/file.csv": "cannot write /proc/no/file.csv",
        "'DELETE FROM run'": "query: queries are read-only",
        "''": "query: this SQL returns no rows",
    }
    check_errors(functools.partial(jestlab, "query", "--store", lab.store_url), cases.items())
    assert json_of(lab, "--where", "state = 'PREEMPTED' or label = 'joint' and seed > 7") == []
    assert len(Store.open(lab.store_url).runs("toy")) == 4
