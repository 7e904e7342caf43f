"""Answers and best scores of experiments, computed in the background for the list of experiments."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from jestlab.platform.errors import UserError
from jestlab.platform.serve.groups import spark

_PAUSE_FACTOR = 1
"""After each computation, the thread waits this many times its duration, so that pages stay fast."""

_REST_FACTOR = 20
"""Minimum time between two computations for one experiment, as a multiple of the duration of the first."""


@dataclass(frozen=True)
class Overview:
    """The results of an experiment in a few words.

    Attributes:
        verdict: The verdict of its answer, such as "✓ Yes"; can be empty.
        tone: Color of the verdict.
        sentence: The answer, or why there is none.
        best: Label with the best mean score; empty if unknown.
        score: Its mean score, with a unit.
        trend: Path of a sparkline of this score; can be empty.
        color: Color of the label.
    """

    verdict: str = ""
    tone: str = ""
    sentence: str = ""
    best: str = ""
    score: str = ""
    trend: str = ""
    color: str = ""


@dataclass(frozen=True)
class _Known:
    """A computed overview, the key of the results that it shows, and when it may be computed again."""

    overview: Overview
    key: object
    valid_until: float


class Overviews:
    """Overviews of the experiments of one lab. A thread computes them while pages ask for missing ones."""

    def __init__(self, url: str) -> None:
        """Start without overviews of the store at a URL."""
        self._url = url
        self._known: dict[str, _Known] = {}
        self._wanted: dict[str, object] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def of(self, keys: Mapping[str, object]) -> dict[str, Overview]:
        """Return the known overviews of experiments; others, and outdated ones, follow later.

        Args:
            keys: Experiment → a value that changes with its results, the most urgent first.
        """
        now = time.monotonic()
        with self._lock:
            known = {name: self._known[name] for name in keys if name in self._known}
            self._wanted = {
                name: key
                for name, key in keys.items()
                if name not in known or (known[name].key != key and now >= known[name].valid_until)
            }
            if self._wanted and self._thread is None:
                self._thread = threading.Thread(target=self._compute, name="overviews", daemon=True)
                self._thread.start()
            return {name: each.overview for name, each in known.items()}

    def _compute(self) -> None:
        """Compute the wanted overviews, one after the other."""
        while True:
            with self._lock:
                if not self._wanted:
                    self._thread = None
                    return
                name, key = next(iter(self._wanted.items()))
                del self._wanted[name]
            start = time.monotonic()
            try:
                overview = overview_of(self._url, name)
            except (UserError, ValueError, OSError, SQLAlchemyError) as error:
                overview = Overview(sentence=" ".join(str(error).split()))
            seconds = time.monotonic() - start
            with self._lock:
                self._known[name] = _Known(overview, key, start + _REST_FACTOR * seconds)
            time.sleep(_PAUSE_FACTOR * seconds)


def overview_of(url: str, experiment: str) -> Overview:
    """Compute the overview of an experiment of the store at a URL."""
    from jestlab.analysis.claims import studies
    from jestlab.analysis.claims.judged import count_verdicts
    from jestlab.analysis.claims.verdicts import load
    from jestlab.analysis.curves import score_curves
    from jestlab.analysis.report.answer import answer, verdict_of
    from jestlab.analysis.results import opened
    from jestlab.analysis.tables import finals, summary

    with opened(url) as store:
        study, judged = store.once(studies)[experiment], load(store, experiment)
        if study.parts:
            return Overview(*verdict_of(judged), count_verdicts(judged) if judged else "")
        frames = store.frames(experiment)
        results = finals(frames, scope=study.scope)
        table = summary(results)
        reply = answer(table, results, judged)
        rows = table.frame[~table.frame["apart"] & ~table.frame["diverged"]].dropna(subset="score_mean")
        if rows.empty or frames.score.goal is None:
            return Overview(reply.verdict, reply.tone, reply.sentence)
        means = frames.score.sign * rows["score_mean"]
        best, mean = rows[["label", "score_mean"]].iloc[int(means.argmax())]
        curves = score_curves(frames)
        trend = curves[curves["label"] == best].groupby("step")["score"].mean()
        text = frames.score.text(mean) + (frames.score.suffix if frames.score.in_percent else "")
        return Overview(
            reply.verdict, reply.tone, reply.sentence, frames.shown[best], text,
            spark(trend.index.tolist(), trend.tolist()), store.colors(experiment)[best].css,
        )  # fmt: skip
