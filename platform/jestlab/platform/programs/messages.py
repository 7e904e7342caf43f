"""What a command tells its worker: a line of JSON each, and what is wrong with one that is none.

See `jestlab.platform.client` for the protocol.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from jestlab.platform.errors import nearest

_LARGEST = 2**63 - 1  # of the store's whole numbers
_SHOWN = 120

Count = Annotated[int, Field(ge=0, le=_LARGEST)]
Name = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f]+$")]
Score = Annotated[str, Field(min_length=3, max_length=300, pattern=r"^[^\x00-\x1f]+/[^\x00-\x1f/]+$")]
Value = float | None


class _Message(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Log(_Message):
    """Metrics at a step."""

    type: Literal["log"]
    step: Count
    metrics: dict[Name, Value]


class Evaluation(_Message):
    """Scores at a step, named `dataset/metric`."""

    type: Literal["evaluation"]
    step: Count
    examples_seen: Count
    flops_total: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    scores: dict[Score, Value]


class Artifact(_Message):
    """A file or folder."""

    type: Literal["artifact"]
    name: Name
    path: Annotated[str, Field(min_length=1)]


class Progress(_Message):
    """How far the run is."""

    type: Literal["progress"]
    step: Count
    total_steps: Count


class Flush(_Message):
    """A wish to have all of it durable, and to be told."""

    type: Literal["flush"]
    id: Count = 0


Message = Log | Evaluation | Artifact | Progress | Flush

_TYPES = ("log", "evaluation", "artifact", "progress", "flush")
_ANY: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="type")])


def parse(line: bytes) -> Message:
    """A message from its line.

    Raises:
        ValueError: It is none; quotes the line, and says what is wrong there.
    """
    try:
        return _ANY.validate_json(line)
    except ValidationError as error:
        raise ValueError(f"{shown(line)} is no message: {_problem(error)}") from None


def numbers(values: dict[str, float | None]) -> dict[str, float]:
    """Values as numbers: null is one that is not a number."""
    return {name: math.nan if value is None else value for name, value in values.items()}


def shown(line: bytes) -> str:
    """A line as an error quotes it."""
    text = line.decode(errors="replace").strip()
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def _problem(error: ValidationError) -> str:
    details: Any = error.errors(include_url=False)[0]
    context = details.get("ctx", {})
    if details["type"] == "json_invalid":
        return f"no JSON: {context['error']}"
    if details["type"] == "union_tag_invalid":
        return f"type {context['tag']!r} is unknown: {nearest(context['tag'], _TYPES)}"
    if details["type"] == "union_tag_not_found":
        return f"it has no type: {', '.join(_TYPES)}"
    place = ".".join(str(part) for part in details["loc"][1:] if part != "[key]")
    return f"{place}: {details['msg']}" if place else str(details["msg"])
