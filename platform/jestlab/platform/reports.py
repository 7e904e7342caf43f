"""What a study ends in: its tables and figures, as files of the lab."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jestlab.platform.lab import Lab

if TYPE_CHECKING:
    from jestlab.platform.spec.schema import Study

_TABLE_FILES = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".html": "html", ".json": "json"}


def write(lab: Lab, study: Study, note: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Write a study's reports from the store to `reports/<name>/`; each file appears whole or not at all.

    Args:
        lab: Where the store is, and where to write.
        study: Whose reports.
        note: Told of a report that cannot be made yet, and why.

    Returns:
        The files. Tables come as Markdown, LaTeX, CSV, HTML and JSON, figures as PNG and SVG.
    """
    from jestlab.analysis import figures, tables

    folder = lab.reports / study.name
    written: list[Path] = []
    compared = next((report.baseline for report in study.reports if report.kind == "table"), None)
    names: set[str] = set()
    for report in study.reports:
        try:
            if report.kind == "table":
                table = tables.summary(lab.store_url, study.name, report.baseline)
                name = "table" if "table" not in names else f"table-{report.baseline}"
                for suffix, format in _TABLE_FILES.items():
                    written.append(_write_text(folder / f"{name}{suffix}", getattr(table, format)()))
            else:
                name = report.kind
                draw = figures.learning_curves if report.kind == "curves" else figures.pareto
                written += draw(lab.store_url, study.name, compared).save(folder)
        except ValueError as error:
            note(f"no {report.kind} yet: {error}")
        else:
            names.add(name)
    return written


def _write_text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}-{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
    return path
