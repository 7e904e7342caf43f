"""The answer, claims, tables and figures of an experiment, made again while results come in."""

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

_DUTY = 5
"""After results were made, they rest for so many times as long, however much comes in."""

_STILL_WIDTH = 800
"""Width of a figure that is shown as it is printed, in pixels of the page."""


@dataclass(frozen=True)
class Made:
    """Results of an experiment as they were made last.

    Attributes:
        html: As a part of a page.
        etag: Changes with them.
        contents: What they say.
        sources: What they were made from.
        key: Changes with the store, as it was then.
        rests: Until when they are not made again, as `time.monotonic`.
    """

    html: str
    etag: str
    contents: Contents | UnionContents
    sources: Sources
    key: object
    rests: float


class Results:
    """Results of the experiments of one lab. All methods may be called from any thread."""

    def __init__(self, lab: Lab, store: Store, name: str) -> None:
        """Create it; nothing is made yet.

        Args:
            lab: The lab.
            store: Its store.
            name: Its name in addresses.
        """
        self._lab = lab
        self._store = store
        self._name = name
        self._made: dict[str, Made] = {}
        self._files: dict[tuple[str, str], bytes] = {}
        self._lock = threading.Lock()

    def of(self, name: str) -> Made:
        """Return the results of an experiment, made anew where anything has come in and they have rested.

        Raises:
            UserError: There is nothing to make them from; says why.
        """
        with self._lock:
            known = self._made.get(name)
            if known is not None and time.monotonic() < known.rests:
                return known
            key = _key(self._store, name)
            if known is not None and known.key == key:
                return known
            began = time.monotonic()
            with one_line_errors():
                html, contents, sources = self._gathered(name)
            now = time.monotonic()
            etag = f'"{hashlib.sha256(html.encode()).hexdigest()[:16]}"'
            self._made[name] = made = Made(html, etag, contents, sources, key, now + _DUTY * (now - began))
            return made

    def still(self, name: str, study: str, figure: str) -> bytes | None:
        """Draw a figure that is shown as it is printed, as PNG; None if there is none.

        Args:
            name: Of the experiment.
            study: The study of it, which is the experiment itself unless it is a union.
            figure: Name of the figure.
        """
        made = self.of(name)
        for of_study, part in _stills(name, made.contents):
            if (of_study, part.name) == (study, figure):
                return self._once(made, f"{study}/{figure}", partial(part.plot.png, []))
        return None

    def file(self, name: str, file: str) -> bytes | None:
        """Make a file of those that an experiment's report has beside its page; None if there is none."""
        from jestlab.analysis.report import one_file

        made = self.of(name)
        return self._once(made, file, lambda: one_file(made.contents, made.sources, file))

    def _once(self, made: Made, file: str, make: Callable[[], bytes | None]) -> bytes | None:
        """Make a file once for all who ask, one at a time: figures are not drawn in several threads."""
        with self._lock:
            content = self._files.get((made.etag, file))
            if content is None:
                current = {each.etag for each in self._made.values()}
                self._files = {key: known for key, known in self._files.items() if key[0] in current}
                with one_line_errors():
                    content = make()
                if content is not None:  # anybody may ask for any name
                    self._files[made.etag, file] = content
            return content

    def _gathered(self, name: str) -> tuple[str, Contents | UnionContents, Sources]:
        """Gather what the report of an experiment says; the first is its HTML."""
        from jestlab.analysis.claims import parts_of
        from jestlab.analysis.provenance import Sources
        from jestlab.analysis.report.contents import gather
        from jestlab.analysis.report.page import study_fragment, union_fragment
        from jestlab.analysis.report.union import gather_union
        from jestlab.platform.reports.make import TrustedLoader
        from jestlab.platform.reports.selected import selected_images

        url = self._lab.store_url
        own, selected = TrustedLoader(url), cache(partial(selected_images, self._lab))

        def image(study: str, figure: str) -> dict[str, Any]:
            return {
                "src": address("experiment", name, "figure", study, f"{figure}.png", lab=self._name),
                "width": _STILL_WIDTH,
            }

        place = address("experiment", name, "file", "FILE", lab=self._name)
        if parts_of(url, name):
            union = gather_union(url, name, own, selected)
            sources = Sources(url, union.history, {})
            html = union_fragment(union, sources, lambda part, still: image(part.name, still.name), place)
            return html, union, sources
        contents = gather(url, name, own=own, pictures=selected)
        sources = Sources(url, contents.history, {"baseline": contents.baseline, "scope": contents.scope})
        html = study_fragment(contents, sources, lambda still: image(name, still.name), place)
        return html, contents, sources


def _stills(name: str, contents: Contents | UnionContents) -> Iterator[tuple[str, StillPart]]:
    """Yield the figures that are shown as they are printed, with the name of the study of each."""
    from jestlab.analysis.report.contents import Contents

    if isinstance(contents, Contents):
        yield from ((name, still) for still in contents.stills)
    else:
        for part in contents.sections:
            yield from ((part.name, still) for still in part.reports.stills)


def _key(store: Store, name: str) -> object:
    """Return what changes when results may have."""
    runs = (
        "SELECT COUNT(*), SUM(run.step), MAX(run.updated_at), MAX(experiment.updated_at) FROM run "
        "JOIN member ON member.run_id = run.id JOIN experiment ON experiment.name = member.experiment "
        "WHERE experiment.name = :name"
    )
    scores = (
        "SELECT COUNT(*) FROM evaluation JOIN member ON member.run_id = evaluation.run_id "
        "WHERE member.experiment = :name"
    )
    said = "SELECT " + ", ".join(f"(SELECT COUNT(*) FROM {table})" for table in _SAID)
    with store.reading() as connection:
        return [
            tuple(connection.execute(text(query), given).one())
            for query, given in ((runs, {"name": name}), (scores, {"name": name}), (said, {}))
        ]


_SAID = ("note", "tag", "acceptance", "retraction", "registration", "published")
"""Tables of what people say of runs, which are small."""
