"""Do without the rights of root, as another user would."""

import mmap  # noqa: F401 — numpy does so late, when another user may not read where Python is
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_rights() -> Iterator[None]:
    """Without the rights that root has; the saved id is the way back."""
    if os.getuid() != 0:
        yield  # the folder's mode is enough
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
