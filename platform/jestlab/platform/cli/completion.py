"""`jestlab completion`, and argument types with shell completion: studies, experiments, runs.

The user waits for each completion, so names are read directly from a SQLite store, not from other databases,
and errors are ignored.
"""

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
    add_completion_class,
    get_completion_class,
    shell_complete,
    split_arg_string,
)

_VARIABLE = "_JESTLAB_COMPLETE"

_TABLES = (
    "summary", "speedups", "scaling", "claims",
    "comparison", "longer_training", "specialists", "laion", "raw_vs_filtered",
)  # fmt: skip


# ---- names


def _query(context: click.Context, query: str, *values: str) -> list[tuple[Any, ...]]:
    """Query the lab's SQLite store; return no rows if it is missing, locked, or another database."""
    from jestlab.analysis import read_only
    from jestlab.analysis.shared import LocalCopy, is_shared, store_in

    url = context.params.get("store") or os.environ.get("JESTLAB_STORE")
    root = context.params.get("root") or os.environ.get("JESTLAB_ROOT") or "lab"
    path = Path(url.removeprefix("sqlite:///") if url else store_in(Path(root).expanduser())).absolute()
    path = LocalCopy(path).file if is_shared(path) else path
    if not path.is_file():
        return []
    with suppress(sqlite3.Error, OSError), closing(read_only.open_readonly(path, timeout=0.1)) as connection:
        rows = connection.execute(query, values).fetchall()
        return [row for row in rows if all(str(value).isprintable() for value in row)]
    return []


def _experiments(context: click.Context, incomplete: str) -> list[str]:
    query = "SELECT experiment FROM v_experiments ORDER BY updated_at DESC"
    return [name for (name,) in _query(context, query)]


def _runs_of(context: click.Context, experiment: str) -> list[str]:
    """Return the names of an experiment's runs, with seeds if there are several."""
    query = "SELECT DISTINCT label, seed FROM v_runs WHERE experiment = ? ORDER BY position, label, seed"
    rows = _query(context, query, experiment)
    several = len({seed for _, seed in rows}) > 1
    return [f"{experiment}/{label}/{seed}" if several else f"{experiment}/{label}" for label, seed in rows]


def _runs(context: click.Context, incomplete: str) -> list[str]:
    """Return the names of experiments, with a slash; if only one matches, those of its runs."""
    names = _experiments(context, incomplete)
    matching = [name for name in names if f"{name}/".startswith(incomplete[: len(name) + 1])]
    return _runs_of(context, *matching) if len(matching) == 1 else [f"{name}/" for name in matching]


def _specs(context: click.Context, incomplete: str) -> list[str]:
    """Return the names of registered studies, and of files in this folder that may contain a study."""
    from jestlab.platform.study_registry import study_names

    files = (path.name for path in sorted(Path().glob("[!.]*")))
    return [*study_names(), *(name for name in files if name.endswith((".yaml", ".yml", ".py")))]


class _Name(click.ParamType[str]):
    """A name completed from the results of a function; if none matches and `or_file`, files."""

    name = "name"

    def __init__(self, names: Callable[[click.Context, str], Iterable[str]], or_file: bool = False) -> None:
        self._names = names
        self._or_file = or_file

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        names = [name for name in self._names(ctx, incomplete) if name.startswith(incomplete)]
        if self._or_file and not names:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(name) for name in names]


EXPERIMENT, RUN = map(_Name, (_experiments, _runs))
SPEC = _Name(_specs, or_file=True)
SPEC_RUN = _Name(lambda context, incomplete: _runs_of(context, Path(context.params.get("spec") or "").stem))
SUBJECT = _Name(
    lambda context, incomplete: (_runs if "/" in incomplete else _experiments)(context, incomplete)
)
"""An experiment, or runs of one."""

SCALE = _Name(lambda context, incomplete: ("smoke", "mini", "paper"))
TABLE = _Name(lambda context, incomplete: [*_experiments(context, incomplete), *_TABLES])
SOURCE = _Name(_runs, or_file=True)
"""A run, or the path of a file with weights."""


# ---- shells


class _Bash(BashComplete):
    """Completion for bash, which splits words at `=` and `:` and inserts results without quoting them."""

    source_template = BashComplete.source_template.replace("read type", "read -r type")
    _typed = ""  # the last word as typed, with quotes and backslashes

    def get_completion_args(self) -> tuple[list[str], str]:
        words = os.environ["COMP_WORDS"].split("\n")[: int(os.environ["COMP_CWORD"]) + 1]
        *before, self._typed = re.sub(r"\n?([=:])\n?", r"\1", "\n".join(words)).split("\n")
        return split_arg_string("\n".join(before))[1:], "".join(split_arg_string(self._typed))

    def format_completion(self, item: CompletionItem[str]) -> str:
        value = item.value
        if not self._typed.startswith(("'", '"')):
            start = re.sub(r"[^=:]*$", "", self._typed)
            value = value.removeprefix("".join(split_arg_string(start)))
            value = re.sub(r"([^\w@%+=:,./-])", r"\\\1", value)
        return f"{item.type},{value}"


add_completion_class(_Bash)


def complete(cli: click.Group) -> int:
    """Print the completions that the shell requests in environment variables; return the exit code."""
    with suppress(Exception):  # a failed completion is silent
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
    """Print the script that makes SHELL complete verbs, options, studies, experiments, and runs."""
    from jestlab.platform.cli.output import print_or_write

    kind = get_completion_class(shell)
    assert kind is not None  # one of the choices
    print_or_write(None, kind(context.command, {}, "jestlab", _VARIABLE).source())
