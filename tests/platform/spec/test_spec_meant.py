"""Texts in free-form configs that are also names of runs: they may be meant as dependencies."""

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
