"""The program `command`: a command of the user's own, in any language.

    program: command
    base: {command: [python, train.py, --lr, "{learning_rate}", --out, "{directory}"], learning_rate: 0.1}

Its words may hold placeholders: every key of the config, and `seed`, `directory` (the run's folder),
`resume` (the same folder if an earlier attempt left anything there, else empty) and `needs.<role>` (the
folder of a run that it depends on); `{{` and `}}` are braces. No shell is involved, unless the command is
one: [sh, -c, "…"]. Its environment holds:

    JESTLAB_RUN_DIR      the run's folder
    JESTLAB_SEED         replicate
    JESTLAB_RESUME       the run's folder if an earlier attempt left anything there, else empty
    JESTLAB_RUN_CONFIG   a JSON file: its whole config, seed included
    JESTLAB_NEEDS        JSON: role → folder of each run that it depends on
    JESTLAB_REPORTS, JESTLAB_REPLIES   where it reports: see `jestlab.platform.client`

It runs in `cwd`, by default the folder of its spec. Its identity is the whole config except `cwd`, the
command included, but not the files that the command names. Attempts record those files, and what they import
of the user's own: a plan and a launch say which results were made by other ones (`--rerun-changed`).
Exit code 0 completes the run. It is not tried again after wrong usage (exit code 2), if it cannot be executed
(126, 127), and if it ends in the traceback of a TypeError or another fault of Python code, unless `resources:
{retry_exit_codes: [2]}` names the exit code.
SIGTERM is passed on once; however the command then ends, the run counts as stopped, and is resumed later with
JESTLAB_RESUME set.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import selectors
import shlex
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jestlab.platform import logs
from jestlab.platform.errors import UserError, nearest, sentence
from jestlab.platform.lab.lab import SERVE_TOKEN, STORE_SECRET
from jestlab.platform.processes import describe_exit, die_with_parent, group_runs, reap_orphans
from jestlab.platform.programs import failures
from jestlab.platform.programs.context import Failed, Interrupted, RunContext
from jestlab.platform.programs.program import Contents, Program
from jestlab.platform.programs.protocol import Channel
from jestlab.platform.programs.scripts import check_scripts
from jestlab.platform.spec.program import FreeKey, Problem
from jestlab.platform.store.address import STORE

CONFIG_NAME = "config.json"
_UNFINISHED = CONFIG_NAME + ".new"
KEYS = {
    "command": FreeKey(
        "list of words or string",
        "required",
        "The words of the command, with placeholders such as {learning_rate}, {seed} and {directory}.",
    ),
    "cwd": FreeKey("path", "the folder of the spec", "Working directory; null for that of the launcher."),
}
"""Keys of its config that mean something here. All others are the command's."""
_OURS = ("seed", "directory", "resume")
_NOT_VALUES = tuple(KEYS)
_TICK_SECONDS = 0.2  # until a request to stop is passed on

_PLACEHOLDERS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_BLOCK = 1 << 16
_KEPT = 4_096
_LEFT_BLOCKS = 64
_SHORTAGES = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY)


# ---- what a spec says


def problems(config: Mapping[str, Any], roles: Collection[str]) -> Iterator[Problem]:
    """Find what is wrong with a config: see `Program.problems`."""
    for name in ("directory", "resume", "needs"):
        if name in config:
            yield (name,), f"{name!r} is what jestlab gives the command: choose another name"
    if not isinstance(config.get("cwd"), str | None):
        yield ("cwd",), "must be the path of a folder"
    try:
        words = _words(config.get("command"))
        known = {*_values(config), *_OURS, *(f"needs.{role}" for role in roles)}
        for word in words:
            for name in placeholder_names(word):
                if name not in known:
                    yield (
                        ("command",),
                        f"no value for {{{name}}}: {nearest(name, known)} (a brace: {{{{)",
                    )
    except ValueError as error:
        yield ("command",), str(error)


def _words(command: object) -> list[str]:
    """Split a command into words, given as a list or as a shell would split it.

    Raises:
        ValueError: It is not a command.
    """
    example = "as in [python, train.py, --lr, '{learning_rate}']"
    if command is None:
        raise ValueError(f"is missing: the words of the command, {example}")
    if isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise ValueError(f"{command!r} cannot be split into words: {error}") from None
    elif isinstance(command, list) and all(isinstance(word, str | int | float) for word in command):
        words = [as_word(word) for word in command]
    else:
        raise ValueError(f"must be a list of words, {example}")
    if not words or not words[0]:
        raise ValueError(f"is empty: the words of the command, {example}")
    return words


def _values(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return dotted key → value, also of sections."""
    values: dict[str, Any] = {}
    for key, value in config.items():
        if not path and key in _NOT_VALUES:
            continue
        values[path + key] = value
        if isinstance(value, dict):
            values |= _values(value, f"{path}{key}.")
    return values


def complete(config: dict[str, Any], contents: Contents) -> dict[str, Any]:
    """Check that the scripts of a command exist, if it is to run on this machine: see `Program.complete`."""
    if contents.where == "here":
        values = _values(config)
        words = [word if "{" not in word else _filled(word, values) for word in _words(config["command"])]
        check_scripts(words, Path(config.get("cwd") or "."))
    return config


def _filled(word: str, values: Mapping[str, Any]) -> str:
    """Fill a word whose placeholders are config keys; what others become is not known: no script then."""
    known = all(name in values for name in placeholder_names(word))
    return fill(word, values) if known else "-"


def known_words(config: Mapping[str, Any]) -> list[str]:
    """Return the words of a config's command, with the placeholders filled that the config alone fills.

    What is not a command has no words.
    """
    try:
        words = _words(config.get("command"))
    except ValueError:
        return []
    values = _values(config)
    found = []
    for word in words:
        try:
            found.append(fill(word, values))
        except KeyError:  # the run's folder, or a needed run's
            found.append(word)
    return found


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides the result: all but the working directory."""
    return {key: value for key, value in config.items() if key != "cwd"}


def placeholder_names(word: str) -> Iterator[str]:
    """Yield the names of the placeholders in a word.

    Raises:
        ValueError: It has a single brace.
    """
    for match in _PLACEHOLDERS.finditer(word):
        if match[0] in ("{", "}"):
            raise ValueError(f"{word!r} has a single brace: write {match[0] * 2} for {match[0]}")
        if match[1] is not None:
            yield match[1]


def fill(word: str, values: Mapping[str, Any]) -> str:
    """Replace the placeholders in a word by values: a string as it is, everything else as JSON."""

    def value(match: re.Match[str]) -> str:
        return match[0][0] if match[1] is None else as_word(values[match[1]])

    return _PLACEHOLDERS.sub(value, word)


def as_word(value: Any) -> str:
    """Return a value as a word of a command."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# ---- what a worker executes


def run(config: Mapping[str, Any], context: RunContext) -> None:
    """Run the command to its end.

    Raises:
        Failed: The command failed; with its exit code and the last lines that it printed.
        Interrupted: It was asked to stop, and ended.
        UserError: It could not be started, or sent something that is not a valid message.
    """
    if context.stop_requested():
        raise Interrupted
    directory = context.directory
    needs = {role: str(need.directory) for role, need in context.needs.items()}
    resume = str(context.resume or "")
    values = _values(config) | {"seed": context.seed, "directory": str(directory), "resume": resume}
    values |= {f"needs.{role}": folder for role, folder in needs.items()}
    environment = {
        "JESTLAB_RUN_DIR": str(directory),
        "JESTLAB_SEED": str(context.seed),
        "JESTLAB_RESUME": resume,
        "JESTLAB_RUN_CONFIG": str(_write_config(config, directory)),
        "JESTLAB_NEEDS": json.dumps(needs),
    }
    words = [fill(word, values) for word in _words(config["command"])]
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
        reason = ": ".join(filter(None, [describe_exit(child.code), logs.tail(child.last_words)]))
        raise Failed(reason, failures.exit_recurs(child.code, child.last_words, context.cache.parent))


def _working_directory(given: str | None) -> Path | None:
    """Return where to run; None for this process's working directory.

    On a pod that is its image's, unless the spec's folder is there, too.
    """
    if given is None:
        return None
    path = Path(given)
    if os.environ.get(logs.COPIED) and not path.exists():
        sys.stderr.write(f"jestlab: no folder {path} on this machine: the command runs in {Path.cwd()}\n")
        return None
    return path


def _serve(child: Child, channel: Channel, context: RunContext) -> None:
    """Copy what the command prints and process its reports until it ends; pass on a request to stop."""
    with selectors.DefaultSelector() as selector, _end_of(child) as ended:
        selector.register(channel.reports, selectors.EVENT_READ, channel.read)
        selector.register(child.output, selectors.EVENT_READ, child.copy_output)
        if ended is not None:
            selector.register(ended, selectors.EVENT_READ)
        while child.runs():
            reap_orphans(but=child.pid)
            for key, _ in selector.select(_TICK_SECONDS):
                if key.fd == ended or (not key.data() and key.fd == child.output):
                    selector.unregister(key.fd)  # closed: it would be ready forever
            if context.stop_requested() and not child.stopping:
                channel.tell_stop()
                child.stop()


@contextlib.contextmanager
def _end_of(child: Child) -> Iterator[int | None]:
    """Context with a descriptor that is ready when the command has ended; None if the system has none."""
    try:
        descriptor = os.pidfd_open(child.pid)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def left_behind(directory: Path) -> bool:
    """Whether a run's folder holds anything that an earlier attempt's command has put there."""
    from jestlab.platform.store.spool import PREFIX  # imports SQLAlchemy, which specs do without

    ours = (logs.NAME, CONFIG_NAME, _UNFINISHED)
    return any(path.name not in ours and not path.name.startswith(PREFIX) for path in directory.iterdir())


def _write_config(config: Mapping[str, Any], directory: Path) -> Path:
    path = directory / CONFIG_NAME
    unfinished = path.with_name(_UNFINISHED)
    unfinished.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    unfinished.replace(path)
    return path


class Child:
    """A running command: a child of the worker, in its session but in a process group of its own.

    So it ends with the worker, and gets a signal once, from the worker, and not also from whoever signals the
    worker's group. What it prints is copied to standard error, the run's log, and the last of it is kept.
    """

    def __init__(self, words: Sequence[str], cwd: Path | None, environment: Mapping[str, str]) -> None:
        """Start the command.

        Args:
            words: The command.
            cwd: Working directory; None for this process's.
            environment: Variables in addition to this process's, without those that lead to the store.
        """
        try:
            self._process = subprocess.Popen(
                list(words),
                cwd=cwd,
                # Or what it printed before an error would follow the error's traceback.
                env={"PYTHONUNBUFFERED": "1", **_inherited(), **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                process_group=0,
                # If the worker is killed, nobody else may be there to end its command, which would then write
                # alongside the next attempt. (One system call, bound before the fork: safe with threads.)
                preexec_fn=die_with_parent,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in a word
            where = f" in {cwd}" if cwd is not None else ""
            message = f"cannot start {words[0]!r}{where}: {sentence(error)}"
            passes = isinstance(error, OSError) and error.errno in _SHORTAGES
            raise (Failed if passes else UserError)(message) from None
        assert self._process.stdout is not None
        self.output = self._process.stdout.fileno()
        os.set_blocking(self.output, False)
        self._tail = b""
        self.stopping = False

    def runs(self) -> bool:
        """Whether it runs; once it was asked to stop, also whether any process of its group does."""
        return not self._ended() or (self.stopping and group_runs(self.pid))

    @property
    def pid(self) -> int:
        """Process id of the command."""
        return self._process.pid

    @property
    def code(self) -> int:
        """Exit code, in `subprocess`'s convention."""
        return self._process.wait()

    @property
    def last_words(self) -> str:
        """Return the last 4 KiB that it printed."""
        return self._tail.decode(errors="replace")

    def stop(self) -> None:
        """Ask the command to stop."""
        self.stopping = True
        self._signal(signal.SIGTERM)

    def end(self) -> None:
        """Kill it, and what it left behind in its process group."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def copy_output(self) -> bool:
        """Copy what it printed, up to a block; return whether more may come."""
        try:
            block = os.read(self.output, _BLOCK)
        except BlockingIOError:
            return True
        self._tail = (self._tail + block)[-_KEPT:]
        left = memoryview(block)
        with contextlib.suppress(OSError):  # a full disk takes no log, which is no reason to end the command
            while left:
                left = left[os.write(2, left) :]
        return bool(block)

    def copy_rest(self) -> None:
        """Copy what it printed before it ended."""
        for _ in range(_LEFT_BLOCKS):
            if not self.copy_output():
                break
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _ended(self) -> bool:
        # Not reaped before `end`: until then the id of its group cannot be another's.
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return ended is not None


def _inherited() -> dict[str, str]:
    left_out = (STORE, STORE_SECRET, SERVE_TOKEN)
    return {name: value for name, value in os.environ.items() if name not in left_out}


COMMAND = Program(
    name="command",
    free_keys=KEYS,
    entry_point="jestlab.platform.programs.command:run",
    problems_of=problems,
    identity_of=identity,
    local_paths=(("cwd",),),
    complete=complete,
    spec_folder="cwd",
    collective=False,
)
