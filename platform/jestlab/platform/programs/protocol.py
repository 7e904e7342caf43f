"""The protocol between a command and its worker: JSON messages through two pipes, one in each direction.

`client` documents the protocol for scripts. A command opens the pipes by their paths below /proc, as often as
it likes and in any of its processes, whatever they inherited. The pipes belong to the worker's process, so
nothing of them is left when it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from jestlab.models.training.phases import Phase as PhaseName
from jestlab.platform.client import as_amount, as_count, as_metrics, as_name, as_phase, as_scores
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.logs import one_line
from jestlab.platform.programs.context import RunContext

MAX_MESSAGE_BYTES = 1 << 20
"""A longer line is not a message."""

_BLOCK = 1 << 16
_LEFT_BLOCKS = 64  # a pipe holds 1 MiB at most, were its size ever raised
_SHOWN = 120
_SAID = 1_000

Count = Annotated[int, BeforeValidator(lambda value, info: as_count(info.field_name, value))]
Amount = Annotated[float, BeforeValidator(lambda value, info: as_amount(info.field_name, value))]


class _Message(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Log(_Message):
    """Reports metrics at a step."""

    type: Literal["log"]
    step: Count
    metrics: Annotated[dict[str, float], BeforeValidator(as_metrics)]


class Evaluation(_Message):
    """Reports scores at a step, named `dataset/metric`."""

    type: Literal["evaluation"]
    step: Count
    examples_seen: Count | None = None
    flops_total: Amount | None = None
    seconds: Amount | None = None
    scores: Annotated[dict[str, float], BeforeValidator(as_scores)]


class Artifact(_Message):
    """Reports a file or folder that the run made."""

    type: Literal["artifact"]
    name: Annotated[str, BeforeValidator(as_name)]
    path: Annotated[str, Field(min_length=1)]


class Progress(_Message):
    """Reports how far the run is."""

    type: Literal["progress"]
    step: Count
    total_steps: Count


class Phase(_Message):
    """Reports that the seconds before it went to something else than training."""

    type: Literal["phase"]
    name: Annotated[PhaseName, BeforeValidator(as_phase)]
    seconds: Amount


class Flush(_Message):
    """A request to make everything durable and to be told when it is."""

    type: Literal["flush"]
    id: Count = 0


Message = Log | Evaluation | Artifact | Progress | Phase | Flush

_TYPES = ("log", "evaluation", "artifact", "progress", "phase", "flush")
_ANY: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="type")])


def parse(line: bytes) -> Message:
    """Parse a message.

    Raises:
        ValueError: It is not valid; the error quotes the line and says what is wrong.
    """
    try:
        return _ANY.validate_json(line)
    except ValidationError as error:
        # It may quote names that the command made up.
        problem = one_line(_problem(error), 2 * _SHOWN)
        raise ValueError(f"{_quoted(line)} is not a valid message: {problem}") from None


def _quoted(line: bytes) -> str:
    """Quote a line in an error message."""
    text = line.decode(errors="replace").strip()
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def _problem(error: ValidationError) -> str:
    details: Any = error.errors(include_url=False)[0]
    context = details.get("ctx", {})
    if details["type"] == "json_invalid":
        return f"not valid JSON: {context['error']}"
    if details["type"] == "union_tag_invalid":
        return f"type {context['tag']!r} is unknown: {nearest(context['tag'], _TYPES)}"
    if details["type"] == "union_tag_not_found":
        return f"it has no type: expected {', '.join(_TYPES)}"
    if details["type"] == "value_error":  # of `client`, which names the place
        return str(context["error"])
    place = ".".join(str(part) for part in details["loc"][1:])
    return f"{place}: {details['msg']}" if place else str(details["msg"])


class Channel:
    """The worker's end: reads messages, passes them to a run's context, and answers."""

    def __init__(self, context: RunContext) -> None:
        """Open the pipes."""
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
        """Return the variables by which the command finds the pipes."""
        own = f"/proc/{os.getpid()}/fd"
        return {
            "JESTLAB_REPORTS": f"{own}/{self._reports_end}",
            "JESTLAB_REPLIES": f"{own}/{self._replies_end}",
        }

    def read(self) -> bool:
        """Process what is there, up to a block; return whether there was anything.

        Raises:
            UserError: A line is not a valid message, or a path in it does not exist.
        """
        try:
            block = os.read(self.reports, _BLOCK)
        except BlockingIOError:
            return False
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._rest) > MAX_MESSAGE_BYTES:
            raise UserError(
                f"message {self._lines + 1}: {_quoted(self._rest[:_BLOCK])} is longer than "
                f"{MAX_MESSAGE_BYTES:,} bytes: end each message with a line break"
            )
        return True

    def drain(self, whole: bool) -> None:
        """Process what an ended command has left in the pipe.

        Args:
            whole: Whether it ended by itself, so that a last line without a line break counts.
        """
        for _ in range(_LEFT_BLOCKS):
            if not self.read():
                break
        if whole:
            self._take(self._rest)
        self._rest = b""

    def tell_stop(self) -> None:
        """Tell the command that it is asked to stop."""
        with contextlib.suppress(BlockingIOError):  # it reads no answers, so it would not read this one
            self._reply({"type": "stop"})

    def _take(self, line: bytes) -> None:
        self._lines += 1
        if not line.strip():
            return
        try:
            self._act(parse(line))
        except (ValueError, OSError) as error:  # not a message, or a path in it does not exist
            raise UserError(f"message {self._lines}: {one_line(str(error), _SAID)}") from None

    def _act(self, message: Message) -> None:
        context = self._context
        if isinstance(message, Log | Evaluation | Progress):
            getattr(context, message.type)(**message.model_dump(exclude={"type"}))
        elif isinstance(message, Artifact):
            context.artifact(message.name, context.directory / Path(message.path))
        elif isinstance(message, Phase):
            context.clock.move(message.name, message.seconds)
            if message.name == "checkpoint":
                context.clock.saved()
        else:
            context.flush()
            self._answer(message)

    def _answer(self, flush: Flush) -> None:
        try:
            self._reply({"type": "flushed", "id": flush.id})
        except BlockingIOError:
            raise UserError("the command requests flush again and again and reads no answers") from None

    def _reply(self, message: dict[str, Any]) -> None:
        os.write(self._replies, json.dumps(message).encode() + b"\n")  # short, so whole or not at all
