"""jestlab from Python, for notebooks and scripts: what the commands do, returned as objects.

    from jestlab import api

    study = api.load("spirals.yaml", overrides={"seeds": 3})
    study.plan()                                    # what a launch would run, and what it costs
    study.launch()                                  # runs what is not done yet, and writes the reports

    results = study.results()
    results.table(baseline="narrow")                # means over seeds, differences, speed-ups
    figure = results.figure("pareto")               # a figure of Matplotlib, whose axes can be restyled
    results.frame("evaluations", where="seed < 3")  # a frame of pandas

    api.open_lab("lab").experiments                 # what is in a lab, whoever launched it

Plans, tables and figures show themselves in notebooks, and print as text elsewhere. What is wrong is an
`api.Error`, whose message is the line that the command would print. Words are those of the commands: what
`jestlab launch --parallel 2` is there is `study.launch(parallel=2)` here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.platform.errors import UserError as Error
from jestlab.platform.errors import nearest, one_line_errors
from jestlab.platform.lab.lab import Lab as _Lab
from jestlab.platform.outcome import Outcome, Page, Plan
from jestlab.platform.results import Results, rows

if TYPE_CHECKING:
    import pandas as pd

    from jestlab.platform.spec.schema import Study as _Spec

__all__ = ["Error", "Lab", "Outcome", "Page", "Plan", "Results", "Study", "__version__", "load", "open_lab"]

__version__ = version("jestlab")


def load(
    spec: str | Path | Mapping[str, Any],
    *,
    scale: str | None = None,
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
    root: str | Path | None = None,
    store: str | None = None,
) -> Study:
    """Load a study, and check all of it.

        api.load("quickstart", overrides={"seeds": 1})
        api.load("spirals.yaml", overrides=["seeds=1", "runs.wide.width=[16, 64]"], root="/data/lab")
        api.load({"name": "spirals", "program": "command", "base": {...}, "runs": {...}})

    Args:
        spec: A registered study, the path of a .yaml or .py file, or what such a file would hold: a dict, or
            a `ConfigDict`, with a `name`. Relative paths count from the file's folder, else from the working
            directory.
        scale: One of the study's scales; None for its first.
        overrides: Path in the spec → value; or texts `path=value`, as after `--set`.
        root: Folder of the lab, or gs://BUCKET/FOLDER; None for JESTLAB_ROOT, else ./lab.
        store: URL of the results store; None for JESTLAB_STORE, else results.db in the lab.

    Raises:
        Error: There is no such study, or something is wrong with it; file, place and remedy are named.
    """
    from jestlab.platform.spec.load import load as load_spec

    with one_line_errors():
        lab = _Lab.find(root, store)
        given = str(spec) if isinstance(spec, Path) else spec
        changes = [overrides] if isinstance(overrides, str) else overrides or ()
        return Study(load_spec(given, scale, changes), lab)


def open_lab(place: str | Path | None = None, *, store: str | None = None) -> Lab:
    """Open a lab to read its results, on any machine that reaches its store.

        api.open_lab("lab")
        api.open_lab("postgresql://reader@db.example/results")

    Args:
        place: Folder of the lab, gs://BUCKET/FOLDER, URL of its store, or a SQLite file; None for
            JESTLAB_ROOT, else ./lab.
        store: URL of the store, if the place does not say it.

    Raises:
        Error: There is no store, or it cannot be read.
    """
    root: str | Path | None = place
    if place is not None and str(place).startswith(("postgres", "sqlite:")) and "://" in str(place):
        root, store = None, str(place)
    elif place is not None and "://" not in str(place) and (file := Path(place).expanduser()).is_file():
        root, store = file.parent, f"sqlite:///{file.absolute()}"
    with one_line_errors():
        lab = Lab(_Lab.find(root, store))
        lab.experiments  # noqa: B018 — fails now, and not where results are asked for
    return lab


class Study:
    """A study that is loaded and checked: what to compare, and how.

    Attributes:
        name: Its name, by which its results go.
        question: What it asks.
        scale: Which of its scales it is; None if it has none.
    """

    def __init__(self, spec: _Spec, lab: _Lab) -> None:
        """Use `load`."""
        self._spec, self._lab = spec, lab
        self.name: str = spec.name
        self.question: str = spec.question
        self.scale: str | None = spec.scale

    @property
    def lab(self) -> Lab:
        """The lab that it is launched in."""
        return Lab(self._lab)

    def plan(self, *, why: bool = False) -> Plan:
        """Look up what a launch would run, what is done, and what it costs. Writes nothing.

            study.plan()
            study.plan(why=True).frame().query("action == 'run'")

        Args:
            why: Whether to explain for each run why it would run.

        Raises:
            Error: It cannot be planned: data are missing, or do not fit.
        """
        from jestlab.platform.planning.survey import survey

        with one_line_errors():
            return Plan(survey(self._lab, self._spec, why=why))

    def launch(
        self,
        *,
        progress: bool = True,
        parallel: int | None = None,
        retries: int | None = None,
        on: str | None = None,
        fail_fast: bool = False,
        keep_going: bool = False,
        max_chip_hours: float | None = None,
        rerun_changed: bool = False,
        rerun_retracted: bool = False,
        runs: Sequence[str] = (),
        replace: bool = False,
        reports: bool = True,
        decide: bool = False,
    ) -> Outcome:
        """Run all that is not completed, write tables and figures, and return when all runs have ended.

        Completed runs are skipped, interrupted ones resume from their last checkpoint, and runs that are
        still running are found again, also those of a kernel that has died.

            study.launch(parallel=4).check()
            study.launch(on="kubernetes", max_chip_hours=500)

        Args:
            progress: Whether to show what happens.
            parallel: Number of concurrent runs; None for the study's.
            retries: Number of further attempts at a run that fails; None for the study's.
            on: Where to run: "local", "kubernetes", "vertex", "slurm", or an executor of your own; None: as
                the study says, else your settings, else this machine.
            fail_fast: Whether all runs stop once one has failed for good.
            keep_going: Whether it goes on when the first three runs that end have failed alike.
            max_chip_hours: Nothing is launched if the estimate exceeds these or is unknown.
            rerun_changed: Whether to run again what was made by other code or data than is there now.
            rerun_retracted: Whether to run again what is retracted.
            runs: Which of those runs; none for all.
            replace: Whether to replace the experiment of this name: another study, or another user's.
            reports: Whether to write tables and figures.
            decide: Whether to add seeds, round by round, until each claim is decided, hopeless or beyond its
                budget.

        Returns:
            How it ended. Runs that fail raise nothing: see `Outcome.check`.

        Raises:
            Error: The launch is refused, or a report cannot be written.
            KeyboardInterrupt: At Ctrl-C, or when a notebook's kernel is interrupted: after all runs have
                stopped at a checkpoint, from which the next launch goes on. A second one ends them at once.
        """
        from jestlab.platform.launch import session
        from jestlab.platform.launch.display import Listener, display_here
        from jestlab.platform.launch.options import LaunchOptions

        with one_line_errors():
            listener = display_here(self.name) if progress else Listener()
            study = self._spec.decided() if decide else self._spec
            options = LaunchOptions(
                on, parallel, retries, fail_fast, keep_going, max_chip_hours,
                rerun_changed, rerun_retracted, tuple(runs), replace, reports,
            )  # fmt: skip
            launched = session.launch(self._lab, study, options, listener)
        if launched.outcome.interrupted:
            raise KeyboardInterrupt(f"the launch of {self.name} was stopped: the next one resumes its runs")
        return Outcome.of(launched, listener.notes)

    def results(self) -> Results:
        """Return what its runs have measured, as far as they are: also while a launch goes on elsewhere."""
        return Results(self._lab, self.name)

    def to_yaml(self) -> str:
        """Write the resolved study as YAML, which launches the same runs."""
        return self._spec.to_yaml()

    def __repr__(self) -> str:
        return f"Study({self.name!r}{f', scale={self.scale!r}' if self.scale else ''}): {self.question}"


class Lab:
    """A lab: the experiments in one results store."""

    def __init__(self, lab: _Lab) -> None:
        """Use `open_lab`."""
        self._lab = lab

    @property
    def experiments(self) -> list[str]:
        """The names of its experiments, in alphabetical order."""
        from jestlab.analysis.frames import experiments

        with one_line_errors():
            return experiments(self._lab.store_url)

    def results(self, experiment: str) -> Results:
        """Return what the runs of an experiment have measured.

        Raises:
            Error: There is no such experiment; the most similar name is given.
        """
        if experiment not in (known := self.experiments):
            raise Error(f"no experiment {experiment!r} in the results store: {nearest(experiment, known)}")
        return Results(self._lab, experiment)

    def frame(
        self,
        view: str = "runs",
        where: str | None = None,
        *,
        experiment: str | None = None,
        columns: str | Sequence[str] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> pd.DataFrame:
        """Read rows of all experiments, or of one: see `Results.frame`.

        lab.frame("runs", where="state = 'FAILED'", columns=["experiment", "label", "seed", "reason"])
        """
        return rows(self._lab, view, where, experiment, columns, order_by, limit)

    def query(self, sql: str) -> pd.DataFrame:
        """Ask one SELECT of the store, which can only be read so.

            lab.query("SELECT label, AVG(value) FROM v_evaluations WHERE final = 1 GROUP BY label")

        Raises:
            Error: The SQL is wrong, or would write.
        """
        from jestlab.analysis import query

        with one_line_errors():
            return query.frame(self._lab.store_url, sql=sql)

    def __repr__(self) -> str:
        from jestlab.analysis.connection import shown

        return f"Lab({shown(self._lab.store_url)!r})"
