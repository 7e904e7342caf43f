"""One harness for each executor: it sets the scenes that the contract of executors needs."""

import dataclasses
import functools
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import labs_support as labs
import plans_support as plans
import pytest
from fake_api import FakeApi
from fake_google import FakeGoogle
from forks_support import python_path
from google.oauth2.credentials import Credentials
from tests.cluster.ports import free_port
from workers_support import Worker

from jestlab.platform import processes, programs
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Vertex as VertexSettings
from jestlab.platform.launch.executors import vertex
from jestlab.platform.launch.executors.base import Job, LaunchedJob
from jestlab.platform.launch.executors.forkserver import ForkServer
from jestlab.platform.launch.executors.local import LocalExecutor
from jestlab.platform.launch.executors.vertex import VertexExecutor
from jestlab.platform.planning.plan import Plan
from jestlab.platform.spec.resources import Resources
from jestlab.platform.store.store import Store
from jestlab.testing import executors as contracts
from jestlab.testing.executors import key_of

IMAGE = "europe-docker.pkg.dev/lab/images/jestlab@sha256:" + "0123456789abcdef" * 4
STORE = "postgresql+psycopg://ada:correct-horse@db.example/lab"

KEY = key_of("jestlab-0a1b2c3d-1")

Api = TypeVar("Api", bound=FakeApi)
AnyHarness = TypeVar("AnyHarness", bound=contracts.Harness)


def job(name: str = "jestlab-0a1b2c3d-1", **changes: Any) -> Job:
    """A job as the launcher makes them."""
    parts: dict[str, Any] = {
        "name": name,
        "title": "quickstart joint, seed 1",
        "arguments": ["--root", "/home/ada/lab", "--run", "0a1b2c3d" * 8, "--attempt", "1"],
        "environment": {"JESTLAB_STORE": STORE, "TZ": "UTC"},
        "log": Path("/nowhere/log.txt"),
        "key": key_of(name),
        "labels": {"experiment": "quickstart", "run": "joint", "seed": "1"},
    }
    return Job(**(parts | changes))


def train_here(root: Path, planned: Plan, hosts: int) -> None:
    """Train the only run of a plan in another lab, by so many processes of this machine together."""
    lab = Lab.find(root)
    root.mkdir(exist_ok=True)
    [run] = planned.runs
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, planned)
        plans.claimed(store, run)
    address = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}", "JAX_NUM_PROCESSES": str(hosts)}
    workers = [
        Worker(
            *("--root", root, "--run", run.fingerprint, "--attempt", 1),
            environment={**address, "JAX_PROCESS_ID": str(number)} if hosts > 1 else {},
            imports=programs.imports_of(run.program),
        )
        for number in range(hosts)
    ]
    for worker in workers:
        said = worker.communicate(timeout=300)[1]
        assert worker.returncode == processes.EXIT_COMPLETED, said[-3000:]


def measured(root: Path) -> list[tuple[Any, ...]]:
    """Return every point of every metric and score of a lab, except speeds, by run and seed."""
    with closing(sqlite3.connect(root / "results.db")) as store:
        return store.execute(
            "SELECT run, seed, name, step, value FROM v_metrics"
            " WHERE name NOT LIKE '%second%' AND name NOT LIKE '%data_wait%'"
            " UNION ALL SELECT run, seed, name, step, value FROM v_evaluations ORDER BY 1, 2, 3, 4"
        ).fetchall()


@contextmanager
def ready(made: AnyHarness, monkeypatch: pytest.MonkeyPatch) -> Iterator[AnyHarness]:
    """Context of a harness, in which what fails is tried again without a pause."""
    monkeypatch.setenv("JESTLAB_API_PAUSE_SECONDS", "0")
    with closing(made):
        yield made


class Remote(Generic[Api]):
    """Sets scenes for an executor that asks an API, also those in which the API fails.

    Errors are named by statuses of HTTP. Slurm, which has no HTTP, has errors of the same meanings.

    Attributes:
        names_are_unique: Whether the service refuses a second job of one name.
        remembers_removed: Whether the service still knows a removed job.
        logs_are_asked_for: Whether logs come from the service; else from the lab.
        variables_are_shown: Whether others can see the variables of a job.
    """

    remote = True
    names_are_unique = False
    remembers_removed = False
    logs_are_asked_for = True
    variables_are_shown = True
    api: Api

    def job(self, name: str) -> Job:
        return job(name)

    def spoil(self, *statuses: int) -> None:
        """Answer the next requests with these errors."""
        self.api.faults[:] = statuses

    def said(self, status: int) -> str:
        return "" if status == 401 else str(status)  # at 401 a client looks for better credentials

    def lose_an_answer(self) -> None:
        """Carry out the next request that launches a job, and lose its answer."""
        self.api.lost = 1

    def answer_late(self, seconds: float) -> None:
        self.api.delay_seconds = seconds

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.api.stop()
        yield
        self.api.start()

    def shown(self) -> str:
        """Return all that others can see of its jobs."""
        return repr(vars(self.api))

    def close(self) -> None:
        self.api.stop()


class VertexHarness(Remote[FakeGoogle]):
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = FakeGoogle()
        monkeypatch.setattr(vertex, "ENDPOINT", self.api.url)
        monkeypatch.setattr(vertex, "LOGGING", self.api.url)
        monkeypatch.setattr("google.auth.default", lambda scopes: (Credentials("the-users-token"), None))

    def executor(self, answer_seconds: float = 5.0) -> VertexExecutor:
        settings = VertexSettings(
            project="our-lab",
            region="us-west4",
            store_secret="projects/our-lab/secrets/jestlab-store/versions/latest",
            root="/gcs/our-bucket/lab",
        )
        resources = Resources(tpu="v5e-4x4", image=IMAGE)
        made = VertexExecutor(settings, resources)
        made.answer_seconds = answer_seconds
        return made

    def count(self) -> int:
        return sum(
            found["state"] in ("JOB_STATE_PENDING", "JOB_STATE_RUNNING") for found in self.api.jobs.values()
        )

    def run(self, started: LaunchedJob) -> None:
        self.api.set_state(started.handle, "JOB_STATE_RUNNING")

    def end(self, started: LaunchedJob, code: int) -> None:
        self.api.end(started.handle, code)

    def preempt(self, started: LaunchedJob) -> None:
        self.api.preempt(started.handle)

    def vanish(self, started: LaunchedJob) -> None:
        del self.api.jobs[started.handle]

    def finish_stop(self) -> None:
        self.api.finish_cancellations()

    def prints(self, started: LaunchedJob, lines: list[str]) -> None:
        for line in lines:
            self.api.say(started.handle, line)


# Asked to stop, it continues until the file `stopping` exists.
SAVES = """trap 'asked=1; touch "$me.asked"' TERM"""
_OBEDIENT = """#!/bin/sh
me="$HARNESS/{name}"
{trap}
touch "$me.began"
while :; do
    if [ -f "$me.lines" ]; then cat "$me.lines"; rm "$me.lines"; fi
    if [ -f "$me.code" ]; then
        code=$(cat "$me.code")
        if [ "$code" = 137 ]; then kill -9 $$; fi
        exit "$code"
    fi
    if [ -f "$HARNESS/over" ]; then exit 0; fi
    if [ -n "$asked" ] && [ -f "$HARNESS/stopping" ]; then rm "$me.asked"; exit 143; fi
    sleep 0.02
done
"""


class Told:
    """Jobs of a harness, whose program prints the lines, and ends with the code, that files of its name hold.

    Attributes:
        folder: Of these files.
        program: Takes the place of Python in every job.
    """

    def __init__(self, folder: Path, name: str = "$NAME", trap: str = "") -> None:
        self.folder = folder
        self.program = folder / "bin" / "python"
        self.program.parent.mkdir(parents=True)
        self.program.write_text(_OBEDIENT.format(name=name, trap=trap))
        self.program.chmod(0o755)

    def end(self, name: str, code: int) -> None:
        self._write(f"{name}.code", str(code))

    def print(self, name: str, lines: list[str]) -> None:
        """Let a job print lines, and wait until it has."""
        self._write(f"{name}.lines", "".join(f"{line}\n" for line in lines))
        labs.wait_until(lambda: not (self.folder / f"{name}.lines").exists())

    def _write(self, file: str, text: str) -> None:
        (self.folder / "ready").write_text(text)
        (self.folder / "ready").rename(self.folder / file)


class LocalHarness(contracts._LocalHarness):
    """Real processes of this machine."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(LocalExecutor, {}, folder)

    def end(self, started: LaunchedJob, code: int) -> None:
        super().end(started, code)
        [parent] = (one for one in self._executors if started.key in one._children)
        labs.wait_until(lambda: parent.statuses([started])[started].state.is_over)


class ForkedHarness(LocalHarness):
    """Real processes, forked from a server that has imported a module which does what files say."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYTHONPATH", python_path())
        super().__init__(folder, monkeypatch)

    def job(self, name: str) -> Job:
        return dataclasses.replace(super().job(name), imports=("obedient_worker",))


class SharedForkedHarness(ForkedHarness):
    """Forks of one server for all tests of this process."""

    def executor(self) -> Any:
        made: Any = super().executor()
        made._server = _fork_server()
        return made

    def close(self) -> None:
        for executor in self._executors:
            executor._server = None
        super().close()


@functools.cache
def _fork_server() -> ForkServer:
    return ForkServer(dict(os.environ), Path(tempfile.mkdtemp(prefix="jestlab-forked-")) / "log.txt")


HARNESSES: dict[str, Callable[[Path, pytest.MonkeyPatch], contracts.Harness]] = {
    "local": LocalHarness,
    "forked": SharedForkedHarness,
    "vertex": VertexHarness,
}
