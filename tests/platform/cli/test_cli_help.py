"""The help of every verb has its options and commands to copy; `jestlab keys` explains the keys of specs."""

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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
        if "--json" not in options and not is_group and words not in (("completion",), ("schema",)):
            wrong.append(f"{' '.join(words)}: no option --json")
    assert wrong == []


def test_texts_begin_with_a_sentence_and_defaults_have_one_style():
    wrong = []
    for words in commands():
        command: click.Command | None = cli
        for word in words:
            command = command.get_command(click.Context(command), word)  # type: ignore[union-attr, arg-type]
        assert command is not None
        first = " ".join((command.help or "").split("\n\n")[0].split())
        helps = [each.help or "" for each in command.params if isinstance(each, click.Option)]
        wrong += [
            (words, text) for text in helps if not re.fullmatch(r"[A-Z][^[]*\.(  \[default: [^[]+\])?", text)
        ]
        wrong += [(words, text) for text in helps if "default:" in text.partition("  [default: ")[0]]
        if not re.fullmatch(r"[A-Z].*\.", first):
            wrong.append((words, first))
    assert wrong == []


def test_help_fits_80_columns():
    wide = [words for words in ((), *commands()) if max(map(len, shown(words, 80).splitlines())) > 80]
    assert wide == []


def test_the_list_of_verbs_is_in_the_order_of_the_work():
    text = shown((), 110)
    assert re.findall(r"^  ([a-z-]+)  ", text.partition("Author:")[2], re.M) == list(cli.verbs)
    assert "jestlab launch quickstart" in text.partition("Examples:")[2]
    assert all(about.endswith(".") for about in cli.verbs.values())


@pytest.mark.parametrize(
    ("words", "variables", "answer"),
    [
        ("--help", {}, "Usage: jestlab [OPTIONS]"),
        ("init --help", {}, "Usage: jestlab init"),
        (
            "",
            {"_JESTLAB_COMPLETE": "bash_complete", "COMP_WORDS": "jestlab\nst", "COMP_CWORD": "1"},
            "plain,status",
        ),
    ],
)
def test_help_and_completion_of_verbs_import_little(words, variables, answer):
    code = "import sys\nfrom jestlab.platform.cli import main\ntry: main()\nfinally: print(*sys.modules)"
    command = [sys.executable, "-c", code, *words.split()]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)
    assert done.stdout.startswith(answer) and done.stderr == ""
    assert not {"sqlalchemy", "pydantic", "numpy", "pandas"} & set(done.stdout.splitlines()[-1].split())


def test_help_needs_no_extra():
    code = """
import sys
from jestlab.platform.dependencies import EXTRAS
sys.modules.update(dict.fromkeys(module for modules in EXTRAS.values() for module in modules))
from test_cli_help import commands, shown
print(*(f"jestlab {' '.join(words)}" for words in commands() if shown(words, 80)), sep="\\n")
"""
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True)
    assert done.stderr == ""
    assert {"jestlab weights export", "jestlab data make shapes"} <= {*done.stdout.splitlines()}


def test_planning_imports_no_tables():
    code = "import sys\nimport jestlab.platform.planning.plan\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    modules = set(done.stdout.split())
    assert "jestlab.analysis.claims" in modules
    assert not {"jestlab.analysis.tables", "jestlab.analysis.custom", "pandas"} & modules


def test_keys_lists_a_section_or_explains_a_key(checked, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    keys = functools.partial(checked, "keys")
    out = keys("optimizer")
    assert out.splitlines()[1].split()[:2] == ["optimizer.learning_rate", "0.001"] and "9 keys." in out
    assert len(json.loads(keys("--json"))) > 200
    about = " ".join(keys("selection.rule").split())
    [key] = json.loads(keys("selection.rule", "--json"))
    assert key["choices"] == ["uniform", "independent", "joint", "greedy", "gibbs"]
    assert f"choices {', '.join(key['choices'])} used by train" in about and "default uniform" in about
    assert (key["path"], key["default"], key["where"]) == ("selection.rule", "uniform", ["train"])
    assert key["identity"] is True and "identity part of a run's identity" in about
    assert "not part of a run's identity" in keys("runtime.microbatches")
    assert keys("loss").count("used by") == 2  # one meaning per program
    assert "did you mean 'selection.rule'" in keys("selection.ruel", code=1)
