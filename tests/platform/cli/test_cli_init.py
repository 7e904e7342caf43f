"""`jestlab init`: the study that it writes can be planned and launched."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import load


@pytest.fixture
def jestlab(checked):
    return checked


@pytest.mark.parametrize("program", ["train", "command"])
def test_the_study_can_be_planned(jestlab, program):
    out = jestlab("init", "--program", program)
    assert out.splitlines()[-2:] == ["  jestlab plan study.yaml", "  jestlab launch study.yaml"]
    data = json.loads(jestlab("init", "sub/a.yaml", "--program", program, "--json"))
    assert data["next"] == ["jestlab plan sub/a.yaml", "jestlab launch sub/a.yaml"]
    planned = jestlab("plan", "study.yaml")
    assert ": 0 done, 0 to resume, " in planned
    runs = plan(load("study.yaml")).runs
    assert {run.program for run in runs} == {program}
    assert len(runs) == {"train": 12, "command": 9}[program]


def test_nothing_is_overwritten(jestlab):
    jestlab("init")
    before = Path("study.yaml").read_text()
    assert jestlab("init", code=1) == (
        "jestlab: study.yaml exists: give another name, as in jestlab init mine.yaml\n"
    )
    Path("train_other.py").write_text("mine")
    assert "train_other.py exists" in jestlab("init", "other.yaml", "--program", "command", code=1)
    assert not Path("other.yaml").exists()
    assert (Path("study.yaml").read_text(), Path("train_other.py").read_text()) == (before, "mine")


def test_refuses_invalid_names(jestlab):
    for name, why in (
        ("study.py", "ends in .yaml"),
        ("table.yaml", "is the name of a kind of report"),
        (".yaml", "ends in .yaml"),
        ("a b.yaml", "invalid name 'a b'"),
    ):
        assert why in jestlab("init", name, code=1)
        assert not Path(name).exists()


@pytest.mark.full
def test_the_study_of_a_script_can_be_launched(jestlab):
    jestlab("init", "--program", "command")
    text = Path("study.yaml").read_text()
    Path("study.yaml").write_text(text.replace("seeds: 3", "seeds: 2").replace("[0.5, 0.9]", "[0.9]"))
    out = jestlab("launch", "study.yaml", "--root", "lab")
    assert "| plain " in out and "| with_momentum " in out
    assert "Test accuracy" in out
    assert "Momentum learns more" in out


def evaluations(folder: Path, tmp_path: Path, resume: str, *replies: dict[str, object]) -> dict[int, float]:
    """Run the script like a worker, with these replies, and return its accuracy by step."""
    (tmp_path / "config.json").write_text(json.dumps({"learning_rate": 0.02, "momentum": 0.9}))
    reports, answers = tmp_path / "reports", tmp_path / "replies"
    reports.write_text("")
    flushed = [{"type": "flushed", "id": number} for number in range(1, 9)]
    answers.write_text("".join(json.dumps(reply) + "\n" for reply in (*flushed, *replies)))
    environment = {
        **os.environ,
        "JESTLAB_REPORTS": str(reports),
        "JESTLAB_REPLIES": str(answers),
        "JESTLAB_NEEDS": "{}",
        "JESTLAB_SEED": "3",
        "JESTLAB_RUN_DIR": str(folder),
        "JESTLAB_RESUME": resume,
        "JESTLAB_RUN_CONFIG": str(tmp_path / "config.json"),
    }
    subprocess.run([sys.executable, "train_study.py"], cwd=tmp_path, env=environment, check=True)
    messages = map(json.loads, reports.read_text().splitlines())
    return {m["step"]: m["scores"]["test/accuracy"] for m in messages if m["type"] == "evaluation"}


def test_the_script_resumes_after_a_stop(jestlab, tmp_path):
    jestlab("init", "--program", "command")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    at_once = evaluations(whole, tmp_path, "")
    assert list(at_once) == list(range(20, 201, 20))
    assert at_once[200] > at_once[20]
    assert evaluations(parts, tmp_path, "", {"type": "stop"}) == {}
    assert (parts / "state.npz").exists()
    assert evaluations(parts, tmp_path, str(parts)) == at_once
