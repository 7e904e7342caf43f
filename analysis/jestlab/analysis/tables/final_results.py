"""Final results of an experiment: scores, costs, and the effort of each run to match the baseline."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from ..costs import Scope
from ..curves import score_curves, speedups
from ..efforts import WORDS, Effort, known
from ..errors import NotYet
from ..frames import DIVERGED, LOST, Frames
from ..intervals import censored_median, of_groups, to_match
from ..metrics import Metric
from .core import ESSENTIAL, Column, Table


@dataclass(frozen=True)
class Finals:
    """Final results of an experiment, compared with a baseline.

    Attributes:
        baseline: Label of the baseline.
        runs: One row for each completed run that was evaluated, in the order of the study: fingerprint,
            label, seed, the metrics, score, delta (score minus the baseline's score with the same seed; NaN
            for the baseline, for references, and without such a seed), examples_seen, flops, and the columns
            of `curves.speedups` (NaN for runs that aren't compared, and if the score has no goal).
    """

    frames: Frames
    baseline: str
    scope: Scope
    runs: pd.DataFrame

    @cached_property
    def efforts(self) -> list[Effort]:
        """The efforts that are known for these runs."""
        return known(self.runs)

    @property
    def metric(self) -> Metric:
        """Goal and unit of the score; unknown if the experiment has no score."""
        return Metric() if self.frames.no_score else self.frames.score

    @property
    def against(self) -> str:
        """The displayed name of the baseline."""
        return self.frames.shown[self.baseline]

    @cached_property
    def by_label(self) -> pd.DataFrame:
        """One row for each label, in the order of the study: index label; run, apart (bool), seeds,
        seeds_planned, lost (`Frames.lost`), diverged (bool: whether a seed did); for each metric, score, and
        delta `_mean`, `_std`, `_seeds`, `_low`, and `_high` (95% confidence interval of the mean); and the
        mean of each known effort."""
        frames, labels = self.frames, self.frames.runs.groupby("label", sort=False)
        rows = pd.DataFrame({"run": labels["run"].first()})
        rows["apart"] = rows.index.isin(frames.apart_from(self.baseline))
        rows["seeds"], rows["seeds_planned"] = self.runs.groupby("label").size(), labels.size()
        rows["lost"] = [frames.lost.get(str(label), "") for label in rows.index]
        rows["diverged"] = [DIVERGED in frames.fates[str(label)] for label in rows.index]
        for name in [*frames.metrics, "score", "delta"]:
            parts = [f"{name}_{part}" for part in ("mean", "std", "seeds", "low", "high")]
            rows[parts] = of_groups(self.runs[name], self.runs["label"])
            # If a seed diverged, the others are a biased selection.
            is_biased = rows["diverged"] | (name == "delta" and DIVERGED in frames.fates[self.baseline])
            rows.loc[is_biased, parts[-2:]] = math.nan
        counts = [name for name in rows.columns if name == "seeds" or str(name).endswith("_seeds")]
        rows[counts] = rows[counts].fillna(0).astype(int)
        for effort in self.efforts:
            rows[effort] = of_groups(self.runs[effort], self.runs["label"])["mean"]
        return rows

    @cached_property
    def matching(self) -> pd.DataFrame:
        """The effort that each compared label takes to match the baseline, in the order of the study.

        Index label; seeds_compared (including diverged ones), seeds_reached; for each effort:
        `<effort>_to_match` (median over seeds, or a lower bound of the median if `<effort>_most` is greater),
        `_spent` (the least effort of a seed that doesn't reach the score, else NaN), `_at_most` (bool: the
        median is an upper bound, as a run reached the score at its first evaluation), `fewer_<effort>`
        (censored median), and `fewer_<effort>_at_least` (bool).
        """
        compared = self.runs.dropna(subset="reached")
        columns = {str(name): compared[name].to_numpy() for name in compared.columns}
        lines = []
        for label, at in compared.groupby("label", sort=False).indices.items():
            reached, early = (columns[name][at].astype(bool) for name in ("reached", "bounded"))
            line = {"label": label, "seeds_compared": len(at), "seeds_reached": int(reached.sum())}
            for effort in (WORDS[each].name for each in self.efforts):
                names = (f"{effort}_to_match", f"{effort}_spent", f"fewer_{effort}")
                took, spent, fewer = (columns[name][at].astype(float) for name in names)
                (value, most), factor = to_match(took, spent), censored_median(fewer)
                line |= {
                    f"{effort}_to_match": value,
                    f"{effort}_most": most,
                    f"{effort}_spent": min(spent[np.isnan(took)].tolist(), default=math.nan),
                    f"fewer_{effort}": factor,
                    # A bound can't move the median if the true value is still farther from it.
                    f"{effort}_at_most": bool((took[early] >= value).any()),
                    f"fewer_{effort}_at_least": bool((fewer[early] <= factor).any()),
                }
            lines.append(line)
        return pd.DataFrame(lines).set_index("label") if lines else pd.DataFrame()

    @property
    def gaps(self) -> list[str]:
        """A note for each label that is a reference or the best of others, or lacks runs or scores."""
        frames, shown = self.frames, self.frames.shown
        missing = self.runs[frames.averaged].isna().groupby(self.runs["label"]).any().to_dict("index")
        incomplete = frames.runs[~frames.runs["state"].isin(["COMPLETED", *LOST])]
        seeds = "seed " + incomplete["seed"].astype(str) + " " + incomplete["state"]
        states = seeds.groupby(incomplete["label"]).agg(list)
        apart = frames.apart_from(self.baseline)
        notes = []
        for label in frames.labels:
            texts = ["a reference that other runs depend on; not ranked"] * (label in apart)
            texts += [
                *filter(None, [frames.about.get(label), frames.lost.get(label)]),
                *states.get(label, []),
            ]
            if DIVERGED in frames.fates[label]:
                texts.append("not ranked")
            elif lacking := [str(name) for name, is_missing in missing.get(label, {}).items() if is_missing]:
                texts.append(f"no score where {', '.join(lacking)} is missing")
            notes += [f"{shown[label]}: {'; '.join(texts)}"] * bool(texts)
        return notes

    def table(
        self,
        kind: str,
        caption: str,
        rows: pd.DataFrame,
        columns: Sequence[Column],
        notes: Sequence[str] = (),
        parts: pd.DataFrame | None = None,
    ) -> Table:
        """Make a table of a kind. A column with the names of runs and the notes `gaps` are added.

        Args:
            rows: Raw numbers; the index is the label.
            parts: `runs` with additional columns; None for `runs`.
        """
        frames, shown = self.frames, self.frames.shown
        parts = self.runs if parts is None else parts
        places = zip(parts["label"], parts["seed"], strict=True)
        run = Column("run", "run", lambda row: shown[row["label"]], align="left", importance=ESSENTIAL)
        return Table(
            name=f"{frames.experiment} {kind}",
            caption=caption,
            frame=rows.reset_index().assign(row=rows.index),
            columns=(run, *(column for column in columns if column.importance)),
            own_notes=(*filter(None, notes), *self.gaps),
            hidden=tuple(column for column in columns if not column.importance),
            parts=parts.assign(
                row=parts["label"],
                experiment=frames.experiment,
                label=[frames.chosen.get(place, place[0]) for place in places],
            ),
            baselines={label: self.baseline for label in frames.labels if label != self.baseline},
            shown={label: shown[label] for label in frames.labels if shown[label] != label},
        )


def finals(frames: Frames, baseline: str | None = None, scope: Scope = "scoring") -> Finals:
    """Compute the final results of an experiment.

    Args:
        baseline: Label or run to compare with; None for the study's own (`Frames.baseline`).

    Raises:
        ValueError: No run has completed yet, or the baseline is unknown.
    """
    compared = frames.baseline(baseline)
    curves = score_curves(frames, scope)
    runs = curves[curves["final"]].drop(columns=["step", "final"])
    if runs.empty:
        raise NotYet(f"no run of experiment {frames.experiment!r} has completed yet: {frames.progress()}")
    apart = frames.apart_from(compared)
    baseline_scores = runs[runs["label"] == compared].set_index("seed")["score"]
    delta = runs["score"] - runs["seed"].map(baseline_scores)
    runs["delta"] = delta.where(~runs["label"].isin([compared, *apart]))
    is_ranked = not frames.no_score and frames.score.goal is not None
    sign = frames.score.sign if is_ranked else 1.0
    speedup = speedups(curves if is_ranked else curves[:0], compared, sign)
    speedup = speedup[~speedup["label"].isin(apart)]
    runs = runs.merge(speedup, on=["fingerprint", "label", "seed"], how="left")
    return Finals(frames, compared, scope, runs)
