"""What the runs of an experiment have measured, as tables, figures and frames: what `jestlab.api` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from jestlab.analysis.costs import SCOPES
from jestlab.platform.errors import UserError, one_line_errors
from jestlab.platform.lab.lab import Lab
from jestlab.platform.shown import Page
from jestlab.platform.words import listed

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from jestlab.analysis.costs import Scope
    from jestlab.analysis.curves import Crossing
    from jestlab.analysis.efforts import Over
    from jestlab.analysis.metrics import Scale
    from jestlab.analysis.own import Kind
    from jestlab.analysis.sheet import Legend
    from jestlab.analysis.tables import Mean, Table
    from jestlab.platform.own_results import Asked


class Results:
    """What the runs of one experiment have measured: as tables, figures and frames, read from the store anew
    with each call."""

    def __init__(self, lab: Lab, experiment: str) -> None:
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
        columns: str | Sequence[str] = (),
        rows: str | Sequence[str] = (),
        digits: int | Mapping[str, int] | None = None,
        sort: str = "",
        caption: str | None = None,
        label: str = "",
        width: str = "auto",
        notes: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> Table:
        """Build a table: what `jestlab table` prints.

            results.table(baseline="uniform")
            results.table("claims")
            print(results.table(columns="score, delta", sort="-score", width="column").latex())

        Args:
            name: "summary", "speedups", "claims", one of the paper's, such as "comparison", or a table of
                your own, "file.py:function"; None for what says most: the summary, of a union its claims.
            baseline: Run or label that others are compared with; None for the first that is no reference.
            scope: Which FLOPs count: "learner", "scoring", "reference_scoring" or "reference_training".
            score: Evaluation that is the score, of several their mean; None for the study's.
            mean: Whether scores are averaged over "all" metrics, or over those that all runs have, "shared".
            crossing: Whether a score counts as reached at the "first" crossing, or at the "lasting" one.
            published: Whether the paper's tables also show published rows.
            columns: Columns to show, in this order, as a list or with commas: keys, headings, or "scores",
                "costs", "factors"; none for all.
            rows: Rows to show, in this order, likewise: runs, labels, or names as shown; none for all.
            digits: Of scores and differences, or column → digits; None for as many as a metric has.
            sort: Column to sort rows by; "-score" in descending order.
            caption: Instead of the table's own.
            label: Of LaTeX; empty for one made of the table's name.
            width: How wide the table may be in LaTeX: "auto", "column", "text", or a length, "3.25in".
            notes: Whether notes are shown.
            options: Arguments of a table of your own.

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
        url = self._lab.store_url
        with one_line_errors():
            name = name or tables.default_name(url, self.experiment)
            own = self._own("table", name, options, tables.NAMES)
            shape = tables.Shape(
                tuple(_split(columns) or ()),
                tuple(_split(rows) or ()),
                digits,
                sort,
                caption,
                label,
                notes,
                width,
            )
            return tables.table(
                url, own.name if own else name, [self.experiment], baseline=baseline, scope=scope, mean=mean,
                crossing=crossing, with_published=published, score=_names(score), shape=shape,
                options=own.options if own else None, own=own.loader if own else None,
            )  # fmt: skip

    def figure(
        self,
        kind: str,
        *,
        baseline: str | None = None,
        scope: Scope = "scoring",
        score: str | Sequence[str] | None = None,
        over: Over | None = None,
        metric: str | Sequence[str] | None = None,
        smooth: int | str | None = None,
        scale: Scale | None = None,
        highlight: str | Sequence[str] = (),
        x: str | None = None,
        by: str | Sequence[str] = "selection.rule",
        split: str | None = None,
        run: str | None = None,
        group: str | None = None,
        source: str | None = None,
        trajectories: bool = False,
        surfaces: bool = False,
        width: str | None = None,
        height: str | None = None,
        title: str | None = None,
        caption: str | None = None,
        font: str | None = None,
        font_size: float | None = None,
        legend: Legend | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Figure:
        """Draw a figure: what `jestlab plot` saves.

            figure = results.figure("pareto", baseline="uniform", over="seconds", width="3.25in", caption="")
            figure.axes[0].set_xlabel("training time (s)")
            figure.savefig("pareto.pdf")

        Args:
            kind: "curves", "pareto", "speedup", "against" (with `x`), …: see `jestlab plot --help`; or a
                figure of your own, "file.py:function".
            baseline: Run or label that others are compared with; None for the first that is no reference.
            scope: Which FLOPs count, as for tables.
            score: Evaluation that is the score, of several their mean; None for the study's.
            over: What curves are drawn over, and what a Pareto plot takes as cost: "examples_seen", "flops",
                "seconds", "chip_hours"; of curves also "steps".
            metric: Any recorded metric that curves show in place of the score; a panel each of several.
            smooth: Window of a running mean over curves: recorded points, or a share such as "10%".
            scale: Vertical axis of a metric's curves: "linear" or "log"; None for what it declares.
            highlight: Runs or labels whose curves are coloured, the others being grey; none for all.
            x: Config key that scores are drawn against, or that spikes are compared by.
            by: Config keys whose values make a line.
            split: Config key whose values make a panel.
            run: Run of `diagnose`; None for the first.
            group: Group of the published table; None for its first.
            source: Source of the published table; None for the one with most points.
            trajectories: Whether a Pareto plot shows how runs move during training.
            surfaces: Whether a Pareto plot shows attainment surfaces over seeds.
            width: Of the whole figure, with its unit: "3.25in", "8.3cm"; None for the figure's own.
            height: Likewise.
            title: Above the figure; "" for none, None for the study's question.
            caption: Below the figure; "" for none, None for what is shown.
            font: An installed font, or "serif", "sans-serif", "monospace".
            font_size: Of most letters, points.
            legend: How curves and points are named: "direct", "inside", "right", "below" or "none".
            options: Arguments of a figure of your own.

        Returns:
            A figure of Matplotlib that shows itself in notebooks. pyplot does not know it, so that nobody has
            to close it.

        Raises:
            Error: There is no such kind or run, or the experiment lacks what the figure shows.
        """
        from jestlab.analysis import efforts, figures
        from jestlab.analysis.sheet import Sheet

        _check_one_of("scope", scope, SCOPES)
        _check_one_of("over", over, efforts.OVERS if kind == "curves" else efforts.EFFORTS)
        _check_one_of("scale", scale, ("linear", "log"))
        metrics = tuple(_names(metric) or ())
        with one_line_errors():
            from jestlab.platform.pictures import pictures

            own = self._own("figure", kind, options, [*figures.KINDS])
            sheet = Sheet.parse(
                {
                    "width": width, "height": height, "title": title, "caption": caption, "font": font,
                    "font_size": font_size, "legend": legend,
                }
            )  # fmt: skip
            request = figures.Request(
                self._lab.store_url, self.experiment, baseline=baseline, scope=scope, effort=over,
                cost=None if over == "steps" else over, trajectories=trajectories, surfaces=surfaces, run=run,
                x=x, by=tuple(_names(by) or ()), split=split, metric=metrics[0] if metrics else None,
                metrics=metrics, smooth=smooth, scale=scale, highlight=tuple(_names(highlight) or ()),
                group=group, source=source, score=None if score is None else tuple(_names(score) or ()),
                sheet=sheet, options=own.options if own else {}, own=own.loader if own else None,
                pictures=partial(pictures, self._lab),
            )  # fmt: skip
            return figures.draw(own.name if own else kind, request).figure()

    def _own(
        self, kind: Kind, name: str, options: Mapping[str, Any] | None, builtin: Sequence[str]
    ) -> Asked | None:
        """Find the code of one's own that a name stands for; None if it is built in."""
        if name in builtin and not options:
            return None
        from jestlab.platform.own_results import asked

        return asked(self._lab.store_url, self.experiment, kind, name, options or {}, builtin, "options")

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
        return rows(self._lab, view, where, self.experiment, columns, order_by, limit)

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
        with one_line_errors():
            if baseline is None and scope is None:
                return Page(reports.bring_page_up_to_date(self._lab, self.experiment)[0])
            return Page(reports.write_page(self._lab, self.experiment, folder, baseline, scope)[0])

    def __repr__(self) -> str:
        return f"Results({self.experiment!r}): .table(), .figure(kind), .frame(view), .claims(), .report()"


def rows(
    lab: Lab,
    view: str,
    where: str | None,
    experiment: str | None,
    columns: str | Sequence[str] | None,
    order_by: str | Sequence[str],
    limit: int | None,
) -> pd.DataFrame:
    """Read rows of a view of a lab's store; arguments as of `Results.frame`, without an experiment of all."""
    from jestlab.analysis import query

    with one_line_errors():
        return query.frame(
            lab.store_url, view=view, where=where, columns=_split(columns), order_by=_split(order_by) or (),
            limit=limit, experiment=experiment,
        )  # fmt: skip


def _names(given: str | Sequence[str] | None) -> Sequence[str] | None:
    """Take one name, or several; None stays None."""
    return [given] if isinstance(given, str) else given


def _split(given: str | Sequence[str] | None) -> Sequence[str] | None:
    """Take names as a list, or separated by commas."""
    return listed(given) if isinstance(given, str) else given


def _check_one_of(what: str, value: str | None, known: Sequence[str]) -> None:
    """Raise UserError for a value that an argument cannot have; None is one that it may have."""
    if value is not None and value not in known:
        raise UserError(f"{what} must be one of {', '.join(known)}, got {value!r}")
