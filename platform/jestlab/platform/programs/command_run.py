"""Run a command in the worker: start it, copy its output, process its reports, and stop it.

Reports and answers are lines of JSON through two pipes. `client` documents them, and `Reporter` checks their
values. Any process of the command can open the pipes by their paths below /proc, as often as it likes, and
without inheriting a file descriptor. The pipes belong to the worker's process and disappear with it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jestlab.analysis import files
from jestlab.models.data.files import write_whole
from jestlab.platform import client, logs
from jestlab.platform.client import as_amount, as_count, as_phase
from jestlab.platform.errors import UserError, nearest, sentence
from jestlab.platform.lab.lab import SERVE_TOKEN
from jestlab.platform.lab.secret import STORE_SECRET
from jestlab.platform.processes import describe_exit, die_with_parent, group_runs, reap_orphans
from jestlab.platform.programs import failures
from jestlab.platform.programs.command import fill, placeholder_values, words_of
from jestlab.platform.programs.context import Failed, Interrupted, RunContext
from jestlab.platform.programs.ranks import TASKS, Ranks
from jestlab.platform.store.address import STORE

_CONFIG = "config.json"
_POLL_SECONDS = 0.2  # between checks for a request to stop
_FINAL_POLL_SECONDS = 0.01  # after the command has closed its output: it is about to end
_STOP_SECONDS = 2.0  # how long a request to stop may take to reach all machines
_MAX_MESSAGE_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 16
_MAX_REMAINING_BLOCKS = 64  # to read after the writer has ended: a pipe holds at most 1 MiB
_TAIL_BYTES = 4_096
_MAX_QUOTED = 120
_MAX_ERROR = 240
_TEMPORARY_ERRNOS = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY)

_MESSAGE_FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "log": (("step", "metrics"), ()),
    "evaluation": (("step", "scores"), ("examples_seen", "flops_total", "seconds")),
    "artifact": (("name", "path"), ()),
    "progress": (("step", "total_steps"), ()),
    "phase": (("name", "seconds"), ()),
    "flush": ((), ("id",)),
}
"""Type of a message → required and optional fields."""


def run(config: Mapping[str, Any], context: RunContext) -> None:
    """Run the command to its end: all of its processes on this machine.

    Raises:
        Failed: A process failed; the reason has its exit code and the last lines of its output.
        Interrupted: The command was asked to stop, and ended.
        UserError: The command couldn't be started, or sent an invalid message.
    """
    if context.stop_requested():
        raise Interrupted
    directory, resume = str(context.directory), str(context.resume or "")
    needs = {role: str(need.directory) for role, need in context.needs.items()}
    values = placeholder_values(config) | {"seed": context.seed, "directory": directory, "resume": resume}
    values |= {f"needs.{role}": folder for role, folder in needs.items()}
    environment = {
        "JESTLAB_RUN_DIR": directory,
        "JESTLAB_SEED": str(context.seed),
        "JESTLAB_RESUME": resume,
        "JESTLAB_RUN_CONFIG": str(context.directory / _CONFIG),
        "JESTLAB_NEEDS": json.dumps(needs),
        "PYTHONPATH": _python_path(context.cache.parent),
    }
    written = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    # Not with `models`' function, which deletes old files *.part: these may be the command's.
    files.write_whole(context.directory / _CONFIG, written)
    words = [fill(word, values) for word in words_of(config["command"])]
    cwd, ranks, children = _working_directory(config.get("cwd")), Ranks.of_command(), list[Child]()
    with Channel(context) as channel:
        environment |= channel.environment
        try:
            for local in range(ranks.tasks):
                children.append(Child(words, cwd, ranks.variables(local, os.environ) | environment))
            failed = _serve(children, channel, context)
        finally:
            for child in children:
                child.end()
        channel.drain(whole=not any(child.end() for child in children))
    if children[0].stopping or (failed and ranks.place.size > 1 and _stops_soon(context)):
        raise Interrupted
    if failed is not None:
        tail = failed.tail.decode(errors="replace")
        reason = ": ".join(filter(None, [describe_exit(failed.end()), logs.tail(tail)]))
        title = ranks.title(children.index(failed))
        raise Failed(title + reason, failures.exit_recurs(failed.end(), tail, context.cache.parent))


def _serve(children: Sequence[Child], channel: Channel, context: RunContext) -> Child | None:
    """Copy output and process reports until all processes have ended; forward a request to stop.

    Returns:
        The process that failed, while others may still be running; None if all have completed.
    """
    running = list(children)
    with selectors.DefaultSelector() as selector:
        selector.register(channel.reports, selectors.EVENT_READ, channel.read)
        for child in children:
            selector.register(child.output, selectors.EVENT_READ, child.copy_output)
        while running:
            reap_orphans(but=[child.process.pid for child in running])
            is_ending = any(child.output not in selector.get_map() for child in running)
            for key, _ in selector.select(_FINAL_POLL_SECONDS if is_ending else _POLL_SECONDS):
                if not key.data() and key.fileobj != channel.reports:  # closed: always ready from now on
                    selector.unregister(key.fileobj)
            for child in [child for child in running if not child.is_running()]:
                if child.output in selector.get_map():
                    selector.unregister(child.output)
                running.remove(child)
                if child.end() and not child.stopping:
                    return child
            if context.stop_requested() and not children[0].stopping:
                channel.send_stop()
                for child in children:
                    child.stop()
    return None


def _stops_soon(context: RunContext) -> bool:
    """Whether all processes were asked to stop, and the request reaches this machine after another's end."""
    deadline = time.monotonic() + _STOP_SECONDS
    while not context.stop_requested() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return context.stop_requested()


def _working_directory(given: str | None) -> Path | None:
    """Return the folder to run the command in; None for this process's working directory.

    In a pod, the spec's folder may not exist: then the command runs in the image's working directory.
    """
    if given is None or not os.environ.get(logs.COPIED) or Path(given).exists():
        return None if given is None else Path(given)
    sys.stderr.write(f"jestlab: no folder {given} on this machine: the command runs in {Path.cwd()}\n")
    return None


def _python_path(lab: Path) -> str:
    """Return this process's PYTHONPATH followed by a folder that contains only the client.

    The folder has no `__init__.py`, so that an installed jestlab has precedence, although it comes later.
    """
    source, folder = Path(client.__file__).read_bytes(), lab / "cache" / "client"
    file = folder / "jestlab" / "platform" / "client.py"
    if not file.exists() or file.read_bytes() != source:  # another version of jestlab wrote it
        write_whole(file, source)
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(folder)]))


def left_behind(directory: Path) -> bool:
    """Whether a run's folder contains files from the command of an earlier attempt."""
    from jestlab.platform.store.spool import PREFIX  # imports SQLAlchemy

    ours, beginnings = (logs.NAME, _CONFIG), (PREFIX, f".{_CONFIG}-")  # the last one: not written to its end
    names = (path.name for path in directory.iterdir())
    return any(name not in ours and not name.startswith(beginnings) for name in names)


def _read(end: int) -> bytes | None:
    """Read a block from a pipe: empty at its end, and None if no data is available yet."""
    try:
        return os.read(end, _BLOCK_BYTES)
    except BlockingIOError:
        return None


class Child:
    """A running process of a command: a child of the worker, in its session, but in its own process group.

    The command ends with the worker. A signal to the worker's process group doesn't reach the command, so it
    receives each signal only once, from the worker. Its output is copied to standard error, the run's log.

    Attributes:
        process: The command.
        output: File descriptor of its output.
        tail: The last 4 KiB of its output.
        stopping: Whether it was asked to stop.
    """

    def __init__(self, words: Sequence[str], cwd: Path | None, environment: Mapping[str, str]) -> None:
        """Start the command, in this process's environment without credentials, but with these variables."""
        private = (STORE, STORE_SECRET, SERVE_TOKEN, TASKS)
        inherited = {name: value for name, value in os.environ.items() if name not in private}
        try:
            self.process = subprocess.Popen(
                list(words),
                cwd=cwd,
                # With buffering, output from before an error would follow its traceback.
                env={"PYTHONUNBUFFERED": "1", **inherited, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                process_group=0,
                # If the worker is killed, its command must not run at the same time as the next attempt's.
                # The function makes one system call, prepared before the fork: this is safe with threads.
                preexec_fn=die_with_parent,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in a word
            where = f" in {cwd}" if cwd is not None else ""
            message = f"can't start {words[0]!r}{where}: {sentence(error)}"
            is_temporary = isinstance(error, OSError) and error.errno in _TEMPORARY_ERRNOS
            raise (Failed if is_temporary else UserError)(message) from None
        assert self.process.stdout is not None
        self.output = self.process.stdout.fileno()
        os.set_blocking(self.output, False)
        self.tail = b""
        self.stopping = False
        self._code: int | None = None

    def is_running(self) -> bool:
        """Whether the command runs; after a request to stop, whether any process of its group runs."""
        # Only `end` reaps the process: until then, no other process can get its group's id.
        pid = self.process.pid
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return not ended or (self.stopping and group_runs(pid))

    def stop(self) -> None:
        """Ask the command to stop, unless it has ended."""
        self.stopping = True
        self._signal(signal.SIGTERM)

    def end(self) -> int:
        """Kill the process group, copy the remaining output, and return the exit code (below 0: a signal)."""
        if self._code is None:
            self._signal(signal.SIGKILL)
            with self.process as process:
                self._code = process.wait()
                any(not self.copy_output() for _ in range(_MAX_REMAINING_BLOCKS))
        return self._code

    def copy_output(self) -> bool:
        """Copy at most one block of output; return whether there may be more."""
        if (block := _read(self.output)) is None:
            return True
        self.tail = (self.tail + block)[-_TAIL_BYTES:]
        left = memoryview(block)
        with contextlib.suppress(OSError):  # a full disk is no reason to end the command
            while left:
                left = left[os.write(2, left) :]
        return bool(block)

    def _signal(self, number: int) -> None:
        if self._code is not None:  # its id may belong to another process now
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class Channel:
    """The worker's end of the pipes: reads messages, passes them to a run's context, and answers."""

    def __init__(self, context: RunContext) -> None:
        """Open the pipes."""
        self._context = context
        self._rest = b""
        self._lines = 0
        # This process keeps both ends of both pipes open, so that the paths below /proc work.
        self.reports, self._reports_end = os.pipe()
        self._replies_end, self._replies = os.pipe()
        os.set_blocking(self.reports, False)
        os.set_blocking(self._replies, False)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self.reports, self._reports_end, self._replies, self._replies_end):
            os.close(end)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with the paths of the pipes."""
        folder = f"/proc/{os.getpid()}/fd"
        return {
            "JESTLAB_REPORTS": f"{folder}/{self._reports_end}",
            "JESTLAB_REPLIES": f"{folder}/{self._replies_end}",
        }

    def read(self) -> bool:
        """Process at most one block of pending messages; return whether the pipe contained any data.

        Raises:
            UserError: A line isn't a valid message, or a path in it doesn't exist.
        """
        block = _read(self.reports)
        if block is None:
            return False
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            self._process(line)
        if len(self._rest) > _MAX_MESSAGE_BYTES:
            limit = f"longer than {_MAX_MESSAGE_BYTES:,} bytes: end each message with a line break"
            raise UserError(f"message {self._lines + 1}: {_quoted(self._rest)} is {limit}")
        return True

    def drain(self, whole: bool) -> None:
        """Process the messages that a command left in the pipe.

        Args:
            whole: Whether the command ended by itself, so that a last line without a line break counts.
        """
        any(not self.read() for _ in range(_MAX_REMAINING_BLOCKS))
        if whole:
            self._process(self._rest)
        self._rest = b""

    def send_stop(self) -> None:
        """Ask the command to stop."""
        with contextlib.suppress(BlockingIOError):  # the pipe is full: the command reads no replies
            self._reply({"type": "stop"})

    def _process(self, line: bytes) -> None:
        self._lines += 1
        if not line.strip():
            return
        try:
            self._report(**_parse(line))
        except (ValueError, OSError) as error:  # OSError: a path in the message doesn't exist
            # The error may quote names that the command chose.
            problem = logs.one_line(str(error), _MAX_ERROR)
            raise UserError(
                f"message {self._lines}: {_quoted(line)} is not a valid message: {problem}"
            ) from None

    def _report(self, type: str, **message: Any) -> None:
        context = self._context
        if type == "phase":
            as_phase(message["name"])
            context.clock.move(message["name"], as_amount("seconds", message["seconds"]))
            if message["name"] == "checkpoint":
                context.clock.saved()
        elif type == "flush":
            answer = {"type": "flushed", "id": as_count("id", message.get("id", 0))}
            context.flush()
            try:
                self._reply(answer)
            except BlockingIOError:
                raise UserError("the command requests flush again and again and reads no answers") from None
        else:
            if type == "artifact":
                if not isinstance(message["path"], str) or not message["path"]:
                    raise ValueError("invalid path: expected the path of a file or folder")
                message["path"] = context.directory / message["path"]
            getattr(context, type)(**message)

    def _reply(self, message: dict[str, Any]) -> None:
        os.write(self._replies, json.dumps(message).encode() + b"\n")  # short, so written atomically


def _parse(line: bytes) -> dict[str, Any]:
    """Parse a message and check the names of its fields; ValueError if they aren't valid."""
    try:
        message = json.loads(line.decode())
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"not valid JSON: {error}") from None
    kind = message.get("type") if isinstance(message, dict) else None
    if kind is None:
        raise ValueError(f"it has no type: expected {', '.join(_MESSAGE_FIELDS)}")
    if not isinstance(kind, str) or kind not in _MESSAGE_FIELDS:
        raise ValueError(f"type {kind!r} is unknown: {nearest(str(kind), _MESSAGE_FIELDS)}")
    required, optional = _MESSAGE_FIELDS[kind]
    if missing := [name for name in required if message.get(name) is None]:
        raise ValueError(f"{missing[0]} is missing")
    if unknown := [name for name in message if name not in ("type", *required, *optional)]:
        raise ValueError(f"key {unknown[0]!r} is unknown: {nearest(unknown[0], (*required, *optional))}")
    return dict(message)


def _quoted(line: bytes) -> str:
    text = line[:_BLOCK_BYTES].decode(errors="replace").strip()
    return repr(text if len(text) <= _MAX_QUOTED else text[:_MAX_QUOTED] + "…")
