"""Shells complete verbs, options, studies, experiments, and runs."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import click
import plans_support as plans
import pytest
import stores_support as stores
from click.testing import CliRunner

from jestlab.analysis.tables import NAMES
from jestlab.platform.cli import VERBS, cli, completing
from jestlab.platform.cli.completion import SCRIPTS
from jestlab.platform.cli.flags import CodeName
from jestlab.platform.store.annotations import Subject, add_tags
from jestlab.platform.store.store import Store

RUNS = [
    plans.run("uniform"),
    plans.run("joint", config={"r": 1}, point={"ratio": 0.5}),
    plans.run("joint", config={"r": 2}, point={"ratio": 0.8}),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a spec, and a lab that has a study of two points and a study of two seeds."""
    store = Store.open(stores.empty_lab(tmp_path / "lab").store_url)
    store.record(plans.plan(*RUNS))
    store.record(plans.plan(plans.run("cli=p", seed=0), plans.run("cli=p", seed=1), name="seeds"))
    add_tags(store, Subject(experiment="toy"), ["keep", "best"])
    store.close_whole()
    (tmp_path / "mine.yaml").write_text("name: mine\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "other.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def completed(line, shell="fish"):
    lines = completing.answer(shell, f"jestlab {line}", cli, VERBS).splitlines()
    return [each.partition("\t")[0] for each in lines]


def test_completes_verbs_with_their_help():
    assert completed("") == list(VERBS)
    assert completing.answer("fish", "jestlab wa", cli, VERBS) == f"watch\t{VERBS['watch']}"
    assert completed("wa x") == completed("nothing ") == []


def test_completes_verbs_options_and_names(folder):
    lines = {
        "logs ": ["seeds/", "toy/"],
        "logs toy/": ["toy/uniform", "toy/joint ratio=0.5", "toy/joint ratio=0.8"],
        "logs 'toy/joint r": ["toy/joint ratio=0.5", "toy/joint ratio=0.8"],
        r"cancel toy/joint\ ratio=0.5": ["toy/joint ratio=0.5"],
        "status se": ["seeds"],
        "retry seeds/": ["seeds/cli=p/0", "seeds/cli=p/1"],
        "diff toy/uniform toy/u": ["toy/uniform"],
        "diff toy/uniform toy/uniform toy/u": [],
        "launch mine.yaml ": [],
        "launch toy ": ["toy/uniform", "toy/joint ratio=0.5", "toy/joint ratio=0.8"],
        "plan m": ["mine.yaml", "multi_resolution"],
        "plan more/": ["more/other.py"],
        "table to": ["toy"],
        "table claims s": ["seeds"],
        "table claims seeds t": ["toy"],
        "tag toy ": ["best", "keep"],
        "watch --root lab t": ["toy"],
        "watch --root elsewhere t": [],
        "watch --store sqlite:///lab/results.db t": ["toy"],
        "watch --store postgresql://u:p@nowhere/db t": [],
        "table toy --format la": ["latex"],
        "table toy --bas": ["--baseline"],
        "table --score a/b to": ["toy"],
        "table toy --root ": ["//folders"],
        "table toy --output ": ["//files"],
        "query --experiment to": ["toy"],
        "weights ": ["inspect", "import", "export"],
        "data make s": ["shapes"],
        "weights inspect toy/u": ["toy/uniform"],
        "weights export --for": ["--force", "--format"],
        "x; A=1 jestlab watch t": ["toy"],
        "completion z": ["zsh"],
        "launch toy --on ": ["local", "vertex", "kubernetes", "slurm"],
        "retry toy --on=k": ["--on=kubernetes"],
        "plot toy --kind par": ["pareto"],
        "plot toy --scale ": ["linear", "log"],
        "plan mine.yaml --scale m": ["mini"],
        "table toy --format=la": ["--format=latex"],
        "table toy --output=": ["//files"],
        "plot toy --highlight ": ["uniform", "joint ratio=0.5", "joint ratio=0.8"],
        "plot seeds --baseline ": ["cli=p"],
        "plot --baseline ": [],
        "data score --target toy/u": ["toy/uniform"],
        "register m": ["mine.yaml", "multi_resolution"],
        "keys selection.rule_": ["selection.rule_options"],
        "adopt ": ["wandb", "mlflow", "tensorboard", "csv", "parquet"],
        "adopt csv ": ["//files"],
        "adopt csv x ": [],
        "adopt csv x --into s": ["seeds"],
        "query --view met": ["metrics"],
        "serve --lab ": ["//folders"],
        "init ": ["//files"],
        "data make shapes ": ["//folders"],
    }
    for line, expected in lines.items():
        assert sorted(completed(line)) == sorted(expected), line


def test_completes_nothing_without_a_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert completed("logs ") == completed("status x") == []
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "results.db").write_bytes(b"no database")
    assert completed("logs ") == []


def test_bash_gets_the_rest_of_its_last_word(folder):
    assert completed("logs toy/j", "bash") == [r"toy/joint\ ratio=0.5", r"toy/joint\ ratio=0.8"]
    assert completed(r"logs toy/joint\ ratio=0", "bash") == ["0.5", "0.8"]
    assert completed("logs 'toy/joint r", "bash") == ["toy/joint ratio=0.5", "toy/joint ratio=0.8"]


def test_the_lists_match_the_commands():
    """The lists exist so that completion doesn't import the verbs."""

    def below(path, command):
        if isinstance(command, click.Group):
            yield path, tuple(command.commands)
            for name, each in command.commands.items():
                yield from below((*path, name), each)
        else:
            leaves[path] = [each for each in command.params if isinstance(each, click.Argument)]

    leaves: dict[tuple[str, ...], list[click.Argument]] = {}
    groups: dict[tuple[str, ...], tuple[str, ...]] = {}
    for verb in VERBS:
        groups |= dict(below((verb,), cli.get_command(click.Context(cli), verb)))
    assert {path: set(names) for path, names in completing._GROUPS.items()} == {
        path: set(names) for path, names in groups.items()
    }
    for path, kinds in completing._ARGUMENTS.items():
        assert path in leaves and len(kinds) <= len(leaves[path]), path
    assert set(completing._TABLES) == set(NAMES)


def test_completes_whatever_is_chosen_among_few_or_is_a_file(subtests):
    def leaves(path, command):
        if not isinstance(command, click.Group):
            yield " ".join(path), command.params
            return
        for name, each in command.commands.items():
            yield from leaves((*path, name), each)

    asked = 0
    for verb in VERBS:
        for words, parameters in leaves((verb,), cli.get_command(click.Context(cli), verb)):
            arguments = [each for each in parameters if isinstance(each, click.Argument)]
            for parameter in parameters:
                of, is_argument = parameter.type, parameter in arguments
                before = ["x"] * arguments.index(parameter) if is_argument else [parameter.opts[0]]
                with subtests.test(f"{words} {parameter.name}"):
                    found = completed(" ".join([words, *before, ""]))
                    if isinstance(of, click.Choice):
                        assert found == list(of.choices)
                    elif isinstance(of, click.Path):
                        assert found in (["//files"], ["//folders"])
                        assert found == ["//files"] or of.dir_okay
                    elif isinstance(of, CodeName):
                        assert set(found) >= set(of._builtin)
                    else:
                        continue
                    asked += 1
    assert asked > 80


def test_imports_nothing_heavy(folder):
    environment = {**os.environ, "_JESTLAB_COMPLETE": "bash", "_JESTLAB_LINE": "jestlab logs toy/"}
    code = "import sys\nfrom jestlab.platform.cli import main\ntry: main()\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    answered, modules = done.stdout.splitlines()[:-1], done.stdout.splitlines()[-1].split()
    assert len(answered) == 3 and done.stderr == ""
    assert not {"sqlalchemy", "pydantic", "rich", "numpy", "pandas"} & set(modules)


def test_each_shell_has_its_script():
    for shell in SCRIPTS:
        shown = CliRunner().invoke(cli, ["completion", shell])
        assert shown.exit_code == 0 and f"_JESTLAB_COMPLETE={shell}" in shown.output


def test_a_real_bash_completes(folder):
    """Complete an experiment, and a run whose label has a space and an equals sign."""
    script = CliRunner().invoke(cli, ["completion", "bash"]).output
    (folder / "rc").write_text(f"PATH={Path(sys.executable).parent}:$PATH\nPS1='$ '\n{script}")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "HOME": str(folder), "INPUTRC": "/dev/null"}
    shell = subprocess.Popen(
        ["bash", "--rcfile", "rc", "-i"], stdin=theirs, stdout=theirs, stderr=theirs,
        env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)

    def wait_for(until, seconds=120.0):
        text, end = "", time.monotonic() + seconds
        while until not in text and time.monotonic() < end:
            if select.select([ours], [], [], 0.1)[0]:
                text += os.read(ours, 65536).decode(errors="replace").replace("\x07", "")
        assert until in text, text

    try:
        wait_for("$ ")
        for typed, expected in (
            ("echo jestlab", "echo jestlab"),
            ("\x15jestlab logs t\t", "jestlab logs toy/"),
            ("j\t", r"joint\ ratio=0."),
            ("8\t", "8 "),
        ):
            os.write(ours, typed.encode())
            wait_for(expected)
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
