"""Reads runs that W&B recorded on this machine, whether or not they were uploaded, without the library."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from jestlab.platform.errors import UserError
from jestlab.platform.exchange.damage import Damaged as Told
from jestlab.platform.exchange.damage import attempted, refuse
from jestlab.platform.exchange.source_run import FoundRun, Points, State, number, put, utc, whole
from jestlab.platform.exchange.wandb_log import Damaged, Fields, fields, integer, messages, records, text
from jestlab.platform.spec.tree import without
from jestlab.platform.words import on_one_line

_FOLDER = re.compile(r"(?:offline-)?run-(\d{8}_\d{6})-(.+)")
_OWN = ("_wandb", "_step", "_runtime", "_timestamp")
_LARGEST_METADATA_BYTES = 1 << 20

# Fields of the messages in wandb_internal.proto; a record has one of these.
_HISTORY, _SUMMARY, _CONFIG, _RUN, _EXIT, _ENVIRONMENT = 2, 3, 5, 17, 18, 26
_KEY, _NESTED_KEY, _VALUE_JSON = 1, 2, 16
_UPDATE, _REMOVE = 1, 2

_NO_STEP = 2**63  # later than any step


def read(path: Path, damaged: Told = refuse) -> Iterator[FoundRun]:
    """Yield the runs in a folder of W&B.

    The log of each run is read, up to where a kill cut it off. A run that was resumed, rewound or started
    again has several folders: it is one run, and a later folder replaces all from its first step on. Numbers
    that are in a run's summary alone become metrics with one point, at the run's last step. Texts, images and
    histograms are left out. A run without an exit code, whose process was killed or goes on, is RUNNING.

    Args:
        path: A folder `wandb`, or the one it is in; the folder of a run in it; or a file `run-ID.wandb`.
        damaged: Told of a run of which a log is damaged before its end; the run is left out.

    Raises:
        UserError: There are no logs at the path, or none of them says which run it is of.
    """
    logs = _logs(path)
    found = 0
    for _, group in groupby(logs, key=lambda log: log.name):
        files = [*group]
        runs = attempted(damaged, files[0], partial(_runs, files))
        found += 1 if runs is None else len(runs)
        yield from runs or ()
    if not found:
        raise UserError(f"{path}: its {len(logs)} logs of W&B end before a run's name: nothing to adopt")


def _runs(files: Iterable[Path]) -> list[FoundRun]:
    """Read logs of one name; those of a run that was resumed become one."""
    runs: dict[str, _Log] = {}
    for file in files:
        log = _Log.read(file)
        # Without an ID it was killed before anything was written.
        if log.run_id:
            runs[log.origin] = runs[log.origin].resumed(log) if log.origin in runs else log
    return [log.run() for log in runs.values()]


def _logs(path: Path) -> list[Path]:
    """Return the logs, those of a run side by side, in the order in which they were written."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"{path}: no such file or folder: expected a folder wandb, or a file run-ID.wandb")
    folders = (
        [path] if _FOLDER.fullmatch(path.resolve().name) else [*path.iterdir(), *_inside(path / "wandb")]
    )
    logs = []
    for folder in folders:
        matched = _FOLDER.fullmatch(folder.resolve().name if folder == path else folder.name)
        if matched:
            for file in folder.iterdir() if folder == path else _inside(folder):
                if file.suffix == ".wandb" and file.is_file() and not file.is_symlink():
                    logs.append((file.name, matched[1], folder.name, file))
    if not logs:
        raise UserError(
            f"{path}: no runs of W&B: expected folders run-DATE-ID or offline-run-DATE-ID, "
            "in which there is a file run-ID.wandb"
        )
    return [file for *_, file in sorted(logs)]


def _inside(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []


class _Log:
    """What a log tells of its run."""

    def __init__(self) -> None:
        self.run_id = self.entity = self.project = self.name = self.notes = ""
        self.group = self.host = self.device = self.git_commit = ""
        self.tags: tuple[str, ...] = ()
        self.began: float | None = None
        self.written: float | None = None
        self.seconds: float | None = None
        self.exit_code: int | None = None
        self.config: dict[str, Any] = {}
        self.summary: dict[str, float] = {}
        self.points = Points()
        self.step = -1
        self.first_step = _NO_STEP

    @classmethod
    def read(cls, file: Path) -> _Log:
        log = cls()
        for index, record in enumerate(records(file)):
            try:
                log._absorb(fields(record))
            except (ValueError, RecursionError) as error:
                raise UserError(
                    on_one_line(f"{file}: record {index} is not valid ({error}): {_REMEDY}")
                ) from error
        log._read_metadata(file.parent / "files" / "wandb-metadata.json")
        return log

    @property
    def origin(self) -> str:
        """An entity or a project that W&B would have filled in at the upload is written "-"."""
        return f"wandb:{self.entity or '-'}/{self.project or '-'}/{self.run_id}"

    def resumed(self, after: _Log) -> _Log:
        """Return the log of both; `after` was written later, and from its first step on it alone counts."""
        if after.first_step > self.first_step or after.first_step == _NO_STEP:
            after.config = self.config | after.config
            after.summary = self.summary | after.summary
            after.began = after.began if self.began is None else self.began
            after.seconds = max(self.seconds or 0.0, after.seconds or 0.0) or None
            after.step = max(after.step, min(self.step, after.first_step - 1))
        self.points.restart(after.first_step, after.points)
        after.points, after.first_step = self.points, min(self.first_step, after.first_step)
        after.tags = after.tags or self.tags
        for name in ("name", "notes", "group", "host", "device", "git_commit"):
            setattr(after, name, getattr(after, name) or getattr(self, name))
        return after

    def run(self) -> FoundRun:
        for name, value in self.summary.items():
            if name not in self.points:
                self.points.add(name, max(self.step, 0), value)
        ended = None
        if self.exit_code is not None:
            ended = self.written
            if ended is None and self.began is not None and self.seconds is not None:
                ended = self.began + self.seconds
        return FoundRun(
            origin=self.origin,
            name=self.name or self.run_id,
            config=self.config,
            metrics=self.points.curves(),
            state=_state(self.exit_code),
            began=None if self.began is None else utc(self.began),
            ended=None if ended is None else utc(ended),
            tags=self.tags,
            notes=self.notes,
            group=self.group or None,
            host=self.host or None,
            device=self.device or None,
            git_commit=self.git_commit or None,
            seconds=self.seconds,
            left_out=self.points.left_out,
        )

    def _absorb(self, record: Fields) -> None:
        """Take in a record. What comes later stands: W&B writes a run again when its name or tags change."""
        for field, absorb in (
            (_HISTORY, self._absorb_history),
            (_SUMMARY, self._absorb_summary),
            (_CONFIG, self._absorb_config),
            (_RUN, self._absorb_run),
            (_EXIT, self._absorb_exit),
            (_ENVIRONMENT, self._absorb_environment),
        ):
            for message in messages(record, field):
                absorb(fields(message))

    def _absorb_run(self, run: Fields) -> None:
        self.run_id = text(run, 1) or self.run_id
        self.entity = text(run, 2) or self.entity
        self.project = text(run, 3) or self.project
        for message in messages(run, 4):
            self._absorb_config(fields(message))
        for message in messages(run, 5):
            self._absorb_summary(fields(message))
        self.group = text(run, 6) or self.group
        self.name = text(run, 8) or self.name
        self.notes = text(run, 9) or self.notes
        if tags := messages(run, 10):
            self.tags = tuple(dict.fromkeys(tag.decode(errors="replace") for tag in tags))
        self.host = text(run, 13) or self.host
        for message in messages(run, 17):
            time = fields(message)
            self.began = integer(time, 1) + integer(time, 2) / 1e9
        for message in messages(run, 23):  # where the run was rewound to, or another run that it is a fork of
            branch = fields(message)
            if text(branch, 1) == self.run_id and text(branch, 3) == "_step":
                (step,) = struct.unpack("<d", (integer(branch, 2) % 2**64).to_bytes(8, "little"))
                self.first_step = min(self.first_step, whole(step) + 1)
        for message in messages(run, 21):
            self.git_commit = text(fields(message), 2) or self.git_commit

    def _absorb_exit(self, exited: Fields) -> None:
        if integer(exited, 3):
            # "Not complete": the process goes on after this record.
            return
        self.exit_code = integer(exited, 1)
        if runtime := integer(exited, 2):
            self.seconds = max(self.seconds or 0.0, float(runtime))

    def _absorb_environment(self, environment: Fields) -> None:
        for message in messages(environment, 9):
            self.git_commit = text(fields(message), 2) or self.git_commit
        self.host = text(environment, 12) or self.host
        self.device = text(environment, 18) or self.device

    def _absorb_config(self, config: Fields) -> None:
        for path, value in _items(config, _UPDATE):
            if path[0] not in _OWN:
                put(self.config, path, value)
        for path, _ in _items(config, _REMOVE):
            self.config = without(self.config, path)

    def _absorb_summary(self, summary: Fields) -> None:
        for path, value in _items(summary, _UPDATE):
            if path == ["_runtime"] and (runtime := number(value)) is not None:
                self.seconds = max(self.seconds or 0.0, runtime)
            if path[0] not in _OWN:
                self.summary |= _numbers(".".join(path), value)
        for path, _ in _items(summary, _REMOVE):
            self.summary.pop(".".join(path), None)

    def _absorb_history(self, history: Fields) -> None:
        items = _items(history, 1)
        own = {path[0]: value for path, value in items if path[0] in _OWN}
        if told := messages(history, 2):
            self.step = integer(fields(told[-1]), 1)
        elif (step := own.get("_step")) is not None:
            self.step = whole(step)
        else:
            self.step += 1
        self.first_step = min(self.first_step, self.step)
        self.written = number(own.get("_timestamp")) or self.written
        self.seconds = max(self.seconds or 0.0, number(own.get("_runtime")) or 0.0) or self.seconds
        for path, value in items:
            if path[0] not in _OWN:
                for name, point in _numbers(".".join(path), value).items():
                    self.points.add(name, self.step, point)

    def _read_metadata(self, file: Path) -> None:
        """Read what older versions of W&B keep beside the log: it adds to the log, and may be missing."""
        if file.is_symlink() or file.parent.is_symlink() or not file.is_file():
            return
        if file.stat().st_size > _LARGEST_METADATA_BYTES:
            raise UserError(
                f"{file}: larger than 1 MiB: expected a few lines about the machine; move it away"
            )
        try:
            metadata = json.loads(file.read_bytes())
        except (ValueError, RecursionError) as error:
            raise UserError(on_one_line(f"{file}: not valid JSON ({error}): {_REMEDY}")) from error
        if isinstance(metadata, dict):
            git = metadata.get("git")
            self.git_commit = self.git_commit or _word(git, "commit")
            self.host = self.host or _word(metadata, "host")
            self.device = self.device or _word(metadata, "gpu")


_REMEDY = "copy it again, or move it away"

_DEEPEST = 100
"""Levels of a key. What nests deeper than that could not be written as JSON."""


def _state(exit_code: int | None) -> State:
    if exit_code is None:
        return "RUNNING"
    # W&B notes 255 when somebody presses Ctrl-C.
    return "COMPLETED" if exit_code == 0 else "CANCELLED" if exit_code == 255 else "FAILED"


def _items(message: Fields, field: int) -> list[tuple[list[str], Any]]:
    """Return the path and the value of each item in a field; an item to remove has no value."""
    items = []
    for item in map(fields, messages(message, field)):
        path = [key.decode(errors="replace") for key in messages(item, _NESTED_KEY)] or [text(item, _KEY)]
        if len(path) > _DEEPEST:
            raise Damaged(f"a key of {len(path)} levels")
        written = messages(item, _VALUE_JSON)
        items.append((path, json.loads(written[-1]) if written else None))
    return items


def _numbers(name: str, value: Any) -> dict[str, float]:
    """Return the numbers in a value; those in a mapping have its keys in their names."""
    if isinstance(value, dict):
        # "_type" marks histograms, images, tables and the like.
        parts = {} if "_type" in value else value
        return {
            key: point for part in parts for key, point in _numbers(f"{name}.{part}", parts[part]).items()
        }
    point = number(value)
    return {} if point is None else {name: point}


def _word(mapping: Any, key: str) -> str:
    value = mapping.get(key) if isinstance(mapping, dict) else None
    return value if isinstance(value, str) else ""
