"""Code of one's own that a config names where it could name something built in.

A name is that of an entry point of an installed package, or says itself where the code is:
`package.module:function` or `path/to/file.py:function`.

references.py  finds, checks and imports what a name stands for
imports.py     the modules that a Python file imports, found without executing it
content.py     the digest of code, which identifies it: not its comments, not where it lies
kinds.py       what can be added, and the entry points of each kind
own.py         a function of one's own with its options, as the training step calls it
"""

from jestlab.models.extensions.content import digest, is_of_jestlab
from jestlab.models.extensions.kinds import (
    GIVEN,
    GROUPS,
    Kind,
    check_name,
    installed,
    load,
    reference_of,
    uses,
)
from jestlab.models.extensions.own import Own

__all__ = [
    "GIVEN",
    "GROUPS",
    "Kind",
    "Own",
    "check_name",
    "digest",
    "installed",
    "is_of_jestlab",
    "load",
    "reference_of",
    "uses",
]
