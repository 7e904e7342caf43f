import json
import math
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.platform.exchange.make_data import DATA, written
from tests.platform.exchange.recorded import raise_error

from jestlab.platform.errors import UserError
from jestlab.platform.exchange import read_wandb as wandb
from jestlab.platform.exchange.read_wandb import _record_type, records
from jestlab.platform.exchange.source_run import MetricLog, SourceRun

(LOG,) = DATA.glob("wandb/*/run-abcd1234.wandb")
WHOLE = LOG.read_bytes()


def record(**fields: Any) -> bytes:
    content: bytes = _record_type()(**fields).SerializeToString()
    return content


def item(path: str, value: Any = None) -> dict[str, Any]:
    """An item with a nested key; without a value, it is to be removed."""
    key: dict[str, Any] = {"nested_key": path.split("/")} if "/" in path else {"key": path}
    return key if value is None else key | {"value_json": json.dumps(value)}


START = record(run={"run_id": "x"})


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., SourceRun]:
    """Return a function that writes records to a log and reads the run."""

    def read(*made: bytes) -> SourceRun:
        path = tmp_path / "run-x.wandb"
        path.write_bytes(written(made))
        (run,) = wandb.read(path, raise_error)
        return run

    return read


def check(run: SourceRun) -> None:
    """Check the run that make_data.py logs."""
    assert run.origin == "wandb:lab/jest/abcd1234"
    assert (run.name, run.group, run.tags) == ("first try", "pilot", ("small", "old"))
    assert (run.notes, run.state, run.host) == ("Two lines:\nthis one.", "FAILED", "somewhere")
    assert run.config == {"lr": 0.1, "model": {"width": 128}, "warmup": None, "a.b": "text", "late": True}
    curves = {name: ([*curve], [*curve.values()]) for name, curve in run.metrics.items()}
    steps, losses = curves.pop("loss")
    assert steps == [0, 1, 2, 3, 4, 20] and math.isnan(losses[2])
    assert losses[:2] + losses[3:] == [1, 1 / 2, 1 / 4, 1 / 5, 7]
    assert curves == {
        "eval.best": (list(range(5)), [math.inf] * 5),
        "eval.top1": (list(range(5)), [step / 8 for step in range(5)]),
        "final": ([20], [0.75]),  # only in the summary: at the last step
    }
    assert run.began is not None and run.ended is not None and run.seconds is not None
    assert timedelta(0) < run.ended - run.began < timedelta(minutes=5) and 0 < run.seconds < 300


def test_reads_a_run_from_any_folder_around_it():
    for place in (".", "wandb", f"wandb/{LOG.parent.name}", f"wandb/{LOG.parent.name}/{LOG.name}"):
        (run,) = wandb.read(DATA / place, raise_error)
        check(run)
    assert written(records(LOG)) == WHOLE  # these tests write logs like the library


def test_a_killed_run_is_running_and_has_what_it_logged(tmp_path):
    (tmp_path / LOG.name).write_bytes(WHOLE[:-1])
    (run,) = wandb.read(tmp_path / LOG.name, raise_error)
    assert (run.state, run.ended) == ("RUNNING", None)
    assert [*run.metrics["loss"]] == [0, 1, 2, 3, 4, 20]


def test_a_resumed_run_is_one_and_runs_without_data_are_ignored(tmp_path):
    for name, length in (
        ("offline-run-20200101_000000-abcd1234", 1600),
        ("offline-run-20200102_000000-abcd1234", len(WHOLE)),
        ("run-20200101_000000-aaaaaaaa", 90),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"run-{name[-8:]}.wandb").write_bytes(WHOLE[:length])
    (run,) = wandb.read(tmp_path, raise_error)
    check(run)
    with pytest.raises(UserError, match="nothing to adopt"):
        list(wandb.read(tmp_path / name, raise_error))


def test_reads_the_machine_and_the_commit(log):
    environment = {"host": "somewhere", "device": "Fast", "git": {"commit": "c0ffee"}}
    run = log(START, record(environment=environment))
    assert (run.host, run.device, run.git_commit) == ("somewhere", "Fast", "c0ffee")


@pytest.mark.parametrize(
    ("code", "state"), [(0, "COMPLETED"), (1, "FAILED"), (255, "CANCELLED"), (-9, "FAILED")]
)
def test_states_by_exit_code(log, code, state):
    run = log(START, record(exit={"exit_code": code}))
    assert (run.origin, run.name, run.state) == ("wandb:-/-/x", "x", state)


def test_config_and_summary_can_be_nested_and_removed(log):
    run = log(
        START,
        record(config={"update": [item("model/width", 3), item("model/depth", 4), item("_wandb", 1)]}),
        record(config={"remove": [item("model/depth"), item("not/there")]}),
        record(summary={"update": [item("a", 1), item("loss/min", "NaN")], "remove": [item("a")]}),
        record(history={"item": [item("x", {"y": 2, "z": {"_type": "histogram"}}), item("_step", 7)]}),
    )
    assert run.config == {"model": {"width": 3}}
    steps = {name: [*curve] for name, curve in run.metrics.items()}
    assert steps == {"loss.min": [7], "x.y": [7]}


@pytest.mark.parametrize(
    "content",
    [
        b"\x0b",  # a group
        b"\xff" * 11,  # an endless number
        b"\x12\x7f",  # cut off
        record(history={"item": [{"key": "x", "value_json": "{"}]}),
        record(history={"item": [{"key": "x", "value_json": "[" * 100_000}]}),
        record(history={"item": [{"key": "x", "value_json": "9" * 5_000}]}),
        record(history={"item": [item("_step", 1.9)]}),
    ],
)
def test_rejects_invalid_records(log, content):
    with pytest.raises(UserError, match=r"run-x\.wandb: can't be read") as error:
        log(START, content)
    assert "\n" not in str(error.value)


def test_rejects_other_versions(tmp_path):
    (tmp_path / "a.wandb").write_bytes(WHOLE[:6] + b"\1")
    with pytest.raises(UserError, match="version 1"):
        list(wandb.read(tmp_path, raise_error))


LENGTHS = st.integers(0, len(WHOLE)) | st.just(len(WHOLE))


@given(LENGTHS, st.just(0) | st.integers(0, 40), st.integers(0, 255), st.floats(0, 1))
@example(0, 0, 0, 0)
@example(len(WHOLE), 0, 0, 0)
@example(len(WHOLE), 20, 0, 0)
def test_a_damaged_log_gives_a_prefix_or_an_error_of_one_line(tmp_path, length, zeros, flipped, share):
    changed = bytearray(WHOLE[:length] + bytes(zeros) * (length >= 7))
    if changed:
        changed[int(share * (len(changed) - 1))] ^= flipped
    path = tmp_path / LOG.name
    path.write_bytes(changed)
    whole = list(records(LOG))
    found: list[bytes] = []
    try:
        found.extend(records(path))
        assert (len(found) == len(whole)) == (changed[: len(WHOLE)] == WHOLE)
    except ValueError:
        assert flipped or zeros
    assert found == whole[: len(found)]
    try:
        assert len(list(wandb.read(path, raise_error))) <= 1
    except UserError as error:
        assert str(path) in str(error) and "\n" not in str(error)


@given(sizes=st.lists(st.sampled_from([0, 1, 30, 9000, 32_740, 32_747, 32_754, 32_761, 70_000]), max_size=8))
def test_records_over_blocks(tmp_path, sizes):
    path = tmp_path / "run-x.wandb"
    path.write_bytes(written([bytes([index + 1]) * size for index, size in enumerate(sizes)]))
    assert [len(content) for content in records(path)] == sizes


def attempt(folder: Path, number: int, steps: Iterable[int], **run: Any) -> None:
    """Write the log of an attempt whose losses are its number."""
    made = [record(run={"run_id": "abcd1234", **run})]
    made += [record(history={"item": [item("loss", number)], "step": {"num": step}}) for step in steps]
    made.append(record(summary={"update": [item(f"summary{number}", 1)]}))
    place = folder / f"run-2020010{number}_000000-abcd1234"
    place.mkdir()
    (place / LOG.name).write_bytes(written(made))


@pytest.mark.parametrize(("first", "kept"), [(0, 0), (6, 6), (20, 10)])
def test_a_run_that_was_started_again_or_rewound_has_only_the_later_history(tmp_path, first, kept):
    attempt(tmp_path, 1, range(10))
    attempt(tmp_path, 2, range(first, first + 2))
    (run,) = wandb.read(tmp_path, raise_error)
    assert [*run.metrics["loss"]] == [*range(kept), first, first + 1]
    assert [*run.metrics["loss"].values()] == [1] * kept + [2, 2]
    assert ("summary1" in run.metrics) == (kept > 0) and run.left_out == {MetricLog.REPLACED: 10 - kept}


def test_runs_of_two_projects_with_one_id_stay_apart(tmp_path):
    for number, project in enumerate("aba", start=1):
        attempt(tmp_path, number, [number], project=project)
    runs = {run.origin: [*run.metrics["loss"]] for run in wandb.read(tmp_path, raise_error)}
    assert runs == {"wandb:-/a/abcd1234": [1, 3], "wandb:-/b/abcd1234": [2]}
