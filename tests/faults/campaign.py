"""Faults injected into real launches at random moments, and what was lost by them: `make faults`.

    python tests/faults/campaign.py --faults 200 --seed 0

Each trial launches a small study, on SQLite or on a real PostgreSQL, and injects faults until the study is
complete: workers and launchers are killed, frozen, and stopped; databases are locked, restarted, killed, and
moved away; disks are filled; checkpoints are damaged. Then the study is launched until it is complete, and
every metric and score is compared with those of an undisturbed lab. Metric points that differ, are missing,
or are duplicated count as lost. So do processes that are left over, runs that two workers had at once, and
files that were made where a lab had been moved away.

To add a kind of fault, write a method of `Trial` that injects it and returns whether it could, and add a line
to `SCENES`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "platform" / "support"))

import labs_support as labs
import psutil
import psycopg
import yaml
from postgres_support import PostgresServer
from sqlalchemy import create_engine, text
from tiny_support import BENCHMARK, TOWERS

from jestlab.platform.store.address import parse_url

TOY: dict[str, Any] = {
    "name": "harmed",
    "program": "toy_programs:loop",
    "base": {"pause": 0.03},
    "runs": {
        "reference": {"steps": 60},
        "joint": {"needs": ["reference"], "steps": 80},
        "after": {"needs": ["joint"], "steps": 40},
        "uniform": {"steps": 160},
    },
    "seeds": 2,
}
TRAINED: dict[str, Any] = {
    "name": "harmed",
    "base": {
        "model": TOWERS,
        "data": {"train": {"examples": 512, "image_size": 16, "shard_size": 256}, "benchmark": BENCHMARK},
        "schedule": {"batch_size": 16, "examples_seen": 16 * 600},
        "evaluation": {"points": 3, "shots": 2, "shot_seeds": 1},
        "runtime": {"log_every_steps": 2, "checkpoint_every_steps": 20},
    },
    "runs": {
        "reference": {"initialization": 1, "schedule.examples_seen": 16 * 300},
        "joint": {"selection": {"rule": "joint", "reference": "reference", "chunks": 2}},
    },
}
BREEDING: dict[str, Any] = {
    "name": "harmed",
    "program": "command",
    "base": {"command": [sys.executable, str(Path(__file__).with_name("breeder.py"))]},
    "runs": {"one": {"steps": 120}, "two": {"steps": 160}},
    "seeds": 2,
}
RESOURCES = {"lease_seconds": 12.0, "retries": 100, "parallel": 3}
MOST_SECONDS = 600.0
LOG = "log.txt"
"""What all commands of a trial print, in its folder."""

FORK_SERVER = "jestlab.platform.launch.executors.forkserver"

Results = dict[tuple[Any, ...], Any]
"""Run, seed, name, and step → a metric, a score, or the run's state."""

BAD = ("wrong", "left_over", "at_once", "recreated", "unfinished", "misjudged")
"""Counts of `Harm` that have to be 0."""


@dataclass
class Harm:
    """What was injected, and its consequences.

    Attributes:
        injected: Kind of fault → how often.
        points: Metric points and scores compared.
        wrong: How many of them are missing, different, or duplicated.
        left_over: Processes left after a launch had ended.
        at_once: Attempts that two workers had at once.
        recreated: Files that were made where something had been moved away.
        unfinished: Trials that were not completed.
        misjudged: Attempts that a copy of the lab has ended, or that failed without a fault of their own.
        seconds: Wall time.
    """

    injected: Counter[str] = field(default_factory=Counter)
    points: int = 0
    wrong: int = 0
    left_over: int = 0
    at_once: int = 0
    recreated: int = 0
    unfinished: int = 0
    misjudged: int = 0
    seconds: float = 0.0

    @property
    def is_bad(self) -> bool:
        """Whether anything was lost."""
        return any(getattr(self, name) for name in BAD)

    def add(self, other: Harm) -> None:
        """Add another trial's."""
        self.injected += other.injected
        for name in ("points", *BAD, "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.injected.most_common())
        bad = ", ".join(f"{getattr(self, name)} {name.replace('_', ' ')}" for name in BAD)
        return f"{kinds or 'no fault'} in {self.seconds:.0f} s; of {self.points:,} results: {bad}"


def rows(url: str, *queries: str) -> list[tuple[Any, ...]]:
    """Rows of queries to a store."""
    engine = create_engine(parse_url(url))
    with engine.connect() as connection:
        found = [tuple(row) for query in queries for row in connection.execute(text(query))]
    engine.dispose()
    return found


def results(url: str) -> Results:
    """Every metric and score of a store. Rates depend on the machine, and are left out."""
    found = rows(
        url,
        "SELECT run, seed, name, step, value FROM v_metrics WHERE name NOT LIKE '%per_second%'"
        " AND name NOT LIKE '%seconds%' AND name NOT LIKE '%data_wait%'",
        "SELECT run, seed, 'score ' || name, step, value FROM v_evaluations",
        "SELECT run, seed, 'state ' || state, step, step FROM v_runs",
    )
    return {row[:4]: row[4] for row in found}


class Trial:
    """One study in one lab, with the faults that are injected into it."""

    def __init__(
        self, folder: Path, study: dict[str, Any], chance: random.Random, server: PostgresServer | None
    ) -> None:
        self.root = folder / "lab"
        self.harm = Harm()
        self._chance = chance
        self._server = server
        self.url = server.new_database() if server else f"sqlite:///{self.root / 'results.db'}"
        self._spec = folder / "study.yaml"
        self._spec.write_text(yaml.safe_dump(study | {"resources": RESOURCES}))
        self._launchers: list[subprocess.Popen[bytes]] = []
        self._copies = 0
        self._log = (folder / LOG).open("ab")

    # ---- launching

    def environment(self) -> dict[str, str]:
        """Variables of launchers."""
        return {**labs.variables(self.root), "JESTLAB_STORE": self.url}

    def launch(self) -> None:
        """Start one more launcher."""
        words = ["launch", str(self._spec), "--root", str(self.root), "--no-reports"]
        self._launchers.append(self._start(words, self.environment()))

    def _start(self, words: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start a command that writes to the trial's log."""
        return subprocess.Popen(
            [*labs.JESTLAB, *words],
            env=os.environ | environment,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def is_complete(self) -> bool:
        """Whether a launcher has completed the study; launchers that have ended are forgotten."""
        codes = [launcher.poll() for launcher in self._launchers]
        self._launchers = [one for one, code in zip(self._launchers, codes, strict=True) if code is None]
        return 0 in codes

    def workers(self) -> list[int]:
        """Live workers: processes of the lab that lead sessions and aren't launchers."""
        launchers = {launcher.pid for launcher in self._launchers}
        found = []
        for pid in labs.processes_of(self.root):
            try:
                if pid not in launchers and os.getsid(pid) == pid:
                    found.append(pid)
            except ProcessLookupError:
                continue
        return found

    # ---- faults

    def _signal_worker(self, number: signal.Signals) -> bool:
        workers = self.workers()
        return bool(workers) and _kill(self._chance.choice(workers), number)

    def worker_killed(self) -> bool:
        return self._signal_worker(signal.SIGKILL)

    def worker_stopped(self) -> bool:
        return self._signal_worker(signal.SIGTERM)

    def worker_frozen(self) -> bool:
        """Freeze one past its lease; it continues when another worker may have its run."""
        workers = self.workers()
        if not workers or not _kill(pid := self._chance.choice(workers), signal.SIGSTOP):
            return False
        threading.Timer(self._chance.uniform(8.0, 16.0), lambda: _kill(pid, signal.SIGCONT)).start()
        return True

    def _signal_launcher(self, number: signal.Signals) -> bool:
        if not self._launchers:
            return False
        launcher = self._chance.choice(self._launchers)
        launcher.send_signal(number)
        launcher.wait(60)
        self.launch()
        return True

    def launcher_killed(self) -> bool:
        return self._signal_launcher(signal.SIGKILL)

    def launcher_stopped(self) -> bool:
        return self._signal_launcher(signal.SIGTERM)

    def both_killed(self) -> bool:
        return bool(self._launchers) and self.worker_killed() and self.launcher_killed()

    def cancelled(self) -> bool:
        """Cancel the study as a user does, wait until nothing runs, and launch it again."""
        if not self._launchers:
            return False
        if self._start(["cancel", "harmed", "--root", str(self.root)], self.environment()).wait(120):
            return False
        for launcher in self._launchers:
            launcher.wait(60)
        self.harm.left_over += len(labs.processes_of(self.root))
        self.launch()
        return True

    # ---- fork servers

    def _fork_servers(self) -> list[int]:
        """The processes that fork jobs, of all launchers of this lab."""
        found = []
        for pid in labs.processes_of(self.root):
            try:
                child = psutil.Process(pid)
                if FORK_SERVER in child.cmdline() and child.ppid() in {one.pid for one in self._launchers}:
                    found.append(pid)
            except psutil.NoSuchProcess:
                continue
        return found

    def fork_server_killed(self) -> bool:
        servers = self._fork_servers()
        return bool(servers) and _kill(self._chance.choice(servers), signal.SIGKILL)

    def fork_server_frozen(self) -> bool:
        """Freeze one for some seconds in which jobs are requested; sometimes its launcher ends meanwhile."""
        servers = self._fork_servers()
        if not servers or not _kill(server := self._chance.choice(servers), signal.SIGSTOP):
            return False
        self._signal_worker(signal.SIGKILL)  # so that another job is requested
        time.sleep(self._chance.uniform(0.5, 4.0))
        if self._launchers and self._chance.random() < 0.5:
            self.launcher_killed() if self._chance.random() < 0.5 else self.launcher_stopped()
        _kill(server, signal.SIGCONT)
        return True

    # ---- copies

    def _has_file(self) -> bool:
        """Whether the store is a file that has been created."""
        return self._server is None and (self.root / "results.db").exists()

    def copy_launched(self) -> bool:
        """Copy the lab, and cancel and launch the copy: it must not touch the original's runs."""
        if not self._has_file():
            return False
        before = {pid: psutil.Process(pid).create_time() for pid in self.workers()}
        copy = self.root.with_name(f"copy{self._copies}")
        self._copies += 1
        shutil.copytree(self.root, copy, copy_function=_copy_if_there)
        for verb in (["cancel", "harmed", "--now"], ["launch", str(self._spec), "--no-reports"]):
            child = self._start([*verb, "--root", str(copy)], labs.variables(copy))
            try:
                child.wait(self._chance.uniform(1.0, 6.0) if verb[0] == "launch" else 60)
            except subprocess.TimeoutExpired:
                child.terminate()
                child.wait(60)
        self.harm.left_over += len(labs.processes_of(copy))
        # A worker may have completed meanwhile; one that the copy has ended did not.
        with sqlite3.connect(self.root / "results.db", timeout=60) as original:
            [ended] = original.execute(
                "SELECT COUNT(*) FROM attempt WHERE pid IN (SELECT value FROM json_each(?))"
                " AND state IN ('PREEMPTED', 'CANCELLED', 'FAILED')",
                [json.dumps(list(before))],
            ).fetchone()
        self.harm.misjudged += ended
        return True

    def eight_launchers(self) -> bool:
        for _ in range(8 - len(self._launchers)):
            self.launch()
        return True

    def database_restarted(self) -> bool:
        return self._end_server(lambda server: server.stop(self._chance.choice(["fast", "immediate"])))

    def server_killed(self) -> bool:
        """Kill the whole server; it recovers when it is started again."""
        return self._end_server(PostgresServer.kill)

    def _end_server(self, end: Callable[[PostgresServer], None]) -> bool:
        if self._server is None:
            return False
        end(self._server)
        time.sleep(self._chance.uniform(0.2, 6.0))
        self._server.start()
        return True

    def connections_exhausted(self) -> bool:
        """Take all connections of the server for some seconds."""
        if self._server is None:
            return False
        with ExitStack() as held:
            with suppress(psycopg.OperationalError):
                while True:
                    held.enter_context(psycopg.connect(self.url, autocommit=True))
            time.sleep(self._chance.uniform(1.0, 8.0))
        return True

    def lab_moved(self) -> bool:
        """Move it away, and back after some seconds."""
        return self._moved(self.root)

    def database_moved(self) -> bool:
        """Move only `results.db` away from its log, and back after some seconds."""
        return self._moved(self.root / "results.db")

    def _moved(self, place: Path) -> bool:
        """Move a part of a lab on SQLite, once all launchers have opened it: others would make a new one."""
        if not self._launchers or not self._have_begun():
            return False
        away = self.root.with_name(f"{place.name}-away")
        place.rename(away)
        time.sleep(self._chance.uniform(1.0, 8.0))
        if place.exists():
            made = [one for one in (place, *place.rglob("*")) if not one.is_dir()]
            self.harm.recreated += max(len(made), 1)
            print(f"    recreated: {place}: {made}", file=sys.stderr)
            place.rename(self.root.with_name(f"{place.name}-recreated-{time.monotonic_ns()}"))
        away.rename(place)
        return True

    def _have_begun(self) -> bool:
        """Whether every live launcher is in the store, which is a file."""
        if not self._has_file():
            return False
        with closing(sqlite3.connect(self.root / "results.db", timeout=30)) as connection:
            try:
                names = [str(name) for (name,) in connection.execute("SELECT name FROM launcher")]
            except sqlite3.OperationalError:  # the schema is being made
                return False
        entered = {int(name.split(":")[1]) for name in names}
        return all(launcher.poll() is None and launcher.pid in entered for launcher in self._launchers)

    def database_locked(self, seconds: float | None = None) -> bool:
        if not self._has_file():
            return False
        other = sqlite3.connect(self.root / "results.db", isolation_level=None, timeout=30)
        try:
            other.execute("BEGIN IMMEDIATE")
            time.sleep(seconds or self._chance.uniform(0.5, 4.0))
            other.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
        finally:
            other.close()
        return True

    def database_locked_30_s(self) -> bool:
        return self.database_locked(31.0)

    def disk_full(self) -> bool:
        """Fill the lab's own disk for some seconds, if the lab has one."""
        if not self.root.is_mount():
            return False
        filler = self.root / "filler"
        try:
            with filler.open("wb", buffering=0) as stream:
                while stream.write(bytes(1 << 16)):
                    continue
        except OSError:
            time.sleep(self._chance.uniform(1.0, 4.0))
        finally:
            filler.unlink(missing_ok=True)
        return True

    def checkpoint_damaged(self) -> bool:
        """Kill a worker, and flip a byte of the newest checkpoint or cut it short."""
        files = [path for path in self.root.glob("runs/*/checkpoints/[0-9]*/**/*") if path.is_file()]
        newest = [path for path in files if path.stat().st_size > 1_000]
        if not newest or not self._signal_worker(signal.SIGKILL):
            return False
        try:
            path = max(newest, key=lambda one: one.stat().st_mtime)
        except FileNotFoundError:  # an old checkpoint has just been deleted
            return False
        content = bytearray(path.read_bytes())
        if self._chance.random() < 0.5:
            content = content[: len(content) // 2]
        else:
            content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
        return True

    # ---- all of it

    def run(self, kinds: Sequence[str], faults: int, expected: Results | None = None) -> Harm:
        """Inject so many faults while the study runs, complete it, and compare its results."""
        began = time.monotonic()
        self.launch()
        injected = 0
        while injected < faults and time.monotonic() - began < MOST_SECONDS:
            time.sleep(self._chance.uniform(0.3, 2.0))
            if self.is_complete():
                break
            if not self._launchers:
                self.launch()
                continue
            kind = self._chance.choice(kinds)
            if getattr(self, kind)():
                self.harm.injected[kind] += 1
                injected += 1
        while not self.is_complete():
            if time.monotonic() - began > MOST_SECONDS:
                self.harm.unfinished += 1
                break
            if not self._launchers:
                self.launch()
            time.sleep(0.2)
        self._end()
        self.harm.seconds = time.monotonic() - began
        if expected is not None:
            self.compare(expected)
        return self.harm

    def _end(self) -> None:
        for launcher in self._launchers:
            try:
                launcher.wait(30)
            except subprocess.TimeoutExpired:
                self.harm.left_over += 1
        time.sleep(0.5)
        left = labs.processes_of(self.root)
        self.harm.left_over += len(left)
        for pid in left:
            _kill(pid, signal.SIGKILL)
        self._log.close()

    def compare(self, expected: Results) -> None:
        """Count what differs from an undisturbed lab."""
        found = results(self.url)
        self.harm.points += len(expected)
        missing = expected.keys() ^ found.keys()
        different = [key for key in expected.keys() & found.keys() if expected[key] != found[key]]
        self.harm.wrong += len(missing) + len(different)
        for key in [*sorted(missing, key=str), *different][:5]:
            print(f"    {key}: {expected.get(key)} became {found.get(key)}", file=sys.stderr)
        self.harm.at_once += self._overlapping() + len(list(self.root.glob("runs/*/overlap.txt")))

    def _overlapping(self) -> int:
        query = "SELECT run_id, number, claimed_at, ended_at FROM attempt ORDER BY run_id, number"
        pairs = itertools.pairwise(rows(self.url, query))
        return sum(a[0] == b[0] and (a[3] is None or b[2] < a[3]) for a, b in pairs)


def _copy_if_there(source: str, target: str) -> None:
    """Copy a file that may vanish while its folder is copied."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def _kill(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def disk(folder: Path, megabytes: int) -> Iterator[None]:
    """Context with a small disk at a folder, if this process may mount one."""
    folder.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    made = os.geteuid() == 0 and subprocess.run(["mount", *options], capture_output=True).returncode == 0
    try:
        yield
    finally:
        if made:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def undisturbed(study: dict[str, Any]) -> Results:
    """The results of a lab where nothing goes wrong."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), study, random.Random(0), None)
        harm = trial.run([], 0)
        if harm.unfinished:
            raise RuntimeError("the undisturbed study was not completed")
        return results(trial.url)


KILLS = ["worker_killed", "worker_stopped", "launcher_killed", "launcher_stopped", "both_killed"]
SCENES: list[tuple[str, dict[str, Any], bool, list[str], int, int]] = [
    # name, study, on PostgreSQL, kinds of faults, faults of a trial, megabytes of its disk
    ("kills, SQLite", TOY, False, KILLS, 8, 0),
    ("kills, PostgreSQL", TOY, True, KILLS, 8, 0),
    ("restarts of PostgreSQL", TOY, True, ["database_restarted", *KILLS], 6, 0),
    ("locks of SQLite", TOY, False, ["database_locked", *KILLS], 8, 0),
    ("freezes", TOY, False, ["worker_frozen", "worker_killed"], 3, 0),
    ("eight launchers", TOY, True, ["eight_launchers", "eight_launchers", *KILLS], 6, 0),
    ("full disks", TOY, False, ["disk_full", "worker_killed", "launcher_killed"], 6, 12),
    ("training, damage", TRAINED, False, ["checkpoint_damaged"], 3, 0),
    ("training, full disks", TRAINED, False, ["disk_full", "worker_killed"], 3, 96),
    ("commands with descendants", BREEDING, False, [*KILLS, "cancelled"], 8, 0),
    ("fork servers", TRAINED, False, ["fork_server_killed", "fork_server_frozen", "launcher_stopped"], 5, 0),
    ("copies beside the lab", TOY, False, ["copy_launched"], 3, 0),
    ("SQLite locked for 30 s", TOY, False, ["database_locked_30_s"], 1, 0),
    ("labs moved", TOY, False, ["lab_moved", "lab_moved", *KILLS], 6, 0),
    ("results.db moved", TOY, False, ["database_moved", "database_moved", *KILLS], 6, 0),
    ("PostgreSQL killed", TOY, True, ["server_killed", "server_killed", *KILLS], 6, 0),
    ("no connection left", TOY, True, ["connections_exhausted", "connections_exhausted", *KILLS], 6, 0),
]


def run_trials(options: argparse.Namespace, trial: Callable[[int, Path, random.Random], Harm]) -> int:
    """Run trials until enough faults have been injected, and print how each went.

    Args:
        options: How many faults, and the seed of the moments at which they happen.
        trial: Runs the trial of a number in a folder.

    Returns:
        The exit status: 1 if anything was lost.
    """
    total, number = Harm(), 0
    while total.injected.total() < options.faults:
        with tempfile.TemporaryDirectory() as folder:
            harm = trial(number, Path(folder), random.Random(f"{options.seed} {number}"))
            if harm.is_bad:
                print((Path(folder) / LOG).read_text()[-3_000:])
        total.add(harm)
        print(f"{number:3d}: {harm}", flush=True)
        number += 1
    print(f"\n{total.injected.total()} faults in {number} trials: {total}")
    return int(total.is_bad)


def parser(doc: str | None, faults: int) -> argparse.ArgumentParser:
    """Options of every campaign."""
    found = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--faults", type=int, default=faults, help=f"how many at least; default: {faults}")
    found.add_argument("--seed", type=int, default=0, help="of the moments at which they happen")
    return found


def main() -> int:
    """Run trials, one scene after the other."""
    arguments = parser(__doc__, 200)
    arguments.add_argument("--scenes", type=int, nargs="*", help="numbers in SCENES; by default all of them")
    options = arguments.parse_args()
    scenes = SCENES if options.scenes is None else [SCENES[number] for number in options.scenes]
    expected: dict[int, Results] = {}

    def run(number: int, folder: Path, chance: random.Random) -> Harm:
        name, study, on_server, kinds, faults, megabytes = scenes[number % len(scenes)]
        print(f"{name}:", flush=True)
        if id(study) not in expected:
            expected[id(study)] = undisturbed(study)
        with disk(folder / "lab", megabytes) if megabytes else nullcontext():
            trial = Trial(folder, study, chance, server if on_server else None)
            return trial.run(kinds, min(faults, options.faults), expected[id(study)])

    with closing(PostgresServer()) as server:
        server.start()
        return run_trials(options, run)


if __name__ == "__main__":
    sys.exit(main())
