"""`jestlab completion`, and types of arguments that a shell completes: studies, experiments, runs.

Names are read from a SQLite store directly: a shell waits for the answer, and shows no errors.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    ZshComplete,
    add_completion_class,
    get_completion_class,
    shell_complete,
    split_arg_string,
)

_VARIABLE = "_JESTLAB_COMPLETE"

_TABLES = (
    "summary", "speedups", "claims",
    "comparison", "longer_training", "specialists", "laion", "raw_vs_filtered",
)  # fmt: skip


# ---- names


def _rows(context: click.Context, query: str, *values: str) -> list[tuple[Any, ...]]:
    """Query the SQLite store of a command line; return no rows if that isn't possible immediately."""
    from jestlab.analysis import guards

    url = context.params.get("store") or os.environ.get("JESTLAB_STORE")
    root = context.params.get("root") or os.environ.get("JESTLAB_ROOT") or "lab"
    path = Path(url.removeprefix("sqlite:///") if url else Path(root).expanduser() / "results.db").absolute()
    if not path.is_file():
        return []
    with suppress(sqlite3.Error, OSError), closing(guards.open_readonly(path, timeout=0.1)) as connection:
        rows = connection.execute(query, values).fetchall()
        return [row for row in rows if all(str(value).isprintable() for value in row)]
    return []


def _experiments(context: click.Context, incomplete: str) -> list[str]:
    query = "SELECT experiment FROM v_experiments ORDER BY updated_at DESC"
    return [name for (name,) in _rows(context, query)]


def _runs_of(context: click.Context, experiment: str) -> list[str]:
    """Name the runs of an experiment, with their seeds if there are several seeds."""
    query = "SELECT DISTINCT label, seed FROM v_runs WHERE experiment = ? ORDER BY position"
    rows = _rows(context, query, experiment)
    several = len({seed for _, seed in rows}) > 1
    return [f"{experiment}/{label}/{seed}" if several else f"{experiment}/{label}" for label, seed in rows]


def _runs(context: click.Context, incomplete: str) -> list[str]:
    """Name experiments and, after a slash, the runs of one."""
    experiments = _experiments(context, incomplete)
    of = next((name for name in experiments if incomplete.startswith(f"{name}/")), None)
    return [f"{name}/" for name in experiments] if of is None else _runs_of(context, of)


def _subjects(context: click.Context, incomplete: str) -> list[str]:
    return (_runs if "/" in incomplete else _experiments)(context, incomplete)


def _runs_of_spec(context: click.Context, incomplete: str) -> list[str]:
    return _runs_of(context, Path(context.params.get("spec") or "").stem)


def _specs(context: click.Context, incomplete: str) -> list[str]:
    """Name registered studies, and files that may contain a study."""
    from jestlab.platform.study_registry import study_names

    folder, slash, _ = incomplete.rpartition("/")
    names = [] if slash else study_names()
    with suppress(OSError):
        for entry in sorted(os.scandir(folder or slash or "."), key=lambda entry: entry.name):
            ending = "/" if slash and entry.is_dir() else ""
            if entry.name[0] != "." and (ending or entry.name.endswith((".yaml", ".yml", ".py"))):
                names.append(f"{folder}{slash}{entry.name}{ending}")
    return names


class _Names(click.ParamType[str]):
    """A name, completed by a function, or else the path of a file."""

    name = "name"

    def __init__(self, names: Callable[[click.Context, str], Iterable[str]], or_file: bool = False) -> None:
        self._names = names
        self._or_file = or_file

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        names = [name for name in self._names(ctx, incomplete) if name.startswith(incomplete)]
        if self._or_file and not (names and incomplete):
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(name) for name in names]


EXPERIMENT, RUN, SPEC, SPEC_RUN = _Names(_experiments), _Names(_runs), _Names(_specs), _Names(_runs_of_spec)
SUBJECT = _Names(_subjects)
"""An experiment, or its runs."""

SCALE = _Names(lambda context, incomplete: ("smoke", "mini", "paper"))
TABLE = _Names(lambda context, incomplete: [*_experiments(context, incomplete), *_TABLES])
SOURCE = _Names(_runs, or_file=True)
"""A run, or the path of weights."""


# ---- shells


class _Bash(BashComplete):
    """Completes words of bash, which breaks them at `=` and `:`, and inserts results unquoted."""

    source_template = (
        BashComplete.source_template.replace(
            "COMP_CWORD=", 'COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_CWORD='
        )
        .replace("read type", "read -r type")
        .replace(
            "    return 0",
            "    [[ ${#COMPREPLY[@]} -eq 1 && $COMPREPLY == */ ]] && compopt -o nospace\n    return 0",
        )
    )
    _typed = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        while words and "=" in words[0]:  # NAME=value jestlab …
            words.pop(0)
        word = re.search(r"(?:\\.|'[^']*'?|\"(?:\\.|[^\"])*\"?|[^\s'\"\\])*$", line)
        self._typed = word[0] if word else ""
        incomplete = words.pop() if self._typed else ""
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        value = item.value
        if not self._typed.startswith(("'", '"')):
            typed = "".join(re.split(r"(?<=[=:])", self._typed)[:-1])
            value = value[len(re.sub(r"\\(.)", r"\1", typed)) :]
            value = re.sub(r"([^\w@%+=:,./-])", r"\\\1", value)
        return f"{item.type},{value}"


class _Zsh(ZshComplete):
    """Completes words of zsh, without a space after a slash."""

    source_template = ZshComplete.source_template.replace(
        "compadd -U",
        "local -a ending; [[ $completions[-1] == */ ]] && ending=(-S '')\n        compadd $ending -U",
    )


for _each in (_Bash, _Zsh):
    add_completion_class(_each)


def complete(cli: click.Group) -> int:
    """Answer the shell whose script has called this process."""
    with suppress(Exception):  # a shell shows no errors
        return shell_complete(cli, {}, "jestlab", _VARIABLE, os.environ[_VARIABLE])
    return 1


@click.command(
    epilog="""\b
bash: add to ~/.bashrc     eval "$(jestlab completion bash)"
zsh:  add to ~/.zshrc      eval "$(jestlab completion zsh)"
fish: run once             jestlab completion fish >
                             ~/.config/fish/completions/jestlab.fish

\b
Examples:
  jestlab completion bash
"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print the script that completes verbs, options, studies, experiments, and runs in SHELL."""
    from jestlab.platform.cli.output import print_or_write

    kind = get_completion_class(shell)
    assert kind is not None  # one of the choices
    print_or_write(None, kind(context.command, {}, "jestlab", _VARIABLE).source())
