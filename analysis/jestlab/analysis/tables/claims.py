"""The table of claims, each with its verdict and difference."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..claims.claim import SCORE
from ..claims.evidence import Verdict
from ..claims.verdicts import Judged, counted, place
from ..intervals import INTERVAL
from ..metrics import Metric
from . import show
from .core import ESSENTIAL, Column, Record, Table

if TYPE_CHECKING:
    import pandas as pd

MARKS: dict[Verdict, str] = {"holds": "✓", "does not hold": "✗", "undecided": "?", "not run": "○"}
"""Verdict → its sign in pages and terminals."""

_SEEDS = "seeds in which all runs of both sides have ended, of those planned"
_AGREE = "seeds in which the difference lies where the claim says"
_CHANCE = "chance with which any claim of the family would show evidence so strong for the wrong side"


def claims_table(judged: Sequence[Judged], name: str, by_study: bool = False) -> Table:
    """Build the table of claims with their verdicts, one row for each claim.

    Args:
        judged: Them, in the order of the studies.
        name: Of the experiment, or of several.
        by_study: Whether a first column says of which study each is.

    Returns:
        A table whose frame has study, statement, source, verdict, scale, claim (what is compared, in the
        words of the spec), measure (what the difference is one of), within, difference, low, high (in the
        measure's own unit), bound_low and bound_high (by which it is judged; NaN where nothing is known),
        chance (of an error, of the whole family), agree (seeds that do), seeds, seeds_planned, stopped (why
        there are no more), registered, exploratory (what is not as it was registered), reason; unit and
        digits of the measure.
    """
    meant = {row: each.metric for row, each in zip(names(judged), judged, strict=True)}
    is_sequential = any(each.judging.until is not None for each in judged)
    registered = Column("registered", "registered", _registered, align="left", importance=45)
    return Table(
        name=f"{name} claims",
        caption=counted(judged),
        frame=_frame(judged),
        columns=(
            *([_text_column("study", "study", 70)] if by_study else []),
            _text_column("statement", "claim", ESSENTIAL),
            _text_column("source", "source", 40, data=("source",)),
            Column(
                "expected",
                "expected",
                lambda row: expected(row, meant[row["row"]]),
                importance=60,
                data=("comparison", "within"),
            ),
            _difference_column(meant),
            Column("verdict", "verdict", lambda row: str(row["said"]), align="left", importance=90),
            Column("chance", "error", error, formula=_CHANCE, importance=50, data=("chance",)),
            Column("agree", "agree", agree, formula=_AGREE, importance=55, data=("agree", "seeds")),
            Column("seeds", "n", show.seeds, formula=_SEEDS, importance=30),
            *([_text_column("stopped", "stopped", 35)] if is_sequential else []),
            *([registered] if any(each.registered for each in judged) else []),
            _text_column("reason", "why not", 20, data=("reason",)),
        ),
        notes=(*_rules(judged), *_lost(judged), *_gaps(judged)),
        parts=_parts(judged),
    )


def _text_column(key: str, header: str, importance: int, data: tuple[str, ...] = ()) -> Column:
    """Column of a text of the frame."""
    return Column(key, header, lambda row: str(row[key]), align="left", importance=importance, data=data)


def _difference_column(meant: Mapping[str, Metric]) -> Column:
    """Column of differences.

    Args:
        meant: Row → what its difference is one of.
    """
    return Column(
        "difference",
        "difference",
        lambda row, digits: difference(row, show.to_digits(meant[row["row"]], digits)),
        formula="mean over seeds of what the claim is of minus what it is compared with; in brackets "
        f"its {INTERVAL} by Student's t; a run adds its value times its weight",
        inputs=("value", "weight"),
        importance=80,
        family="differences",
        data=("difference", "low", "high"),
        takes_digits=True,
    )


def difference(row: Record, metric: Metric) -> str:
    """Write the difference of a claim with its interval, and its measure if that is not the score."""
    text = show.difference(row["difference"], row["low"], row["high"], metric)
    if text == show.MISSING or row["measure"] == SCORE:
        return text
    return f"{text} {metric.name or row['measure']}"


def expected(row: Record, metric: Metric) -> str:
    """Write where a claim says that the difference lies: "above 0", "above −1.0", "−5.0 to +5.0"."""
    within = 0.0 if math.isnan(row["within"]) else float(row["within"])
    if row["comparison"] == "near":
        return f"{metric.text(-within)} to {metric.text(within, '+')}"
    end = -within if row["comparison"] == "above" else within
    return f"{row['comparison']} {metric.text(end, '+') if within else '0'}"


def _registered(row: Record) -> str:
    if not row["registered"]:
        return "no"
    return f"exploratory: {row['exploratory']}" if row["exploratory"] else "yes"


def error(row: Record) -> str:
    """Write the chance with which the family would show evidence so strong for the wrong side."""
    if row["seeds"] < 2:
        return show.MISSING
    chance = float(row["chance"])
    return "under 0.001" if chance < 0.001 else f"{chance:.3f}" if chance < 0.1 else f"{chance:.2f}"


def agree(row: Record) -> str:
    """Write how many seeds lie where the claim says."""
    return f"{row['agree']} of {row['seeds']}" if row["seeds"] else show.MISSING


def _rules(judged: Sequence[Judged]) -> list[str]:
    """Notes on how the claims are judged, of each way that occurs."""
    notes = [
        f"difference: what the claim is of minus what it is compared with, seed by seed, mean [{INTERVAL} by "
        "Student's t, of one claim and one look]; of scores in points (%)",
    ]
    wrong = judged[0].judging.family.error
    together = {its.claims for each in judged if (its := each.judging).family.adjust != "none"}
    for claims in sorted(together):
        notes.append(
            f"family of {claims} claims: the chance that any of its verdicts is wrong is at most {wrong:.0%},"
            f" {wrong / claims:.2g} for each (Bonferroni)"
            if claims > 1
            else f"one claim: the chance that its verdict is wrong is at most {wrong:.0%}"
        )
    if alone := sum(each.judging.family.adjust == "none" for each in judged):
        notes.append(
            f"family: none: each verdict by itself is wrong with a chance of at most {wrong:.0%}; of {alone} "
            f"claims some verdict is with {1 - (1 - wrong) ** alone:.2f}, were they independent"
        )
    if any(each.judging.until is None for each in judged):
        notes.append(
            "holds: the whole interval of Student's t at the claim's share of the error lies where the claim "
            "says; does not hold: it lies elsewhere; undecided: neither, or there are fewer than two seeds. "
            "That takes normal differences and one look: seeds added because these did not tell are not "
            "accounted for; `jestlab launch --decide` may look after every seed"
        )
    if any(each.judging.until is not None for each in judged):
        notes.append(
            "until decided: judged after every seed by a sign test of the median, whose error holds for all "
            "looks together, whatever the distribution of the differences. holds: more than half of all "
            "seeds agree with the claim; does not hold: more than half disagree; undecided: neither is shown"
        )
    notes.append(f"error: {_CHANCE}; a claim is decided once this is at most {wrong:.0%}")
    for registered in dict.fromkeys(str(each.registered) for each in judged if each.registered):
        other = any(each.other_code for each in judged)
        code = "; the code that judges has changed since" if other else ""
        notes.append(f"{registered}, before its first run{code}; exploratory: not as it was registered")
    return notes


def _frame(judged: Sequence[Judged]) -> pd.DataFrame:
    import pandas as pd

    rows: list[dict[str, Any]] = [
        {
            "row": name,
            "apart": False,
            "study": each.experiment,
            "statement": each.claim.statement,
            "source": each.claim.source,
            "verdict": each.verdict,
            "said": each.said,
            "scale": each.scale,
            "claim": each.claim.text({}),
            "measure": each.claim.unit,
            "comparison": place(each.claim.comparison, each.metric),
            "within": math.nan if each.claim.within is None else each.claim.within,
            "difference": each.difference,
            "low": each.low,
            "high": each.high,
            "bound_low": _finite(each.evidence.low),
            "bound_high": _finite(each.evidence.high),
            "chance": each.chance,
            "agree": each.evidence.agree,
            "seeds": each.seeds,
            "seeds_planned": each.seeds if each.judging.until is not None else each.planned,
            "stopped": each.stopped,
            "registered": each.registered is not None,
            "exploratory": each.exploratory,
            "reason": each.reason,
            "unit": each.metric.unit,
            "digits": math.nan if each.metric.digits is None else each.metric.digits,
        }
        for name, each in zip(names(judged), judged, strict=True)
    ]
    return pd.DataFrame(rows)


def _finite(bound: float) -> float:
    """Write an infinite bound as a missing one, which JSON and CSV have."""
    return bound if math.isfinite(bound) else math.nan


def names(judged: Sequence[Judged]) -> list[str]:
    """Name the rows by their statements, and by the study if several state the same."""
    several = Counter(each.claim.statement for each in judged)
    return [
        each.claim.statement
        if several[each.claim.statement] == 1
        else f"{each.claim.statement} ({each.experiment})"
        for each in judged
    ]


def _parts(judged: Sequence[Judged]) -> pd.DataFrame:
    import pandas as pd

    found = [each.parts.assign(row=name) for name, each in zip(names(judged), judged, strict=True)]
    filled = [parts for parts in found if len(parts)]
    return pd.concat(filled, ignore_index=True) if filled else found[0]


def _lost(judged: Sequence[Judged]) -> list[str]:
    """Notes on seeds that diverged or failed."""
    notes = [f"{name}: {each.lost}" for name, each in zip(names(judged), judged, strict=True) if each.lost]
    rule = (
        "a run that diverged counts as the worst outcome of its side; one that failed or has no value counts "
        "against both verdicts; with such seeds, one look is judged by the sign test of the median, too"
    )
    return [rule, *notes] if notes else []


def _gaps(judged: Sequence[Judged]) -> list[str]:
    """Notes on verdicts by fewer seeds than planned; with one seed or none, the row itself says it."""
    return [
        f"{name}: by {each.seeds} of {each.planned} seeds; {each.gap}"
        for name, each in zip(names(judged), judged, strict=True)
        if 2 <= each.seeds < each.planned and each.judging.until is None
    ]
