"""XManager's record of a launch: a courtesy, which what runs does not depend on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jestlab.platform import logs
from jestlab.platform.launch.executors.base import Executor, ExecutorError, Job, LaunchedJob

if TYPE_CHECKING:  # imports XManager, which takes a second
    from jestlab.platform.launch.xmanager import Experiment


@dataclass
class Record:
    """An experiment of XManager, made when the first run is about to start.

    Attributes:
        folder: For XManager's database.
        title: Name of the study.
        complain: Called once with the reason if there is no record, or only part of one.
        opened: Whether the experiment has been requested.
    """

    folder: Path
    title: str
    complain: Callable[[str], None]
    opened: bool = False
    _experiment: Experiment | None = None
    _is_kept: bool = True

    async def open(self) -> None:
        """Create XManager's experiment. Not at the beginning: it takes a second, and may not be needed."""
        self.opened = True
        try:
            from jestlab.platform.launch.xmanager import Experiment

            made = await asyncio.to_thread(Experiment, self.folder, self.title)
            self._experiment = await made.__aenter__()
        except Exception as error:
            self._lacks(error)

    async def add(
        self, executor: Executor, jobs: Sequence[Job], found: Sequence[LaunchedJob | ExecutorError]
    ) -> None:
        """Make a work unit of each job that was launched, or was to be, where there is a record.

        It is made while the jobs begin, so that none waits for it.

        Args:
            executor: The jobs'.
            jobs: The jobs.
            found: What has become of each.
        """
        if self._experiment is not None and self._is_kept:
            try:
                await self._experiment.add(executor, jobs, found)
            except Exception as error:
                self._lacks(error)

    async def close(self) -> None:
        """Let XManager end its experiment."""
        if self._experiment is not None:
            try:
                await self._experiment.__aexit__(None, None, None)
            except Exception as error:
                self._lacks(error)

    def _lacks(self, error: Exception) -> None:
        if self._is_kept:
            why = logs.one_line(f"{type(error).__name__}: {error}", 200)
            self.complain(f"XManager keeps no record of this launch, or no whole one: {why}")
        self._is_kept = False
