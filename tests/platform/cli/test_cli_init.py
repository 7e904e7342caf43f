"""`jestlab init`: the study that it writes can be planned and launched."""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from jestlab.platform.planning.plan import plan
from jestlab.platform.programs import command_run
from jestlab.platform.spec import load
from jestlab.platform.spec.yaml import Document


@pytest.fixture
def init(checked):
    return functools.partial(checked, "init")


@pytest.mark.parametrize(("program", "count"), [("train", 12), ("command", 9)])
def test_the_study_can_be_planned(init, checked, program, count):
    out = init("--program", program)
    assert out.splitlines()[-2:] == ["  jestlab plan study.yaml", "  jestlab launch study.yaml"]
    data = json.loads(init("sub/a.yaml", "--program", program, "--json"))
    assert data["next"] == ["jestlab plan sub/a.yaml", "jestlab launch sub/a.yaml"]
    assert f"{count} runs: 0 done, 0 to resume, " in checked("plan", "study.yaml")
    assert [run.program for run in plan(load("study.yaml")).runs] == [program] * count


@pytest.mark.parametrize(("program", "section"), [("train", "selection"), ("command", "reports")])
def test_the_commands_in_the_comments_are_whole_lines(init, program, section):
    """No column after them can be misaligned, however long the path is."""
    init("sub/a.yaml", "--program", program)
    commands = ("plan sub/a.yaml", "launch sub/a.yaml", "table a", "keys", f"keys {section}")
    text = Path("sub/a.yaml").read_text()
    assert re.findall(r"^#   (.*)", text, re.M) == [f"jestlab {command}" for command in commands]


def test_the_script_can_be_started_by_hand_without_jestlab_after_the_first_launch(init, checked):
    init("sub/a.yaml", "--program", "command")
    about = Path("sub/train_a.py").read_text().split('"""')[1]
    [(variable, path, script)] = re.findall(r"`(PYTHONPATH)=(\S+) python3 (\S+)`", about)
    assert "After the first launch" in about
    command_run._python_path(Path("lab"))  # what a launch does
    code = f"import runpy; runpy.run_path({script!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={variable: path}, capture_output=True, text=True
    )  # without site-packages
    assert done.returncode == 0, done.stderr
    assert "evaluation: step 20, " in done.stdout


def test_nothing_is_overwritten(init):
    init()
    Path("train_other.py").write_text("mine")
    before = {path: path.read_text() for path in Path().glob("*.*")}
    assert "study.yaml exists: give another name, as in jestlab init mine.yaml" in init(code=1)
    assert "train_other.py exists" in init("other.yaml", "--program", "command", code=1)
    assert {path: path.read_text() for path in Path().glob("*.*")} == before


@pytest.mark.parametrize("program", ["train", "command"])
def test_editors_find_the_schema_next_to_the_study(init, checked, program):
    init("sub/a.yaml", "--program", program)
    init("sub/b.yaml", "--program", program)  # shares the schema
    text = Path("sub/b.yaml").read_text()
    name = text.partition("\n")[0].removeprefix("# yaml-language-server: $schema=")
    schema = Path("sub", name).read_text()
    jsonschema.Draft7Validator(json.loads(schema)).validate(Document(text).value)
    assert checked("schema") == schema
    checked("schema", "--output", "new.json")
    assert Path("new.json").read_text() == schema


def test_refuses_invalid_names(init):
    for name, why in (
        ("study.py", "ends in .yaml"),
        ("table.yaml", "is the name of a kind of report"),
        (".yaml", "ends in .yaml"),
        ("a b.yaml", "invalid name 'a b'"),
    ):
        assert why in init(name, code=1)
        assert not Path(name).exists()


@pytest.mark.full
def test_the_study_of_a_script_can_be_launched(init, checked):
    init("--program", "command")
    text = Path("study.yaml").read_text()
    Path("study.yaml").write_text(text.replace("seeds: 3", "seeds: 2").replace("[0.5, 0.9]", "[0.9]"))
    out = checked("launch", "study.yaml", "--root", "lab")
    assert all(
        part in out for part in ("| plain ", "| with_momentum ", "Test accuracy", "Momentum learns more")
    )


def test_the_script_resumes_after_a_stop(init, tmp_path):
    init("--program", "command")
    config, reports, answers = (tmp_path / name for name in ("config.json", "reports", "replies"))
    config.write_text(json.dumps({"learning_rate": 0.02, "momentum": 0.9}))
    flushed = [{"type": "flushed", "id": number} for number in range(1, 9)]

    def accuracies(folder: str, resume: str, *replies: dict[str, object]) -> dict[int, float]:
        """Run the script like a worker, with these replies, and return its accuracy by step."""
        (tmp_path / folder).mkdir(exist_ok=True)
        reports.write_text("")
        answers.write_text("".join(json.dumps(reply) + "\n" for reply in (*flushed, *replies)))
        variables = {
            "REPORTS": str(reports),
            "REPLIES": str(answers),
            "NEEDS": "{}",
            "SEED": "3",
            "RUN_DIR": str(tmp_path / folder),
            "RESUME": resume,
            "RUN_CONFIG": str(config),
        }
        environment = os.environ | {f"JESTLAB_{name}": value for name, value in variables.items()}
        subprocess.run([sys.executable, "train_study.py"], cwd=tmp_path, env=environment, check=True)
        messages = map(json.loads, reports.read_text().splitlines())
        return {m["step"]: m["scores"]["test/accuracy"] for m in messages if m["type"] == "evaluation"}

    at_once = accuracies("whole", "")
    assert list(at_once) == list(range(20, 201, 20)) and at_once[200] > at_once[20]
    assert accuracies("parts", "", {"type": "stop"}) == {}
    assert (tmp_path / "parts" / "state.json").exists()
    assert accuracies("parts", str(tmp_path / "parts")) == at_once
