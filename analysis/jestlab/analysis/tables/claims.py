"""The table of claims with their verdicts, differences, and p-values."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pandas as pd

from ..claims.claim import SCORE, Claim
from ..claims.evidence import Verdict
from ..claims.judged import Judged, Judging, count_verdicts
from ..intervals import INTERVAL
from ..metrics import Metric
from . import show
from .core import ESSENTIAL, MISSING, Column, Record, Table

MARKS: dict[Verdict, str] = {"holds": "✓", "does not hold": "✗", "undecided": "?", "not run": "○"}
"""Verdict → its sign in pages and terminals."""

_FIELDS = {
    "study": "contrast.experiment",
    "statement": "claim.statement",
    "source": "claim.source",
    "verdict": "verdict",
    "said": "verdict_text",
    "scale": "contrast.study.scale",
    "measure": "claim.unit",
    "comparison": "contrast.relation",
    "within": "claim.within",
    "difference": "contrast.difference.mean",
    "low": "contrast.difference.low",
    "high": "contrast.difference.high",
    "chance": "chance",
    "agree": "evidence.agree",
    "seeds": "seeds",
    "stopped": "stopped",
    "chosen": "contrast.choices",
    "exploratory": "exploratory",
    "reason": "reason",
    "unit": "contrast.metric.unit",
}
"""Column of the table's frame → attribute of `Judged`."""

_CHANCE = "one-sided p-value of the verdict, corrected for the number of claims in the family"
_AGREE = "seeds whose difference agrees with the claim"
_CHOSEN = "seeds in which each run is the best by the metric that chooses; only the value of that run counts"
_SEEDS = "seeds in which all runs of both sides have ended, of the planned ones"


def claims_table(
    judged: Sequence[Judged], name: str, by_study: bool = False, digits: int | None = None
) -> Table:
    """Build the table of claims, with one row for each claim.

    Args:
        name: Name of the experiment, or several names.
        by_study: Whether to add a column with the study.
        digits: Number of decimals of all differences; None for those of their metrics.

    Returns:
        A table whose frame has study, statement, source, verdict, scale, claim (the comparison in words),
        measure (name of the difference), within, difference, low, high (in the measure's own unit), chance
        (p-value, corrected for the number of claims), agree (number of seeds that agree), seeds,
        seeds_planned, stopped (why no more seeds are run), chosen (how often each run was the best),
        registered, exploratory (changes since the registration), reason, and unit and digits of the measure.
    """
    count = Counter(each.claim.statement for each in judged)
    rows = [
        each.claim.statement + (f" ({each.contrast.experiment})" if count[each.claim.statement] > 1 else "")
        for each in judged
    ]
    by_row = dict(zip(rows, judged, strict=True))
    metrics = {row: each.contrast.metric for row, each in by_row.items()}
    if digits is not None:
        metrics = {row: replace(metric, digits=digits) for row, metric in metrics.items()}
    read = attrgetter(*_FIELDS.values())
    frame = pd.DataFrame([read(each) for each in judged], columns=[*_FIELDS])
    frame.insert(0, "row", rows)
    frame.insert(1, "apart", False)
    frame["claim"] = [each.claim.text({}) for each in judged]
    frame["digits"] = [metric.digits for metric in metrics.values()]
    frame["registered"] = [each.registered is not None for each in judged]
    until = [each.judging.until is not None for each in judged]
    frame["seeds_planned"] = [len(each.contrast.planned) for each in judged]
    frame.loc[until, "seeds_planned"] = frame["seeds"]
    frame = frame.astype({"within": float, "digits": float})

    def column(
        key: str, header: str, importance: int, write: Callable[[Record], str] | None = None, **options: Any
    ) -> Column:
        """Make a column of texts, by default those in the frame's column `key`."""
        write = write or (lambda row: row[key])
        return Column(key, header, write, importance=importance, **{"align": "left", **options})

    def agree(row: Record) -> str:
        return f"{row['agree']} of {row['seeds']}" if row["seeds"] else MISSING

    def expected(row: Record) -> str:
        return _expected(row, by_row[row["row"]].claim, metrics[row["row"]])

    columns = [
        column("study", "study", 70),
        column("statement", "claim", ESSENTIAL),
        column("source", "source", 40),
        column("expected", "expected", 60, expected, align="right"),
        Column(
            "difference",
            "difference",
            lambda row: difference(row, metrics[row["row"]]),
            formula="mean over seeds of one side of the claim minus the other; in brackets the "
            f"{INTERVAL} by Student's t; a run adds its value times its weight",
            inputs=("value", "weight"),
            importance=80,
        ),
        column("verdict", "verdict", 90, lambda row: row["said"]),
        column("chance", "one-sided p", 50, _chance, align="right", formula=_CHANCE),
        column("agree", "agree", 55, agree, align="right", formula=_AGREE),
        Column("seeds", "n", show.seeds, importance=30, formula=_SEEDS),
        column("stopped", "stopped", 35),
        column("chosen", "chosen", 25, formula=_CHOSEN),
        column("registered", "registered", 45, _registered),
        column("reason", "why not", 20),
    ]
    shown = {"study": by_study, "stopped": any(until)}
    shown |= {name: any(frame[name]) for name in ("registered", "chosen")}
    parts = [each.contrast.parts.assign(row=row) for row, each in by_row.items()]
    return Table(
        name=f"{name} claims",
        caption=count_verdicts(judged),
        frame=frame,
        columns=tuple(each for each in columns if shown.get(each.key, True)),
        own_notes=tuple(_notes(by_row)),
        parts=pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True),
    )


def difference(row: Record, metric: Metric) -> str:
    """Write the difference of a row with its interval, and its measure if that isn't the score."""
    text = show.interval(row["difference"], row["low"], row["high"], metric, "+")
    is_score = text == MISSING or row["measure"] == SCORE
    return text if is_score else f"{text} {metric.name or row['measure']}"


def _expected(row: Record, claim: Claim, metric: Metric) -> str:
    """Write the claimed range: "above 0", "above −1.0", "−5.0 to +5.0", "exponent above 0.3"."""
    if claim.exponent_above is not None:
        return f"exponent above {claim.exponent_above:g}"
    within = claim.within or 0.0
    if claim.near is not None:
        return f"{metric.text(-within)} to {metric.text(within, '+')}"
    end = -within if row["comparison"] == "above" else within
    return f"{row['comparison']} {metric.text(end, '+') if within else '0'}"


def _chance(row: Record) -> str:
    """Write the corrected p-value of a claim."""
    if row["seeds"] < 2:
        return MISSING
    if row["chance"] < 0.001:
        return "under 0.001"
    return f"{row['chance']:.{3 if row['chance'] < 0.1 else 2}f}"


def _registered(row: Record) -> str:
    if not row["registered"]:
        return "no"
    return f"exploratory: {row['exploratory']}" if row["exploratory"] else "yes"


def _notes(by_row: Mapping[str, Judged]) -> Iterator[str]:
    """Explain how the claims are judged, and list lost seeds."""
    judged = list(by_row.values())
    in_points = any(each.contrast.metric.of_differences == "points" for each in judged)
    yield (
        "difference: mean over seeds of one side of the claim minus the other "
        f"[{INTERVAL} by Student's t, for one claim and one look]{'; percentages in points' * in_points}; "
        "verdicts have other tests, so a claim may be decided although its interval includes 0"
    )
    if any(each.claim.is_ladder for each in judged):
        yield (
            "a claim about an exponent has no other side: its difference is a weighted sum of the values at "
            "all sizes, which is 0 on average if the exponent is the one in the claim"
        )
    yield from dict.fromkeys(_test(each.judging) for each in judged)
    yield from dict.fromkeys(_family(each.judging) for each in judged)
    yield f"one-sided p: {_CHANCE}; a claim is decided once it is at most {_bounds(judged)}"
    for text, registered in {str(each.registered): each.registered for each in judged}.items():
        if registered is not None:
            code = "; the code that judges has changed since" * registered.is_by_other_code
            yield f"{text}, before the first run{code}; exploratory: a later change affects the claim"
    lost = [f"{row}: {each.contrast.lost}" for row, each in by_row.items() if each.contrast.lost]
    if lost:
        yield _LOST
    yield from lost


def _test(judging: Judging) -> str:
    """Describe the test of a claim."""
    if judging.until is None:
        return _ONE_LOOK.format(_TESTS[judging.family.test or "student"])
    return _LOOKS.format(_TESTS[judging.family.test or "sign"])


def _family(judging: Judging) -> str:
    """Describe the error rate that claims share."""
    family, claims = judging.family, judging.claims
    rule = f"{claims} claim{'s' * (claims != 1)}: {family.text(claims)}"
    if family.has_rate(claims):
        return f"{rule}; this is the expected share of wrong verdicts among holds and does not hold"
    if family.adjust == "bonferroni" or claims == 1:
        return rule
    any_error = 1 - (1 - family.bound(claims)) ** claims
    return f"{rule}; any error in {claims} independent claims has a chance of {any_error:.2f}"


def _bounds(judged: Sequence[Judged]) -> str:
    bounds = {each.judging.family.bound(each.judging.claims) for each in judged}
    return " or ".join(f"{bound:.2g}" for bound in sorted(bounds))


_TESTS = {
    "student": "t-test, which assumes normal differences",
    "sign": "sign test of the median, whatever the distribution of the differences",
    "signed_rank": "signed-rank test (Wilcoxon), which assumes symmetric differences",
}
_ONE_LOOK = (
    "holds, does not hold: by one look at all seeds with a one-sided {}; undecided: neither, or too few "
    "seeds. If a claim is undecided, add seeds only by `jestlab launch --decide`"
)
_LOOKS = (
    "until decided: a {}, after every seed. Its error covers all looks. holds: more than half of all seeds "
    "agree with the claim; does not hold: more than half disagree"
)
_LOST = (
    "a run that diverged counts as the worst outcome of its side; one that failed or has no value counts "
    "against both verdicts; instead of a t-test, a claim with such seeds has the sign test of the median"
)
