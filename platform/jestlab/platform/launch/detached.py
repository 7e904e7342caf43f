"""Launches that go on without the terminal that they were started from, each with a log in the lab.

The launch is this command again, in a session of its own. The command that starts it waits until it has
begun, so that what is refused is refused in the terminal. A lock, which the kernel holds for the process,
keeps a study from being launched twice at once; the file says who holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import SERVE_TOKEN, Lab
from jestlab.platform.store.address import STORE
from jestlab.platform.store.rows import now
from jestlab.platform.whoami import host_name

FOLDER = "launches"
"""Of a lab: where the logs of its detached launches are."""

DETACHED = "JESTLAB_DETACHED"
"""Environment variable of a detached launch: the descriptor by which it says that it has begun."""

_LONGEST = 80
"""Characters of a name in the names of its files; where they aren't all of it, a digest of it follows."""

_COMMAND = "from jestlab.platform.cli import main; main()"


@dataclass(frozen=True)
class Begun:
    """A detached launch that has begun, or one that was over before it began to launch anything.

    Attributes:
        pid: Its process.
        log: What it prints.
        code: Its exit code if it is over; None while it goes on.
    """

    pid: int
    log: Path
    code: int | None


def start(lab: Lab, study: str, words: Sequence[str]) -> Begun:
    """Launch in a process of its own; return when it has begun to launch, or is over.

    Args:
        lab: Where.
        study: Name of the study; of what is done to it, its verb and the whole name of what it is done to.
        words: The command, what follows `jestlab`, without `--detach`. The store's URL, which may hold a
            password, goes by the environment.

    Raises:
        UserError: A detached launch of the study runs already, or the lab's folder cannot be written.
    """
    lab.root.mkdir(parents=True, exist_ok=True)
    folder = lab.make_folder(FOLDER)
    name = re.sub(r"[^-\w.]", "_", study, flags=re.ASCII)[:_LONGEST]
    if name != study:
        name = f"{name}-{hashlib.sha256(study.encode()).hexdigest()[:16]}"
    log = folder / f"{now():%Y%m%dT%H%M%S}-{name}.log"
    with (folder / f".{name}.lock").open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(_runs_already(lock, study)) from None
        hears, says = os.pipe()
        environment = {key: value for key, value in os.environ.items() if key != SERVE_TOKEN}
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, *_without_store(words)],
                env=environment | {STORE: lab.store_url, DETACHED: f"{says}:{lock.fileno()}"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[says, lock.fileno()],
                start_new_session=True,
            )
        os.close(says)
        lock.seek(0)
        lock.truncate()
        lock.write(json.dumps({"host": host_name(), "pid": process.pid, "log": str(log)}))
        lock.flush()
    with os.fdopen(hears, "rb") as stream:
        has_begun = stream.read(1) != b""
    return Begun(process.pid, log, None if has_begun else process.wait())


def tell_begun() -> None:
    """Tell the command that started this process, if there is one, that the launch has begun."""
    said = os.environ.pop(DETACHED, "")
    if not said:
        return
    pipe, lock = map(int, said.split(":"))
    os.set_inheritable(lock, False)  # the jobs go on when this process has ended, the lock does not
    with contextlib.suppress(OSError):  # who waited has gone
        os.write(pipe, b"1")
    os.close(pipe)


def _runs_already(lock: IO[str], study: str) -> str:
    try:
        lock.seek(0)
        about = json.loads(lock.read())
        who = f" on {about['host']}, process {about['pid']}, log {about['log']}"
    except (ValueError, KeyError, OSError):
        who = ""  # it has only just begun
    name = study.rpartition(" ")[2]
    return f"{study} is launched already{who}: jestlab attach {name} shows it, jestlab cancel {name} stops it"


def _without_store(words: Sequence[str]) -> list[str]:
    """Return a command without its `--store`."""
    left, rest = [], iter(words)
    for word in rest:
        if word == "--store":
            next(rest, None)
        elif not word.startswith("--store="):
            left.append(word)
    return left
