"""What a launch may use: where runs go, how many at a time, and what each gets."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from jestlab.platform import tpu

Place = Literal["local", "vertex", "kubernetes"]
"""Names of the executors."""

LOCAL_PARALLEL = 2
"""Runs at a time on this machine, where a study does not say."""

_PINNED = re.compile(r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}")


def pinned_image(image: str) -> str:
    """A container image, if its name says which bytes it is.

    Raises:
        ValueError: It does not: a tag can mean something else tomorrow.
    """
    if not _PINNED.fullmatch(image):
        raise ValueError(
            f"the image {image!r} is not pinned: write it with its digest, NAME@sha256:<64 hex digits>, "
            "as `docker buildx imagetools inspect NAME:TAG` prints it"
        )
    return image


def _slice_name(text: str) -> str:
    return str(tpu.parse(text))


class Resources(BaseModel):
    """What a launch may use. No part of a run's identity.

    Attributes:
        on: Which executor runs are launched with; None for the user's own default.
        parallel: Runs at a time; None for the executor's own default: 2 on this machine, else all.
        threads: CPU threads of a run on this machine.
        memory_gb: Memory of a run on this machine; None for no limit.
        retries: Further attempts at a run that fails. Those that end because machines were taken away do not
            count.
        lease_seconds: For how long a worker may give no sign of life before it is taken for dead.
        tpu: The slice that each run computes on, as in `v5e-16x16`: type and topology.
        image: Container that holds jestlab, pinned by digest; None for the one in the user's config.
        spot: Whether machines may be taken away at any time, at a lower price.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    on: Place | None = None
    parallel: PositiveInt | None = None
    threads: PositiveInt = 1
    memory_gb: PositiveFloat | None = None
    retries: NonNegativeInt = 2
    lease_seconds: Annotated[float, Field(ge=8.0)] = 90.0  # a worker speaks every 5
    tpu: Annotated[str, AfterValidator(_slice_name)] | None = None
    image: Annotated[str, AfterValidator(pinned_image)] | None = None
    spot: bool = False

    @model_validator(mode="after")
    def _can_be_had(self) -> Resources:
        if self.on in ("vertex", "kubernetes") and self.tpu is None:
            raise ValueError(f"{self.on} needs `tpu`, as in v5e-16x16")
        if self.on == "local" and self.tpu is not None:
            raise ValueError(f"this machine has no {self.tpu}: leave out `tpu`, or say `on: kubernetes`")
        if self.on == "vertex" and self.tpu is not None and not (found := tpu.parse(self.tpu).type).on_vertex:
            offered = ", ".join(name for name, type_ in tpu.TYPES.items() if type_.on_vertex)
            raise ValueError(f"Vertex AI trains on {offered}, not on {found.name}: say `on: kubernetes`")
        if self.on == "vertex" and self.spot and self.tpu is not None and tpu.parse(self.tpu).hosts > 1:
            raise ValueError(f"Vertex AI has no spot machines for slices of several hosts, as {self.tpu} is")
        return self
