"""`jestlab keys`, as it is typed."""

import json

import pytest

from jestlab.platform.cli import main


@pytest.fixture
def jestlab(capsys):
    def call(*arguments, code=0):
        with pytest.raises(SystemExit) as stopped:
            main(["keys", *arguments])
        captured = capsys.readouterr()
        assert stopped.value.code == code, captured.err
        return captured.out if code == 0 else captured.err

    return call


@pytest.mark.parametrize("width", [60, 80, 140])
@pytest.mark.parametrize("prefix", ["", "selection", "reports", "data.benchmark"])
def test_tables_fit_the_terminal(jestlab, monkeypatch, width, prefix):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = jestlab(prefix).splitlines()
    assert max(map(len, lines)) <= width
    if width >= 80:
        assert lines[0].split() == ["KEY", "DEFAULT", "MEANING"]
    text = " ".join(" ".join(lines).split())
    assert prefix in text


def test_a_section_tells_defaults_and_meanings(jestlab, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    out = jestlab("optimizer")
    assert [line.split()[:2] for line in out.splitlines()[1:3]] == [
        ["optimizer.learning_rate", "0.001"],
        ["optimizer.beta1", "0.9"],
    ]
    assert "9 keys. One key with its type, choices and an example: jestlab keys KEY" in out


def test_one_key_is_told_with_its_choices_and_an_example(jestlab):
    lines = [" ".join(line.split()) for line in jestlab("selection.rule").splitlines()]
    assert lines[0] == "selection.rule"
    assert "choices uniform, independent, joint, greedy, gibbs" in lines
    assert "default uniform" in lines
    assert "used by train" in lines
    assert "identity part of a run's identity" in lines
    assert "example base: {selection.rule: independent}" in lines
    assert "not part of a run's identity" in jestlab("runtime.microbatches")


def test_a_key_that_two_programs_mean_differently_is_told_twice(jestlab):
    out = jestlab("loss")
    assert out.count("used by") == 2
    assert "The loss that scores" in out and "The contrastive loss that is trained with" in out


def test_json_has_every_field(jestlab):
    [key] = json.loads(jestlab("selection.rule", "--json"))
    assert key["choices"] == ["uniform", "independent", "joint", "greedy", "gibbs"]
    assert (key["path"], key["default"], key["where"], key["identity"]) == (
        "selection.rule",
        "uniform",
        ["train"],
        True,
    )
    assert len(json.loads(jestlab("--json"))) > 200


def test_an_unknown_key_is_one_line_with_the_nearest(jestlab):
    assert jestlab("selection.ruel", code=1) == (
        "jestlab: no key 'selection.ruel': did you mean 'selection.rule'?\n"
    )
