"""Names of studies and runs: they become names of folders, so they are held to a safe alphabet."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jestlab.platform.spec.errors import SpecError, shown

LONGEST = 80
_SAFE = re.compile(r"[A-Za-z0-9_.+-]+")


def check_name(name: object, path: Sequence[str]) -> str:
    """The name, if it may be one.

    Raises:
        SpecError: It holds anything but letters, digits and `_ . + -`, or "..", or is too long.
    """
    if (
        not isinstance(name, str)
        or not _SAFE.fullmatch(name)
        or ".." in name
        or name.startswith((".", "-"))
        or len(name) > LONGEST
    ):
        raise SpecError(
            path,
            f"{shown(name)} is no name: at most {LONGEST} letters, digits and _ . + -, "
            "not beginning with . or -, and without '..'",
        )
    return name
