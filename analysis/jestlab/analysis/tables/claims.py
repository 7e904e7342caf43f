"""The table of claims with their verdicts, differences, and p-values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..claims.claim import SCORE
from ..claims.evidence import Verdict
from ..claims.judged import Judged, count_verdicts
from ..intervals import INTERVAL
from ..metrics import Metric
from . import show
from .core import ESSENTIAL, Column, Record, Table

MARKS: dict[Verdict, str] = {"holds": "✓", "does not hold": "✗", "undecided": "?", "not run": "○"}
"""Verdict → its sign in pages and terminals."""

_CHANCE = "family-wise p-value: the chance of evidence this strong for any wrong verdict of the family"
_AGREE = "seeds whose difference agrees with the claim"
_SEEDS = "seeds in which all runs of both sides have ended, of the planned ones"


def claims_table(judged: Sequence[Judged], name: str, by_study: bool = False) -> Table:
    """Build the table of claims, with one row for each claim.

    Args:
        judged: The claims with their verdicts, in the order of the studies.
        name: Name of the experiment, or of several.
        by_study: Whether to add a column with the study.

    Returns:
        A table whose frame has study, statement, source, verdict, scale, claim (the comparison in words),
        measure (name of the difference), within, difference, low, high (in the measure's own unit), bound_low
        and bound_high (the interval that decides; NaN if infinite), chance (family-wise p-value), agree
        (number of seeds that agree), seeds, seeds_planned, stopped (why no more seeds are run), registered,
        exploratory (changes since the registration), reason; unit and digits of the measure.
    """
    import pandas as pd

    by_row = dict(zip(names(judged), judged, strict=True))

    def column(
        key: str, header: str, write: Callable[[Judged], str], importance: int, **options: Any
    ) -> Column:
        """Make a column of texts about claims."""
        options = {"align": "left"} | options
        return Column(key, header, lambda row: write(by_row[row["row"]]), importance=importance, **options)

    def show_difference(row: Record) -> str:
        return difference(row, by_row[row["row"]].metric)

    columns = [
        column("study", "study", lambda each: each.experiment, 70),
        column("statement", "claim", lambda each: each.claim.statement, ESSENTIAL),
        column("source", "source", lambda each: each.claim.source, 40),
        column("expected", "expected", expected, 60, align="right"),
        Column(
            "difference",
            "difference",
            show_difference,
            formula="mean over seeds of one side of the claim minus the other; in brackets the "
            f"{INTERVAL} by Student's t; a run adds its value times its weight",
            inputs=("value", "weight"),
            importance=80,
        ),
        column("verdict", "verdict", lambda each: each.verdict_text, 90),
        column("chance", "error", chance, 50, align="right", formula=_CHANCE),
        column("agree", "agree", agree, 55, align="right", formula=_AGREE),
        Column("seeds", "n", show.seeds, importance=30, formula=_SEEDS),
        column("stopped", "stopped", lambda each: each.stopped, 35),
        column("registered", "registered", _registered, 45),
        column("reason", "why not", lambda each: each.reason, 20),
    ]
    shown = {
        "study": by_study,
        "stopped": any(each.judging.until is not None for each in judged),
        "registered": any(each.registered for each in judged),
    }
    parts = [each.parts.assign(row=row) for row, each in by_row.items()]
    return Table(
        name=f"{name} claims",
        caption=count_verdicts(judged),
        frame=pd.DataFrame([_record(row, each) for row, each in by_row.items()]),
        columns=tuple(each for each in columns if shown.get(each.key, True)),
        notes=tuple(_notes(by_row)),
        parts=pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True),
    )


def _record(row: str, each: Judged) -> dict[str, Any]:
    """Return the raw numbers and texts of a claim."""

    def finite(bound: float) -> float:
        return bound if math.isfinite(bound) else math.nan  # JSON and CSV have no infinity

    return {
        "row": row,
        "apart": False,
        "study": each.experiment,
        "statement": each.claim.statement,
        "source": each.claim.source,
        "verdict": each.verdict,
        "said": each.verdict_text,
        "scale": each.scale,
        "claim": each.claim.text({}),
        "measure": each.claim.unit,
        "comparison": each.relation,
        "within": math.nan if each.claim.within is None else each.claim.within,
        "difference": each.difference,
        "low": each.low,
        "high": each.high,
        "bound_low": finite(each.evidence.low),
        "bound_high": finite(each.evidence.high),
        "chance": each.chance,
        "agree": each.evidence.agree,
        "seeds": each.seeds,
        "seeds_planned": each.planned if each.judging.until is None else each.seeds,
        "stopped": each.stopped,
        "registered": each.registered is not None,
        "exploratory": each.exploratory,
        "reason": each.reason,
        "unit": each.metric.unit,
        "digits": math.nan if each.metric.digits is None else each.metric.digits,
    }


def names(judged: Sequence[Judged]) -> list[str]:
    """Name the rows by their statements, and by the study if several studies have the same statement."""
    count = Counter(each.claim.statement for each in judged)
    return [
        each.claim.statement + (f" ({each.experiment})" if count[each.claim.statement] > 1 else "")
        for each in judged
    ]


def difference(row: Record, metric: Metric) -> str:
    """Write the difference of a row with its interval, and the measure unless it is the score."""
    text = show.difference(row["difference"], row["low"], row["high"], metric)
    is_score = text == show.MISSING or row["measure"] == SCORE
    return text if is_score else f"{text} {metric.name or row['measure']}"


def expected(each: Judged) -> str:
    """Write the differences that agree with a claim: "above 0", "above −1.0", "−5.0 to +5.0"."""
    within, metric = each.claim.within or 0.0, each.metric
    if each.relation == "near":
        return f"{metric.text(-within)} to {metric.text(within, '+')}"
    end = -within if each.relation == "above" else within
    return f"{each.relation} {metric.text(end, '+') if within else '0'}"


def chance(each: Judged) -> str:
    """Write the family-wise p-value of a claim."""
    if each.seeds < 2:
        return show.MISSING
    if each.chance < 0.001:
        return "under 0.001"
    return f"{each.chance:.3f}" if each.chance < 0.1 else f"{each.chance:.2f}"


def agree(each: Judged) -> str:
    """Write how many seeds agree with a claim."""
    return f"{each.evidence.agree} of {each.seeds}" if each.seeds else show.MISSING


def _registered(each: Judged) -> str:
    if each.registered is None:
        return "no"
    return f"exploratory: {each.exploratory}" if each.exploratory else "yes"


def _notes(by_row: Mapping[str, Judged]) -> Iterator[str]:
    """Explain how the claims are judged, and list lost and missing seeds."""
    judged = list(by_row.values())
    error = judged[0].judging.family.error
    in_points = any(each.metric.of_differences == "points" for each in judged)
    yield (
        "difference: mean over seeds of one side of the claim minus the other "
        f"[{INTERVAL} by Student's t, for one claim and one look]{'; percentages in points' * in_points}; "
        "verdicts have other tests, so a claim may be decided although its interval includes 0"
    )
    for claims in sorted({each.judging.claims for each in judged if each.judging.error < error}):
        yield (
            f"family of {claims} claims: the chance that any verdict is wrong is at most {error:.0%}, "
            f"{error / claims:.2g} for each (Bonferroni)"
        )
    if alone := sum(each.judging.error == error for each in judged):
        total = f"; for any of {alone} independent claims it is {1 - (1 - error) ** alone:.2f}" * (alone > 1)
        yield f"each verdict is wrong with a chance of at most {error:.0%}{total}"
    if any(each.judging.until is None for each in judged):
        yield (
            "holds, does not hold: by a one-sided t-test at the claim's share of the error; undecided: "
            "neither, or fewer than two seeds. The test assumes normal differences and one look: if a "
            "claim is undecided, add seeds only by `jestlab launch --decide`"
        )
    if any(each.judging.until is not None for each in judged):
        yield (
            "until decided: a sign test of the median after every seed. Its error covers all looks, whatever "
            "the distribution of the differences. holds: more than half of all seeds agree with the claim; "
            "does not hold: more than half disagree"
        )
    yield f"error: {_CHANCE}; a claim is decided once it is at most {error:.0%}"
    for text, registered in {str(each.registered): each.registered for each in judged}.items():
        if registered is not None:
            code = "; the code that judges has changed since" * registered.is_by_other_code
            yield f"{text}, before the first run{code}; exploratory: changed since"
    if any(each.lost for each in judged):
        yield (
            "a run that diverged counts as the worst outcome of its side; one that failed or has no value "
            "counts against both verdicts; such seeds are judged by the sign test of the median"
        )
    yield from (f"{row}: {each.lost}" for row, each in by_row.items() if each.lost)
    for row, each in by_row.items():
        if 2 <= each.seeds < each.planned and each.judging.until is None:
            yield f"{row}: by {each.seeds} of {each.planned} seeds; {each.gap}"
