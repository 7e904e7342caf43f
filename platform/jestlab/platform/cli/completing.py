"""What a shell may complete a command line with; see `completion`, which makes shells ask.

A person waits for the answer: no verb is imported unless an option is to be completed or an argument that is
not listed here, and a SQLite store is read by itself. Where nothing can be known, nothing is said.
"""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import click

from jestlab.analysis import guards
from jestlab.platform.registry import study_names

FILES, FOLDERS = ("//files",), ("//folders",)
"""Answers that let the shell complete names of files or folders."""

_SPECS = (".yaml", ".yml", ".py")
_SHARED = {
    "--root": 1,
    "--store": 1,
    "--set": 1,
    "--json": 0,
    "--wide": 0,
    "--help": 0,
    "-h": 0,
}
"""Options that many verbs have → the number of words that follow them."""

_TABLES = (
    "summary", "speedups", "claims",
    "comparison", "longer_training", "specialists", "laion", "raw_vs_filtered",
)  # fmt: skip
_HERE = "\ue000"  # where the cursor is


def answer(shell: str, line: str, cli: click.Group, verbs: Mapping[str, str]) -> str:
    """Return what a shell may complete a line with, one a line, as that shell takes it.

    Args:
        shell: bash, zsh or fish.
        line: The command line up to the cursor.
        cli: The group of all verbs.
        verbs: Verb → what it does.
    """
    before, begun, raw = split(line)
    values = list(_candidates(before, begun, cli, verbs))
    if values[:1] in (list(FILES), list(FOLDERS)):
        return values[0]
    found = [value for value in values if value.startswith(begun)]
    if shell == "fish":
        found = [f"{value}\t{verbs[value]}" if not before and value in verbs else value for value in found]
    if shell == "bash":
        found = _for_bash(found, raw)
    return "\n".join(found)


def split(line: str) -> tuple[list[str], str, str]:
    """Split the last command of a line into the words before the cursor and the word at it.

    Returns:
        The words after the command's name and before the cursor, without quotes; the word at the cursor up to
        it, without quotes, and as it was written.
    """
    words: list[str] = []
    for end in ("", "'", '"'):
        lexer = shlex.shlex(f"{line}{_HERE}{end}", posix=True, punctuation_chars=";|&")
        lexer.whitespace_split, lexer.commenters = True, ""
        try:
            words = list(lexer)
            break
        except ValueError:  # a quote is open
            continue
    last = max((i + 1 for i, word in enumerate(words) if word and set(word) <= set(";|&")), default=0)
    *before, at = words[last:] or [_HERE]
    while before and "=" in before[0]:  # NAME=value jestlab …
        before.pop(0)
    raw = re.search(r"(?:\\.|'[^']*'?|\"(?:\\.|[^\"])*\"?|[^\s'\"\\])*$", line)
    return before[1:], at.replace(_HERE, ""), raw[0] if raw else ""


def _for_bash(values: Iterable[str], raw: str) -> list[str]:
    """Write values as bash inserts them: quoted, and without what is before its last break of words."""
    if raw[:1] in ("'", '"') and raw:
        return list(values)
    typed = re.split(r"(?<=[=:])", raw)
    gone = len(re.sub(r"\\(.)", r"\1", "".join(typed[:-1])))
    return [re.sub(r"([^\w@%+=:,./-])", r"\\\1", value[gone:]) for value in values]


def _candidates(
    before: Sequence[str], begun: str, cli: click.Group, verbs: Mapping[str, str]
) -> Iterable[str]:
    """Return what may stand at the cursor, whatever has begun there."""
    words = [word for word in before if word != "--debug"]
    if not words:
        return ("--help", "--debug", "--version") if begun.startswith("-") else verbs
    verb, *rest = words
    if verb not in verbs:
        return ()
    path: tuple[str, ...] = (verb,)
    command: click.Command | None = None
    if begun.startswith("-") or any(
        word.startswith("-") and word.partition("=")[0] not in _SHARED for word in rest
    ):
        command, path, rest = _command(cli, verb, rest)
    else:
        while rest and rest[0] in _GROUPS.get(path, ()):
            path, rest = (*path, rest[0]), rest[1:]
    options = _SHARED if command is None else _options(command)
    given: list[str] = []
    place, values = "", dict[str, str]()
    for word in rest:
        if place:
            values[place], place = word, ""
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            if equals:
                values[name] = value
            elif options.get(name):
                place = name
        else:
            given.append(word)
    store = _Store.of(values)
    if place:
        return _values(place, command, given, begun, store)
    option, equals, value = begun.partition("=")
    if equals and options.get(option):
        found = list(_values(option, command, given, value, store))
        return found if found in ([*FILES], [*FOLDERS]) else [f"{option}={each}" for each in found]
    if begun.startswith("-"):
        return sorted(option for option in options if option.startswith("--"))
    if path in _GROUPS:
        return () if given else _GROUPS[path]
    if path in _ARGUMENTS:
        return _arguments(path, given, begun, store)
    command = command or _command(cli, verb, [*path[1:]])[0]
    arguments = [each for each in command.params if isinstance(each, click.Argument)] if command else []
    return _of_type(arguments[len(given)], begun) if len(given) < len(arguments) else ()


def _command(
    cli: click.Group, verb: str, rest: list[str]
) -> tuple[click.Command | None, tuple[str, ...], list[str]]:
    """Import a verb, and go down to the verb below it that the line names."""
    context = click.Context(cli, resilient_parsing=True)
    command, path = cli.get_command(context, verb), tuple[str, ...]((verb,))
    while isinstance(command, click.Group) and rest and rest[0] in command.commands:
        command, path, rest = command.commands[rest[0]], (*path, rest[0]), rest[1:]
    return command, path, rest


def _options(command: click.Command) -> dict[str, int]:
    """Return the options of a command with the number of words that follow each."""
    found = {"--help": 0, "-h": 0}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            count = 0 if parameter.is_flag or parameter.count else 1
            found |= dict.fromkeys((*parameter.opts, *parameter.secondary_opts), count)
    return found


def _values(
    option: str, command: click.Command | None, given: Sequence[str], begun: str, store: _Store
) -> Iterable[str]:
    """Return what may follow an option, after the arguments that are given."""
    if option == "--root":
        return FOLDERS
    if option in ("--experiment", "--into"):
        return store.experiments()
    if option in ("--baseline", "--highlight", "--run"):
        return store.labels(given)
    if option == "--target":
        return _runs(given, begun, store)
    parameters = command.params if command is not None else ()
    return next((_of_type(each, begun) for each in parameters if option in each.opts), ())


def _of_type(parameter: click.Parameter, begun: str) -> Iterable[str]:
    """Return what a parameter's own type completes."""
    items = parameter.shell_complete(click.Context(click.Command(None)), begun)
    kinds = {"file": FILES, "dir": FOLDERS}
    return next((kinds[item.type] for item in items if item.type in kinds), [item.value for item in items])


# ---- arguments

_GROUPS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("published",): ("import", "list", "export", "remove", "lint"),
    ("data",): ("make", "fetch", "pack", "inspect", "score"),
    ("data", "make"): ("shapes", "benchmark"),
    ("data", "fetch"): ("icons",),
    ("db",): ("upgrade", "check", "backup", "restore"),
    ("weights",): ("inspect", "import", "export"),
}
"""Verb → the verbs below it; a test compares them with the commands."""


def _arguments(path: tuple[str, ...], given: Sequence[str], begun: str, store: _Store) -> Iterable[str]:
    """Return what an argument of a verb may be, after those that are given."""
    kinds = _ARGUMENTS[path]
    kind = kinds[min(len(given), len(kinds) - 1)] if len(given) < len(kinds) or kinds[-1] in _MANY else None
    return kind(given, begun, store) if callable(kind) else kind or ()


def _specs(given: Sequence[str], begun: str, store: _Store) -> Iterable[str]:
    """Name registered studies, and files that may hold one."""
    folder = begun.rpartition("/")[0]
    place = Path(folder or ("/" if begun.startswith("/") else "."))
    prefix = f"{folder}/" if "/" in begun else ""
    found = []
    with suppress(OSError):
        for entry in sorted(os.scandir(place), key=lambda entry: entry.name):
            if entry.name.startswith("."):
                continue
            if entry.name.endswith(_SPECS):
                found.append(prefix + entry.name)
            elif prefix and entry.is_dir():
                found.append(f"{prefix}{entry.name}/")
    return [*([] if prefix else study_names()), *found]


def _experiments(given: Sequence[str], begun: str, store: _Store) -> Iterable[str]:
    return store.experiments()


def _tables(given: Sequence[str], begun: str, store: _Store) -> Iterable[str]:
    return [*store.experiments(), *_TABLES]


def _runs(given: Sequence[str], begun: str, store: _Store) -> Iterable[str]:
    """Name experiments to go on from, and behind a slash the runs of one."""
    experiments = store.experiments()
    of = next((name for name in experiments if begun.startswith(f"{name}/")), None)
    return [f"{name}/" for name in experiments] if of is None else store.runs(of)


def _subjects(given: Sequence[str], begun: str, store: _Store) -> Iterable[str]:
    """Name experiments, and behind a slash the runs of one."""
    return _runs(given, begun, store) if "/" in begun else store.experiments()


def _runs_of_study(given: Sequence[str], begun: str, store: _Store) -> Iterable[str]:
    return store.runs(Path(given[0]).stem)


def _tags(given: Sequence[str], begun: str, store: _Store) -> Iterable[str]:
    return store.tags()


def _sources(given: Sequence[str], begun: str, store: _Store) -> Iterable[str]:
    """Name runs with weights, where these begin so; else files."""
    runs = [name for name in _runs(given, begun, store) if begun and name.startswith(begun)]
    return runs or FILES


def _keys(given: Sequence[str], begun: str, store: _Store) -> Iterable[str]:
    """Name the keys of a spec. They are read from the classes that validate them, which takes a moment."""
    from jestlab.platform.spec.keys import find

    return dict.fromkeys(key.path for key in find(""))


_Kind = Callable[[Sequence[str], str, "_Store"], Iterable[str]] | tuple[str, ...]

_MANY = (_experiments, _runs_of_study, _tags, FILES)
"""Kinds of which a verb takes any number where they come last."""

_ARGUMENTS: dict[tuple[str, ...], tuple[_Kind, ...]] = {
    ("keys",): (_keys,),
    ("register",): (_specs,),
    ("show",): (_specs,),
    ("plan",): (_specs,),
    ("costs",): (_specs,),
    ("launch",): (_specs, _runs_of_study),
    ("status",): (_subjects,),
    ("attach",): (_experiments,),
    ("watch",): (_experiments,),
    ("logs",): (_runs,),
    ("cancel",): (_subjects,),
    ("retry",): (_subjects,),
    ("diff",): (_runs, _runs),
    ("table",): (_tables, _experiments),
    ("plot",): (_experiments,),
    ("report",): (_experiments,),
    ("show-batch",): (_runs,),
    ("note",): (_subjects,),
    ("tag",): (_subjects, _tags),
    ("accept",): (_experiments,),
    ("retract",): (_runs,),
    ("trust",): (_experiments,),
    ("export",): (FILES, _experiments),
    ("import",): (FILES,),
    ("weights", "inspect"): (_sources,),
    ("weights", "import"): (_sources, FILES),
    ("weights", "export"): (_sources, FILES),
    ("published", "import"): (FILES,),
    ("published", "lint"): (FILES,),
    ("db", "backup"): (FILES,),
    ("db", "restore"): (FILES,),
    ("data", "fetch", "icons"): (FOLDERS,),
    ("data", "pack"): (FOLDERS, FOLDERS),
    ("data", "inspect"): (FOLDERS,),
    ("data", "score"): (_runs, FILES),
}


class _Store:
    """Names in a SQLite store; none if it cannot be read at once."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @classmethod
    def of(cls, options: Mapping[str, str]) -> _Store:
        """Find the store that a line's options, else the environment, name."""
        url = options.get("--store") or os.environ.get("JESTLAB_STORE")
        if url:
            return cls(Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None)
        root = options.get("--root") or os.environ.get("JESTLAB_ROOT") or "lab"
        return cls(None if "://" in root else Path(root).expanduser() / "results.db")

    def experiments(self) -> list[str]:
        """Name the experiments, the last launched first."""
        return self._names("SELECT experiment FROM v_experiments ORDER BY updated_at DESC")

    def runs(self, experiment: str) -> list[str]:
        """Name the runs of an experiment; with their seeds, where there are several."""
        query = "SELECT DISTINCT label, seed FROM v_runs WHERE experiment = ? ORDER BY position"
        rows = self._rows(query, experiment)
        several = len({seed for _, seed in rows}) > 1
        return [
            f"{experiment}/{label}/{seed}" if several else f"{experiment}/{label}" for label, seed in rows
        ]

    def labels(self, names: Sequence[str]) -> list[str]:
        """Name the runs of those of the names that are experiments, each without its experiment and seed."""
        places = ", ".join("?" * len(names))
        order = "GROUP BY label ORDER BY min(position)"
        query = f"SELECT label FROM v_runs WHERE experiment IN ({places}) {order}"
        return self._names(query, *names)

    def tags(self) -> list[str]:
        """Name all tags."""
        return self._names("SELECT DISTINCT text FROM v_notes WHERE kind = 'tag' ORDER BY 1")

    def _names(self, query: str, *values: str) -> list[str]:
        return [name for (name,) in self._rows(query, *values)]

    def _rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        if self._path is None or not self._path.is_file():
            return []
        place = self._path.absolute()
        with (
            suppress(sqlite3.Error, OSError),
            closing(guards.open_readonly(place, timeout=0.1)) as connection,
        ):
            rows = connection.execute(query, values).fetchall()
            return [row for row in rows if all(str(value).isprintable() for value in row)]
        return []


def serve(cli: click.Group, verbs: Mapping[str, str]) -> None:
    """Answer the shell that has called this process."""
    with suppress(Exception):
        text = answer(os.environ["_JESTLAB_COMPLETE"], os.environ.get("_JESTLAB_LINE", ""), cli, verbs)
        sys.stdout.write(f"{text}\n" if text else "")
