"""Launches in the background, each with a log in the lab.

The command runs again in a new session. The command that starts it waits until the launch has started, so
that a refusal appears in the terminal. A file lock, which the kernel releases when the process ends, prevents
two launches of one study at once; the lock file names the process.
"""

from __future__ import annotations

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
"""Environment variable of a background launch: descriptors of the pipe for its start signal and its lock."""

_COMMAND = "from jestlab.platform.cli import main; main()"


@dataclass(frozen=True)
class DetachedLaunch:
    """A background launch, with its process id and the file with its output."""

    pid: int
    log: Path
    code: int | None  # exit code if it ended before it started to launch; None while it runs


def start(lab: Lab, study: str, words: Sequence[str]) -> DetachedLaunch:
    """Launch in a new process; return once it has started to launch, or has ended.

    Args:
        study: Name of the study, or a verb and the full name of its subject.
        words: The command: all words after `jestlab` except `--detach`. The store's URL, which may contain a
            password, is passed in the environment.

    Raises:
        UserError: A background launch of the study is running, or the lab can't be written.
    """
    lab.root.mkdir(parents=True, exist_ok=True)
    folder = lab.make_folder(FOLDER)
    name = re.sub(r"[^-\w.]", "_", study, flags=re.ASCII)[:80]  # different names may become the same
    name = f"{name}-{hashlib.sha256(study.encode()).hexdigest()[:16]}"
    log = folder / f"{now():%Y%m%dT%H%M%S}-{name}.log"
    with (folder / f".{name}.lock").open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)  # empty if it has only just started
            command = study.rpartition(" ")[2]
            raise UserError(
                f"{study} is already running{lock.read()}: jestlab attach {command} shows it, "
                f"jestlab cancel {command} stops it"
            ) from None
        reader, writer = os.pipe()
        environment = {key: value for key, value in os.environ.items() if key != SERVE_TOKEN}
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, *_without_store(words)],
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


def is_detached() -> bool:
    """Return whether this process is a background launch that has not started yet."""
    return DETACHED in os.environ


def signal_start() -> None:
    """Signal to the command that waits for this process, if any, that the launch has started."""
    if not is_detached():
        return
    pipe, lock = map(int, os.environ.pop(DETACHED).split(":"))
    os.set_inheritable(lock, False)  # jobs may outlive this process and must not hold the lock
    with contextlib.suppress(OSError):  # the waiting command has ended
        os.write(pipe, b"1")
    os.close(pipe)


def _without_store(words: Sequence[str]) -> list[str]:
    """Remove the option `--store` from a command."""
    left, rest = [], iter(words)
    for word in rest:
        if word == "--store":
            next(rest, None)
        elif not word.startswith("--store="):
            left.append(word)
    return left
