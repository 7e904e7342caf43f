"""Faults injected into launches of two machines that share a folder, without a database server.

    python tests/faults/shared_campaign.py --faults 60 --seed 0

Two nodes, each with its host name, process ids, local disk, and mount of one folder, launch the same study of
60 runs. They may write to the folder as different users. Their processes are killed and frozen, their
connections to the folder are cut and stalled, and whole nodes are killed, which may lose their disks.
`campaign.py` says what counts as lost. Besides, the store must be the same for both nodes and for a third
machine that has never seen it, and its tables the same as those of an undisturbed lab.

`--database` has the results in PostgreSQL instead: that tells faults of the store from those of the folder.
It needs root, and `make cluster-mounts`.
"""

import json
import os
import pwd
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "platform" / "support"))

import labs_support as labs
import psutil
import yaml
from campaign import KILLS, RESOURCES, TOY, Harm, Results, Trial, parser, results, rows, run_trials
from nodes_support import Command, Node, two_nodes, why_not
from postgres_support import PostgresServer

from jestlab.analysis.shared import NAME, SCRATCH
from jestlab.platform.store import engine

STUDY: dict[str, Any] = TOY | {
    "base": {"pause": 0.05},
    "seeds": 15,
    "metrics": {"toy/*": {"goal": "max", "unit": "percent"}},
}
KINDS = (
    *KILLS,
    *("worker_frozen", "launcher_frozen", "node_killed", "disk_lost"),
    *("connection_cut", "connection_cut", "connection_stalled", "connection_stalled"),
)
FAULTS_A_TRIAL = 30
USERS = tuple(pwd.getpwnam(name).pw_uid for name in ("daemon", "games"))
"""A server acts only as users that have names."""
_ALONE = "JESTLAB_OWN_MOUNTS"
_TABLE = ("table", "harmed", "--json")


class SharedTrial(Trial):
    """One study that two nodes launch, with the faults that are injected into it."""

    def __init__(
        self, folder: Path, chance: random.Random, server: PostgresServer | None, nodes: list[Node]
    ) -> None:
        super().__init__(folder, STUDY, chance, server)
        self.root = folder / "shared" / "lab"
        self._nodes = nodes
        self._scratch = folder / "third"
        if server is None:
            self.url = f"sqlite:///{self.root / NAME}"
        self._spec.write_text(yaml.safe_dump(STUDY | {"resources": RESOURCES | {"parallel": 6}}))
        self._node_of: dict[int, Node] = {}
        self.table: Any = None

    def launch(self) -> None:
        """Start a launcher on each node that has none."""
        live = {self._node_of[launcher.pid] for launcher in self._launchers if launcher.poll() is None}
        for node in self._nodes:
            if node not in live:
                store = [] if self._server else ["--store", "shared"]
                words = ["launch", str(self._spec), "--no-reports", *store]
                launcher = self._on(node, words)
                self._launchers.append(launcher)
                self._node_of[launcher.pid] = node

    def _on(self, node: Node, words: list[str], **how: Any) -> Command:
        """Start `jestlab` on a node."""
        own = {**labs.variables(self.root), SCRATCH: str(node.disk), "HOME": str(node.disk)}
        if self._server:
            own["JESTLAB_STORE"] = self.url
        output = {"stdout": self._log, "stderr": self._log} | how
        return node.start_command(
            [*labs.JESTLAB, "--debug", *words, "--root", str(self.root)],
            env=os.environ | own,
            start_new_session=True,
            umask=0o002,
            **output,
        )

    # ---- faults

    def launcher_frozen(self) -> bool:
        """Freeze one for so long that others take its place in the store; it continues later."""
        if not self._launchers:
            return False
        launcher = self._chance.choice(self._launchers)
        launcher.send_signal(signal.SIGSTOP)
        time.sleep(self._chance.uniform(1.0, 20.0))
        launcher.send_signal(signal.SIGCONT)
        return True

    def node_killed(self) -> bool:
        """Kill everything on a node, and start it again with its disk."""
        node = self._chance.choice(self._nodes)
        node.kill()
        time.sleep(self._chance.uniform(0.0, 3.0))
        node.start()
        self.launch()
        return True

    def disk_lost(self) -> bool:
        """Replace a node by one of the same name with an empty disk."""
        node = self._chance.choice(self._nodes)
        node.kill()
        node.disk = node.disk.with_name(f"{node.name}-{time.monotonic_ns()}")
        node.start()
        self.launch()
        return True

    def connection_cut(self) -> bool:
        """Cut a connection to the folder: all open files fail, and the next request connects again."""
        if (server := self._chance.choice(self._nodes).server()) is None:
            return False
        with suppress(psutil.NoSuchProcess):
            server.kill()
        return True

    def connection_stalled(self) -> bool:
        """Let a connection to the folder answer nothing for some seconds; sometimes cut it then."""
        if (server := self._chance.choice(self._nodes).server()) is None:
            return False
        with suppress(psutil.NoSuchProcess):
            server.suspend()
            time.sleep(self._chance.uniform(0.5, 12.0))
            server.kill() if self._chance.random() < 0.3 else server.resume()
        return True

    # ---- the end

    def compare(self, expected: Results) -> None:
        """Count what differs from an undisturbed lab, and between the machines."""
        for node in self._nodes:
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            printed, complaint = self._on(node, [*_TABLE], **pipes).communicate()
            if (table := _without_seconds(printed)) != self.table:
                self.harm.wrong += 1
                print(f"    table on {node.name}: {complaint!r} {table}, not {self.table}", file=sys.stderr)
        if self._server is None:
            copies = [self._copy(disk) for disk in (*(node.disk for node in self._nodes), self._scratch)]
            contents = [[*sqlite3.connect(copy).iterdump()] for copy in copies]
            if any(content != contents[0] for content in contents):
                self.harm.wrong += 1
                print(f"    the nodes' copies differ: {copies}", file=sys.stderr)
            self.url = f"sqlite:///{copies[-1]}"
        super().compare(expected)
        for query, what in (
            ("SELECT run_id FROM attempt WHERE state = 'COMPLETED' GROUP BY run_id HAVING COUNT(*) > 1",
             "completed twice"),
            ("SELECT run, seed, name, step FROM v_metrics GROUP BY run, seed, name, step"
             " HAVING COUNT(*) > 1", "in the store twice"),
        ):  # fmt: skip
            for row in rows(self.url, query):
                self.harm.wrong += 1
                print(f"    {what}: {row}", file=sys.stderr)

    def _copy(self, disk: Path) -> Path:
        """Bring a machine's copy of the store up to date, and return its file."""
        os.environ[SCRATCH] = str(disk)
        url = f"sqlite:///{self.root / NAME}"
        with engine.closing_engine(engine.read_only(url)) as store, engine.reading(store):
            [file] = disk.glob("store-*/results.db")
        return file


@contextmanager
def _seen_here(folder: Path) -> Iterator[None]:
    """Context in which this process sees the nodes' folder at the same path."""
    subprocess.run(["mount", "--bind", folder / "served", folder / "shared"], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder / "shared"], check=True)


def _undisturbed() -> tuple[Results, Any]:
    """The results and the table of a lab where nothing goes wrong, of runs that make no pauses."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), STUDY | {"base": {}}, random.Random(0), None)
        if trial.run([], 0).unfinished:
            raise RuntimeError("the undisturbed study was not completed")
        printed = labs.here(*_TABLE, root=trial.root)
        return results(trial.url), _without_seconds(printed.stdout)


def _without_seconds(printed: str | bytes) -> Any:
    """The rows of a table without durations, which differ; None if none was printed."""
    rows_ = json.loads(printed)["rows"] if printed else []
    return [{key: value for key, value in row.items() if "seconds" not in key} for row in rows_] or None


def main() -> int:
    """Run trials, every other one with two users."""
    arguments = parser(__doc__, 60)
    arguments.add_argument("--database", action="store_true", help="have the results in PostgreSQL")
    options = arguments.parse_args()
    if (reason := why_not()) is not None:
        print(f"no nodes: {reason}")
        return 0
    if _ALONE not in os.environ:  # what this process mounts is unmounted when it ends
        os.environ[_ALONE] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])
    expected, table = _undisturbed()

    def run(number: int, folder: Path, chance: random.Random) -> Harm:
        folder.chmod(0o755)
        users = USERS if number % 2 else (None, None)
        with two_nodes(folder, users) as nodes, _seen_here(folder):
            trial = SharedTrial(folder, chance, server if options.database else None, nodes)
            trial.table = table
            return trial.run(KINDS, min(FAULTS_A_TRIAL, options.faults), expected)

    with closing(PostgresServer()) as server:
        if options.database:
            server.start()
        return run_trials(options, run)


if __name__ == "__main__":
    sys.exit(main())
