"""Launches in the background, each with a log in the lab.

The user's command runs itself again in a new session, and waits until that process has started the launch.
So if the launch is refused, the error appears in the terminal. A file lock in the lab prevents two background
launches of one study at once. The kernel releases the lock when the process ends; the file names the process.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import SERVE_TOKEN, Lab
from jestlab.platform.store.address import STORE
from jestlab.platform.store.rows import now
from jestlab.platform.whoami import host_name

FOLDER = "launches"
"""Folder of a lab with the logs of background launches."""

DETACHED = "JESTLAB_DETACHED"
"""Environment variable of a background launch: the file descriptors PIPE:LOCK (start signal, lock file)."""

COMMAND = "from jestlab.platform.cli import main; main()"


@dataclass(frozen=True)
class DetachedLaunch:
    """A process that was started in the background, and the file with its output."""

    pid: int
    log: Path
    exit_code: int | None  # exit code if the process ended before the launch started; else None


def start(lab: Lab, study: str, arguments: Sequence[str]) -> DetachedLaunch:
    """Start a launch in a new process; return when the launch has started or the process has ended.

    Args:
        study: Name of the study, or a verb and the full name of its subject.
        arguments: Command line after `jestlab`, without `--detach`. `--store` is passed in the environment
            instead, because the URL may contain a password.

    Raises:
        UserError: The study is already running in the background, or the lab isn't writable.
    """
    log = log_of(lab, study)
    with (log.parent / f".{file_name(study)}.lock").open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)  # the file is empty until the other launch has written its process id
            command = study.rpartition(" ")[2]
            raise UserError(
                f"{study} is already running{lock.read()}: jestlab attach {command} shows it, "
                f"jestlab cancel {command} stops it"
            ) from None
        reader, writer = os.pipe()
        environment = {key: value for key, value in os.environ.items() if key != SERVE_TOKEN}
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", COMMAND, *_without_store(arguments)],
                env=environment | {STORE: lab.store_url, DETACHED: f"{writer}:{lock.fileno()}"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[writer, lock.fileno()],
                start_new_session=True,
            )
        os.close(writer)
        lock.seek(0)
        lock.truncate()
        lock.write(f" on {host_name()}, process {process.pid}, log {log}")
        lock.flush()
    with os.fdopen(reader, "rb") as stream:
        has_started = stream.read(1) != b""
    return DetachedLaunch(process.pid, log, None if has_started else process.wait())


def log_of(lab: Lab, study: str) -> Path:
    """Return the file for the output of a new launch. Creates its folder."""
    lab.root.mkdir(parents=True, exist_ok=True)
    return lab.make_folder(FOLDER) / f"{now():%Y%m%dT%H%M%S}-{file_name(study)}.log"


def file_name(study: str) -> str:
    """Return a name for files that belong to a study."""
    printed = re.sub(r"[^-\w.]", "_", study, flags=re.ASCII)[:80]  # different names may become equal
    return f"{printed}-{hashlib.sha256(study.encode()).hexdigest()[:16]}"


def signal_start() -> None:
    """If this is a background launch, signal its start, once, to the command that waits for it."""
    if DETACHED not in os.environ:
        return
    pipe, lock = map(int, os.environ.pop(DETACHED).split(":"))
    os.set_inheritable(lock, False)  # jobs may outlive this process, and must not inherit the lock
    with contextlib.suppress(OSError):  # the waiting command has ended
        os.write(pipe, b"1")
    os.close(pipe)


def _without_store(arguments: Sequence[str]) -> list[str]:
    """Return a command line without the option `--store`."""
    left, rest = [], iter(arguments)
    for argument in rest:
        if argument == "--store":
            next(rest, None)
        elif not argument.startswith("--store="):
            left.append(argument)
    return left
