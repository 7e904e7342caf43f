"""Compare the code, data, and package versions that runs were made with.

Each run has a mapping from items to values. An item is a file of custom code ("code ridge.py"), a data
file ("data train.csv"), a package ("package numpy"), or jestlab's own code ("jestlab"). Its values are the
digests or versions that the run's attempts recorded. Runs differ only in items that both of them recorded.
"""

import difflib
import functools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..units import listed, some

DECISIVE = ("jax", "jaxlib", "numpy")
"""Packages whose versions are compared for every program; `record` in a spec adds others."""

ABSENT = "not there"
"""Value of a data file that did not exist."""

JESTLAB = "jestlab"
"""The item for jestlab's own code, which only jestlab's own programs have."""

OWN_PROGRAMS = frozenset({"train", "embed", "score", "diagnose", "weights"})
"""jestlab's own programs: their results depend on jestlab's code."""

_KINDS = {"package": "package versions", JESTLAB: "versions of jestlab"}

Made = Mapping[str, frozenset[str]]
"""Code, data, and packages of a run: item → values."""

Accepted = Sequence[Mapping[str, Collection[str]]]
"""Accepted differences: item → values that count as equal."""


def contributing(attempts: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the attempts that a run's result depends on: the completed one, and those that it resumed.

    An attempt whose first step is 0 or unknown resumed nothing.
    """
    started = sorted((a for a in attempts if a["started_at"] is not None), key=lambda a: int(a["number"]))
    completed = [place for place, attempt in enumerate(started) if attempt["state"] == "COMPLETED"]
    chosen: list[Mapping[str, Any]] = []
    for attempt in reversed(started[: completed[-1] + 1] if completed else started):
        chosen.append(attempt)
        if not attempt["first_step"]:
            break
    return chosen[::-1]


def made_by(program: str, attempts: Iterable[Mapping[str, Any]], packages: Collection[str] = ()) -> Made:
    """Return the code, data, and packages of a run.

    Args:
        program: Name of its program.
        attempts: All its attempts, with these columns of `v_attempts`: number, state, started_at, first_step,
            sources, inputs, versions, git_commit; and changes: the length of the patch of jestlab's code.
        packages: Packages to compare in addition to `DECISIVE`.
    """
    columns = ("sources", "inputs", "versions", "git_commit", "changes")
    recorded = tuple(tuple(attempt[name] for name in columns) for attempt in contributing(attempts))
    return _made_by(program, recorded, tuple(packages))


@functools.lru_cache(maxsize=256)  # thousands of runs with equal records share one mapping
def _made_by(program: str, attempts: Sequence[Sequence[Any]], packages: Sequence[str]) -> Made:
    values: dict[str, set[str]] = {}
    for *recorded, commit, changes in attempts:
        sources, inputs, installed = (parsed(each) or {} for each in recorded)
        items = {f"code {name}": digest for name, digest in sources.items()}
        items |= {f"data {name}": digest or ABSENT for name, digest in inputs.items()}
        items |= package_items(installed, packages)
        if program in OWN_PROGRAMS and (jestlab := commit or installed.get("jestlab")):
            patch = f" with {changes} characters of changes" if commit and changes else ""
            items[JESTLAB] = jestlab + patch
        for item, value in items.items():
            values.setdefault(item, set()).add(value)
    return {item: frozenset(texts) for item, texts in values.items()}


@functools.lru_cache(maxsize=256)  # thousands of attempts have equal records
def parsed(content: str | None) -> Any:
    """Parse JSON that an attempt recorded; None if it recorded nothing."""
    return json.loads(content) if content else None


def package_items(versions: Mapping[str, str], packages: Iterable[str]) -> dict[str, str]:
    """Return the items for `DECISIVE` and other packages, given the versions of all installed packages."""
    return {f"package {name}": versions[name] for name in (*DECISIVE, *packages) if name in versions}


def differing(runs: Iterable[Made], accepted: Accepted = ()) -> dict[str, list[str]]:
    """Return the items in which runs differ beyond accepted differences, and their values in order."""
    values: dict[str, dict[str, None]] = {}
    for run in {id(run): run for run in runs}.values():
        for item, recorded in run.items():
            values.setdefault(item, {}).update(dict.fromkeys(sorted(recorded)))
    return {item: [*texts] for item, texts in values.items() if len(_groups(item, texts, accepted)) > 1}


def odd_ones(rows: Mapping[str, Made], accepted: Accepted = ()) -> dict[str, list[str]]:
    """Return item → rows whose value differs from that of most rows.

    If two values are equally frequent, the first counts as the value of most rows. Items that do not differ,
    or differ only as accepted, are left out.
    """
    odd_rows = {}
    for item, values in differing(rows.values(), accepted).items():
        groups = _groups(item, values, accepted)
        members = [[row for row, run in rows.items() if run.get(item, frozenset()) & g] for g in groups]
        majority = max(members, key=len)
        odd_rows[item] = [row for row in rows if item in rows[row] and row not in majority]
    return odd_rows


def _groups(item: str, values: Iterable[str], accepted: Accepted) -> list[set[str]]:
    """Group the values of an item that count as equal."""
    groups = [{value} for value in values]
    for equal in (set(difference[item]) for difference in accepted if item in difference):
        touched = [group for group in groups if group & equal]
        groups = [group for group in groups if not group & equal]
        if touched:
            groups.append(set().union(*touched, equal))
    return groups


# ---- in words


def made_with_different(items: Iterable[str]) -> str:
    """Describe differing items: "made with different code (ridge.py) and package versions (numpy)".

    All warnings about different code, data, or package versions use this phrase.
    """
    names: dict[str, list[str]] = {}
    for item in items:
        kind, _, name = item.partition(" ")
        names.setdefault(kind, []).extend([name] if name else [])
    parts = [
        f"{_KINDS.get(kind, kind)} ({', '.join(of_kind)})" if of_kind else _KINDS.get(kind, kind)
        for kind, of_kind in names.items()
    ]
    return f"made with different {listed(parts)}"


def names_of(items: Iterable[str]) -> str:
    """Return the names of items: "ridge.py, train.csv, numpy"."""
    return ", ".join(item.partition(" ")[2] or item for item in items)


def _files_text(files: Mapping[str, str | None]) -> str:
    """List files with the beginning of their digests: "ridge.py 3fa2c81b"."""
    return some([f"{name} {digest[:8] if digest else ABSENT}" for name, digest in files.items()])


def code_of(attempt: Mapping[str, Any]) -> str:
    """Describe the custom code and the data of one of `History.attempts`; empty if it has neither."""
    parts = []
    if attempt["sources"]:
        parts.append(f"code {_files_text(attempt['sources'])}")
        if attempt["code_commit"]:
            parts[0] += f" of {commit_text(attempt['code_commit'], attempt['code_changes'])}"
    elif attempt["program"] not in OWN_PROGRAMS:
        parts.append("code not recorded")
    if attempt["inputs"]:
        parts.append(f"data {_files_text(attempt['inputs'])}")
    return ", ".join(parts)


def jestlab_of(attempt: Mapping[str, Any]) -> str:
    """Describe the version of jestlab that made one of `History.attempts`: its commit or installed code."""
    version, _, code = (attempt["versions"] or {}).get(JESTLAB, "").partition("+code.")
    if code:
        return f"jestlab {version} (installed, code {code})"
    return f"jestlab {commit_text(attempt['git_commit'], attempt['changes'])}"


def commit_text(commit: str | None, patched: Any) -> str:
    """Describe a state of a repository: "commit 3fa2c81b9e01 with uncommitted changes"."""
    return f"commit {(commit or 'unknown')[:12]}{' with uncommitted changes' if patched else ''}"


def differing_files(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Return the files that differ between two states of code, each given as file → digest."""
    return [name for name in {**first, **second} if first.get(name) != second.get(name)]


def unified_diff(first: Mapping[str, str], second: Mapping[str, str], texts: Mapping[str, str]) -> str:
    """Return the unified diff of two states of code (file → digest), given digest → text of the file."""
    parts: list[str] = []
    for name in differing_files(first, second):
        digests = [state.get(name) for state in (first, second)]
        if any(digest is not None and digest not in texts for digest in digests):
            parts.append(f"{name}: its text was not stored (too large, not a script, or excluded)")
            continue
        one, other = ([] if digest is None else texts[digest].splitlines() for digest in digests)
        lines = list(difflib.unified_diff(one, other, f"a/{name}", f"b/{name}", lineterm=""))
        parts += lines or [f"{name}: differs only in excluded lines or line endings"]
    return "\n".join(parts)
