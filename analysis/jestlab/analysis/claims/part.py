"""Base of the parts of a spec that belong to claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Part(BaseModel):
    """A part of a spec; a key without a value has its default."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        known = cls.model_fields
        return {key: value for key, value in data.items() if value is not None or key not in known}
