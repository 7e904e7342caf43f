"""Take the runs of a source into a study, one after another, whatever is wrong with some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from jestlab.platform.adopting.found import Damaged, FoundRun
from jestlab.platform.adopting.placing import Placing
from jestlab.platform.errors import UserError
from jestlab.platform.store.adoption import AdoptedRun, Change


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
    write: Callable[[AdoptedRun], Change | None],
    damaged: Damaged,
) -> Iterator[Taken]:
    """Place runs and write them, each in a transaction of its own, so that an interrupt loses nothing.

    Args:
        runs: As their tool recorded them.
        placing: Gives them their places.
        write: Writes one, and says what that has changed.
        damaged: Told of a run that cannot be placed or written.
    """
    for found in runs:
        try:
            run = placing.place(found)
            change = write(run)
        except UserError as error:
            damaged(error)
            continue
        yield Taken(run, change)
