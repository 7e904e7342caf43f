"""The help of every verb has its options and commands to copy; `jestlab keys` explains the keys of specs."""

import functools
import json
import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from jestlab.platform.cli import cli


def commands() -> Iterator[tuple[str, ...]]:
    """Yield all verbs, each with its subcommands."""

    def below(words: tuple[str, ...], command: click.Command) -> Iterator[tuple[str, ...]]:
        yield words
        if isinstance(command, click.Group):
            for name, each in command.commands.items():
                yield from below((*words, name), each)

    for verb in cli.verbs:
        command = cli.get_command(click.Context(cli), verb)
        assert command is not None
        yield from below((verb,), command)


def shown(words: tuple[str, ...], width: int) -> str:
    result = CliRunner().invoke(cli, [*words, "--help"], terminal_width=width)
    assert result.exit_code == 0
    return result.output


def test_help_has_examples_and_describes_json():
    wrong = []
    for words in commands():
        about, _, text = shown(words, 110).partition("Examples:\n")
        examples = [line for line in text.splitlines() if line]
        if f"jestlab {words[0]}" not in text or any(line.split()[0] != "jestlab" for line in examples):
            wrong.append(f"{' '.join(words)}: examples must be commands")
        options = about.partition("Options:")[2]
        is_group = len(words) < 3 and "Commands:" in options
        if "--json" not in options and not is_group and words != ("completion",):
            wrong.append(f"{' '.join(words)}: no option --json")
    assert wrong == []


def test_help_fits_80_columns():
    wide = [words for words in ((), *commands()) if max(map(len, shown(words, 80).splitlines())) > 80]
    assert wide == []


def test_the_list_of_verbs_is_in_the_order_of_the_work():
    text = shown((), 110)
    assert re.findall(r"^  ([a-z-]+)  ", text.partition("Author:")[2], re.M) == list(cli.verbs)
    assert "jestlab launch quickstart" in text.partition("Examples:")[2]
    assert all(about.endswith(".") for about in cli.verbs.values())


@pytest.fixture
def keys(checked):
    return functools.partial(checked, "keys")


def test_a_section_lists_its_keys_with_defaults(keys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    out = keys("optimizer")
    assert [line.split()[:2] for line in out.splitlines()[1:3]] == [
        ["optimizer.learning_rate", "0.001"],
        ["optimizer.beta1", "0.9"],
    ]
    assert "9 keys." in out and "jestlab keys KEY" in out


def test_a_key_has_choices_and_a_default(keys):
    lines = [" ".join(line.split()) for line in keys("selection.rule").splitlines()]
    assert lines[0] == "selection.rule"
    assert set(lines) >= {
        "choices uniform, independent, joint, greedy, gibbs",
        "default uniform",
        "used by train",
        "identity part of a run's identity",
    }
    [key] = json.loads(keys("selection.rule", "--json"))
    assert key["choices"] == ["uniform", "independent", "joint", "greedy", "gibbs"]
    assert (key["path"], key["default"], key["where"]) == ("selection.rule", "uniform", ["train"])
    assert key["identity"] is True
    assert len(json.loads(keys("--json"))) > 200
    assert "not part of a run's identity" in keys("runtime.microbatches")
    assert keys("selection.ruel", code=1) == (
        "jestlab: no key 'selection.ruel': did you mean 'selection.rule'?\n"
    )


def test_a_key_with_a_different_meaning_per_program_is_listed_twice(keys):
    out = keys("loss")
    assert out.count("used by") == 2
    assert "The loss that scores" in out and "The contrastive loss that is trained with" in out
