"""The answer to a study's question: a verdict, one sentence, and three numbers of its summary table."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from ..claims.claim import SCORE
from ..claims.judged import Judged
from ..costs import SCOPES, Scope
from ..efforts import WORDS, Effort, unit, writer
from ..errors import RequestError
from ..intervals import CI, Gap, direction, paired
from ..metrics import Metric, lacks_goal
from ..tables import Finals, Table, finals, show
from ..tables.core import Record, records
from ..tables.show import metric_headers
from ..units import listed

_MAX_NAMED = 3  # maximum number of runs that a sentence lists
_UNKNOWN = "Unknown"
_YES_NO = (
    "are ", "can ", "could ", "did ", "do ", "does ", "had ", "has ", "have ", "is ", "should ", "was ",
    "were ", "will ", "would ",
)  # fmt: skip
"""Starts of questions that are answered by yes or no."""

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
    """A number that the answer shows large: label, value, a note below, and tone.

    `measure` names the known cost that the value compares, such as "training FLOPs"; empty for others.
    """

    label: str
    value: str
    note: str
    tone: Tone = ""
    measure: str = ""


@dataclass(frozen=True)
class Answer:
    """The answer of an experiment.

    Attributes:
        sentence: The answer with its numbers.
        verdict: A sign and a few words, such as "✓ Yes"; empty if nothing can be judged yet.
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

    The claims decide the verdict. Without claims, and for questions such as "Which …?", the best run is
    named, but only if the paired interval of its score against the runner-up excludes 0. The cost follows.

    Args:
        table: The summary table.
        results: The results behind the table.
        judged: The claims of the experiment.
    """
    frames, metric, name = results.frames, results.metric, results.frames.shown
    verdict, tone = verdict_of(judged, frames.question)
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
    caveats = [*_gaps(results, own, others)]
    if table.struck:
        reasons = "; ".join(f"{table.shown.get(row, row)} ({why})" for row, why in table.struck.items())
        caveats.insert(0, f"Some results are retracted: {reasons}.")
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
    order = sorted(scored, key=lambda row: -metric.sign * float(row["score_mean"]))
    said = by_score = _comparison(table, results, order, own)
    if by_score.tone == "good" and not _asks_yes_no(frames.question):
        verdict, tone = f"✓ Best: {show.first_line(name[said.of], 32)}", "good"
    elif len(judged) == 1 and judged[0].seeds:
        said = _of_claim(judged[0], results)
    if not verdict:
        verdict, tone = by_score.verdict, by_score.tone
    subject = rows.get(said.of, own)
    subject = next(row for row in order if row is not own) if subject is own else subject
    tiles = tuple(_tiles(subject, own, results)) if own in scored and subject in scored else ()
    # The cost may contradict a verdict, which compares runs at the same number of examples.
    sentence, ahead = said.sentence, by_score.tone if said is by_score else tone
    if ahead == "good" and subject["label"] == said.of and tiles and tiles[-1].measure:
        cost = tiles[-1].value.removesuffix(" FLOPs")
        if said.against != results.baseline:
            cost += f" than {results.against}"
        elif verdict == "✓ Yes":
            cost = {"good": "yes, ", "bad": "no, "}.get(tiles[-1].tone, "") + cost
            if (tiles[1].label, tiles[1].tone, tiles[-1].tone) == ("Examples", "good", "bad"):
                verdict = "✓ Yes, per example"
        sentence += f" In {tiles[-1].measure}: {cost}."
    return Answer(sentence, verdict, tone, tiles, " ".join(caveats))


def verdict_of(judged: Sequence[Judged], question: str = "") -> tuple[str, Tone]:
    """Sum up the verdicts of claims; empty without any. Only "Does …?" is answered by yes or no."""
    count = Counter(each.verdict for each in judged)
    holds, fails = count["holds"], count["does not hold"]
    yes, no = f"All {holds} claims hold", "No claim holds"
    if len(judged) == 1:
        yes, no = ("Yes", "No") if _asks_yes_no(question) else ("The claim holds", "The claim does not hold")
    if not judged:
        return "", ""
    if holds == len(judged):
        return f"✓ {yes}", "good"
    if fails == len(judged):
        return f"✗ {no}", "bad"
    if holds:
        return f"◐ Partly: {holds} of {len(judged)} claims hold{'s' * (holds == 1)}", "warn"
    return "… Not decided yet", "open"


def _asks_yes_no(question: str) -> bool:
    return question.casefold().startswith(_YES_NO)


class _Said(NamedTuple):
    """A sentence that compares two runs, and a verdict; `of` and `against` are labels, or else empty."""

    of: str
    against: str
    sentence: str
    verdict: str = ""
    tone: Tone = ""


def _comparison(table: Table, results: Finals, order: Sequence[Record], own: Record) -> _Said:
    """Compare the best run with the runner-up, or else runs with the baseline.

    Args:
        order: Rows with a score, the best first.
    """
    metric, name, baseline = results.metric, results.frames.shown, results.against
    rivals = [row for row in order if row is not own]
    compared = [row for row in rivals if row["delta_seeds"]]
    best = (compared or rivals)[0]
    label = str(best["label"])
    if own not in order or not compared:
        alone = f"{name[label]} scores {_score(best, metric)}"
        return _Said(label, "", f"{alone}; it is not compared with {baseline}, the baseline.")
    first, second = (str(row["label"]) for row in order[:2])
    runs = results.runs.set_index("seed")
    lead = paired(*(runs.loc[runs["label"] == label, "score"] for label in (first, second)))
    if first in table.best(table.column_named("score"), order):
        is_runner_up = ", the runner-up," if len(order) > 2 else ""
        text = f"{name[first]} beats {name[second]}{is_runner_up} by {_size(lead, metric)}."
        return _Said(first, second, text, "✓ Clear winner", "good")
    better = [
        name[row["label"]]
        for row in compared
        if metric.sign * direction(row["delta_low"], row["delta_high"]) > 0
    ]
    verdict = "… Not decided yet" if math.isnan(best["delta_low"]) else "≈ No clear winner"
    subject = f"No run is clearly better: the best, {name[label]}," if len(rivals) > 1 else name[label]
    text = f"{subject} {_away(_gap(best), metric, baseline)}."
    if better:
        beat = f"{_list(better)} {'beats' if len(better) == 1 else 'beat'} {baseline}"
        text = f"{beat}; {name[first]}, the best on average, is not clearly ahead of {name[second]}."
        if metric.sign * lead.mean > 0:  # also with the same seeds
            text = f"{beat}; {name[first]} leads {name[second]} by {_size(lead, metric)}, not clearly."
    return _Said(label, results.baseline, text, verdict, "open")


def _of_claim(judged: Judged, results: Finals) -> _Said:
    """Write the difference of a claim as a sentence."""
    claim, metric, shown = judged.claim, judged.contrast.metric, judged.contrast.names.shown
    if claim.other is None:
        return _Said("", "", f"{claim.text(shown)}: {judged.verdict}.")
    labels = ["", ""]
    for i, side in enumerate(claim.sides):
        if not side.minus and claim.unit == SCORE:
            with suppress(RequestError, ValueError):
                (labels[i],) = {results.frames.label_of(name) for name in side.of}
    of, other = claim.of.text(shown), claim.other.text(shown)
    gap = judged.contrast.difference
    text = f"{of} {_away(gap, metric, other, '' if claim.unit == SCORE else f' in {claim.unit}')}."
    if claim.unit == SCORE and judged.verdict == "holds" and metric.sign * gap.mean > 0:
        text = f"{of} beats {other} by {_size(gap, metric)}."
    return _Said(labels[0], labels[1], text)


# ---- tiles and costs


def _tiles(row: Record, own: Record, results: Finals) -> Iterator[Tile]:
    """Describe a run by its score, its effort to reach the baseline's score, and its total cost."""
    frames, metric, gap = results.frames, results.metric, _gap(row)
    if gap.seeds == 0:
        return
    scores = " against ".join(metric.texts([row["score_mean"], own["score_mean"]]))
    side = metric.sign * direction(gap.low, gap.high)
    tone: Tone = "good" if side > 0 else "bad" if side < 0 else ""
    header = "score"
    if len(frames.averaged) == 1:
        header = metric_headers(frames.averaged, frames.declared)[frames.averaged[0]]
    label = f"Δ {header}, {frames.shown[row['label']]} − {results.against}"
    delta = f"{show.decimals(metric, *gap[:3]).text(gap.mean, '+')} {metric.of_differences}".rstrip()
    yield Tile(label, delta, scores + (f"; {_evidence(gap, metric)}" if gap.seeds > 1 else ""), tone)
    is_reached = 2 * row["seeds_reached"] > row["seeds_compared"]
    efforts = [
        effort
        for effort in results.efforts
        if not (is_reached and math.isnan(row[f"fewer_{WORDS[effort].name}"]))  # unknown for this run
    ]
    if efforts and efforts[0] != "flops":
        yield _effort_tile(row, own, efforts[0], results)
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
    of = f"{results.frames.shown[row['label']]}{' (one seed)' * (compared == 1)}"
    note = f"{of}: {amounts}{f' {unit_name}' * bool(unit_name)} to reach {goal}{some}"
    note += "; medians of both and of their ratio" * (compared > 1)
    factor, tone = _factor(row, effort)
    is_cost = effort != "examples_seen" and factor != _UNKNOWN
    return Tile(label, factor, note, tone, words.amount * is_cost)


def _cost_tile(row: Record, own: Record, results: Finals) -> Tile:
    """Describe the FLOPs until a run reaches the baseline's final score, with all that the run needs."""
    frames = results.frames.only([row["label"], results.baseline])
    spent = [scope for scope, (_, parts) in _ADDED.items() if (frames.costs[parts] > 0).any(axis=None)]
    label, measure = "Training cost", "training FLOPs"
    if spent:
        needed = "scoring" if spent[0] == "scoring" else "the reference"
        label, measure = f"Total cost with {needed}", f"total FLOPs with {needed}"
    tile = replace(_effort_tile(row, own, "flops", results), label=label)
    if not tile.measure:  # not reached
        return tile
    uncounted = [scope for scope in spent if SCOPES.index(scope) > SCOPES.index(results.scope)]
    if uncounted:
        total = finals(frames, results.baseline, spent[0]).matching.to_dict("index")
        value, tone = _factor(total[row["label"]], "flops")
        without = " and ".join(_ADDED[scope][0] for scope in uncounted)
        tile = replace(tile, value=value, tone=tone, note=f"without {without}: {tile.value}")
    if tile.value == _UNKNOWN:
        return tile
    return replace(tile, value=f"{tile.value} FLOPs", measure=measure)


def _factor(row: Mapping[Any, Any], effort: Effort) -> tuple[str, Tone]:
    """Write a factor in words: "1.3× fewer", "1.2× more", "as many"; and whether it is only a bound."""
    words = WORDS[effort]
    factor, is_bound = float(row[f"fewer_{words.name}"]), bool(row[f"fewer_{words.name}_at_least"])
    fewer, as_many = ("less", "as much") if words.fewer.startswith("less") else ("fewer", "as many")
    if math.isnan(factor):
        return _UNKNOWN, ""
    if math.isinf(factor):
        return f"∞ {fewer}", "good"
    if round(factor, 1) > 1:
        return f"{'at least ' if is_bound else ''}{factor:.1f}× {fewer}", "good"
    more = f"{1 / factor:.1f}" if factor > 0 else "∞"
    is_equal = more == "1.0"
    text = f"{'at most ' if is_bound else ''}{as_many if is_equal else f'{more}× more'}"
    return text, "" if is_equal else "bad"


# ---- words


def _gap(row: Record, name: str = "delta") -> Gap:
    """Return the difference of a row to the baseline, or its score, with its interval."""
    return Gap(*(row[f"{name}_{part}"] for part in ("mean", "low", "high", "seeds")))


def _score(row: Record, metric: Metric) -> str:
    """Write a score with its unit and interval, as in "26.7% (95% CI 16.3 to 37.0, n = 3)"."""
    score = _gap(row, "score")
    space = " " if metric.suffix and not metric.in_percent else ""
    text = f"{metric.text(score.mean)}{space}{metric.suffix}"
    return text if math.isnan(score.low) else f"{text} ({_evidence(score, metric)})"


def _size(gap: Gap, metric: Metric, side: str = "") -> str:
    """Write a difference without its sign, with unit, interval, and after the unit a side (" above b")."""
    if gap.mean < 0:
        gap = Gap(-gap.mean, -gap.high, -gap.low, gap.seeds)
    size = show.decimals(metric, *gap[:3]).text(gap.mean)
    unit_name = metric.of_differences or ("" if side else "in score")
    return f"{size} {unit_name}".rstrip() + f"{side} ({_evidence(gap, metric)})"


def _away(gap: Gap, metric: Metric, other: str, measure: str = "") -> str:
    """Write a difference as in "is better than uniform by 20.0 points (95% CI 15.0 to 25.0, n = 3)".

    Without a goal, and for other measures than the score: "is 20.0 points above uniform (…)".
    """
    if measure or metric.goal is None or gap.mean == 0:
        side = f"{'below' if gap.mean < 0 else 'above'} {other}{measure}"
        return f"is {_size(gap, metric, f' {side}')}"
    unclear = not math.isnan(gap.low) and direction(gap.low, gap.high) == 0
    word = "better" if metric.sign * gap.mean > 0 else "worse"
    return f"is {word} than {other} by {_size(gap, metric)}{', not clearly' * unclear}"


def _evidence(gap: Gap, metric: Metric) -> str:
    """Write an interval and the number of seeds."""
    if math.isnan(gap.low):
        return "one seed" if gap.seeds == 1 else f"n = {gap.seeds:.0f}, no interval"
    low, high = show.decimals(metric, *gap[:3]).texts([gap.low, gap.high])
    return f"{CI} {low} to {high}, n = {gap.seeds:.0f}"


def _gaps(results: Finals, own: Record, others: Sequence[Record]) -> Iterator[str]:
    """Name the runs that are not judged, or not by all their seeds; notes of the table have the reasons."""
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
    return listed(names)
