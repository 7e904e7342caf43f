"""Every verb explains itself: what it does, its options, and commands to copy."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from jestlab.platform.cli import VERBS, cli


def commands() -> Iterator[tuple[str, ...]]:
    """List all verbs with the verbs below them."""

    def below(words: tuple[str, ...], command: click.Command) -> Iterator[tuple[str, ...]]:
        yield words
        if isinstance(command, click.Group):
            for name, each in command.commands.items():
                yield from below((*words, name), each)

    for verb in VERBS:
        command = cli.get_command(click.Context(cli), verb)
        assert command is not None
        yield from below((verb,), command)


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_help_has_examples_that_are_commands(words):
    shown = CliRunner().invoke(cli, [*words, "--help"], terminal_width=110)
    assert shown.exit_code == 0
    about, _, examples = shown.output.partition("Examples:\n")
    assert f"jestlab {words[0]}" in examples
    assert all(
        line.startswith("  ") and line.split()[0] == "jestlab" for line in examples.splitlines() if line
    )
    options = about.partition("Options:")[2]
    assert "--json" in options or (len(words) < 3 and "Commands:" in options) or words == ("completion",)


@pytest.mark.parametrize("words", [(), *commands()], ids=" ".join)
def test_help_fits_80_columns(words):
    shown = CliRunner().invoke(cli, [*words, "--help"], terminal_width=80).output
    assert not [line for line in shown.splitlines() if len(line) > 80]


def test_the_list_of_verbs_is_in_the_order_of_the_work_and_has_examples():
    shown = CliRunner().invoke(cli, ["--help"], terminal_width=110, catch_exceptions=False).output
    listed = [line.split()[0] for line in shown.partition("Verbs:")[2].partition("\n\n")[0].splitlines()[1:]]
    assert listed == list(VERBS)
    assert "jestlab launch quickstart" in shown.partition("Examples:")[2]
    assert all(text.endswith(".") for text in VERBS.values())
