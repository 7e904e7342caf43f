"""The program `command`: run a command in any language.

    program: command
    base: {command: [python, train.py, --lr, "{learning_rate}", --out, "{directory}"], learning_rate: 0.1}

Words may contain placeholders: every key of the config, `seed`, `directory` (the run's folder), `resume` (the
same folder if an earlier attempt left files in it, else empty), and `needs.<role>` (the folder of a
dependency). Write `{{` and `}}` for braces. There is no shell unless the command starts one: [sh, -c, "…"].
The command's environment contains:

    JESTLAB_RUN_DIR      the run's folder
    JESTLAB_SEED         seed of the replicate
    JESTLAB_RESUME       the run's folder if an earlier attempt left files in it, else empty
    JESTLAB_RUN_CONFIG   path of a JSON file: the whole config, including the seed
    JESTLAB_NEEDS        JSON: role → folder of the dependency
    JESTLAB_REPORTS, JESTLAB_REPLIES   pipes for reports: see `jestlab.platform.client`
    RANK, WORLD_SIZE, MASTER_ADDR, …   only if several processes run the command: see `ranks`
    PYTHONPATH           ends with a folder that contains only `jestlab.platform.client`, so that every Python
                         on this machine can import it; an installed jestlab has precedence

The command runs in `cwd`, by default the folder of the spec. The identity of a run is the whole config except
`cwd`. It includes the command, but not the content of files that the command names. Attempts record these
files and the custom modules that they import. `plan` and `launch` report results made with different versions
of them, and `launch --rerun-changed` executes such runs again.

With `resources: {nodes: 2, tasks_per_node: 4}`, each of two machines starts the same command four times. If
one of these processes fails, all of them end, and so does the attempt.

Exit code 0 completes the run. The run isn't retried after a usage error (exit code 2), if the command can't
be executed (126, 127), or if it ends with the traceback of a TypeError or a similar programming error, unless
`resources: {retry_exit_codes: [2]}` lists the exit code. SIGTERM is passed to the command once. The run then
counts as stopped, whatever its exit code, and resumes later with JESTLAB_RESUME set.
"""

import itertools
import json
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jestlab.platform.errors import UserError, near, nearest
from jestlab.platform.programs.program import DataLookup, Program
from jestlab.platform.spec.program import FreeKey, Problem
from jestlab.platform.spec.tree import without

KEYS = {
    "command": FreeKey(
        "list of words or string",
        "required",
        "The words of the command, with placeholders such as {learning_rate}, {seed}, and {directory}.",
    ),
    "cwd": FreeKey("path", "the folder of the spec", "Working directory; null for that of the launcher."),
}
"""Reserved keys of the config. All other keys are free."""

_PROVIDED = ("seed", "directory", "resume")
_PLACEHOLDERS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_EXAMPLE = "as in [python, train.py, --lr, '{learning_rate}']"


# ---- words and placeholders


def problems(config: Mapping[str, Any], roles: Collection[str]) -> Iterator[Problem]:
    """Yield the mistakes in a config: see `ProgramConfig.problems`."""
    for name in ("directory", "resume", "needs"):
        if name in config:
            yield (name,), f"{name!r} is reserved for jestlab: choose another name"
    if not isinstance(config.get("cwd"), str | None):
        yield ("cwd",), "must be the path of a folder"
    known = {*placeholder_values(config), *_PROVIDED, *(f"needs.{role}" for role in roles)}
    try:
        for name in itertools.chain.from_iterable(map(placeholder_names, words_of(config.get("command")))):
            if name not in known:
                yield ("command",), f"no value for {{{name}}}: {nearest(name, known)} (a brace: {{{{)"
    except ValueError as error:
        yield ("command",), str(error)


def words_of(command: object) -> list[str]:
    """Return the words of a command: a list of words, or a string that is split as a shell would.

    Raises:
        ValueError: The command is invalid.
    """
    if command is None:
        raise ValueError(f"is missing: expected the words of the command, {_EXAMPLE}")
    if isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise ValueError(f"{command!r} can't be split into words: {error}") from None
    elif isinstance(command, list) and all(isinstance(word, str | int | float) for word in command):
        words = [as_word(word) for word in command]
    else:
        raise ValueError(f"must be a list of words, {_EXAMPLE}")
    if not words or not words[0]:
        raise ValueError(f"is empty: expected the words of the command, {_EXAMPLE}")
    return words


def placeholder_values(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return the values of placeholders by dotted key. A section of the config is a value, too."""
    values: dict[str, Any] = {}
    for key, value in config.items():
        if path or key not in KEYS:
            values[path + key] = value
            if isinstance(value, dict):
                values |= placeholder_values(value, f"{path}{key}.")
    return values


def known_words(config: Mapping[str, Any]) -> list[str]:
    """Return the words of a config's command with values for placeholders; empty if the command is invalid.

    Words with placeholders that only a worker can replace, such as the run's folder, are unchanged.
    """
    values = placeholder_values(config)

    def filled(word: str) -> str:
        try:
            return fill(word, values)
        except KeyError:
            return word

    try:
        return [filled(word) for word in words_of(config.get("command"))]
    except ValueError:
        return []


def placeholder_names(word: str) -> Iterator[str]:
    """Yield the names of the placeholders in a word.

    Raises:
        ValueError: The word contains a single brace.
    """
    for match in _PLACEHOLDERS.finditer(word):
        if match[0] in ("{", "}"):
            raise ValueError(f"{word!r} has a single brace: write {match[0] * 2} for {match[0]}")
        if match[1] is not None:
            yield match[1]


def fill(word: str, values: Mapping[str, Any]) -> str:
    """Replace the placeholders in a word: strings are inserted unchanged, other values as JSON.

    Raises:
        KeyError: A placeholder has no value.
    """

    def value(match: re.Match[str]) -> str:
        return match[0][0] if match[1] is None else as_word(values[match[1]])

    return _PLACEHOLDERS.sub(value, word)


def as_word(value: Any) -> str:
    """Return a value as a word of a command."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# ---- scripts


_SUFFIXES = frozenset({".py", ".sh", ".bash", ".pl", ".rb", ".js", ".jl", ".R", ".lua"})
_FLAGS = frozenset({"-u", "-B", "-I", "-O", "-s"})  # of Python, without a value
_CODE_OPTION = re.compile(r"-|-\w*[cmeEp]\w*")  # python -c, -m, perl -e: the next word isn't a script


def complete(config: dict[str, Any], data: DataLookup) -> dict[str, Any]:
    """Check that the scripts of a command exist, if it will run on this machine: see `Program.complete`."""
    # A word with a placeholder for the run's folder can't name a script.
    words = ["-" if _PLACEHOLDERS.search(word) else word for word in known_words(config)]
    for script in scripts_of(words) if data.placement == "local" else ():
        path = Path(config.get("cwd") or ".") / script
        if not path.exists():
            similar = near(path.name, (file.name for file in path.parent.glob(f"*{path.suffix}")))
            hint = similar or "paths are relative to `cwd`, the spec's folder"
            raise UserError(f"command: no such file {path}: {hint}")
    return config


def scripts_of(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command that certainly name files that it executes.

    These are the first word, if it is a path, and the first later word with the suffix of a script. That word
    is left out if it may be the value of an option, or if the command executes a module (-m) or code (-c).
    """
    if words and os.sep in words[0]:
        yield words[0]
    for before, word in itertools.pairwise(words):
        if Path(before).suffix in _SUFFIXES or _CODE_OPTION.fullmatch(word):
            return
        if Path(word).suffix in _SUFFIXES and (before[:1] != "-" or before in _FLAGS):
            yield word


COMMAND = Program(
    name="command",
    free_keys=KEYS,
    entry_point="jestlab.platform.programs.command_run:run",
    problems=problems,
    identity=lambda config: without(config, ["cwd"]),
    complete=complete,
    folder_key="cwd",
)
