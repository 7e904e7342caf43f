"""How the help of verbs looks: headings in bold on a terminal, whole sentences for verbs below a verb."""

from __future__ import annotations

import re
from typing import Any

import click

from jestlab.platform.terminal import has_styles, styled


class _Context(click.Context):
    """Writes the headings of a verb's help in bold, on a terminal."""

    class formatter_class(click.HelpFormatter):
        def write_heading(self, heading: str) -> None:
            title = styled(heading, "bold").shown(has_styles())
            self.write(f"{'':>{self.current_indent}}{title}:\n")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.color = True if has_styles() else self.color


def with_headings(command: click.Command) -> click.Command:
    """Let a verb, and those below it, write their help as `_Context` does."""
    command.context_class = _Context
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        with_headings(each)
    return command


class Verbs(click.Group):
    """A verb with verbs below it, whose help has the whole first sentence of each."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of the verbs below."""
        rows = []
        for name, command in self.commands.items():
            text = " ".join((command.help or "").split())
            rows.append((name, re.split(r"(?<=\.) ", text)[0]))
        with formatter.section("Commands"):
            formatter.write_dl(rows)
