from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboardX import SummaryWriter
from tests.platform.exchange.recorded import raise_error

from jestlab.platform.errors import UserError
from jestlab.platform.exchange import read_tensorboard as tensorboard
from jestlab.platform.exchange.source_run import AdoptOptions, MetricLog, SourceRun

tb_writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
from tensorboard.compat.proto.event_pb2 import Event  # noqa: E402
from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: E402
from tensorboard.plugins.scalar.metadata import create_summary_metadata  # noqa: E402
from tensorboard.util.tensor_util import make_tensor_proto  # noqa: E402


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Event files as tensorboardX writes them: simple values, and hyperparameters in a folder inside."""
    with SummaryWriter(str(tmp_path / "logs" / "pilot" / "a")) as writer:
        for step in range(4):
            writer.add_scalar("loss/train", 1 / (step + 1), 10 * step)
        writer.add_scalar("loss/train", float("nan"), 30)
        writer.add_text("notes", "no number", 0)
        writer.add_histogram("weights", [1.0, 2.0], 0)
        writer.add_hparams({"lr": 0.5, "model.width": 64, "optimizer": "adam", "flip": True}, {"final": 0.75})
    with SummaryWriter(str(tmp_path / "logs" / "b")) as writer:
        writer.add_scalar("loss/train", 2.0, 1)
    return tmp_path / "logs"


def event_file(folder: Path) -> Path:
    (file,) = (path for path in folder.iterdir() if path.is_file())
    return file


def by_name(path: Path) -> dict[str, SourceRun]:
    return {run.name: run for run in tensorboard.read(path, raise_error, AdoptOptions())}


def write_values(folder: Path, *steps: list[Any]) -> None:
    """Write values at the steps 0, 1, …"""
    writer = tb_writer.EventFileWriter(str(folder))
    for step, values in enumerate(steps):
        writer.add_event(Event(step=step, wall_time=1.7e9 + step, summary=Summary(value=values)))
    writer.close()


def test_each_folder_is_a_run(logs):
    runs = by_name(logs)
    assert list(runs) == ["b", "pilot/a"]
    run = runs["pilot/a"]
    assert run.origin == "tensorboard:logs/pilot/a"
    assert list(run.metrics) == ["final", "loss/train"]
    assert [*run.metrics["loss/train"]] == [0, 10, 20, 30]
    assert [*run.metrics["loss/train"].values()][:2] == [1, 0.5]
    assert str(run.metrics["loss/train"][30]) == "nan"
    assert run.config == {"lr": 0.5, "model": {"width": 64.0}, "optimizer": "adam", "flip": True}
    assert run.state == "COMPLETED"
    assert run.host is not None and run.host in event_file(logs / "b").name
    assert run.began is not None and run.ended is not None and run.began <= run.ended
    assert runs["b"].config == {}
    (run,) = tensorboard.read(logs / "pilot" / "a", raise_error, AdoptOptions())
    assert (run.name, run.origin) == ("a", "tensorboard:a")
    origins = [run.origin for run in tensorboard.read(logs, raise_error, AdoptOptions(source="old"))]
    assert origins == ["tensorboard:old/b", "tensorboard:old/pilot/a"]


def test_scalars_as_tensors(tmp_path):
    """TensorFlow 2 names the plugin only with the first value of a tag."""
    steps = []
    for value, metadata in ((0.5, create_summary_metadata("", "")), (0.25, None)):
        tensor = make_tensor_proto(value, dtype="float64")
        loss = Summary.Value(tag="loss", tensor=tensor, metadata=metadata)
        steps.append([loss, Summary.Value(tag="other", tensor=tensor)])
    huge = make_tensor_proto(1.0, dtype="float32")
    huge.tensor_shape.dim.add(size=2**40)
    write_values(tmp_path / "run", *steps, [Summary.Value(tag="loss", tensor=huge)])
    (run,) = tensorboard.read(tmp_path, raise_error, AdoptOptions())
    assert list(run.metrics) == ["loss"]
    assert [*run.metrics["loss"]] == [0, 1]
    assert [*run.metrics["loss"].values()] == [0.5, 0.25]


@given(data=st.data())
def test_a_damaged_file_is_read_up_to_there_and_reported(tmp_path, logs, data):
    whole = event_file(logs / "pilot" / "a").read_bytes()
    folder = tmp_path / "damaged"
    folder.mkdir(exist_ok=True)
    changed = bytearray(whole[: data.draw(st.integers(1, len(whole)))])
    if data.draw(st.booleans()):
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        changed += bytes(data.draw(st.sampled_from([0, 40])))
    (folder / "events.out.tfevents.1700000000.x").write_bytes(changed)
    try:
        (run,) = tensorboard.read(folder, raise_error, AdoptOptions())
    except UserError as error:
        assert "\n" not in str(error)
        return
    steps = [*run.metrics["loss/train"]] if run.metrics else []
    assert steps == [0, 10, 20, 30][: len(steps)]
    assert run.left_out or whole.startswith(changed)


def test_a_restarted_writer_replaces_what_tensorboard_replaces(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = str(tmp_path / "run")
    with SummaryWriter(folder) as writer:
        for step in range(10):
            writer.add_scalar("loss", step / 10, step)
            writer.add_scalar("other", step, step)
    with SummaryWriter(folder, purge_step=5, filename_suffix=".2") as writer:
        for step in (5, 6, 7):
            writer.add_scalar("loss", 0.55, step)
    (run,) = tensorboard.read(tmp_path, raise_error, AdoptOptions())
    theirs = EventAccumulator(folder)
    theirs.Reload()
    for tag, curve in run.metrics.items():
        points = [(event.step, event.value) for event in theirs.Scalars(tag)]
        assert [*curve.items()] == points
    assert [*run.metrics["loss"]] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert run.left_out == {MetricLog.REPLACED: 10}


def test_a_restart_keeps_the_results_of_hyperparameters_which_replace_no_curve(tmp_path):
    for first in (0, 2):
        with SummaryWriter(tmp_path / "run", purge_step=first, filename_suffix=f".{first}") as writer:
            for step in range(first, 4):
                writer.add_scalar("loss", 1.0 + first, step)
            writer.add_hparams({"lr": 0.5}, {"final": 0.25, "loss": 9.0})
    [run] = tensorboard.read(tmp_path, raise_error, AdoptOptions())
    assert [*run.metrics["final"].values()] == [0.25]
    assert [*run.metrics["loss"].values()] == [1.0, 1.0, 3.0, 3.0]
    assert run.left_out[MetricLog.REPLACED] >= 2
