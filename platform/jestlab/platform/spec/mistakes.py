"""Tell all that is wrong in a spec at once: why it cannot be parsed, and what is wrong beside that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from jestlab.platform.errors import Mistakes, Path, SpecError, UserError, UserErrors, closest
from jestlab.platform.spec.config_tree import STUDIES, Tree, is_mapping
from jestlab.platform.spec.expand import checked
from jestlab.platform.spec.schema import Study

MOST_LINES = 20
"""Mistakes that are told one by one; of more, the number."""

_NEEDED = ("base", "program", "runs")
"""Parts without which nothing can be said of the runs."""


def all_of(error: SpecError, written: Any, parse: Callable[[Any], Study]) -> SpecError:
    """Find what else is wrong in a spec that cannot be parsed, as far as it does not follow from that.

    What is wrong is left out, and the rest is checked like any spec. A run that is wrong stays as a name,
    which others may mention.

    Args:
        error: Why it cannot be parsed.
        written: The spec as written.
        parse: Parses it; raises SpecError.

    Returns:
        The mistakes of `error`, and the others. None are looked for in a union.
    """
    mistakes = Mistakes()
    mistakes.add(error.errors)
    rest: Tree | None = dict(written.items()) if is_mapping(written) else None
    unsure: set[str] = set()
    new: Sequence[SpecError] = error.errors
    while rest is not None and not rest.get(STUDIES):
        known = len(mistakes)
        rest = _without([one.path for one in new], rest, unsure)
        if rest is None:
            break
        try:
            checked(parse(rest), unsure)
            break
        except SpecError as more:
            new = more.errors
            mistakes.add(new)
        if len(mistakes) == known:
            break
    return mistakes.together()


def _without(wrong: Collection[Path], written: Tree, unsure: set[str]) -> Tree | None:
    """Leave out what is wrong, and note the runs that this makes unsure; None if too little is left."""
    rest = dict(written)
    runs = rest.get("runs")
    if not is_mapping(runs) or not runs:
        return None
    for head in {path[0] for path in wrong if path}:
        parts = {path[1] for path in wrong if path[0] == head and len(path) > 1}
        whole = any(path == (head,) for path in wrong)
        if head == "runs" and not whole:
            unsure |= parts
            rest["runs"] = {name: {} if name in parts else run for name, run in runs.items()}
        elif head in _NEEDED:
            return None
        elif head in ("axes", "reports", "claims") and not whole and isinstance(rest.get(head), list | tuple):
            if head == "axes":
                unsure.update(name for index in parts for name in _meant(rest["axes"][int(index)], runs))
            rest[head] = [
                _harmless(head, next(iter(runs)), index) if str(index) in parts else item
                for index, item in enumerate(rest[head])
            ]
        elif head == "name":
            rest[head] = "unnamed"
        elif head == "adopted" and isinstance(rest.get(head), list | tuple):
            rest[head] = [name for name in rest[head] if isinstance(name, str) and name.strip()]
        elif head in rest:
            unsure.update(runs if head == "axes" else ())
            del rest[head]
    return rest


def _harmless(head: str, run: str, index: int) -> Any:
    """Return an item that stands for one that is wrong, so that the others keep their numbers."""
    if head == "axes":
        return {"runs": [run], "cases": [{}]}
    if head == "reports":
        return "curves"
    return {"statement": f" {index}", "of": run, "above": {"of": run, "measure": "another/one"}}


def _meant(axis: Any, runs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the runs that an axis may be meant for."""
    given = axis.get("runs") if is_mapping(axis) else None
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, list | tuple):
        yield from runs
        return
    for name in names:
        near = closest(str(name).strip(), runs)
        yield from runs if near is None else (near,)


def told(
    error: SpecError, file: str, line: Callable[[Path], int | None], tell: Callable[[SpecError], str]
) -> UserError:
    """Turn the mistakes in a spec into lines, in the order of the file.

    Args:
        error: One mistake, or several.
        file: What the spec is called.
        line: Returns the line of a place; None where it is not known.
        tell: Writes a mistake.

    Returns:
        One line for one mistake; a line for each of several, and one that counts them.
    """
    errors = sorted(error.errors, key=lambda one: line(one.path) or 0)
    lines = list(dict.fromkeys(map(tell, errors)))
    if len(lines) == 1:
        return UserError(lines[0])
    more = f"and {len(lines) - MOST_LINES} more: " if len(lines) > MOST_LINES else ""
    return UserErrors([*lines[:MOST_LINES], f"{more}{len(lines)} mistakes in {file}"])
