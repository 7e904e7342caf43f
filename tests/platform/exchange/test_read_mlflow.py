import json
import math
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.platform.exchange.make_data import DATA

from jestlab.platform.errors import UserError
from jestlab.platform.exchange import read_mlflow as mlflow
from jestlab.platform.exchange.source_run import FoundRun, Points

(ONE,) = (file.parents[1] for file in DATA.glob("mlruns/*/*/params/lr"))


def check(runs: list[FoundRun], experiment: str) -> None:
    """Check that what make_data.py logs is what is read."""
    one, two = sorted(runs, key=lambda run: run.name)
    assert (one.name, one.group, one.state, one.notes) == ("one", "sweep", "COMPLETED", "Some notes.")
    assert one.origin.startswith(f"mlflow:{experiment}/") and len(one.origin.partition("/")[2]) == 32
    assert one.tags == ("team=vision",)
    assert one.config == {
        "lr": 0.1,
        "model": {"width": 64, "layers": [1, 2]},
        "flip": True,
        "warmup": None,
        "optimizer": "adam",
        # Nested it would clash; written again it would be 0.9.
        "optimizer.beta": "0.90",
    }
    assert one.metrics["loss"].steps.tolist() == [0, 1, 2, 3]
    losses = one.metrics["loss"].values.tolist()
    assert losses[0] == 1 and math.isnan(losses[1]) and losses[2:] == [math.inf, 0.125]
    assert one.metrics["eval/top1"].steps.tolist() == [0, 10, 20, 30]
    assert one.began is not None and one.ended is not None and one.seconds is not None
    assert abs((one.ended - one.began) - timedelta(seconds=one.seconds)) < timedelta(milliseconds=1)
    assert 2020 < one.began.year < 2100
    assert (two.name, two.state, two.config, two.tags) == ("two", "CANCELLED", {}, ())
    assert two.metrics["loss"].values.tolist() == [3]


def test_file_store():
    for folder in (DATA, DATA / "mlruns", ONE.parent):
        check(list(mlflow.read(folder)), ONE.parent.name)
    assert [run.name for run in mlflow.read(ONE)] == ["one"]


def test_database(mlflow_database):
    before = mlflow_database.read_bytes()
    check(list(mlflow.read(mlflow_database)), "1")
    assert mlflow_database.read_bytes() == before
    mlflow_database.rename(mlflow_database.with_name("mlflow.db"))
    check(list(mlflow.read(mlflow_database.parent)), "1")


@pytest.fixture
def store(tmp_path):
    return shutil.copytree(DATA / "mlruns", tmp_path / "mlruns")


def test_ignores_runs_of_deleted_experiments(store):
    meta = store / ONE.parent.name / "meta.yaml"
    meta.write_text(meta.read_text().replace("lifecycle_stage: active", "lifecycle_stage: deleted"))
    assert list(mlflow.read(store)) == []


def test_ignores_a_last_line_that_was_cut_off(store):
    loss = store / ONE.parent.name / ONE.name / "metrics" / "loss"
    with loss.open("a") as file:
        file.write("1700000000000 0.5 4\n1700000000000 0.5 1")
    (run,) = (run for run in mlflow.read(store) if run.name == "one")
    assert run.metrics["loss"].steps.tolist() == [0, 1, 2, 3, 4]
    assert run.metrics["loss"].values[-1] == 0.5
    assert math.isnan(run.metrics["loss"].values[1])


def test_rejects_invalid_files(store, subtests):
    run = store / ONE.parent.name / ONE.name
    loss, meta = run / "metrics" / "loss", run / "meta.yaml"
    lines = loss.read_text().splitlines()
    cases = [
        (loss, "\n".join([*lines[:2], line, *lines[2:], ""]), "line 3: expected 'TIME VALUE STEP'")
        for line in ("1700000000000", "now 1.0.0 0", "1 1 1e3", "1 1 99999999999999999999", "1" * 5000)
    ]
    cases += [
        (meta, "a: [", "not valid YAML"),
        (meta, "- 1", "expected a mapping"),
        (meta, "!!python/object/apply:os.system ['touch x']", "not valid YAML"),
        (meta, "a: " + "[" * 5000, "not valid YAML"),
        (meta, "a: " + "1" * (1 << 20), "larger than 1 MiB"),
    ]
    for file, text, message in cases:
        file.write_text(text)
        with subtests.test(text[-30:]):
            with pytest.raises(UserError, match=message) as error:
                list(mlflow.read(store))
            assert str(file) in str(error.value) and "\n" not in str(error.value)


def test_ignores_strange_values_in_metadata(store):
    meta = store / ONE.parent.name / ONE.name / "meta.yaml"
    meta.write_text(f"run_id: ../../x\nrun_name: [1]\nstatus: [1]\nstart_time: {10**400}\nend_time: x\n")
    (run,) = (run for run in mlflow.read(store) if run.name != "two")
    assert (run.state, run.began, run.ended, run.seconds) == ("FAILED", None, None, None)
    assert run.origin == f"mlflow:{ONE.parent.name}/{ONE.name}"


def test_links_are_not_followed(store, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("hidden")
    run = store / ONE.parent.name / ONE.name
    (run / "params" / "stolen").symlink_to(secret / "key")
    (run / "params" / "folder").symlink_to(secret)
    shutil.rmtree(run / "tags")
    (run / "tags").symlink_to(secret)
    (store / ONE.parent.name / ("0" * 32)).symlink_to(run)
    (store / "1").symlink_to(store / ONE.parent.name)
    found = list(mlflow.read(store))
    assert len(found) == 2
    assert "hidden" not in repr(found)


def test_rejects_places_without_runs_and_other_databases(tmp_path, mlflow_database):
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").write_text("no database at all, whatever it is that it may be")
    for path, match in (
        (other, "no runs of MLflow"),
        (other / "y", "no such file or folder"),
        (other / "x", "cannot be read"),
    ):
        with pytest.raises(UserError, match=match):
            list(mlflow.read(path))
    assert [path.name for path in other.iterdir()] == ["x"]
    whole = mlflow_database.read_bytes()
    for sql, match in (
        ("DROP TABLE params", "it has no table params"),
        ("ALTER TABLE metrics RENAME COLUMN is_nan TO other", "mlflow db upgrade"),
        ("ALTER TABLE tags RENAME TO t; CREATE VIEW tags AS SELECT * FROM t", "it has no table tags"),
    ):
        mlflow_database.write_bytes(whole)
        with closing(sqlite3.connect(mlflow_database)) as connection:
            connection.executescript(sql)
        with pytest.raises(UserError, match=match) as error:
            list(mlflow.read(mlflow_database))
        assert "\n" not in str(error.value)


def test_parameters_become_values(subtests):
    for text, value in (
        ("1", 1), ("-0.5", -0.5), ("1e-05", 1e-05), ("True", True), ("None", None), ('["a", 1]', ["a", 1]),
        ('{"a":1}', {"a": 1}), ("[1,2]", [1, 2]),
    ):  # fmt: skip
        with subtests.test(text):
            assert mlflow.parameter(text) == value
            assert type(mlflow.parameter(text)) is type(value)


def test_other_parameters_stay_texts():
    texts = [
        "", "01", "1.50", "1e3", "true", "null", "nan", "NaN", "Infinity", "[NaN]", "['a']", '"a"',
        "[" * 9999, "1" * 9999,
    ]  # fmt: skip
    assert [mlflow.parameter(text) for text in texts] == texts


@given(st.text())
def test_a_parameter_is_never_another_text(text):
    back = mlflow.parameter(text)
    assert back == text or text in (str(back), json.dumps(back), json.dumps(back, separators=(",", ":")))


def test_reports_a_damaged_run_and_reads_the_others(store):
    damaged = store / ONE.parent.name / ONE.name / "meta.yaml"
    damaged.write_text("[")
    errors: list[UserError] = []
    assert [run.name for run in mlflow.read(store, errors.append)] == ["two"]
    assert str(damaged) in str(errors[0]) and len(errors) == 1


def test_a_resumed_run_that_starts_again_has_the_later_history_alone(store, mlflow_database):
    first = [(step, 15.0) for step in range(100, 1_001, 100)]
    points = [*first, *((step, 0.2) for step in range(100, 501, 100))]
    run = store / ONE.parent.name / ONE.name
    (run / "metrics" / "loss").write_text("".join(f"{n} {v} {s}.0\n" for n, (s, v) in enumerate(points)))
    with closing(sqlite3.connect(mlflow_database)) as connection, connection:
        ((one,),) = connection.execute("SELECT run_uuid FROM runs WHERE name = 'one'")
        connection.execute("DELETE FROM metrics WHERE key = 'loss'")
        columns = "run_uuid, key, timestamp, step, value, is_nan"
        row = f"INSERT INTO metrics ({columns}) VALUES (?, 'loss', ?, ?, ?, 0)"
        connection.executemany(row, [(one, n, float(s), v) for n, (s, v) in enumerate(points)])
    for path in (store, mlflow_database):
        found = next(each for each in mlflow.read(path) if each.name == "one")
        assert found.metrics["loss"].steps.tolist() == [100, 200, 300, 400, 500]
        assert set(found.metrics["loss"].values) == {0.2}
        assert found.left_out == {"points that a restart replaced": 5}


def test_values_that_are_not_numbers_are_counted(mlflow_database):
    with closing(sqlite3.connect(mlflow_database)) as connection, connection:
        connection.execute("UPDATE metrics SET value = 'much' WHERE key = 'eval/top1' AND step = 10")
    left_out = {run.name: {**+Counter(run.left_out)} for run in mlflow.read(mlflow_database)}
    assert left_out == {"one": {"values that are not numbers": 1}, "two": {}}


def test_a_run_that_sqlite_cannot_read_is_reported_and_the_others_are_read(mlflow_database):
    with closing(sqlite3.connect(mlflow_database)) as connection, connection:
        connection.execute("UPDATE params SET value = printf('%.*c', 20000000, 'x') WHERE key = 'lr'")
    errors: list[UserError] = []
    assert [run.name for run in mlflow.read(mlflow_database, errors.append)] == ["two"]
    assert len(errors) == 1 and "string or blob too big" in str(errors[0])


def test_metadata_that_would_grow_is_one_damaged_run(store):
    meta = store / ONE.parent.name / ONE.name / "meta.yaml"
    text = meta.read_text()
    aliases = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 8)
    )
    meta.write_text(aliases + text.replace("run_name: one", "run_name: *a7"))
    errors: list[UserError] = []
    assert [run.name for run in mlflow.read(store, errors.append)] == ["two"]
    assert len(errors) == 1 and "\n" not in str(errors[0])
    for name in ("1" * 5_000, "1:" * 3_000 + "1"):
        meta.write_text(text.replace("run_name: one", f"run_name: {name}"))
        assert {run.name for run in mlflow.read(store)} == {"two", name}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ([1, 2, 3, 0], [0, 1, 2, 3]),  # the last one without a step, which is step 0
        ([30, 10, 20], [10, 20, 30]),  # logged in parallel
        ([1, 2, 3, 4, 2, 3], [1, 2, 3]),  # resumed after step 1
        ([0, 0, 0], [0]),
    ],
)
def test_a_step_that_is_written_again_is_a_restart(written, read):
    points = Points()
    for number, step in enumerate(written):
        points.add("acc", step, float(number))
    curve = points.curves()["acc"]
    assert curve.steps.tolist() == read
    last = {step: float(number) for number, step in enumerate(written)}
    assert curve.values.tolist() == [last[step] for step in read]


def _curves(points: Points) -> dict[str, dict[int, float]]:
    return {
        name: dict(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))
        for name, curve in points.curves().items()
    }


def test_a_restart_is_of_all_metrics_with_the_same_steps(store):
    logged = [("loss", step) for step in range(1, 26)] + [("acc", 10), ("acc", 20), ("rare", 5), ("rare", 24)]
    logged += [("epoch", epoch) for epoch in range(1, 25)]  # counts something else, and so does `bins`
    first = [(step if name != "epoch" else 25, name, step, 0.0) for name, step in logged]
    first += [(0, "bins", step, 0.0) for step in range(30)] + [(25, "once", 0, 0.0)]
    again = [(step + 30, "loss", step, 1.0) for step in range(8, 16)] + [
        (40, "acc", 10, 1.0),
        (40, "once", 0, 1.0),
    ]
    points = Points()
    for time, name, step, value in sorted([*first, *again]):
        points.add(name, step, value, time)
    curves = _curves(points)
    assert curves["loss"] == {step: float(step >= 8) for step in range(1, 16)}
    assert (curves["acc"], curves["rare"], curves["once"]) == ({10: 1.0}, {5: 0.0}, {0: 1.0})
    assert len(curves["epoch"]) == 24 and len(curves["bins"]) == 30
    assert points.left_out == {"points that a restart replaced": 10 + 1 + 1}
    folder = store / ONE.parent.name / ONE.name / "metrics"
    for name in ("loss", "acc"):
        lines = [f"{at} {value} {step}\n" for at, key, step, value in [*first, *again] if key == name]
        (folder / name).write_text("".join(lines))
    (run,) = (run for run in mlflow.read(store) if run.name == "one")
    assert run.metrics["acc"].steps.tolist() == [10] and run.metrics["loss"].steps.tolist() == [*range(1, 16)]


@given(
    attempts=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=4),
    every=st.integers(2, 9),
)
def test_only_the_history_that_survived_is_kept(attempts, every):
    last, points = -1, Points()
    survived: dict[str, dict[int, float]] = {"loss": {}, "acc": {}}
    for number, (resumed, count) in enumerate(attempts):
        first = min(resumed, last + 1)
        for name, curve in survived.items():
            survived[name] = {step: value for step, value in curve.items() if step < first}
        last = first + count - 1
        for step in range(first, last + 1):
            for name in ("acc", "loss") if step % every == 0 else ("loss",):
                points.add(name, step, number, 100 * number + step)
                survived[name][step] = number
    assert _curves(points) == {name: curve for name, curve in survived.items() if curve}


def test_a_metric_that_was_abandoned_whole_is_left_out():
    points = Points()
    for time, (name, step) in enumerate([("loss", 1), ("loss", 2), ("acc", 2), ("loss", 3), ("loss", 1)]):
        points.add(name, step, 0.5, time)
    assert _curves(points) == {"loss": {1: 0.5}}
    points.restart(0)
    assert points.curves() == {} and "loss" not in points
