"""The answer, claims, tables, and figures of an experiment, updated while results arrive."""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any

from jestlab.analysis.errors import NotYet
from jestlab.analysis.report import gather, one_file
from jestlab.analysis.report.html import fragment
from jestlab.analysis.report.page import FigurePart, ReportPage
from jestlab.analysis.results import opened
from jestlab.platform.errors import one_line_errors
from jestlab.platform.lab.lab import Lab
from jestlab.platform.reports.make import TrustedLoader
from jestlab.platform.reports.selected import selected_images
from jestlab.platform.reports.update import store_state
from jestlab.platform.serve.groups import Scores
from jestlab.platform.serve.rendering import address
from jestlab.platform.store.store import Store

_PAUSE_FACTOR = 5
"""Before the next update of results, the server waits this many times the duration of the last update."""

_STILL_WIDTH = 800
"""Width of a figure without an interactive version, in pixels of the page."""


@dataclass(frozen=True)
class MadeResults:
    """Results of an experiment, and files that were made from them.

    Attributes:
        page: Contents of its report.
        html: The answer, and after `report.html.BETWEEN` all other parts.
        scores: Scores of its runs.
        key: State of the store.
        valid_until: Earliest time of the next update, by `time.monotonic`.
        files: Name → content.
    """

    page: ReportPage
    html: str
    scores: Scores
    key: object
    valid_until: float
    files: dict[str, bytes] = field(default_factory=dict)

    @cached_property
    def etag(self) -> str:
        """A digest of the HTML, for caching in browsers."""
        return f'"{hashlib.sha256(self.html.encode()).hexdigest()[:16]}"'


class ServedResults:
    """Results of the experiments of one lab. Methods are thread-safe."""

    def __init__(self, lab: Lab, store: Store, name: str) -> None:
        """Start without results; they are made on request. `name` is the lab's name in addresses."""
        self._lab = lab
        self._store = store
        self._name = name
        self._made: dict[str, MadeResults] = {}
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
            key = [*store_state(self._store, name)]
            if known is not None and known.key == key:
                return known
            start = time.monotonic()
            with one_line_errors():
                page, html, scores = self._make(name)
            valid_until = time.monotonic() + _PAUSE_FACTOR * (time.monotonic() - start)
            self._made[name] = MadeResults(page, html, scores, key, valid_until)
            return self._made[name]

    def latest(self, name: str) -> MadeResults | None:
        """Return the results that were made last, even if the store has changed; None before the first."""
        return self._made.get(name)

    def still(self, name: str, study: str, figure: str) -> bytes | None:
        """Draw a figure that has no interactive version, as PNG; None for an unknown figure.

        `study` is the experiment `name` itself or, if this is a union, one of its studies.
        """
        made = self.of(name)
        for part in made.page.figures:
            if (part.study, part.plot.name) == (study, figure):
                return self._once(made, f"{study}/{figure}", partial(part.plot.png, []))
        return None

    def file(self, name: str, file: str) -> bytes | None:
        """Make a file of an experiment's report; None for an unknown file."""
        made = self.of(name)
        return self._once(made, file, lambda: one_file(made.page, file))

    def _once(self, made: MadeResults, file: str, make: Callable[[], bytes | None]) -> bytes | None:
        """Make a file once for all viewers, one file at a time: drawing is not thread-safe."""
        with self._lock, one_line_errors():
            content = made.files.get(file) or make()
            if content is not None:  # unknown names must not fill the memory
                made.files[file] = content
            return content

    def _make(self, name: str) -> tuple[ReportPage, str, Scores]:
        """Gather the contents of an experiment's report, with their HTML and scores."""

        def image(part: FigurePart) -> dict[str, Any]:
            file = f"{part.plot.name}.png"
            source = address("experiment", name, "figure", part.study, file, lab=self._name)
            return {"src": source, "width": _STILL_WIDTH}

        def log(row: Mapping[str, Any]) -> str:
            return f"{address('run', row['fingerprint'], lab=self._name)}#log"

        url = self._lab.store_url
        images = cache(partial(selected_images, self._lab))
        scores = Scores()
        with opened(url) as store:
            page = gather(store, name, own=TrustedLoader(url), pictures=images)
            with suppress(NotYet):
                scores = Scores.of(store.frames(name))
        place = address("experiment", name, "file", "FILE", lab=self._name)
        return page, fragment(page, image, log, place), scores
