"""Run a command in the worker: start it, copy its output, process its reports, and stop it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jestlab.platform import logs
from jestlab.platform.errors import UserError, sentence
from jestlab.platform.lab.lab import SERVE_TOKEN
from jestlab.platform.lab.secret import STORE_SECRET
from jestlab.platform.processes import describe_exit, die_with_parent, group_runs, reap_orphans
from jestlab.platform.programs import failures
from jestlab.platform.programs.command import fill, values_of, words_of
from jestlab.platform.programs.context import Failed, Interrupted, RunContext
from jestlab.platform.programs.protocol import Channel
from jestlab.platform.store.address import STORE

CONFIG_NAME = "config.json"
_UNFINISHED = CONFIG_NAME + ".new"
_POLL_SECONDS = 0.2  # between checks for a request to stop
_LAST_POLL_SECONDS = 0.01  # once the command has closed its output, it is about to end
_BLOCK = 1 << 16
_TAIL = 4_096
_LEFT_BLOCKS = 64
_SHORTAGES = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY)


def run(config: Mapping[str, Any], context: RunContext) -> None:
    """Run the command to its end.

    Raises:
        Failed: The command failed; the reason has its exit code and the last lines of its output.
        Interrupted: It was asked to stop, and ended.
        UserError: It couldn't be started, or sent an invalid message.
    """
    if context.stop_requested():
        raise Interrupted
    directory = context.directory
    needs = {role: str(need.directory) for role, need in context.needs.items()}
    resume = str(context.resume or "")
    values = values_of(config) | {"seed": context.seed, "directory": str(directory), "resume": resume}
    values |= {f"needs.{role}": folder for role, folder in needs.items()}
    environment = {
        "JESTLAB_RUN_DIR": str(directory),
        "JESTLAB_SEED": str(context.seed),
        "JESTLAB_RESUME": resume,
        "JESTLAB_RUN_CONFIG": str(_write_config(config, directory)),
        "JESTLAB_NEEDS": json.dumps(needs),
    }
    words = [fill(word, values) for word in words_of(config["command"])]
    cwd = _working_directory(config.get("cwd"))
    with Channel(context) as channel:
        child = Child(words, cwd, environment | channel.environment)
        try:
            _serve(child, channel, context)
        finally:
            child.end()
            child.copy_rest()
        channel.drain(whole=child.code == 0)
    if child.stopping:
        raise Interrupted
    if child.code:
        reason = ": ".join(filter(None, [describe_exit(child.code), logs.tail(child.tail)]))
        raise Failed(reason, failures.exit_recurs(child.code, child.tail, context.cache.parent))


def _working_directory(given: str | None) -> Path | None:
    """Return the folder to run in; None for this process's working directory.

    In a pod, that is the image's, unless the spec's folder exists there too.
    """
    if given is None:
        return None
    path = Path(given)
    if os.environ.get(logs.COPIED) and not path.exists():
        sys.stderr.write(f"jestlab: no folder {path} on this machine: the command runs in {Path.cwd()}\n")
        return None
    return path


def _serve(child: Child, channel: Channel, context: RunContext) -> None:
    """Copy output and process reports until the command ends; forward a request to stop."""
    poll = _POLL_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(channel.reports, selectors.EVENT_READ, channel.read)
        selector.register(child.output, selectors.EVENT_READ, child.copy_output)
        while child.is_running():
            reap_orphans(but=child.pid)
            for key, _ in selector.select(poll):
                if not key.data() and key.fd == child.output:  # closed, and ready forever
                    selector.unregister(key.fd)
                    poll = _LAST_POLL_SECONDS
            if context.stop_requested() and not child.stopping:
                channel.tell_stop()
                child.stop()


def left_behind(directory: Path) -> bool:
    """Whether a run's folder contains files from the command of an earlier attempt."""
    from jestlab.platform.store.spool import PREFIX  # imports SQLAlchemy

    ours = (logs.NAME, CONFIG_NAME, _UNFINISHED)
    return any(path.name not in ours and not path.name.startswith(PREFIX) for path in directory.iterdir())


def _write_config(config: Mapping[str, Any], directory: Path) -> Path:
    path = directory / CONFIG_NAME
    unfinished = path.with_name(_UNFINISHED)
    unfinished.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    unfinished.replace(path)
    return path


class Child:
    """A running command: a child of the worker, in the worker's session but in its own process group.

    It ends with the worker, and receives a signal once, from the worker, rather than also from a sender that
    signals the worker's group. Its output is copied to standard error, which is the run's log.
    """

    def __init__(self, words: Sequence[str], cwd: Path | None, environment: Mapping[str, str]) -> None:
        """Start the command, with variables in addition to this process's, except credentials."""
        try:
            self._process = subprocess.Popen(
                list(words),
                cwd=cwd,
                # Otherwise output from before an error would follow its traceback.
                env={"PYTHONUNBUFFERED": "1", **_inherited(), **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                process_group=0,
                # If the worker is killed, its command must not run next to that of the next attempt.
                # This is one system call, bound before the fork, and so safe with threads.
                preexec_fn=die_with_parent,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in a word
            where = f" in {cwd}" if cwd is not None else ""
            message = f"can't start {words[0]!r}{where}: {sentence(error)}"
            is_temporary = isinstance(error, OSError) and error.errno in _SHORTAGES
            raise (Failed if is_temporary else UserError)(message) from None
        assert self._process.stdout is not None
        self._stream = self._process.stdout
        self.output = self._stream.fileno()
        os.set_blocking(self.output, False)
        self._tail = b""
        self.stopping = False

    def is_running(self) -> bool:
        """Whether it runs; after a request to stop, also whether another process of its group runs."""
        # Only `end` reaps the process: until then, no other process can get its group's id.
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return not ended or (self.stopping and group_runs(self.pid))

    @property
    def pid(self) -> int:
        """Process id of the command."""
        return self._process.pid

    @property
    def code(self) -> int:
        """Exit code, by the convention of `subprocess`."""
        return self._process.wait()

    @property
    def tail(self) -> str:
        """The last 4 KiB of its output."""
        return self._tail.decode(errors="replace")

    def stop(self) -> None:
        """Ask the command to stop."""
        self.stopping = True
        self._signal(signal.SIGTERM)

    def end(self) -> None:
        """Kill it, and all that is left of its process group."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def copy_output(self) -> bool:
        """Copy output, up to a block; return whether there may be more."""
        try:
            block = os.read(self.output, _BLOCK)
        except BlockingIOError:
            return True
        self._tail = (self._tail + block)[-_TAIL:]
        left = memoryview(block)
        with contextlib.suppress(OSError):  # a full disk is no reason to end the command
            while left:
                left = left[os.write(2, left) :]
        return bool(block)

    def copy_rest(self) -> None:
        """Copy the remaining output of a command that has ended."""
        for _ in range(_LEFT_BLOCKS):
            if not self.copy_output():
                break
        self._stream.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def _inherited() -> dict[str, str]:
    secrets = (STORE, STORE_SECRET, SERVE_TOKEN)
    return {name: value for name, value in os.environ.items() if name not in secrets}
