"""One cluster for all tests that ask: it starts with the first of them, and ends with the last.

    python -m tests.cluster.kubernetes.server FOLDER PROGRAMS

Whoever uses the cluster holds a connection to `FOLDER/socket`. When nobody has been connected for a second
the cluster ends, and so it does when a test process is killed. A line on a connection is a request, a JSON
list of a name in `Cluster.requests` and its arguments; the answer is a JSON value. Before them there is a
greeting: one who came while the cluster was ending gets none.
"""

import json
import socketserver
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.kubernetes import node_pools
from tests.cluster.kubernetes.agent import Agent, Images
from tests.cluster.kubernetes.daemons import Daemons
from tests.cluster.kubernetes.node_logs import LogServer
from tests.cluster.kubernetes.queues import Kueue

GREETING = b"ready\n"
LINGER_SECONDS = 1.0
FIRST_SECONDS = 60.0
"""How long it waits for the first who asks."""


class Cluster:
    """Control plane and nodes of this machine, and the `requests` that it carries out."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.daemons = Daemons(programs, folder)
        port = self.daemons.agent_port
        files = self.daemons.authority.sign("node")
        logs = LogServer(port, files, self.daemons.authority.certificate)
        containers = folder / "containers"
        containers.mkdir()
        self.agent = Agent(self.daemons.admin, containers, logs, Images(folder / "images"))
        logs.find = self.agent.log_of
        self._kueue: Kueue | None = None
        self._kueue_lock = threading.Lock()
        self.requests: dict[str, Callable[..., Any]] = {
            "kill_node": self.agent.kill,
            "remove_node": self.agent.remove,
            "shut_down_node": self.agent.shut_down,
            "restore_nodes": self.restore_nodes,
            "kill_api": self.daemons.kill_api,
            "start_api": self.daemons.start_api,
            "start_kueue": self.start_kueue,
        }

    def start(self) -> None:
        self.daemons.start()
        self.agent.start(node_pools.usual(self.daemons.agent_port))

    def stop(self) -> None:
        self.agent.stop()
        self.daemons.stop()

    def restore_nodes(self) -> None:
        """Bring all usual nodes back that were killed or removed."""
        for node in node_pools.usual(self.daemons.agent_port):
            if node.name not in self.agent.nodes:
                self.agent.add(node)

    def start_kueue(self, programs: str) -> None:
        """Start Kueue, if nobody has; its programs are in a folder of their own."""
        with self._kueue_lock:
            if self._kueue is None:
                kueue = Kueue(self.daemons, Path(programs))
                kueue.start()
                self._kueue = kueue


class _Clients:
    """Counts who is connected, and knows when nobody has been for a while."""

    def __init__(self) -> None:
        self._count = 0
        self._over = False
        self._lock = threading.Lock()
        self._alone_since = time.monotonic() + FIRST_SECONDS

    def come(self) -> bool:
        with self._lock:
            self._count += not self._over
            return not self._over

    def go(self) -> None:
        with self._lock:
            self._count -= 1
            self._alone_since = time.monotonic()

    def have_gone(self) -> bool:
        with self._lock:
            self._over = self._count == 0 and time.monotonic() - self._alone_since > LINGER_SECONDS
            return self._over


def serve(folder: Path, programs: Path) -> None:
    clients = _Clients()
    cluster = Cluster(programs, folder)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            if not clients.come():
                return
            try:
                self.wfile.write(GREETING)
                for line in self.rfile:
                    name, *arguments = json.loads(line)
                    try:
                        answer = {"done": cluster.requests[name](*arguments)}
                    except Exception:
                        answer = {"error": traceback.format_exc()}
                    self.wfile.write(json.dumps(answer).encode() + b"\n")
            except OSError:
                pass
            finally:
                clients.go()

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    try:
        cluster.start()
        with Server(str(folder / "starting"), Handler) as server:
            threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
            (folder / "starting").rename(folder / "socket")
            while not clients.have_gone():
                time.sleep(0.1)
            server.shutdown()
    finally:
        (folder / "socket").unlink(missing_ok=True)
        cluster.stop()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]))
