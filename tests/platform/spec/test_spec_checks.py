"""Checks of a spec that is loaded: texts that are names of runs, and reserved names of studies."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from jestlab.platform.errors import UserError
from jestlab.platform.spec.expand import expand
from jestlab.platform.spec.load import load, load_stored
from jestlab.platform.spec.schema import StudySpec


def written(**runs: Any) -> dict[str, Any]:
    return {"name": "own", "program": "command", "base": {"command": ["true"]}, "runs": runs}


def loaded(folder: Path, spec: dict[str, Any], *overrides: str) -> StudySpec:
    (folder / "own.yaml").write_text(yaml.safe_dump(spec))
    return load(str(folder / "own.yaml"), None, overrides)


def test_rejects_the_name_of_another_run_with_both_fixes(tmp_path):
    spec = written(pretrain={}, tune={"init": "pretrain"})
    with pytest.raises(UserError) as refused:
        loaded(tmp_path, spec)
    assert str(refused.value).partition("own.yaml:")[2] == (
        "8: runs.tune: init is the text 'pretrain', which is also the name of a run: to depend on that run, "
        "write `needs: {init: pretrain}`; to keep the text, add `needs: {init: null}`"
    )
    assert expand(load_stored("own", spec))  # what was launched before stays what it is
    study = loaded(tmp_path, written(pretrain={}, tune={"needs": {"init": "pretrain"}}))
    assert expand(study)[1].needs == {"init": 0}
    study = loaded(tmp_path, written(pretrain={}, tune={"init": "pretrain", "needs": {"init": None}}))
    assert not expand(study)[1].needs
    config = expand(study)[1].config
    assert isinstance(config, dict)
    assert config["init"] == "pretrain"
    again = StudySpec.parse(yaml.safe_load(study.to_yaml()))
    assert again.runs["tune"].texts == ("init",)
    assert again.to_dict() == study.to_dict()


def test_accepts_other_texts(tmp_path):
    several: list[dict[str, Any]] = [
        {"adam": {"optimizer": "adam"}, "adam_wide": {"optimizer": "adam", "width": 64}, "sgd": {}},
        {"pretrain": {"mode": "pretrain"}, "tune": {"mode": "tune"}},
        {"true": {}, "other": {"command": "true"}},
        {"a": {"init": "b c"}, "b": {}},
    ]
    for runs in several:
        assert expand(loaded(tmp_path, written(**runs))), runs


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
