"""The served labs, with their stores opened read-only."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select

from jestlab.analysis.colors import REFERENCE, LabelColor
from jestlab.analysis.query import distinct
from jestlab.analysis.results import Snapshot
from jestlab.platform.errors import StoreMissing, UserError, nearest
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.status import RunStatus, Watch
from jestlab.platform.serve.overviews import Overviews
from jestlab.platform.serve.results import ServedResults
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import ExperimentRow, RunRow

SHORTEST_FINGERPRINT = 6
"""Minimum number of characters of a fingerprint in an address."""

INTERVAL_SECONDS = 1.0
"""Minimum time between two reads of an experiment's status, which all viewers share."""


@dataclass
class _Status:
    """The status of an experiment, and until when it is used (`time.monotonic`)."""

    watch: Watch
    rows: Sequence[RunStatus] = ()
    valid_until: float = 0.0
    colors: Mapping[str, LabelColor] = field(default_factory=dict)


@dataclass
class Served:
    """A lab, with its store, its results, and the overviews of its experiments."""

    name: str  # name in addresses
    lab: Lab
    store: Store  # read-only
    results: ServedResults
    overviews: Overviews
    _status: dict[str, _Status] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def status(self, experiment: str) -> Sequence[RunStatus]:
        """Return the runs of an experiment in the order of its study."""
        with self._lock:
            status = self._status.setdefault(experiment, _Status(Watch(self.store, experiment)))
            if time.monotonic() >= status.valid_until:
                rows = status.watch.update()
                if rows is not status.rows:
                    with self.store.reading() as connection:
                        known = Snapshot("", connection).colors(experiment)
                    status.colors = {row.run.label: known.get(row.run.label, REFERENCE) for row in rows}
                status.rows = rows
                status.valid_until = time.monotonic() + INTERVAL_SECONDS
            return status.rows

    def colors(self, experiment: str) -> Mapping[str, LabelColor]:
        """Return the color of each label of an experiment, as of the last call of `status`."""
        return self._status[experiment].colors


class Missing(UserError):
    """The address names something that doesn't exist."""


class Labs:
    """All served labs, in the order of the command line.

    Attributes:
        writes: Whether pages have forms that write.
    """

    def __init__(self, labs: Sequence[Lab], writes: bool = False) -> None:
        """Open the stores.

        Raises:
            StoreError: A store can't be read; the message says what to do.
        """
        self.writes = writes
        names = distinct((lab.root.name or "lab" for lab in labs), "-")
        self._served: dict[str, Served] = {}
        for name, lab in zip(names, labs, strict=True):
            store = Store.open_readonly(lab.store_url)
            if store is None:
                raise StoreMissing(f"no store in {lab.address}: launch a study first, or name another lab")
            overviews = Overviews(lab.store_url)
            self._served[name] = Served(name, lab, store, ServedResults(lab, store, name), overviews)

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    def __len__(self) -> int:
        return len(self._served)

    def among(self, name: str | None) -> list[Served]:
        """Return the lab with a name, as a list; all labs for None."""
        if name is None:
            return list(self)
        if name not in self._served:
            raise Missing(f"no lab {name!r}: {nearest(name, self._served)}")
        return [self._served[name]]

    def with_experiment(self, experiment: str, lab: str | None = None) -> Served:
        """Find the first lab that has an experiment."""
        return self.all_with_experiment(experiment, lab)[0]

    def all_with_experiment(self, experiment: str, lab: str | None = None) -> list[Served]:
        """Find all labs that have an experiment."""
        known: dict[str, list[Served]] = {}
        for served in self.among(lab):
            for (name,) in served.store.rows(select(ExperimentRow.name)):
                known.setdefault(name, []).append(served)
        if experiment not in known:
            raise Missing(f"no experiment {experiment!r}: {nearest(experiment, known)}")
        return known[experiment]

    def with_run(self, beginning: str, lab: str | None = None) -> tuple[Served, str]:
        """Find the first lab that has a run whose fingerprint starts so; return lab and fingerprint."""
        beginning = beginning.lower()
        if len(beginning) >= SHORTEST_FINGERPRINT and set(beginning) <= set("0123456789abcdef"):
            for served in self.among(lab):
                with served.store.reading() as connection:
                    query = (
                        select(RunRow.fingerprint).where(RunRow.fingerprint.startswith(beginning)).limit(2)
                    )
                    found = list(connection.scalars(query))
                if len(found) == 1:
                    return served, found[0]
                if found:
                    raise Missing(f"several runs have a fingerprint that starts with {beginning}: give more")
        raise Missing(f"no run {beginning}: give at least {SHORTEST_FINGERPRINT} characters of a fingerprint")

    def close(self) -> None:
        """Close all stores."""
        for served in self:
            served.overviews.close()
            served.store.close()
