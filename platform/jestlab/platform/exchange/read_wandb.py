"""Read runs that W&B recorded on this machine, whether or not they were uploaded.

The package `wandb` has no reader in Python: its version 0.31 reads these files in a Go program that can only
upload them.

References:
    https://github.com/google/leveldb/blob/main/doc/log_format.md
    https://github.com/wandb/wandb/blob/main/wandb/proto/wandb_internal.proto
"""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from jestlab.platform.errors import UserError
from jestlab.platform.exchange.source_run import (
    MetricLog,
    Report,
    SourceRun,
    State,
    number,
    put,
    report_errors,
    utc,
    whole_number,
)
from jestlab.platform.spec.tree import without

_INTERNAL = ("_wandb", "_step", "_runtime", "_timestamp")


def read(path: Path, report: Report) -> Iterator[SourceRun]:
    """Yield the runs in a W&B folder.

    A log that ends with an incomplete record, because the process was killed, is read up to that record. A
    run that was resumed or rewound has several folders: each replaces the points of earlier folders from its
    own first step on. Numbers that are only in the summary become metrics with one point at the last step.
    Texts, media, and histograms are left out. A run without an exit code is RUNNING.

    Args:
        path: A folder `wandb`, or its parent; the folder of a run; or a file `run-ID.wandb`.
        report: Receives the errors of runs that can't be read.

    Raises:
        UserError: The path has no W&B logs.
    """
    has_runs = False
    for _, files in groupby(logs := _log_files(path), key=lambda file: file.name):
        group, runs = [*files], None
        with report_errors(report, group[0]):
            yield from (runs := _read_runs(group))
        has_runs |= runs != []
    if not has_runs:
        raise UserError(f"{path}: {len(logs)} W&B logs end before the name of a run: nothing to adopt")


def _log_files(path: Path) -> list[Path]:
    """Return the logs, grouped by run and in the order of writing; UserError without any. Ignore links."""
    if path.is_file():
        return [path]
    patterns = ("*.wandb", "*run-*/*.wandb", "wandb/*run-*/*.wandb")
    files = [file for pattern in patterns for file in path.glob(pattern) if not file.is_symlink()]
    files = [file for file in files if file.parent == path or not file.parent.is_symlink()]
    if not files:
        raise UserError(
            f"{path}: no W&B runs: expected run-DATE-ID/run-ID.wandb or offline-run-DATE-ID/run-ID.wandb"
        )
    return sorted(files, key=lambda file: (file.name, file.resolve().parent.name.removeprefix("offline-")))


def _read_runs(files: Iterable[Path]) -> list[SourceRun]:
    """Read the logs with one run ID. If several projects have a run with this ID, return all these runs."""
    logs: dict[str, _RunLog] = {}
    for file in files:
        log = None
        for message in records(file):
            record = _record_type().FromString(message)
            if log is None and record.HasField("run"):
                run = record.run
                origin = f"wandb:{run.entity or '-'}/{run.project or '-'}/{run.run_id}"
                log = logs.setdefault(origin, _RunLog(origin))
                log.exit_code, log.is_new_file = None, True
            if log is not None:
                log.add(record)
    return [log.run() for log in logs.values()]


# ---- files


@cache
def _record_type() -> Any:
    """Return the message type of a record, with the fields of W&B's protocol that are used here."""
    file = descriptor_pb2.FileDescriptorProto(name="wandb.proto", package="wandb", syntax="proto2")
    for message, fields in _MESSAGES.items():
        made = file.message_type.add(name=message)
        for kind, field, index in map(str.split, fields.split(", ")):
            one = made.field.add(name=field, number=int(index), type=_TYPES.get(kind.strip("*"), 11))
            one.label = one.LABEL_REPEATED if kind.endswith("*") else one.LABEL_OPTIONAL
            if one.type == one.TYPE_MESSAGE:
                one.type_name = f".wandb.{kind.strip('*')}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("wandb.Record"))


_TYPES = {"string": 9, "int": 3}  # type numbers of `FieldDescriptorProto`; all other types are messages: 11

_MESSAGES = {
    "Item": "string key 1, string* nested_key 2, string value_json 16",
    "Changes": "Item* update 1, Item* remove 2",
    "Step": "int num 1",
    "History": "Item* item 1, Step step 2",
    "Time": "int seconds 1, int nanos 2",
    "Git": "string commit 2",
    "Run": (
        "string run_id 1, string entity 2, string project 3, Changes config 4, Changes summary 5, "
        "string group 6, string name 8, string notes 9, string* tags 10, string host 13, Time start_time 17, "
        "Git git 21"
    ),
    "Exit": "int exit_code 1, int runtime 2, int is_incomplete 3",
    "Environment": "Git git 9, string host 12, string device 18",
    "Record": (
        "History history 2, Changes summary 3, Changes config 5, Run run 17, Exit exit 18, "
        "Environment environment 26"
    ),
}

_BLOCK_BYTES = 32 * 1024
_PIECE = struct.Struct("<IHB")  # checksum, length, type
_WHOLE, _FIRST, _LAST = 1, 2, 4  # types; a piece in the middle of a record has 3


def records(path: Path) -> Iterator[bytes]:
    """Yield the records of a log, up to the first incomplete one.

    Raises:
        ValueError: The file isn't a W&B log, or is damaged.
    """
    record = b""
    with path.open("rb") as file:
        start = file.read(_PIECE.size)
        if start[:4] != b":W&B"[: len(start)]:
            raise ValueError("not a W&B log: expected a file run-ID.wandb")
        if start[6:] > b"\0":
            raise ValueError(f"version {start[6]} of the log format; only version 0 can be read")
        while len(header := file.read(_PIECE.size)) == _PIECE.size:
            checksum, length, kind = _PIECE.unpack(header)
            data = file.read(length)
            if len(data) < length:
                return
            if not any((checksum, length, kind)) and not any(file.read()):
                return  # zeros that a crashed file system left
            if checksum != zlib.crc32(header[-1:] + data):
                raise ValueError(f"a checksum is wrong before byte {file.tell()}")
            record = data if kind in (_WHOLE, _FIRST) else record + data
            if kind in (_WHOLE, _LAST):
                yield record
            if (rest := -file.tell() % _BLOCK_BYTES) < _PIECE.size:
                file.read(rest)  # padding at the end of a block


class _RunLog:
    """A run that is assembled from the records of its logs, in the order of writing."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        whole = _record_type()()
        self.about, self.machine = whole.run, whole.environment
        self.began: float | None = None
        self.last_timestamp: float | None = None
        self.seconds = 0.0
        self.exit_code: int | None = None
        self.config: dict[str, Any] = {}
        self.summary: dict[str, float] = {}
        self.metrics = MetricLog()
        self.step = -1
        self.first_step: int | None = None
        self.is_new_file = True  # until the first step of the current file is added

    def run(self) -> SourceRun:
        for name in self.summary.keys() - self.metrics.points.keys():
            self.metrics.add(name, max(self.step, 0), self.summary[name])
        ended = None
        if self.exit_code is not None:
            ended = self.last_timestamp or (self.began and self.began + self.seconds)
        states: dict[int | None, State] = {None: "RUNNING", 0: "COMPLETED", 255: "CANCELLED"}  # 255: Ctrl-C
        return SourceRun(
            origin=self.origin,
            name=self.about.name or self.about.run_id,
            config=self.config,
            metrics=self.metrics.curves(),
            state=states.get(self.exit_code, "FAILED"),
            began=utc(self.began),
            ended=utc(ended),
            tags=tuple(dict.fromkeys(self.about.tags)),
            notes=self.about.notes,
            group=self.about.group or None,
            host=self.machine.host or self.about.host or None,
            device=self.machine.device or None,
            git_commit=self.machine.git.commit or self.about.git.commit or None,
            seconds=self.seconds or None,
            left_out=self.metrics.left_out,
        )

    def add(self, record: Any) -> None:
        """Add a record. W&B writes the run again when its name or tags change: the last values count."""
        run = record.run
        if run.tags:
            del self.about.tags[:]
        self.about.MergeFrom(run)
        self.machine.MergeFrom(record.environment)
        if run.HasField("start_time") and self.began is None:
            self.began = run.start_time.seconds + run.start_time.nanos / 1e9
        for part in (run, record):
            self._add_changes(part.config, part.summary)
        if record.HasField("history"):
            self._add_history(record.history)
        if record.HasField("exit") and not record.exit.is_incomplete:
            self.exit_code = record.exit.exit_code
            self.seconds = max(self.seconds, record.exit.runtime)

    def _add_changes(self, config: Any, summary: Any) -> None:
        for path, value in _items(config.update):
            if path[0] not in _INTERNAL:
                put(self.config, path, value)
        for path, _ in _items(config.remove):
            self.config = without(self.config, path)
        self.summary |= self._user_numbers(summary.update)
        for path, _ in _items(summary.remove):
            self.summary.pop(".".join(path), None)

    def _add_history(self, history: Any) -> None:
        """Add the metrics of one step. Without an explicit step, it follows the last one."""
        steps = (json.loads(item.value_json) for item in history.item if item.key == "_step")
        step = next(steps, self.step + 1)
        step = history.step.num if history.HasField("step") else whole_number(step)
        if self.is_new_file:  # it replaces the points of earlier logs from this step on
            if self.first_step is not None and step <= self.first_step:
                self.summary.clear()
            self.metrics.drop_from(step)
            self.is_new_file = False
        self.step = step
        self.first_step = step if self.first_step is None else min(step, self.first_step)
        for name, value in self._user_numbers(history.item).items():
            self.metrics.add(name, step, value)

    def _user_numbers(self, items: Iterable[Any]) -> dict[str, float]:
        """Return the numbers in items by name, without W&B's own; record its runtime and timestamp."""
        numbers = dict[str, float]()
        for path, value in _items(items):
            if path[0] == "_runtime":
                self.seconds = max(self.seconds, number(value) or 0.0)
            elif path[0] == "_timestamp":
                self.last_timestamp = number(value) or self.last_timestamp
            elif path[0] not in _INTERNAL:
                numbers |= _numbers(".".join(path), value)
        return numbers


def _items(items: Iterable[Any]) -> list[tuple[list[str], Any]]:
    """Return the path and the value of each item."""
    return [
        ([*item.nested_key] or [item.key], json.loads(item.value_json) if item.value_json else None)
        for item in items
    ]


def _numbers(name: str, value: Any) -> dict[str, float]:
    """Return the numbers in a nested value, named by path, except media, which have the key "_type"."""
    if isinstance(value, dict):
        parts = {} if "_type" in value else value
        return {
            key: point for part in parts for key, point in _numbers(f"{name}.{part}", parts[part]).items()
        }
    point = number(value)
    return {} if point is None else {name: point}
