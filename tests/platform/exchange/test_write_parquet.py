"""Results as Parquet: pandas and pyarrow read them whole."""

import json
import math
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from tests.platform.exchange import recorded
from tests.platform.exchange.recorded import JOINT, LABEL, files_below, result

from jestlab.platform.exchange import export as writers
from jestlab.platform.exchange import export_read as results
from jestlab.platform.exchange.export_read import ExportedRun
from jestlab.platform.exchange.source_run import Score

WHOSE = ["experiment", "label", "seed", "fingerprint"]
TABLES = ("runs", "metrics", "evaluations")


def written(out, *runs: ExportedRun) -> dict[str, Any]:
    """Write runs, and read the tables by pandas."""
    writers.write("parquet", runs, out)
    assert files_below(out) == {f"{name}.parquet" for name in TABLES}
    return {name: pd.read_parquet(out / f"{name}.parquet") for name in TABLES}


def test_a_study_is_read_back_whole(recorded_sqlite, out):
    stored = list(results.read(recorded_sqlite, []))
    tables = written(out, *stored)
    runs = tables["runs"].set_index(["experiment", "label", "seed"])
    assert list(runs.index) == [(one.experiment, one.label, one.seed) for one in stored]
    for one in stored:
        row = runs.loc[(one.experiment, one.label, one.seed)]
        assert (row.fingerprint, row.run, row.program) == (one.fingerprint, one.run, one.program)
        assert (row.state, row.step) == (str(one.state), one.step)
        assert json.loads(row.config) == one.config
        assert list(row.tags) == one.tags and list(row.notes) == one.notes
        for name in ("reason", "began", "ended", "commit"):
            assert (None if pd.isna(row[name]) else row[name]) == getattr(one, name)
    joint = runs.loc["toy", LABEL, 0]
    assert (list(joint.tags), list(joint.notes)) == (recorded.TAGS, recorded.NOTES)
    assert json.loads(joint.config) == JOINT.config
    assert runs.loc["toy", "broken", 0].reason == "ValueError: no"

    curves = tables["metrics"].set_index(["label", "seed", "name"])
    for name, points in recorded.METRICS.items():
        for label in (LABEL, "baseline"):
            rows = curves.loc[[(label, 0, name)]]
            assert [(row.step, repr(row.value)) for row in rows.itertuples()] == points
    assert len(curves) == 2 * sum(map(len, recorded.METRICS.values())) + 1
    assert curves.loc[[(LABEL, 1, "loss")], "value"].tolist() == [-math.inf]

    scores = tables["evaluations"].query("label == @LABEL").set_index(["dataset", "metric", "step"])
    assert scores.loc[("toy", "score", 3)].drop(WHOSE).to_dict() == {
        "value": 0.75, "examples_seen": 3 * 10**9, "flops_total": 1.5e21, "seconds": 9.5,
    }  # fmt: skip
    joined = tables["metrics"].merge(tables["runs"], on=["experiment", "label", "fingerprint"])
    assert len(joined) == len(tables["metrics"])


def test_what_is_unknown_is_null_and_nan_is_a_number(out):
    written(
        out,
        result(
            metrics={"loss": [math.nan, math.inf, 1.0]},
            scores=[
                Score("a", "b", 2**40, math.nan, None, None, None),
                Score("a", "b", 2**41, 1, 2**53 + 1, 2, 3),
            ],
            began=None,
            ended=None,
            commit=None,
        ),
    )
    runs, metrics, scores = (pq.read_table(out / f"{name}.parquet") for name in TABLES)
    assert [runs[name].null_count for name in ("reason", "began", "ended", "commit")] == [1, 1, 1, 1]
    assert runs["tags"].to_pylist() == runs["notes"].to_pylist() == [[]]
    assert metrics["value"].null_count == 0 and repr(metrics["value"].to_pylist()) == "[nan, inf, 1.0]"
    assert scores["value"].null_count == 0 and scores["step"].to_pylist() == [2**40, 2**41]
    assert scores["examples_seen"].to_pylist() == [None, 2**53 + 1]
    assert [scores[name].to_pylist() for name in ("flops_total", "seconds")] == [[None, 2.0], [None, 3.0]]


def test_types_do_not_depend_on_what_there_is(out):
    full = result(
        metrics={"loss": [1.0]}, scores=[Score("a", "b", 1, 0.5, 1, 1.0, 1.0)], tags=["t"], notes=["n"]
    )
    empty = result(began=None, ended=None, commit=None)
    schemas = []
    for name, one in (("full", full), ("empty", empty)):
        writers.write("parquet", [one], out / name)
        schemas.append([pq.read_schema(out / name / f"{table}.parquet") for table in TABLES])
    assert schemas[0] == schemas[1]
    runs, metrics, scores = schemas[0]
    assert runs.names[:4] == metrics.names[:4] == scores.names[:4] == WHOSE
    assert runs.field("seed").type == pa.int64() and runs.field("began").type == pa.timestamp("us")
    assert [metrics.field(name).type for name in ("step", "value")] == [pa.int64(), pa.float64()]
    assert scores.field("examples_seen").type == pa.int64()
