"""The served labs, with their stores opened read-only."""

import math
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import select

from jestlab.analysis.colors import REFERENCE
from jestlab.analysis.query import distinct
from jestlab.analysis.results import Snapshot
from jestlab.platform.errors import StoreMissing, UserError, nearest
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.status import Watch
from jestlab.platform.serve.groups import Status
from jestlab.platform.serve.overviews import Overviews
from jestlab.platform.serve.results import ServedResults
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import ExperimentRow, RunRow

SHORTEST_FINGERPRINT = 6
"""Minimum number of characters of a fingerprint in an address."""

INTERVAL_SECONDS = 1.0
"""Minimum time between two reads of an experiment's status, which all viewers share."""

OLDEST_SECONDS = 10.0
"""Age of a status that is not shown any more: the request waits for a new one."""


class _Followed:
    """Reads the status of an experiment for all viewers."""

    def __init__(self, store: Store, experiment: str) -> None:
        self.status = Status()
        self._watch, self._store, self._experiment = Watch(store, experiment), store, experiment
        self._launched_at: object = None
        self._read_at = -math.inf
        self._lock = threading.Lock()

    @property
    def age(self) -> float:
        """Seconds since the status was read."""
        return time.monotonic() - self._read_at

    def read(self, oldest: float) -> None:
        """Read the status, unless another thread has read it in the last `oldest` seconds."""
        with self._lock:
            if self.age < oldest:
                return
            rows, colors = self._watch.update(), self.status.colors
            if rows is not self.status.rows:
                is_new = any(row.run.label not in colors for row in rows)  # such as an adopted run
                if is_new or self._watch.launched_at != self._launched_at:
                    with self._store.reading() as connection:
                        known = Snapshot("", connection).colors(self._experiment)
                    colors = {row.run.label: known.get(row.run.label, REFERENCE) for row in rows}
                self.status = Status.of(rows, colors)
            self._launched_at, self._read_at = self._watch.launched_at, time.monotonic()


@dataclass
class Served:
    """A lab, with its store, its results, and the overviews of its experiments."""

    name: str  # name in addresses
    lab: Lab
    store: Store  # read-only
    results: ServedResults
    overviews: Overviews
    _followed: dict[str, _Followed] = field(default_factory=dict)
    _reader: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1, "status"))

    def status(self, experiment: str) -> Status:
        """Return the status of an experiment.

        Reading the status of thousands of runs takes seconds, so viewers get the last one meanwhile.
        """
        followed = self._followed.setdefault(experiment, _Followed(self.store, experiment))
        if followed.age >= OLDEST_SECONDS:
            followed.read(OLDEST_SECONDS)
        elif followed.age >= INTERVAL_SECONDS:
            self._reader.submit(followed.read, INTERVAL_SECONDS)
        return followed.status

    def close(self) -> None:
        """Stop reading, and close the store."""
        self.overviews.close()
        self._reader.shutdown(cancel_futures=True)
        self.store.close()


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
            StoreError: A store can't be read; the message names the remedy.
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
            served.close()
