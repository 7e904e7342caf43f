"""`ReportPage` and its parts: plain data that `contents` fills and `html` renders."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..claims.evidence import Verdict
from ..claims.judged import Judged
from ..colors import LabelColor
from ..connection import shown
from ..figures import Plot
from ..provenance.checkout import Checkout, jestlab_version
from ..provenance.history import History, Recipe
from ..tables.core import Table
from .answer import Answer

MOST_ROWS = 200
"""Maximum number of rows of a table on a page; its files have all."""


@dataclass(frozen=True)
class TablePart:
    """A table of a page.

    Attributes:
        name: Stem of the file names, and anchor in the page.
        title: Heading above the table.
        table: The table.
        judged: For a table of claims, the claims in the order of its rows.
        caption: The caption on the page; None for that of the table.
        hidden: Keys of columns that are hidden until the reader chooses them.
        sign: Of good differences: 1 or −1; 0 if none is good or bad.
    """

    name: str
    title: str
    table: Table
    judged: tuple[Judged, ...] = ()
    caption: str | None = None
    hidden: frozenset[str] = frozenset()
    sign: float = 0.0

    @cached_property
    def shown(self) -> Table:
        """The table with the rows that the page shows."""
        return self.table if self.judged else self.table.limited(MOST_ROWS)

    def claims(self) -> Iterator[tuple[Judged, str, dict[str, str]]]:
        """Yield the claims of a table of claims: the claim, its row's key, and column → text of the row."""
        keys = [column.key for column in self.table.columns]
        for judged, line in zip(self.judged, self.table.lines, strict=True):
            yield judged, line.key, dict(zip(keys, (cell.text for cell in line.cells), strict=True))


@dataclass(frozen=True)
class FigurePart:
    """A figure of a page.

    Attributes:
        name: Anchor in the page.
        title: Heading above the figure.
        plots: The printed figures, one for each variant; their names are the stems of the file names.
        study: The study that the figure shows.
        variants: For an interactive figure: name of a horizontal axis → data for charts.js.
    """

    name: str
    title: str
    plots: tuple[Plot, ...]
    study: str
    variants: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def plot(self) -> Plot:
        """The printed figure, which readers without scripts see in place of an interactive figure."""
        return self.plots[0]


@dataclass(frozen=True)
class PageSection:
    """A section of a page, which shows its parts in the order of the attributes.

    Attributes:
        id: The anchor in the page.
        title: The heading.
        texts: Paragraphs, before all other parts.
        study: For a section about one study of a union, the name of the study.
        source: Figure or table of the paper that the study reproduces.
        banners: Warnings: a word, and a text.
        claims: The table of claims, shown as a list.
        verdicts: Verdicts on the claims of a study in a union.
        tables: Tables.
        figures: Figures.
        missing: Heading of a table or figure that could not be made → the reason.
        recipe: How to reproduce the study.
        is_folded: Whether the reader opens the section.
        result: For a folded section, its result in a few words, next to the heading.
    """

    id: str
    title: str
    texts: Sequence[str] = ()
    study: str = ""
    source: str = ""
    banners: Sequence[tuple[str, str]] = ()
    claims: TablePart | None = None
    verdicts: Sequence[Verdict] = ()
    tables: list[TablePart] = field(default_factory=list)
    figures: list[FigurePart] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    recipe: Recipe | None = None
    is_folded: bool = False
    result: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether the section has nothing to show."""
        parts = (self.texts, self.claims, self.tables, self.figures, self.missing, self.recipe)
        return not any(parts)

    def notes(self) -> Iterator[tuple[TablePart, list[str]]]:
        """Yield each table with its notes, except notes that an earlier table has."""
        seen: set[str] = set()
        for part in self.tables:
            yield part, [note for note in part.table.own_notes if note not in seen]
            seen.update(part.table.own_notes)


@dataclass(frozen=True)
class ReportPage:
    """The page of a study, or of a union of studies.

    Attributes:
        url: URL of the store.
        histories: History of the experiment, and then of all studies of a union.
        options: Options of the report: baseline and scope; empty for a union.
        answer: The answer to the question of the study.
        sections: The sections.
        facts: Sentences about the runs of a union.
        colors: Label → its color.
        hero: The figure next to the answer, if there is one.
    """

    url: str
    histories: Sequence[History]
    options: dict[str, str | None]
    answer: Answer
    sections: tuple[PageSection, ...]
    facts: tuple[str, ...] = ()
    colors: Mapping[str, LabelColor] = field(default_factory=dict)
    hero: FigurePart | None = None

    @property
    def history(self) -> History:
        """Spec, runs, attempts, and costs of the experiment."""
        return self.histories[0]

    @property
    def is_union(self) -> bool:
        """Whether the page shows several studies."""
        return any(section.study for section in self.sections)

    @cached_property
    def tables(self) -> list[TablePart]:
        """All tables."""
        claims = [section.claims for section in self.sections if section.claims]
        return [*claims, *(part for section in self.sections for part in section.tables)]

    @cached_property
    def figures(self) -> list[FigurePart]:
        """All figures."""
        return [*filter(None, [self.hero]), *(part for section in self.sections for part in section.figures)]

    @cached_property
    def sources(self) -> dict[str, Any]:
        """Entries that all provenance files share; without a date, so that equal results give equal bytes."""
        runs, own = self.history.runs, Checkout.of(Path(__file__))
        commit = own and own.commit + (" with changes" if own.changes("--name-only") else "")
        return {
            "store": shown(self.url),  # without its password
            "experiment": self.history.experiment,
            "options": self.options,
            "newest_result": self.history.newest(),
            "jestlab": {"version": jestlab_version(), "commit": commit},
            "runs": dict(zip(map(str, runs["fingerprint"]), map(str, runs["state"]), strict=True)),
        }


def progress(history: History) -> str:
    """Describe the progress of an experiment in words; empty once all runs have completed."""
    states = history.states()
    done, planned = states.get("COMPLETED", 0), sum(states.values())
    if done == planned:
        return ""
    others = ", ".join(f"{count} {state.lower()}" for state, count in states.items() if state != "COMPLETED")
    scores = "Scores below are of the completed runs." if done else "No run has a final score yet."
    return f"{done} of {planned} runs have completed; {others}. {scores}"
