"""A results store at one moment: open it once, and pass it to everything that reads results.

with opened("sqlite:///lab/results.db") as store:
    frames = store.frames("comparison")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from . import frames as reading
from .connection import connect, frame
from .frames import Diagnosis, Frames

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Connection

T = TypeVar("T")
P = ParamSpec("P")


class Snapshot:
    """A results store at one moment. Results are read when they are first needed, and each only once.

    Attributes:
        url: SQLAlchemy URL of the store, which may hold a password.
        connection: A read-only transaction, open until the snapshot is closed.
    """

    def __init__(self, url: str, connection: Connection) -> None:
        """Create it by `opened` instead."""
        self.url = url
        self.connection = connection
        self._read: dict[Any, Any] = {}

    def once(self, read: Callable[..., T], *args: Any) -> T:
        """Call `read(snapshot, *args)`, or return what this call returned before. Exceptions aren't kept."""
        key = (read, *args)
        if key not in self._read:
            self._read[key] = read(self, *args)
        kept: T = self._read[key]
        return kept

    def select(self, sql: str, **parameters: Any) -> pd.DataFrame:
        """Read the rows of a SELECT, as `connection.frame`."""
        return frame(self.connection, sql, **parameters)

    @cached_property
    def experiments(self) -> list[str]:
        """Names of all experiments, in alphabetical order."""
        return reading.experiments(self.connection)

    def frames(self, experiment: str) -> Frames:
        """Return the results of an experiment.

        Raises:
            NotYet: Nothing of the experiment has been evaluated yet.
            ValueError: There is no such experiment.
        """
        return self.once(_frames, experiment)

    def metrics(self, experiment: str, names: Sequence[str]) -> pd.DataFrame:
        """Return training metrics over steps; without rows if none were logged: see `frames.metrics`."""
        return reading.load_metrics(self.connection, experiment, names)

    def diagnosis(self, experiment: str, run: str | None = None) -> Diagnosis:
        """Return the metrics of a `diagnose` run: see `frames.diagnosis`."""
        return reading.diagnosis(self.connection, experiment, run)

    def imported_from(self, experiment: str) -> str | None:
        """Return the name of the archive that an experiment came from; None if it was launched here."""
        return reading.imported_from(self.connection, experiment)


def _frames(store: Snapshot, experiment: str) -> Frames:
    return reading.read(store.connection, experiment)


@contextmanager
def opened(store: str | Snapshot) -> Iterator[Snapshot]:
    """Open a store by its URL; a snapshot that is open already is used as it is.

    Raises:
        FileNotFoundError: The URL names a SQLite file that doesn't exist.
        ValueError: What is there can't be read, or is a store of another version.
    """
    if isinstance(store, Snapshot):
        yield store
        return
    with connect(store) as connection:
        yield Snapshot(store, connection)


def opens_store(
    function: Callable[Concatenate[Snapshot, P], T],
) -> Callable[Concatenate[str | Snapshot, P], T]:
    """Let a function of a snapshot also accept the URL of a store, which is opened for the call."""

    @wraps(function)
    def opening(store: str | Snapshot, *args: P.args, **kwargs: P.kwargs) -> T:
        with opened(store) as snapshot:
            return function(snapshot, *args, **kwargs)

    return cast(Callable[Concatenate[str | Snapshot, P], T], opening)
