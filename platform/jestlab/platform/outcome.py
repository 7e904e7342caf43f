"""Plans, outcomes and pages that show themselves, in notebooks and as text: what `jestlab.api` returns."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote

from jestlab.platform.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from jestlab.platform.launch.session import LaunchResult
    from jestlab.platform.planning.survey import PlanCost, Survey

_COMPLETED = "COMPLETED"
_MOST = 10  # runs whose failures are shown


class Plan:
    """What a launch would run, what it costs, and what is done: print it, or let a notebook show it."""

    def __init__(self, survey: Survey) -> None:
        """Use `Study.plan`."""
        self._survey = survey

    @property
    def cost(self) -> PlanCost:
        """What the runs that are still to do take: `plan.cost.flops`, `.hours`, `.chip_hours`, `.dollars`."""
        return self._survey.cost

    def frame(self) -> pd.DataFrame:
        """Return one row a run, dependencies first.

        Its columns: run, label, seed, fingerprint, program, action ("done", "resume", "run"), state (in the
        store), examples, learner_flops, scoring_flops, selection_flops, reference_scoring_flops, total_flops,
        chips, hours, chip_hours, dollars, and why the run would run, if that was asked for. What is unknown
        is missing.
        """
        import pandas as pd

        return pd.DataFrame(self._survey.rows())

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._survey.plan.runs)

    def __str__(self) -> str:
        """Write what `jestlab plan` prints."""
        from jestlab.platform.planning import show

        return show.text(self._survey)

    def __repr__(self) -> str:
        """Write what `jestlab plan` prints."""
        return str(self)

    def _repr_html_(self) -> str:
        from jestlab.platform.planning import show

        columns, rows, right = show.grid(self._survey.plan)
        below = [*show.sentences(self._survey), *self._survey.remarks]
        why = [f"{run}: {reason}" for run, reason in self._survey.explained()]
        headline = ": ".join(show.headline(self._survey.plan))
        return html_table(headline, columns, rows, right, [*below, *why])


@dataclass(frozen=True, repr=False)
class Outcome:
    """How a launch ended.

    Attributes:
        experiment: Name of the study.
        states: Run and seed, as "joint/0" → state: "COMPLETED", "FAILED", "SKIPPED", "CANCELLED", …
        reasons: Run and seed → why it did not complete.
        files: The study's tables, figures and page, and what lies beside that.
        notes: What was said during the launch.
        ok: Whether all runs are completed and all reports written.
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
        """The page with all of it, `report.html`; None where there is none."""
        return next((Page(file) for file in self.files if file.name == "report.html"), None)

    def check(self) -> Outcome:
        """Return this outcome if all is well.

        Raises:
            Error: Not all runs are completed, or not all reports written; it says which, and why.
        """
        if not self.ok:
            raise UserError(str(self))
        return self

    def __str__(self) -> str:
        """Write how many runs are in which state, why some did not complete, and where the page is."""
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        """Write what `print` does."""
        return str(self)

    def _repr_html_(self) -> str:
        page = [] if self.page is None else [f"page: {self.page._repr_html_()}"]
        return "".join(f"<div>{line}</div>" for line in [*map(escape, self._lines(page=False)), *page])

    def _lines(self, page: bool = True) -> Iterator[str]:
        counts = Counter(self.states.values())
        yield f"{self.experiment}: " + ", ".join(
            f"{count} {state}" for state, count in sorted(counts.items())
        )
        bad = {run: state for run, state in self.states.items() if state != _COMPLETED}
        for run, state in list(bad.items())[:_MOST]:
            yield f"{state} {run}" + (f": {self.reasons[run]}" if run in self.reasons else "")
        if len(bad) > _MOST:
            yield f"and {len(bad) - _MOST} more"
        if not self.ok and not bad:
            yield from self.notes[-1:]
        if page and self.page is not None:
            yield f"page: {near(self.page)}"


class Page(PosixPath):
    """The path of an HTML page, which a notebook shows as a link."""

    def __repr__(self) -> str:
        """Write the path from the working directory, if it is inside."""
        return f"Page({str(near(self))!r})"

    def _repr_html_(self) -> str:
        place = near(self)
        if place.is_absolute():  # a notebook's server shows nothing outside its own folder
            return escape(str(place))
        return f'<a href="{escape(quote(str(place)))}" target="_blank">{escape(str(place))}</a>'


def near(path: Path) -> Path:
    """Return a path from the working directory, if it is inside."""
    here = Path.cwd()
    return Path(os.path.relpath(path, here)) if path.is_relative_to(here) else Path(path)


_CELL = "padding:2px 10px;white-space:nowrap;text-align:"


def html_table(
    headline: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[int],
    below: Sequence[str],
) -> str:
    """Write a table of text for a notebook, whose style it brings along.

    Args:
        headline: What it shows, in a line above it.
        columns: Headings.
        rows: Cells; the last row is set off, as it is the sum of the others.
        right: Indices of the columns that are aligned to the right.
        below: Sentences below it.
    """

    def line(cells: Sequence[str], tag: str, border: str = "") -> str:
        sides = ("right" if i in right else "left" for i in range(len(cells)))
        styled = (
            f'<{tag} style="{_CELL}{side}{border}">{_indented(cell)}</{tag}>'
            for side, cell in zip(sides, cells, strict=True)
        )
        return f"<tr>{''.join(styled)}</tr>"

    last = len(rows) - 1
    head = line(columns, "th", ";font-weight:600;border-bottom:1px solid")
    body = (line(row, "td", ";border-top:1px solid" if i == last else "") for i, row in enumerate(rows))
    paragraphs = (f'<p style="margin:.4em 0;max-width:60em">{escape(text)}</p>' for text in below)
    return (
        '<div style="font-variant-numeric:tabular-nums">'
        f"<p>{escape(headline)}</p>"
        '<div style="overflow-x:auto" tabindex="0">'
        '<table style="border-collapse:collapse;border-block:2px solid">'
        f"<thead>{head}</thead><tbody>{''.join(body)}</tbody></table></div>"
        f"{''.join(paragraphs)}</div>"
    )


def _indented(cell: str) -> str:
    """Write a cell whose spaces at its beginning are to be seen."""
    text = cell.lstrip(" ")
    return "&nbsp;" * (len(cell) - len(text)) + escape(text)
