"""The answer to a study's question: a verdict, one sentence, and three numbers of its summary table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..claims.claim import SCORE
from ..claims.judged import Judged
from ..costs import SCOPES, Scope
from ..efforts import WORDS, Effort, unit, writer
from ..errors import RequestError
from ..intervals import CI, direction, paired
from ..metrics import Metric, lacks_goal
from ..tables import Finals, Table, finals
from ..tables.core import Record, records
from ..tables.show import metric_headers

_MAX_NAMED = 3  # maximum number of runs that a sentence lists

_ADDED: dict[Scope, tuple[str, list[str]]] = {
    "reference_training": ("the reference’s training", ["reference_training_share_flops"]),
    "reference_scoring": ("the reference’s scoring", ["reference_scoring_flops"]),
    "scoring": ("scoring", ["scoring_flops", "selection_flops"]),
}
"""Scope, the widest first → its cost beyond the next scope in words, and the columns of `Frames.costs`."""

Tone = Literal["good", "bad", "warn", "open", ""]
"""How a verdict or a number is colored; empty for the color of text."""


@dataclass(frozen=True)
class Tile:
    """A number that the answer shows large: its label, its value, a note below, and its tone."""

    label: str
    value: str
    note: str
    tone: Tone = ""


@dataclass(frozen=True)
class Answer:
    """The answer of an experiment.

    Attributes:
        sentence: The answer with its numbers.
        verdict: A sign and a few words, such as "✓ Yes"; empty if there is nothing to judge yet.
        tone: How the verdict is colored.
        tiles: The difference of scores, the effort to reach the baseline's score, and the total cost.
        caveat: The limits of the answer; empty without any.
    """

    sentence: str
    verdict: str = ""
    tone: Tone = ""
    tiles: tuple[Tile, ...] = ()
    caveat: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the lines of the answer for a terminal; the total cost is the first of the tiles."""
        yield ". ".join(filter(None, (self.verdict, self.sentence)))
        for tile in reversed(self.tiles[1:]):
            yield f"{tile.label}: {tile.value} ({tile.note})"
        if self.caveat:
            yield self.caveat


def answer(table: Table, results: Finals, judged: Sequence[Judged] = ()) -> Answer:
    """Answer the question of an experiment.

    The claims decide the verdict. Without claims, the best run is named only if the paired interval of its
    score against the runner-up excludes 0; else the runs whose intervals against the baseline do.

    Args:
        table: The summary table.
        results: The results behind the table.
        judged: The claims of the experiment.
    """
    verdict, tone = verdict_of(judged)
    frames, metric, name = results.frames, results.metric, results.frames.shown
    if frames.no_score:
        return Answer(f"{frames.no_score[0].upper()}{frames.no_score[1:]}.", verdict, tone)
    rows = {str(row["label"]): row for row in records(table.frame)}
    own = rows[results.baseline]
    others = [row for row in rows.values() if not row["apart"] and row is not own]
    scored = [
        row
        for row in (own, *others)
        if not math.isnan(row["score_mean"]) and not row["diverged"] and row["row"] not in table.struck
    ]
    rivals = [row for row in scored if row is not own]
    caveats = [*_retracted(table), *_gaps(results, own, others)]
    if metric.goal is None or not rivals:
        if rivals:
            caveats.insert(0, f"{lacks_goal(frames.averaged)}.")
        sentence = "No run has a finite score yet."
        if own in scored:
            lonely = "" if rivals else "; no other run has a finite score to compare"
            sentence = f"{name[results.baseline]} scores {_score(own, metric)}{lonely}."
        elif rivals:
            sentence = f"{name[results.baseline]}, the baseline, has no score to compare with."
        return Answer(sentence, verdict, tone, (), " ".join(caveats))
    best = max(rivals, key=lambda row: metric.sign * float(row["score_mean"]))
    subject = _subject(results, rows, judged) or best
    tiles = tuple(_tiles(subject, own, results)) if own in scored and subject in scored else ()
    if len(judged) == 1 and judged[0].seeds:
        return Answer(_of_claim(judged[0]), verdict, tone, tiles, " ".join(caveats))
    sentence, its_verdict, its_tone = _comparison(table, results, scored, own)
    if not judged:
        verdict, tone = its_verdict, its_tone
        if len(rivals) > 1 and best["delta_seeds"] > 1:
            caveats.insert(0, f"The intervals do not account for {len(rivals)} runs having been compared.")
    return Answer(sentence, verdict, tone, tiles, " ".join(caveats))


def verdict_of(judged: Sequence[Judged]) -> tuple[str, Tone]:
    """Sum up the verdicts of claims; empty without any."""
    count = Counter(each.verdict for each in judged)
    holds, fails = count["holds"], count["does not hold"]
    if not judged:
        return "", ""
    several = len(judged) > 1
    if holds == len(judged):
        return f"✓ All {holds} claims hold" if several else "✓ Yes", "good"
    if fails == len(judged):
        return "✗ No claim holds" if several else "✗ No", "bad"
    if holds:
        return f"◐ Partly: {holds} of {len(judged)} claims hold{'s' * (holds == 1)}", "warn"
    return "… Not decided yet", "open"


def _comparison(
    table: Table, results: Finals, scored: Sequence[Record], own: Record
) -> tuple[str, str, Tone]:
    """Compare the best run with the runner-up, or else runs with the baseline; also return a verdict."""
    metric, name, baseline = results.metric, results.frames.shown, results.against
    order = sorted(scored, key=lambda row: -metric.sign * float(row["score_mean"]))
    rivals = [row for row in order if row is not own]
    compared = [row for row in rivals if row["delta_seeds"]]
    if own not in scored or not compared:
        alone = f"{name[rivals[0]['label']]} scores {_score(rivals[0], metric)}"
        return f"{alone}; it is not compared with {baseline}, the baseline.", "", ""
    first, second = (str(row["label"]) for row in order[:2])
    if first in table.best(table.column_named("score"), scored):
        runs = results.runs.set_index("seed")
        gap = paired(*(runs.loc[runs["label"] == label, "score"] for label in (first, second)))
        is_runner_up = ", the runner-up," if len(order) > 2 else ""
        by = f"{_amount(gap.mean, metric)} ({_evidence(gap.low, gap.high, gap.seeds, metric)})"
        return f"{name[first]} beats {name[second]}{is_runner_up} by {by}.", "✓ Clear winner", "good"
    better = [
        f"{name[row['label']]} ({_delta(row, metric)}, {_of_row(row, metric)})"
        for row in compared
        if metric.sign * direction(row["delta_low"], row["delta_high"]) > 0
    ]
    if better:
        beat = {1: "beats", 2: "both beat"}.get(len(better), "all beat")
        text = f"{_list(better)} {beat} {baseline}, but the best is not clearly better than the runner-up."
        return f"No clear winner: {text}", "≈ No clear winner", "open"
    best = compared[0]
    text = f"{name[best['label']]} scores {_away(best['delta_mean'], metric)} {baseline}"
    none = "No run is clearly better: the best, " if len(rivals) > 1 else ""
    verdict = "… Not decided yet" if math.isnan(best["delta_low"]) else "≈ No clear winner"
    return f"{none}{text} ({_of_row(best, metric)}).", verdict, "open"


def _subject(results: Finals, rows: dict[str, Record], judged: Sequence[Judged]) -> Record | None:
    """Return the row that the only claim is about, if it is about a single run other than the baseline."""
    if len(judged) == 1 and not judged[0].claim.of.minus:
        with suppress(RequestError, ValueError):
            (label,) = {results.frames.label_of(name) for name in judged[0].claim.of.of}
            return rows.get(label) if label != results.baseline else None
    return None


def _of_claim(judged: Judged) -> str:
    """Write the difference of a claim as a sentence."""
    claim, metric = judged.claim, judged.metric
    of, other = claim.of.text(judged.shown), claim.other.text(judged.shown)
    evidence = _evidence(judged.low, judged.high, judged.seeds, metric)
    if judged.verdict == "holds" and claim.unit == SCORE and metric.sign * judged.difference > 0:
        return f"{of} beats {other} by {_amount(judged.difference, metric)} ({evidence})."
    away = f"{_away(judged.difference, metric)} {other}"
    text = f"scores {away}" if claim.unit == SCORE else f"is {away} in {claim.unit}"
    return f"{of} {text} ({evidence})."


# ---- tiles


def _tiles(row: Record, own: Record, results: Finals) -> Iterator[Tile]:
    """Describe a run by its score, its effort to reach the baseline's score, and its total cost."""
    frames, metric = results.frames, results.metric
    if row["delta_seeds"] == 0:
        return
    scores = f"{metric.text(row['score_mean'])} against {metric.text(own['score_mean'])}"
    side = metric.sign * direction(row["delta_low"], row["delta_high"])
    tone: Tone = "good" if side > 0 else "bad" if side < 0 else ""
    header = "score"
    if len(frames.averaged) == 1:
        header = metric_headers(frames.averaged, frames.declared)[frames.averaged[0]]
    label = f"Δ {header}, {frames.shown[row['label']]} − {results.against}"
    yield Tile(label, _delta(row, metric), f"{scores}; {_of_row(row, metric)}", tone)
    is_reached = 2 * row["seeds_reached"] > row["seeds_compared"]
    efforts = [
        effort
        for effort in results.efforts
        if not (is_reached and math.isnan(row[f"fewer_{WORDS[effort].name}"]))  # unknown for this run
    ]
    first = next(iter(efforts), None)
    if first not in (None, "flops"):
        yield _effort_tile(row, own, first, results)
    if "flops" in efforts:
        yield _cost_tile(row, own, results)


def _effort_tile(row: Record, own: Record, effort: Effort, results: Finals) -> Tile:
    """Describe the effort until a run reaches the baseline's final score."""
    words, reached, compared = WORDS[effort], int(row["seeds_reached"]), int(row["seeds_compared"])
    label = f"{words.amount[0].upper()}{words.amount[1:]}"
    goal = f"{results.against}’s final score"
    some = f", in {reached} of {compared} seeds" if reached < compared else ""
    if 2 * reached <= compared:  # too few seeds for a median
        return Tile(label, "Not reached", f"{goal}{some}", "bad")
    divisor, unit_name = unit(effort, results.runs[effort])
    write = writer(effort, divisor)
    amounts = " instead of ".join(write(each[f"{words.name}_to_match"]) for each in (row, own))
    factor, tone = _factor(row, effort)
    return Tile(label, factor, f"{amounts}{f' {unit_name}' * bool(unit_name)} to reach {goal}{some}", tone)


def _cost_tile(row: Record, own: Record, results: Finals) -> Tile:
    """Describe the FLOPs until a run reaches the baseline's final score, with all that the run needs."""
    frames = results.frames.only([row["label"], results.baseline])
    spent = [scope for scope, (_, parts) in _ADDED.items() if (frames.costs[parts] > 0).any(axis=None)]
    label = "Training cost"
    if spent:
        label = f"Total cost with {'scoring' if spent[0] == 'scoring' else 'the reference'}"
    tile = _effort_tile(row, own, "flops", results)
    uncounted = [scope for scope in spent if SCOPES.index(scope) > SCOPES.index(results.scope)]
    if not uncounted or tile.value == "Not reached":
        return replace(tile, label=label, value=_in_flops(tile.value))
    total = finals(frames, results.baseline, spent[0]).matching.to_dict("index")
    value, tone = _factor(total[row["label"]], "flops")
    without = " and ".join(_ADDED[scope][0] for scope in uncounted)
    return Tile(label, _in_flops(value), f"without {without}: {tile.value}", tone)


def _in_flops(factor: str) -> str:
    return factor if factor in ("Unknown", "Not reached") else f"{factor} FLOPs"


def _factor(row: Mapping[Any, Any], effort: Effort) -> tuple[str, Tone]:
    """Write a factor in words: "1.3× fewer", "1.2× more", "as many"; and whether it is only a bound."""
    words = WORDS[effort]
    factor, is_bound = float(row[f"fewer_{words.name}"]), bool(row[f"fewer_{words.name}_at_least"])
    fewer, as_many = ("less", "as much") if words.fewer.startswith("less") else ("fewer", "as many")
    if math.isnan(factor):
        return "Unknown", ""
    if math.isinf(factor):
        return f"∞ {fewer}", "good"
    if round(factor, 1) > 1:
        return f"{'at least ' if is_bound else ''}{factor:.1f}× {fewer}", "good"
    more = f"{1 / factor:.1f}" if factor > 0 else "∞"
    is_equal = more == "1.0"
    text = f"{'at most ' if is_bound else ''}{as_many if is_equal else f'{more}× more'}"
    return text, "" if is_equal else "bad"


# ---- words


def _score(row: Record, metric: Metric) -> str:
    """Write a score with its unit and interval, as in "26.7% (95% CI 16.3 to 37.0, n = 3)"."""
    space = " " if metric.suffix and not metric.in_percent else ""
    score = f"{metric.text(row['score_mean'])}{space}{metric.suffix}"
    evidence = _evidence(row["score_low"], row["score_high"], row["score_seeds"], metric)
    return score if math.isnan(row["score_low"]) else f"{score} ({evidence})"


def _amount(value: float, metric: Metric) -> str:
    """Write the size of a difference with its unit."""
    return f"{metric.text(abs(value))} {metric.of_differences or 'in score'}"


def _away(value: float, metric: Metric) -> str:
    """Write a difference as in "20.0 points above"."""
    side = "below" if value < 0 else "above"
    return " ".join(filter(None, (metric.text(abs(value)), metric.of_differences, side)))


def _delta(row: Record, metric: Metric) -> str:
    return f"{metric.text(row['delta_mean'], '+')} {metric.of_differences}".rstrip()


def _of_row(row: Record, metric: Metric) -> str:
    return _evidence(row["delta_low"], row["delta_high"], row["delta_seeds"], metric)


def _evidence(low: float, high: float, seeds: float, metric: Metric) -> str:
    """Write an interval and the number of seeds."""
    if math.isnan(low):
        return "one seed, no interval" if seeds == 1 else f"n = {seeds:.0f}, no interval"
    return f"{CI} {metric.text(low)} to {metric.text(high)}, n = {seeds:.0f}"


def _retracted(table: Table) -> Iterator[str]:
    """Say which results of the table are retracted, and why."""
    if table.struck:
        reasons = "; ".join(f"{table.shown.get(row, row)} ({why})" for row, why in table.struck.items())
        yield f"Some results are retracted: {reasons}."


def _gaps(results: Finals, own: Record, others: Sequence[Record]) -> Iterator[str]:
    """Name the runs that are not judged, or not by all their seeds; notes of the table tell why."""
    missing, fewer = [], []
    for row in (own, *others):
        seeds, planned, lost = row["score_seeds"], row["seeds_planned"], str(row["lost"])
        name = results.frames.shown[row["label"]]
        is_compared = row is own or not own["score_seeds"] or row["delta_seeds"]
        if row["diverged"] or not seeds or not is_compared:
            missing.append(name + (f" ({lost})" if lost else ""))
        elif seeds < planned:
            fewer.append(f"{name} ({seeds:.0f} of {planned:.0f}{', ' * bool(lost)}{lost})")
    gaps = {"Not judged": missing, "Judged by fewer seeds than planned": fewer}
    yield from (f"{gap}: {_list(names)}." for gap, names in gaps.items() if names)


def _list(names: Sequence[str]) -> str:
    """Join the first few names, and count the others."""
    more = len(names) - _MAX_NAMED
    if more > 0:
        return f"{', '.join(names[:_MAX_NAMED])} and {more:,} more"
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
