"""Reads runs from TensorBoard's event files."""

from __future__ import annotations

import os
import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jestlab.platform.errors import UserError
from jestlab.platform.exchange.damage import Damaged, attempted, refuse
from jestlab.platform.exchange.source_run import FoundRun, Points, State, nested, utc
from jestlab.platform.words import on_one_line

_EVENT_FILE = re.compile(r".*\.tfevents\.\d+(?:\.(?P<host>.+?))?(?:\.\d+\.\d+)?(?:\.v2)?")
_MADE_BY_ADD_HPARAMS = re.compile(r"\d{9,}(\.\d+)?")
_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_CHECKED_BYTES = 1 << 16
_START = 1  # of SessionLog's statuses
_NO_STEP = 2**63  # later than any step
_STATES: dict[int, State] = {2: "FAILED", 3: "RUNNING"}


def read(path: Path, damaged: Damaged = refuse, source: str | None = None) -> Iterator[FoundRun]:
    """Yield the runs below a folder: each folder that has event files is one, named by its path.

    Scalars become metrics, and the hyperparameters of the HParams plugin the config, nested by their dots.
    The folder that `add_hparams` of PyTorch and of tensorboardX makes in a run's folder, named by the time,
    belongs to that run. Event files do not say how a run ended: unless the HParams plugin does, it is
    COMPLETED.

    An event file that ends amid an event, as after a kill, lacks that event alone. A restarted writer
    replaces all points from its `purge_step` on. Without that mark, see `Points.curves`.

    Args:
        path: The folder.
        damaged: Told of a run of which a file is damaged before its end; the run is left out.
        source: Name of the folder in the origins of its runs; None for its own.

    Raises:
        UserError: There are no event files.
    """
    if not path.is_dir():
        raise UserError(f"{path}: no such folder: expected a folder with event files of TensorBoard below it")
    folders = _event_folders(path)
    if not folders:
        raise UserError(f"{path}: no event files of TensorBoard (events.out.tfevents.…) below it")
    # NOTE: it imports tensorboardX without PyTorch, so it has to be imported before anything of tensorboardX.
    import jestlab.models.training.events  # noqa: F401

    inner = defaultdict[Path, list[Path]](list)
    for folder in folders:
        if _belongs_to_parent(folder, folders):
            inner[folder.parent].append(folder)
    for folder in folders:
        if _belongs_to_parent(folder, folders):
            continue
        results = [file for one in inner[folder] for file in folders[one]]
        read_run = partial(_Log().run, results, folders[folder], path, folder, source)
        if (run := attempted(damaged, folder, read_run)) is not None:
            yield run


def _event_folders(path: Path) -> dict[Path, list[Path]]:
    """Return the folders that have event files, with those in the order in which they were begun."""
    found = {}
    for folder, below, names in os.walk(path, followlinks=False):
        below.sort()
        files = [Path(folder, name) for name in sorted(names) if _EVENT_FILE.fullmatch(name)]
        if own := [file for file in files if file.is_file() and not file.is_symlink()]:
            found[Path(folder)] = own
    return found


def _belongs_to_parent(folder: Path, folders: dict[Path, list[Path]]) -> bool:
    return folder.parent in folders and _MADE_BY_ADD_HPARAMS.fullmatch(folder.name) is not None


class _Log:
    """What the event files of a run tell of it."""

    def __init__(self) -> None:
        self.began: float | None = None
        self.ended: float | None = None
        self.host: str | None = None
        self.group: str | None = None
        self.status = 0
        self.config: dict[str, Any] = {}
        self.plugins: dict[str, str] = {}
        self.points = Points()

    def read(self, file: Path) -> None:
        matched = _EVENT_FILE.fullmatch(file.name)
        self.host = self.host or (matched and matched["host"])
        from google.protobuf.message import DecodeError
        from tensorboardX.proto.event_pb2 import Event

        # Of all values that a tag has, the first alone says which plugin it is of.
        self.plugins = {}
        for offset, record in _records(file):
            try:
                self._absorb(Event.FromString(record))
            except (DecodeError, ValueError, TypeError) as error:
                raise UserError(
                    on_one_line(f"{file}: the event at byte {offset} is not valid ({error}): {_REMEDY}")
                ) from error

    def run(
        self, results: Iterable[Path], files: Iterable[Path], root: Path, folder: Path, source: str | None
    ) -> FoundRun:
        # The results in inner folders are at step 0: they replace no curve, and no restart replaces them.
        for file in results:
            self.read(file)
        points, self.points = self.points, Points()
        for file in files:
            self.read(file)
        points.restart(_NO_STEP, self.points)
        relative, source = folder.relative_to(root), source or root.resolve().name
        return FoundRun(
            origin=f"tensorboard:{(source / relative).as_posix()}",
            name=relative.as_posix() if relative.parts else source,
            config=nested(self.config),
            metrics=points.curves(),
            state=_STATES.get(self.status, "COMPLETED"),
            began=None if self.began is None else utc(self.began),
            ended=None if self.ended is None else utc(self.ended),
            group=self.group,
            host=self.host,
            seconds=None if self.began is None or self.ended is None else self.ended - self.began,
            left_out=points.left_out,
        )

    def _absorb(self, event: Any) -> None:
        if event.wall_time > 0:
            self.began = min(self.began or event.wall_time, event.wall_time)
            self.ended = max(self.ended or event.wall_time, event.wall_time)
        if event.HasField("session_log") and event.session_log.status == _START:
            self.points.restart(event.step)
        for value in event.summary.value:
            plugin = value.metadata.plugin_data
            if plugin.plugin_name == "hparams":
                self._absorb_hparams(plugin.content)
                continue
            if plugin.plugin_name:
                self.plugins.setdefault(value.tag, plugin.plugin_name)
            point = None
            if value.HasField("simple_value"):
                point = value.simple_value
            elif value.HasField("tensor") and self.plugins.get(value.tag) == "scalars":
                point = _scalar(value.tensor)
            if point is not None:
                self.points.add(value.tag, event.step, point, event.wall_time)

    def _absorb_hparams(self, content: bytes) -> None:
        from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

        data = HParamsPluginData.FromString(content)
        if data.HasField("session_start_info"):
            self.group = data.session_start_info.group_name or self.group
            for key, value in data.session_start_info.hparams.items():
                kind = value.WhichOneof("kind")
                if kind in ("number_value", "string_value", "bool_value", "null_value"):
                    self.config[key] = None if kind == "null_value" else getattr(value, kind)
        if data.HasField("session_end_info"):
            self.status = data.session_end_info.status


# Of `DataType` in TensorFlow's types.proto: the NumPy type of a tensor's content, and where its values are.
_DTYPES = {
    1: ("<f4", "float_val"), 2: ("<f8", "double_val"), 3: ("<i4", "int_val"), 9: ("<i8", "int64_val"),
    19: ("<f2", None), 10: ("?", "bool_val"),
}  # fmt: skip


def _scalar(tensor: Any) -> float | None:
    """Return the number in a tensor; None if it is none, or several."""
    # NOTE: a tensor of a few bytes may claim a shape that would fill the memory.
    if any(dimension.size != 1 for dimension in tensor.tensor_shape.dim) or tensor.dtype not in _DTYPES:
        return None
    dtype, values = _DTYPES[tensor.dtype]
    if tensor.tensor_content:
        content = np.frombuffer(tensor.tensor_content, dtype)
    elif values is not None:
        content = np.asarray(getattr(tensor, values), np.float64)
    else:  # the bits of numbers of 16 bits
        content = np.asarray(tensor.half_val, "<u2").view(dtype)
    return float(content[0]) if len(content) == 1 else None


# ---- files of records


def _records(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the records of a TFRecord file: length, its checksum, data, their checksum.

    The checksums of data longer than a scalar ever is are not verified: in Python that takes seconds.
    """
    from tensorboardX.record_writer import masked_crc32c

    size = file.stat().st_size
    with file.open("rb") as stream:
        offset = 0
        while len(header := stream.read(_LENGTH.size + _CRC.size)) == _LENGTH.size + _CRC.size:
            (length,) = _LENGTH.unpack_from(header)
            (crc,) = _CRC.unpack_from(header, _LENGTH.size)
            if crc != masked_crc32c(header[: _LENGTH.size]):
                if not any(header) and _is_zero(stream):
                    # A disk that lost power leaves zeros where the file was to be written.
                    return
                raise UserError(f"{file}: damaged at byte {offset}: a checksum is wrong: {_REMEDY}")
            if offset + len(header) + length + _CRC.size > size:
                return
            data, written = stream.read(length), stream.read(_CRC.size)
            if len(written) < _CRC.size:
                return
            if length <= _CHECKED_BYTES and _CRC.unpack(written)[0] != masked_crc32c(data):
                raise UserError(f"{file}: damaged at byte {offset}: a checksum is wrong: {_REMEDY}")
            yield offset, data
            offset += len(header) + length + _CRC.size


def _is_zero(stream: BinaryIO) -> bool:
    while block := stream.read(1 << 20):
        if any(block):
            return False
    return True


_REMEDY = "copy it again, or move it away"
