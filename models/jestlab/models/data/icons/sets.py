"""The icon sets: pinned packages of npm, each with its part in the data, its licence and its checksum."""

from __future__ import annotations

import csv
import functools
from importlib import resources
from typing import Any, Literal, NamedTuple

Part = Literal["curated", "validation", "benchmark", "web"]


class IconSet(NamedTuple):
    """A set of icons: one style.

    Attributes:
        name: Prefix of its icons, and name of its package after `@iconify-json/`.
        version: Of the package.
        part: What its icons are used for.
        kind: What they show: emoji, logos, files, flags, weather or interface.
        license: SPDX identifier. Every one allows redistribution; sets that are not for commerce, or that
            demand their own licence of what is made of them, are not here.
        bytes: Size of the package's file.
        sha512: Of the package's file, base64, as npm's own `integrity` has it.
    """

    name: str
    version: str
    part: Part
    kind: str
    license: str
    bytes: int
    sha512: str

    @property
    def package(self) -> str:
        """Name and version, as npm takes them."""
        return f"@iconify-json/{self.name}@{self.version}"

    @property
    def file_name(self) -> str:
        """Name that npm gives to the package's file."""
        return f"iconify-json-{self.name}-{self.version}.tgz"


@functools.cache
def icon_sets() -> tuple[IconSet, ...]:
    """Return all sets, from `sets.csv`."""
    with (resources.files(__package__) / "sets.csv").open(encoding="utf-8") as file:
        rows: list[dict[str, Any]] = [*csv.DictReader(file)]
    return tuple(IconSet(**(row | {"bytes": int(row["bytes"])})) for row in rows)
