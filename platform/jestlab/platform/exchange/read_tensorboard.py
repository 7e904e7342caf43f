"""Read runs from TensorBoard event files. Needs the extra `jestlab[adopt]`."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jestlab.platform.dependencies import check
from jestlab.platform.errors import UserError
from jestlab.platform.exchange.source_run import (
    AdoptOptions,
    MetricLog,
    Report,
    SourceRun,
    State,
    nested,
    report_errors,
    utc,
)

_EVENT_FILE = re.compile(r".*\.tfevents\.\d+(?:\.(?P<host>.+?))?(?:\.\d+\.\d+)?(?:\.v2)?")
_HPARAMS_FOLDER = re.compile(r"\d{9,}(\.\d+)?")
_STATES: dict[int, State] = {2: "FAILED", 3: "RUNNING"}
_NUMBER_TYPES = (1, 2, 3, 9, 10, 19)  # float, double, int32, int64, bool, half
_RECORD_OVERHEAD_BYTES = 16  # length and two checksums


def read(path: Path, report: Report, options: AdoptOptions) -> Iterator[SourceRun]:
    """Yield the runs in and below a folder: each folder with event files is a run, named by its path.

    Scalars become metrics, and the hyperparameters of the HParams plugin become the config. PyTorch and
    tensorboardX write hyperparameters to a subfolder that is named by the time; it belongs to the run of its
    parent folder. Runs are COMPLETED unless the HParams plugin recorded another state.

    TensorBoard stops reading a file at a cut-off or damaged event. The bytes from there on are counted in
    `left_out`.

    Args:
        path: The folder.
        report: Receives the errors of runs that can't be read.
        options: `source` is the name of the folder in the origins of its runs, by default its own name.

    Raises:
        UserError: The folder has no event files, or TensorBoard isn't installed.
    """
    check("adopt")
    folders = {}
    for name, subfolders, files in os.walk(path):
        subfolders.sort()
        own = [Path(name, file) for file in sorted(files) if _EVENT_FILE.fullmatch(file)]
        if own := [file for file in own if file.is_file() and not file.is_symlink()]:
            folders[Path(name)] = own
    if not folders:
        raise UserError(f"{path}: no TensorBoard event files (events.out.tfevents.…) in or below this folder")
    runs: dict[Path, list[Path]] = {}
    for folder in folders:
        if _HPARAMS_FOLDER.fullmatch(folder.name) and folder.parent in folders:
            runs.setdefault(folder.parent, []).append(folder)
        else:
            runs[folder] = []
    for folder, hparams_folders in runs.items():
        hparams_files = [file for one in hparams_folders for file in folders[one]]
        relative, root = folder.relative_to(path), options.source or path.resolve().name
        origin = f"tensorboard:{(root / relative).as_posix()}"
        name = relative.as_posix() if relative.parts else root
        with report_errors(report, folder):
            yield _read_run(origin, name, folders[folder], hparams_files)


def _read_run(origin: str, name: str, files: list[Path], hparams_files: list[Path]) -> SourceRun:
    log, hparams_log = _EventLog(), _EventLog()
    for file in files:
        log.read(file)
    for file in hparams_files:
        hparams_log.read(file)
    curves = log.metrics.curves()
    matched = _EVENT_FILE.fullmatch(files[0].name)
    return SourceRun(
        origin=origin,
        name=name,
        config=nested(log.config | hparams_log.config),
        metrics=hparams_log.metrics.curves() | curves,
        state=_STATES.get(hparams_log.status or log.status, "COMPLETED"),
        began=utc(log.began),
        ended=utc(log.ended),
        group=log.group or hparams_log.group,
        host=matched and matched["host"],
        seconds=None if log.began is None or log.ended is None else log.ended - log.began,
        left_out=log.metrics.left_out + hparams_log.metrics.left_out,
    )


class _EventLog:
    """The contents of a run's event files."""

    def __init__(self) -> None:
        self.began: float | None = None
        self.ended: float | None = None
        self.group: str | None = None
        self.status = 0
        self.config: dict[str, Any] = {}
        self.metrics = MetricLog()

    def read(self, file: Path) -> None:
        from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
        from tensorboard.compat.proto.event_pb2 import Event

        bytes_read = 0
        plugins: dict[str, str] = {}  # tag → plugin; only the first value of a tag names it
        for record in RawEventFileLoader(str(file)).Load():
            bytes_read += len(record) + _RECORD_OVERHEAD_BYTES
            self._add(Event.FromString(record), plugins)
        if rest := file.stat().st_size - bytes_read:
            self.metrics.left_out[f"bytes of {file.name} from a cut-off or damaged event on"] += rest

    def _add(self, event: Any, plugins: dict[str, str]) -> None:
        from tensorboard.util.tensor_util import make_ndarray

        if event.wall_time > 0:
            self.began = min(self.began or event.wall_time, event.wall_time)
            self.ended = max(self.ended or event.wall_time, event.wall_time)
        if event.HasField("session_log") and event.session_log.status == event.session_log.START:
            self.metrics.drop_from(event.step)
        for value in event.summary.value:
            plugin = plugins.setdefault(value.tag, value.metadata.plugin_data.plugin_name)
            if plugin == "hparams":
                self._add_hparams(value.metadata.plugin_data.content)
            elif value.HasField("simple_value"):
                self.metrics.add(value.tag, event.step, value.simple_value)
            elif plugin == "scalars" and _is_scalar(value.tensor):
                self.metrics.add(value.tag, event.step, float(make_ndarray(value.tensor).item()))

    def _add_hparams(self, content: bytes) -> None:
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

        data = HParamsPluginData.FromString(content)
        self.group = data.session_start_info.group_name or self.group
        self.status = data.session_end_info.status or self.status
        for key, value in data.session_start_info.hparams.items():
            kind = value.WhichOneof("kind")
            if kind in ("number_value", "string_value", "bool_value", "null_value"):
                self.config[key] = None if kind == "null_value" else getattr(value, kind)


def _is_scalar(tensor: Any) -> bool:
    """Return whether a tensor is one number. A damaged one can have a shape that would fill the memory."""
    return tensor.dtype in _NUMBER_TYPES and all(one.size == 1 for one in tensor.tensor_shape.dim)
