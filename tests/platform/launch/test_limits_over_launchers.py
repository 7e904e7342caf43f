"""What `--parallel` and `--max-chip-hours` say holds for a store, however many launchers there are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import labs_support as labs
from forks_support import COMMAND, Process, fork
from sqlalchemy import text

from jestlab.platform.store.store import Store

LAUNCHERS = 8


class Launcher(Process):
    """A launcher of a study of its own: see `launcher_process`.

    Attributes:
        log: What it prints.
    """

    def __init__(self, **given: Any) -> None:
        root = Path(given["root"])
        self.log = root / f"{given['study']}.txt"
        environment = {**os.environ, **labs.variables(root), "JESTLAB_TEST_COMMAND": "launcher"}
        words = [json.dumps(given), "--root", str(root)]
        super().__init__(fork(words, environment, self.log, COMMAND))

    def said(self) -> list[str]:
        return self.log.read_text().splitlines()


@contextmanager
def launchers(
    root: Path, store_url: str, gate: Path, count: int = LAUNCHERS, **given: Any
) -> Iterator[list[Launcher]]:
    """Start launchers of a study each, all at once; what is left of them is killed in the end."""
    defaults = {"runs": 2, "parallel": None, "chip_hours": 2.5, "max_chip_hours": None}
    files = {"gate": str(gate), "release": str(gate.with_name("release"))}
    shared = {"root": str(root), "store": store_url, **files, **defaults, **given}
    root.mkdir(exist_ok=True)
    processes = [Launcher(**shared, study=f"study{number}") for number in range(count)]
    try:
        for process in processes:
            labs.wait_until(process.said, 60.0)
        gate.touch()
        yield processes
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()


def outcomes(processes: list[Launcher]) -> list[tuple[int, str | None]]:
    for process in processes:
        process.wait()
    return [tuple(json.loads(process.said()[-1])) for process in processes]


def spans(store_url: str) -> list[tuple[Any, Any]]:
    """When each attempt was claimed, and when it ended."""
    store = Store.open(store_url)
    try:
        with store.reading() as connection:
            found = connection.execute(text("SELECT claimed_at, ended_at FROM attempt ORDER BY claimed_at"))
            return [(row.claimed_at, row.ended_at) for row in found]
    finally:
        store.close()


def most_at_once(store_url: str) -> int:
    found = spans(store_url)
    return max(len([a for a, b in found if a <= claimed < b]) for claimed, _ in found)


def reasons(store_url: str) -> list[str]:
    """Why runs wait."""
    store = Store.open(store_url)
    try:
        with store.reading() as connection:
            return list(connection.scalars(text("SELECT reason FROM run WHERE reason IS NOT NULL")))
    finally:
        store.close()


def test_eight_launchers_have_four_slots_together(store_url, root, tmp_path):
    with launchers(root, store_url, tmp_path / "gate", parallel=4) as processes:
        labs.wait_until(lambda: len(reasons(store_url)) == 2 * LAUNCHERS - 4, 60.0)
        assert len(spans(store_url)) == 4
        assert all(reason.startswith("waits for a slot: 4 of 4 taken") for reason in reasons(store_url))
        (tmp_path / "release").touch()
        assert [stopped for _, stopped in outcomes(processes)] == [None] * LAUNCHERS
    assert len(spans(store_url)) == 2 * LAUNCHERS
    assert most_at_once(store_url) == 4


def test_eight_launchers_stay_below_one_limit_of_chip_hours(store_url, root, tmp_path):
    """Those of which nothing can start end at once, and say so; the others end when their runs have."""
    with launchers(root, store_url, tmp_path / "gate", max_chip_hours=10.0) as processes:
        labs.wait_until(lambda: len([p for p in processes if p.poll() is not None]) >= LAUNCHERS - 4, 60.0)
        assert len(spans(store_url)) == 4
        (tmp_path / "release").touch()
        ended = outcomes(processes)
    assert most_at_once(store_url) == 4
    assert {code for code, _ in ended} == {1}
    stopped = [said for _, said in ended if said is not None]
    assert len(stopped) >= LAUNCHERS - 4
    assert all(said.startswith("the limit of 10 chip-hours is reached, ") for said in stopped)


def test_a_slot_of_a_launcher_that_died_with_its_job_is_free(root, sqlite_url, tmp_path):
    """Its attempt is still live in the store, and nobody of its study is there to end it."""
    with launchers(root, sqlite_url, tmp_path / "gate", 1, runs=1, parallel=1) as [first]:
        labs.wait_until(lambda: spans(sqlite_url))
        first.kill()
        first.wait()
    with Store.open(sqlite_url).writing() as connection:
        # Its job is not to be found any more, either: it was never launched.
        connection.execute(text("UPDATE attempt SET handle = NULL"))
        connection.execute(text("UPDATE experiment SET name = 'gone'"))
        connection.execute(text("UPDATE run SET fingerprint = 'gone', directory = 'gone'"))
    (tmp_path / "gate").unlink()
    (tmp_path / "release").touch()
    with launchers(root, sqlite_url, tmp_path / "gate", 1, runs=1, parallel=1) as processes:
        assert outcomes(processes) == [(1, None)]
    assert len(spans(sqlite_url)) == 2


def test_status_says_who_has_the_slots(root, sqlite_url, tmp_path):
    with launchers(root, sqlite_url, tmp_path / "gate", 2, runs=3, parallel=4):
        labs.wait_until(lambda: len(spans(sqlite_url)) == 4)

        def waiting() -> bool:
            shown = [
                json.loads(labs.here("status", f"study{n}", "--store", sqlite_url, "--json").stdout)
                for n in (0, 1)
            ]
            reasons = [run["reason"] or "" for study in shown for run in study]
            return sum(reason in waits for reason in reasons) == 2

        waits = [f"waits for a slot: 4 of 4 taken, {n} by another launch" for n in (1, 2, 3)]
        labs.wait_until(waiting)
