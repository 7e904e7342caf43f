import csv
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.platform.exchange.recorded import raise_error

from jestlab.platform.errors import UserError
from jestlab.platform.exchange import read_tables
from jestlab.platform.exchange.source_run import AdoptOptions, MetricLog, Report, SourceRun


def read(path: Path, report: Report = raise_error, **options: Any) -> Iterator[SourceRun]:
    texts = {name: ",".join(value) if isinstance(value, list) else value for name, value in options.items()}
    return read_tables.read(path, report, AdoptOptions(**texts))


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(text: str, name: str = "table.csv") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return written


def points(run: SourceRun) -> dict[str, list[tuple[int, float]]]:
    return {name: [*curve.items()] for name, curve in run.metrics.items()}


LONG = """run,step,loss,lr,optimizer,config.model.width,test,phase
a,0,1.0,0.1,adam,64,,train
b,0,2,0.2,sgd,64,,train
b,10,nan,0.2,sgd,64,,train
a,10,0.5,0.1,adam,64,0.75,test
"""


def test_a_table_of_steps(write):
    a, b = read(write(LONG))
    assert (a.name, a.origin, a.state) == ("a", "csv:table.csv#a", "COMPLETED")
    assert a.config == b.config | {"lr": 0.1, "optimizer": "adam"}
    assert b.config == {"lr": 0.2, "optimizer": "sgd", "model": {"width": 64}}
    assert points(a) == {"loss": [(0, 1.0), (10, 0.5)], "test": [(10, 0.75)]}
    assert list(b.metrics) == ["loss"] and math.isnan(b.metrics["loss"][10])
    assert sum(a.left_out.values()) == 2 and "column phase" in next(iter(a.left_out))


def test_columns_can_be_named(write):
    table = write(LONG.replace("run,step", "who,epoch"))
    a, b = read(table, run=["who"], step="epoch", config=["optimizer"])
    assert a.config == {"optimizer": "adam", "model": {"width": 64}}
    assert points(b)["lr"] == [(0, 0.2), (10, 0.2)]
    first, _ = read(table, run=["optimizer", "lr"], step="epoch", config=["who"])
    assert (first.name, first.origin) == ("optimizer=adam, lr=0.1", "csv:table.csv#adam/0.1")
    assert first.config == {"who": "a", "optimizer": "adam", "lr": 0.1, "model": {"width": 64}}
    upper = write("Model,Seed,LR,Top1\nm,3,0.1,0.5\n")
    (run,) = read(upper, run=["model", "seed"], config=["lr"])
    assert (run.config, points(run)) == ({"model": "m", "seed": 3, "lr": 0.1}, {"Top1": [(0, 0.5)]})
    (run,) = read(upper, run=["Model", "Seed"], config=["LR"])
    assert (run.name, run.config["LR"]) == ("Model=m, Seed=3", 0.1)


def test_tables_without_runs_or_steps(write):
    one, two = read(write("model.name,flip,top1\nsmall,true,0.5\n\nlarge,FALSE,\n"))
    assert (one.name, one.origin) == ("1", "csv:table.csv#1")
    assert (one.config, points(one)) == ({"model": {"name": "small"}, "flip": True}, {"top1": [(0, 0.5)]})
    assert (two.config, two.metrics) == ({"model": {"name": "large"}, "flip": False}, {})
    (run,) = read(write("step\tloss\tlr\n1\t0.5\t3\n0\t1\t3\n", "pilot.tsv"))
    assert (run.name, run.origin, run.config) == ("pilot", "csv:pilot.tsv#pilot", {})
    assert points(run) == {"loss": [(0, 1), (1, 0.5)], "lr": [(0, 3), (1, 3)]}
    for run in read(write("run,step,top1\na,5,0.5\nb,5,0.6\n")):  # one row each: a metric
        assert list(run.metrics) == ["top1"]


def test_names_of_runs_stay_text_and_distinct(write):
    names = ["007", "1e5", "nan", "1", "1.0", "true"]
    rows = "".join(f"{name},0,1\n{name},1,2\n" for name in names)
    assert [run.name for run in read(write("run,step,loss\n" + rows))] == names
    one, two = read(write('a,b,x\n1,"2, b=3",5\n"1, b=2",3,6\n'), run=["a", "b"])
    assert one.origin != two.origin


def test_the_last_value_at_a_step_counts(write):
    (run,) = read(write("run,step,loss\na,1.0,1\na,000,2\na,1,3\na,1,\n"))
    assert points(run) == {"loss": [(0, 2), (1, 3)]}
    assert run.left_out == {MetricLog.REPLACED: 1}


@pytest.mark.parametrize(
    ("text", "arguments", "match"),
    [
        ("", {}, "one column"),
        ("step,,x\n", {}, "column ''"),
        ("step,x,x\n", {}, "column 'x'"),
        ("run,step,x,x \na,1,0.5,0.6\n", {}, "column 'x'"),
        ("step,x\n0,1\n1\n", {}, "line 3: .*1 cells"),
        ("step,x\n0,1\n1,2,3\n", {}, "line 3: .*3 cells"),
        ("step,x\n0,1\n0.5,2\n", {}, r"line 3: invalid step 0\.5"),
        ("step,x\n0,1\n,2\n", {}, "line 3: invalid step"),
        ("step,x\n1e300,1\n", {}, "line 2: invalid step"),
        ("run;step;x\na;1.000;0,5\nb;2;0.5\n", {}, r"line 2: invalid step '1\.000'"),
        ("step,x\n0,1\n1,2\n0,3\n", {}, "line 4: a second row of a run at the same step: .*--run"),
        ("run,step,x\na,0,1\n,1,2\n", {}, "line 3: the name of the run is empty"),
        ("run,x\na,1\na,2\n", {}, "line 3: a second row of a run at the same step: .*--step"),
        ("run,step,x,y\na,0,1,1\na,1,2,1\n", {"config": ["x"]}, "line 3: column x has different values"),
        ("run,step,config.x,y\na,0,1,1\na,1,2,1\n", {}, r"line 3: column config\.x"),
        ("run,step,seed,x\na,1,0,1\na,1,1,2\n", {}, "column seed .*--run"),
        ("run,step,x\n", {"run": ["runn"]}, "no column runn: did you mean 'run'"),
        ("run,step,x\n", {"step": "epoch"}, "no column epoch"),
        ("run,step,x,a,config.a\na,1,0.5,b,c\n", {}, "column config.a has different values"),
        ("run^step\na^1\n", {}, "one column"),
        ("run,step,x\na,1,yes\n", {}, "no metrics"),
        ("run,step\na,1\n", {}, "no metrics"),
        ("epoch,loss\n1,0.5\n2,0.25\n", {}, "no column step or run"),
        ('step,x\n0,"1\n', {}, "line 2: not valid CSV"),
    ],
)
def test_errors_name_the_file_and_the_line(write, text, arguments, match):
    path = write(text)
    with pytest.raises(UserError, match=match) as error:
        list(read(path, **arguments))
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_parquet(tmp_path):
    path = tmp_path / "table.parquet"
    columns = {
        "run": [7, 7, 8],
        "step": np.array([0, 1, 0], np.int32),
        "loss": [1.0, None, float("nan")],
        "config": [{"lr": 0.1, "model": {"layers": [1, 2]}}] * 2 + [{"lr": 0.2, "model": None}],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    seven, eight = read(path)
    assert (seven.name, seven.origin) == ("7", "parquet:table.parquet#7")
    assert seven.config == {"lr": 0.1, "model": {"layers": [1, 2]}}
    assert points(seven) == {"loss": [(0, 1.0)]}
    assert eight.config == {"lr": 0.2} and math.isnan(eight.metrics["loss"][0])
    pyarrow.parquet.write_table(pyarrow.table({"run": ["é".encode(), b"\xff"], "x": [0.5, 0.25]}), path)
    assert [run.name for run in read(path)] == ["é", r"\xff"]


def test_text_in_parquet_stays_text(tmp_path):
    path = tmp_path / "table.parquet"
    columns = {"run": ["a", "b"], "version": ["1.10", "true"], "price": [Decimal("1.5"), None], "x": [1, 2]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    a, b = read(path)
    assert (a.config, b.config) == ({"version": "1.10"}, {"version": "true"})
    assert points(a) == {"price": [(0, 1.5)], "x": [(0, 1)]}


def test_lists_are_not_steps(tmp_path):
    path = tmp_path / "table.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"step": [[1], [2]], "x": [0.5, 0.25]}), path)
    with pytest.raises(UserError, match=r"line 1: invalid step \[1\]"):
        list(read(path))


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=8)
STEPS = st.dictionaries(st.integers(-(2**63) + 1, 2**63 - 1), st.floats(), min_size=1, max_size=5)


@given(
    made=st.dictionaries(NAMES, STEPS, min_size=1, max_size=4),
    config=st.integers(-5, 5) | st.just("x, \"y\"\n'z'"),
    order=st.randoms(use_true_random=False),
)
def test_any_table_is_read_back(tmp_path, made, config, order):
    rows = [(run, step, config, value) for run, steps in made.items() for step, value in steps.items()]
    order.shuffle(rows)
    path = tmp_path / "table"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("run", "step", "config.a", "x"), *rows])
    # Name the config: a metric with the same value at all steps would be config.
    found = {run.name: run for run in read(path, config=["config.a"])}
    assert found.keys() == made.keys()
    for run, steps in made.items():
        assert found[run].config == {"a": config}
        assert repr(found[run].metrics["x"]) == repr({step: steps[step] for step in sorted(steps)})


@pytest.mark.parametrize(
    "text",
    [
        "Run,STEP, Val Loss ,seed\nA,1,0.5,7\n",
        "run;step;Val Loss;seed;\nA;1;0.5;7;\n",
        "run|step|Val Loss|seed\nA|1|0.5|7||\n|||\n",
        '"run", "step", "Val Loss", "seed"\n"A", 1, 0.5, 7\n',
    ],
)
def test_tables_that_spreadsheets_write(write, text):
    (run,) = read(write(text))
    assert (run.name, run.config, points(run)) == ("A", {"seed": 7}, {"Val Loss": [(1, 0.5)]})


def test_numbers_in_other_notations_are_left_out(write):
    for cell in ("0,5", "1 234,5", "1’234.5", "−1.5", "٠٫٥", "１", "1_0", "50%"):
        (run,) = read(write(f"run;acc;x\na;{cell};1\n"), config=["run"])
        assert points(run) == {"x": [(0, 1)]} and sum(run.left_out.values()) == 1
    # Points may separate thousands in a table with decimal commas.
    rows = ["a;1;1.234;1.234,5;0.753", "a;2;1.100;2,5;1.250"]
    (run,) = read(write("\n".join(["run;step;x;y;z", *rows, ""])), config=["run"])
    assert points(run) == {"z": [(1, 0.753)]} and sum(run.left_out.values()) == 5
    (run,) = read(write("run;step;x\na;1;1.234\na;2;1.100\n"))
    assert points(run) == {"x": [(1, 1.234), (2, 1.1)]}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a,1,0.5,3", "b,1.5,0.5,3", "c,1,0.25,3"], "line 3: invalid step"),
        (["a,1,0.5,3", "b,1,0.5,3", "b,2,0.75,4", "c,1,0.25,3"], "line 4: column seed"),
    ],
)
def test_reports_a_damaged_run_and_reads_the_others(write, rows, message):
    errors: list[Any] = []
    found = read(write("\n".join(["run,step,x,seed", *rows, ""])), errors.append)
    assert {run.name: points(run) for run in found} == {"a": {"x": [(1, 0.5)]}, "c": {"x": [(1, 0.25)]}}
    assert len(errors) == 1 and message in str(errors[0])


def test_a_small_file_cannot_fill_the_memory(tmp_path):
    for name, rows, text in (("once", 20_000, "x" * 50_000), ("many", 5_000_000, "x")):
        indices = pyarrow.array(np.zeros(rows, np.int32))
        column = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array([text]))
        path = tmp_path / f"{name}.parquet"
        table = pyarrow.table({"run": column})
        pyarrow.parquet.write_table(table, path, compression="zstd", store_schema=False)
        with pytest.raises(UserError, match="more than 34 MB in memory"):
            list(read(path))
