"""The base class of all sections of a config, and what they hold of code of one's own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo
from pydantic.fields import FieldInfo

from jestlab.models import extensions
from jestlab.models.extensions import Kind, check_name
from jestlab.models.extensions.references import without_folder

ELSEWHERE = {"elsewhere": True}
"""Validation context of configs that were planned elsewhere: the code that they name may be missing here."""


class Section(BaseModel):
    """A frozen part of a config; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FrozenOptions(dict[str, Any]):
    """Plain options that can be hashed, as the frozen sections of a config are."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(json.dumps(self, sort_keys=True))


Options = Annotated[dict[str, Any], AfterValidator(FrozenOptions)]
"""Keyword arguments of code of one's own: plain data."""

NO_OPTIONS = FrozenOptions()


def names_code(kind: Kind, builtin: Sequence[str] = ()) -> FieldInfo:
    """Mark a field as one that names something built in, or code of one's own.

    Args:
        kind: What the code is used as.
        builtin: What there is without it.
    """
    field: FieldInfo = Field(min_length=1, json_schema_extra={"names_code": kind, "choices": list(builtin)})
    return field


def known(kind: Kind, builtin: Sequence[str] = ()) -> AfterValidator:
    """Refuse what is neither built in nor can be the name of code; arguments as for `names_code`."""

    def check(name: str, info: ValidationInfo) -> str:
        return name if (info.context or {}).get("elsewhere") else check_name(kind, name, builtin)

    return AfterValidator(check)


class Code(Section):
    """The code that a name stands for, as it was when the run was planned.

    Attributes:
        digest: Digest of its content, without comments: see `extensions.content`.
        uses: Parameters that it takes, by position or name; null if that is not known.
    """

    digest: str
    uses: tuple[str, ...] | None = None


def uses(code: Mapping[str, Code], kind: Kind, name: str) -> tuple[str, ...] | None:
    """Return what the code of a name takes of what jestlab gives it: as planned, or by its source.

    Returns:
        Names out of `extensions.GIVEN`; None if that is not known.
    """
    planned = code.get(name)
    return planned.uses if planned is not None else extensions.uses(kind, name)


class Extension(NamedTuple):
    """Code of one's own that a config names.

    Attributes:
        path: Of the field that names it.
        kind: What it is used as.
        name: As the config writes it.
        options: Its keyword arguments.
    """

    path: tuple[str, ...]
    kind: Kind
    name: str
    options: Mapping[str, Any]


class Extended(Section):
    """A whole config that can name code of one's own.

    Attributes:
        code: The code of one's own that the config names, by that name, as it was planned. The plan fills it
            in; its digest is part of the identity in place of the name.
    """

    version: ClassVar[int]

    code: dict[str, Code] = {}

    def extensions(self) -> Iterator[Extension]:
        """Yield the code of one's own that the config names."""
        yield from ()

    def identified(self, identity: dict[str, Any], extensions: Iterable[Extension]) -> dict[str, Any]:
        """Return an identity with code in place of its names, and without the record of it."""
        identity = {key: value for key, value in identity.items() if key != "code"}
        for extension in extensions:
            *heads, last = extension.path
            section = identity
            for head in heads:
                section = section.get(head, {})
            if last in section:
                code = self.code.get(extension.name)
                name = without_folder(extension.name)
                section[last] = f"{name.rpartition(':')[2]} {code.digest}" if code else name
        return identity
