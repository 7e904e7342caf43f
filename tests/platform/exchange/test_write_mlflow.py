"""Results as a file store of MLflow, read back by our reader (tested with what MLflow itself recorded)."""

import json
import posixpath
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest
import yaml
from tests.platform.exchange import recorded
from tests.platform.exchange.recorded import HOSTILE, JOINT, LABEL, as_text, only, result

from jestlab.analysis.configs import flat
from jestlab.platform.exchange import export as writers
from jestlab.platform.exchange import export_read as results
from jestlab.platform.exchange import read_mlflow as reader
from jestlab.platform.exchange.export_read import ExportedRun
from jestlab.platform.exchange.source_run import Score, SourceRun
from jestlab.platform.store.records import RunState

T = TypeVar("T")


def written(out: Path, *runs: ExportedRun) -> dict[str, SourceRun]:
    """Write runs and read them back, by name."""
    writers.write("mlflow", runs, out)
    return {run.name: run for run in reader.read(out)}


def curves(run: SourceRun) -> recorded.Curves:
    return as_text(run.metrics)


def tags(run: SourceRun) -> dict[str, str]:
    return dict(tag.partition("=")[::2] for tag in run.tags)


def originals(keys: str, kind: str, values: Mapping[str, T]) -> dict[str, T]:
    """Return values by their keys in the store, which the tag jestlab.keys records."""
    changed = json.loads(keys)[kind]
    return {changed.get(key, key): value for key, value in values.items()}


TITLES = {f"{LABEL}/0", f"{LABEL}/1", "baseline/0", "broken/0", "waiting/0"}

CHANGED = {"params": {}, "metrics": {"loss_": "loss"}, "tags": {"good_yes": "good=yes"}}
CURVES = {"loss_" if name == "loss" else name: points for name, points in recorded.CURVES.items()}
TAGS = {
    "good_yes": "true", "keep": "true", "jestlab.label": LABEL, "jestlab.seed": "0",
    "jestlab.fingerprint": JOINT.fingerprint, "jestlab.program": JOINT.program, "jestlab.state": "COMPLETED",
}  # fmt: skip


def test_a_study_is_read_back_whole(recorded_sqlite, out):
    stored = {one.title: one for one in results.read(recorded_sqlite, ["toy"])}
    runs = written(out, *stored.values())
    assert set(runs) == set(stored) == TITLES
    joint = runs[f"{LABEL}/0"]
    assert (joint.group, joint.state, joint.git_commit) == ("toy", "COMPLETED", None)
    assert joint.config == JOINT.config
    assert curves(joint) == CURVES
    found = tags(joint)
    assert json.loads(found.pop("jestlab.keys")) == CHANGED
    assert found == TAGS
    assert joint.notes == "First λ.\n\nSecond:\ntwo lines."
    for ours, theirs in ((stored[joint.name].began, joint.began), (stored[joint.name].ended, joint.ended)):
        assert ours is not None and theirs is not None
        assert timedelta(0) <= ours - theirs < timedelta(milliseconds=1)
    baseline = runs["baseline/0"]
    assert (baseline.config, curves(baseline)) == (joint.config, CURVES)
    assert baseline.origin != joint.origin

    assert curves(runs[f"{LABEL}/1"]) == {"loss": [(1, "-inf")]}
    assert runs[f"{LABEL}/1"].config == {**JOINT.config, "seed": 1}
    broken = runs["broken/0"]
    assert (broken.state, broken.metrics, broken.config) == ("FAILED", {}, {"steps": 3})
    assert tags(broken)["jestlab.reason"] == "ValueError: no"
    waiting = runs["waiting/0"]
    assert (waiting.state, waiting.began, waiting.ended) == ("RUNNING", None, None)
    assert tags(waiting)["jestlab.state"] == "PENDING"
    assert only(out.parent, out)


def test_missing_and_long_values(out):
    runs = written(
        out,
        result("a", commit="theirs", question="", tags=["only"]),
        result("b", config={}, began=None, ended=None, commit=None),
        result("c", config={"text": "x" * 7000, "list": ["y" * 7000]}, experiment="another"),
    )
    assert runs["a/0"].git_commit == "theirs" and tags(runs["a/0"])["only"] == "true"
    assert (runs["b/0"].config, runs["b/0"].began, runs["b/0"].seconds) == ({}, None, None)
    assert "jestlab.keys" not in tags(runs["a/0"]) | tags(runs["b/0"])
    assert {len(text) for text in runs["c/0"].config.values()} == {6000}  # as long as MLflow allows
    assert [runs[name].group for name in ("a/0", "b/0", "c/0")] == ["toy", "toy", "another"]
    told = {yaml.safe_load(file.read_text())["name"]: file.parent for file in out.glob("*/meta.yaml")}
    assert set(told) == {"toy", "another"}
    assert (told["another"] / "tags" / "mlflow.note.content").read_text() == "Does it run?"
    assert not (told["toy"] / "tags").exists()  # the first run of it had no question


def test_states(out):
    statuses = {
        RunState.COMPLETED: 3, RunState.FAILED: 4, RunState.CANCELLED: 5, RunState.PREEMPTED: 5,
        RunState.SKIPPED: 5, RunState.RUNNING: 1, RunState.PENDING: 2, RunState.BLOCKED: 2,
    }  # fmt: skip
    written(out, *(result(state, state=state) for state in statuses))
    metas = [yaml.safe_load(file.read_text()) for file in out.glob("*/*/meta.yaml")]
    found = {meta["run_name"]: meta["status"] for meta in metas}
    assert found == {f"{state}/0": status for state, status in statuses.items()}


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
def test_keys_that_map_to_the_same_file(out, names, files):
    (run,) = written(out, result(metrics={name: [float(i)] for i, name in enumerate(names)})).values()
    assert {name: curve[1][0] for name, curve in run.metrics.items()} == dict(
        zip(files, range(9), strict=False)
    )
    changed = {new: old for new, old in zip(files, names, strict=True) if new != old}
    assert json.loads(tags(run)["jestlab.keys"])["metrics"] == changed


def hostile() -> ExportedRun:
    """A run with every hostile name as metric, score, key of the config, and tag."""
    values = {name: float(number) for number, name in enumerate(HOSTILE)}
    return result(
        metrics={name: [value] for name, value in values.items()},
        scores=[Score(name, "m", 0, value, None, None, None) for name, value in values.items()],
        config=values,
        tags=HOSTILE,
    )


def test_hostile_keys(out):
    (run,) = written(out, one := hostile()).values()
    keys = tags(run)["jestlab.keys"]
    last = {name: curve[1][0] for name, curve in run.metrics.items()}
    assert originals(keys, "metrics", last) == {name: values[0] for name, (_, values) in one.curves().items()}
    for name in last:  # what MLflow accepts
        assert re.fullmatch(r"[/\w.\- :]+", name) and posixpath.normpath(name) == name
        assert not name.startswith(("..", "/")) and name != "."
    assert originals(keys, "params", flat(run.config)) == one.config
    assert set(HOSTILE) <= set(originals(keys, "tags", tags(run)))
    assert only(out.parent, out)
