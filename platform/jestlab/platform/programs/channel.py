"""The worker's end of what a command reports through: two pipes, one there and one back.

A command opens them by their paths below /proc, as often as it likes and in any process of its own, whatever
that one inherited. They are this process's, so nothing of them is left when it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from jestlab.platform.context import RunContext
from jestlab.platform.errors import UserError
from jestlab.platform.programs import messages

LONGEST = 1 << 20
"""Bytes of a message at most: what has no end may be anything, but is no message."""

_BLOCK = 1 << 16
_LEFT_BLOCKS = 64  # a pipe holds 1 MiB at most, were its size ever raised


class Channel:
    """Reads messages, hands them to a run's context, and answers."""

    def __init__(self, context: RunContext) -> None:
        """Open it.

        Args:
            context: Of the run.
        """
        self._context = context
        self._rest = b""
        self._lines = 0
        # This process keeps both ends of both: a path below /proc leads to an end that is open here.
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
        """How the command finds it."""
        own = f"/proc/{os.getpid()}/fd"
        return {
            "JESTLAB_REPORTS": f"{own}/{self._reports_end}",
            "JESTLAB_REPLIES": f"{own}/{self._replies_end}",
        }

    def read(self) -> bool:
        """Take in what is there, up to a block; whether there was anything.

        Raises:
            UserError: A line is no message, or a path in it leads nowhere.
        """
        try:
            block = os.read(self.reports, _BLOCK)
        except BlockingIOError:
            return False
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._rest) > LONGEST:
            raise UserError(
                f"message {self._lines + 1}: {messages.shown(self._rest[:_BLOCK])} goes on for more than "
                f"{LONGEST:,} bytes: end each message by a line break"
            )
        return True

    def drain(self, whole: bool) -> None:
        """Take in what a command left that has ended.

        Args:
            whole: Whether it ended by itself, so that a last line without a line break counts.

        Raises:
            UserError: As in `read`.
        """
        for _ in range(_LEFT_BLOCKS):
            if not self.read():
                break
        if whole:
            self._take(self._rest)
        self._rest = b""

    def tell_stop(self) -> None:
        """Say that the command is asked to stop."""
        with contextlib.suppress(BlockingIOError):  # it reads no answers, so it would not read this one
            self._reply({"type": "stop"})

    def _take(self, line: bytes) -> None:
        self._lines += 1
        if not line.strip():
            return
        try:
            self._act(messages.parse(line))
        except (ValueError, OSError) as error:  # no message, or a path in it leads nowhere
            raise UserError(f"message {self._lines}: {error}") from None

    def _act(self, message: messages.Message) -> None:
        context = self._context
        if isinstance(message, messages.Log):
            context.log(message.step, messages.numbers(message.metrics))
        elif isinstance(message, messages.Evaluation):
            scores = messages.numbers(message.scores)
            context.evaluation(message.step, message.examples_seen, message.flops_total, scores)
        elif isinstance(message, messages.Artifact):
            context.artifact(message.name, context.directory / Path(message.path))
        elif isinstance(message, messages.Progress):
            context.progress(message.step, message.total_steps)
        else:
            context.flush()
            self._answer(message)

    def _answer(self, flush: messages.Flush) -> None:
        try:
            self._reply({"type": "flushed", "id": flush.id})
        except BlockingIOError:
            raise UserError("flush is asked for again and again, and no answer is read") from None

    def _reply(self, message: dict[str, Any]) -> None:
        os.write(self._replies, json.dumps(message).encode() + b"\n")  # short, so whole or not at all
