"""Plans, outcomes, and pages as text and in notebooks: part of `jestlab.api`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote

from jestlab.platform.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from jestlab.platform.launch.outcome import LaunchResult
    from jestlab.platform.planning.survey import PlanCost, Survey

_COMPLETED = "COMPLETED"
_MOST = 10  # runs whose failures are shown


class LaunchPlan:
    """A plan: runs to launch, completed runs, and costs. It prints, and notebooks show it."""

    def __init__(self, survey: Survey) -> None:
        """Use `LoadedStudy.plan`."""
        self._survey = survey

    @property
    def cost(self) -> PlanCost:
        """Cost of the remaining runs: `plan.cost.flops`, `.hours`, `.chip_hours`, `.dollars`."""
        return self._survey.cost

    def frame(self) -> pd.DataFrame:
        """Return one row per run, dependencies first.

        Columns: run, label, seed, fingerprint, program, action ("done", "resume", "run"), state (in the
            store),
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

        return show.text(self._survey)

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
        states: Run and seed, such as "joint/0" → "COMPLETED", "FAILED", "SKIPPED", "CANCELLED", ...
        reasons: Run and seed → why it didn't complete.
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
        """Return this outcome if it is ok.

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
    """The path of an HTML page, which notebooks show as a link."""

    def __repr__(self) -> str:
        return f"Page({str(near(self))!r})"

    def _repr_html_(self) -> str:
        place = near(self)
        if place.is_absolute():  # a notebook's server doesn't serve files outside its folder
            return escape(str(place))
        return f'<a href="{escape(quote(str(place)))}" target="_blank">{escape(str(place))}</a>'


def near(path: Path) -> Path:
    """Return a path relative to the working directory, if it is inside."""
    here = Path.cwd()
    return Path(os.path.relpath(path, here)) if path.is_relative_to(here) else Path(path)
