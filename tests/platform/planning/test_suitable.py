"""Resources that an executor or a program can't use are refused when a study is planned."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.options import LaunchOptions
from jestlab.platform.launch.session import plan_study
from jestlab.platform.planning.survey import survey
from jestlab.platform.spec.load import load

OWN = """
from jestlab.platform.launch.executors.base import Executor

class One(Executor):
    pass

class Several(Executor):
    supports_nodes = True
"""
COMMAND = {"program": "command", "base": {"command": ["true"]}}
FUNCTION = {"program": "toy_programs:loop", "base": {"steps": 3}}


@pytest.fixture
def study(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)

    def write(program: dict[str, Any], **resources: Any) -> Any:
        spec = {"name": "toy", "runs": {"run": {}}, "resources": resources, **program}
        (tmp_path / "toy.yaml").write_text(yaml.safe_dump(spec))
        return load("toy.yaml")

    return write


@pytest.mark.parametrize(
    ("program", "resources", "message"),
    [
        (COMMAND, {"on": "own.py:One", "nodes": 2}, "own.py:One supports only one machine per run"),
        (FUNCTION, {"tasks_per_node": 2}, "`tasks_per_node` is for `program: command`, not for toy_prog"),
        (COMMAND, {"on": "vertex", "tpu": "v5e-4x4"}, "vertex runs commands on one machine, not on the 4"),
    ],
)
def test_a_plan_and_a_launch_refuse_them(study, root, program, resources, message):
    spec = study(program, **resources)
    with pytest.raises(UserError, match=f"^resources: [^\n]*{message}[^\n]*$"):
        survey(Lab.find(root), spec)
    with pytest.raises(UserError, match=message):
        plan_study(Lab.find(root), spec, LaunchOptions())


@pytest.mark.parametrize(
    ("program", "resources"),
    [
        (COMMAND, {"on": "own.py:Several", "nodes": 2, "tasks_per_node": 2}),
        (COMMAND, {"tasks_per_node": 2}),
        (FUNCTION, {"on": "slurm", "nodes": 2}),
    ],
)
def test_others_are_planned(study, root, program, resources):
    assert survey(Lab.find(root), study(program, **resources)).remarks == []


def test_the_executor_is_that_of_the_launch(study, root):
    spec = study(COMMAND, nodes=2)
    [remark] = survey(Lab.find(root), spec).remarks
    assert remark.startswith("a launch is refused: resources: local supports only one machine per run")
    with pytest.raises(UserError, match="local supports only one machine per run: leave out `nodes`, or"):
        plan_study(Lab.find(root), spec, LaunchOptions())
    for place in ("slurm", "local"):  # `--on local` uses this machine alone
        plan_study(Lab.find(root), spec, LaunchOptions(on=place))
    with pytest.raises(UserError, match="vertex supports only one machine"):
        plan_study(Lab.find(root), spec, LaunchOptions(on="vertex"))
