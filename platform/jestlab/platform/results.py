"""Results of an experiment as tables, figures, and data frames: part of `jestlab.api`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from jestlab.analysis.costs import Scope
from jestlab.platform.errors import UserError, one_line_errors
from jestlab.platform.lab.lab import Lab
from jestlab.platform.outcome import Page
from jestlab.platform.spec.options import FIGURES, CustomFigureOptions, Options, TableOptions, flat_fields
from jestlab.platform.words import listed

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from jestlab.analysis.tables import Table

Method = TypeVar("Method", bound=Callable[..., Any])


def _documented(*models: type[Options]) -> Callable[[Method], Method]:
    """Add the options of models to a method's signature, and to its docstring for `{options}`."""

    def decorate(method: Method) -> Method:
        fields = {name: info for name, info in flat_fields(*models).items() if name != "name"}
        signature = inspect.signature(method)
        own = [
            each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        options = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None if info.is_required() else info.default,
                annotation=info.annotation,
            )
            for name, info in fields.items()
        ]
        method.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        lines = "\n".join(f"            {name}: {info.description}" for name, info in fields.items())
        method.__doc__ = (method.__doc__ or "").replace("            {options}", lines)
        return method

    return decorate


class ExperimentResults:
    """Results of one experiment. Each call reads the store again."""

    def __init__(self, lab: Lab, experiment: str) -> None:
        """Use `LoadedStudy.results` or `OpenLab.results`."""
        self._lab = lab
        self.experiment = experiment

    @_documented(TableOptions)
    def table(self, name: str | None = None, **options: Any) -> Table:
        """Make a table, as `jestlab table` prints it.

            results.table(baseline="uniform")
            results.table("claims")
            print(results.table(columns="score, delta", sort="-score", width="column").latex())

        Args:
            name: "summary", "speedups", "claims", one of the paper's, such as "comparison", a published
                table, or a custom table, "file.py:function"; default: the summary, or the claims of a union.
            {options}

        Returns:
            The table. Notebooks show it, and it prints as Markdown. `frame` has the raw numbers; `latex()`,
            `markdown()`, `csv()`, `html()`, and `json()` write it.

        Raises:
            Error: The table, an option, or a run is unknown, or the table has no results yet.
        """
        with one_line_errors():
            from jestlab.analysis import tables
            from jestlab.platform.reports.make import make_table

            name = name or tables.default_name(self._lab.store_url, self.experiment)
            return make_table(self._lab, [self.experiment], name, options)

    @_documented(*FIGURES.values(), CustomFigureOptions)
    def figure(self, kind: str, **options: Any) -> Figure:
        """Draw a figure, as `jestlab plot` saves it. Each kind accepts some of the options.

            figure = results.figure("pareto", over="seconds", width="3.25in", caption="none")
            figure.axes[0].set_xlabel("training time (s)")
            figure.savefig("pareto.pdf")

        Args:
            kind: "curves", "pareto", "speedup", "against" (with `x`), ...: see `jestlab plot --help`; or a
                custom figure, "file.py:function".
            {options}

        Returns:
            A Matplotlib figure, which notebooks show. It isn't registered with pyplot, so you don't need to
            close it.

        Raises:
            Error: The kind, an option, or a run is unknown, or the experiment lacks results for the figure.
        """
        with one_line_errors():
            from jestlab.platform.reports.make import make_plots

            if kind == "all":
                raise UserError(f"name one kind of figure: {', '.join(FIGURES)}")
            return make_plots(self._lab, self.experiment, kind, options)[0].figure()

    def frame(
        self,
        view: str = "runs",
        where: str | None = None,
        *,
        columns: str | Sequence[str] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> pd.DataFrame:
        """Read rows of the experiment, as `jestlab query --view` prints them, into a pandas data frame.

            results.frame("evaluations", where="seed < 3 and selection.rule = 'joint'")
            results.frame(columns="label, seed, state, selection.*", order_by="-seed")

        Args:
            view: "runs", "metrics", "evaluations", "costs", ...: `jestlab query` lists them with their
                columns.
            where: SQL condition on columns of the view and on config keys.
            columns: Columns and config keys to read, as a list or joined by commas; "config.*" for all keys;
                default: the columns of the view.
            order_by: Columns and config keys to sort by; "-value" in descending order.
            limit: Maximum number of rows.

        Raises:
            Error: The view or a column is unknown, or the condition is invalid.
        """
        return read_frame(self._lab, view, where, self.experiment, columns, order_by, limit)

    def claims(self) -> Table:
        """Return the study's claims with their verdicts, as `table("claims")`."""
        return self.table("claims")

    def report(self, *, baseline: str | None = None, scope: Scope | None = None) -> Page:
        """Write the page of the experiment, `report.html` in the lab, as `jestlab report` does.

        Args:
            baseline: Run or label to compare with; default: as the study's reports say.
            scope: FLOPs that count; default: as the study's reports say.

        Returns:
            The path of the page, which notebooks show as a link.

        Raises:
            Error: The experiment has no results yet, or the page can't be written.
        """
        from jestlab.platform import reports

        if scope is not None and scope not in get_args(Scope):
            raise UserError(f"scope must be one of {', '.join(get_args(Scope))}, not {scope!r}")
        with one_line_errors():
            return Page(reports.write_page(self._lab, self.experiment, None, baseline, scope)[0])

    def __repr__(self) -> str:
        return f"ExperimentResults({self.experiment!r})"


def read_frame(
    lab: Lab,
    view: str,
    where: str | None,
    experiment: str | None,
    columns: str | Sequence[str] | None,
    order_by: str | Sequence[str],
    limit: int | None,
) -> pd.DataFrame:
    """Read rows of an experiment, or of all, as `ExperimentResults.frame` does."""
    from jestlab.analysis import query

    names = listed(columns) if isinstance(columns, str) else columns
    order = listed(order_by) if isinstance(order_by, str) else order_by
    with one_line_errors():
        return query.frame(
            lab.store_url, view=view, where=where, columns=names, order_by=order, limit=limit,
            experiment=experiment,
        )  # fmt: skip
