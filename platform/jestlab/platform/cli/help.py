"""Groups of verbs, and how their help looks."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem


class Verbs(click.Group):
    """A verb with subcommands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the subcommands in the order of their definition."""
        return [*self.commands]


class LazyVerbs(click.Group):
    """The group of all verbs, which imports the module of a verb when the verb is used."""

    def __init__(
        self, *args: Any, sections: Mapping[str, Mapping[str, str]], modules: Mapping[str, str], **kwargs: Any
    ) -> None:
        """Create the group.

        Args:
            *args: As for `click.Group`.
            sections: Title of a section of the help → its verbs, each with a line of help.
            modules: Verb → its module in this package, if that isn't named like the verb.
            **kwargs: As for `click.Group`.
        """
        super().__init__(*args, **kwargs)
        self._sections = sections
        self._modules = modules
        self.verbs = {verb: about for verbs in sections.values() for verb, about in verbs.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the verbs in the order of the help."""
        return [*self.verbs]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of a verb; None for an unknown verb."""
        if cmd_name not in self.verbs:
            return None
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"{__package__}.{self._modules.get(cmd_name, name)}")
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete options and verbs without importing any."""
        verbs = [CompletionItem(verb) for verb in self.verbs if verb.startswith(incomplete)]
        return [*click.Command.shell_complete(self, ctx, incomplete), *verbs]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command, with the most similar verb in the error."""
        if args and args[0] not in self.verbs and not args[0].startswith("-"):
            from jestlab.platform.errors import nearest

            ctx.fail(f"unknown verb {args[0]!r}: {nearest(args[0], self.verbs)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of verbs without importing any."""
        longest = max(map(len, self.verbs))
        for title, verbs in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(verb.ljust(longest), about) for verb, about in verbs.items()])
