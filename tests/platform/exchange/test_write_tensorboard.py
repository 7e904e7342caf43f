"""Results as event files, read back by TensorBoard and by our reader."""

import errno
import math
import re
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.platform.exchange import recorded
from tests.platform.exchange.recorded import HOSTILE, JOINT, LABEL, files_below, only, result

from jestlab.platform.errors import UserError
from jestlab.platform.exchange import export as writers
from jestlab.platform.exchange import export_read as results
from jestlab.platform.exchange.export_read import ExportedRun
from jestlab.platform.exchange.source_run import Score

event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
from tensorboard.plugins.hparams import metadata  # noqa: E402
from tensorboard.plugins.hparams.api_pb2 import Status  # noqa: E402


def written(out: Path, *runs: ExportedRun) -> dict[str, Any]:
    """Write runs, and open each by TensorBoard: folder → what is in it."""
    writers.write("tensorboard", runs, out)
    found = {}
    for file in sorted(out.rglob("*tfevents*")):
        folder = file.parent.relative_to(out).as_posix()
        assert folder not in found, "two files of one run"
        # 0: all points, without a sample of them.
        found[folder] = event_accumulator.EventAccumulator(str(file.parent), {"scalars": 0}).Reload()
    return found


def curves(run: Any) -> recorded.Curves:
    return {
        name: [(point.step, repr(point.value)) for point in run.Scalars(name)]
        for name in run.Tags()["scalars"]
    }


def text(run: Any, name: str) -> str:
    """The text of a name; an empty one is not written."""
    tag = f"jestlab/{name}/text_summary"
    events = run.Tensors(tag) if tag in run.Tags()["tensors"] else []
    return "\n".join(event.tensor_proto.string_val[0].decode() for event in events)


def hparams(run: Any) -> tuple[dict[str, Any], str, list[str]]:
    """Hyperparameters, how the run ended, and the names of the metrics to show beside."""
    tags = run.summary_metadata
    content = {tag: tags[tag].plugin_data.content for tag in tags if tag.startswith("_hparams_")}
    start = metadata.parse_session_start_info_plugin_data(content["_hparams_/session_start_info"])
    end = metadata.parse_session_end_info_plugin_data(content["_hparams_/session_end_info"])
    experiment = metadata.parse_experiment_plugin_data(content["_hparams_/experiment"])
    values = {key: getattr(value, value.WhichOneof("kind")) for key, value in start.hparams.items()}
    return values, Status.Name(end.status), [one.name.tag for one in experiment.metric_infos]


def as_float32(curves: recorded.Curves) -> recorded.Curves:
    return {
        name: [(step, repr(float(np.float32(value)))) for step, value in points]
        for name, points in curves.items()
    }


def test_a_study_is_read_back_whole(recorded_sqlite, out):
    stored = {(one.label, one.seed): one for one in results.read(recorded_sqlite, ["toy"])}
    runs = written(out, *stored.values())
    assert set(runs) == {f"toy/{label}/{seed}" for label, seed in stored}
    joint = runs[f"toy/{LABEL}/0"]
    assert curves(joint) == curves(runs["toy/baseline/0"]) == as_float32(recorded.CURVES)
    values, status, names = hparams(joint)
    assert values == {
        "steps": 20, "lr": 0.1, "flip": True, "warmup": "None", "optimizer": "adam λ", "empty": "{}",
        "model.width": 64, "model.layers": "[1, 'two', None]", "model.head.bias": False, "ratio": 0.5,
    }  # fmt: skip
    assert (status, set(names)) == ("STATUS_SUCCESS", set(recorded.SCORES))
    assert (text(joint, "state"), text(joint, "label")) == ("COMPLETED", LABEL)
    assert text(joint, "fingerprint") == JOINT.fingerprint
    assert text(joint, "tags") == "good=yes, keep"
    assert text(joint, "notes") == "First λ.\n\nSecond:\ntwo lines."
    began = stored[LABEL, 0].began
    assert began is not None and joint.FirstEventTimestamp() == began.replace(tzinfo=UTC).timestamp()

    assert curves(runs[f"toy/{LABEL}/1"]) == {"loss": [(1, "-inf")]}
    assert hparams(runs[f"toy/{LABEL}/1"])[0]["seed"] == 1
    broken, waiting = runs["toy/broken/0"], runs["toy/waiting/0"]
    assert (curves(broken), hparams(broken)[1]) == ({}, "STATUS_FAILURE")
    assert (text(broken, "state"), text(broken, "reason")) == ("FAILED", "ValueError: no")
    assert (curves(waiting), hparams(waiting)[:2]) == ({}, ({"steps": 4}, "STATUS_RUNNING"))


def test_many_points_and_numbers_out_of_range(out):
    values = [*np.random.default_rng(0).normal(size=12_000), 1e300, -1e300, 1e-300]
    (run,) = written(out, result(metrics={"loss": values})).values()
    found = [point.value for point in run.Scalars("loss")]
    assert found[:12_000] == [float(np.float32(value)) for value in values[:12_000]]
    assert found[12_000:] == [math.inf, -math.inf, 0.0]
    assert [point.step for point in run.Scalars("loss")] == list(range(len(values)))


@pytest.mark.parametrize(
    ("labels", "folders"),
    [
        (["a/b", "a-b", "a//b", "a\\b"], ["a-b", "a-b_", "a-b_2", "a-b_3"]),
        (["x" * 300, "x" * 301, "λ" * 300], ["x" * 200, "x" * 200 + "_", "λ" * 100]),
        (["..", ". .", "\\", "."], ["-", "-_", "-_2", "-_3"]),
    ],
)
def test_labels_that_map_to_the_same_folder(out, labels, folders):
    made = [
        result(label, seed=seed, metrics={"loss": [number, seed]})
        for seed in (0, 1)
        for number, label in enumerate(labels)
    ]
    runs = written(out, *made)
    assert set(runs) == {f"toy/{folder}/{seed}" for folder in folders for seed in (0, 1)}
    for number, folder in enumerate(folders):
        for seed in (0, 1):
            run = runs[f"toy/{folder}/{seed}"]
            assert curves(run) == {"loss": [(0, repr(float(number))), (1, repr(float(seed)))]}
            assert text(run, "label") == labels[number]


def test_hostile_names(out):
    one = result(
        metrics={name: [number] for number, name in enumerate(HOSTILE)},
        scores=[Score(name, "m", 0, 0.5, None, None, None) for name in HOSTILE],
        config=dict.fromkeys(HOSTILE, 0.5),
    )
    runs = written(out, one, *(result(name, experiment=name) for name in HOSTILE))
    assert len(runs) == 1 + len(HOSTILE)
    found = runs.pop("toy/joint/0")
    assert curves(found) == recorded.as_text(one.curves())
    assert hparams(found)[0] == one.config
    assert sorted(text(run, "label") for run in runs.values()) == sorted(HOSTILE)
    assert all(re.fullmatch(r"[^/.][^/]*/[^/.][^/]*/0", folder) for folder in runs)
    assert only(out.parent, out)


def test_reports_a_full_disk(out, monkeypatch):
    """A thread that writes would end without an error."""
    from tensorboardX.record_writer import RecordWriter

    def full(writer, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RecordWriter, "write", full)
    with pytest.raises(UserError, match=r"cannot write .*/out: No space left on device"):
        writers.write("tensorboard", [result()], out)
    assert files_below(out.parent) == set()
