"""Tables of one experiment: final scores and costs of each run, and when it matches the baseline."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median_high
from typing import TYPE_CHECKING, Literal, get_args

from ..costs import Scope
from ..curves import Crossing, break_even, crossing_words, score_curves, speedups
from ..efforts import WORDS, Effort, known, unit, writer
from ..frames import Frames, NotYet
from ..intervals import INTERVAL, censored_median, half_widths, of_groups, to_match
from ..lost import DIVERGED
from ..metrics import Metric, lacks_goal
from ..units import listed
from . import show
from .core import ESSENTIAL, Column, Record, Table

if TYPE_CHECKING:
    import pandas as pd

Mean = Literal["all", "shared"]
"""Over which metrics a score is taken: all, so that a run which lacks one has no score; or those that every
completed run has."""

MEANS: tuple[Mean, ...] = get_args(Mean)


@dataclass(frozen=True)
class Finals:
    """The final results of an experiment, compared with a baseline.

    Attributes:
        frames: The experiment.
        baseline: Label that others are compared with.
        scope: What counts as FLOPs.
        mean: Over which metrics the score is taken.
        crossing: Which crossing of the baseline's final score counts.
        averaged: The metrics whose mean the score is; none where there is no score (`Frames.no_score`).
        runs: One row a completed run that was evaluated, in the order of the study: fingerprint, label, seed,
            the metrics, score, delta (score minus that of the baseline with the same seed; NaN for the
            baseline, for references that stand apart, and without such a seed), examples_seen, flops, and
            the columns of `curves.speedups`, NaN where a run is not compared, and where no score is better
            than another.
    """

    frames: Frames
    baseline: str
    scope: Scope
    mean: Mean
    crossing: Crossing
    averaged: tuple[str, ...]
    runs: pd.DataFrame

    @cached_property
    def efforts(self) -> list[Effort]:
        """What is known of what the runs have spent."""
        return known(self.runs)

    @property
    def metric(self) -> Metric:
        """What the score means; without a score, that nothing is known of it."""
        return Metric() if self.frames.no_score else self.frames.score

    @property
    def against(self) -> str:
        """The name that is shown for the baseline."""
        return self.frames.shown[self.baseline]

    @property
    def renamed(self) -> dict[str, str]:
        """Label → the name that is shown for it, where that differs."""
        return {label: name for label in self.frames.labels if (name := self.frames.shown[label]) != label}

    @property
    def compares(self) -> bool:
        """Whether a run stands beside the baseline, by a score of which more or less is better."""
        others = any(label != self.baseline for label in self.frames.competitors)
        return others and self.metric.goal is not None

    @property
    def baselines(self) -> dict[str, str]:
        """Each label that is compared, and what it is compared with."""
        return {label: self.baseline for label in self.frames.labels if label != self.baseline}

    @cached_property
    def by_label(self) -> pd.DataFrame:
        """One row a label, in the order of the study: index label; run, apart (bool), seeds, seeds_planned,
        lost (`Frames.lost`), diverged (bool: whether one did);
        for each metric, score and delta `_mean`, `_std` and `_seeds`; delta_low, delta_high (95% confidence
        interval of the mean); and of each known effort the mean."""
        import pandas as pd

        of_label = self.frames.runs.groupby("label", sort=False)
        rows = pd.DataFrame({"run": of_label["run"].first(), "apart": False})
        rows.loc[self.frames.apart_from(self.baseline), "apart"] = True
        rows["seeds"] = self.runs.groupby("label").size()
        rows["seeds_planned"] = of_label.size()
        rows["lost"] = [self.frames.lost.get(str(label), "") for label in rows.index]
        rows["diverged"] = [DIVERGED in self.frames.fates[str(label)] for label in rows.index]
        for name in [*self.frames.metrics, "score", "delta"]:
            spread = of_groups(self.runs[name], self.runs["label"])
            rows[[f"{name}_mean", f"{name}_std", f"{name}_seeds"]] = spread
        counts = [name for name in rows.columns if name == "seeds" or str(name).endswith("_seeds")]
        rows[counts] = rows[counts].fillna(0).astype(int)
        half = half_widths(rows["delta_std"], rows["delta_seeds"])
        # The seeds that are left are a selection.
        half[rows["diverged"] | (DIVERGED in self.frames.fates[self.baseline])] = math.nan
        rows["delta_low"], rows["delta_high"] = rows["delta_mean"] - half, rows["delta_mean"] + half
        for effort in self.efforts:
            rows[effort] = of_groups(self.runs[effort], self.runs["label"])["mean"]
        return rows


def finals(
    frames: Frames,
    baseline: str | None = None,
    scope: Scope = "scoring",
    mean: Mean = "all",
    crossing: Crossing = "first",
) -> Finals:
    """Compute the final results of an experiment.

    Args:
        frames: The experiment.
        baseline: Label or run to compare with; by default the study's first run that is no reference.
        scope: What counts as FLOPs.
        mean: Over which metrics the score is taken.
        crossing: Which crossing of the baseline's final score counts.

    Raises:
        ValueError: No run has completed yet, no metric is shared where the mean is over such, or there is no
            such baseline.
    """
    compared = frames.baseline(baseline)
    averaged = [name for name in frames.averaged if mean == "all" or name in frames.shared_metrics]
    if frames.averaged and not averaged:
        raise ValueError(f"runs of experiment {frames.experiment!r} share no metric: leave out --mean shared")
    curves = score_curves(frames, scope, averaged)
    ended = curves[curves["final"]].drop(columns=["step", "final"])
    if ended.empty:
        raise NotYet(f"no run of experiment {frames.experiment!r} has completed yet: {frames.progress()}")
    competes = ~ended["label"].isin([compared, *frames.apart_from(compared)])
    of_baseline = ended[ended["label"] == compared].set_index("seed")["score"]
    ended["delta"] = (ended["score"] - ended["seed"].map(of_baseline)).where(competes)
    sign = 1.0 if frames.no_score or frames.score.goal is None else frames.score.sign
    ranked = curves if not frames.no_score and frames.score.goal else curves[:0]
    sooner = speedups(ranked, compared, crossing, sign)
    sooner = sooner[~sooner["label"].isin(frames.apart_from(compared))]
    runs = ended.merge(sooner, on=["fingerprint", "label", "seed"], how="left")
    return Finals(frames, compared, scope, mean, crossing, tuple(averaged), runs)


def summary(found: Finals) -> Table:
    """Build the final table of an experiment.

    One row a label, in the order of the study, runs that others need as reference first and apart. All
    numbers are over the seeds that completed.

    Args:
        found: The final results of the experiment.

    Returns:
        A table whose frame has the columns of `Finals.by_label` and of `reaching`. What compares is NaN or 0
        for runs that stand apart.
    """
    frames = found.frames
    shown = {found.metric, *map(frames.declared.of, frames.metrics)} if found.averaged else {Metric()}
    unit = " in %" if all(metric.in_percent for metric in shown) else ""
    several = found.runs["label"].duplicated().any()
    over = "mean ± standard deviation over seeds" if several else "one seed each"
    conventions = _conventions(found)
    table = Table(
        name=f"{frames.experiment} summary",
        caption=f"{frames.experiment}{': ' + frames.question if frames.question else '.'} "
        f"Scores{unit}, {over}{_about_score(found)}.",
        frame=_rows(found),
        columns=_columns(found),
        notes=(*conventions, *show.gaps(found)),
        explains=conventions,
        parts=found.runs.assign(row=found.runs["label"], experiment=frames.experiment),
        baselines=found.baselines,
        shown=found.renamed,
    )
    return show.with_marks_explained(table)


def _about_score(found: Finals) -> str:
    """Say what the score is, where there is one: of which metrics, if the table shows others, too."""
    if not found.averaged:
        return ""
    if set(found.averaged) < set(found.frames.metrics):
        mean_of = "the mean of " if len(found.averaged) > 1 else ""
        return f"; score is {mean_of}{', '.join(found.frames.declared.called(found.averaged).values())}"
    return "; score is the mean of the metrics"


def _rows(found: Finals) -> pd.DataFrame:
    rows = found.by_label.join(reaching(found))
    for name in (
        "seeds_reached",
        "seeds_compared",
        *(f"fewer_{WORDS[effort].name}" for effort in found.efforts),
    ):
        rows[name] = rows.get(name, math.nan)  # where nothing can be compared there are no such columns
    counts = ["seeds_reached", "seeds_compared"]
    rows[counts] = rows[counts].fillna(0).astype(int)
    rows = rows.reset_index().assign(row=rows.index)
    return rows.sort_values("apart", ascending=False, kind="stable", ignore_index=True)


def _columns(found: Finals) -> tuple[Column, ...]:
    frames, baseline, declared = found.frames, found.against, found.frames.declared
    headers = show.metric_headers(frames.metrics, declared)
    comparing = any(label != found.baseline for label in frames.competitors)
    shows_arrows = not show.all_alike(frames.metrics, declared)

    def score(
        key: str,
        header: str,
        metric: Metric,
        formula: str,
        inputs: tuple[str, ...] = (),
        importance: int = 60,
    ) -> Column:
        def text(row: Record) -> str:
            mean, std, seeds = (row[f"{key}_{part}"] for part in ("mean", "std", "seeds"))
            return show.mean(mean, std, seeds, row["seeds"], metric)

        def rank(row: Record) -> float:
            """Rank a run last that diverged."""
            found, lacks = metric.rank(float(row[f"{key}_mean"])), row[f"{key}_seeds"] < row["seeds"]
            is_last = (row["diverged"] and lacks and not math.isnan(found)) or math.isinf(found)
            return -math.inf if is_last else found

        return Column(
            key, header, text, rank,
            mark=show.one_seed(f"{key}_seeds"), formula=f"mean over seeds of the {formula}", inputs=inputs,
            importance=importance, family="scores",
            data=tuple(f"{key}_{part}" for part in ("mean", "std", "seeds")),
            rounded=lambda n: score(key, header, replace(metric, digits=n), formula, inputs, importance),
        )  # fmt: skip

    scored, differs = [], []
    if found.averaged:
        metric = found.metric
        name = show.heading("score", metric) if shows_arrows else "score"
        scored = [score("score", name, metric, f"mean of {', '.join(found.averaged)}", found.averaged, 90)]
        # Never bold: the best score is.
        differs = [_delta_column(metric, baseline)] if comparing else []
    factors = [factor_column(effort, baseline) for effort in found.efforts]
    return (
        Column("run", "run", lambda row: frames.shown[row["label"]], align="left", importance=ESSENTIAL),
        Column(
            "seeds",
            "seeds",
            show.seeds,
            formula="runs that completed, of those planned",
            importance=30,
            data=("seeds", "seeds_planned"),
        ),
        *(score(name, header, declared.of(name), f"final {name}") for name, header in headers.items()),
        *scored,
        *differs,
        *(_spent_column(effort, found) for effort in found.efforts),
        *(factors if found.compares else []),
    )


def _delta_column(metric: Metric, baseline: str) -> Column:
    """Column of the difference to the baseline's score."""
    return Column(
        "delta",
        f"Δ {baseline}",
        lambda row: show.difference(row["delta_mean"], row["delta_low"], row["delta_high"], metric),
        mark=show.one_seed("delta_seeds"),
        formula=f"mean over seeds of score minus that of {baseline} with the same seed; in brackets its "
        f"{INTERVAL} by Student's t",
        inputs=("score",),
        compares=True,
        importance=80,
        family="differences",
        data=tuple(f"delta_{part}" for part in ("mean", "std", "seeds", "low", "high")),
        rounded=lambda digits: _delta_column(replace(metric, digits=digits), baseline),
    )


def _spent_column(effort: Effort, found: Finals, digits: int | None = None) -> Column:
    """Column of what runs have spent in all."""
    divisor, unit_name = unit(effort, found.runs[effort])
    write = writer(effort, divisor) if digits is None else lambda amount: f"{amount / divisor:,.{digits}f}"
    header, formula = {
        "examples_seen": ("examples", "examples that the learner trained on, mean over seeds"),
        "flops": (unit_name, f"mean over seeds of the FLOPs of {found.frames.counted(found.scope)}"),
        "seconds": (
            f"time ({unit_name})",
            "mean over seeds of the seconds of training: without waiting, and for jestlab's own programs "
            "without compilation, evaluation and checkpoints",
        ),
        "chip_hours": ("chip-hours", "mean over seeds of chips × hours of training"),
    }[effort]
    importance = {"flops": 50, "examples_seen": 25, "seconds": 20, "chip_hours": 15}[effort]
    return Column(
        effort, header, lambda row: show.known(row[effort], write), formula=formula, importance=importance,
        family="costs", data=(effort,), rounded=lambda n: _spent_column(effort, found, n),
    )  # fmt: skip


def _conventions(found: Finals) -> dict[str, tuple[str, ...]]:
    """Notes on the meaning of the columns, each with the columns that it is about."""
    frames, baseline = found.frames, found.against
    said: dict[str, tuple[str, ...]] = {}
    if "flops" in found.efforts:
        said[f"FLOPs: {frames.counted(found.scope)}"] = ("flops", "fewer_flops")
    scores = (*frames.metrics, "score")
    if frames.no_score:
        return said | {frames.no_score: scores}
    if any(label != found.baseline for label in frames.competitors):
        better = {"max": "", "min": "; less is better", None: ""}[found.metric.goal]
        said[f"Δ: score minus that of {baseline} with the same seed, mean [{INTERVAL}]{better}"] = ("delta",)
    if found.compares and found.efforts:
        fewer = [WORDS[effort].fewer for effort in found.efforts]
        what = ", ".join([fewer[0], *(each.removeprefix("fewer ") for each in fewer[1:])])
        factors = (
            f"{what}: factor by which a run reaches the final score of {baseline} "
            f"sooner than {baseline} itself; same seed, {crossing_words(found.crossing, found.metric)}, "
            "median over seeds (seeds that reach it)" + _with_references(found)
        )
        said[factors] = tuple(f"fewer_{WORDS[effort].name}" for effort in found.efforts)
    unranked = [name for name in frames.metrics if frames.declared.of(name).goal is None]
    return said | ({f"not ranked: {lacks_goal(unranked)}": tuple(unranked)} if unranked else {})


def _with_references(found: Finals) -> str:
    """Say the factors in FLOPs that include the reference, if the column leaves it out."""
    frames = found.frames
    needing = frames.costs.loc[frames.costs["reference_training_share_flops"] > 0, "label"]
    if found.scope == "reference_training" or needing.empty:
        return ""
    rows = reaching(finals(frames, found.baseline, "reference_training", found.mean, found.crossing))
    factors = [
        f"{frames.shown[str(label)]} {factor:.1f}×"
        for label, factor in rows.get("fewer_flops", {}).items()
        if label in set(needing) and math.isfinite(factor)
    ]
    if not factors:
        return ""
    timed = "seconds" in found.efforts
    leave, of_flops = (" and less time leave", " of FLOPs") if timed else (" leaves", "")
    return (
        f"; fewer FLOPs{leave} out making the reference: with its scoring and each run's share in its "
        f"training, the factors{of_flops} are {', '.join(factors)}"
    )


_PAID = (
    "break-even: runs that must share the reference until it has paid in FLOPs, its scoring counted; ∞: never"
)


def speedup_table(found: Finals) -> Table:
    """Build the table of examples and FLOPs that each run takes to match the baseline.

    One row a label that is compared, in the order of the study. A run that does not get there is
    right-censored: it takes more than it spent. One that is there at its first evaluation is left-censored.

    Args:
        found: The final results of the experiment.

    Returns:
        A table whose frame has label, apart, the columns of `reaching`, and break_even where any run needs
        something that has to be made first: median over seeds, of two middle ones the greater, with the least
        and the greatest of any seed (break_even_low, break_even_high); infinite where no number of runs pays,
        since such a seed does not get there, or not for less.

    Raises:
        ValueError: No run can be compared, or there is no score of which more or less is better.
    """
    frames, words = found.frames, crossing_words(found.crossing, found.frames.ranked)
    rows = reaching(found)
    if rows.empty:
        raise NotYet(f"no run of experiment {frames.experiment!r} has a seed in common with {found.against}")
    paid = break_even(frames, found.baseline, found.averaged, found.crossing)
    needing = paid.dropna(subset="break_even")
    if len(needing):
        of_label = needing.groupby("label")["break_even"]
        rows["break_even"] = of_label.agg(median_high)
        rows[["break_even_low", "break_even_high"]] = of_label.agg(["min", "max"])
    reached = f"seeds that reach the final score of {found.against}, of those compared"
    table = Table(
        name=f"{frames.experiment} speed-ups",
        caption=f"{frames.experiment}: {listed([WORDS[each].amount for each in found.efforts])} until a "
        f"run reaches the final score of {found.against} with the same seed, {words}; also for "
        f"{found.against} itself. Median over seeds [least, greatest].",
        frame=rows.reset_index().assign(row=rows.index, apart=False),
        columns=(
            Column("run", "run", lambda row: frames.shown[row["label"]], align="left", importance=ESSENTIAL),
            Column(
                "seeds", "reached", lambda row: f"{row['seeds_reached']} of {row['seeds_compared']}",
                formula=reached, importance=30, data=_REACHED,
            ),
            *(
                column
                for effort in found.efforts
                for column in (effort_column(effort, found), factor_column(effort, found.against))
            ),
            *([_break_even_column(found.against)] if len(needing) else []),
        ),
        notes=(
            *([f"FLOPs: {frames.counted(found.scope)}"] if "flops" in found.efforts else []),
            "> : not reached by then; ≤, ≥ : reached by the first evaluation, perhaps sooner",
            "the range of n seeds holds the true median with probability 1 − 2^(1−n): .75 for 3, .94 for 5",
            *([_PAID] if len(needing) else []),
            *show.gaps(found),
        ),
        parts=found.runs.merge(paid, on=["label", "seed"], how="left").assign(
            row=lambda runs: runs["label"], experiment=frames.experiment
        ),
        baselines=found.baselines,
        shown=found.renamed,
    )  # fmt: skip
    return show.with_marks_explained(table)


def _break_even_column(baseline: str) -> Column:
    """Column of the number of runs after which a reference has paid for itself."""

    def text(row: Record) -> str:
        return with_range(*(float(row[key]) for key in BREAK_EVEN))

    return Column(
        "break_even",
        "break-even",
        text,
        mark=one_seed_mark(text),
        formula=f"the fewest runs that together, with making all that they need once, cost less FLOPs to the "
        f"final score of {baseline} than as many of {baseline}: median over seeds [least, greatest]",
        inputs=("making_flops", "scored_flops"),
        compares=True,
        importance=45,
        data=BREAK_EVEN,
    )


BREAK_EVEN = ("break_even", "break_even_low", "break_even_high")
"""Columns of the number of runs after which a reference has paid: median, least and greatest of any seed."""


def with_range(value: float, low: float, high: float) -> str:
    """Write numbers of runs: "13 [11, 109]"; one number where all seeds have the same."""
    if math.isnan(value):
        return show.MISSING
    text, *ends = ("∞" if math.isinf(runs) else f"{runs:,.0f}" for runs in (value, low, high))
    return text if low == high else f"{text} [{', '.join(ends)}]"


# ---- over seeds


def reaching(found: Finals) -> pd.DataFrame:
    """Compute what each label takes to match the baseline, in the order of the study.

    Returns:
        Index label; seeds_compared (diverged ones, too), seeds_reached; for each effort: `<effort>_to_match`
        (median over seeds, or what it is at least where `<effort>_most` is more), `_low` and `_high` (range;
        infinite where one does not get there), `<effort>_spent` (the least by which one had not got there,
        else NaN), `<effort>_at_most` and `_low_at_most` (bool: the median, or the least, is of a run that was
        there at its first evaluation), `fewer_<effort>` (censored median) and `fewer_<effort>_at_least`.
    """
    import pandas as pd

    compared = found.runs.dropna(subset="reached")
    columns = {str(name): compared[name].to_numpy() for name in compared.columns}
    lines = []
    for label, at in compared.groupby("label", sort=False).indices.items():
        line: dict[str, object] = {"label": label, "seeds_compared": len(at)}
        line["seeds_reached"] = int(columns["reached"][at].sum())
        first = [bool(bounded) for bounded in columns["bounded"][at]]
        for effort in (WORDS[its].name for its in found.efforts):
            names = (f"{effort}_to_match", f"{effort}_spent", f"fewer_{effort}")
            took, spent, fewer = (columns[name][at].astype(float).tolist() for name in names)
            missed = [whole for effort_, whole in zip(took, spent, strict=True) if math.isnan(effort_)]
            reach, factor = to_match(took, spent), censored_median(fewer)
            line |= {f"{effort}_to_match": reach.value, f"{effort}_most": reach.most}
            line |= {f"{effort}_low": reach.low, f"{effort}_high": reach.high, f"fewer_{effort}": factor}
            line[f"{effort}_spent"] = min(missed, default=math.nan)
            bounded = [each for each, early in zip(took, first, strict=True) if early]
            # A bound that lies on the median's other side cannot move it.
            line[f"{effort}_at_most"] = any(each >= reach.value for each in bounded)
            line[f"{effort}_low_at_most"] = reach.low in bounded
            factors = [each for each, early in zip(fewer, first, strict=True) if early]
            line[f"fewer_{effort}_at_least"] = any(each <= factor for each in factors)
        lines.append(line)
    return pd.DataFrame(lines).set_index("label") if lines else pd.DataFrame()


_MATCHING: dict[Effort, int] = {"flops": 75, "examples_seen": 70, "seconds": 40, "chip_hours": 35}
"""Importance of the factor by which a run needs less of an effort; of how much it needs it is 10 less."""


_REACHING = ("to_match", "most", "low", "high", "spent", "at_most", "low_at_most")
_REACHED = ("seeds_reached", "seeds_compared")


def effort_column(kind: Effort, found: Finals, digits: int | None = None) -> Column:
    """Column of the effort at which the baseline's score is reached."""
    effort, baseline = WORDS[kind].name, found.against
    divisor, unit_name = unit(kind, found.runs[kind])
    shown = writer(kind, divisor) if digits is None else lambda amount: f"{amount / divisor:,.{digits}f}"
    header = {
        "examples_seen": "examples to match",
        "flops": f"{unit_name} to match",
        "seconds": f"time to match ({unit_name})",
        "chip_hours": "chip-hours to match",
    }[kind]

    def text(row: Record) -> str:
        value, most, low, high = (row[f"{effort}_{part}"] for part in ("to_match", "most", "low", "high"))
        if math.isnan(value):
            return show.MISSING
        if row["seeds_reached"] == 0:
            return f"> {shown(value)}, not reached"
        sign = "> " if most > value else "≤ " if row[f"{effort}_at_most"] else ""
        middle = f"{sign}{shown(value)}"
        if row["seeds_compared"] == 1 or low == high:
            return middle
        least = f"≤ {shown(low)}" if row[f"{effort}_low_at_most"] else shown(low)
        greatest = shown(high) if math.isfinite(high) else f"> {shown(row[f'{effort}_spent'])}"
        return f"{middle} [{least}, {greatest}]"

    return Column(
        f"{effort}_to_match",
        header,
        text,
        mark=one_seed_mark(text),
        formula=f"{WORDS[kind].amount} at which the run's curve reaches the final score of {baseline} with "
        "the same seed, interpolated between the two evaluations around it: median over seeds [least, "
        "greatest]",
        inputs=("target", "score_before", "score_after", f"{effort}_before", f"{effort}_after"),
        importance=_MATCHING[kind] - 10,
        family="costs",
        data=tuple(f"{effort}_{part}" for part in _REACHING),
        rounded=lambda n: effort_column(kind, found, n),
    )


def factor_column(kind: Effort, baseline: str, digits: int = 1) -> Column:
    """Column of the factor by which less effort is needed than by the baseline."""
    words = WORDS[kind]
    effort, key = words.name, f"fewer_{words.name}"

    def text(row: Record) -> str:
        factor, reached, compared = float(row[key]), row["seeds_reached"], row["seeds_compared"]
        of_seeds = f" ({reached:.0f}/{compared:.0f})" if 0 < reached < compared else ""
        if not math.isnan(factor):
            least = "≥ " if row[f"{key}_at_least"] is True and math.isfinite(factor) else ""
            return ("∞" if math.isinf(factor) else f"{least}{factor:.{digits}f}×") + of_seeds
        unreached = compared > 0 and 2 * reached <= compared
        return f"not reached{of_seeds}" if unreached else show.MISSING

    return Column(
        key,
        words.fewer,
        text,
        lambda row: round(float(row[key]), digits),
        mark=one_seed_mark(text),
        formula=f"median over seeds of the {words.amount} that {baseline} takes to its final score, over "
        "those that the run takes to it with the same seed",
        inputs=(f"{effort}_to_match",),
        compares=True,
        importance=_MATCHING[kind],
        family="factors",
        data=(key, f"{key}_at_least", *_REACHED, *(f"{effort}_{part}" for part in _REACHING)),
        rounded=lambda n: factor_column(kind, baseline, n),
    )


def one_seed_mark(text: Callable[[Record], str]) -> Callable[[Record], str]:
    """Mark cells that rest on one seed and are not empty."""
    return lambda row: "" if text(row) == show.MISSING else show.one_seed("seeds_compared")(row)
