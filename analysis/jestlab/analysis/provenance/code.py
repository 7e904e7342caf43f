"""Which results mix different code, package versions or data: pure logic on what attempts recorded.

What a run was made by is a mapping from items ("code ridge.py", "data train.csv", "package numpy", "jestlab")
to the values that its attempts recorded, digests or versions. What nobody recorded is unknown, and differs
from nothing.
"""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

DECISIVE = ("jax", "jaxlib", "numpy")
"""Packages whose versions count for every program; a study names further ones in `record`."""

ABSENT = "not there"
"""Value of a file that was to be recorded and did not exist."""

JESTLAB = "jestlab"
"""The item of jestlab's own code, which runs of its own programs are made by."""

OWN_PROGRAMS = frozenset({"train", "embed", "score", "diagnose", "weights"})
"""jestlab's own programs: what they compute depends on jestlab's code."""

_MOST_FILES = 4  # that are listed

Made = Mapping[str, frozenset[str]]
"""What a run was made by: item → values."""

Accepted = Sequence[Mapping[str, Collection[str]]]
"""Differences that somebody accepted, each as item → values that count as equal."""


def made_by(program: str, attempts: Iterable[Mapping[str, Any]], packages: Collection[str] = ()) -> Made:
    """Return what a run was made by.

    Args:
        program: Name of its program.
        attempts: All its attempts, with columns of `v_attempts`: number, state, started_at, first_step,
            sources, inputs, versions, git_commit, and changes: how long the patch of jestlab's code is.
        packages: Packages that count beside `DECISIVE`.
    """
    its = contributing(attempts)
    if len(its) == 1:
        return _made_by_one(program, tuple(packages), *(its[0][column] for column in _RECORDED))
    found: dict[str, set[str]] = {}
    for attempt in its:
        for item, value in recorded(program, attempt, packages).items():
            found.setdefault(item, set()).add(value)
    return {item: frozenset(values) for item, values in found.items()}


_RECORDED = ("sources", "inputs", "versions", "git_commit", "changes")
"""Columns of an attempt that say what it was made by."""


@functools.lru_cache(maxsize=64)
def _made_by_one(program: str, packages: Sequence[str], *values: Any) -> Made:
    """Do what `made_by` does for one attempt. Thousands may have recorded the same, and share one mapping."""
    found = recorded(program, dict(zip(_RECORDED, values, strict=True)), packages)
    return {item: frozenset([value]) for item, value in found.items()}


def contributing(attempts: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the attempts that a run's result rests on: that which completed it, and those that it resumed.

    An attempt that began at step 0 started over.
    """
    begun = sorted((a for a in attempts if a["started_at"] is not None), key=lambda a: int(a["number"]))
    completed = [place for place, attempt in enumerate(begun) if attempt["state"] == "COMPLETED"]
    chosen: list[Mapping[str, Any]] = []
    for attempt in reversed(begun[: completed[-1] + 1] if completed else begun):
        chosen.append(attempt)
        if not attempt["first_step"]:
            break
    return chosen[::-1]


def recorded(program: str, attempt: Mapping[str, Any], packages: Collection[str] = ()) -> dict[str, str]:
    """Return what one attempt recorded, item → value; arguments as of `made_by`."""
    found = {f"code {name}": digest for name, digest in _json(attempt["sources"]).items()}
    found |= {f"data {name}": digest or ABSENT for name, digest in _json(attempt["inputs"]).items()}
    versions = _json(attempt["versions"])
    found |= {f"package {name}": versions[name] for name in (*DECISIVE, *packages) if name in versions}
    if program in OWN_PROGRAMS and (code := own_code(attempt["git_commit"], attempt["changes"], versions)):
        found[JESTLAB] = code
    return found


def own_code(commit: str | None, changes: int | None, versions: Mapping[str, str]) -> str | None:
    """Name jestlab's own code by its commit and the size of what is not committed, else by its version."""
    if commit is None:
        return versions.get("jestlab")
    return f"{commit} with {changes} characters of changes" if changes else commit


def differing(runs: Iterable[Made], accepted: Accepted = ()) -> dict[str, list[str]]:
    """Return the items of which runs were made by several values, item → values in order of appearance.

    Args:
        runs: What each was made by; an item counts among the runs that have it.
        accepted: Differences that do not count.
    """
    values: dict[str, dict[str, None]] = {}
    for run in {id(run): run for run in runs}.values():
        for item, its in run.items():
            values.setdefault(item, {}).update(dict.fromkeys(sorted(its)))
    return {item: list(its) for item, its in values.items() if len(_classes(item, its, accepted)) > 1}


def odd_ones(rows: Mapping[str, Made], accepted: Accepted = ()) -> dict[str, list[str]]:
    """Return for each item the rows that were made by another value of it than most rows; the last of a tie.

    Args:
        rows: Row → what it was made by; an item counts among the rows that have it.
        accepted: As in `differing`.
    """
    found = {}
    for item, values in differing(rows.values(), accepted).items():
        groups = _classes(item, values, accepted)
        its = [[row for row, made in rows.items() if made.get(item, frozenset()) & group] for group in groups]
        most = max(its, key=len)
        found[item] = [row for row in rows if item in rows[row] and row not in most]
    return found


def _classes(item: str, values: Iterable[str], accepted: Accepted) -> list[set[str]]:
    """Group values that are equal, or were accepted as equal."""
    groups = [{value} for value in values]
    for alike in (set(said[item]) for said in accepted if item in said):
        touched = [group for group in groups if group & alike]
        groups = [group for group in groups if not group & alike]
        if touched:
            groups.append(set().union(*touched, alike))
    return groups


def names_of(items: Iterable[str]) -> str:
    """Write items as people call them: "ridge.py, train.csv, numpy"."""
    return ", ".join(item.partition(" ")[2] or item for item in items)


def differing_files(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Return the files of two states of code, file → digest, that are not the same in both."""
    return [name for name in {**first, **second} if first.get(name) != second.get(name)]


def unified_diff(first: Mapping[str, str], second: Mapping[str, str], texts: Mapping[str, str]) -> str:
    """Return the difference between two states of code as a unified diff; empty for none.

    Args:
        first: File → digest, of the one state.
        second: The same of the other.
        texts: Digest → text, as far as it is known.
    """
    parts: list[str] = []
    for name in differing_files(first, second):
        sides = [state.get(name) for state in (first, second)]
        if any(side is not None and side not in texts for side in sides):
            parts.append(f"{name}: its text is not kept (too large, no script, or not wanted)")
            continue
        one, other = ([] if side is None else texts[side].splitlines() for side in sides)
        lines = list(difflib.unified_diff(one, other, f"a/{name}", f"b/{name}", lineterm=""))
        parts += lines or [f"{name}: differs in lines that are left out, or in the ends of lines"]
    return "\n".join(parts)


def digests_of(files: Mapping[str, str | None]) -> str:
    """List files with the beginning of their digests, as far as they are few: "ridge.py 3fa2c81b"."""
    listed = [f"{name} {digest[:8] if digest else ABSENT}" for name, digest in files.items()]
    more = f" and {len(listed) - _MOST_FILES} more" if len(listed) > _MOST_FILES else ""
    return ", ".join(listed[:_MOST_FILES]) + more


@functools.lru_cache(maxsize=64)
def _json(text: str | None) -> Mapping[str, Any]:
    """Read what an attempt recorded; nothing where it is unknown. Most attempts recorded the same."""
    found: Mapping[str, Any] = json.loads(text) if text else {}
    return found
