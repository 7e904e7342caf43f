"""Write runs as TensorBoard event files, a folder for each: EXPERIMENT/LABEL/SEED."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jestlab.analysis.configs import flat
from jestlab.platform.exchange.export_read import ExportedRun, free_name, shorten
from jestlab.platform.store.records import RunState

_UNSAFE = re.compile(r"[^\w.=,+ ()-]+")
_MOST_NAME_BYTES = 200

_STATUS = {
    RunState.COMPLETED: "STATUS_SUCCESS",
    RunState.RUNNING: "STATUS_RUNNING",
    RunState.PENDING: "STATUS_RUNNING",
    RunState.BLOCKED: "STATUS_RUNNING",
}
"""Status in the HParams plugin; all other states are STATUS_FAILURE."""


def write(runs: Iterable[ExportedRun], folder: Path) -> None:
    """Write runs to an existing folder.

    Curves are scalars in float32, and configs are hyperparameters with dots in their keys. State, reason,
    label, fingerprint, tags, and notes are texts named jestlab/…. Unsafe characters in folder names are
    replaced, and long names are cut; folders with the same name get an underscore and a number. All events
    have the start time of the run, except the last, which has the end time and the state.
    """
    # NOTE: this imports tensorboardX without PyTorch, so it must come before other imports of tensorboardX.
    import jestlab.models.training.events  # noqa: F401

    folders: dict[tuple[str, ...], Path] = {(): folder}
    for run in runs:
        names = (run.experiment, run.label)
        for place in (names[:1], names):
            if place not in folders:
                folders[place] = _new_folder(folders[place[:-1]], place[-1])
        _write_run(_new_folder(folders[names], str(run.seed)), run)


def _write_run(folder: Path, run: ExportedRun) -> None:
    # NOTE: `SummaryWriter` has a thread that ends without an error when the disk is full.
    from tensorboardX.record_writer import RecordWriter

    with closing(RecordWriter(str(folder / f"events.out.tfevents.{_seconds(run.began):.0f}"))) as file:
        for event in _events(run):
            file.write(event.SerializeToString())


def _events(run: ExportedRun) -> Iterator[Any]:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData, SessionEndInfo
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.summary import hparams, text

    began = _seconds(run.began)
    config = {
        key: value if isinstance(value, bool | int | float | str) else str(value)
        for key, value in flat(dict(run.config)).items()
    }
    experiment, start, end = hparams(config, dict.fromkeys(score.name for score in run.scores))
    status = SessionEndInfo(status=_STATUS.get(run.state, "STATUS_FAILURE"))
    content = HParamsPluginData(session_end_info=status).SerializeToString()
    end.value[0].metadata.plugin_data.content = content
    yield Event(wall_time=began, file_version="brain.Event:2")
    yield Event(wall_time=began, summary=experiment)
    yield Event(wall_time=began, summary=start)
    about = {
        "state": str(run.state), "reason": run.reason, "label": run.label, "fingerprint": run.fingerprint,
        "tags": ", ".join(run.tags), "notes": "\n\n".join(run.notes),
    }  # fmt: skip
    for name, value in about.items():
        if value:
            yield Event(wall_time=began, summary=text(f"jestlab/{name}", value))
    for name, (steps, values) in run.curves().items():
        for step, number in zip(steps.tolist(), values.tolist(), strict=True):
            point = Summary.Value(tag=name, simple_value=number)
            yield Event(wall_time=began, step=step, summary=Summary(value=[point]))
    yield Event(wall_time=_seconds(run.ended) or began, summary=end)


def _seconds(time: datetime | None) -> float:
    return 0.0 if time is None else time.replace(tzinfo=UTC).timestamp()


def _new_folder(above: Path, name: str) -> Path:
    part = shorten(_UNSAFE.sub("-", name).strip(". "), _MOST_NAME_BYTES) or "-"
    folder = above / free_name(above, part)
    folder.mkdir()
    return folder
