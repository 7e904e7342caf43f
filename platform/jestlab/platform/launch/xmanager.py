"""Record launches in XManager: each launch as an experiment, each attempt as a work unit.

jestlab's executors launch the jobs, because XManager's executors lack required features (see `executors`).
`LaunchedJobExecutor` attaches a launched job to its work unit, so that XManager's `wait_until_complete`,
`get_status`, and `stop` work.

Only this module uses private attributes of XManager, whose version is pinned.
"""

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
_LOCK_TIMEOUT_SECONDS = 10.0
_END_STATES = {
    JobState.SUCCEEDED: _STATES.COMPLETED,
    JobState.FAILED: _STATES.FAILED,
    JobState.PREEMPTED: _STATES.FAILED,
    JobState.GONE: _STATES.CANCELLED,
}


class LaunchedHandle(handles.ExecutionHandle):  # type: ignore[misc]  # XManager has no types
    """XManager's handle for a launched job, or for the error if the launch failed."""

    def __init__(self, executor: Executor, job: LaunchedJob | ExecutorError) -> None:
        self._executor = executor
        self._job = job

    async def wait(self) -> None:
        """Wait until the job has ended; raise RuntimeError, as XManager expects, if it didn't succeed."""
        while not (status := await asyncio.to_thread(self._status)).state.is_over:
            await asyncio.sleep(_POLL_SECONDS)
        if status.state in (JobState.FAILED, JobState.PREEMPTED):
            raise RuntimeError(status.reason)

    def get_status(self) -> Any:
        """Return the status of the job."""
        seen = self._status()
        return status.LocalWorkUnitStatus(_END_STATES.get(seen.state, _STATES.RUNNING), seen.reason)

    def save_to_storage(self, experiment_id: int, work_unit_id: int) -> None:
        """Do nothing: jestlab's store records the job."""

    def stop(self) -> None:
        """Ask the job to stop."""
        if isinstance(self._job, LaunchedJob):
            self._executor.stop(self._job, now=False)

    def _status(self) -> JobStatus:
        if isinstance(self._job, LaunchedJob):
            return self._executor.statuses([self._job])[self._job]
        return JobStatus(JobState.FAILED, str(self._job))


@attr.s(auto_attribs=True)
class LaunchedJobExecutor(xm.Executor):  # type: ignore[misc]
    """Executor for XManager that launches nothing: it attaches a job that was launched before (see `add`)."""

    launched: LaunchedHandle

    Spec = xm_local.LocalSpec

    @classmethod
    async def launch(cls, local_experiment_unit: Any, job_group: xm.JobGroup) -> list[Any]:
        """Attach the launched jobs to the work unit. XManager calls this for one work unit at a time."""
        for job in job_operators.flatten_jobs(job_group):
            # Handles are added as non-local: then the experiment doesn't wait for the jobs when it exits, and
            # doesn't raise errors that jestlab has already handled.
            local_experiment_unit._non_local_execution_handles.append(job.executor.launched)
        return []


registry.register(LaunchedJobExecutor, launch=None)


class _Config(database.Config):  # type: ignore[misc]
    """Escapes "%" in options, such as the %C3%A9 for é in a URL: Alembic would read it as a placeholder."""

    def set_main_option(self, name: str, value: str) -> None:
        """Set an option to a value, in which "%" is an ordinary character."""
        super().set_main_option(name, value.replace("%", "%%"))


database.Config = _Config


class XManagerExperiment:
    """An XManager experiment, to which attempts are added as work units."""

    def __init__(self, folder: Path, title: str) -> None:
        """Create the experiment, with its metadata and log in a new folder of the lab."""
        folder.mkdir(exist_ok=True)  # without parents: the lab's folder may have been moved
        _redirect_absl_log(folder / "log.txt")
        # Two launchers must not create the tables at once, nor use the same id: the time in milliseconds.
        with FileLock(folder / "lock", timeout=_LOCK_TIMEOUT_SECONDS):
            _use_database(folder)
            self._experiment = xm_local.create_experiment(experiment_title=title)
            while int(self._experiment.experiment_id) >= int(time.time() * 1_000):
                continue
        self._executable: Any = None

    async def __aenter__(self) -> "XManagerExperiment":
        await self._experiment.__aenter__()
        # Packaging a "binary" only checks that its path exists; the executors run other commands.
        [self._executable] = self._experiment.package([xm.binary(xm_local.LocalSpec(), "/bin/sh", args=[])])
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.redirect_stdout(io.StringIO()):  # XManager prints a message
            await self._experiment.__aexit__(None, None, None)

    async def add(
        self, executor: Executor, jobs: Sequence[Job], results: Sequence[LaunchedJob | ExecutorError]
    ) -> None:
        """Create a work unit for each job. `results` are the launched jobs, or the errors of failed launches.

        The caller has launched all jobs together, because XManager launches one work unit at a time.
        """
        added = [
            self._experiment.add(
                xm.Job(
                    self._executable,
                    LaunchedJobExecutor(LaunchedHandle(executor, result)),
                    name=job.title,
                    args=list(job.arguments),
                )
            )
            for job, result in zip(jobs, results, strict=True)
        ]
        await asyncio.gather(*added)


def _use_database(folder: Path) -> None:
    """Make XManager use the database in a folder, even if this process used another one before."""
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
        # Each work unit is a transaction. With SQLite's defaults, each transaction waits for the disk several
        # times. These settings are faster: after a power loss, the file isn't corrupt, but may lack the last
        # work units.
        with contextlib.suppress(sqlite3.OperationalError):  # another launcher has locked the file
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")

    engine.dispose()


def _redirect_absl_log(log: Path) -> None:
    """Write absl's log, which XManager uses, to a file instead of the terminal."""
    logger = absl_logging.get_absl_logger()
    logger.propagate = False
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    to_file = logging.FileHandler(log, delay=True)
    to_file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(to_file)
