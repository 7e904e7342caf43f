"""The lab's folder as a job elsewhere sees it: the same files, at a path of its own.

A lab in a bucket has one address everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

_OPTION = "--root"


def at(root: str, arguments: Sequence[str]) -> list[str]:
    """A worker's arguments with another folder of the lab, unless that is in a bucket.

    Args:
        root: The folder, where the worker runs.
        arguments: As the launcher made them, for this machine.
    """
    found = list(arguments)
    for place, argument in enumerate(found):
        if argument == _OPTION and place + 1 < len(found) and "://" not in found[place + 1]:
            found[place + 1] = root
        elif argument.startswith(f"{_OPTION}=") and "://" not in argument:
            found[place] = f"{_OPTION}={root}"
    return found
