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

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.analysis.costs import SCOPES
from jestlab.platform.errors import UserError as Error
from jestlab.platform.errors import nearest
from jestlab.platform.lab.lab import Lab as _Lab
from jestlab.platform.shown import Outcome, Page, Plan

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from jestlab.analysis.costs import Scope
    from jestlab.analysis.curves import Crossing
    from jestlab.analysis.efforts import Effort
    from jestlab.analysis.tables import Mean, Table
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

    with _told():
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
    with _told():
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

        with _told():
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
            on: Where to run: "local", "kubernetes", "vertex", or an executor of your own; None: as the study
                says, else your settings, else this machine.
            fail_fast: Whether all runs stop once one has failed for good.
            keep_going: Whether it goes on when the first three runs that end have failed alike.
            max_chip_hours: Nothing is launched if the estimate exceeds these or is unknown.
            rerun_changed: Whether to run again what was made by other code or data than is there now.
            rerun_retracted: Whether to run again what is retracted.
            runs: Which of those runs; none for all.
            replace: Whether to replace the experiment of this name: another study, or another user's.
            reports: Whether to write tables and figures.

        Returns:
            How it ended. Runs that fail raise nothing: see `Outcome.check`.

        Raises:
            Error: The launch is refused, or a report cannot be written.
            KeyboardInterrupt: At Ctrl-C, or when a notebook's kernel is interrupted: after all runs have
                stopped at a checkpoint, from which the next launch goes on. A second one ends them at once.
        """
        from jestlab.platform.launch import session
        from jestlab.platform.launch.display import Listener, Noting, display_here

        with _told():
            listener = Noting(display_here(self.name) if progress else Listener())
            launched = session.launch(
                self._lab, self._spec, session.How(on, parallel, retries, fail_fast, keep_going), listener,
                session.Rerun(rerun_changed, rerun_retracted, tuple(runs)),
                max_chip_hours=max_chip_hours, replacing=replace, reported=reports,
            )  # fmt: skip
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


class Results:
    """What the runs of one experiment have measured: as tables, figures and frames, read from the store anew
    with each call."""

    def __init__(self, lab: _Lab, experiment: str) -> None:
        """Use `Study.results` or `Lab.results`."""
        self._lab = lab
        self.experiment = experiment

    def table(
        self,
        name: str | None = None,
        *,
        baseline: str | None = None,
        scope: Scope = "scoring",
        score: str | Sequence[str] | None = None,
        mean: Mean = "all",
        crossing: Crossing = "first",
        published: bool = True,
        **options: Any,
    ) -> Table:
        """Build a table: what `jestlab table` prints.

            results.table(baseline="uniform")
            results.table("claims")
            print(results.table("summary").latex())

        Args:
            name: "summary", "speedups", "claims", or one of the paper's, such as "comparison"; None for what
                says most: the summary, of a union of studies its claims.
            baseline: Run or label that others are compared with; None for the first that is no reference.
            scope: Which FLOPs count: "learner", "scoring", "reference_scoring" or "reference_training".
            score: Evaluation that is the score, of several their mean; None for the study's.
            mean: Whether scores are averaged over "all" metrics, or over those that all runs have: "shared".
            crossing: Whether a score counts as reached at its "first" crossing, or at its "lasting" one, after
                which it stays above.
            published: Whether the paper's tables also show published rows.
            options: The further options of `jestlab table`, by their names.

        Returns:
            The table: it shows itself in notebooks, and prints as Markdown. `frame` holds the raw numbers;
            `latex()`, `markdown()`, `csv()`, `html()` and `json()` write it.

        Raises:
            Error: There is no such table or run, or nothing to show in it yet.
        """
        from jestlab.analysis import curves, tables

        _check_one_of("scope", scope, SCOPES)
        _check_one_of("mean", mean, tables.MEANS)
        _check_one_of("crossing", crossing, curves.CROSSINGS)
        known = [name for name in inspect.signature(tables.table).parameters if name not in _INNER]
        _refuse_unknown("table", options, known)
        with _told():
            return tables.table(
                self._lab.store_url,
                name or tables.default_name(self._lab.store_url, self.experiment),
                [self.experiment],
                baseline=baseline, scope=scope, score=_several(score), mean=mean, crossing=crossing,
                with_published=published, **options,
            )  # fmt: skip

    def figure(
        self,
        kind: str,
        *,
        baseline: str | None = None,
        scope: Scope = "scoring",
        score: str | Sequence[str] | None = None,
        over: Effort | None = None,
        x: str | None = None,
        by: str | Sequence[str] | None = None,
        split: str | None = None,
        **options: Any,
    ) -> Figure:
        """Draw a figure: what `jestlab plot` saves.

            figure = results.figure("pareto", baseline="uniform", over="seconds")
            figure.axes[0].set_title("")
            figure.savefig("pareto.pdf")

        Args:
            kind: "curves", "pareto", "speedup", "against" (with `x`), …: see `jestlab plot --help`.
            baseline: Run or label that others are compared with; None for the first that is no reference.
            scope: Which FLOPs count, as for tables.
            score: Evaluation that is the score, of several their mean; None for the study's.
            over: What curves are drawn over, and what a Pareto plot takes as cost: "examples_seen", "flops",
                "seconds" or "chip_hours".
            x: Config key that scores are drawn against, or that spikes are compared by.
            by: Config keys whose values make a line; None for "selection.rule".
            split: Config key whose values make a panel.
            options: The further options of `jestlab plot`, by their names.

        Returns:
            A figure of Matplotlib that shows itself in notebooks. pyplot does not know it, so that nobody has
            to close it.

        Raises:
            Error: There is no such kind or run, or the experiment lacks what the figure shows.
        """
        from jestlab.analysis import efforts, figures

        _check_one_of("scope", scope, SCOPES)
        _check_one_of("over", over, efforts.EFFORTS)
        known = [field.name for field in fields(figures.Request) if field.name not in _INNER]
        _refuse_unknown("figure", options, known)
        if by is not None:
            options["by"] = _several(by)
        with _told():
            request = figures.Request(
                self._lab.store_url, self.experiment, baseline=baseline, scope=scope, score=_several(score),
                effort=over, cost=over, x=x, split=split, **options,
            )  # fmt: skip
            return figures.draw(kind, request).figure()

    def frame(
        self,
        view: str = "runs",
        where: str | None = None,
        *,
        columns: str | Sequence[str] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> pd.DataFrame:
        """Read rows of the experiment: what `jestlab query --view` prints, as a frame of pandas.

            results.frame("evaluations", where="seed < 3 and selection.rule = 'joint'")
            results.frame(columns="label, seed, state, selection.*", order_by="-seed")

        Args:
            view: "runs", "metrics", "evaluations", "costs", …: `jestlab query` lists them with their columns.
            where: A condition on columns of the view and on config keys, as SQL writes them.
            columns: Columns and config keys to show, as a list or with commas; "config.*" for all keys; None
                for the view's own.
            order_by: Columns and config keys to sort by; "-value" in descending order.
            limit: Maximum number of rows.

        Raises:
            Error: There is no such view, column or experiment, or the condition is wrong.
        """
        return Lab(self._lab).frame(
            view, where, experiment=self.experiment, columns=columns, order_by=order_by, limit=limit
        )

    def claims(self) -> Table:
        """Return the study's claims with their verdicts: `table("claims")`."""
        return self.table("claims")

    def report(self, *, baseline: str | None = None, scope: Scope | None = None) -> Page:
        """Write the page of the experiment, `report.html` in the lab: what `jestlab report` does.

        Args:
            baseline: Run or label that others are compared with; None: as the study's reports say.
            scope: Which FLOPs count; None: as the study's reports say.

        Returns:
            Its path, which a notebook shows as a link. Without arguments the page is left as it is where it
            is up to date.

        Raises:
            Error: There is nothing to show yet, or it cannot be written.
        """
        from jestlab.platform import reports

        _check_one_of("scope", scope, SCOPES)
        folder = self._lab.reports / self.experiment
        with _told():
            if baseline is None and scope is None:
                return Page(reports.bring_page_up_to_date(self._lab, self.experiment)[0])
            return Page(reports.write_page(self._lab, self.experiment, folder, baseline, scope)[0])

    def __repr__(self) -> str:
        return f"Results({self.experiment!r}): .table(), .figure(kind), .frame(view), .claims(), .report()"


class Lab:
    """A lab: the experiments in one results store."""

    def __init__(self, lab: _Lab) -> None:
        """Use `open_lab`."""
        self._lab = lab

    @property
    def experiments(self) -> list[str]:
        """The names of its experiments, in alphabetical order."""
        from jestlab.analysis.frames import experiments

        with _told():
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
        from jestlab.analysis import query

        with _told():
            return query.frame(
                self._lab.store_url, view=view, where=where, columns=_names(columns),
                order_by=_names(order_by) or (), limit=limit, experiment=experiment,
            )  # fmt: skip

    def query(self, sql: str) -> pd.DataFrame:
        """Ask one SELECT of the store, which can only be read so.

            lab.query("SELECT label, AVG(value) FROM v_evaluations WHERE final = 1 GROUP BY label")

        Raises:
            Error: The SQL is wrong, or would write.
        """
        from jestlab.analysis import query

        with _told():
            return query.frame(self._lab.store_url, sql=sql)

    def __repr__(self) -> str:
        from jestlab.analysis.connection import shown

        return f"Lab({shown(self._lab.store_url)!r})"


_INNER = ("url", "name", "studies", "experiment", "results", "with_published", "effort", "cost")
"""Parameters of what makes tables and figures that are no options here, or have another name."""


def _several(score: str | Sequence[str] | None) -> tuple[str, ...] | None:
    return None if score is None else (score,) if isinstance(score, str) else tuple(score)


def _names(given: str | Sequence[str] | None) -> Sequence[str] | None:
    """Split names that are separated by commas."""
    if not isinstance(given, str):
        return given
    return [name for part in given.split(",") if (name := part.strip())]


def _refuse_unknown(what: str, options: Mapping[str, Any], known: Sequence[str] | Mapping[str, Any]) -> None:
    """Raise Error for an option that there is not, with the most similar one."""
    for name in options:
        if name not in known:
            raise Error(f"unknown option {name!r} of a {what}: {nearest(name, known)}")


def _check_one_of(what: str, value: str | None, known: Sequence[str]) -> None:
    """Raise Error for a value that an argument cannot have; None is one that it may have."""
    if value is not None and value not in known:
        raise Error(f"{what} must be one of {', '.join(known)}, got {value!r}")


@contextmanager
def _told() -> Iterator[None]:
    """Context in which what the command line prints in one line is an `Error`."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise Error(" ".join(str(error).split())) from error
