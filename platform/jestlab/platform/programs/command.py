"""The program `command`: a command of the user's own, in any language.

    program: command
    base: {command: [python, train.py, --lr, "{learning_rate}", --out, "{directory}"], learning_rate: 0.1}

Its words may hold placeholders: every key of the config, and `seed`, `directory` (the run's folder),
`resume` (the same folder if an earlier attempt left anything there, else empty) and `needs.<role>` (the
folder of a run that it needs). No shell is involved, unless the command is one: [sh, -c, "…"]. It finds in
its environment:

    JESTLAB_RUN_DIR      the run's folder
    JESTLAB_SEED         replicate
    JESTLAB_RESUME       the run's folder if an earlier attempt left anything there, else empty
    JESTLAB_RUN_CONFIG   a JSON file: its whole config, seed included
    JESTLAB_NEEDS        JSON: role → folder of each run that it needs
    JESTLAB_REPORTS, JESTLAB_REPLIES   where it reports: see `jestlab.platform.client`

It works where the launch was made, or in `cwd`. The whole config but for `cwd` is its identity, the command
included; the files that the command names are not: give the config a key such as `version: 2` when they do
something else.
Exit code 0 completes the run. SIGTERM is passed on, once, and however the command then ends, the run was
stopped, and goes on later with JESTLAB_RESUME set.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.platform.errors import nearest
from jestlab.platform.programs import placeholders
from jestlab.platform.programs.program import Problem, Program

if TYPE_CHECKING:
    from jestlab.platform.context import RunContext
    from jestlab.platform.programs.channel import Channel
    from jestlab.platform.programs.child import Child

CONFIG_NAME = "config.json"
_UNFINISHED = CONFIG_NAME + ".new"
_OURS = ("seed", "directory", "resume")
_ABOUT = ("command", "cwd")
_TICK_SECONDS = 0.2  # until a request to stop is passed on


def problems(config: Mapping[str, Any], roles: Collection[str]) -> Iterator[Problem]:
    """What is wrong with a config: see `Program.problems`."""
    for name in ("directory", "resume", "needs"):
        if name in config:
            yield (name,), f"{name!r} is what jestlab gives the command: choose another name"
    if not isinstance(config.get("cwd"), str | None):
        yield ("cwd",), "must be the path of a folder"
    try:
        words = _words(config.get("command"))
        known = {*_values(config), *_OURS, *(f"needs.{role}" for role in roles)}
        for word in words:
            for name in placeholders.names(word):
                if name not in known:
                    yield ("command",), f"no value for {{{name}}}: {nearest(name, known)} (a brace: {{{{)"
    except ValueError as error:
        yield ("command",), str(error)


def _words(command: object) -> list[str]:
    """The words of a command, given as a list or as a shell would split it.

    Raises:
        ValueError: It is no command.
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
        words = [placeholders.text(word) for word in command]
    else:
        raise ValueError(f"must be a list of words, {example}")
    if not words or not words[0]:
        raise ValueError(f"is empty: the words of the command, {example}")
    return words


def _values(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Dotted key → value, of sections too."""
    values: dict[str, Any] = {}
    for key, value in config.items():
        if not path and key in _ABOUT:
            continue
        values[path + key] = value
        if isinstance(value, dict):
            values |= _values(value, f"{path}{key}.")
    return values


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the result: not where the command works."""
    return {key: value for key, value in config.items() if key != "cwd"}


def run(config: Mapping[str, Any], context: RunContext) -> None:
    """Run the command to its end.

    Args:
        config: The run.
        context: Where to work and report.

    Raises:
        Failed: The command did; with its exit code and the last lines that it printed.
        Interrupted: It was asked to stop, and ended.
        UserError: It could not be started, or reported what is no message.
    """
    from jestlab.platform.context import Failed, Interrupted
    from jestlab.platform.launch import exits, logs
    from jestlab.platform.programs.channel import Channel
    from jestlab.platform.programs.child import Child

    if context.stop_requested():
        raise Interrupted
    directory = context.directory
    needs = {role: str(need.directory) for role, need in context.needs.items()}
    resume = str(directory) if _left_behind(directory) else ""
    values = _values(config) | {"seed": context.seed, "directory": str(directory), "resume": resume}
    values |= {f"needs.{role}": folder for role, folder in needs.items()}
    environment = {
        "JESTLAB_RUN_DIR": str(directory),
        "JESTLAB_SEED": str(context.seed),
        "JESTLAB_RESUME": resume,
        "JESTLAB_RUN_CONFIG": str(_write_config(config, directory)),
        "JESTLAB_NEEDS": json.dumps(needs),
    }
    words = [placeholders.fill(word, values) for word in _words(config["command"])]
    cwd = Path(config["cwd"]) if config.get("cwd") else None
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
        raise Failed(": ".join(filter(None, [exits.describe(child.code), logs.tail(child.last_words)])))


def _serve(child: Child, channel: Channel, context: RunContext) -> None:
    """Copy what the command prints and take in what it reports, until it ends; pass a request to stop on."""
    with selectors.DefaultSelector() as selector, _end_of(child) as ended:
        selector.register(channel.reports, selectors.EVENT_READ, channel.read)
        selector.register(child.output, selectors.EVENT_READ, child.copy_output)
        if ended is not None:
            selector.register(ended, selectors.EVENT_READ)
        while child.runs():
            for key, _ in selector.select(_TICK_SECONDS):
                if key.fd == ended or (not key.data() and key.fd == child.output):
                    selector.unregister(key.fd)  # it is over: ready for ever
            if context.stop_requested() and not child.stopping:
                channel.tell_stop()
                child.stop()


@contextlib.contextmanager
def _end_of(child: Child) -> Iterator[int | None]:
    """Context with a descriptor that is ready when the command has ended; None where there is none."""
    try:
        descriptor = os.pidfd_open(child.pid)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _left_behind(directory: Path) -> bool:
    """Whether there is anything in a run's folder that an earlier attempt's command put there."""
    from jestlab.platform.launch import logs
    from jestlab.platform.store.spool import PREFIX

    ours = (logs.NAME, CONFIG_NAME, _UNFINISHED)
    return any(path.name not in ours and not path.name.startswith(PREFIX) for path in directory.iterdir())


def _write_config(config: Mapping[str, Any], directory: Path) -> Path:
    path = directory / CONFIG_NAME
    unfinished = path.with_name(_UNFINISHED)
    unfinished.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    unfinished.replace(path)
    return path


COMMAND = Program(
    name="command",
    entry_point="jestlab.platform.programs.command:run",
    problems_of=problems,
    identity_of=identity,
    local_paths=(("cwd",),),
    collective=False,
)
