"""What a paper, or the study's author, claims, in a form that the study's runs can decide."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from jestlab.platform.errors import nearest
from jestlab.platform.spec.errors import Path, SpecError, kind_of, shown
from jestlab.platform.spec.tree import is_mapping

COMPARISONS = ("above", "below", "near")
"""What a claim can say of its side: exactly one."""

_PARTS = ("of", "minus")
_SIDE = (*_PARTS, "measure")
_TEXTS = ("measure", "source", "unless")

Names = str | tuple[str, ...]
"""A label or the name of a run (then all its points), or several: the mean over them."""


class Side(BaseModel):
    """A side of a claim that says more than whose mean it is: a difference itself, such as what a smaller
    batch costs, or one that is measured by another measure than the other side.

    Attributes:
        of: What it is of, or what is subtracted from.
        minus: What is subtracted.
        measure: What this side is measured by, where that is not the claim's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    of: Names
    minus: Names | None = None
    measure: str | None = None


class Claim(BaseModel):
    """A statement that the study's runs decide, seed by seed. Exactly one of above, below and near is given.

    Attributes:
        statement: What is claimed, in words.
        of: What it is claimed of.
        above: What it lies above.
        below: What it lies below.
        near: What it is as good as.
        within: How far from `near` at most, or how far on the wrong side of `above` and `below` is still as
            good, in the measure's own unit (.02 are two points of a score).
        measure: What is compared: "score" (mean of the final evaluations), "score_at_flops" (where the
            learning curves are at the least FLOPs that any of the runs ends at), "score_after_0.5" (where a
            run has seen half of its examples, or another share), the name of one evaluation, the name of a
            training metric (its last value), or "loss_spikes" (how many).
        source: Where it is claimed.
        unless: The likely reason where it does not hold, one sentence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    statement: str
    of: Names | Side
    above: Names | Side | None = None
    below: Names | Side | None = None
    near: Names | Side | None = None
    within: float | None = None
    measure: str = "score"
    source: str | None = None
    unless: str | None = None

    @property
    def comparison(self) -> str:
        """Which of the three it is."""
        return next(kind for kind in COMPARISONS if getattr(self, kind) is not None)

    @property
    def other(self) -> Names | Side:
        """What it is compared with."""
        side: Names | Side = getattr(self, self.comparison)
        return side


def parse_claims(given: Any) -> list[dict[str, Any]]:
    """Claims as they are written, as arguments of `Claim`.

    Raises:
        SpecError: Another shape, a key that claims do not have, not exactly one comparison, or a statement
            twice; the place is named.
    """
    if given is None:
        return []
    if not isinstance(given, list | tuple):
        raise SpecError(("claims",), f"must be a list of claims, not {shown(given)}")
    claims = [_claim(claim, ("claims", str(i))) for i, claim in enumerate(given)]
    statements: set[str] = set()
    for i, claim in enumerate(claims):
        if claim["statement"] in statements:
            raise SpecError(("claims", str(i), "statement"), "is there twice: give each statement once")
        statements.add(claim["statement"])
    return claims


def check_claims(claims: Sequence[Claim], known: Collection[str]) -> None:
    """Check that claims are of runs that there are.

    Args:
        claims: Of a study.
        known: Names and labels of its runs.

    Raises:
        SpecError: One is of a run that there is not; the place and the nearest are named.
    """
    for i, claim in enumerate(claims):
        for key in ("of", claim.comparison):
            for path, name in _named(getattr(claim, key), ("claims", str(i), key)):
                if name not in known:
                    raise SpecError(path, f"no run {name!r}: {nearest(name, known)}")


def _named(side: Names | Side, path: Path) -> Iterator[tuple[Path, str]]:
    """The names on a side, each with its place."""
    if isinstance(side, Side):
        for part in _PARTS:
            if getattr(side, part) is not None:
                yield from _named(getattr(side, part), (*path, part))
    elif isinstance(side, str):
        yield path, side
    else:
        yield from (((*path, str(i)), name) for i, name in enumerate(side))


def _claim(given: Any, path: Path) -> dict[str, Any]:
    if isinstance(given, Claim):
        given = given.model_dump()
    if not is_mapping(given):
        raise SpecError(path, f"must be a mapping of {', '.join(Claim.model_fields)}, not {shown(given)}")
    written: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    for key in written:
        if key not in Claim.model_fields:
            raise SpecError((*path, str(key)), f"unknown key: {nearest(str(key), Claim.model_fields)}")
    for key in ("statement", "of"):
        if key not in written:
            raise SpecError((*path, key), "is missing")
    for key in ("statement", *(text for text in _TEXTS if text in written)):
        _text(written, key, path)
    kinds = [kind for kind in COMPARISONS if kind in written]
    if len(kinds) != 1:
        raise SpecError(
            path, f"must have exactly one of {', '.join(COMPARISONS)}, not {' and '.join(kinds) or 'none'}"
        )
    _check_within(written, kinds[0], path)
    sides = {key: _side(written[key], (*path, key)) for key in ("of", kinds[0])}
    if sides["of"] == sides[kinds[0]]:
        raise SpecError((*path, kinds[0]), "is what the claim is of: name another run, or another measure")
    return written | sides


def _check_within(written: Mapping[str, Any], kind: str, path: Path) -> None:
    within = written.get("within")
    if within is None:
        if kind != "near":
            return
        raise SpecError((*path, "within"), "is missing: near is how near? (.02 are two points of a score)")
    number = isinstance(within, int | float) and not isinstance(within, bool)
    if not number or not math.isfinite(within) or within <= 0:
        raise SpecError((*path, "within"), f"must be a number above 0, not {shown(within)}")


def _side(given: Any, path: Path) -> Any:
    if not is_mapping(given):
        return _names(given, path)
    written = {key: value for key, value in given.items() if value is not None}
    for key in written:
        if key not in _SIDE:
            raise SpecError((*path, str(key)), f"unknown key: {nearest(str(key), _SIDE)}")
    if "of" not in written:
        raise SpecError((*path, "of"), "is missing: a side is {of: …, minus: …} or {of: …, measure: …}")
    if len(written) == 1:
        raise SpecError(path, "says only of what it is: write the name alone, or add minus or measure")
    names = {key: _names(written[key], (*path, key)) for key in _PARTS if key in written}
    return names | ({"measure": _text(written, "measure", path)} if "measure" in written else {})


def _text(written: Mapping[str, Any], key: str, path: Path) -> str:
    text = written[key]
    if not isinstance(text, str) or not text.strip():
        raise SpecError((*path, key), f"must be a text, not {shown(text)}")
    return text


def _names(given: Any, path: Path) -> Names:
    if isinstance(given, str) and given:
        return given
    if not isinstance(given, list | tuple) or not given:
        raise SpecError(
            path, f"must name a run, by label or name, or list several, not {shown(given)} ({kind_of(given)})"
        )
    for i, name in enumerate(given):
        if not isinstance(name, str) or not name:
            raise SpecError((*path, str(i)), f"must name a run, by label or name, not {shown(name)}")
        if name in given[:i]:
            raise SpecError((*path, str(i)), f"{name!r} is there twice: give each run once")
    return tuple(given)
