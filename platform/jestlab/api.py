"""The Python API for notebooks and scripts.

    from jestlab import api

    study = api.load("spirals.yaml", overrides={"seeds": 3})
    study.plan()                                    # the runs to launch, and their cost
    study.launch()                                  # complete all runs, and write the reports

    results = study.results()
    results.table(baseline="narrow")                # means over seeds, differences, speed-ups
    figure = results.figure("pareto")               # a Matplotlib figure
    results.frame("evaluations", where="seed < 3")  # a pandas data frame

    api.open_lab("lab").experiments                 # all experiments of a lab

Plans, tables, and figures are displayed in notebooks; in scripts, `print` writes them as text. All errors are
`api.Error`, with the message that the command would print. Arguments have the names of the command's options:
`jestlab launch --parallel 2` is `study.launch(parallel=2)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.platform.errors import UserError as Error
from jestlab.platform.errors import nearest, one_line_errors
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.options import LaunchOptions
from jestlab.platform.results import ExperimentResults, LaunchPlan, Outcome, Page, documented
from jestlab.platform.spec.fields import validated

if TYPE_CHECKING:
    import pandas as pd

    from jestlab.platform.spec.schema import StudySpec

__all__ = [
    "Error",
    "ExperimentResults",
    "LaunchPlan",
    "LoadedStudy",
    "OpenLab",
    "Outcome",
    "Page",
    "__version__",
    "load",
    "open_lab",
]

__version__ = version("jestlab")


def load(
    spec: str | Path | Mapping[str, Any],
    *,
    scale: str | None = None,
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
    root: str | Path | None = None,
    store: str | None = None,
) -> LoadedStudy:
    """Load a study and validate it.

        api.load("quickstart", overrides={"seeds": 1})
        api.load("spirals.yaml", overrides=["seeds=1", "runs.wide.width=[16, 64]"], root="/data/lab")
        api.load({"name": "spirals", "program": "command", "base": {...}, "runs": {...}})

    Args:
        spec: A registered study, the path of a .yaml or .py file, or a dict or `ConfigDict` with a `name`.
            Paths in a file are relative to its folder, others to the working directory.
        scale: One of the study's scales; default: the first.
        overrides: Path in the spec → value; or a list of texts such as "seeds=1", as for `--set`.
        root: Folder of the lab, or gs://BUCKET/FOLDER; default: JESTLAB_ROOT, else ./lab.
        store: URL of the results store; default: JESTLAB_STORE, else results.db in the lab.

    Raises:
        Error: The study is unknown, or its spec isn't valid.
    """
    from jestlab.platform.spec.load import load as load_spec

    with one_line_errors():
        lab = Lab.find(root, store)
        given = str(spec) if isinstance(spec, Path) else spec
        changes = [overrides] if isinstance(overrides, str) else overrides or ()
        return LoadedStudy(load_spec(given, scale, changes), lab)


def open_lab(place: str | Path | None = None, *, store: str | None = None) -> OpenLab:
    """Open a lab to read its results.

        api.open_lab("lab")
        api.open_lab("postgresql://reader@db.example/results")

    Args:
        place: Folder of the lab, gs://BUCKET/FOLDER, URL of its store, or a SQLite file; default:
            JESTLAB_ROOT, else ./lab.
        store: URL of the store, if it isn't in the lab.

    Raises:
        Error: The store is missing, or can't be read.
    """
    root: str | Path | None = place
    if place is not None and str(place).startswith(("postgres", "sqlite:")) and "://" in str(place):
        root, store = None, str(place)
    elif place is not None and "://" not in str(place) and (file := Path(place).expanduser()).is_file():
        root, store = file.parent, f"sqlite:///{file.absolute()}"
    with one_line_errors():
        lab = OpenLab(Lab.find(root, store))
        lab.experiments  # noqa: B018 — fails here instead of at the first use
    return lab


class LoadedStudy:
    """A validated study.

    Attributes:
        name: Name of the study, and of its experiment in the store.
        question: Question of the study.
        scale: The scale that was loaded; None if the study has none.
    """

    def __init__(self, spec: StudySpec, lab: Lab) -> None:
        """Use `load`."""
        self._spec, self._lab = spec, lab
        self.name: str = spec.name
        self.question: str = spec.question
        self.scale: str | None = spec.scale

    @property
    def lab(self) -> OpenLab:
        """The lab that the study is launched in."""
        return OpenLab(self._lab)

    def plan(self, *, why: bool = False) -> LaunchPlan:
        """Plan a launch: runs to launch, completed runs, and costs. Writes nothing.

            study.plan()
            study.plan(why=True).frame().query("action == 'run'")

        Args:
            why: Explain for each run why it would run.

        Raises:
            Error: Data is missing, or doesn't match the configs.
        """
        from jestlab.platform.planning.survey import survey

        with one_line_errors():
            return LaunchPlan(survey(self._lab, self._spec, why=why))

    @documented(LaunchOptions)
    def launch(self, *, progress: bool = True, decide: bool = False, **options: Any) -> Outcome:
        """Launch all runs that haven't completed, write the reports, and return when all runs have ended.

        Completed runs are skipped, and interrupted runs resume from their last checkpoint. Runs that are
        still running, for example after the notebook's kernel died, are followed until they end.

            study.launch(parallel=4).check()
            study.launch(on="kubernetes", max_chip_hours=500)

        Args:
            progress: Show progress.
            decide: Add seeds in rounds until each claim is decided, can't be decided, or is over budget.
            {options}

        Returns:
            How the launch ended. A failed run raises no error: see `Outcome.check`.

        Raises:
            Error: The launch is invalid, or a report can't be written.
            KeyboardInterrupt: Ctrl-C, or the notebook's kernel was interrupted. All runs stop at a
                checkpoint, from which the next launch resumes. A second interrupt stops them at once.
        """
        from jestlab.platform.launch import session
        from jestlab.platform.launch.display import Listener, display

        with one_line_errors():
            listener = display(self.name) if progress else Listener()
            study = self._spec.until_decided() if decide else self._spec
            launched = session.launch(self._lab, study, validated(LaunchOptions, options), listener)
        if launched.outcome.interrupted:
            raise KeyboardInterrupt(
                f"the launch of {self.name} was interrupted: launch again to resume its runs"
            )
        return Outcome.of(launched, listener.notes)

    def results(self) -> ExperimentResults:
        """Return the results of the study so far, also during a launch."""
        return ExperimentResults(self._lab, self.name)

    def to_yaml(self) -> str:
        """Write the resolved study as YAML."""
        return self._spec.to_yaml()

    def __repr__(self) -> str:
        return f"LoadedStudy({self.name!r}{f', scale={self.scale!r}' if self.scale else ''}): {self.question}"


class OpenLab:
    """A lab, to read the results of all experiments in its store."""

    def __init__(self, lab: Lab) -> None:
        """Use `open_lab`."""
        self._lab = lab

    @property
    def experiments(self) -> list[str]:
        """Names of the experiments in the store, in alphabetical order."""
        from jestlab.analysis.results import experiments

        with one_line_errors():
            return experiments(self._lab.store_url)

    def results(self, experiment: str) -> ExperimentResults:
        """Return the results of an experiment.

        Raises:
            Error: The experiment is unknown.
        """
        if experiment not in (known := self.experiments):
            raise Error(f"no experiment {experiment!r} in the results store: {nearest(experiment, known)}")
        return ExperimentResults(self._lab, experiment)

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
        """Read rows of all experiments, or of one, as `ExperimentResults.frame` does.

            lab.frame("runs", where="state = 'FAILED'", columns=["experiment", "label", "seed", "reason"])

        With `experiment`, only the rows of this experiment are read.
        """
        from jestlab.analysis import query

        rows: dict[str, Any] = {"where": where, "columns": columns, "order_by": order_by, "limit": limit}
        with one_line_errors():
            return query.frame(self._lab.store_url, view=view, experiment=experiment, **rows)

    def query(self, sql: str) -> pd.DataFrame:
        """Run one SELECT statement on the store, and return the rows.

            lab.query("SELECT label, AVG(value) FROM v_evaluations WHERE final = 1 GROUP BY label")

        Raises:
            Error: The SQL is invalid, or isn't read-only.
        """
        from jestlab.analysis import query

        with one_line_errors():
            return query.frame(self._lab.store_url, sql=sql)

    def __repr__(self) -> str:
        from jestlab.analysis.connection import shown

        return f"OpenLab({shown(self._lab.store_url)!r})"
