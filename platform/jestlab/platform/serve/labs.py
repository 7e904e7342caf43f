"""The labs that are served: their stores, open for reading alone, and what is watched in them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select

from jestlab.analysis.query import distinct
from jestlab.platform.errors import StoreMissing, UserError, nearest
from jestlab.platform.lab.lab import Lab
from jestlab.platform.serve.results import Results
from jestlab.platform.serve.tail import Tail
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Experiment, Run

SHORTEST = 6
"""Characters of a fingerprint that are enough in an address."""


@dataclass
class Served:
    """One lab.

    Attributes:
        name: Its name in addresses.
        lab: Where it is.
        store: Its store, which this object cannot write.
        results: What its experiments say.
    """

    name: str
    lab: Lab
    store: Store
    results: Results
    _tails: dict[str, Tail] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tail(self, experiment: str) -> Tail:
        """Return what follows an experiment, one for all who look at it."""
        with self._lock:
            if experiment not in self._tails:
                self._tails[experiment] = Tail(self.store, experiment)
            return self._tails[experiment]


class Missing(UserError):
    """What an address names is not there."""


class Labs:
    """All labs that are served, in the order in which they were named.

    Attributes:
        writes: Whether pages offer to write.
    """

    def __init__(self, labs: Sequence[Lab], writes: bool = False) -> None:
        """Open their stores.

        Raises:
            StoreError: One of them cannot be read; the message says what to do.
        """
        self.writes = writes
        names = distinct((lab.root.name or "lab" for lab in labs), "-")
        self._served: dict[str, Served] = {}
        for name, lab in zip(names, labs, strict=True):
            store = Store.open_readonly(lab.store_url)
            if store is None:
                raise StoreMissing(f"no store in {lab.address}: launch a study first, or name another lab")
            self._served[name] = Served(name, lab, store, Results(lab, store, name))

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    def __len__(self) -> int:
        return len(self._served)

    def among(self, name: str | None) -> list[Served]:
        """Return the lab of a name, or without one all of them."""
        if name is None:
            return list(self)
        if name not in self._served:
            raise Missing(f"no lab {name!r} is served here: {nearest(name, self._served)}")
        return [self._served[name]]

    def with_experiment(self, experiment: str, lab: str | None = None) -> Served:
        """Find the lab with an experiment; of several the first."""
        for served in self.among(lab):
            with served.store.reading() as connection:
                if connection.scalar(select(Experiment.name).where(Experiment.name == experiment)):
                    return served
        known: list[str] = []
        for served in self.among(lab):
            with served.store.reading() as connection:
                known += connection.scalars(select(Experiment.name))
        raise Missing(f"no experiment {experiment!r}: {nearest(experiment, known)}")

    def with_run(self, beginning: str, lab: str | None = None) -> tuple[Served, str]:
        """Find the lab with a run, of several the first, and the fingerprint that begins like this."""
        beginning = beginning.lower()
        if len(beginning) >= SHORTEST and set(beginning) <= set("0123456789abcdef"):
            for served in self.among(lab):
                with served.store.reading() as connection:
                    query = select(Run.fingerprint).where(Run.fingerprint.startswith(beginning)).limit(2)
                    found = list(connection.scalars(query))
                if len(found) == 1:
                    return served, found[0]
                if found:
                    raise Missing(f"several runs have a fingerprint that begins with {beginning}: give more")
        raise Missing(f"no run {beginning}: give the first {SHORTEST} characters of a fingerprint, or more")

    def close(self) -> None:
        """Close all stores."""
        for served in self:
            served.store.close()
