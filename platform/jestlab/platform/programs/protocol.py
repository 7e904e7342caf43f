"""The protocol between a command and its worker: lines of JSON through two pipes, one in each direction.

`client` documents the messages. A command opens the pipes by their paths below /proc, in any of its processes
and as often as it likes, whatever it inherited. The pipes belong to the worker's process and disappear with
it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from jestlab.platform.client import as_amount, as_count, as_metrics, as_name, as_phase, as_scores
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.logs import one_line
from jestlab.platform.programs.context import RunContext

MAX_MESSAGE_BYTES = 1 << 20
"""A longer line isn't a message."""

_BLOCK = 1 << 16
_LEFT_BLOCKS = 64  # a pipe holds at most 1 MiB
_MAX_QUOTED = 120
_MAX_ERROR = 1_000

_Fields = Mapping[str, Callable[[str, Any], Any]]


def _count_or_none(name: str, value: Any) -> int | None:
    return None if value is None else as_count(name, value)


def _amount_or_none(name: str, value: Any) -> float | None:
    return None if value is None else as_amount(name, value)


def _path(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"invalid {name}: expected the path of a file or folder")
    return value


_REQUIRED: Mapping[str, _Fields] = {
    "log": {"step": as_count, "metrics": lambda _, value: as_metrics(value)},
    "evaluation": {"step": as_count, "scores": lambda _, value: as_scores(value)},
    "artifact": {"name": lambda _, value: as_name(value), "path": _path},
    "progress": {"step": as_count, "total_steps": as_count},
    "phase": {"name": lambda _, value: as_phase(value), "seconds": as_amount},
    "flush": {},
}
"""Type of a message → its fields, each with a function that checks and converts the value."""

_OPTIONAL: Mapping[str, _Fields] = {
    "evaluation": {
        "examples_seen": _count_or_none,
        "flops_total": _amount_or_none,
        "seconds": _amount_or_none,
    },
    "flush": {"id": as_count},
}


def parse(line: bytes) -> dict[str, Any]:
    """Parse and check a message.

    Raises:
        ValueError: It isn't valid; the message quotes the line.
    """
    try:
        return _checked(json.loads(line.decode()))
    except json.JSONDecodeError as error:
        problem = f"not valid JSON: {error}"
    except RecursionError:
        problem = "not valid JSON: nested too deeply"
    except ValueError as error:
        problem = str(error)
    # The error may quote names that the command chose.
    raise ValueError(
        f"{_quoted(line)} is not a valid message: {one_line(problem, 2 * _MAX_QUOTED)}"
    ) from None


def _checked(message: Any) -> dict[str, Any]:
    kind = message.get("type") if isinstance(message, dict) else None
    if kind is None:
        raise ValueError(f"it has no type: expected {', '.join(_REQUIRED)}")
    if not isinstance(kind, str) or kind not in _REQUIRED:
        raise ValueError(f"type {kind!r} is unknown: {nearest(str(kind), _REQUIRED)}")
    required, fields = _REQUIRED[kind], {**_REQUIRED[kind], **_OPTIONAL.get(kind, {})}
    if missing := [name for name in required if name not in message]:
        raise ValueError(f"{missing[0]} is missing")
    if unknown := [name for name in message if name != "type" and name not in fields]:
        raise ValueError(f"key {unknown[0]!r} is unknown: {nearest(unknown[0], fields)}")
    return {"type": kind} | {
        name: check(name, message[name]) for name, check in fields.items() if name in message
    }


def _quoted(line: bytes) -> str:
    text = line.decode(errors="replace").strip()
    return repr(text if len(text) <= _MAX_QUOTED else text[:_MAX_QUOTED] + "…")


class Channel:
    """The worker's end: reads messages, passes them to a run's context, and answers."""

    def __init__(self, context: RunContext) -> None:
        """Open the pipes."""
        self._context = context
        self._rest = b""
        self._lines = 0
        # This process keeps both ends of both pipes open, so that the paths below /proc work.
        self.reports, self._reports_end = os.pipe()
        self._replies_end, self._replies = os.pipe()
        os.set_blocking(self.reports, False)
        os.set_blocking(self._replies, False)

    def __enter__(self) -> Channel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for end in (self.reports, self._reports_end, self._replies, self._replies_end):
            os.close(end)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with the paths of the pipes."""
        folder = f"/proc/{os.getpid()}/fd"
        return {
            "JESTLAB_REPORTS": f"{folder}/{self._reports_end}",
            "JESTLAB_REPLIES": f"{folder}/{self._replies_end}",
        }

    def read(self) -> bool:
        """Process pending messages, up to a block; return whether there were any.

        Raises:
            UserError: A line isn't a valid message, or a path in it doesn't exist.
        """
        try:
            block = os.read(self.reports, _BLOCK)
        except BlockingIOError:
            return False
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            self._process(line)
        if len(self._rest) > MAX_MESSAGE_BYTES:
            raise UserError(
                f"message {self._lines + 1}: {_quoted(self._rest[:_BLOCK])} is longer than "
                f"{MAX_MESSAGE_BYTES:,} bytes: end each message with a line break"
            )
        return True

    def drain(self, whole: bool) -> None:
        """Process the messages that a command left in the pipe.

        Args:
            whole: Whether the command ended by itself, so that a last line without a line break counts.
        """
        for _ in range(_LEFT_BLOCKS):
            if not self.read():
                break
        if whole:
            self._process(self._rest)
        self._rest = b""

    def tell_stop(self) -> None:
        """Ask the command to stop."""
        with contextlib.suppress(BlockingIOError):  # the pipe is full: the command reads no replies
            self._reply({"type": "stop"})

    def _process(self, line: bytes) -> None:
        self._lines += 1
        if not line.strip():
            return
        try:
            self._report(parse(line))
        except (ValueError, OSError) as error:  # OSError: a path in the message doesn't exist
            raise UserError(f"message {self._lines}: {one_line(str(error), _MAX_ERROR)}") from None

    def _report(self, message: dict[str, Any]) -> None:
        context, kind = self._context, message.pop("type")
        if kind == "phase":
            context.clock.move(message["name"], message["seconds"])
            if message["name"] == "checkpoint":
                context.clock.saved()
        elif kind == "flush":
            context.flush()
            try:
                self._reply({"type": "flushed", "id": message.get("id", 0)})
            except BlockingIOError:
                raise UserError("the command requests flush again and again and reads no answers") from None
        else:
            if kind == "artifact":
                message["path"] = context.directory / message["path"]
            getattr(context, kind)(**message)

    def _reply(self, message: dict[str, Any]) -> None:
        os.write(self._replies, json.dumps(message).encode() + b"\n")  # short, so written atomically
