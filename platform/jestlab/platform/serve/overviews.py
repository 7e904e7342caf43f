"""Answers and best scores of experiments, computed in the background for the list of experiments."""

import math
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from sqlalchemy.exc import SQLAlchemyError

from jestlab.analysis.claims import parts_of
from jestlab.analysis.report import read_answer
from jestlab.analysis.report.answer import Answer
from jestlab.analysis.results import opened
from jestlab.platform.errors import UserError
from jestlab.platform.serve.groups import Scores, spark

MOST_RUNS = 1_000
"""Maximum number of runs of an experiment that is analyzed in the background."""


@dataclass(frozen=True)
class Overview:
    """The answer of an experiment, and its label with the best score.

    Attributes:
        answer: The answer.
        best: The label.
        score: Its score with the unit, and `metric`, its name.
        trend: Path of its sparkline, and `color`, its color.
    """

    answer: Answer
    best: str = ""
    score: str = ""
    metric: str = ""
    trend: str = ""
    color: str = ""


class Overviews:
    """Overviews of the experiments of one lab."""

    def __init__(self, url: str) -> None:
        """Start without overviews; they are made on request. `url` is that of the store."""
        self._url = url
        self._made: dict[str, Overview] = {}
        self._jobs: dict[str, tuple[object, Future[None]]] = {}
        self._pool = ThreadPoolExecutor(1, "overviews")

    def of(self, name: str, key: object) -> Overview | None:
        """Return the last overview of an experiment; a missing or outdated one is computed for later calls.

        `key` is a value that changes with the results of the experiment.
        """
        known = self._jobs.get(name)
        if known is None or (known[0] != key and known[1].done()):
            self._jobs[name] = key, self._pool.submit(self._compute, name)
        return self._made.get(name)

    def close(self) -> None:
        """Stop after the current computation."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _compute(self, name: str) -> None:
        start = time.monotonic()
        try:
            self._made[name] = overview_of(self._url, name)
        except (UserError, ValueError, OSError, SQLAlchemyError) as error:
            self._made[name] = Overview(Answer(" ".join(str(error).split())))
        time.sleep(time.monotonic() - start)  # pages need half of the time


def overview_of(url: str, experiment: str) -> Overview:
    """Compute the overview of an experiment of the store at a URL."""
    with opened(url) as store:
        overview = Overview(read_answer(store, experiment))
        if parts_of(store, experiment):
            return overview
        frames = store.frames(experiment)
        scores = Scores.of(frames)
        rows = {label: scores.labels[label] for label in frames.competitors if label in scores.labels}
        means = {label: row["score_mean"] for label, row in rows.items() if math.isfinite(row["score_mean"])}
        if not means or scores.metric.goal is None:
            return overview
        best = max(means, key=lambda label: scores.metric.sign * means[label])
        return replace(
            overview, best=frames.shown[best], score=scores.metric.text(means[best]) + scores.metric.suffix,
            metric=scores.title, trend=spark(*scores.trends[best]), color=store.colors(experiment)[best].css,
        )  # fmt: skip
