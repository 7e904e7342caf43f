"""Custom figures and tables: functions that a spec or a command names, called with a study's results.

A function receives `Results` and its options. The caller passes a `Loader`, which finds the code and decides
whether it may be executed.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from .configs import Configs
from .costs import Scope
from .curves import score_curves
from .errors import NotYet as NotYet
from .errors import RequestError
from .frames import Frames
from .metrics import Metric
from .results import Snapshot
from .units import some

if TYPE_CHECKING:
    import pandas as pd

    from .figures.style import Look

Kind = Literal["figure", "table"]


class CodeFailed(RequestError):
    """Custom code raised an exception, or returned something unexpected. The message is one line."""


@dataclass(frozen=True)
class CustomCode:
    """A custom function that makes a figure or a table.

    Attributes:
        name: `path/to/file.py:function`, `package.module:function`, or an entry point.
        function: `f(results, **options)`.
        digest: Digest of the code; empty if unknown.
    """

    name: str
    function: Callable[..., Any]
    digest: str = ""

    def __call__(self, results: Results, options: Mapping[str, Any]) -> Any:
        """Call the function.

        Raises:
            NotYet: Results are missing.
            CodeFailed: The function raised another exception. The message names file and line.
        """
        try:
            return self.function(results, **options)
        except NotYet:
            raise
        except (Exception, SystemExit) as error:
            raise CodeFailed(f"{self._place(error)}: {one_line(error)}") from error

    def unexpected(self, returned: object, expected: str) -> CodeFailed:
        """Return the error for a return value of an unexpected type."""
        return CodeFailed(f"{self.name} returned {type(returned).__name__}: expected {expected}")

    def _place(self, error: BaseException) -> str:
        """Return file and line of the last call in the function's file, or the function's name."""
        code = getattr(self.function, "__code__", None)
        calls = traceback.extract_tb(error.__traceback__)[1:]  # without `__call__`
        in_file = [call for call in calls if code is not None and call.filename == code.co_filename]
        return f"{in_file[-1].filename}:{in_file[-1].lineno}" if in_file else self.name


Loader = Callable[[str, Kind, str], CustomCode]
"""Imports custom code: called with the experiment that uses the code, its kind, and its name.

A loader raises ValueError, with a message of one line, if the code may not be executed or can't be imported.
"""


def load(loader: Loader | None, experiment: str, kind: Kind, name: str) -> CustomCode:
    """Import custom code with a loader.

    Raises:
        ValueError: There is no loader, or the loader rejected the code.
    """
    if loader is None:
        verb = {"figure": "plot", "table": "table"}[kind]
        raise RequestError(f"{name} is custom code, which is not executed from here: use jestlab {verb}")
    return loader(experiment, kind, name)


def stem_of(name: str) -> str:
    """Return the name of the function or entry point, for file names and headings."""
    return re.sub(r"[^\w.+-]", "_", name.rpartition(":")[2])


@dataclass(frozen=True)
class Results:
    """The results of one experiment for a custom figure or table.

    Frames are copies, so changing one affects nothing else. Missing results raise `NotYet`, which is reported
    as "not yet" instead of a failure. Functions need not catch this exception.
    """

    _store: Snapshot
    experiment: str
    _read: Callable[[], Frames]  # results are read when needed
    _baseline: str | None
    _scope: Scope

    @cached_property
    def frames(self) -> Frames:
        """The results as built-in figures and tables use them."""
        return self._read()

    @property
    def labels(self) -> list[str]:
        """Labels (runs, with their values on the axes) in the order of the study."""
        return list(self.frames.labels)

    @property
    def references(self) -> list[str]:
        """Labels that other runs depend on, except the baseline. They do not compete."""
        return self.frames.apart_from(self.baseline)

    @property
    def baseline(self) -> str:
        """Label that other labels are compared with."""
        return self.frames.baseline(self._baseline)

    @property
    def runs(self) -> pd.DataFrame:
        """One row per run: run, label, seed, fingerprint, state, reason, step, total_steps, needed."""
        return self.frames.runs.drop(columns=["run_id", "position"], errors="ignore").copy()

    @property
    def evaluations(self) -> pd.DataFrame:
        """One row per run and evaluated step.

        Columns: label, seed, fingerprint, step, examples_seen, flops (by `--scope`), seconds, chip_hours,
        final (bool: the last step of a completed run), score, and one for each evaluation (`dataset/metric`).
        Unknown values are NaN.
        """
        return score_curves(self.frames, self._scope)

    @property
    def final(self) -> pd.DataFrame:
        """The rows of `evaluations` at the end of completed runs.

        Raises:
            NotYet: No run has completed.
        """
        rows = self.evaluations
        rows = rows[rows["final"]].reset_index(drop=True)
        if rows.empty:
            raise NotYet(f"no run of {self.experiment!r} has completed: {self.frames.progress()}")
        return rows

    def metrics(self, *names: str) -> pd.DataFrame:
        """Return training metrics, such as "loss", over steps: label, seed, name, step, value."""
        logged = self._store.metrics(self.experiment, names)
        if logged.empty:
            raise NotYet(f"experiment {self.experiment!r} has logged none of {some(names)}")
        return logged.copy()

    def config(self, key: str) -> pd.Series[Any]:
        """Return the value of a config key, such as "optimizer.learning_rate", by label.

        A label on which the key has no effect has None.
        """
        import pandas as pd

        configs = Configs(self.frames)
        values = [configs.get(label, key) for label in self.labels]
        return pd.Series(values, index=pd.Index(self.labels, name="label"), name=key, dtype=object)

    def metric(self, name: str) -> Metric:
        """Return the meaning of an evaluation or training metric: goal, unit, digits, and `text(value)`."""
        return self.frames.declared.of(name)

    @property
    def score(self) -> Metric:
        """The meaning of the score, as from `metric`."""
        return self.frames.score

    def shown(self, label: str) -> str:
        """Return the display name of a label."""
        return self.frames.shown[label]

    def look(self, label: str) -> Look:
        """Return color, marker, and line of a label in Matplotlib's notation, the same in all figures."""
        from .figures.plot import looks_of
        from .figures.style import OTHERS

        return looks_of(self.frames).get(label, OTHERS)


def one_line(error: BaseException) -> str:
    """Format an exception in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")
