"""The base class and the field types of all sections of a config."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

RunName = Annotated[str, Field(min_length=1, json_schema_extra={"names_a_run": True})]
"""Another run of the study: the plan resolves the name, runs it first and hashes it by its fingerprint."""

LocalPath = Annotated[str, Field(min_length=1, json_schema_extra={"is_path": True})]
"""A file or folder: where it is relative in a YAML spec, it counts from the spec's folder."""

Seed = Annotated[int, Field(ge=0, lt=2**32)]
"""JAX's keys are made of 32 bits of a seed: beyond them, seeds would repeat."""

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """A frozen part of a config; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
