"""What a study ends in: its tables and figures, as files of the lab."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.platform.lab import Lab
from jestlab.platform.spec.reports import Report, TableReport

if TYPE_CHECKING:
    from jestlab.analysis.frames import Frames
    from jestlab.platform.spec.schema import Study

_TABLE_FILES = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".html": "html", ".json": "json"}


def write(lab: Lab, study: Study, note: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Write a study's reports from the store to `reports/<name>/`; each file appears whole or not at all.

    Args:
        lab: Where the store is, and where to write.
        study: Whose reports.
        note: Told of a report that cannot be made yet, and why.

    Returns:
        The files. Tables come as Markdown, LaTeX, CSV, HTML and JSON, figures as PNG, SVG and PDF. The second
        report of a name is named `<name>-2`. The claims of a study are a table, too, asked for or not. Last
        comes `report.html`, a page that holds the whole experiment, and what lies beside it in `report/`.
    """
    from jestlab.analysis import frames

    results = cache(lambda: frames.read(lab.store_url, study.name))  # once for all of them, if one needs it
    folder = lab.reports / study.name
    written: list[Path] = []
    seen: Counter[str] = Counter()
    asked = _reports(study)
    for report in asked:
        name = _name(report)
        seen[name] += 1
        name = name if seen[name] == 1 else f"{name}-{seen[name]}"
        try:
            written += _write_report(lab.store_url, study.name, results, report, folder, name)
        except ValueError as error:
            note(f"no {name} yet: {error}")
    try:
        written += _write_page(lab, study, folder) if asked else []
    except ValueError as error:
        note(f"no page yet: {error}")
    return written


def _reports(study: Study) -> tuple[Report, ...]:
    """What it asks for, and first the verdicts on what it, or a study of it, claims."""
    claims = TableReport(kind="table", name="claims")
    asked = any(isinstance(report, TableReport) and report.name == "claims" for report in study.reports)
    claiming = any(each.claims for each in (study, *study.studies.values()))
    return study.reports if asked or not claiming else (claims, *study.reports)


def _name(report: Report) -> str:
    """What the files of a report are called: by its kind, a table other than the summary by its name."""
    return report.name if isinstance(report, TableReport) and report.name != "summary" else report.kind


def _write_page(lab: Lab, study: Study, folder: Path) -> list[Path]:
    """All of it as one page, and what lies beside it; compared as the study's first table or figure does."""
    from jestlab.analysis.report.build import build

    told: dict[str, Any] = {}
    for report in () if study.studies else study.reports:  # those of a union say for themselves
        for option in ("baseline", "scope"):
            if getattr(report, option, None) is not None:
                told.setdefault(option, getattr(report, option))
    return build(lab.store_url, study.name, folder, **told)


def _write_report(
    url: str, experiment: str, results: Callable[[], Frames], report: Report, folder: Path, name: str
) -> list[Path]:
    """The files of one report; ValueError if the store cannot fill it yet."""
    from jestlab.analysis import figures, tables
    from jestlab.analysis.files import write_whole

    if isinstance(report, TableReport):
        table = tables.table(
            url, report.name, [experiment], baseline=report.baseline, scope=report.scope, mean=report.mean,
            crossing=report.crossing, with_published=report.published, results={experiment: results},
        )  # fmt: skip
        return [
            write_whole(folder / f"{name}{suffix}", getattr(table, format)())
            for suffix, format in _TABLE_FILES.items()
        ]
    options = report.model_dump(exclude={"kind"})
    plot = figures.draw(report.kind, figures.Request(url, experiment, results=results, **options))
    return replace(plot, name=name).save(folder)
