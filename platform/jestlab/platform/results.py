"""Plans, outcomes, and results for scripts and notebooks: part of `jestlab.api`."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from jestlab.platform.errors import UserError, one_line_errors
from jestlab.platform.lab.lab import Lab
from jestlab.platform.spec.fields import validated
from jestlab.platform.spec.options import (
    FIGURES,
    CustomFigureOptions,
    Options,
    PageOptions,
    TableOptions,
    flat_fields,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from jestlab.analysis.tables import Table
    from jestlab.platform.launch.outcome import LaunchResult
    from jestlab.platform.planning.survey import PlanCost, Survey

Method = TypeVar("Method", bound=Callable[..., Any])

_COMPLETED = "COMPLETED"
_MOST_FAILURES = 10  # maximum number of runs that are listed as not completed


class LaunchPlan:
    """A plan: runs to launch, completed runs, and costs. `print` and notebooks display it."""

    def __init__(self, survey: Survey) -> None:
        """Create it by `LoadedStudy.plan` instead."""
        self._survey = survey

    @property
    def cost(self) -> PlanCost:
        """Cost of the remaining runs: `plan.cost.flops`, `.hours`, `.chip_hours`, `.dollars`."""
        return self._survey.cost

    def frame(self) -> pd.DataFrame:
        """Return one row per run, dependencies first.

        Columns: run, label, seed, fingerprint, program, action ("done", "resume", "run"), state in the store,
        examples, learner_flops, scoring_flops, selection_flops, reference_scoring_flops, total_flops, chips,
        hours, chip_hours, dollars, and why, if requested. Unknown values are NaN.
        """
        import pandas as pd

        from jestlab.platform.planning import show

        return pd.DataFrame(show.frame_rows(self._survey))

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._survey.plan.runs)

    def __str__(self) -> str:
        """Return what `jestlab plan` prints."""
        from jestlab.platform.planning import show
        from jestlab.platform.render import render

        return render(show.blocks(self._survey))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import pandas as pd

        from jestlab.platform.planning import show

        columns, rows, _ = show.grid(self._survey.plan)
        table = pd.DataFrame(rows, columns=list(columns)).to_html(index=False, border=0)
        below = [*show.sentences(self._survey), *self._survey.remarks]
        below += [f"{run}: {reason}" for run, reason in self._survey.explained()]
        heading = ": ".join(show.headline(self._survey.plan))
        return f"<p>{escape(heading)}</p>{table}" + "".join(f"<p>{escape(text)}</p>" for text in below)


@dataclass(frozen=True, repr=False)
class Outcome:
    """How a launch ended.

    Attributes:
        experiment: Name of the study.
        states: Label and seed, such as "joint/0" → "COMPLETED", "FAILED", "SKIPPED", "CANCELLED", ...
        reasons: Label and seed → why the run didn't complete.
        files: Tables, figures, and the page with its files.
        notes: Messages during the launch.
        ok: Whether all runs have completed and all reports are written.
    """

    experiment: str
    states: Mapping[str, str]
    reasons: Mapping[str, str]
    files: tuple[Path, ...]
    notes: tuple[str, ...]
    ok: bool

    @classmethod
    def of(cls, launched: LaunchResult, notes: Sequence[str]) -> Outcome:
        """Describe a launch that has ended."""
        names = {run.fingerprint: f"{run.label}/{run.seed}" for run in launched.runs}
        found, study = launched.outcome, launched.plan.study.name
        return cls(
            experiment=study,
            states={name: str(found.states[run]) for run, name in names.items()},
            reasons={name: found.reasons[run] for run, name in names.items() if run in found.reasons},
            files=tuple(Path(file) for file in launched.made.files.get(study, ())),
            notes=tuple(notes),
            ok=launched.exit_code == 0,
        )

    @property
    def page(self) -> Page | None:
        """The page, `report.html`, if it was written."""
        return next((Page(file) for file in self.files if file.name == "report.html"), None)

    def check(self) -> Outcome:
        """Return this outcome if `ok` is true.

        Raises:
            Error: Some runs haven't completed, or some reports aren't written; the message names them.
        """
        if not self.ok:
            raise UserError(str(self))
        return self

    def __str__(self) -> str:
        """Return the number of runs by state, the reasons of failures, and the path of the page."""
        return "\n".join(self._lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        page = [] if self.page is None else [f"page: {self.page._repr_html_()}"]
        return "".join(f"<div>{line}</div>" for line in [*map(escape, self._lines(page=False)), *page])

    def _lines(self, page: bool = True) -> Iterator[str]:
        counts = sorted(Counter(self.states.values()).items())
        yield f"{self.experiment}: " + ", ".join(f"{count} {state}" for state, count in counts)
        bad = {run: state for run, state in self.states.items() if state != _COMPLETED}
        for run, state in list(bad.items())[:_MOST_FAILURES]:
            yield f"{state} {run}" + (f": {self.reasons[run]}" if run in self.reasons else "")
        if len(bad) > _MOST_FAILURES:
            yield f"and {len(bad) - _MOST_FAILURES} more"
        if not self.ok and not bad:
            yield from self.notes[-1:]
        if page and self.page is not None:
            yield f"page: {relative_if_inside(self.page)}"


class Page(PosixPath):
    """The path of an HTML page, which notebooks show as a link."""

    def __repr__(self) -> str:
        return f"Page({str(relative_if_inside(self))!r})"

    def _repr_html_(self) -> str:
        place = relative_if_inside(self)
        if place.is_absolute():  # a notebook's server doesn't serve files outside its folder
            return escape(str(place))
        return f'<a href="{escape(quote(str(place)))}" target="_blank">{escape(str(place))}</a>'


def relative_if_inside(path: Path) -> Path:
    """Return a path relative to the working directory, if it is inside."""
    here = Path.cwd()
    return Path(os.path.relpath(path, here)) if path.is_relative_to(here) else Path(path)


# ---- results


def documented(*models: type[Options]) -> Callable[[Method], Method]:
    """Add the options of models to a method's signature, and to its docstring in place of `{options}`."""

    def decorate(method: Method) -> Method:
        fields = {name: info for name, info in flat_fields(*models).items() if name != "name"}
        signature = inspect.signature(method)
        *own, _ = signature.parameters.values()  # the last one is **options
        for name, info in fields.items():
            default = None if info.is_required() else info.default
            own.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default,
                                         annotation=info.annotation))  # fmt: skip
        method.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        lines = "\n".join(f"            {name}: {info.description}" for name, info in fields.items())
        method.__doc__ = (method.__doc__ or "").replace("            {options}", lines)
        return method

    return decorate


class ExperimentResults:
    """Results of one experiment. Each call reads the store again."""

    def __init__(self, lab: Lab, experiment: str) -> None:
        """Create it by `LoadedStudy.results` or `OpenLab.results` instead."""
        self._lab = lab
        self.experiment = experiment

    @documented(TableOptions)
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
            The table. Notebooks display it, and `print` writes it as Markdown. `frame` has the raw numbers;
            `latex()`, `markdown()`, `csv()`, `html()`, and `json()` return it as text.

        Raises:
            Error: The table, an option, or a run is unknown, or the table has no results yet.
        """
        with one_line_errors():
            from jestlab.analysis import tables
            from jestlab.platform.reports.make import make_table

            name = name or tables.default_name(self._lab.store_url, self.experiment)
            return make_table(self._lab, [self.experiment], name, options)

    @documented(*FIGURES.values(), CustomFigureOptions)
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
        from jestlab.analysis import query

        rows: dict[str, Any] = {"where": where, "columns": columns, "order_by": order_by, "limit": limit}
        with one_line_errors():
            return query.frame(self._lab.store_url, view=view, experiment=self.experiment, **rows)

    def claims(self) -> Table:
        """Return the study's claims with their verdicts, as `table("claims")`."""
        return self.table("claims")

    @documented(PageOptions)
    def report(self, **options: Any) -> Page:
        """Write the page of the experiment, `report.html` in the lab, as `jestlab report` does.

        Args:
            {options}

        Returns:
            The path of the page, which notebooks show as a link.

        Raises:
            Error: The experiment has no results yet, or the page can't be written.
        """
        from jestlab.platform import reports

        given = validated(PageOptions, options)
        with one_line_errors():
            return Page(reports.write_page(self._lab, self.experiment, None, given)[0])

    def __repr__(self) -> str:
        return f"ExperimentResults({self.experiment!r})"
