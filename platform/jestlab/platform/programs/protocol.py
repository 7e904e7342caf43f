"""The protocol between a command and its worker: lines of JSON through two pipes, one in each direction.

`client` documents the messages, and `Reporter` checks their values. A command opens the pipes by their paths
below /proc, in any of its processes and as often as it likes, whatever it inherited. The pipes belong to the
worker's process and disappear with it.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

from jestlab.platform.client import as_amount, as_count, as_phase
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.logs import one_line
from jestlab.platform.programs.context import RunContext

MAX_MESSAGE_BYTES = 1 << 20
"""A longer line isn't a message."""

_BLOCK = 1 << 16
_LEFT_BLOCKS = 64  # a pipe holds at most 1 MiB
_MAX_QUOTED = 120
_MAX_ERROR = 240

_FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "log": (("step", "metrics"), ()),
    "evaluation": (("step", "scores"), ("examples_seen", "flops_total", "seconds")),
    "artifact": (("name", "path"), ()),
    "progress": (("step", "total_steps"), ()),
    "phase": (("name", "seconds"), ()),
    "flush": ((), ("id",)),
}
"""Type of a message → its required and its optional fields."""


def _parse(line: bytes) -> dict[str, Any]:
    """Parse a message and check the names of its fields; ValueError if they aren't valid."""
    try:
        message = json.loads(line.decode())
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"not valid JSON: {error}") from None
    kind = message.get("type") if isinstance(message, dict) else None
    if kind is None:
        raise ValueError(f"it has no type: expected {', '.join(_FIELDS)}")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise ValueError(f"type {kind!r} is unknown: {nearest(str(kind), _FIELDS)}")
    required, optional = _FIELDS[kind]
    if missing := [name for name in required if message.get(name) is None]:
        raise ValueError(f"{missing[0]} is missing")
    if unknown := [name for name in message if name not in ("type", *required, *optional)]:
        raise ValueError(f"key {unknown[0]!r} is unknown: {nearest(unknown[0], (*required, *optional))}")
    return dict(message)


def _quoted(line: bytes) -> str:
    text = line[:_BLOCK].decode(errors="replace").strip()
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

    def __exit__(self, *_: object) -> None:
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
            limit = f"longer than {MAX_MESSAGE_BYTES:,} bytes: end each message with a line break"
            raise UserError(f"message {self._lines + 1}: {_quoted(self._rest)} is {limit}")
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
            self._report(**_parse(line))
        except (ValueError, OSError) as error:  # OSError: a path in the message doesn't exist
            # The error may quote names that the command chose.
            problem = one_line(str(error), _MAX_ERROR)
            raise UserError(
                f"message {self._lines}: {_quoted(line)} is not a valid message: {problem}"
            ) from None

    def _report(self, type: str, **message: Any) -> None:
        context = self._context
        if type == "phase":
            as_phase(message["name"])
            context.clock.move(message["name"], as_amount("seconds", message["seconds"]))
            if message["name"] == "checkpoint":
                context.clock.saved()
        elif type == "flush":
            answer = {"type": "flushed", "id": as_count("id", message.get("id", 0))}
            context.flush()
            try:
                self._reply(answer)
            except BlockingIOError:
                raise UserError("the command requests flush again and again and reads no answers") from None
        else:
            if type == "artifact":
                if not isinstance(message["path"], str) or not message["path"]:
                    raise ValueError("invalid path: expected the path of a file or folder")
                message["path"] = context.directory / message["path"]
            getattr(context, type)(**message)

    def _reply(self, message: dict[str, Any]) -> None:
        os.write(self._replies, json.dumps(message).encode() + b"\n")  # short, so written atomically
