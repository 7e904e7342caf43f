"""The answer, claims, tables, and figures of an experiment, updated while results arrive."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from jestlab.platform.errors import one_line_errors
from jestlab.platform.lab.lab import Lab
from jestlab.platform.serve.rendering import address
from jestlab.platform.store.store import Store

if TYPE_CHECKING:
    from jestlab.analysis.provenance import Sources
    from jestlab.analysis.report.contents import Contents, StillPart
    from jestlab.analysis.report.union import UnionContents

_PAUSE = 5
"""Results are updated after a pause of this many times the duration of the last update."""

_STILL_WIDTH = 800
"""Width of a figure without an interactive version, in pixels of the page."""


@dataclass(frozen=True)
class MadeResults:
    """Results of an experiment: HTML for a page, contents of the report, and their sources."""

    html: str
    etag: str  # changes with the HTML
    contents: Contents | UnionContents
    sources: Sources
    key: object  # state of the store
    valid_until: float  # earliest time of the next update, by `time.monotonic`


class ServedResults:
    """Results of the experiments of one lab. Methods are thread-safe."""

    def __init__(self, lab: Lab, store: Store, name: str) -> None:
        """Create it without making any results; `name` is that of the lab in addresses."""
        self._lab = lab
        self._store = store
        self._name = name
        self._made: dict[str, MadeResults] = {}
        self._files: dict[tuple[str, str], bytes] = {}
        self._lock = threading.Lock()

    def of(self, name: str) -> MadeResults:
        """Return the results of an experiment, updated if the store has changed.

        Raises:
            UserError: The experiment has no results.
        """
        with self._lock:
            known = self._made.get(name)
            if known is not None and time.monotonic() < known.valid_until:
                return known
            key = _key(self._store, name)
            if known is not None and known.key == key:
                return known
            start = time.monotonic()
            with one_line_errors():
                html, contents, sources = self._make(name)
            now = time.monotonic()
            etag = f'"{hashlib.sha256(html.encode()).hexdigest()[:16]}"'
            made = MadeResults(html, etag, contents, sources, key, now + _PAUSE * (now - start))
            self._made[name] = made
            return made

    def still(self, name: str, study: str, figure: str) -> bytes | None:
        """Draw a figure that has no interactive version, as PNG; None for an unknown figure.

        `study` is the experiment `name`, or a study of this union.
        """
        made = self.of(name)
        for part_study, part in _stills(name, made.contents):
            if (part_study, part.name) == (study, figure):
                return self._once(made, f"{study}/{figure}", partial(part.plot.png, []))
        return None

    def file(self, name: str, file: str) -> bytes | None:
        """Make a file of an experiment's report; None for an unknown file."""
        from jestlab.analysis.report import one_file

        made = self.of(name)
        return self._once(made, file, lambda: one_file(made.contents, made.sources, file))

    def _once(self, made: MadeResults, file: str, make: Callable[[], bytes | None]) -> bytes | None:
        """Make a file once for all viewers, one file at a time: drawing is not thread-safe."""
        with self._lock:
            content = self._files.get((made.etag, file))
            if content is None:
                current = {each.etag for each in self._made.values()}
                self._files = {key: known for key, known in self._files.items() if key[0] in current}
                with one_line_errors():
                    content = make()
                if content is not None:  # unknown names must not fill the memory
                    self._files[made.etag, file] = content
            return content

    def _make(self, name: str) -> tuple[str, Contents | UnionContents, Sources]:
        """Gather the contents of an experiment's report, with their HTML."""
        from jestlab.analysis.claims import parts_of
        from jestlab.analysis.provenance import Sources
        from jestlab.analysis.report.contents import gather
        from jestlab.analysis.report.page import study_fragment, union_fragment
        from jestlab.analysis.report.union import gather_union
        from jestlab.platform.reports.make import TrustedLoader
        from jestlab.platform.reports.selected import selected_images

        url = self._lab.store_url
        loader, images = TrustedLoader(url), cache(partial(selected_images, self._lab))

        def image(study: str, figure: str) -> dict[str, Any]:
            source = address("experiment", name, "figure", study, f"{figure}.png", lab=self._name)
            return {"src": source, "width": _STILL_WIDTH}

        place = address("experiment", name, "file", "FILE", lab=self._name)
        if parts_of(url, name):
            union = gather_union(url, name, loader, images)
            sources = Sources(url, union.history, {})
            html = union_fragment(union, sources, lambda part, still: image(part.name, still.name), place)
            return html, union, sources
        contents = gather(url, name, own=loader, pictures=images)
        sources = Sources(url, contents.history, {"baseline": contents.baseline, "scope": contents.scope})
        html = study_fragment(contents, sources, lambda still: image(name, still.name), place)
        return html, contents, sources


def _stills(name: str, contents: Contents | UnionContents) -> Iterator[tuple[str, StillPart]]:
    """Yield the figures without an interactive version, each with the name of its study."""
    from jestlab.analysis.report.contents import Contents

    if isinstance(contents, Contents):
        yield from ((name, still) for still in contents.stills)
    else:
        for part in contents.sections:
            yield from ((part.name, still) for still in part.reports.stills)


_KEY_QUERIES = (
    "SELECT COUNT(*), SUM(run.step), MAX(run.updated_at), MAX(experiment.updated_at) FROM run "
    "JOIN member ON member.run_id = run.id JOIN experiment ON experiment.name = member.experiment "
    "WHERE member.experiment = :name",
    "SELECT COUNT(*) FROM evaluation JOIN member ON member.run_id = evaluation.run_id "
    "WHERE member.experiment = :name",
    "SELECT " + ", ".join(
        f"(SELECT COUNT(*) FROM {table})"
        for table in ("note", "tag", "acceptance", "retraction", "registration", "published")
    ),
)  # fmt: skip


def _key(store: Store, name: str) -> object:
    """Return a value that changes when the results may have changed."""
    with store.reading() as connection:
        return [
            tuple(connection.execute(text(query), {"name": name} if ":name" in query else {}).one())
            for query in _KEY_QUERIES
        ]
