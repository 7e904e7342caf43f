"""Answers and best scores of experiments, computed in the background for the list of experiments."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from sqlalchemy.exc import SQLAlchemyError

from jestlab.platform.errors import UserError
from jestlab.platform.serve.groups import Scores, spark


@dataclass(frozen=True)
class Overview:
    """The answer of an experiment, or the reason for a missing one, and the label with the best score.

    `verdict`, `tone`, and `sentence` are those of `analysis.report.answer.Answer`; `trend` is the path of a
    sparkline of the score. Unknown values are empty.
    """

    verdict: str = ""
    tone: str = ""
    sentence: str = ""
    best: str = ""
    score: str = ""
    trend: str = ""
    color: str = ""


class Overviews:
    """Overviews of the experiments of one lab."""

    def __init__(self, url: str) -> None:
        """Start without overviews; they are made on request. `url` is that of the store."""
        self._url = url
        self._made: dict[str, Overview] = {}
        self._keys: dict[str, object] = {}
        self._pending: set[str] = set()
        self._pool = ThreadPoolExecutor(1, "overviews")

    def of(self, name: str, key: object) -> Overview | None:
        """Return the last overview of an experiment; a missing or outdated one is computed for later calls.

        `key` is a value that changes with the results of the experiment.
        """
        if name not in self._pending and self._keys.get(name) != key:
            self._pending.add(name)
            self._keys[name] = key
            self._pool.submit(self._compute, name)
        return self._made.get(name)

    def close(self) -> None:
        """Stop after the current computation."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _compute(self, name: str) -> None:
        start = time.monotonic()
        try:
            self._made[name] = overview_of(self._url, name)
        except (UserError, ValueError, OSError, SQLAlchemyError) as error:
            self._made[name] = Overview(sentence=" ".join(str(error).split()))
        finally:
            self._pending.discard(name)
        time.sleep(time.monotonic() - start)  # pages need half of the time


def overview_of(url: str, experiment: str) -> Overview:
    """Compute the overview of an experiment of the store at a URL."""
    from jestlab.analysis.claims import studies
    from jestlab.analysis.claims.judged import count_verdicts
    from jestlab.analysis.claims.verdicts import load
    from jestlab.analysis.provenance.warnings import Origins
    from jestlab.analysis.report.answer import answer, verdict_of
    from jestlab.analysis.results import opened
    from jestlab.analysis.tables import finals, summary

    with opened(url) as store:
        study, judged = store.once(studies)[experiment], load(store, experiment)
        reply = Overview(*verdict_of(judged), count_verdicts(judged) if judged else "")
        if study.parts:
            return reply
        frames = store.frames(experiment)
        if not judged or len(frames.competitors) > 1:  # as on the page of the experiment
            results = finals(frames, scope=study.scope)
            table = summary(results).marked(Origins.read(store, [experiment]))
            full = answer(table, results, judged)
            reply = Overview(full.verdict, full.tone, full.sentence)
        scores = Scores.of(frames)
        means = {label: mean for label in frames.competitors if (mean := scores.mean(label)) is not None}
        if not means or scores.metric.goal is None:
            return reply
        best = max(means, key=lambda label: scores.metric.sign * means[label])
        unit = scores.metric.suffix if scores.metric.in_percent else ""
        return replace(
            reply, best=frames.shown[best], score=scores.metric.text(means[best]) + unit,
            trend=spark(*scores.trends[best]), color=store.colors(experiment)[best].css,
        )  # fmt: skip
