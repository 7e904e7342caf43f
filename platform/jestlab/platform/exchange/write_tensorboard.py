"""Writes runs as TensorBoard's event files, a folder each: EXPERIMENT/LABEL/SEED."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jestlab.analysis.configs import flat
from jestlab.platform.exchange.export import Result
from jestlab.platform.exchange.file_names import free, short
from jestlab.platform.store.records import RunState

_UNSAFE = re.compile(r"[^\w.=,+ ()-]+")
_LONGEST_NAME_BYTES = 200

_STATUS = {
    RunState.COMPLETED: "STATUS_SUCCESS",
    RunState.RUNNING: "STATUS_RUNNING",
    RunState.PENDING: "STATUS_RUNNING",
    RunState.BLOCKED: "STATUS_RUNNING",
}
"""The HParams plugin's words; what is not here ended without a result: STATUS_FAILURE."""


def write(results: Iterable[Result], folder: Path) -> None:
    """Write runs below an existing folder.

    Curves are scalars, in float32 as TensorBoard has them; configs are hyperparameters, with dots in their
    keys. State, reason, label, fingerprint, tags and notes are texts named jestlab/…

    Characters that a folder's name should not have are replaced, and long names are cut; folders that would
    have the same name then get an underscore and a number.

    An event has a time, and the store has none for every point: all have that of the run's beginning, except
    the last, which says how the run ended.
    """
    # NOTE: it imports tensorboardX without PyTorch, so it has to be imported before anything of tensorboardX.
    import jestlab.models.training.events  # noqa: F401

    folders: dict[tuple[str, ...], Path] = {(): folder}
    for result in results:
        whose = (result.experiment, result.label)
        for names in (whose[:1], whose):
            if names not in folders:
                folders[names] = _new_folder(folders[names[:-1]], names[-1])
        _write_run(_new_folder(folders[whose], str(result.seed)), result)


def _write_run(folder: Path, result: Result) -> None:
    # NOTE: `SummaryWriter` has a thread that ends without a word when the disk is full.
    from tensorboardX.record_writer import RecordWriter

    with closing(RecordWriter(str(folder / f"events.out.tfevents.{_seconds(result.began):.0f}"))) as file:
        for event in _events(result):
            file.write(event.SerializeToString())


def _events(result: Result) -> Iterator[Any]:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData, SessionEndInfo
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.summary import hparams, text

    began = _seconds(result.began)
    config = {
        key: value if isinstance(value, bool | int | float | str) else str(value)
        for key, value in flat(dict(result.config)).items()
    }
    experiment, start, end = hparams(config, dict.fromkeys(score.name for score in result.scores))
    ended = HParamsPluginData(
        session_end_info=SessionEndInfo(status=_STATUS.get(result.state, "STATUS_FAILURE"))
    )
    end.value[0].metadata.plugin_data.content = ended.SerializeToString()

    yield Event(wall_time=began, file_version="brain.Event:2")
    yield Event(wall_time=began, summary=experiment)
    yield Event(wall_time=began, summary=start)
    about = {
        "state": str(result.state), "reason": result.reason, "label": result.label,
        "fingerprint": result.fingerprint, "tags": ", ".join(result.tags), "notes": "\n\n".join(result.notes),
    }  # fmt: skip
    for name, said in about.items():
        if said:
            yield Event(wall_time=began, summary=text(f"jestlab/{name}", said))
    for name, (steps, values) in result.curves().items():
        for step, value in zip(steps.tolist(), values.tolist(), strict=True):
            point = Summary.Value(tag=name, simple_value=value)
            yield Event(wall_time=began, step=step, summary=Summary(value=[point]))
    yield Event(wall_time=_seconds(result.ended) or began, summary=end)


def _seconds(time: datetime | None) -> float:
    return 0.0 if time is None else time.replace(tzinfo=UTC).timestamp()


def _new_folder(above: Path, name: str) -> Path:
    part = short(_UNSAFE.sub("-", name).strip(". "), _LONGEST_NAME_BYTES) or "-"
    made = above / free(above, part)
    made.mkdir()
    return made
