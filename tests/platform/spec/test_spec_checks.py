"""Checks of a spec that is loaded: texts that are names of runs, and reserved names of studies."""

from pathlib import Path

import pytest
import yaml

from jestlab.platform.errors import UserError
from jestlab.platform.spec.load import load

RUNS = {"program": "command", "base": {"command": ["true"]}, "runs": {"a": {}}}


def reserved(folder: Path, file: str = "own.yaml", **parts) -> str:
    path = folder / file
    path.write_text(yaml.safe_dump(RUNS | parts if "studies" not in parts else parts))
    return str(path)


@pytest.mark.parametrize(("name", "what"), [("summary", "a table"), ("pareto", "a kind of report")])
def test_names_of_tables_and_reports_are_reserved(tmp_path, name, what):
    message = rf"name: '{name}' is the name of {what}.*: choose another one, such as my_{name}$"
    with pytest.raises(UserError, match=message):
        load(reserved(tmp_path, f"{name}.yaml"))
    with pytest.raises(UserError, match=rf"^--set {message}"):
        load(reserved(tmp_path), None, [f"name={name}"])
    assert load(reserved(tmp_path, name=f"my_{name}")).name == f"my_{name}"


def test_registered_studies_may_have_reserved_names_also_as_parts(tmp_path):
    assert load("comparison").name == "comparison"
    assert load("comparison", None, ["seeds=1"]).name == "comparison"
    assert "comparison" in load("paper").studies
    union = load(reserved(tmp_path, name="mine", studies=["comparison"]))
    assert "comparison" in union.studies
    with pytest.raises(UserError, match=r"studies\.summary: 'summary' is the name of a table"):
        load(reserved(tmp_path, name="mine", studies={"summary": RUNS}))
    with pytest.raises(UserError, match="'pareto' is the name of a kind"):
        load("quickstart", None, ["name=pareto"])
