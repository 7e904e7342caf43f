"""The contents of a report page as plain data, which `html` renders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..claims.evidence import Verdict
from ..claims.judged import Judged
from ..connection import shown
from ..figures import Plot
from ..figures.charts import SHOWN_AT_FIRST
from ..provenance.checkout import jestlab_version
from ..provenance.history import History, Recipe
from ..tables.claims import MARKS
from ..tables.core import Table
from ..tables.explain import Origins
from .answer import Answer
from .tables import MachineTime

_CLASSES: dict[Verdict, str] = {"holds": "holds", "does not hold": "fails"}
"""Verdict → CSS class; "open" for the others."""

_MOST_FAILURES = 200


@dataclass(frozen=True)
class TablePart:
    """A table of a page.

    Attributes:
        name: Stem of the file names, and anchor in the page.
        title: Heading above it.
        table: The table.
        judged: For a table of claims, the claims in the order of its rows.
    """

    name: str
    title: str
    table: Table
    judged: tuple[Judged, ...] = ()

    @property
    def most(self) -> int | None:
        """How many rows the page shows; None for all."""
        return _MOST_FAILURES if self.name == "failures" and len(self.table.frame) > _MOST_FAILURES else None

    @cached_property
    def claims(self) -> list[dict[str, Any]]:
        """For a table of claims: each claim with its mark, its CSS class, and the texts of its row."""
        keys = [column.key for column in self.table.columns]
        return [
            {
                "judged": judged,
                "row": line.key,
                "mark": MARKS[judged.verdict],
                "class": _CLASSES.get(judged.verdict, "open"),
                "cells": dict(zip(keys, (cell.text for cell in line.cells), strict=True)),
            }
            for judged, line in zip(self.judged, self.table.lines, strict=True)
        ]


@dataclass(frozen=True)
class FigurePart:
    """A figure of a page.

    Attributes:
        name: Anchor in the page.
        title: Heading above it.
        plots: The printed figures, one for each variant; their names are the stems of the file names.
        study: The study that it shows.
        variants: For an interactive figure: name of a horizontal axis → data for charts.js.
    """

    name: str
    title: str
    plots: tuple[Plot, ...]
    study: str
    variants: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def plot(self) -> Plot:
        """The printed form; of an interactive figure, for readers without scripts."""
        return self.plots[0]

    @property
    def limited(self) -> str:
        """Explain which series are shown initially; empty if all are."""
        most = max(len(variant["series"]) for variant in self.variants.values())
        text = f"initially {SHOWN_AT_FIRST} of {most:,}: the baseline and the best; bands if few are shown"
        return text if most > SHOWN_AT_FIRST else ""


@dataclass(frozen=True)
class PageSection:
    """A section of a page, which shows its parts in the order of the attributes.

    Attributes:
        id: The anchor in the page.
        title: The heading.
        study: For a section about one study of a union, the name of the study.
        source: Figure or table of the paper that the study reproduces.
        banners: Warnings: a word, and a text.
        texts: Paragraphs.
        claims: The table of claims, shown as a list.
        verdicts: Claims that are listed without their table.
        verdict: Counts the verdicts.
        time: Bars of machine time.
        tables: Tables.
        figures: Figures.
        missing: Title of a report that could not be made → the reason.
        recipe: How to reproduce the study.
    """

    id: str
    title: str
    study: str = ""
    source: str = ""
    banners: Sequence[tuple[str, str]] = ()
    texts: Sequence[str] = ()
    claims: TablePart | None = None
    verdicts: Sequence[Mapping[str, Any]] = ()
    verdict: str = ""
    time: MachineTime | None = None
    tables: Sequence[TablePart] = ()
    figures: Sequence[FigurePart] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    recipe: Recipe | None = None

    def notes(self) -> Iterator[tuple[TablePart, list[str], list[TablePart]]]:
        """Yield each table with its new notes, and the earlier tables that have its other notes."""
        first: dict[str, TablePart] = {}
        for part in self.tables:
            new = [note for note in part.table.notes if note not in first]
            earlier = {first[note].name: first[note] for note in part.table.notes if note in first}
            first |= dict.fromkeys(new, part)
            yield part, new, list(earlier.values())


@dataclass(frozen=True)
class ReportPage:
    """The page of a study, or of a union of studies.

    Attributes:
        url: URL of the store.
        history: Spec, runs, attempts, and costs.
        options: Options of the report: baseline and scope; empty for a union.
        answer: The answer to the question of the study.
        unfinished: The progress in words; empty once all runs have completed.
        sections: The sections.
        origins: Runs and attempts behind the numbers.
        facts: Sentences about the runs of a union.
        is_union: Whether it shows several studies.
    """

    url: str
    history: History
    options: dict[str, str | None]
    answer: Answer
    unfinished: str
    sections: tuple[PageSection, ...]
    origins: Origins
    facts: tuple[str, ...] = ()
    is_union: bool = False

    @cached_property
    def tables(self) -> list[TablePart]:
        """All tables."""
        claims = [section.claims for section in self.sections if section.claims]
        return [*claims, *(part for section in self.sections for part in section.tables)]

    @cached_property
    def figures(self) -> list[FigurePart]:
        """All figures."""
        return [part for section in self.sections for part in section.figures]

    @cached_property
    def plots(self) -> list[Plot]:
        """All printed figures."""
        return [plot for part in self.figures for plot in part.plots]

    @cached_property
    def sources(self) -> dict[str, Any]:
        """What all provenance files share, without a date: equal results give equal bytes."""
        version, commit = jestlab_version()
        runs = self.history.runs
        return {
            "store": shown(self.url),  # without its password
            "experiment": self.history.experiment,
            "options": self.options,
            "newest_result": self.history.newest(),
            "jestlab": {"version": version, "commit": commit},
            "runs": dict(zip(map(str, runs["fingerprint"]), map(str, runs["state"]), strict=True)),
        }
