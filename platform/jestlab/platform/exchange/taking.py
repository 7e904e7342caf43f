"""Take the runs of a source into a study, one after another, whatever is wrong with some of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from jestlab.platform.errors import UserError
from jestlab.platform.exchange.adopt import AdoptedRun, Change, PlaceTaken
from jestlab.platform.exchange.damage import Damaged, attempted
from jestlab.platform.exchange.placing import Placing
from jestlab.platform.exchange.source_run import FoundRun

Write = Callable[[AdoptedRun], Change | None]


@dataclass(frozen=True)
class Taken:
    """A run that was adopted, or would be.

    Attributes:
        run: As it is in the store.
        change: What that has changed; None if nothing was to be written.
    """

    run: AdoptedRun
    change: Change | None


def take(
    runs: Iterable[FoundRun],
    placing: Placing,
    write: Write,
    damaged: Damaged,
) -> Iterator[Taken]:
    """Place runs and write them, each in a transaction of its own, so that an interrupt loses nothing.

    Args:
        runs: As their tool recorded them.
        placing: Gives them their places.
        write: Writes one, and says what that has changed.
        damaged: Told of a run that cannot be placed or written.
    """
    origins = set[str]()
    for found in runs:
        taken = attempted(damaged, found.name, partial(_take, found, placing, write, origins))
        if taken is not None:
            origins.add(taken.run.origin)
            yield taken


def _take(found: FoundRun, placing: Placing, write: Write, others: Collection[str]) -> Taken:
    while True:
        run = placing.place(found)
        if run.origin in others:
            raise UserError(f"{found.name}: another copy of it was adopted just now: give the path of one")
        try:
            return Taken(run, write(run))
        except PlaceTaken as error:
            placing.learn(error.places)
