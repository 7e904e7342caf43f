import csv
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.errors import UserError
from jestlab.platform.exchange import read_tables as tabular
from jestlab.platform.exchange.readers import READERS
from jestlab.platform.exchange.source_run import FoundRun


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(text: str, name: str = "table.csv") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return written


def points(run: FoundRun) -> dict[str, list[tuple[int, float]]]:
    return {
        name: list(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))
        for name, curve in run.metrics.items()
    }


LONG = """run,step,loss,lr,optimizer,config.model.width,test,phase
a,0,1.0,0.1,adam,64,,train
b,0,2,0.2,sgd,64,,train
b,10,nan,0.2,sgd,64,,train
a,10,0.5,0.1,adam,64,0.75,test
"""


def test_a_table_of_steps(write):
    a, b = tabular.read(write(LONG))
    assert (a.name, a.origin, a.state) == ("a", "csv:table.csv#a", "COMPLETED")
    assert a.config == b.config | {"lr": 0.1, "optimizer": "adam"}
    assert b.config == {"lr": 0.2, "optimizer": "sgd", "model": {"width": 64}}
    assert points(a) == {"loss": [(0, 1.0), (10, 0.5)], "test": [(10, 0.75)]}
    assert list(b.metrics) == ["loss"] and math.isnan(b.metrics["loss"].values[1])


def test_columns_can_be_named(write):
    table = write(LONG.replace("run,step", "who,epoch"))
    a, b = tabular.read(table, run=["who"], step="epoch", config=["optimizer"])
    assert a.config == {"optimizer": "adam", "model": {"width": 64}}
    assert points(b)["lr"] == [(0, 0.2), (10, 0.2)]
    first, _ = tabular.read(table, run=["optimizer", "lr"], step="epoch", config=["who"])
    assert first.name == "optimizer=adam, lr=0.1"
    assert first.origin == "csv:table.csv#adam/0.1"
    assert first.config == {"who": "a", "optimizer": "adam", "lr": 0.1, "model": {"width": 64}}


def test_a_table_of_results(write):
    one, two = tabular.read(write("model.name,flip,top1\nsmall,true,0.5\n\nlarge,false,\n"))
    assert (one.name, one.origin) == ("1", "csv:table.csv#1")
    assert one.config == {"model": {"name": "small"}, "flip": True}
    assert points(one) == {"top1": [(0, 0.5)]}
    assert (two.config, two.metrics) == ({"model": {"name": "large"}, "flip": False}, {})


def test_a_table_of_one_run(write):
    (run,) = tabular.read(write("step\tloss\tlr\n1\t0.5\t3\n0\t1\t3\n", "pilot.tsv"))
    assert (run.name, run.origin, run.config) == ("pilot", "csv:pilot.tsv#pilot", {})
    assert points(run) == {"loss": [(0, 1), (1, 0.5)], "lr": [(0, 3), (1, 3)]}


def test_numbers_of_runs_with_one_row_are_metrics(write):
    for run in tabular.read(write("run,step,top1\na,5,0.5\nb,5,0.6\n")):
        assert list(run.metrics) == ["top1"]


def test_names_of_runs_stay_texts(write):
    names = ["007", "1e5", "nan", "1", "1.0", "true", " x"]
    rows = "".join(f"{name},0,1\n{name},1,2\n" for name in names)
    assert [run.name for run in tabular.read(write("run,step,loss\n" + rows))] == names


def test_repeated_steps_have_their_last_values(write):
    (run,) = tabular.read(write("run,step,loss\na,1,1\na,0,2\na,1,3\na,1,\n"))
    assert points(run) == {"loss": [(0, 2), (1, 3)]}
    assert run.left_out == {"points that a later row of the same step replaced": 1}


ERRORS: list[tuple[str, dict[str, Any], str]] = [
    ("", {}, "an empty file"),
    ("step,,x\n", {}, "column 2 has no name"),
    ("step,x,x\n", {}, "two columns are named x"),
    ("step,x\n0,1\n1\n", {}, "line 3: 1 cells: expected 2"),
    ("step,x\n0,1\n1,2,3\n", {}, "line 3: 3 cells: expected 2"),
    ("step,x\n0,1\n0.5,2\n", {}, r"line 3, column step: expected a step, a whole number, got 0\.5"),
    ("step,x\n0,1\n,2\n", {}, "line 3, column step: expected a step"),
    ("step,x\n1e300,1\n", {}, "line 2, column step: expected a step"),
    ("step,x\n0,1\n1,2\n2,bad\n", {}, r"line 4, column x: expected a number, as in most rows, got 'bad'"),
    (
        "run,x,y\na,1,2\nb,N/A,3\n",
        {},
        "line 3, column x: expected a number.*or name the columns of the config",
    ),
    ("step,x\n0,1\n1,2\n0,3\n", {}, "line 4, column step: step 0 again, after that of line 2"),
    ("run,step,x\na,0,1\n,1,2\n", {}, "line 3, column run: expected the name of a run"),
    ("run,x\na,1\na,2\n", {}, "line 3, column run: a second row of run 'a'"),
    ("run,step,x\na,0,1\na,1,2\n", {"config": ["x"]}, r"line 3, column x: expected 1, as before.*got 2"),
    ("run,step,config.x\na,0,1\na,1,2\n", {}, r"line 3, column config\.x: expected 1"),
    ("run,step,x\n", {"run": ["runn"]}, "no column runn: did you mean 'run'"),
    ("run,step,x\n", {"step": "epoch"}, "no column epoch"),
    ("run,step,x\n", {"config": ["y"]}, "no column y"),
    ("run,Step, step ,x\na,1,1,1\n", {"step": "STEP"}, "two columns are named STEP"),
    ("run,step,x,x \na,1,0.5,0.6\n", {}, "two columns are named x"),
    ("run,step,x,a,config.a\na,1,0.5,b,c\n", {}, r"a and config\.a are one key: rename a column"),
    *((f"run{mark}step\na{mark}1\n", {}, "one column, .* a first line such as sep=") for mark in "^ :"),
    ("run,step,x\na,1,yes\n", {}, "no metrics: expected numbers in a column"),
    ("epoch,loss\n1,0.5\n2,0.25\n", {}, "no column step or run: name it with --step COLUMN or --run"),
    ("run;step;x\na;1.000;0,5\n", {}, r"line 2, column step: expected a step.*got '1\.000'"),
    ("run,step,seed,x\na,1,0,1\na,1,1,2\n", {}, "column seed: expected 0, as before.*apart with --run"),
    ('step,x\n0,"1\n', {}, r"line 2: not valid CSV"),
    ('step,x\n0,"1"2\n', {}, r"line 2: not valid CSV"),
]


def test_errors_name_the_line_and_the_column(write, subtests):
    for text, arguments, match in ERRORS:
        path = write(text)
        with subtests.test(match):
            with pytest.raises(UserError, match=match) as error:
                list(tabular.read(path, **arguments))
            assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_rejects_files_that_are_not_tables(tmp_path):
    path = tmp_path / "x"
    for data, match in ((b"a,b\n\xff,1\n", "not valid UTF-8"), (b"PAR1 and more", "not valid Parquet")):
        path.write_bytes(data)
        with pytest.raises(UserError, match=match) as error:
            list(tabular.read(path))
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="no such file"):
        list(tabular.read(tmp_path / "missing"))


def test_parquet(tmp_path):
    path = tmp_path / "table.parquet"
    columns = {
        "run": [7, 7, 8],
        "step": np.array([0, 1, 0], np.int32),
        "loss": [1.0, None, float("nan")],
        "config": [{"lr": 0.1, "model": {"layers": [1, 2]}}] * 2 + [{"lr": 0.2, "model": None}],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    seven, eight = READERS["parquet"](path)
    assert (seven.name, seven.origin) == ("7", "parquet:table.parquet#7")
    assert seven.config == {"lr": 0.1, "model": {"layers": [1, 2]}}
    assert points(seven) == {"loss": [(0, 1.0)]}
    assert eight.config == {"lr": 0.2}
    assert math.isnan(eight.metrics["loss"].values[0])


def test_texts_in_parquet_may_be_bytes(tmp_path):
    path = tmp_path / "table.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"run": ["é".encode(), b"\xff"], "x": [0.5, 0.25]}), path)
    assert [run.name for run in tabular.read(path)] == ["é", r"\xff"]


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=8)
STEPS = st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.floats(), min_size=1, max_size=5)


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
    # Name the config, since a metric that is the same at all steps would be taken for config.
    found = {run.name: run for run in tabular.read(path, config=["config.a"])}
    assert found.keys() == made.keys()
    for run, steps in made.items():
        assert found[run].config == {"a": config}
        curve = found[run].metrics["x"]
        assert curve.steps.tolist() == sorted(steps)
        np.testing.assert_array_equal(curve.values, [steps[step] for step in sorted(steps)])


@given(text=st.text(st.sampled_from('step,run\n"01.e-x\t\0é'), max_size=60) | st.text(max_size=60))
def test_any_text_gives_runs_or_an_error_of_one_line(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text("step,x,y\n" + text, encoding="utf-8", errors="surrogatepass")
    try:
        list(tabular.read(path))
    except UserError as error:
        assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize("delimiter", [";", "\t", "|", ","])
def test_any_usual_delimiter_is_found(write, delimiter):
    text = 'run;step;val/acc\r\n"a,b";1;0.5\r\n"a,b";2;0.75\r\n"c;d|e";1;0.25\r\n'.replace(";d|", "\0")
    rows = text.replace(";", delimiter).replace("\0", ";d|")
    runs = {run.name: run.metrics["val/acc"].values.tolist() for run in tabular.read(write(rows))}
    assert runs == {"a,b": [0.5, 0.75], "c;d|e": [0.25]}


def test_columns_that_are_left_out_are_counted_with_the_reason(write):
    text = "run;step;good;comma;note\na;1;0.5;0,5;x\na;2;0.75;0,75;y\nb;1;0.25;;\n"
    runs = list(tabular.read(write(text)))
    assert [sorted(run.metrics) for run in runs] == [["good"], ["good"]]
    comma = "cells of column 'comma', such as '0,5': write numbers with a decimal point"
    note = "cells of column 'note', such as 'x': not numbers"
    assert [+Counter(run.left_out) for run in runs] == [{comma: 2, note: 2}, {}]
    for cell in ("0,5", "1 234,5", "1’234.5", "−1.5", "٠٫٥", "１"):
        (run,) = tabular.read(write(f"run;acc\na;{cell}\n"))  # a row for each run: no config either
        assert run.config == {} and len(run.left_out) == 1
    (run,) = tabular.read(write("run;acc, %;loss, nats\na;0,5;0,25\n"))
    assert len(run.left_out) == 2


@pytest.mark.parametrize(
    "text",
    [
        "Run,STEP, Val Loss ,seed\nA,1,0.5,7\n",
        "sep=^\r\nrun^step^Val Loss^seed\r\nA^1^0.5^7\r\n",
        '"sep=,"\nrun,step,Val Loss,Seed\nA,1,0.5,7\n',
        "run;step;Val Loss;seed;\nA;1;0.5;7;\n",
        "run;step;Val Loss;seed\nA;1;0.5;7;;\n;;;\n",
        '"run", "step", "Val Loss", "seed"\n"A", 1, 0.5, 7\n',
    ],
)
def test_tables_that_spreadsheets_write(write, text):
    (run,) = tabular.read(write(text))
    assert (run.name, run.config, points(run)) == ("A", {"seed": 7}, {"Val Loss": [(1, 0.5)]})


def test_names_that_are_given_match_in_another_case(write):
    table = write("Model,Seed,LR,Top1\nm,3,0.1,0.5\n")
    (run,) = tabular.read(table, run=["model", "seed"], config=["lr"])
    assert (run.config, points(run)) == ({"model": "m", "seed": 3, "lr": 0.1}, {"Top1": [(0, 0.5)]})
    (run,) = tabular.read(table, run=["Model", "Seed"], config=["LR"])
    assert (run.name, run.config["LR"]) == ("Model=m, Seed=3", 0.1)


def test_points_may_separate_thousands_where_commas_are_decimal(write):
    rows = ["a;1;1.234;1.234,5;0.753", "a;2;1.100;2,5;1.250"]
    (run,) = tabular.read(write("\n".join(["run;step;x;y;z", *rows, ""])))
    assert points(run) == {"z": [(1, 0.753), (2, 1.25)]} and sum(run.left_out.values()) == 4
    assert any("'1.234': write plain numbers, such as 1234.5" in one for one in run.left_out)
    (run,) = tabular.read(write("run;step;x\na;1;1.234\na;2;1.100\n"))
    assert points(run) == {"x": [(1, 1.234), (2, 1.1)]}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a,1,0.5,3", "b,1,N/A,3", "c,1,0.25,3"], "line 3, column x: expected a number, as in most rows"),
        (["a,1,0.5,3", "b,1.5,0.5,3", "c,1,0.25,3"], "line 3, column step: expected a step"),
        (["a,1,0.5,3", "b,1,0.5,3", "b,2,0.75,4", "c,1,0.25,3"], "line 4, column seed: expected 3"),
    ],
)
def test_a_run_with_a_bad_cell_is_reported_and_the_others_are_read(write, rows, message):
    errors: list[UserError] = []
    found = tabular.read(write("\n".join(["run,step,x,seed", *rows, ""])), damaged=errors.append)
    assert {run.name: points(run) for run in found} == {"a": {"x": [(1, 0.5)]}, "c": {"x": [(1, 0.25)]}}
    assert len(errors) == 1 and message in str(errors[0])


def test_percentages_are_not_config(write):
    one, two = tabular.read(write("run,flip,x,n\na,TRUE,50%,3\nb,FALSE,60.5 %,4\n"))
    assert (one.config, two.config) == ({"flip": True}, {"flip": False})
    assert list(one.left_out) == ["cells of column 'x', such as '50%': write plain numbers, such as 1234.5"]


def test_names_of_several_columns_stay_distinct(write):
    one, two = tabular.read(write('a,b,x\n1,"2, b=3",5\n"1, b=2",3,6\n'), run=["a", "b"])
    assert one.name == "a=1, b='2, b=3'" and two.name == "a='1, b=2', b=3"


def test_steps_may_be_written_as_floats(write):
    (run,) = tabular.read(write("step,x\n50.0,1\n060,2\n"))
    assert run.metrics["x"].steps.tolist() == [50, 60]


def test_a_small_file_cannot_fill_the_memory(tmp_path):
    for name, rows, text in (("once", 20_000, "x" * 50_000), ("many", 5_000_000, "x")):
        indices = pyarrow.array(np.zeros(rows, np.int32))
        column = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array([text]))
        path = tmp_path / f"{name}.parquet"
        table = pyarrow.table({"run": column})
        pyarrow.parquet.write_table(table, path, compression="zstd", store_schema=False)
        with pytest.raises(UserError, match=r"more than 4 million cells, or 0\.2 GB of texts: split it by"):
            list(tabular.read(path))
