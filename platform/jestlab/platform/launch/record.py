"""XManager's record of a launch. It is optional: runs don't depend on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.platform import logs
from jestlab.platform.launch.executors.base import Executor, ExecutorError, Job, LaunchedJob

if TYPE_CHECKING:  # importing XManager takes a second
    from jestlab.platform.launch.xmanager import XManagerExperiment


@dataclass
class XManagerRecord:
    """An XManager experiment, created when the first run is about to start."""

    folder: Path  # folder of XManager's database
    title: str  # name of the study
    note: Callable[[str], None]  # receives the reason, once, if the record is missing or incomplete
    opened: bool = False  # whether the experiment was requested
    _experiment: XManagerExperiment | None = None
    _is_complete: bool = True
    _context: Context = field(default_factory=copy_context)

    async def open(self) -> None:
        """Create the experiment. It takes a second, so only a launch that starts runs does it."""
        self.opened = True
        await self._try(self._create())

    async def add(
        self, executor: Executor, jobs: Sequence[Job], results: Sequence[LaunchedJob | ExecutorError]
    ) -> None:
        """Add a work unit for each job, after all were launched with these results."""
        if self._experiment is not None and self._is_complete:
            await self._try(self._experiment.add(executor, jobs, results))

    async def close(self) -> None:
        """Close the experiment."""
        if self._experiment is not None:
            await self._try(self._experiment.__aexit__(None, None, None))

    async def _create(self) -> None:
        from jestlab.platform.launch.xmanager import XManagerExperiment

        experiment = await asyncio.to_thread(XManagerExperiment, self.folder, self.title)
        self._experiment = await experiment.__aenter__()

    async def _try(self, work: Coroutine[Any, Any, object]) -> None:
        # XManager keeps its experiment in a context variable, which must not depend on the task that calls.
        task = asyncio.get_running_loop().create_task(work, context=self._context)
        try:
            await task
        except Exception as error:
            if self._is_complete:
                why = logs.one_line(f"{type(error).__name__}: {error}", 200)
                self.note(f"XManager's record of this launch is incomplete: {why}")
            self._is_complete = False
