"""Figures and tables of one's own: functions of a study's results that a spec or a command names.

    def scatter(results, x="flops"):
        figure = Figure()
        axes = figure.subplots()
        for label, runs in results.final.groupby("label", sort=False):
            axes.scatter(runs[x], runs["score"], color=results.colour(label), label=results.shown(label))
        return figure

A function gets `Results` and its options. Where its code is, and whether it may be executed, is not decided
here: whoever may import it passes a `Loader`.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

from .claims.verdicts import read as read_verdicts
from .configs import Configs
from .costs import Scope
from .curves import score_curves
from .frames import Frames
from .frames import NotYet as NotYet
from .metrics import Metric
from .results import Snapshot
from .units import some

if TYPE_CHECKING:
    import pandas as pd

    from .figures.style import Look

Kind = Literal["figure", "table"]


class CodeFailed(ValueError):
    """A function of one's own raised an exception, or returned something else than it should; one line."""


@dataclass(frozen=True)
class OwnCode:
    """A function of one's own that makes a figure or a table.

    Attributes:
        name: As it is named: `path/to/file.py:function`, `package.module:function`, or an entry point.
        function: `f(results, **options)`.
        digest: Of its code; empty if nobody knows.
    """

    name: str
    function: Callable[..., Any]
    digest: str = ""

    def __call__(self, results: Results, options: Mapping[str, Any]) -> Any:
        """Call the function.

        Raises:
            NotYet: The experiment lacks results that it asked for.
            CodeFailed: It raised another exception; the message names file and line.
        """
        try:
            return self.function(results, **options)
        except NotYet:
            raise
        except (Exception, SystemExit) as error:
            raise CodeFailed(f"{self._place(error)}: {_in_words(error)}") from error

    def _place(self, error: BaseException) -> str:
        """Return file and line of the last call within the function's own file, or else its name."""
        code = getattr(self.function, "__code__", None)
        calls = traceback.extract_tb(error.__traceback__)[1:]  # the first is ours
        own = [call for call in calls if code is not None and call.filename == code.co_filename]
        return f"{own[-1].filename}:{own[-1].lineno}" if own else self.name


class Loader(Protocol):
    """Imports code of one's own, if it may be executed."""

    def __call__(self, experiment: str, kind: Kind, name: str) -> OwnCode:
        """Import what the reports of an experiment name.

        Raises:
            ValueError: It may not be executed, there is none, or it cannot be imported; one line.
        """


def load(loader: Loader | None, experiment: str, kind: Kind, name: str) -> OwnCode:
    """Import code of one's own by a loader.

    Raises:
        ValueError: There is no loader, or as the loader says.
    """
    if loader is None:
        raise ValueError(f"{name} is code of one's own, which is not executed from here: jestlab {kind} does")
    return loader(experiment, kind, name)


def stem_of(name: str) -> str:
    """Return what the files and headings of a report are called: the function's name or the entry point's."""
    return re.sub(r"[^\w.+-]", "_", name.rpartition(":")[2])


class Results:
    """The results of one experiment, as a figure or table of one's own reads them.

    Frames are copies: to change them changes nothing. What is missing so far raises `NotYet`, which is told
    as "not yet", not as a failure; there is no need to catch it.

    Attributes:
        experiment: Its name.
    """

    def __init__(
        self,
        store: Snapshot,
        experiment: str,
        read: Callable[[], Frames] | None = None,
        baseline: str | None = None,
        scope: Scope = "scoring",
    ) -> None:
        """Create it; nothing is read yet.

        Args:
            store: The store.
            experiment: Its name.
            read: Returns the results, if they have been read already.
            baseline: Label or run to compare with; None for the study's first non-reference run.
            scope: What counts as FLOPs.
        """
        self.experiment = experiment
        self._store = store
        self._read = read or (lambda: store.frames(experiment))
        self._baseline = baseline
        self._scope = scope

    @cached_property
    def frames(self) -> Frames:
        """The results as jestlab's own figures and tables take them."""
        return self._read()

    @property
    def question(self) -> str:
        """What the study asks; empty if it does not say."""
        return self.frames.question

    @property
    def labels(self) -> list[str]:
        """Labels (runs, with their values on the axes) in the order of the study."""
        return list(self.frames.labels)

    @property
    def references(self) -> list[str]:
        """Labels that other runs depend on, and that do not compete; not the baseline."""
        return self.frames.apart_from(self.baseline)

    @cached_property
    def baseline(self) -> str:
        """Label that others are compared with."""
        return self.frames.baseline(self._baseline)

    @property
    def runs(self) -> pd.DataFrame:
        """One row a run: run, label, seed, fingerprint, state, reason, step, total_steps, needed."""
        return self.frames.runs.drop(columns=["run_id", "position"], errors="ignore").copy()

    @property
    def evaluations(self) -> pd.DataFrame:
        """One row a run and step where it was evaluated.

        Columns: label, seed, fingerprint, step, examples_seen, flops (as `--scope` counts), seconds,
        chip_hours, final (bool: the last step of a completed run), score, and one for each evaluation
        (`dataset/metric`). What is not known is NaN.
        """
        return score_curves(self.frames, self._scope)

    @property
    def final(self) -> pd.DataFrame:
        """The rows of `evaluations` that are the end of a completed run.

        Raises:
            NotYet: No run has completed.
        """
        ends = self.evaluations
        ends = ends[ends["final"]].reset_index(drop=True)
        if ends.empty:
            raise NotYet(f"no run of {self.experiment!r} has completed: {self.frames.progress()}")
        return ends

    def metrics(self, *names: str) -> pd.DataFrame:
        """Return training metrics over steps, one row a run, metric and step: label, seed, name, step, value.

        Args:
            names: Such as "loss".
        """
        logged = self._store.metrics(self.experiment, names)
        if logged.empty:
            raise NotYet(f"experiment {self.experiment!r} has logged none of {some(names)}")
        return logged.copy()

    def config(self, key: str) -> pd.Series[Any]:
        """Return the value of a config key, such as "optimizer.learning_rate", by label.

        Labels on whose runs it has no effect have None.
        """
        import pandas as pd

        configs = Configs(self.frames)
        values = [configs.get(label, key) for label in self.labels]
        return pd.Series(values, index=pd.Index(self.labels, name="label"), name=key, dtype=object)

    def metric(self, name: str) -> Metric:
        """Return what an evaluation or training metric means: goal, unit, digits, and `text(value)`."""
        return self.frames.declared.of(name)

    @property
    def score(self) -> Metric:
        """What the score means, as `metric`."""
        return self.frames.score

    @cached_property
    def claims(self) -> pd.DataFrame:
        """One row a claim of the study: statement, source, verdict, difference, low, high, seeds."""
        import pandas as pd

        judged = read_verdicts(self._store, [self.experiment])
        said = {name: [getattr(each.claim, name) for each in judged] for name in ("statement", "source")}
        found = ("verdict", "difference", "low", "high", "seeds")
        return pd.DataFrame(said | {name: [getattr(each, name) for each in judged] for name in found})

    def shown(self, label: str) -> str:
        """Return what a label is called in figures and tables."""
        return self.frames.shown[label]

    def colour(self, label: str) -> str:
        """Return the colour of a label, the same in all figures; black for the baseline."""
        return self.look(label).color

    def look(self, label: str) -> Look:
        """Return how a label is drawn: colour, marker and line, as Matplotlib takes them."""
        from .figures.style import OTHERS

        return self._looks.get(label, OTHERS)

    @cached_property
    def _looks(self) -> dict[str, Look]:
        from .figures.plot import looks_of

        chosen, apart = looks_of(self.frames, self.baseline), set(self.references)
        return {label: look for label, look in chosen.items() if label not in apart}


def _in_words(error: BaseException) -> str:
    """Write an exception in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")
