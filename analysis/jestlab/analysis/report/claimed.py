"""The claims of a page: how each verdict is told and marked, by words and sign as well as by colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..measures import SCORE
from ..rendering import MISSING
from ..tables.claims import claims_table, difference, names
from .parts import ClaimsPart

if TYPE_CHECKING:
    from ..verdicts import Judged, Verdict

MARKS: dict[Verdict, str] = {"holds": "✓", "does not hold": "✗", "undecided": "?", "not run": "○"}
"""Verdict → its sign."""

KINDS: dict[Verdict, str] = {
    "holds": "holds",
    "does not hold": "fails",
    "undecided": "open",
    "not run": "open",
}
"""Verdict → the class of its element."""


def claims_part(judged: Sequence[Judged], experiment: str, by_study: bool = False) -> ClaimsPart | None:
    """The claims of a page; None where there are none.

    Args:
        judged: Them.
        experiment: That the page is of.
        by_study: Whether it is of several studies.
    """
    if not judged:
        return None
    table = claims_table(judged, experiment, by_study)
    return ClaimsPart("claims", "Claims", table, tuple(judged))


def told(part: ClaimsPart) -> list[dict[str, Any]]:
    """Each claim as the templates take it."""
    rows = part.table.frame.to_dict("records")
    return [
        _told(name, each, difference({str(key): value for key, value in row.items()}))
        for name, each, row in zip(names(part.judged), part.judged, rows, strict=True)
    ]


def _told(row: str, each: Judged, shown: str) -> dict[str, Any]:
    claim = each.claim
    seeds = f"{each.seeds} of {each.planned}" if each.seeds < each.planned else f"{each.seeds}"
    return {
        "row": row,
        "study": each.experiment,
        "kind": KINDS[each.verdict],
        "mark": MARKS[each.verdict],
        "said": each.said,
        "statement": claim.statement,
        "source": claim.source,
        "difference": "" if shown == MISSING else shown,
        "unit": " points" if each.in_percent and claim.unit == SCORE else "",
        "seeds": f"{seeds} {'seed' if seeds == '1' else 'seeds'}",
        "claim": str(claim),
        "missing": _stopped(each.gap),
        "likely": _likely(each),
    }


def _likely(each: Judged) -> str:
    """Why a claim that enough seeds have been run for does not hold, as a sentence."""
    if each.seeds < 2 or not each.reason:
        return ""
    said = _stopped(each.reason)
    return f"Likely reason: {said}" if each.verdict == "does not hold" else said[0].upper() + said[1:]


def _stopped(text: str) -> str:
    """A text as a sentence that ends."""
    return text if not text or text.endswith((".", "?", "!", "…")) else f"{text}."
