import json
import math
import shutil
import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.platform.exchange.make_data import DATA
from tests.platform.exchange.recorded import raise_error

from jestlab.platform.errors import UserError
from jestlab.platform.exchange import read_mlflow as mlflow
from jestlab.platform.exchange.source_run import MetricLog, SourceRun

(ONE,) = (file.parents[1] for file in DATA.glob("mlruns/*/*/params/lr"))


def check(runs: list[SourceRun], experiment: str) -> None:
    """Check the runs that make_data.py logs."""
    one, two = sorted(runs, key=lambda run: run.name)
    assert (one.name, one.group, one.state, one.notes) == ("one", "sweep", "COMPLETED", "Some notes.")
    assert one.origin.startswith(f"mlflow:{experiment}/") and len(one.origin.partition("/")[2]) == 32
    assert one.tags == ("team=vision",)
    assert one.config == {
        "lr": 0.1, "model": {"width": 64, "layers": [1, 2]}, "flip": True, "warmup": None,
        "optimizer": "adam",
        "optimizer.beta": "0.90",  # nested it would clash; written again it would be 0.9
    }  # fmt: skip
    assert [*one.metrics["loss"]] == [0, 1, 2, 3]
    losses = [*one.metrics["loss"].values()]
    assert losses[0] == 1 and math.isnan(losses[1]) and losses[2:] == [math.inf, 0.125]
    assert [*one.metrics["eval/top1"]] == [0, 10, 20, 30]
    assert one.began is not None and one.ended is not None and one.seconds is not None
    assert abs((one.ended - one.began) - timedelta(seconds=one.seconds)) < timedelta(milliseconds=1)
    assert 2020 < one.began.year < 2100
    assert (two.name, two.state, two.config, two.tags) == ("two", "CANCELLED", {}, ())
    assert [*two.metrics["loss"].values()] == [3]


def test_file_store():
    for folder in (DATA, DATA / "mlruns", ONE.parent):
        check(list(mlflow.read(folder, raise_error)), ONE.parent.name)
    assert [run.name for run in mlflow.read(ONE, raise_error)] == ["one"]


def test_database(mlflow_database):
    before = mlflow_database.read_bytes()
    check(list(mlflow.read(mlflow_database, raise_error)), "1")
    assert mlflow_database.read_bytes() == before
    mlflow_database.rename(mlflow_database.with_name("mlflow.db"))
    check(list(mlflow.read(mlflow_database.parent, raise_error)), "1")


@pytest.fixture
def store(tmp_path):
    return shutil.copytree(DATA / "mlruns", tmp_path / "mlruns")


def test_ignores_runs_of_deleted_experiments(store):
    meta = store / ONE.parent.name / "meta.yaml"
    meta.write_text(meta.read_text().replace("lifecycle_stage: active", "lifecycle_stage: deleted"))
    assert list(mlflow.read(store, raise_error)) == []


def test_ignores_a_last_line_that_was_cut_off(store):
    with (store / ONE.parent.name / ONE.name / "metrics" / "loss").open("a") as file:
        file.write("1895850319060 0.5 4\n1895850319060 0.5 1")
    (run,) = (run for run in mlflow.read(store, raise_error) if run.name == "one")
    assert (
        [*run.metrics["loss"]] == [0, 1, 2, 3, 4]
        and run.metrics["loss"][4] == 0.5
        and run.metrics["loss"][1] != 0.5
    )


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        *(
            ("metrics/loss", f"1 1 1\n{line}\n1 1 2\n", "loss, line 2")
            for line in ("1700000000000", "now 1.0.0 0", "1 1 1.5", "1 1 99999999999999999999", "1" * 5000)
        ),
        ("meta.yaml", "a: [", "not valid YAML"),
        ("meta.yaml", "- 1", "isn't a mapping"),
        ("meta.yaml", "!!python/object/apply:os.system ['touch x']", "not valid YAML"),
        ("meta.yaml", "a: " + "[" * 5000, "can't be read"),
        ("meta.yaml", "a: " + "1" * (1 << 20), "larger than 1 MiB"),
    ],
)
def test_reports_a_damaged_run_and_reads_the_others(store, name, text, match):
    folder = store / ONE.parent.name / ONE.name
    (folder / name).write_text(text)
    errors: list[UserError] = []
    assert [run.name for run in mlflow.read(store, errors.append)] == ["two"]
    (message,) = map(str, errors)
    assert str(folder) in message and match in message and "\n" not in message
    with pytest.raises(UserError):
        list(mlflow.read(store, raise_error))


def test_ignores_strange_values_in_metadata(store):
    meta = store / ONE.parent.name / ONE.name / "meta.yaml"
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 8)
    )
    meta.write_text(
        f"{bomb}run_id: ../../x\nrun_name: *a7\nstatus: [1]\nstart_time: {10**400}\nend_time: x\n"
    )
    (run,) = (run for run in mlflow.read(store, raise_error) if run.name != "two")
    assert (run.name, run.state, run.began, run.ended, run.seconds) == ("one", "FAILED", None, None, None)
    assert run.origin == f"mlflow:{ONE.parent.name}/{ONE.name}"


def test_rejects_other_databases(mlflow_database):
    whole = mlflow_database.read_bytes()
    for sql, match in (
        ("DROP TABLE params", "no table params"),
        ("ALTER TABLE metrics RENAME COLUMN is_nan TO other", "mlflow db upgrade"),
        ("ALTER TABLE tags RENAME TO t; CREATE VIEW tags AS SELECT * FROM t", "no table tags"),
    ):
        mlflow_database.write_bytes(whole)
        with closing(sqlite3.connect(mlflow_database)) as connection:
            connection.executescript(sql)
        with pytest.raises(UserError, match=match) as error:
            list(mlflow.read(mlflow_database, raise_error))
        assert "\n" not in str(error.value)


def test_strange_values_in_a_database(mlflow_database):
    with closing(sqlite3.connect(mlflow_database)) as connection, connection:
        connection.execute("UPDATE metrics SET value = 'much' WHERE key = 'eval/top1' AND step = 10")
    left_out = {run.name: {**run.left_out} for run in mlflow.read(mlflow_database, raise_error)}
    assert left_out["one"]["values that are not numbers"] == 1
    with closing(sqlite3.connect(mlflow_database)) as connection, connection:
        connection.execute("UPDATE params SET value = printf('%.*c', 20000000, 'x') WHERE key = 'lr'")
    errors: list[UserError] = []
    assert [run.name for run in mlflow.read(mlflow_database, errors.append)] == ["two"]
    assert len(errors) == 1 and "string or blob too big" in str(errors[0])


def test_the_value_with_the_latest_time_counts(mlflow_database):
    with closing(sqlite3.connect(mlflow_database)) as connection, connection:
        connection.execute("DELETE FROM metrics")
        for time, step in ((5, 2), (4, 1), (2, 2), (1, 1)):
            columns = "(run_uuid, key, timestamp, step, value, is_nan)"
            chosen = "SELECT run_uuid, 'loss', ?, ?, ?, 0 FROM runs WHERE name = 'one'"
            connection.execute(f"INSERT INTO metrics {columns} {chosen}", (time, step, time))
    run = next(each for each in mlflow.read(mlflow_database, raise_error) if each.name == "one")
    assert run.metrics == {"loss": {1: 4, 2: 5}} and run.left_out == {MetricLog.REPLACED: 2}


def test_parameters_become_values_or_stay_text():
    for text, value in (
        ("1", 1), ("-0.5", -0.5), ("1e-05", 1e-05), ("True", True), ("None", None), ('["a", 1]', ["a", 1]),
        ('{"a":1}', {"a": 1}), ("[1,2]", [1, 2]),
    ):  # fmt: skip
        assert mlflow.parse_parameter(text) == value
        assert type(mlflow.parse_parameter(text)) is type(value)
    texts = [
        "", "01", "1.50", "1e3", "true", "null", "nan", "NaN", "Infinity", "[NaN]", "['a']", '"a"',
        "[" * 9999, "1" * 9999,
    ]  # fmt: skip
    assert [mlflow.parse_parameter(text) for text in texts] == texts


@given(st.text())
def test_a_parameter_is_never_another_text(text):
    back = mlflow.parse_parameter(text)
    assert back == text or text in (str(back), json.dumps(back), json.dumps(back, separators=(",", ":")))
