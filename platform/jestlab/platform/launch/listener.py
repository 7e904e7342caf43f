"""Who is told what happens during a launch: the terminal, a log, or nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jestlab.platform.store.states import RunState

if TYPE_CHECKING:
    from jestlab.platform.launch.target import Target
    from jestlab.platform.store.records import Progress


class Listener:
    """Told of each change; this one ignores all of it."""

    def begin(self, count: int) -> None:
        """So many runs of the study are not COMPLETED, and so are launched."""

    def state(self, run: Target, state: RunState, reason: str | None = None) -> None:
        """A run has a new state, or another reason for it. In one that is terminal it stays."""

    def note(self, message: str) -> None:
        """Something that concerns no single run."""

    def progress(self, found: Mapping[str, Progress]) -> None:
        """How far the running runs are, by fingerprint; about once a second."""

    def end(self) -> None:
        """Nothing follows."""
