"""Words of a command: placeholders, scripts, and the errors when a spec is loaded."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import plan
from jestlab.platform.programs import command
from jestlab.platform.programs.command import scripts_of
from jestlab.platform.spec.expand import expand
from jestlab.platform.spec.load import load


@given(st.lists(st.tuples(st.text(), st.sampled_from(["lr", "model.width"]))))
def test_placeholders_work_like_in_python_formats(parts):
    word = "".join(text.replace("{", "{{").replace("}", "}}") + "{" + name + "}" for text, name in parts)
    plain = word.replace("{model.width}", "{width}")
    assert command.fill(word, {"lr": 0.1, "model.width": "64"}) == plain.format(lr=0.1, width="64")
    assert list(command.placeholder_names(word)) == [name for _, name in parts]


def test_values_as_words():
    values = ("a b", 1e-3, True, None, [1, "é"])
    assert [*map(command.as_word, values)] == ["a b", "0.001", "true", "null", '[1,"é"]']


def study(folder: Path, base: str, runs: str = "{r: {}}", more: str = "") -> str:
    path = folder / "study.yaml"
    path.write_text(f"program: command\nbase: {base}\nruns: {runs}\n{more}")
    return str(path)


@pytest.mark.parametrize(
    ("base", "runs", "message"),
    [
        ("{command: [train, '{learning_rat}'], learning_rate: 1}", "{r: {}}",
         r":2: base.command: no value for \{learning_rat\}: did you mean 'learning_rate'\?"),
        ("{model.width: 3}", "{r: {command: '{model.widht}'}}",
         r":3: runs.r.command: no value .*'model.width'"),
        ("{command: ['{needs.reference}']}", "{reference: {command: a}, r: {}}",
         "no value for .needs.reference"),
        ("{a: 1}", "{r: {}}", r":3: runs.r.command: is missing"),
        ("{command: []}", "{r: {}}", ":2: base.command: is empty"),
        ("{command: [a, [b]]}", "{r: {}}", "base.command: must be a list of words"),
        ('{command: "a \'b"}', "{r: {}}", "base.command: .* split into words: No closing quotation"),
        ("{command: ['{']}", "{r: {}}", r"base.command: '\{' has a single brace: write \{\{ for \{"),
        ("{command: [a], directory: b}", "{r: {}}", "base.directory: 'directory' is reserved"),
        ("{command: [a], cwd: 3}", "{r: {}}", "base.cwd: must be the path of a folder"),
    ],
)  # fmt: skip
def test_errors_name_the_place(tmp_path, base, runs, message):
    with pytest.raises(UserError, match=message):
        expand(load(study(tmp_path, base, runs)))


def test_placeholders_have_a_value_at_every_point(tmp_path):
    axes = "axes: [{runs: [r], cases: [{a: 1}, {b: 2}]}]\n"
    with pytest.raises(UserError, match=r"no value for \{a\}"):
        expand(load(study(tmp_path, "{command: [train, '{a}']}", more=axes)))
    words = "['{seed}', '{directory}', '{resume}', '{model}', '{model.width}']"
    runs = "{first: {}, r: {needs: {old.run: first}, command: ['{needs.old.run}']}}"
    assert len(expand(load(study(tmp_path, f"{{command: {words}, model.width: 3}}", runs)))) == 2


def test_the_identity_contains_the_command_but_not_its_folder(tmp_path):
    def fingerprint(base: str) -> str:
        [found] = plan(load(study(tmp_path, base))).fingerprints
        return found

    plain = fingerprint("{command: [train], a: 1}")
    assert fingerprint("{command: [train], a: 1, cwd: code}") == plain
    assert fingerprint("{command: [train, -v], a: 1}") != plain
    assert fingerprint("{command: [train], a: 2}") != plain
    for base, cwd in (("{command: [train], cwd: code}", "code"), ("{command: [train]}", ".")):
        [run] = plan(load(study(tmp_path, base))).runs
        assert run.config["cwd"] == str(tmp_path / cwd)  # relative to the spec's folder


@pytest.mark.parametrize(
    ("words", "scripts"),
    [
        ("python train.py --out result.py", ["train.py"]),
        ("python3.11 -u -X dev train.py", ["train.py"]),
        ("/usr/bin/python train.py", ["/usr/bin/python", "train.py"]),
        ("python -m package.train data.py", []),
        ("python -uc 'print(1)' data.py", []),
        ("python - data.py", []),
        ("./train.sh a b.py", ["./train.sh"]),
        ("env A=1 B=2 python train.py", ["train.py"]),
        ("nice -n5 sh run.sh", ["run.sh"]),
        ("python -u train.py", ["train.py"]),
        ("torchrun --nproc-per-node 2 train.py --plot draw.py", ["train.py"]),
        ("torchrun --standalone train.py", []),  # it may be the option's value
        ("srun -n 2 python train.py", ["train.py"]),
        ("make train", []),
        ("env", []),
    ],
)
def test_scripts(words, scripts):
    assert list(scripts_of(shlex.split(words))) == scripts
