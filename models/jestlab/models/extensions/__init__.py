"""Custom code that configs and specs name.

A name is an entry point of an installed package, or a reference: `package.module:function` or
`path/to/file.py:function`.

kinds.py       the kinds of custom code, and the entry points of each kind
references.py  finds, checks, and imports the code of a reference
content.py     the digest of code, without comments; the files that code imports
"""

from jestlab.models.extensions.content import digest
from jestlab.models.extensions.kinds import (
    GIVEN,
    GROUPS,
    CustomFunction,
    Kind,
    check_name,
    code_of,
    installed,
    load,
    reference_of,
    uses,
)

__all__ = [
    "GIVEN",
    "GROUPS",
    "CustomFunction",
    "Kind",
    "check_name",
    "code_of",
    "digest",
    "installed",
    "load",
    "reference_of",
    "uses",
]
