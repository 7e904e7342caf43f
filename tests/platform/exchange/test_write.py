"""Exports in formats of other tools, read back by our readers, by TensorBoard, and by pandas."""

import json
import math
import posixpath
import re
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from tests.platform.exchange import recorded
from tests.platform.exchange.recorded import HOSTILE, JOINT, LABEL, as_text, result

from jestlab.analysis.configs import flat
from jestlab.platform.exchange import adopt, export
from jestlab.platform.exchange.export import ExportedRun
from jestlab.platform.exchange.source_run import AdoptOptions, Score, SourceRun
from jestlab.platform.store.records import RunState

TABLES = ("runs", "metrics", "evaluations")


def written(kind: str, out: Path, *runs: ExportedRun) -> dict[str, SourceRun]:
    """Write runs and read them back, by name."""
    export.write(kind, runs, out)
    return {run.name: run for run in adopt.read(kind, out, recorded.raise_error, AdoptOptions())}


def tags(run: SourceRun) -> dict[str, str]:
    return dict(tag.partition("=")[::2] for tag in run.tags)


def last(run: SourceRun) -> dict[str, float]:
    return {name: curve[max(curve)] for name, curve in run.metrics.items()}


@pytest.fixture
def stored(recorded_sqlite):
    return {one.title: one for one in export.read(recorded_sqlite, export.members(recorded_sqlite, ["toy"]))}


def test_mlflow(stored, out):
    runs = written("mlflow", out, *stored.values())
    again = written("mlflow", out.with_name("again"), *stored.values())
    assert len({run.origin for run in runs.values()} & {run.origin for run in again.values()}) == len(stored)
    for title, one in stored.items():
        curves = {
            "loss_" if name == "loss" and one.scores else name: curve for name, curve in one.curves().items()
        }
        assert (as_text(runs[title].metrics), runs[title].config) == (as_text(curves), one.config)
    joint, broken, waiting = (runs[title] for title in (f"{LABEL}/0", "broken/0", "waiting/0"))
    assert (joint.group, joint.state, joint.git_commit) == ("toy", "COMPLETED", None)
    assert tags(joint).items() >= {
        "good_yes": "true", "keep": "true", "jestlab.label": LABEL, "jestlab.seed": "0",
        "jestlab.fingerprint": JOINT.fingerprint, "jestlab.program": JOINT.program,
        "jestlab.state": "COMPLETED",
    }.items()  # fmt: skip
    assert joint.notes == "First λ.\n\nSecond:\ntwo lines."
    for ours, theirs in ((stored[joint.name].began, joint.began), (stored[joint.name].ended, joint.ended)):
        assert theirs is not None and timedelta(0) <= ours - theirs < timedelta(milliseconds=1)
    assert (broken.state, tags(broken)["jestlab.reason"]) == ("FAILED", "ValueError: no")
    assert (waiting.state, waiting.began, tags(waiting)["jestlab.state"]) == ("RUNNING", None, "PENDING")


def test_mlflow_values_that_are_missing_or_long(out):
    runs = written(
        "mlflow",
        out,
        result("a", commit="theirs", question="", tags=["only"]),
        result("b", config={}, began=None, ended=None, commit=None),
        result("c", config={"text": "x" * 7000, "list": ["y" * 7000]}, experiment="another"),
        *(result(state, state=state) for state in RunState),
    )
    assert runs["a/0"].git_commit == "theirs" and tags(runs["a/0"])["only"] == "true"
    assert (runs["b/0"].config, runs["b/0"].began, runs["b/0"].seconds) == ({}, None, None)
    assert {len(text) for text in runs["c/0"].config.values()} == {6000}
    # The first run of toy has no question.
    assert [file.read_text() for file in out.glob("*/tags/mlflow.note.content")] == ["Does it run?"]
    metas = [yaml.safe_load(file.read_text()) for file in out.glob("*/*/meta.yaml")]
    statuses = {meta["run_name"]: meta["status"] for meta in metas}
    expected = {"COMPLETED": 3, "FAILED": 4, "RUNNING": 1, "PENDING": 2, "BLOCKED": 2}
    for state in RunState:
        assert statuses[f"{state}/0"] == expected.get(state, 5)


@pytest.mark.parametrize(
    ("names", "files"),
    [
        (["loss", "loss/train"], ["loss_", "loss/train"]),
        (["a", "a/b", "a/b/c", "a_", "a/b_"], ["a_", "a/b_", "a/b/c", "a__", "a/b__"]),
        (["a?/x", "a!", "a_"], ["a_/x", "a__2", "a__"]),
        (["./a/b", "a/b", "a//b", "b/../a/b"], ["a/b_", "a/b", "a/b_2", "b/a/b"]),
        (["x" * 300, "x" * 301], ["x" * 240, "x" * 240 + "_"]),
        (["λ" * 300, "aλ" * 200], ["λ" * 120, "aλ" * 80]),
    ],
)
def test_mlflow_keys_with_the_same_file(out, names, files):
    metrics = {name: [float(i)] for i, name in enumerate(names)}
    (run,) = written("mlflow", out, result(metrics=metrics)).values()
    assert last(run) == dict(zip(files, range(9), strict=False))


def hostile() -> ExportedRun:
    """A run with every hostile name as metric, score, key of the config, and tag."""
    values = {name: float(number) for number, name in enumerate(HOSTILE)}
    scores = [Score(name, "m", 0, value) for name, value in values.items()]
    metrics = {name: [value] for name, value in values.items()}
    return result(metrics=metrics, scores=scores, config=values, tags=HOSTILE)


def test_hostile_names(out):
    one = hostile()
    others = [result(name, experiment=name) for name in HOSTILE]
    run = written("mlflow", out, one, *others)[one.title]
    values = {name: curve[0] for name, curve in one.curves().items()}
    assert sorted(last(run).values()) == sorted(values.values())
    for name in last(run):  # MLflow accepts it
        assert re.fullmatch(r"[/\w.\- :]+", name) and posixpath.normpath(name) == name
        assert not name.startswith(("..", "/")) and name != "."
    assert sorted(flat(run.config).values()) == sorted(one.config.values())
    assert len(tags(run)) >= len(HOSTILE)
    events = out.with_name("events")
    run = written("tensorboard", events, one, *others)["toy/joint/0"]
    assert last(run) == values and flat(run.config).keys() == flat(one.config).keys()
    folders = {file.parent.relative_to(events).as_posix() for file in events.rglob("*tfevents*")}
    assert len(folders) == 1 + len(HOSTILE)
    assert all(re.fullmatch(r"[^/.][^/]*/[^/.][^/]*/0", folder) for folder in folders)
    assert {path.name for path in out.parent.iterdir()} == {"out", "events"} and not recorded.LED_OUT.exists()


def test_tensorboard(stored, out):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    runs = written("tensorboard", out, *stored.values())
    assert set(runs) == {f"toy/{title}" for title in stored}
    joint, broken, waiting = (runs[f"toy/{title}"] for title in (f"{LABEL}/0", "broken/0", "waiting/0"))
    exact = stored[f"{LABEL}/0"].curves().items()
    assert as_text(joint.metrics) == as_text(
        {name: {step: float(np.float32(value)) for step, value in curve.items()} for name, curve in exact}
    )
    assert joint.config == {
        "steps": 20, "lr": 0.1, "flip": True, "warmup": "None", "optimizer": "adam λ", "empty": "{}",
        "model": {"width": 64, "layers": "[1, 'two', None]", "head": {"bias": False}}, "ratio": 0.5,
    }  # fmt: skip
    assert (joint.state, broken.state, waiting.state) == ("COMPLETED", "FAILED", "RUNNING")
    assert runs[f"toy/{LABEL}/1"].config["seed"] == 1 and waiting.config == {"steps": 4}
    texts = {
        "state": "COMPLETED", "label": LABEL, "fingerprint": JOINT.fingerprint, "tags": "good=yes, keep",
        "notes": "First λ.\n\nSecond:\ntwo lines.",
    }  # fmt: skip
    shown = EventAccumulator(str(out / "toy" / LABEL / "0"), {"scalars": 0}).Reload()
    for name, text in texts.items():
        [event] = shown.Tensors(f"jestlab/{name}/text_summary")
        assert event.tensor_proto.string_val[0].decode() == text
    began = stored[f"{LABEL}/0"].began
    assert shown.FirstEventTimestamp() == began.replace(tzinfo=UTC).timestamp()
    assert set(shown.Tags()["scalars"]) == set(recorded.CURVES)


def test_parquet(stored, out):
    export.write("parquet", stored.values(), out)
    assert recorded.files_below(out) == {f"{name}.parquet" for name in TABLES}
    runs, metrics, scores = (pq.read_table(out / f"{name}.parquet").to_pylist() for name in TABLES)
    expected: dict[str, list[Any]] = {"metrics": [], "scores": []}
    for row, one in zip(runs, stored.values(), strict=True):
        assert row == {name: getattr(one, name) for name in row} | {"config": json.dumps(one.config)}
        key = [row[name] for name in ("experiment", "label", "seed", "fingerprint")]
        for name, points in as_text(one.metrics).items():
            expected["metrics"] += [[*key, name, step, float(value)] for step, value in points]
        expected["scores"] += [[*key, *score] for score in one.scores]
    found = {"metrics": metrics, "scores": scores}
    assert repr({name: [[*row.values()] for row in rows] for name, rows in found.items()}) == repr(expected)


def test_parquet_types_do_not_depend_on_the_values(out):
    unknown: dict[str, Any] = {"began": None, "ended": None, "commit": None}
    scores = [Score("a", "b", 2**40, math.nan), Score("a", "b", 2**41, 1, 2**53 + 1, 2, 3)]
    full = result(metrics={"loss": [math.nan, 1.0]}, scores=scores, tags=["t"], notes=["n"], **unknown)
    schemas = []
    for name, one in (("full", full), ("empty", result(**unknown))):
        export.write("parquet", [one], out / name)
        schemas.append([pq.read_schema(out / name / f"{table}.parquet") for table in TABLES])
    assert schemas[0] == schemas[1]
    runs, metrics, rows = (pq.read_table(out / "full" / f"{name}.parquet") for name in TABLES)
    assert [runs[name].null_count for name in ("reason", "began", "ended", "commit")] == [1, 1, 1, 1]
    assert metrics["value"].null_count == 0 and repr(metrics["value"].to_pylist()) == "[nan, 1.0]"
    assert rows["value"].null_count == 0 and rows["step"].to_pylist() == [2**40, 2**41]
    assert rows["examples_seen"].to_pylist() == [None, 2**53 + 1]
