"""Launch through XManager: each study is one of its experiments, each attempt a work unit.

XManager's own executors lack features that jestlab needs (see `executors`). The executor class here gives a
work unit the job that one of jestlab's executors has launched, so that `wait_until_complete`, `get_status`,
and `stop` of XManager's API work.

Only this module uses private attributes of XManager, whose version is pinned.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attr
import yaml
from absl import flags
from absl import logging as absl_logging
from filelock import FileLock
from sqlalchemy import event
from xmanager import xm, xm_local
from xmanager.xm import job_operators
from xmanager.xm_local import handles, registry, status
from xmanager.xm_local.storage import database

from jestlab.platform.launch.executors.base import (
    Executor,
    ExecutorError,
    Job,
    JobState,
    JobStatus,
    LaunchedJob,
)

_STATES = status.LocalWorkUnitStatusEnum
_POLL_SECONDS = 1.0
_LOCK_SECONDS = 10.0
_OVER = {
    JobState.SUCCEEDED: _STATES.COMPLETED,
    JobState.FAILED: _STATES.FAILED,
    JobState.PREEMPTED: _STATES.FAILED,
    JobState.GONE: _STATES.CANCELLED,
}


class LaunchedHandle(handles.ExecutionHandle):  # type: ignore[misc]  # XManager has no types
    """A launched job, or the error of its launch, for XManager's work units."""

    def __init__(self, executor: Executor, job: LaunchedJob | ExecutorError) -> None:
        self._executor = executor
        self._job = job

    async def wait(self) -> None:
        """Wait until the job has ended; raise RuntimeError, which XManager expects, if it failed."""
        while not (status := await asyncio.to_thread(self._status)).state.is_over:
            await asyncio.sleep(_POLL_SECONDS)
        if status.state in (JobState.FAILED, JobState.PREEMPTED):
            raise RuntimeError(status.reason)

    def get_status(self) -> Any:
        """Return the status of the job."""
        seen = self._status()
        return status.LocalWorkUnitStatus(_OVER.get(seen.state, _STATES.RUNNING), seen.reason)

    def save_to_storage(self, experiment_id: int, work_unit_id: int) -> None:
        """Do nothing: the results store records the job."""

    def stop(self) -> None:
        """Ask the job to stop."""
        if isinstance(self._job, LaunchedJob):
            self._executor.stop(self._job, now=False)

    def _status(self) -> JobStatus:
        if isinstance(self._job, LaunchedJob):
            return self._executor.statuses([self._job])[self._job]
        return JobStatus(JobState.FAILED, str(self._job))


@attr.s(auto_attribs=True)
class Handover(xm.Executor):  # type: ignore[misc]
    """XManager's executor for jobs that one of jestlab's executors has launched together: see `add`."""

    launched: LaunchedHandle

    Spec = xm_local.LocalSpec

    @classmethod
    async def launch(cls, local_experiment_unit: Any, job_group: xm.JobGroup) -> list[Any]:
        """Give the work unit its jobs. XManager calls this for one work unit after another."""
        for job in job_operators.flatten_jobs(job_group):
            # As non-local handles: then the experiment neither waits for them when it exits, nor raises
            # errors again that were already handled.
            local_experiment_unit._non_local_execution_handles.append(job.executor.launched)
        return []


registry.register(Handover, launch=None)


class _Config(database.Config):  # type: ignore[misc]
    """Escapes % in paths, for which Alembic expects a placeholder. URLs contain % for é."""

    def set_main_option(self, name: str, value: str) -> None:
        """Set an option."""
        super().set_main_option(name, value.replace("%", "%%"))


database.Config = _Config


class XManagerExperiment:
    """An experiment of XManager, to which attempts are added."""

    def __init__(self, folder: Path, title: str) -> None:
        """Create the experiment, with its metadata and log in a new folder of the lab."""
        folder.mkdir(exist_ok=True)  # without its parent: a lab that was moved away may return there
        _quiet(folder / "log.txt")
        # Two launchers must not create the tables at once, nor get the same id, the time in milliseconds.
        with FileLock(folder / "lock", timeout=_LOCK_SECONDS):
            _use_database(folder)
            self._experiment = xm_local.create_experiment(experiment_title=title)
            while int(self._experiment.experiment_id) >= int(time.time() * 1_000):
                continue
        self._executable: Any = None

    async def __aenter__(self) -> XManagerExperiment:
        await self._experiment.__aenter__()
        # Packaging a "binary" only checks that its path exists; the executors run other commands.
        [self._executable] = self._experiment.package([xm.binary(xm_local.LocalSpec(), "/bin/sh", args=[])])
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints
            await self._experiment.__aexit__(None, None, None)

    async def add(
        self, executor: Executor, jobs: Sequence[Job], found: Sequence[LaunchedJob | ExecutorError]
    ) -> None:
        """Create a work unit for each job that was launched or failed to launch.

        The jobs are launched together before, since XManager launches one work unit after another.
        """
        added = [
            self._experiment.add(
                xm.Job(
                    self._executable,
                    Handover(LaunchedHandle(executor, one)),
                    name=job.title,
                    args=list(job.arguments),
                )
            )
            for job, one in zip(jobs, found, strict=True)
        ]
        await asyncio.gather(*added)


def _use_database(folder: Path) -> None:
    """Point XManager at a database in the folder, even if this process used another before."""
    config = folder / "database.yaml"
    settings = {"backend": "sqlite", "db_name": str(folder / "experiments.db")}
    unfinished = config.with_suffix(".new")
    unfinished.write_text(yaml.safe_dump({"sql_connector": "sqlite", "sql_connection_settings": settings}))
    unfinished.replace(config)
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["jestlab"])
    flags.FLAGS["xm_db_yaml_config_path"].value = str(config)
    for cached in (database._db_config, database.db_connector, database.db_settings, database.database):
        cached.cache_clear()
    engine = database.database().engine

    @event.listens_for(engine, "connect")
    def _write_ahead(connection: Any, _: Any) -> None:
        # A work unit is a transaction. By SQLite's defaults each waits for the disk several times before its
        # job starts. If the machine loses power, it is enough that the file isn't corrupt.
        with contextlib.suppress(sqlite3.OperationalError):  # another launcher is using the file right now
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")

    engine.dispose()


def _quiet(log: Path) -> None:
    """Send absl's log, to which XManager writes, to a file instead of the terminal."""
    logger = absl_logging.get_absl_logger()
    logger.propagate = False
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    to_file = logging.FileHandler(log, delay=True)
    to_file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(to_file)
