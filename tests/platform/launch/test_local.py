"""Our executor inside XManager: the canary for every private attribute that it leans on."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from xmanager import xm, xm_local
from xmanager.xm_local import registry

from jestlab.platform.lab import Lab
from jestlab.platform.launch import local


class Bench:
    """One XManager experiment in a lab, to which shell commands can be added."""

    def __init__(self, lab: Lab, places: int = 2) -> None:
        self.lab = lab
        self.places = asyncio.Semaphore(places)
        self.started: list[int] = []
        self.nothing = os.open(os.devnull, os.O_RDONLY)

    async def __aenter__(self) -> Bench:
        self.experiment = local.create_experiment(self.lab, "bench")
        await self.experiment.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        with local.silenced():
            await self.experiment.__aexit__(None, None, None)
        os.close(self.nothing)

    async def add(self, command: str, path: str = "/bin/sh") -> Any:
        [executable] = self.experiment.package([xm.binary(xm_local.LocalSpec(), path, args=["-c", command])])
        log = self.lab.root / "log.txt"
        executor = local.LocalProcess(self.places, log, self.nothing, self.started.append)
        return await self.experiment.add(xm.Job(executable, executor))


@pytest.fixture
def lab(root: Path) -> Lab:
    return Lab.find(root)


def test_the_version_that_the_private_attributes_were_read_in():
    assert importlib.metadata.version("xmanager") == "0.8.5.post1"
    assert registry.is_registered(local.LocalProcess)


def test_a_work_unit_waits_for_its_process_and_knows_its_status(lab):
    async def check() -> None:
        async with Bench(lab) as bench:
            unit = await bench.add("echo said; sleep 0.1")
            assert unit.get_status().is_active
            await unit.wait_until_complete()
            assert unit.get_status().is_completed
            assert unit.get_status().exit_code == 0
            assert bench.started == [unit.get_status().pid]

    asyncio.run(check())
    assert (lab.root / "log.txt").read_text() == "said\n"


def test_a_failure_is_told_to_who_waits_and_not_again_at_the_exit(lab):
    async def check() -> None:
        async with Bench(lab) as bench:
            unit = await bench.add("exit 3")
            with pytest.raises(xm.ExperimentUnitFailedError, match="exit code 3"):
                await unit.wait_until_complete()
            assert unit.get_status().is_failed
            assert (await bench.add("true")) is not unit  # the experiment can still be added to

    asyncio.run(check())


def test_stop_ends_the_whole_group(lab):
    async def check() -> None:
        async with Bench(lab) as bench:
            unit = await bench.add("sleep 600 & sleep 600 & wait")
            while unit.get_status().pid is None:
                await asyncio.sleep(0.01)
            unit.stop()
            await unit.wait_until_complete()
            status = unit.get_status()
            assert not (status.is_active or status.is_completed or status.is_failed)
            assert status.exit_code == -signal.SIGTERM

    asyncio.run(check())  # that no child is left is seen by the fixture


def test_kill_ends_what_ignores_a_stop(lab):
    async def check() -> None:
        async with Bench(lab) as bench:
            unit = await bench.add("trap '' TERM; echo ready; while true; do sleep 0.05; done")
            while not (lab.root / "log.txt").exists() or not (lab.root / "log.txt").read_text():
                await asyncio.sleep(0.01)
            unit.stop()
            await asyncio.sleep(0.2)
            assert unit.get_status().is_active
            local.kill(unit)
            await unit.wait_until_complete()
            assert unit.get_status().exit_code == -signal.SIGKILL

    asyncio.run(check())


def test_what_has_no_place_waits_and_can_be_stopped_unstarted(lab):
    async def check() -> None:
        async with Bench(lab, places=1) as bench:
            first = await bench.add("sleep 0.3")
            second = await bench.add("true")
            third = await bench.add("true")
            await asyncio.sleep(0.1)
            assert len(bench.started) == 1
            third.stop()
            await third.wait_until_complete()
            assert third.get_status().pid is None
            await first.wait_until_complete()
            await second.wait_until_complete()
            assert len(bench.started) == 2

    asyncio.run(check())


def test_a_process_that_cannot_be_spawned_is_a_failure_of_its_unit_alone(lab, tmp_path):
    (tmp_path / "no_program").write_text("")

    async def check() -> None:
        async with Bench(lab) as bench:
            unit = await bench.add("true", path=str(tmp_path / "no_program"))
            with pytest.raises(xm.ExperimentUnitFailedError, match="cannot start"):
                await unit.wait_until_complete()
            assert unit.get_status().pid is None
            other = await bench.add("true")
            await other.wait_until_complete()

    asyncio.run(check())


def test_xmanager_keeps_its_database_in_the_lab_whichever_lab_was_before(lab, tmp_path, capfd):
    async def check(where: Lab) -> None:
        async with Bench(where) as bench:
            await (await bench.add("true")).wait_until_complete()

    other = Lab.find(tmp_path / "other")
    for where in (lab, other):
        asyncio.run(check(where))
        units = sqlite3.connect(where.root / "xmanager" / "experiments.db").execute(
            "SELECT COUNT(*) FROM work_unit"
        )
        assert units.fetchone() == (1,)
    assert capfd.readouterr() == ("", "")


def test_flags_for_threads_are_added_to_the_users_own(lab, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/nowhere")
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    env = local.worker_environment(lab, threads=1)
    assert env["XLA_FLAGS"] == "--xla_dump_to=/nowhere --xla_cpu_multi_thread_eigen=false"
    assert env["JAX_COMPILATION_CACHE_DIR"] == str(lab.root / "cache" / "jax")
    assert local.worker_environment(lab, threads=4)["XLA_FLAGS"] == "--xla_dump_to=/nowhere"
